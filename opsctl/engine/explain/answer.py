"""All that is known of one flag in one release."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from opsctl.engine import rules, store
from opsctl.engine.advisories.condition import named
from opsctl.engine.advisories.read import Entry, entries
from opsctl.engine.advisories.versions import key
from opsctl.engine.catalogue import ELSEWHERE, SECRET, catalogue
from opsctl.engine.changes import takes
from opsctl.engine.explain.history import Span, history
from opsctl.engine.explain.texts import Text, text
from opsctl.engine.flag import Flag
from opsctl.engine.order import said
from opsctl.engine.renames import successor


@dataclass(frozen=True)
class Answer:
    """`version`: the release that `flag`, `rules` and `advisories` are of; the newest that has the
    flag, if none was asked for. `versions`: those that have it, in words. `now`: where the newest
    release does not have it, that release, and what is in its place there, "" for nothing."""

    name: str
    version: str
    flag: Flag
    text: Text | None
    versions: str
    spans: tuple[Span, ...]
    rules: tuple[rules.Rule, ...]
    advisories: tuple[Entry, ...]
    now: tuple[str, str] | None = None

    @property
    def written(self) -> str:
        """How a description writes it."""
        if self.flag.kind == "refused":
            return "leave it out: SGLang refuses to start with it"
        return ELSEWHERE.get(self.name) or SECRET.get(self.name) or f"write it as flags.{self.name}"

    def as_json(self) -> dict[str, Any]:
        flag, known = self.flag, self.text
        return {
            "flag": self.name,
            "version": self.version,
            "names": list(flag.names),
            "takes": takes(flag),
            "default": flag.default,
            "choices": list(flag.choices),
            "deprecated": flag.deprecated,
            "written": self.written,
            "text": known.text if known else None,
            "memory": {"gpu": known.gpu, "host": known.host} if known else None,
            "versions": self.versions,
            "gone": {"version": self.now[0], "instead": self.now[1]} if self.now else None,
            "history": [_span(span) for span in self.spans],
            "rules": [
                {"id": r.id, "kind": r.kind, "versions": r.versions, "when": r.when, "why": r.why,
                 "flags": list(r.flags)}
                for r in self.rules
            ],
            "advisories": [
                {"id": e.id, "severity": e.severity, "symptom": e.symptom} for e in self.advisories
            ],
        }  # fmt: skip


def answer(name: str, version: str = "") -> Answer:
    """`name`: canonical. `version`: one that has the flag. Raises SpecError: no catalogue of it."""
    have = [one for one in store.where() if name in store.table(one)]
    chosen, newest = version or have[-1], list(store.where())[-1]
    return Answer(
        name,
        chosen,
        catalogue(chosen).flags[name],
        text(name),
        said(have, list(store.where())),
        tuple(history(name)),
        rules.about(name, chosen),
        tuple(entry for entry in _advisories(name) if _of(entry, chosen)),
        None if newest in have else (newest, successor(name, newest) or ""),
    )


@cache
def _advisories(name: str) -> tuple[Entry, ...]:
    """Those whose condition asks for the flag."""
    return tuple(entry for entry in entries() if name in named(entry.when).get("flags", ()))


def _of(entry: Entry, version: str) -> bool:
    try:
        key(version)
    except ValueError:
        return False
    return any(span.holds(version) for span in entry.ranges)


def _span(span: Span) -> dict[str, Any]:
    flag = span.flag
    found: dict[str, Any] = {"first": span.first, "last": span.last, "there": flag is not None}
    if flag is not None:
        part = asdict(flag)
        found |= {name: part[name] for name in ("aliases", "kind", "default", "deprecated")}
        found |= {"choices": list(flag.choices), "gone": list(span.gone), "new": list(span.new)}
    return found
