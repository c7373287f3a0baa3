"""The role `nvidia_driver`: the open kernel modules of a pinned branch, and what belongs to them.

Nothing is done to a driver that an engine uses, and nothing is left half done: the repository is
judged before it stays, packages are fetched before one is unpacked, a damaged package database is
told first. A reboot is never made here; what needs one is answered in `reboot`.
"""

from __future__ import annotations

import fnmatch
import os
import shutil
from typing import Any, Dict, List, Mapping, Tuple

from opsctl.ansible.target import driverplan as plan
from opsctl.ansible.target.converge import Host, Refused, run
from opsctl.ansible.target.distro import names
from opsctl.ansible.target.driverfacts import facts as look
from opsctl.ansible.target.repository import Manager, here, key_of, url_of

NOUVEAU = "/etc/modprobe.d/opsctl-nouveau.conf"
UMAD, _UMAD = "/etc/modules-load.d/opsctl-fabric.conf", "ib_umad"
_OFF = "# Taken by the role nvidia_driver: nouveau would hold the GPUs.\nblacklist nouveau\n"
_OFF += "options nouveau modeset=0\n"
_SERVICES = {"persistence": "nvidia-persistenced.service", "fabric": "nvidia-fabricmanager.service"}
_NOTHING: Dict[str, Any] = {"driver": None, "reboot": [], "users": [], "warnings": []}
_OLDEST = 400  # no driver branch of today is lower; other NVIDIA packages' versions are


def main(args: Dict[str, Any]) -> Dict[str, Any]:
    """`args`: branch ("" asks for nothing), version ("" for any of it), repository {url, key, b64,
    fingerprint}, fabric_manager ("auto", "yes", "no"), persistence, hold, allow_downgrade,
    allow_repair, needs (of the engines: [{"service", "engine", "driver": the least}]), check.
    Of whoever stops opsctl's services before the packages move: `stopping`, they count as stopped;
    `fetch`, the packages are fetched, and nothing is installed.

    Answers `driver`, `loaded`, `parts` (found missing), `fabric` (whether fabric manager belongs
    here), `reboot` (reasons), `users` (of the GPUs), `warnings` beside the usual.
    """
    host = Host(check=args["check"])
    if not args["branch"]:
        return host.result(**_NOTHING)
    try:
        return _converge(host, args)
    except Refused as problem:
        return {**host.result(**_NOTHING), "problems": [str(problem)]}


def _converge(host: Host, args: Dict[str, Any]) -> Dict[str, Any]:
    known, manager = here()
    damaged = mend(Host(check=True) if args.get("fetch") else host, manager, args["allow_repair"])
    found = _facts(manager, args)
    if damaged and (host.check or args.get("fetch")):
        # What is half installed tells of no version: the driver is judged when it is mended.
        told = {**_NOTHING, "driver": found["loaded"], "loaded": found["loaded"]}
        fabric = plan.wants_fabric(found, args)
        return host.result(**{**told, "users": found["users"]}, parts=["driver"], fabric=fabric)
    parts = plan.missing(found, args)
    plan.refuse_too_old(args["version"] or args["branch"], args.get("needs") or [])
    plan.refuse_in_use(found["users"], parts, plan.driver_of(found["installed"]) or "")
    url = url_of(args["repository"], known)
    key = key_of(args["repository"], url)
    fresh = manager.repository(host, url, key)
    if parts:
        if not (fresh or host.check):
            manager.update(url, key)
        _install(host, manager, known, args, found, parts, url)
    if args.get("fetch"):
        return host.result(**_NOTHING, parts=parts)
    _nouveau_off(host, known)
    if found["nvlink5"] and plan.wants_fabric(found, args):
        _reach_bridges(host)
    if not host.check:
        found = _facts(manager, args)
    return _settled(host, manager, args, found, parts)


def _settled(
    host: Host, manager: Manager, args: Dict[str, Any], found: Dict[str, Any], parts: List[str]
) -> Dict[str, Any]:
    """What comes after the packages: held, loaded, served; and what is to be told."""
    have, coming = plan.driver_of(found["installed"]), host.check and "driver" in parts
    if have and not coming:
        manager.pin(host, have)  # also of a driver that somebody else has installed
    if args["hold"]:
        _hold(host, manager, found["installed"])
    reasons = plan.reboot_reasons(found)
    problems: List[str] = []
    if not reasons and not coming:
        problems = _load(host, found)
        problems = problems or _serve(host, args, found, parts)
    if reasons and found["users"]:
        problems.append(f"a reboot is needed ({'; '.join(reasons)}), but engines run: "
                        f"{plan.stop(found['users'])}{plan.roll(found['users'])}")  # fmt: skip
    return {
        **host.result(
            driver=have,
            loaded=found["loaded"],
            parts=parts,
            fabric=plan.wants_fabric(found, args),
            reboot=reasons,
            users=found["users"],
            warnings=_warnings(found),
        ),
        "problems": problems,
    }


