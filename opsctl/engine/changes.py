"""What a change of version does to a service's flags, or to all flags. Pure.

Only what the parser shows: what the engine itself decides differently where a default is unset in
both versions stands in no catalogue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from opsctl.engine.advisories import Advisory, Facts, advisories
from opsctl.engine.catalogue import Catalogue, catalogue
from opsctl.engine.flag import Flag
from opsctl.engine.refused import Refused
from opsctl.engine.renames import successor
from opsctl.engine.values import text, typed

# In this order they are shown.
KINDS = {
    "gone": "no longer there",
    "renamed": "under another name",
    "value": "values no longer taken",
    "void": "without effect from now on",
    "default": "other defaults",
    "choices": "other choices",
    "type": "read in another way",
    "deprecated": "deprecated from now on",
    "new": "new",
    "begins": "advisories that begin",
    "ends": "advisories that end",
}
# Flags of this name, or that begin so, do nothing unless one of these is set: their defaults touch
# no other service. (Read in server_args.py and the modules that use them, 0.5.2 … 0.5.23.)
_OFFLOAD = ("enable-hierarchical-cache", "disaggregation-decode-enable-offload-kvcache")
ONLY_WITH = {
    "hicache-storage-": ("hicache-storage-backend",),
    "hicache-": _OFFLOAD,
    "speculative-": ("speculative-algorithm",),
    "disaggregation-": ("disaggregation-mode",),
    "lora-": ("enable-lora", "lora-paths"),
    "encoder-": ("encoder-only", "language-only"),
    "debug-tensor-dump-": ("debug-tensor-dump-output-folder",),
    "dllm-": ("dllm-algorithm",),
    "dcp-": ("dcp-size",),
    "sm-group-num": ("enable-pdmux",),
    "load-balance-method": ("dp-size", "attn-dp-size"),
    "nsa-prefill-cp-mode": ("enable-nsa-prefill-context-parallel",),
    "piecewise-cuda-graph-": ("enable-piecewise-cuda-graph",),
}
# What a value is, for people.
_WORDS = {
    "switch": "a switch",
    "onoff": "on or off",
    "int": "a whole number",
    "float": "a number",
    "size": "a whole number, or one such as 25k or 16Ki",
    "nullable": "text",
    "void": "nothing: it has no effect",
    "refused": "nothing: the engine does not start with it",
    **dict.fromkeys(("json", "json_list", "json_text", "graph_config"), "JSON"),
}


@dataclass(frozen=True)
class Change:
    """One difference. `flag`: its canonical name in the older of the two that has it (of an
    advisory: its id). `blocks`: the description as it is written is refused in the new version."""

    kind: str
    flag: str
    text: str
    before: Any = None
    after: Any = None
    hint: str = ""
    blocks: bool = False


def changes(
    a: str, b: str, flags: Mapping[str, Any] | None = None, facts: Facts | None = None
) -> list[Change]:
    """What is different in version `b`, by KINDS, then by name.

    `flags`: typed values, as version `a` checked them; then only what touches this service, with
    the advisories that begin or end. `facts`: what else is known of it; version and flags in it do
    not count. Raises SpecError: there is no catalogue of one of them.
    """
    old, new = catalogue(a), catalogue(b)
    if flags is None:
        found = [*_all(old, new)]
    else:
        found = [*_written(old, new, flags), *_unset(old, new, flags)]
        found += _advised(old, new, flags, facts or Facts(a))
    order = list(KINDS)
    return sorted(found, key=lambda change: (order.index(change.kind), change.flag))


def carried(old: Catalogue, new: Catalogue, flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that the new version takes as they are, typed by it."""
    found: dict[str, Any] = {}
    for name, value in flags.items():
        flag = _of(new, old.flags[name])
        if flag is not None:
            try:
                found[flag.name] = typed(flag, value)
            except Refused:
                continue
    return found


def _of(new: Catalogue, flag: Flag) -> Flag | None:
    """The same flag, by whichever of its names."""
    known = (new.canonical(name) for name in flag.names)
    return next((new.flags[name] for name in known if name), None)


def _written(old: Catalogue, new: Catalogue, flags: Mapping[str, Any]) -> Iterator[Change]:
    """What becomes of the flags that the service sets."""
    for name, value in flags.items():
        was, now = old.flags[name], _of(new, old.flags[name])
        if now is None or now.kind == "refused":
            yield replace(_gone(was, new.version), blocks=True)
            continue
        if new.canonical(name) is None:
            yield _renamed(was, now.name, blocks=True)
        try:
            again = typed(now, value)
        except Refused as refused:
            hint = f"allowed: {refused.allowed}" if refused.allowed else refused.hint
            yield Change(
                "value", name, f"{shown(value)} {refused.message}", value, None, hint, True
            )
        else:
            if now.many == was.many and not now.many and text(now, again) != text(was, value):
                yield Change("type", name, f"{shown(value)} becomes {shown(again)}", value, again)
        yield from _retired(was, now)


