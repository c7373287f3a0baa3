"""docs/models.md: what config.json of public models gives. `python -m
tests.unit.forecast.models_table` writes it, `--check` tells whether it is stale."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

from opsctl.forecast.shape import geometry, state_elements
from opsctl.forecast.shape.registry import FIRST, NEWEST, parsed
from opsctl.forecast.shape.target import known
from opsctl.forecast.values import Geometry, Heads, Latent, NoForecast

CONFIGS = Path(__file__).with_name("configs")
DOC = Path(__file__).resolve().parents[3] / "docs/models.md"
HEAD = f"""# Models that the forecast knows

Written by `python -m tests.unit.forecast.models_table` from tests/unit/forecast/configs: the
fields of config.json that memory depends on, each with its source. tests/engine/test_real_shapes.py
compares them with the real engine 0.5.9 and 0.5.23.

Bytes per token and rank are those of {NEWEST} at the KV cache's own dtype (FP8 where the
checkpoint asks for it, without scales of rows). "+ … window": a second pool for layers with a
sliding window or chunks. "index": keys of DSA. "state": recurrent state of one request, which does
not grow with its length. Latent rows (MLA) are whole on every rank; KV heads are split, down to one
head a rank. A release before the one that is named hands the architecture to Transformers' own
classes, which are not forecast.

| model | architecture | since | kind | TP1 | TP8 |
|---|---|---|---|---|---|
"""


def document() -> str:
    lines = [_line(held) for held in cases()]
    return HEAD + "\n".join(lines) + "\n"


@cache
def cases() -> tuple[dict[str, Any], ...]:
    held = (json.loads(path.read_text()) for path in CONFIGS.glob("*.json"))
    return tuple(sorted(held, key=lambda one: (one["config"]["architectures"][0], one["model"])))


def shape(held: dict[str, Any], version: str = NEWEST) -> Geometry:
    quant = held.get("hf_quant_config")
    return geometry(json.dumps(held["config"]), json.dumps(quant) if quant else None, version)


def _line(held: dict[str, Any]) -> str:
    name = held["config"]["architectures"][0]
    try:
        found = shape(held)
    except NoForecast as reason:
        return (
            f"| {held['model']} | {name} | {FIRST.get(name, 'never')} | not forecast: {reason} |||"
        )
    since, kind = _since(held), _kind(found)
    return (
        f"| {held['model']} | {name} | {since} | {kind} | {_size(found, 1)} | {_size(found, 8)} |"
    )


def _since(held: dict[str, Any]) -> str:
    """The first release that answers: a class of the name, or one of another name."""
    for version in sorted(set(FIRST.values()) | {"0.5.4", "0.5.10"}, key=parsed):
        try:
            known(held["config"]["architectures"][0], version)
            return version
        except NoForecast:
            continue
    raise AssertionError(held["model"])


def _kind(found: Geometry) -> str:
    if isinstance(found.attention, Latent):
        text = f"MLA {found.attention.rank} + {found.attention.rope}, {len(found.full)} layers"
    else:
        text = f"{_heads(found.attention)}, {len(found.full)} layers"
    if found.indexer:
        text += f", DSA of {len(found.indexer.layers)} layers"
    if found.window:
        heads = f" ({_heads(found.window_attention)})" if found.window_attention else ""
        text += f", {len(found.window)} window layers{heads} of {found.window_tokens} tokens"
    if found.state:
        text += f", {len(found.linear)} {found.state.kind} layers"
    return text + (", FP8 KV" if found.kv_fp8 else "")


def _heads(heads: Heads) -> str:
    both = str(heads.head_dim)
    both += "" if heads.head_dim == heads.v_head_dim else f"/{heads.v_head_dim}"
    return f"{heads.count} × {both}"


def _size(found: Geometry, ranks: int) -> str:
    element = 1 if found.kv_fp8 else found.element
    text = f"{len(found.full) * _row(found.attention, ranks) * element:,}"
    if found.window and _windowed(found):
        row = _row(found.window_attention or found.attention, ranks)
        text += f" + {len(found.window) * row * element:,} window"
    elif found.window:
        row = _row(found.attention, ranks)
        text = f"{(len(found.full) + len(found.window)) * row * element:,}"
    if found.indexer:
        size = found.indexer.head_dim
        text += f" + {len(found.indexer.layers) * (size + size // 128 * 4):,} index"
    if found.state:
        temporal, conv = state_elements(found.state, ranks)
        state = len(found.linear) * (temporal * found.state.element + conv * 2)
        text += f"; {state / 2**20:,.1f} MiB state"
    return text


def _row(attention: Heads | Latent, ranks: int) -> int:
    if isinstance(attention, Latent):
        return attention.rank + attention.rope
    return max(1, attention.count // ranks) * (attention.head_dim + attention.v_head_dim)


def _windowed(found: Geometry) -> bool:
    """Gemma 2, 3 and 3n and OLMo 3 keep every token in every layer: the engine turns their window
    pool off (forecast/device/window.py)."""
    return not found.architecture.startswith(("Gemma2", "Gemma3", "Olmo"))


def main() -> int:
    text = document()
    if "--check" in sys.argv[1:]:
        return int(not DOC.exists() or DOC.read_text("utf-8") != text)
    DOC.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