def _facts(manager: Manager, args: Mapping[str, Any]) -> Dict[str, Any]:
    installed, seen = manager.installed(), look()
    persistence = shutil.which("nvidia-persistenced") is not None
    if args.get("stopping"):
        seen["users"] = [user for user in seen["users"] if not plan.of_opsctl(user)]
    return {**seen, "installed": installed, "persistence": persistence}


def mend(host: Host, manager: Manager, allowed: bool) -> List[str]:
    """A package database that an interrupted run left behind is mended first, or told. Answers what
    was found half installed."""
    damaged = manager.damaged()
    if not damaged:
        return []
    told = ", ".join(damaged[:6]) + (" …" if len(damaged) > 6 else "")
    if not allowed:
        raise Refused(
            f"packages are half installed: {told}. Finish them on the host with: "
            f"{manager.repair_command}; or let the role do it: -e nvidia_driver_allow_repair=true"
        )
    if host.changed("half installed packages", f"{told}\n", ""):
        manager.repair()
        left = manager.damaged()
        if left:
            raise Refused(f"{manager.repair_command} left {', '.join(left)} half installed")
    return damaged


def _install(
    host: Host,
    manager: Manager,
    known: Mapping[str, Any],
    args: Mapping[str, Any],
    found: Mapping[str, Any],
    parts: List[str],
    url: str,
) -> None:
    have = plan.driver_of(found["installed"])
    if host.check:  # what the repository holds is only known once the host may read it
        host.changed("driver", f"{have or 'none'}\n", _asked(args, parts))
        return
    if "driver" in parts and "stream" in known:
        manager.stream(known["stream"].format(branch=args["branch"]))
    wanted, version = _versions(manager, known, args, found, parts, url)
    plan.refuse_too_old(version, args.get("needs") or [])
    fetch = bool(args.get("fetch"))
    before, held = manager.pinned(), [n for n in manager.held() if of_family(n)]
    manager.pin(Host(check=False), version)
    try:
        manager.unhold(held)  # apt moves no held package that it is not told by name
        manager.install(wanted, plan.FAMILY, url, fetch)
    except Refused:
        if plan.driver_of(manager.installed()) == have:
            manager.unpin(before)
            manager.hold(held)
        raise
    if fetch:
        manager.unpin(before)
        manager.hold(held)
        return
    host.changed("driver", f"{have or 'none'}\n", _asked(args, parts))


def _asked(args: Mapping[str, Any], parts: List[str]) -> str:
    return f"{args['version'] or args['branch'] + '.*'}: {', '.join(parts)}\n"


def _versions(
    manager: Manager,
    known: Mapping[str, Any],
    args: Mapping[str, Any],
    found: Mapping[str, Any],
    parts: List[str],
    url: str,
) -> Tuple[List[Tuple[str, str]], str]:
    """Packages with their versions, and the driver's version, which all of them share."""
    have = plan.driver_of(found["installed"])
    wanted: List[Tuple[str, str]] = []
    wish = dict(args)
    if "headers" in parts:
        headers = known["headers"].format(kernel=found["kernel"])
        wanted.append((headers, ""))
    if "driver" in parts:
        name, version = _first(manager, known["driver"], wish, url)
        wanted.append((name, version))
        have = plan.upstream(version)
    wish["version"] = have
    if "fabric" in parts:
        wanted.append(_first(manager, known["fabric"], wish, url))
    if "subnet" in parts:
        if not manager.available(plan.SUBNET):
            raise Refused(
                f"{plan.SUBNET}, which switches of NVLink 5 need beside fabric manager, is not at "
                f"{url}: renew the mirror, or set nvidia_driver_fabric_manager to no"
            )
        wanted.append((plan.SUBNET, ""))  # its versions are its own
    if "persistence" in parts:
        candidates = names(known["persistence"], branch=args["branch"])
        if any(manager.available(name) for name in candidates):
            wanted.append(_first(manager, known["persistence"], wish, url))
    if not wanted:
        raise Refused(
            f"nvidia-persistenced is neither on the host nor at {url}: set "
            "nvidia_driver_persistence to false, or renew the mirror"
        )
    return wanted, str(have)


