"""A journal that somebody kept → what its last complete start measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from opsctl.errors import Refused
from opsctl.forecast import carried, journaltext, serverargs
from opsctl.forecast.figures import after_weights, agreed, least, most, pinned, speed
from opsctl.forecast.values import CUT, Measured
from opsctl.onhost import phases, prefill
from opsctl.onhost.expect import version_key
from opsctl.onhost.journal import Reading
from opsctl.onhost.model import StartFacts


@dataclass
class Start:
    """One start of a journal: its facts, its arguments, and what it served."""

    invocation: str = ""
    reading: Reading = field(default_factory=Reading)
    arguments: dict[str, Any] = field(default_factory=dict)
    prefills: prefill.Samples = field(default_factory=prefill.Samples)

    @property
    def facts(self) -> StartFacts:
        return self.reading.facts


def from_journal(text: str, manifest: Mapping[str, Any] | None = None) -> Measured:
    """Figures of the last complete start in any output of journalctl, of all ranks or, with a
    manifest, of this host's. Raises Refused if the text tells of no start.

    With a manifest, figures that its settings make wrong are left out, and `notes` says why.
    """
    start, whole = _start(text, manifest)
    if start is None:
        raise Refused(
            "the journal tells of no start: there is no line of a KV cache or of weights in it",
            hint="journalctl -u UNIT -o cat --no-pager, from the line server_args= on",
        )
    names = [name for name in _ranks(manifest) if name in start.facts.ranks]
    figures = _figures(start, names or list(start.facts.ranks), whole, manifest)
    return figures if manifest is None else _held_against(figures, start, manifest)


def flags_of(text: str, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """Flags of the start that `from_journal` takes its figures of, as far as they can be compared
    with the manifest's; empty where the journal does not show them."""
    start, _ = _start(text, manifest)
    if start is None or not start.arguments:
        return {}
    return serverargs.flags(start.arguments, manifest)[0]


def _start(text: str, manifest: Mapping[str, Any] | None) -> tuple[Start | None, bool]:
    return _read(text, str((manifest or {}).get("unit") or ""), tuple(_ranks(manifest)))


@lru_cache(maxsize=1)  # a comparison asks a dozen times
def _read(text: str, unit: str, ranks: tuple[str, ...]) -> tuple[Start | None, bool]:
    return chosen(starts(journaltext.found(text), unit), list(ranks))


def _ranks(manifest: Mapping[str, Any] | None) -> list[str]:
    return list((manifest or {}).get("ranks") or ())


# -- which start ----------------------------------------------------------------------------------


def starts(records: Iterable[journaltext.Found], unit: str = "") -> list[Start]:
    """The starts in a text, in order. `unit`: if journald tells the units, only this one's."""
    found: list[Start] = []
    for one in records:
        if unit and one.unit and one.unit != unit and one.unit.startswith("sglang-"):
            continue
        if not found or _begins(one, found[-1]):
            found.append(Start(one.invocation))
        start = found[-1]
        start.invocation = start.invocation or one.invocation
        line = one.record.text
        if not start.arguments and serverargs.MARK in line[:400]:
            start.arguments = serverargs.arguments(line)
        if not start.prefills.take(line):
            start.reading.feed(one.record)
    return found


def _begins(one: journaltext.Found, current: Start) -> bool:
    if one.invocation and current.invocation:
        return one.invocation != current.invocation
    line = one.record.text
    if serverargs.MARK in line[:400]:
        return bool(current.arguments or current.facts.ranks)
    return not one.record.source and line.startswith("Started ") and bool(current.facts.ranks)


def chosen(found: list[Start], ranks: list[str]) -> tuple[Start | None, bool]:
    """The last start that became ready with every rank's figures, and True; else the last with
    every rank's figures; else the last that tells anything of its weights."""
    for ready in (True, False):
        for start in reversed(found):
            here = start.facts.ranks
            names = ranks or list(here)
            full = names and all(n in here and here[n].kv_tokens is not None for n in names)
            if full and (start.facts.ready or not ready):
                return start, ready
    for start in reversed(found):
        if any(r.kv_tokens or r.free_after_weights for r in start.facts.ranks.values()):
            return start, False
    return None, False


