"""What is to be done about a host's driver, by what was found and what is asked (pure)."""

from __future__ import annotations

import re
from typing import Any, List, Mapping, Optional, Sequence, Tuple

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
    raise Refused(
        f"driver {have} is installed, {asked} is asked for: a downgrade is refused. Ask for "
        f"{branch_of(have)} or newer, or allow it: -e nvidia_driver_allow_downgrade=true"
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
    raise Refused(
        f"{told}, {asked} is asked for. Ask for nvidia_driver_branch {branch_of(most['driver'])} "
        "or newer"
    )


def refuse_in_use(users: Sequence[Mapping[str, Any]], parts: Sequence[str], have: str) -> None:
    """No part of a driver is replaced under a process that uses it. Raises Refused."""
    if not users or not set(parts) & {"driver", "fabric"}:
        return
    told = ", ".join(f"{u['name']} (PID {u['pid']}{unit(u)})" for u in users[:4])
    more = f" and {len(users) - 4} more" if len(users) > 4 else ""
    raise Refused(
        f"driver {have} is in use by {told}{more} and is not replaced under it: {stop(users)}, "
        f"then deploy again{roll(users)}"
    )


def of_opsctl(user: Mapping[str, Any]) -> bool:
    return bool(re.fullmatch(r"sglang-.+\.service", user["unit"] or ""))


def roll(users: Sequence[Mapping[str, Any]]) -> str:
    """What does it all, where only services of opsctl are in the way."""
    if not all(of_opsctl(user) for user in users):
        return ""
    return "; or let it be done host by host: ansible-playbook playbooks/upgrade_driver.yml"


def unit(user: Mapping[str, Any]) -> str:
    return f", {user['unit']}" if user["unit"] else ""


def stop(users: Sequence[Mapping[str, Any]]) -> str:
    """What to type, so that nobody uses the driver."""
    services = {re.fullmatch(r"sglang-(.+)\.service", u["unit"] or "") for u in users}
    ours = sorted({found.group(1) for found in services if found})
    if ours:
        return f"drain and stop it with: opsctl stop {' '.join(ours)} --limit HOST"
    units = sorted({u["unit"] for u in users if u["unit"]})
    return f"stop it with: systemctl stop {' '.join(units)}" if units else "end it first"


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
