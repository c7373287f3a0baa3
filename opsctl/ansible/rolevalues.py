"""What Ansible's argument specs cannot say of the roles' variables: names that nobody reads, ranges
and forms of values, and variables that say nothing without each other. Pure.

A value that is let through here reaches files of the system as root: a limit that pam cannot set
locks logins out, a size that journald does not understand is dropped without a word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Any

from opsctl.ansible.target.converge import Refused
from opsctl.ansible.target.host_tuning import contradiction

# No variable begins like this but the roles' own: whatever else does is a mistake of typing.
OWN = ("host_tuning_", "nvidia_driver_")
# Owners' own may well begin like this: only one that is like one of ours is a mistake.
SHARED = ("cuda_", "opsctl_")
# What deploy.yml fills in: nobody means these, so a name that is like one is the owner's own.
FILLED = ("cuda_needs", "engine_environments", "model_folders", "nvidia_driver_needs")
# These, too, deploy.yml takes from the descriptions: what an inventory says of them is dropped.
DROPPED = ("host_users", *FILLED)
# What playbooks take of the command line, or keep for their own next task.
TYPED = ("opsctl_allow_down", "opsctl_canary", "opsctl_reason")
PLAYBOOKS = (*TYPED, "opsctl_described", "opsctl_surveyed")
LIKE = 0.75  # of difflib: the beginning is ours
NEAR = 0.9  # of difflib: one letter wrong or missing in a name of ten

NR_OPEN_MOST = 2147483584  # the kernel's own bound for fs.nr_open on 64 bits (fs/file.c)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50, "E": 1 << 60}


def stranger(name: str, known: Collection[str]) -> tuple[str, str] | None:
    """Of a variable's name: (message, hint) where it is almost surely a misspelt one of ours.

    `known`: the names that the roles read."""
    if name in known or name in PLAYBOOKS or name.startswith("ansible_"):
        return None
    own = name.startswith(OWN)
    meant = [one for one in (*known, *TYPED) if one not in FILLED]
    cutoff = LIKE if own or name.startswith(SHARED) else NEAR
    near = get_close_matches(name, meant, n=1, cutoff=cutoff)
    if not (own or near):
        return None
    hint = f"did you mean {near[0]}? " if near else ""
    hint += "A variable of your own needs another " + ("beginning" if own else "name")
    return "is no variable of any role: nothing reads it", hint


def dropped(name: str) -> tuple[str, str] | None:
    """Of a variable's name: (message, hint) where no playbook of opsctl reads what it is given."""
    if name not in DROPPED:
        return None
    return (
        "is filled in from the descriptions: what the inventory says is dropped",
        "take it out; for a playbook of your own give it under vars: of the role",
    )


def wrong(key: str, value: Any) -> dict[str, list[Any]]:
    """What a value must be, in words, with the values that are not: of a list its entries. {} if
    it is right, or nothing is known of its key."""
    found: dict[str, list[Any]] = {}
    for one in value if key in EACH and isinstance(value, list) else [value]:
        if said := CHECKS.get(key, _right)(one):
            found.setdefault(said, []).append(one)
    return found


