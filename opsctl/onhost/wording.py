"""What the engine's and systemd's lines say: one line of text → kind, rank and figures.

Wordings are read from the released packages 0.5.2 to 0.5.23. GPU lines print GiB and host lines
decimal GB, and both write "GB": see expect.py. All byte figures here are converted.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Match, NamedTuple, Optional, Pattern, Tuple

from .expect import GB, GiB

_HEAD = re.compile(
    r"^(?:\S{1,40}\s+\|\s)?"  # a container runtime's "name-1  | "
    r"\[(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,6})?)?"
    r"(?P<parts>[^\]]*)\]\s?(?P<rest>.*)$",
    re.DOTALL,
)
_PART = re.compile(r"(?<!\S)(DP|PP|TP)(\d+)(?!\S)")
_PARTS_ONLY = re.compile(r"(?:\s*(?:DP|PP|TP|EP|ATTN_CP|MOE_DP)\d+)+\s*")


class Line(NamedTuple):
    """A line without its prefix. `prefixed` says that it is the engine's own log line."""

    rank: str
    rest: str
    prefixed: bool


def parse_prefix(text: str) -> Line:
    """Take "[2026-03-01 23:45:08.123 DP0 PP0 TP1 EP1] " off a line.

    A part is shown only where its size is above 1, so a single rank has none and is TP0. Words of
    forks ("DisaggregationMode.IGPUDECODE") and the parts EP, ATTN_CP and MOE_DP name no rank of
    their own: DP, PP and TP do (scheduler.py, run_scheduler_process; the same in 0.5.9 and 0.5.23).
    """
    match = _HEAD.match(text)
    if match is None or not (match["stamp"] or _PARTS_ONLY.fullmatch(match["parts"])):
        return Line("", text, False)
    found = dict(_PART.findall(match["parts"]))
    rank = " ".join(f"{name}{found[name]}" for name in ("DP", "PP", "TP") if name in found)
    return Line(rank or "TP0", match["rest"], True)


def _gib(text: str) -> int:
    return round(float(text) * GiB)


def _gb(text: str) -> int:
    return round(float(text) * GB)


def _field(name: str, text: str) -> Optional[int]:
    match = re.search(rf"{name}=(-?[\d.]+) GB", text)
    return _gib(match[1]) if match else None


def _elapsed(text: str) -> Optional[float]:
    match = re.search(r"(?:elapsed=|Time elapsed: )([\d.]+) s", text)
    return float(match[1]) if match else None


def _figures(match: Match[str]) -> Dict[str, Any]:
    text = match.string
    return {
        "available": _field("avail mem", text),
        "used": _field("mem usage", text),
        "seconds": _elapsed(text),
    }


def _kv(match: Match[str]) -> Dict[str, Any]:
    """MHA pools print K and V apart; the pool is their sum, each rounded by itself."""
    text = match.string
    sizes = re.findall(r"\b(?:KV|K|V) size: ([\d.]+) GB", text)
    dtype = re.search(r"dtype: (?:torch\.)?([\w.]+)", text)
    tokens = re.search(r"#tokens: (\d+)", text)
    return {
        "tokens": int(tokens[1]) if tokens else None,
        "bytes": sum(_gib(size) for size in sizes) if sizes else None,
        "parts": len(sizes),
        "dtype": dtype[1] if dtype else "",
        "draft": "draft KV" in text,
        "label": (match.groupdict().get("label") or "").strip(),
    }


def _host_pool(match: Match[str]) -> Dict[str, Any]:
    found = match.groupdict()
    slots = re.search(r"\((\d+) state slots", match.string)
    tokens = slots[1] if slots else found.get("tokens")
    return {
        "name": _pool_name(found.get("what") or "kv"),
        "bytes": _gb(found["size"]),
        "tokens": int(tokens) if tokens else None,
    }


_POOL_NAMES = {"full": "kv", "draft_swa": "draft-swa"}  # 0.5.17+ "Allocating NAME hierarchical …"


def _pool_name(what: str) -> str:
    """The name of a host pool as the manifest spells it."""
    if what in _POOL_NAMES:
        return _POOL_NAMES[what]
    if "KV cache" in what and "hierarchical" in what:
        return "kv"
    if "DSA indexer" in what or "NSA indexer" in what:
        return "indexer"
    if "Mamba" in what:
        return "mamba"
    return re.sub(r"\s*\(.*", "", what).strip().rstrip(".") or "kv"


def _state(match: Match[str]) -> Dict[str, Any]:
    """The slots of recurrent state; 0.5.2 does not say how many. Intermediate states of
    speculation are printed too and left out: they are not part of a slot."""
    slots = re.search(r"max_mamba_cache_size: (\d+)", match.string)
    return {
        "tokens": int(slots[1]) if slots else None,
        "conv": _gib(match["conv"]),
        "temporal": _gib(match["temporal"]),
    }


def _window(match: Match[str]) -> Dict[str, Any]:
    return {"swa": int(match["swa"]), "full": int(match["full"])}


def _args(match: Match[str]) -> Dict[str, Any]:
    """What the reading of a start needs from server_args=; the rest, keys among it, is dropped."""
    text = match.string

    def value(name: str) -> str:
        found = re.search(rf"\b{name}'?(?:=|: )'?([^',)}}]*)", text)
        return "" if found is None or found[1] == "None" else found[1].strip()

    return {
        "speculative_algorithm": value("speculative_algorithm"),
        "enable_hierarchical_cache": value("enable_hierarchical_cache") == "True",
    }