def _unset(old: Catalogue, new: Catalogue, flags: Mapping[str, Any]) -> Iterator[Change]:
    """Defaults that change under the service where it leaves a flag unset."""
    for name, was in old.flags.items():
        if name in flags or not _in_play(name, flags):
            continue
        now = _of(new, was)
        if now is None:
            moved = successor(name, new.version)
            now = new.flags.get(moved or "")
            if now is None or now.name in flags or was.deprecated is not None:
                continue
            if (was.kind, was.nargs) != (now.kind, now.nargs):
                continue  # not the same thing under another name
        yield from _default(was, now)


def _in_play(name: str, flags: Mapping[str, Any]) -> bool:
    for start, needed in ONLY_WITH.items():
        if name.startswith(start) and name not in needed:
            return any(is_on(flags.get(one)) for one in needed)
    return True


def is_on(value: Any) -> bool:
    """Of a size, 1 is off: one replica, one part of the context."""
    return value is True or value not in (None, False, "null", 1)


def _all(old: Catalogue, new: Catalogue) -> Iterator[Change]:
    for name, was in old.flags.items():
        now = _of(new, was)
        if now is None or now.kind == "refused":
            if was.kind != "refused":
                yield _gone(was, new.version)
            continue
        if new.canonical(name) is None:
            yield _renamed(was, now.name)
        yield from _default(was, now)
        yield from _choices(was, now)
        if (was.kind, was.nargs) != (now.kind, now.nargs) and now.kind != "void":
            yield Change("type", name, f"{takes(was)} → {takes(now)}", takes(was), takes(now))
        yield from _retired(was, now)
    for name, now in new.flags.items():
        if _of(old, now) is None and now.kind != "refused":
            default = "" if now.default in (None, False) else f", default {shown(now.default)}"
            yield Change("new", name, f"{takes(now)}{default}", None, now.default)


def _gone(was: Flag, version: str) -> Change:
    moved = successor(was.name, version)
    if moved is None:
        return Change("gone", was.name, "is gone")
    return _renamed(was, moved)


def _renamed(was: Flag, now: str, *, blocks: bool = False) -> Change:
    return Change("renamed", was.name, f"is now {now}", was.name, now, f"write {now}", blocks)


def _default(was: Flag, now: Flag) -> Iterator[Change]:
    """A deprecated flag has no default of its own: it sets another's."""
    if now.deprecated is not None or now.kind in ("void", "refused"):
        return
    before, after = ((f.fallback if f.default is None else f.default) for f in (was, now))
    if before != after:
        moved = f" (now {now.name})" if now.name not in was.names else ""
        words = f"{shown(before)} → {shown(after)}{moved}"
        yield Change("default", was.name, words, before, after)


def _choices(was: Flag, now: Flag) -> Iterator[Change]:
    if not was.choices and not now.choices:
        return
    if not was.choices or not now.choices:
        words = f"only {_listed(now.choices)}" if now.choices else "any"
    else:
        more = [f"+{c}" for c in now.choices if c not in was.choices]
        less = [f"−{c}" for c in was.choices if c not in now.choices]
        if not more and not less:
            return
        words = " ".join((*less, *more))
    yield Change("choices", was.name, words, list(was.choices), list(now.choices))


def _retired(was: Flag, now: Flag) -> Iterator[Change]:
    if now.kind == "void" and was.kind != "void":
        instead = f"use {now.deprecated}" if now.deprecated else ""
        yield Change("void", was.name, "is taken and does nothing", hint=instead)
    elif now.deprecated is not None and was.deprecated is None:
        words = f"use {now.deprecated}" if now.deprecated else "the engine does not say what to use"
        yield Change("deprecated", was.name, words, after=now.deprecated)


def _advised(
    old: Catalogue, new: Catalogue, flags: Mapping[str, Any], facts: Facts
) -> Iterator[Change]:
    before = _by_id(replace(facts, version=old.version, flags=flags))
    after = _by_id(replace(facts, version=new.version, flags=carried(old, new, flags)))
    for one in (after[i] for i in after if i not in before):
        words = f"{one.severity}: {one.text}"
        yield Change("begins", one.id, words, None, one.severity, one.advice)
    for one in (before[i] for i in before if i not in after):
        yield Change("ends", one.id, f"{one.severity}: {one.text}", one.severity)


def _by_id(facts: Facts) -> dict[str, Advisory]:
    return {one.id: one for one in advisories(facts)}


def takes(flag: Flag) -> str:
    words = _WORDS.get(flag.kind, "text")
    return f"a list, each {words}" if flag.many else words


def _listed(values: tuple[Any, ...]) -> str:
    return ", ".join(str(value) for value in values)


def shown(value: Any) -> str:
    if value is None:
        return "unset (the engine decides)"
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value) if value != "" else '""'
