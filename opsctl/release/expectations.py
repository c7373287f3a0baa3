"""What has changed between two expectations of a release, by figure. Pure.

An expectation moves with what is measured and with what stands on the host, while the description
stays: whoever reads "no restart" wants to know which figure it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from opsctl.onhost.expect import count, gb, gib

SHOWN = 4  # figures that one line names; the rest is counted
# How a figure is called, the most telling first; {} is the name of a pool.
_NAMES = (
    ("kv.tokens", "KV tokens"),
    ("kv.bytes_per_token", "bytes of a token"),
    ("pools.{}.tokens", "rows of pool {}"),
    ("host_total", "host pools of all ranks"),
    ("host_pools.{}.bytes", "host pool {} a rank"),
    ("available_after", "RAM left"),
    ("process.bytes", "memory of a process"),
    ("weights.bytes", "weights a rank"),
    ("start.seconds", "start"),
    ("start.cap", "cap of a start"),
    ("override", "override"),
    ("kv.min", "fewest KV tokens"),
    ("kv.max", "most KV tokens"),
    ("available_least", "RAM left at worst"),
    ("start.most", "longest start"),
    ("start.least", "shortest start"),
    ("kv.basis", "KV tokens are"),
    ("process.basis", "memory of a process is"),
)
_PLACES = {path: place for place, (path, _) in enumerate(_NAMES)}


def changed(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> str:
    """ "expectation: RAM left 86.70 GiB → 78.60 GiB, KV tokens …"; "" if they are the same."""
    if old == new:
        return ""
    if not old or not new:
        return "expectation: " + ("there was none before" if new else "there is none any more")
    before, after = dict(_flat(old)), dict(_flat(new))
    paths = [path for path in {**before, **after} if before.get(path) != after.get(path)]
    paths.sort(key=lambda path: (_PLACES.get(_of(path)[0], len(_NAMES)), path))
    told = [_line(path, before.get(path), after.get(path)) for path in paths]
    seen = [line for line in told if line] or ["figures by less than is shown"]
    more = len(seen) - SHOWN
    rest = f" and {more} more figure{'s' if more > 1 else ''}" if more > 0 else ""
    return f"expectation: {', '.join(seen[:SHOWN])}{rest}"


def _flat(value: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value) of all that is no container; pools go by their names, notes are one thing."""
    for key, part in value.items():
        here = f"{path}{key}"
        if isinstance(part, Mapping):
            yield from _flat(part, f"{here}.")
        elif isinstance(part, list) and part and all(isinstance(each, Mapping) for each in part):
            for n, each in enumerate(part):
                yield from _flat(each, f"{here}.{each.get('name') or n}.")
        else:
            yield here, part


def _of(path: str) -> tuple[str, str]:
    """The path as it stands in _NAMES, and the name of the pool in it."""
    parts = path.split(".")
    if len(parts) == 3 and parts[0] in ("pools", "host_pools"):
        return f"{parts[0]}.{{}}.{parts[2]}", parts[1]
    return path, ""


def _line(path: str, before: Any, after: Any) -> str:
    """ "" where the two look the same."""
    known, pool = _of(path)
    usual = (
        f"{known.rpartition('.')[2]} of {'host ' * (known[0] == 'h')}pool {{}}" if pool else known
    )
    name = dict(_NAMES).get(known, usual).format(pool)
    if known == "notes":
        return "its notes"
    old, new = (_figure(path, value) for value in (before, after))
    return "" if old == new else f"{name} {old} → {new}"


def _figure(path: str, value: Any) -> str:
    if value is None:
        return "none" if path == "override" else "not known"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ",".join(map(str, value)) if isinstance(value, list) else str(value)
    parts = path.split(".")
    if parts[-1] in ("tokens", "rows") or parts[0] == "kv" or parts[0] == "pools":
        return count(int(value))
    if parts[0] in ("host_pools", "host_total") and parts[-1] not in ("ratio", "size", "page"):
        return gb(int(value))
    if parts[0] in ("available_after", "available_least", "process", "weights"):
        return gib(int(value))
    return f"{value} s" if parts[0] == "start" else str(value)
