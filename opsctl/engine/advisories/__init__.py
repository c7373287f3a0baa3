"""What is known to go wrong with a combination of version, flags, model and hardware. Pure.

The knowledge is data (data/*.toml); docs/advisories.md is made from it by page.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from opsctl.engine.advisories.facts import Facts
from opsctl.engine.advisories.families import family
from opsctl.engine.advisories.read import Entry, entries
from opsctl.engine.advisories.versions import key

__all__ = ["Advisory", "Facts", "advisories", "family"]

_WEIGHT = {"critical": 0, "warn": 1, "info": 2}


@dataclass(frozen=True)
class Advisory:
    """One thing that an operator should know before, or while, this service runs.

    `severity`: "critical" it does not start, takes the host down, or answers wrongly; "warn" it
    costs speed, capacity or a restart some day; "info" good to know. `certain` False: a fact that
    would decide it is missing.
    """

    id: str
    severity: str
    text: str
    symptom: str
    advice: str
    reference: tuple[str, ...]
    certain: bool = True

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "severity": self.severity,
            "text": self.text,
            "symptom": self.symptom,
            "advice": self.advice,
            "reference": list(self.reference),
            "certain": self.certain,
        }


def advisories(facts: Facts) -> list[Advisory]:
    """The most severe first; of one severity, in the order of the data.

    An entry whose condition cannot be decided for want of a fact stays silent, unless the data
    says that it should speak then. A version that cannot be read gives none.
    """
    found = []
    for entry in _of_version(facts.version):
        answer = entry.holds(facts)
        if answer or (answer is None and entry.unknown == "speak"):
            found.append(_advisory(entry, answer is True))
    return sorted(found, key=lambda advisory: _WEIGHT[advisory.severity])


@cache
def _advisory(entry: Entry, certain: bool) -> Advisory:
    return Advisory(
        entry.id, entry.severity, entry.text, entry.symptom, entry.advice, entry.reference, certain
    )


@cache
def _of_version(version: str) -> tuple[Entry, ...]:
    try:
        key(version)
    except ValueError:
        return ()
    return tuple(entry for entry in entries() if any(r.holds(version) for r in entry.ranges))
