"""What is to be done about a host's driver, by what was found and what is asked (pure)."""

from __future__ import annotations

import fnmatch
import re
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from opsctl.ansible.target.converge import Refused

# Everything that the driver is made of; the toolkit (cuda-*) is not.
FAMILY = ("*nvidia*", "libcuda*", "libnv*", "xserver-xorg-video-nvidia*", "cuda-drivers*")
# The packages that tell the driver's version, the best witness first.
_WITNESSES = (
    r"nvidia-open(-\d+)?",
    r"nvidia-kernel-open-dkms|nvidia-dkms-open|nvidia-dkms-\d+(-server)?-open|kmod-nvidia-open-dkms",
    r"cuda-drivers(-\d+)?|nvidia-driver(-\d+)?(-server)?(-open)?",
    r"nvidia-kernel-dkms|kmod-nvidia-latest-dkms|nvidia-dkms-\d+(-server)?",
)
# 580.95.05, 550.1: no driver branch of today is below 400. Versions of other NVIDIA packages are
# lower, or dates (20220217+3, of Debian's nvidia-installer-cleanup and the like).
_VERSION = re.compile(r"[4-9]\d\d\.\d")
ALLOW_REBOOT = "-e nvidia_driver_allow_reboot=true"
ROLL = "ansible-playbook playbooks/upgrade_driver.yml"  # where nobody has told how it is typed
PARKED = "parked"
# No such part is replaced under a process or service that uses it.
_USED = frozenset({"driver", "fabric", "companions"})
FABRIC = r"nvidia-fabricmanager(-\d+)?"
PERSISTENCE = r"nvidia-persistenced"
SUBNET = "nvlsm"  # NVLink's subnet manager: fabric manager of NVLink 5 machines starts it


def upstream(version: str) -> str:
    """580.95.05 of a package's version (3:580.95.05-1, 580.95.05-0ubuntu1)."""
    return re.sub(r"-[^-]*$", "", version.partition(":")[2] or version)


def branch_of(version: str) -> str:
    return version.partition(".")[0]


def order(version: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def driver_of(installed: Mapping[str, str]) -> Optional[str]:
    """The driver's version by its packages; None without any."""
    return next((v for w in _WITNESSES if (v := version_of(installed, w))), None)


def version_of(installed: Mapping[str, str], pattern: str) -> Optional[str]:
    """The highest upstream version of the packages whose whole name is like this."""
    found = [upstream(v) for name, v in installed.items() if re.fullmatch(pattern, name)]
    return max(found, key=order, default=None)


def of_family(name: str) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in FAMILY)


def of_driver(installed: Mapping[str, str]) -> Dict[str, str]:
    """Those of the family that have a driver's version, whichever."""
    return {
        name: version
        for name, version in installed.items()
        if of_family(name) and _VERSION.match(upstream(version))
    }


def own(installed: Mapping[str, str]) -> List[str]:
    """The driver's own packages: those that have its version."""
    have = driver_of(installed)
    return sorted(name for name, v in of_driver(installed).items() if upstream(v) == have)


def strays(installed: Mapping[str, str]) -> Dict[str, str]:
    """Packages that stand beside the driver with the version of another one."""
    have = driver_of(installed)
    return {n: v for n, v in of_driver(installed).items() if have and upstream(v) != have}


def suits(version: Optional[str], wish: Mapping[str, Any]) -> bool:
    """Is this the driver that is asked for? A branch alone takes any version of it."""
    if not version:
        return False
    wanted, found = wish["branch"], branch_of(version)
    if wish["version"]:
        wanted, found = wish["version"], version
    return bool(wanted == found)


