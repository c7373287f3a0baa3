"""`opsctl config explain`: one flag, for people."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opsctl.engine import rules
from opsctl.engine.advisories.page import span as words_of
from opsctl.engine.changes import shown, takes

if TYPE_CHECKING:
    from rich.console import RenderableType

    from opsctl.engine.explain.answer import Answer
    from opsctl.engine.explain.history import Span

NO_TEXT = "no explanation of ours yet"


@dataclass(frozen=True)
class Use:
    """What a described service makes of the flag. `value` None: it does not set it."""

    service: str
    hosts: tuple[str, ...]
    version: str
    value: Any
    origin: str
    findings: tuple[rules.Finding, ...]


_IDLE = ("void", "refused")  # they set nothing


def page(known: Answer, uses: Sequence[Use] = ()) -> RenderableType:
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    flag = known.flag
    head = Text(known.name, "bold") + Text(f"   SGLang {known.version}, {takes(flag)}", "dim")
    text = known.text.text if known.text else NO_TEXT
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, value in _rows(known, uses):
        table.add_row(name, Text(value))
    return Group(head, Padding(Text(text), (0, 0, 1, 0)), table)


def _rows(known: Answer, uses: Sequence[Use]) -> Iterator[tuple[str, str]]:
    flag = known.flag
    for use in uses:
        yield from _use(known, use)
    if flag.kind not in _IDLE:
        yield "default", shown(flag.default if flag.default is not None else flag.fallback)
    if flag.choices:
        yield "choices", ", ".join(map(str, flag.choices))
    if flag.aliases:
        yield "also", ", ".join(flag.aliases)
    if flag.deprecated is not None:
        yield "deprecated", f"use {flag.deprecated}" if flag.deprecated else "yes"
    yield "description", known.written
    yield "releases", known.versions
    if known.now is not None:
        newest, instead = known.now
        has = f"has {instead} in its place" if instead else "has nothing in its place"
        yield "now", f"SGLang {newest} does not have it, and {has}"
    yield from _labelled("changes", _changes(known.spans))
    if known.text:
        yield "GPU memory", known.text.gpu or "none worth a word"
        yield "host memory", known.text.host or "none worth a word"
    yield from _labelled("rules", [_rule(rule) for rule in known.rules])
    told = [f"{e.id} ({e.severity}): {e.symptom}" for e in known.advisories]
    yield from _labelled("advisories", told)


def _labelled(name: str, lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines):
        yield "" if number else name, line


def _use(known: Answer, use: Use) -> Iterator[tuple[str, str]]:
    where = f" on {', '.join(use.hosts)}" if use.hosts else ""
    value = "not set" if use.value is None else shown(use.value)
    origin = f" ({use.origin})" if use.origin and use.value is not None else ""
    yield use.service, f"{value}{where}{origin}"
    for finding in use.findings:
        yield "", finding.text


def _rule(rule: rules.Rule) -> str:
    why = re.sub(r"\{([\w-]+)\}", r"\1", rule.why)
    return f"{rule.kind}: {rule.when}: {why} ({words_of(rule.versions)})"


def _changes(spans: Sequence[Span]) -> list[str]:
    """What each run of releases changed against the one before; nothing for the first."""
    found = []
    before: Span | None = None
    for one in spans:
        if before is not None and (said := _change(before, one)):
            found.append(f"{one.first}: {said}")
        before = one
    return found


def _change(before: Span, now: Span) -> str:
    if before.flag is None or now.flag is None:
        return "new" if now.flag else "gone"
    was, flag = before.flag, now.flag
    parts = []
    if was.default != flag.default and flag.kind not in _IDLE:
        parts.append(f"default {shown(was.default)} → {shown(flag.default)}")
    if now.new:
        parts.append(f"takes {', '.join(map(str, now.new))} too")
    if now.gone:
        parts.append(f"no longer takes {', '.join(map(str, now.gone))}")
    if takes(was) != takes(flag):
        parts.append(f"{takes(was)} → {takes(flag)}")
    if was.deprecated is None and flag.deprecated is not None:
        parts.append(f"deprecated{'; use ' + flag.deprecated if flag.deprecated else ''}")
    if set(was.aliases) != set(flag.aliases):
        parts.append(f"names {', '.join(flag.names)}")
    return "; ".join(parts)
