"""What the engine makes of flags together: what it refuses late, rewrites or passes over. Pure.

One truth for `config validate`, plans and forecasts. docs/reference/rules.md is made from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from opsctl.engine import store
from opsctl.engine.advisories.facts import Facts
from opsctl.engine.advisories.versions import key
from opsctl.engine.rules import (
    attention,
    disaggregation,
    exchange,
    experts,
    lora,
    parallel,
    parsers,
    serving,
    speculation,
    tier,
    unused,
)
from opsctl.engine.rules.rule import IGNORED, KINDS, LATER, REFUSE, REWRITE, Rule
from opsctl.engine.rules.view import View

__all__ = ["IGNORED", "KINDS", "LATER", "REFUSE", "REWRITE", "RULES", "Facts", "Finding", "Judged",
           "Rule", "about", "effective", "judge"]  # fmt: skip

# In the order in which the engine comes to them, as far as one depends on another.
THEMES = (
    disaggregation.THEME,
    serving.EARLY,
    attention.THEME,
    tier.THEME,
    parallel.THEME,
    exchange.THEME,
    experts.THEME,
    speculation.THEME,
    lora.THEME,
    serving.LAST,
    parsers.THEME,
    unused.THEME,
)
RULES: tuple[Rule, ...] = tuple(rule for theme in THEMES for rule in theme.rules)


@dataclass(frozen=True)
class Finding:
    """A rule that holds. `flag`: where to show it. `becomes`: of a rewrite, the new values; None
    where the value goes. `contradicts`: a value that the owner wrote is not the one that counts.
    `hint`: what to change, where that is not the flag that the text speaks of."""

    rule: str
    kind: str
    flag: str
    text: str
    becomes: Mapping[str, Any] = field(default_factory=dict)
    contradicts: bool = False
    hint: str = ""


@dataclass(frozen=True)
class Judged:
    """`flags`: written and rewritten ones together, by canonical name. `checked`: whether this
    is a release that the rules were checked against; of any other they may be out of date."""

    flags: Mapping[str, Any]
    findings: tuple[Finding, ...]
    checked: bool = True

    @property
    def refusals(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.kind == REFUSE)

    @property
    def notes(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.kind != REFUSE)


def judge(facts: Facts) -> Judged:
    """Everything that the rules say. `facts.flags` are typed and by canonical name.

    What is missing among the facts (the model, the card) makes rules silent, never wrong.
    Raises SpecError: no catalogue of this version.
    """
    view, found = View(facts), []
    for rule in _of(facts.version):
        answer = rule.judge(view)
        if not answer:
            continue
        if isinstance(answer, Sequence):
            found += [_finding(rule, view, {}, name) for name in answer]
            continue
        becomes = dict(answer) if isinstance(answer, Mapping) else {}
        becomes = {name: value for name, value in becomes.items() if view[name] != value}
        if rule.kind == REWRITE and not becomes:
            continue
        found.append(_finding(rule, view, becomes))
        view.changed.update(becomes)
        view.by.update(dict.fromkeys(becomes, rule))
    flags = {**facts.flags, **view.changed}
    left = {name: value for name, value in flags.items() if value is not None}
    return Judged(left, tuple(found), facts.version in _checked())


def effective(facts: Facts) -> dict[str, Any]:
    """The flags with which the engine goes on. Raises as `judge` does."""
    return dict(judge(facts).flags)


@cache
def about(flag: str, version: str = "") -> tuple[Rule, ...]:
    """Rules that are about a flag, in a version or in any."""
    return tuple(
        rule
        for rule in RULES
        if any(fnmatchcase(flag, name) for name in rule.flags)
        and (not version or rule.span.holds(version))
    )


@cache
def _of(version: str) -> tuple[Rule, ...]:
    try:
        key(version)
    except ValueError:
        return ()  # a build of somebody's own, of an age that nobody knows
    return tuple(rule for rule in RULES if rule.span.holds(version))


@cache
def _checked() -> frozenset[str]:
    """The releases that opsctl itself has a catalogue of."""
    return frozenset(
        file.name.removesuffix(".json")
        for file in store.own().iterdir()
        if file.name.endswith(".json")
    )


def _finding(rule: Rule, view: View, becomes: Mapping[str, Any], flag: str = "") -> Finding:
    why = rule.why.format_map(view)
    made = _made(rule, view) if rule.kind in (REFUSE, LATER) else {}
    causes = [name for earlier in made.values() for name in earlier.flags if name not in made]
    for name, earlier in made.items():
        why += f"; the engine sets {name} {_said(view[name])} by itself: {earlier.when}"
    if not flag:
        written = [name for name in (*becomes, *rule.flags, *causes) if view.written(name)]
        flag = written[0] if written else next(iter(becomes), rule.flags[0])
    version = view.facts.version
    if rule.kind == REFUSE:
        text = f"SGLang {version} would refuse to start: {why}"
    elif rule.kind == REWRITE:
        new = " and ".join(f"{name} {_said(value)}" for name, value in becomes.items())
        text = f"SGLang {version} goes on with {new}: {why}"
    elif rule.kind == IGNORED:
        text = f"has no effect in SGLang {version}: {why}"
    else:
        text = f"SGLang {version} starts with this and fails later: {why}"
    mine = [n for n in dict.fromkeys((*rule.flags, *causes)) if view.written(n)]
    hint = f"change {' or '.join(mine)}" if made and mine else ""
    contradicts = any(view.written(name) for name in becomes)
    return Finding(rule.id, rule.kind, flag, text, becomes, contradicts, hint)


def _made(rule: Rule, view: View) -> dict[str, Rule]:
    """Flags whose values an earlier rule set, and this one would not hold without → that rule."""
    found = {}
    for name in (n for n in rule.flags if n in view.by):
        value = view.changed.pop(name)
        if not rule.judge(view):
            found[name] = view.by[name]
        view.changed[name] = value
    return found


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "unset" if value is None else str(value)