def missing(facts: Mapping[str, Any], wish: Mapping[str, Any]) -> List[str]:
    """Parts to install: "driver", "fabric", "subnet", "persistence", "headers".

    `facts`: {"installed", "loaded", "nvswitch", "headers"}. Raises Refused for a wish that
    contradicts itself or must not be followed (a downgrade; a driver that no package owns).
    """
    if wish["version"] and branch_of(wish["version"]) != wish["branch"]:
        raise Refused(
            f"nvidia_driver_version {wish['version']} is not of nvidia_driver_branch "
            f"{wish['branch']}: write the branch {branch_of(wish['version'])}, or leave one out"
        )
    installed, have = facts["installed"], driver_of(facts["installed"])
    if have is None and facts["loaded"]:
        raise Refused(
            f"driver {facts['loaded']} is loaded, but no package owns it (NVIDIA's own installer?):"
            " remove it with nvidia-uninstall and boot anew, or leave nvidia_driver_branch unset"
        )
    if suits(have, wish):
        parts = [] if facts["headers"] else ["headers"]
    else:
        _refuse_downgrade(have, wish)
        parts = ["driver"] if facts["headers"] else ["headers", "driver"]
    wanted = have if suits(have, wish) else None
    if wants_fabric(facts, wish) and version_of(installed, FABRIC) != (wanted or "?"):
        parts.append("fabric")
    if wants_fabric(facts, wish) and facts["nvlink5"] and SUBNET not in installed:
        parts.append("subnet")
    if wish["persistence"] and (wanted is None or not facts["persistence"]):
        parts.append("persistence")
    return parts


def wants_fabric(facts: Mapping[str, Any], wish: Mapping[str, Any]) -> bool:
    asked = wish["fabric_manager"]
    return bool(facts["nvswitch"] or facts["nvlink5"]) if asked == "auto" else asked == "yes"


def _refuse_downgrade(have: Optional[str], wish: Mapping[str, Any]) -> None:
    asked = wish["version"] or wish["branch"]
    if have is None or wish["allow_downgrade"] or order(asked) > order(have):
        return
    variable, least = "nvidia_driver_version", have
    if not wish["version"]:
        variable, least = "nvidia_driver_branch", branch_of(have)
    elif branch_of(asked) != branch_of(have):
        variable, least = "nvidia_driver_branch and nvidia_driver_version", f"those of {have}"
    raise Refused(
        f"driver {have} is installed, {asked} is asked for by {variable}: a downgrade is refused. "
        f"Set {variable} to {least} or newer, or allow it: -e nvidia_driver_allow_downgrade=true"
    )


def refuse_too_old(asked: str, needs: Sequence[Mapping[str, Any]]) -> None:
    """A driver that an engine of this host could not run on is not installed. `asked`: a version,
    or a branch alone, of which any version may come. Raises Refused."""
    known = None if "." in asked else 1  # of a branch alone only the first number is
    short = [need for need in needs if order(asked) < order(need["driver"])[:known]]
    if not short:
        return
    most = max(short, key=lambda need: order(need["driver"]))
    told = "; ".join(
        f"service {n['service']}: SGLang {n['engine']} needs NVIDIA driver {n['driver']} or newer"
        for n in short
    )
    least = f"nvidia_driver_branch {branch_of(most['driver'])}"
    if branch_of(asked) == branch_of(most["driver"]):
        least = f"nvidia_driver_version {most['driver']}"
    raise Refused(f"{told}, {asked} is asked for. Ask for {least} or newer")


def busy(
    users: Sequence[Mapping[str, Any]],
    services: Sequence[Mapping[str, Any]],
    without_gpus: Sequence[str] = (),
) -> List[Mapping[str, Any]]:
    """Whoever would be hit: processes that hold a GPU open, and services that run, start, or are
    to run again, though at this moment they may hold none."""
    named = {user["unit"] for user in users}
    spared = {f"sglang-{name}.service" for name in without_gpus}
    return [*users, *(s for s in services if s["unit"] not in named | spared)]


def refuse_in_use(
    users: Sequence[Mapping[str, Any]],
    parts: Sequence[str],
    found: Mapping[str, Any],
    args: Mapping[str, Any],
) -> None:
    """No part of a driver is replaced under what uses it. Without a driver that is installed or
    loaded there is nothing to replace. Raises Refused."""
    used = found["loaded"] or driver_of(found["installed"])  # what is used is what is loaded
    if users and used and set(parts) & _USED:
        due, reboot = _due(parts, found, args)
        raise Refused(
            f"driver {used} is in use by {named(users)} and is not replaced under it (due: "
            f"{', '.join(due)}): {way(users, args, reboot)}"
        )