# -- its figures ----------------------------------------------------------------------------------


def _figures(
    start: Start, names: list[str], whole: bool, manifest: Mapping[str, Any] | None
) -> Measured:
    ranks = [start.facts.ranks[name].__dict__ for name in names]
    version = str(((manifest or {}).get("engine") or {}).get("version") or "")
    first = bool(version) and version_key(version) >= carried.DRAFT_FIRST
    return Measured(
        tokens=agreed(rank["kv_tokens"] for rank in ranks),
        free_before=least(rank["free_before_weights"] for rank in ranks),
        free_after=least(after_weights(rank, first) for rank in ranks),
        weights=most(rank["weights_bytes"] for rank in ranks),
        draft_weights=most(rank["draft"].get("weights_bytes") for rank in ranks),
        seconds=phases.seconds(start.facts),
        pinned=pinned(rank.__dict__ for rank in start.facts.ranks.values()),
        source="the journal of an earlier start" + ("" if whole else ", which is not complete"),
        prefill=speed(start.prefills.told(), "the journal"),
    )


def _held_against(figures: Measured, start: Start, manifest: Mapping[str, Any]) -> Measured:
    """Without what is wrong for these settings."""
    if not start.arguments:
        return _cut(figures, list(start.facts.ranks), _ranks(manifest))
    path = str(start.arguments.get("model_path") or "")
    if not _same_model(path, str(manifest["model"]["path"])):
        note = f"the journal is of another model, {path}: none of its figures was used"
        return Measured(source=figures.source, notes=(note,))
    new = manifest["flags"]
    old, shown = serverargs.flags(start.arguments, manifest)
    if not shown or new.get("mem-fraction-static") is None:  # who chose the value, no log tells
        figures = replace(figures, sure=False)
    notes: list[str] = []
    changed = carried.token_changes(old, new)
    if changed:
        notes.append(_left_out("number of tokens was", changed, old))
        figures = replace(figures, tokens=None)
    changed = carried.changes(old, new, {}, {})
    if changed:
        notes.append(_left_out("free GPU memory and weights were", changed, old))
        figures = replace(figures, free_before=None, free_after=None, weights=None)
    if drafts := carried.draft_changes(old, new):
        figures = replace(figures, draft_weights=None)
        if version_key(str(manifest["engine"]["version"])) >= carried.DRAFT_FIRST:
            notes.append(_left_out("free GPU memory after the weights was", drafts, old))
            figures = replace(figures, free_after=None)
    return replace(figures, notes=tuple(notes))


def _cut(figures: Measured, there: list[str], ranks: list[str]) -> Measured:
    """Of a journal that is cut off at its beginning: nobody knows what it is of. Other ranks are
    of other settings; weights are the caller's to judge."""
    if set(there) == set(ranks):
        return replace(figures, sure=False, notes=(CUT,))
    note = (
        f"the journal's beginning (server_args=) is missing, and its ranks ({_names(there)}) are "
        f"not those of these settings ({_names(ranks)}): none of its figures was used"
    )
    return Measured(notes=(note,))


def _names(ranks: list[str]) -> str:
    return ", ".join(ranks) if len(ranks) < 5 else f"{ranks[0]} … {ranks[-1]}"


def _same_model(one: str, two: str) -> bool:
    """The same folder name: the same model may stand elsewhere in a container."""
    ends = [path.rstrip("/").rpartition("/")[2].lower() for path in (one, two)]
    return not one or ends[0] == ends[1]


def _left_out(what: str, changed: list[str], old: Mapping[str, Any]) -> str:
    told = ", ".join(f"{name} {old.get(name, 'unset')}" for name in changed[:4])
    more = f" and {len(changed) - 4} more" if len(changed) > 4 else ""
    return f"the earlier start had {told}{more}: its {what} not used"
