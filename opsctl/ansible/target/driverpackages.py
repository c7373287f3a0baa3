"""The packages of a driver: a database that is damaged, what is to come in which version, and its
installation, which leaves no pin and no hold behind where it is refused."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Tuple

from opsctl.ansible.target import driverplan as plan
from opsctl.ansible.target.converge import Host, Refused
from opsctl.ansible.target.distro import names
from opsctl.ansible.target.repository import Manager


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


def install(
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
    before, held = manager.pinned(), [n for n in manager.held() if plan.of_family(n)]
    others = _of_others(held, found["installed"])
    manager.pin(Host(check=False), version)
    try:
        manager.unhold(held)  # apt moves no held package that it is not told by name
        manager.install(wanted, plan.FAMILY, url, fetch)
    except Refused:
        if plan.driver_of(manager.installed()) == have:
            manager.unpin(before)
            manager.hold(held)
        else:
            manager.hold(_still(others, manager))
        raise
    manager.hold(held if fetch else _still(others, manager))
    if fetch:
        manager.unpin(before)
        return
    host.changed("driver", f"{have or 'none'}\n", _asked(args, parts))


def _of_others(held: List[str], installed: Mapping[str, str]) -> List[str]:
    """Holds that are not the role's: it holds the driver's own packages alone."""
    own = set(plan.own(installed))
    return [name for name in held if name.partition(":")[0] not in own]


def _still(names: List[str], manager: Manager) -> List[str]:
    """Of held packages (NAME, NAME:ARCHITECTURE) those that are still there."""
    installed = manager.installed()
    return [name for name in names if name.partition(":")[0] in installed]


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
    if "companions" in parts:
        wanted += sorted(found["companions"].items())
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


def companions(manager: Manager, found: Dict[str, Any], parts: List[str], used: bool) -> List[str]:
    """Parts beside `parts`: of the packages that stand beside the driver with another's version
    those that the repository is known to hold in the driver's. While somebody uses the driver only
    its persistence; the others are told. What is to come stands in found["companions"], what waits
    for the driver to be free in found["waiting"]."""
    have, wanted = plan.driver_of(found["installed"]), {}
    for name in plan.strays(found["installed"]):
        if re.fullmatch(plan.FABRIC, name):
            continue  # `missing` judges it
        fitting = [v for v in manager.available(name) if plan.upstream(v) == have]
        if fitting:
            wanted[name] = fitting[0]
    own = [name for name in wanted if re.fullmatch(plan.PERSISTENCE, name)]
    beside = {n: v for n, v in wanted.items() if n not in own}
    others = {} if used else beside
    found["companions"], found["waiting"] = others, beside if used else {}
    more = ["persistence"] if own and "persistence" not in parts else []
    return more + (["companions"] if others else [])
