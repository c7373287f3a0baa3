"""`systemd-run …`: a unit without a file, whose settings are told as those of any unit."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from opsctl.importing.marks import theirs
from opsctl.importing.model import Report
from opsctl.importing.unit import directives
from opsctl.importing.unit import read as unit_read

_VALUED = {
    *("-p", "--property", "-u", "--unit", "--description", "--slice", "--uid", "--gid", "--nice"),
    *("--working-directory", "-E", "--setenv", "-H", "--host", "-M", "--machine", "--service-type"),
    *("--on-active", "--on-boot", "--on-startup", "--on-unit-active", "--on-unit-inactive"),
    *("--on-calendar", "--timer-property", "--path-property", "--socket-property", "--job-mode"),
    *("--background", "--slice-inherit", "--expand-environment"),
}
_SETTINGS = {"--service-type": "Type", "--nice": "Nice", "--slice": "Slice", "--gid": "Group"}


@dataclass
class Transient:
    """What is left of it: the command, and what the unit gave it."""

    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    user: str | None = None
    cwd: str | None = None


def transient(words: list[str], report: Report) -> Transient:
    """`words`: behind `systemd-run`."""
    found, settings, name, at = Transient([]), ["[Service]"], "", 0
    while at < len(words) and words[at].startswith("-"):
        option, equals, value = words[at].partition("=")
        if not option.startswith("--") and len(option) > 2 and option[:2] in _VALUED:
            option, equals, value = words[at][:2], "=", words[at][2:]
        at += 1
        if option == "--":
            break
        if option in _VALUED and not equals and at < len(words):
            value, at = words[at], at + 1
        if option in ("-E", "--setenv"):
            key, given, text = value.partition("=")
            found.env |= {key: text} if given else {}
        elif option == "--uid":
            found.user = value
        elif option in ("-u", "--unit"):
            name = value
        elif option == "--working-directory":
            found.cwd = value
        elif option in ("-p", "--property"):
            settings.append(value)
            _of_property(value, found)
        elif option in _SETTINGS:
            settings.append(f"{_SETTINGS[option]}={value}")
    found.argv = words[at:]
    directives.tell(unit_read.read([("", "\n".join(settings))]), report)
    what = f"systemd-run, unit {theirs(name)}" if name else "systemd-run"
    report.note("dropped", what, "opsctl's own unit is in its place, and is there after a boot")
    return found


def _of_property(text: str, found: Transient) -> None:
    key, _, value = text.partition("=")
    if key == "User":
        found.user = value
    elif key == "WorkingDirectory":
        found.cwd = value
    elif key == "Environment" and (match := re.fullmatch(r"([A-Za-z_]\w*)=(.*)", value, re.S)):
        found.env[match[1]] = match[2]
