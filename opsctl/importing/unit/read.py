"""A unit with its drop-ins as one table, by systemd's own rules for lists and resets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from opsctl.importing.unit.words import logical

_HEADING = re.compile(
    r"^# (/[^\n]+\.(?:service|container|conf|env|sh)|/etc/(?:default|sysconfig)/[^\n]+)[ \t]*$",
    re.MULTILINE,
)
_ASSIGNS = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*=[ \t]*(.*)", re.DOTALL)
_STARTS = re.compile(r"^[ \t]*(ExecStart|Image)[ \t]*=", re.MULTILINE)
# Settings of which each line adds to those before; of all others the last counts.
LISTS = {
    *("ExecStart", "ExecStartPre", "ExecStartPost", "ExecStop", "ExecStopPost", "ExecReload"),
    *("Environment", "EnvironmentFile", "PassEnvironment", "UnsetEnvironment", "After", "Before"),
    *("Wants", "Requires", "DeviceAllow", "Volume", "PublishPort", "AddDevice", "PodmanArgs"),
    *("ConditionPathExists", "WantedBy", "BindsTo", "LoadCredential", "Label", "Secret"),
    *("ExecCondition", "Requisite", "PartOf", "Upholds", "Conflicts", "RequiredBy", "UpheldBy"),
    *("Alias", "Also", "Documentation", "RequiresMountsFor", "WantsMountsFor", "OnFailure"),
    *("OnSuccess", "SupplementaryGroups", "CPUAffinity", "SetCredential", "ReadWritePaths"),
    *("ReadOnlyPaths", "InaccessiblePaths", "ExecPaths", "NoExecPaths", "BindPaths"),
    *("BindReadOnlyPaths", "TemporaryFileSystem", "SystemCallFilter", "RestrictAddressFamilies"),
    *("CapabilityBoundingSet", "AmbientCapabilities", "IPAddressAllow", "IPAddressDeny"),
    *("SuccessExitStatus", "RestartPreventExitStatus", "RestartForceExitStatus"),
    *("CacheDirectory", "StateDirectory", "LogsDirectory", "RuntimeDirectory"),
}


@dataclass
class Unit:
    """`settings`: (section, key) → values. `ignored`: lines that systemd only warns of; `files`:
    other files that stood among its parts, under headings as `systemctl cat` writes them."""

    name: str = ""
    settings: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    sources: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    beaten: list[tuple[str, str]] = field(default_factory=list)  # (key, value) before the last
    files: dict[str, str] = field(default_factory=dict)

    def all(self, key: str, section: str = "Service") -> list[str]:
        return self.settings.get((section, key), [])

    def last(self, key: str, default: str = "", section: str = "Service") -> str:
        return (self.all(key, section) or [default])[-1]

    @property
    def release(self) -> str:
        """The digest of its release, if opsctl wrote it."""
        return self.last("X-OpsctlRelease", section="Unit")

    def has(self, section: str) -> bool:
        return any(one == section for one, _ in self.settings)


def parts(text: str, path: str = "") -> list[tuple[str, str]]:
    """(path, text) of what `systemctl cat` prints, or the one text."""
    headings = list(_HEADING.finditer(text))
    if not headings:
        return [(path, text)]
    ends = [match.start() for match in headings[1:]] + [len(text)]
    return [(m[1], text[m.end() : end]) for m, end in zip(headings, ends, strict=True)]


def read(texts: Sequence[tuple[str, str]]) -> Unit:
    """The unit first, then its drop-ins in order."""
    unit = Unit()
    for path, text in (one for given in texts for one in parts(given[1], given[0])):
        if path.startswith("/") and not looks_like(text) and not path.endswith(".conf"):
            unit.files[path] = text.strip("\n") + "\n"
            continue
        if path and not path.endswith(".conf") and not unit.name:
            unit.name = PurePosixPath(path).name
        elif path.endswith(".conf") and not unit.name:
            folder = PurePosixPath(path).parent.name
            unit.name = folder.removesuffix(".d") if folder.endswith(".service.d") else ""
        unit.sources.append(path)
        _add(unit, text.replace("\r\n", "\n"))
    return unit


def ordered(texts: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Several files as systemd reads them, however they were given: the unit, then its drop-ins by
    their names. Files without a name keep their place behind the unit."""
    whole = [one for one in texts if not one[0].endswith(".conf") and _STARTS.search(one[1])]
    first = (whole or [one for one in texts if _STARTS.search(one[1])] or list(texts))[:1]
    rest = [one for one in texts if one not in first]
    if all(path.endswith(".conf") for path, _ in rest):
        rest.sort(key=lambda one: PurePosixPath(one[0]).name)
    return [*first, *rest]


def _add(unit: Unit, text: str) -> None:
    section = ""
    for line in logical(text):
        if match := re.fullmatch(r"\[([A-Za-z0-9-]+)\]", line):
            section = match[1]
            continue
        assigns = _ASSIGNS.fullmatch(line)
        if assigns is None or not section:
            unit.ignored.append(line)
            continue
        key, value = assigns.groups()
        values = unit.settings.setdefault((section, key), [])
        if key not in LISTS:
            unit.beaten += [(key, before) for before in values if before != value]
            values[:] = [value]
        elif value == "":
            unit.beaten += [(key, before) for before in values]
            values.clear()
        else:
            values.append(value)


def looks_like(text: str) -> bool:
    return re.search(r"^[ \t]*\[(Unit|Service|Container|Install)\]", text, re.MULTILINE) is not None