def _first(
    manager: Manager, candidates: List[str], wish: Mapping[str, Any], url: str
) -> Tuple[str, str]:
    """The first name that the repository holds, with the version that suits. Raises Refused."""
    held = [(n, manager.available(n)) for n in names(candidates, branch=wish["branch"])]
    suiting = [n for n in held if any(plan.suits(plan.upstream(v), wish) for v in n[1])]
    name, versions = (suiting or [one for one in held if one[1]] or held)[0]
    return name, plan.chosen(name, versions, wish, url)


def _nouveau_off(host: Host, known: Mapping[str, Any]) -> None:
    """The image that boots holds a copy of the file: it is made anew only if that changed."""
    if host.file(NOUVEAU, _OFF) and not host.check and shutil.which(known["initramfs"][0]):
        run(known["initramfs"])


def _reach_bridges(host: Host) -> None:
    """Fabric manager and nvlsm reach switches of NVLink 5 by InfiniBand's management datagrams."""
    host.file(UMAD, "# Taken by the role nvidia_driver, for fabric manager.\nib_umad\n")
    if not os.path.isdir(f"/sys/module/{_UMAD}") and host.changed(
        f"module {_UMAD}", "", "loaded\n"
    ):
        run(["modprobe", _UMAD])


def _hold(host: Host, manager: Manager, installed: Mapping[str, str]) -> None:
    version = plan.driver_of(installed)
    family = [n for n, v in installed.items() if plan.upstream(v) == version and of_family(n)]
    held = set(manager.held())
    loose = sorted(name for name in family if name not in held)
    if loose and host.changed("held packages", "", "".join(f"{name}\n" for name in loose)):
        manager.hold(loose)


def of_family(name: str) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in plan.FAMILY)


def _load(host: Host, found: Mapping[str, Any]) -> List[str]:
    """A first driver needs no reboot."""
    if found["loaded"]:
        return []
    if host.changed("kernel module nvidia", "", "loaded\n"):
        try:
            run(["modprobe", "nvidia"])
        except Refused as problem:
            host.diff.pop()
            return [
                f"driver {plan.driver_of(found['installed'])} is installed, but its module does "
                f"not load: {problem}\nlook with: dkms status; dmesg | grep -i nvrm"
            ]
    return []


def _serve(
    host: Host, args: Mapping[str, Any], found: Mapping[str, Any], parts: List[str]
) -> List[str]:
    wanted = ["persistence"] if args["persistence"] else []
    wanted += ["fabric"] if plan.wants_fabric(found, args) else []
    problems = []
    for part in wanted:
        unit = _SERVICES[part]
        now = _state(unit)
        replaced = part in parts and not host.check
        if now == "enabled active" and not replaced:
            continue
        if now != "enabled active":
            host.changed(unit, f"{now}\n", "enabled active\n")
        if not host.check:
            try:
                run(["systemctl", "enable", unit])
                run(["systemctl", "restart" if replaced else "start", unit])
            except Refused as problem:
                problems.append(f"{problem}\nlook with: journalctl -u {unit} -n 20")
    return problems


def _state(unit: str) -> str:
    """Two words, as systemctl says them; it ends with an error for all but the good ones."""
    show = run(["systemctl", "show", "-p", "UnitFileState,ActiveState", "--", unit])
    fields = dict(line.split("=", 1) for line in show.split() if "=" in line)
    return f"{fields.get('UnitFileState') or 'absent'} {fields.get('ActiveState')}"


def _warnings(found: Mapping[str, Any]) -> List[str]:
    told = []
    version = plan.driver_of(found["installed"])
    odd = {
        f"{name} {value}"
        for name, value in found["installed"].items()
        if of_family(name)
        and (plan.order(plan.upstream(value)) or (0,))[0] >= _OLDEST
        and plan.upstream(value) != version
    }
    if version and odd:
        told.append(f"beside driver {version} stand packages of others: {', '.join(sorted(odd))}")
    if found["secure_boot"]:
        told.append(
            "Secure Boot is on: the kernel loads the modules only if the key that DKMS signs them "
            "with is enrolled (mokutil --import, then confirm at the console)"
        )
    if found["reboot_required"]:
        told.append(f"a reboot is asked for by {', '.join(found['reboot_required'])}")
    return told
