"""What rules say of this model on these cards is among a forecast's notes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opsctl.forecast.evaluate import evaluate
from opsctl.forecast.notes import notes
from opsctl.forecast.shape import geometry
from opsctl.forecast.values import Case, Hardware, Measured

CONFIGS = Path(__file__).parent / "datapoints/configs"
MiB = 1 << 20


def told(model: str, card: str, **flags: Any) -> list[str]:
    shape = geometry((CONFIGS / f"{model}.json").read_text(), None, "0.5.9")
    named = {name.replace("_", "-"): value for name, value in flags.items()}
    hardware = Hardware(1, (card,), 81559 * MiB, None, "nvidia")
    case = Case(
        "0.5.9", named, {}, ("TP0",), shape, None, hardware, None, Measured(), None, None, 0
    )
    return [note for note in notes(case, evaluate(case)) if note.startswith("SGLang")]


def test_a_backend_without_kernels_for_the_card() -> None:
    flags = {"attention_backend": "trtllm_mha", "page_size": 64}
    [note] = told("llama-3.1-8b", "NVIDIA H100 80GB HBM3", **flags)
    assert "would refuse to start: trtllm_mha has no kernels for this card" in note
    assert told("llama-3.1-8b", "NVIDIA B200", **flags) == []


def test_a_context_that_the_model_does_not_have() -> None:
    [note] = told("llama-3.1-8b", "NVIDIA H100 80GB HBM3", context_length=200_000)
    assert "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1" in note


@pytest.mark.parametrize("backend", ["kernel", "direct"])
def test_only_what_contradicts_the_owner_is_told(backend: str) -> None:
    found = told(
        "llama-3.1-8b",
        "NVIDIA B200",
        enable_hierarchical_cache=True,
        hicache_mem_layout="page_first_direct",
        hicache_io_backend=backend,
        hicache_ratio=2.0,
    )
    assert len(found) == (backend == "kernel")


def test_a_flag_without_its_feature_is_told() -> None:
    shape = geometry((CONFIGS / "llama-3.1-8b.json").read_text(), None, "0.5.9")
    hardware = Hardware(1, ("NVIDIA H100 80GB HBM3",), 81559 * MiB, None, "nvidia")
    flags = {"hicache-ratio": 3.0, "hicache-io-backend": "direct"}
    case = Case(
        "0.5.9", flags, {}, ("TP0",), shape, None, hardware, None, Measured(), None, None, 0
    )
    [note] = [one for one in notes(case, evaluate(case)) if "no effect" in one]
    assert note.startswith("hicache-") and "hicache-ratio" in note and "io-backend" in note