def _limits(match: Match[str]) -> Dict[str, Any]:
    return {"tokens": int(match["tokens"])}


def _bar(match: Match[str]) -> Dict[str, Any]:
    return {"done": int(match["done"]), "of": int(match["of"])}


def _words(match: Match[str]) -> Dict[str, Any]:
    return {name: value for name, value in match.groupdict().items() if value is not None}


def _graph(match: Match[str]) -> Dict[str, Any]:
    return {**_figures(match), "name": match["name"], "draft": "draft" in match["name"].lower()}


def _auto(match: Match[str]) -> Dict[str, Any]:
    return {"ratio": float(match["ratio"]), "from": float(match["was"])}


Reader = Callable[[Match[str]], Dict[str, Any]]


def _row(kind: str, pattern: str, reader: Reader = _words) -> Tuple[str, Pattern[str], Reader]:
    return kind, re.compile(pattern, re.DOTALL), reader


# The engine's own lines, after the prefix. First match wins.
ENGINE: List[Tuple[str, Pattern[str], Reader]] = [
    _row("args", r"^(?:WARNING |INFO )?server_args=", _args),
    _row("dist_begin", r"^Init (?:torch distributed|parallel) begin"),
    _row("dist_end", r"^Init (?:torch distributed|parallel) ends", _figures),
    _row("weights_begin", r"^Load weight begin", _figures),
    _row("weights_end", r"^Load weight end", _figures),
    _row("kv_dtype", r"^Using KV cache dtype: (?:torch\.)?(?P<dtype>[\w.]+)"),
    _row("kv_bound", r"^(?P<label>[\w. -]*?)\s?KV Cache VA upper bound", _kv),
    _row("kv", r"^(?P<label>[\w. -]*?)\s?KV Cache is allocated", _kv),
    _row("kv_final", r"^Post-capture KV sizing: (?:draft )?KV cache allocated", _kv),
    _row(
        "state",
        r"^Mamba Cache is allocated\..*?conv_state size: (?P<conv>[\d.]+)\s?GB, "
        r"ssm_state size: (?P<temporal>[\d.]+)\s?GB",
        _state,
    ),
    _row("window", r"^SWAKVPool .*\bswa size: (?P<swa>\d+), full size: (?P<full>\d+)", _window),
    _row("pools_end", r"^Memory pool end", _figures),
    _row("graph_begin", r"^Capture (?P<name>.*?[Gg]raph) begin", _graph),
    _row("graph_end", r"^Capture (?P<name>.*?[Gg]raph) end", _graph),
    _row("limits", r"^max_total_num_tokens=(?P<tokens>\d+)", _limits),
    _row("host_auto", r"^HiCache auto-sizing: ratio (?P<was>[\d.]+) -> (?P<ratio>[\d.]+)", _auto),
    _row(
        "host_pool",
        r"^Allocating (?P<what>\S+) hierarchical KV host pool: (?P<tokens>\d+) tokens, "
        r"(?P<size>[\d.]+) GB host memory",
        _host_pool,
    ),
    _row("host_pool", r"^Allocating (?P<size>[\d.]+) GB host memory for (?P<what>.+)", _host_pool),
    _row("ready", r"^The server is fired up and ready to roll"),
    _row("listening", r"^(?:INFO:\s+)?Uvicorn running on (?P<url>\S+)"),
    _row("app_ready", r"^(?:INFO:\s+)?Application startup complete"),
    _row("draining", r"^SIGTERM received"),
]

# Bars have no prefix. The weights' bar is rank 0's alone; a bar tells no rank.
BARS: List[Tuple[str, Pattern[str], Reader]] = [
    _row("weights_bar", r"shards:\s+\d+% Completed \| (?P<done>\d+)/(?P<of>\d+)", _bar),
    _row("graph_bar", r"Captur\w+ .*?(?P<done>\d+)/(?P<of>\d+) \[", _bar),
]

# systemd's own lines; the unit's name stands before the colon. Both word orders of all versions.
SYSTEMD: List[Tuple[str, Pattern[str], Reader]] = [
    _row("unit_exit", r"[Mm]ain process exited, code=(?P<code>\w+),? ?status=(?P<status>\S+)"),
    _row("unit_exit", r"Main processes terminated with: code=(?P<code>\w+)/status=(?P<status>\S+)"),
    _row("unit_oom", r"A process of this unit has been killed by the OOM killer"),
    _row("unit_failed", r"Failed with result '(?P<result>[\w-]+)'"),
    _row("unit_failed", r"Finished with result: (?P<result>oom-kill|signal|exit-code|timeout)"),
    _row("unit_restart", r"Scheduled restart job"),
    _row("unit_limit", r"Start request repeated too quickly"),
    _row("unit_error", r"Failed at step (?P<step>\w+) spawning"),
    _row("unit_error", r"Failed to set up (?P<step>credentials)"),
    _row("unit_error", r"Failed to load (?P<step>environment) files: "),
    _row("unit_started", r"^Started "),
    _row("unit_stopping", r"^(?:Stopping|Stopped) "),
]


def read(table: List[Tuple[str, Pattern[str], Reader]], text: str) -> Tuple[str, Dict[str, Any]]:
    """The kind and figures of the first row that knows the text; ("", {}) if none does."""
    for kind, pattern, reader in table:
        match = pattern.search(text)
        if match is not None:
            return kind, reader(match)
    return "", {}