def _due(
    parts: Sequence[str], found: Mapping[str, Any], args: Mapping[str, Any]
) -> Tuple[List[str], bool]:
    """What is to be done to a driver that is used, and whether a reboot is among it."""
    coming = args["version"] or args["branch"] + ".*"
    have = coming if "driver" in parts else driver_of(found["installed"])
    due = [f"driver {coming}"] if "driver" in parts else []
    due += [f"fabric manager {have}"] if "fabric" in parts else []
    beside = [*(found.get("companions") or ()), *(found.get("waiting") or ())]
    due += [f"{name} {have}" for name in sorted(beside)]
    moves, reasons = bool("driver" in parts and found["loaded"]), reboot_reasons(found)
    if moves:  # from whichever is installed now
        due.append("a reboot")
    elif reasons:
        due.append(f"a reboot, since {'; '.join(reasons)}")
    return due, moves or bool(reasons)


def of_opsctl(user: Mapping[str, Any]) -> bool:
    return bool(re.fullmatch(r"sglang-.+\.service", user["unit"] or ""))


def named(users: Sequence[Mapping[str, Any]]) -> str:
    more = f" and {len(users) - 4} more" if len(users) > 4 else ""
    return ", ".join(_named(user) for user in users[:4]) + more


def _named(user: Mapping[str, Any]) -> str:
    if "pid" not in user:
        return f"{user['unit']} ({user['state']})"
    return f"{user['name']} (PID {user['pid']}{', ' + user['unit'] if user['unit'] else ''})"


def way(users: Sequence[Mapping[str, Any]], args: Mapping[str, Any], reboot: bool) -> str:
    """What to type. Services of opsctl the playbook stops that takes host after host; `args`:
    "roll", that playbook as it is typed, and "roll_rebooting", where nobody has allowed a reboot,
    as it is typed if that is due."""
    allowing = bool(reboot and args.get("roll_rebooting"))
    typed = args["roll_rebooting"] if allowing else args.get("roll") or ROLL
    strangers = [user for user in users if not of_opsctl(user)]
    roll = f"host by host, behind doctor and gates, it is done by: {typed}"
    if not strangers:
        return roll
    units = sorted({user["unit"] for user in strangers if user["unit"]})
    first = [f"systemctl stop {' '.join(units)}"] if units else []
    first += [f"end PID {user['pid']}" for user in strangers if not user["unit"]]
    again = "deploy again" + (f" with {ALLOW_REBOOT}" if allowing else "")
    return f"{'; '.join(first)}; then {again if strangers == list(users) else roll}"


def chosen(name: str, versions: Sequence[str], wish: Mapping[str, Any], url: str) -> str:
    """The package's version to install, of those that the repository holds, newest first."""
    fitting = [v for v in versions if suits(upstream(v), wish)]
    if fitting:
        return max(fitting, key=lambda v: order(upstream(v)))
    there = ", ".join(versions[:6]) or "no version of it at all"
    raise Refused(
        f"package {name}: {url} has no version {wish['version'] or wish['branch'] + '.*'}; it has "
        f"{there}. Set nvidia_driver_branch and nvidia_driver_version to one of these, or renew "
        "the mirror"
    )


def reboot_reasons(facts: Mapping[str, Any]) -> List[str]:
    """Why what is installed does not run yet. Without any of these a reboot changes nothing."""
    have, loaded = driver_of(facts["installed"]), facts["loaded"]
    reasons = []
    if have and loaded and have != loaded:
        reasons.append(f"the kernel runs driver {loaded}, {have} is installed")
    if facts["nouveau"]:
        reasons.append("the kernel runs nouveau in place of NVIDIA's driver")
    return reasons
