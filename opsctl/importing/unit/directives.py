"""What becomes of every setting of a unit: nothing of it is dropped without a word.

A setting is part of the description (a command line, variables, a user), or the report names it:
what opsctl's own unit has in its place, or that it has nothing, and what to do then.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

from opsctl.importing.marks import plain, theirs
from opsctl.importing.model import Note, Report
from opsctl.importing.secretnames import by_name
from opsctl.importing.secrets import Vault, suspects
from opsctl.importing.unit.fates import CONTAINER, FATES, OURS, READ, STOP_MARGIN, UNKNOWN
from opsctl.importing.unit.fatetexts import SHARES
from opsctl.importing.unit.read import Unit
from opsctl.importing.unit.words import logical

_SPAN = re.compile(r"([0-9.]+)\s*([a-zA-Z]*)")
_UNITS = {
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
    **dict.fromkeys(("ms", "msec"), 0.001),
    **dict.fromkeys(("us", "usec"), 0.000001),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
Mask = Callable[[str], str]
_MASK = "***"
_LONGEST = 100  # characters of a value that a note shows
_DRAIN = 60  # timing.drain where a description does not say it


def drain(unit: Unit) -> int | None:
    """Seconds of `timing.drain`; None where the unit says nothing, or what is the default."""
    found = seconds(unit.last("TimeoutStopSec") or unit.last("TimeoutSec"))
    if found is not None and unit.release:
        found -= STOP_MARGIN
    return None if found is None or found < 0 or found == _DRAIN else math.ceil(found)


def seconds(text: str) -> float | None:
    """systemd's spans of time ("90", "1min 30s"); None: without an end, or none."""
    if re.sub(_SPAN, "", text).strip() or not text.strip():
        return None
    try:
        return sum(float(number) * _UNITS[name] for number, name in _SPAN.findall(text)) or None
    except (KeyError, ValueError):
        return None


def tell(unit: Unit, report: Report) -> None:
    """A note for every setting that is not read elsewhere; settings of one fate share it."""
    grouped: dict[tuple[str, str], list[str]] = {}
    values = [value for found in unit.settings.values() for value in found]
    values += [*unit.ignored, *(value for _, value in unit.beaten)]
    report.hidden |= suspects("\n".join(values))
    mask = Vault("", hidden=report.hidden).hide
    for note in [*_settings(unit, mask), *_beside(unit, mask)]:
        grouped.setdefault((note.kind, note.why), []).append(note.what)
    for (kind, why), whats in grouped.items():
        report.note(kind, ", ".join(dict.fromkeys(whats)), why)


def _settings(unit: Unit, mask: Mask) -> Iterator[Note]:
    for (section, key), values in unit.settings.items():
        for value in values:
            yield from _setting(section, key, value, unit, shown(key, value, mask))


def _setting(section: str, key: str, value: str, unit: Unit, what: str) -> Iterator[Note]:
    if section == "Container":
        if key not in READ[section]:
            yield Note("dropped", what, CONTAINER.get(key, CONTAINER[""]))
    elif section.startswith("X-") or key.startswith("X-"):
        yield Note("dropped", what, "a mark for other programs, which systemd does not read")
    elif key in READ.get(section, ()):
        return
    elif same(value, OURS.get(key)):
        yield Note("carried", what, "opsctl's own unit says the same")
    elif key == "Group" and value == (unit.last("User") or "root"):
        yield Note("carried", what, "the group of the service's user, in opsctl's unit too")
    elif key in ("TimeoutStopSec", "TimeoutSec") and seconds(value) is not None:
        yield Note("carried", what, f"timing.drain (its default is {_DRAIN}); the stop has "
                   f"{STOP_MARGIN} s more for the engine's own processes")  # fmt: skip
    elif value == "infinity" and (FATES.get(key) or _prefixed(key)) == SHARES:
        yield Note("dropped", what, "no limit: opsctl's unit has none either")
    else:
        kind, why = FATES.get(key) or _prefixed(key) or UNKNOWN
        yield Note(kind, what, why.format(ours=OURS.get(key, "")))


def _prefixed(key: str) -> tuple[str, str] | None:
    """Of families (Limit…, Protect…) that have too many members to be named each."""
    starts = [start for start in FATES if start[-1] == "*" and key.startswith(start[:-1])]
    return FATES[max(starts, key=len)] if starts else None


def _beside(unit: Unit, mask: Mask) -> Iterator[Note]:
    for key, value in unit.beaten:
        yield Note(
            "dropped", shown(key, value, mask), "is set again later on, and the last one counts"
        )
    for line in unit.ignored:
        why = "no setting in a section: systemd ignores the line"
        yield Note("dropped", _cut(mask(theirs(plain(line)))), why)


def shown(key: str, value: str, mask: Mask) -> str:
    """KEY=VALUE for a note; what may be a secret is masked before it is cut."""
    secret = by_name(key) or key.startswith(("SetCredential", "Secret"))
    return f"{key}={_MASK if secret else _cut(mask(theirs(plain(' '.join(value.split())))))}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def same(value: str, ours: str | None) -> bool:
    """Whether a value means what opsctl's unit says: true is yes, 30s is 30."""
    if ours is None:
        return False
    if ours == "yes":
        return value.lower() in ("yes", "true", "on", "1")
    return value == ours or (seconds(value) is not None and seconds(value) == seconds(ours))


def literal(template: str) -> dict[str, str]:
    """The settings of opsctl's own unit that are the same for every service, for OURS."""
    found: dict[str, str] = {}
    for line in logical(re.sub(r"\{#.*?#\}", "", template, flags=re.DOTALL)):
        key, equals, value = line.partition("=")
        if equals and "{" not in line and re.fullmatch(r"[A-Z][A-Za-z]+", key):
            found[key] = value
    return found
