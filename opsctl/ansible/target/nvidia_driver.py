"""The role `nvidia_driver`: the open kernel modules of a pinned branch, and what belongs to them.

Nothing is done to a driver that an engine uses, and nothing is left half done: the repository is
judged before it stays, packages are fetched before one is unpacked, a damaged package database is
told first. A reboot is never made here; what needs one is answered in `reboot`.
"""

from __future__ import annotations

import os
import shutil
from typing import Any, Dict, List, Mapping

from opsctl.ansible.target import driverpackages as packages
from opsctl.ansible.target import driverplan as plan
from opsctl.ansible.target.converge import Host, Refused, run
from opsctl.ansible.target.driverfacts import engaged, parked
from opsctl.ansible.target.driverfacts import facts as look
from opsctl.ansible.target.repository import Manager, here, key_of, url_of

NOUVEAU = "/etc/modprobe.d/opsctl-nouveau.conf"
UMAD, _UMAD = "/etc/modules-load.d/opsctl-fabric.conf", "ib_umad"
_OFF = "# Taken by the role nvidia_driver: nouveau would hold the GPUs.\nblacklist nouveau\n"
_OFF += "options nouveau modeset=0\n"
_SERVICES = {"persistence": "nvidia-persistenced.service", "fabric": "nvidia-fabricmanager.service"}
_NOTHING: Dict[str, Any] = {"driver": None, "reboot": [], "users": [], "warnings": []}
_SERVING = ["systemctl", "list-units", "--all", "--full", "--plain", "--no-legend"]
_SERVING += ["sglang-*.service"]


def main(args: Dict[str, Any]) -> Dict[str, Any]:
    """`args`: branch ("" asks for nothing), version ("" for any of it), repository {url, key, b64,
    fingerprint}, fabric_manager ("auto", "yes", "no"), persistence, hold, allow_downgrade,
    allow_repair, needs (of the engines: [{"service", "engine", "driver": the least}]),
    without_gpus (services), roll (how upgrade_driver.yml is typed), roll_rebooting (the same, where
    no reboot is allowed yet and one is due), check. Of that playbook, which
    stops opsctl's services before the packages move: `stopping`, they count as stopped; `rolling`,
    those that are parked are its own; `fetch`, the packages are fetched, and nothing is installed.

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
    damaged = packages.mend(
        Host(check=True) if args.get("fetch") else host, manager, args["allow_repair"]
    )
    found = _facts(manager, args)
    if damaged and (host.check or args.get("fetch")):
        # What is half installed tells of no version: the driver is judged when it is mended.
        told = {**_NOTHING, "driver": found["loaded"], "loaded": found["loaded"]}
        fabric = plan.wants_fabric(found, args)
        return host.result(**{**told, "users": found["users"]}, parts=["driver"], fabric=fabric)
    parts = plan.missing(found, args)
    plan.refuse_too_old(args["version"] or args["branch"], args.get("needs") or [])
    using = plan.busy(found["users"], found["services"], args.get("without_gpus") or ())
    if "driver" not in parts:
        parts += packages.companions(manager, found, parts, bool(using))
    plan.refuse_in_use(using, parts, found, args)
    url = url_of(args["repository"], known)
    key = key_of(args["repository"], url)
    fresh = manager.repository(host, url, key)
    if parts:
        if not (fresh or host.check):
            manager.update(url, key)
        packages.install(host, manager, known, args, found, parts, url)
    if args.get("fetch"):
        return host.result(**_NOTHING, parts=parts)
    _nouveau_off(host, known)
    if found["nvlink5"] and plan.wants_fabric(found, args):
        _reach_bridges(host)
    if not host.check:
        found = _facts(manager, args)
        if "driver" in parts:
            found = _brought_along(host, manager, known, args, found, url)
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
    using = plan.busy(found["users"], found["services"])  # a reboot ends those without GPUs, too
    if reasons and using:
        problems.append(
            f"a reboot is needed ({'; '.join(reasons)}), and it would end {plan.named(using)}: "
            f"{plan.way(using, args, reboot=True)}"
        )
    return {
        **host.result(
            driver=have,
            loaded=found["loaded"],
            parts=parts,
            fabric=plan.wants_fabric(found, args),
            reboot=reasons,
            users=found["users"],
            warnings=[*host.warnings, *_warnings(found)],
        ),
        "problems": problems,
    }


def _facts(manager: Manager, args: Mapping[str, Any]) -> Dict[str, Any]:
    installed, seen = manager.installed(), look()
    persistence = shutil.which("nvidia-persistenced") is not None
    services = engaged(run(_SERVING))
    up = {service["unit"] for service in services}
    services += [{"unit": one, "state": plan.PARKED} for one in parked() if one not in up]
    if args.get("rolling"):
        services = [service for service in services if service["state"] != plan.PARKED]
    if args.get("stopping"):
        seen["users"] = [user for user in seen["users"] if not plan.of_opsctl(user)]
        services = []
    return {**seen, "installed": installed, "persistence": persistence, "services": services}


def _brought_along(
    host: Host,
    manager: Manager,
    known: Mapping[str, Any],
    args: Mapping[str, Any],
    found: Dict[str, Any],
    url: str,
) -> Dict[str, Any]:
    """A driver that has moved takes along what nothing of it depends on. What cannot come is told:
    the driver itself is there."""
    parts = packages.companions(manager, found, [], used=False)
    if not parts:
        return found
    try:
        packages.install(host, manager, known, args, found, parts, url)
    except Refused as problem:
        host.warnings.append(str(problem))
    return _facts(manager, args)


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
    """The driver's own packages. What stands beside it is of others, and so are its holds: they are
    neither put nor released."""
    held = set(manager.held())
    loose = [name for name in plan.own(installed) if name not in held]
    if loose and host.changed("held packages", "", "".join(f"{name}\n" for name in loose)):
        manager.hold(loose)


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
    odd = sorted(f"{name} {value}" for name, value in plan.strays(found["installed"]).items())
    if odd:
        version = plan.driver_of(found["installed"])
        told.append(f"beside driver {version} stand packages of others: {', '.join(odd)}")
    if found["secure_boot"]:
        told.append(
            "Secure Boot is on: the kernel loads the modules only if the key that DKMS signs them "
            "with is enrolled (mokutil --import, then confirm at the console)"
        )
    if found["reboot_required"]:
        told.append(f"a reboot is asked for by {', '.join(found['reboot_required'])}")
    return told