def contradictions(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(key, message) of variables of one host that say nothing, or the opposite, together."""
    found = []
    branch, version = (_text(values, f"nvidia_driver_{name}") for name in ("branch", "version"))
    if version and not branch:
        message = "says nothing without nvidia_driver_branch: no driver would be installed"
        found.append(("nvidia_driver_version", message))
    elif version and not version.startswith(f"{branch}."):
        found.append(("nvidia_driver_version", f"is not of nvidia_driver_branch {branch}"))
    default = _text(values, "cuda_default")
    toolkits = values.get("cuda_toolkits") or []
    named = [str(one) for one in toolkits] if isinstance(toolkits, list) else [str(toolkits)]
    if default and default not in named:
        there = f"cuda_toolkits has {', '.join(named)}" if named else "cuda_toolkits is empty"
        found.append(("cuda_default", f"is not among the toolkits to install: {there}"))
    return found + _tuning(values)


def repositories(values: Mapping[str, Any]) -> list[str]:
    """Variables of the repositories that are asked for something."""
    found = ["nvidia_driver_repository"] if _text(values, "nvidia_driver_branch") else []
    if values.get("cuda_toolkits"):
        own = "cuda_repository"
        found.append(own if own in values else "nvidia_driver_repository")
    return list(dict.fromkeys(found))


def _tuning(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Judged as the role's own program does."""
    own = "host_tuning_"
    try:
        said = contradiction(
            {key.removeprefix(own): v for key, v in values.items() if key.startswith(own)}
        )
    except Refused as problem:
        said = str(problem)
    key, _, message = said.partition(" ")
    return [(key, message) if key in values else (f"{own}sysctl", said)] if said else []


def _text(values: Mapping[str, Any], key: str) -> str:
    value = values.get(key)
    return "" if value is None else str(value)


Check = Callable[[Any], str]


def _whole(least: int, most: int | None = None, *words: str) -> Check:
    """A whole number from `least` to `most`, or one of `words` ("" asks for nothing)."""
    bounds = f"from {least} to {most}" if most is not None else f"of {least} or more"
    named = "".join(f", or {word}" for word in words if word)

    def judge(value: Any) -> str:
        if value in words or (value is None and "" in words):
            return ""
        text = str(value).strip()
        if isinstance(value, bool) or not re.fullmatch(r"-?\d{1,30}", text):
            return f"must be a whole number {bounds}{named}"
        right = least <= int(text) and (most is None or int(text) <= most)
        return "" if right else f"must be a whole number {bounds}{named}"

    return judge


def _right(value: Any) -> str:
    return ""


def _form(pattern: str, words: str, *, empty: bool = True) -> Check:
    """Text of this form, or (where `empty`) "", which asks for nothing. A number with a point is
    none: YAML has made 12.1 of 12.10 before anybody sees it."""

    def judge(value: Any) -> str:
        if isinstance(value, float):
            return f"must be {words}: without quotes YAML reads a number, and 12.10 becomes 12.1"
        nothing = value is None or not str(value).strip()
        right = empty if nothing else re.fullmatch(pattern, str(value).strip())
        return "" if right and not isinstance(value, bool) else f"must be {words}"

    return judge


def _size(value: Any) -> str:
    """As journald reads it: it ignores what it does not understand. Below 1 MiB no journal is
    meant, but a unit was forgotten."""
    found = re.fullmatch(r"(\d{1,20})([KMGTPE]?)", str(value).strip())
    if value in (None, "") or (found and int(found[1]) * _UNITS[found[2]] >= 1 << 20):
        return ""
    return 'must be a size like 4G or 512M, or ""'


def _shm(value: Any) -> str:
    found = re.fullmatch(r"(\d{1,20})\s*([KMGT]?)(?:iB)?", str(value).strip())
    if value in (None, "") or (found and int(found[1]) * _UNITS[found[2]] >= 1 << 20):
        return ""
    return 'must be a size like 64GiB, or ""'


def _folders(value: Any) -> str:
    if not isinstance(value, Mapping):
        return ""  # Ansible's own words
    for path, mode in value.items():
        if not str(path).startswith("/") or ".." in str(path).split("/"):
            return f"must name absolute folders: {path} is none"
        if not isinstance(mode, str):
            said = f'must give {path} its mode as quoted octal digits, like "0755"'
            return f"{said}: {mode!r} is none"
        if not re.fullmatch(r"[0-7]{3,4}", mode):
            return f'must give {path} its mode in octal digits, like "0755": {mode!r} is none'
    return ""


def _sysctl(value: Any) -> str:
    if not isinstance(value, Mapping):
        return ""  # Ansible's own words
    for key, part in value.items():
        if not re.fullmatch(r"[\w-]+([./][^\s./=]+)+", str(key)):
            return f"must name settings of the kernel, like vm.max_map_count: {key!r} is none"
        if isinstance(part, dict | list | bool) or part in (None, "") or "\n" in str(part):
            return f"must give {key} a number or text, as the kernel writes it: {part!r} is none"
        if re.match("(vm|fs)[./](?!binfmt_misc)", str(key)) and not _NUMBERS.fullmatch(str(part)):
            return f"must give {key} a whole number: {part!r} is none"
    return ""


_NUMBERS = re.compile(r"\s*-?\d+(\s+-?\d+)*\s*")  # the kernel takes several, in some settings
_USER = r"[a-z_][a-z0-9_-]{0,30}\$?"
CHECKS: dict[str, Check] = {
    "host_users": _form(_USER, "names of users, like sglang", empty=False),
    "host_folders": _folders,
    "host_open_files": _whole(1024, NR_OPEN_MOST),
    "host_journal_max_use": _size,
    "host_tuning_memlock": _whole(0, None, "unlimited", ""),
    "host_tuning_nofile": _whole(1024, NR_OPEN_MOST, ""),
    "host_tuning_huge_pages": _whole(0, None, ""),
    "host_tuning_swappiness": _whole(0, 200, ""),
    "host_tuning_shm_size": _shm,
    "host_tuning_sysctl": _sysctl,
    "nvidia_driver_branch": _form(r"\d{3,4}", "a branch like 580"),
    "nvidia_driver_version": _form(r"\d{3,4}(\.\d+)+", "an exact version like 580.95.05, quoted"),
    "nvidia_driver_reboot_timeout": _whole(1),
    "cuda_toolkits": _form(r"\d+\.\d+", "versions like 13.0, quoted", empty=False),
    "cuda_default": _form(r"\d+\.\d+", "a version like 13.0, quoted"),
    "engine_python": _form(r"\S+", "a program like python3.12", empty=False),
    "service_override": _form(r"(?s).*", "a reason, in words"),
}
EACH = ("host_users", "cuda_toolkits")  # lists, of which each entry is judged
