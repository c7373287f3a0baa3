"""Starts that the engine ends at once are no forecasts: what only the model and the cards tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opsctl.forecast.refused import refuse, unseated
from opsctl.forecast.shape import geometry
from opsctl.forecast.values import Case, Hardware, Measured, NoStart

CONFIGS = Path(__file__).parent / "datapoints/configs"
MiB = 1 << 20
H100, B200 = "NVIDIA H100 80GB HBM3", "NVIDIA B200"
A100 = "NVIDIA A100-SXM4-80GB"
LONGER = {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}


def case(
    model: str, card: str, flags: dict[str, Any], version: str = "0.5.9", env: Any = None
) -> Case:
    shape = geometry((CONFIGS / f"{model}.json").read_text(), None, version)
    tp = flags.get("tp-size", 1)
    vendor = "amd" if card.startswith("AMD") else "nvidia"
    hardware = Hardware(tp, (card,) if card else (), 81559 * MiB, None, vendor)
    ranks = tuple(f"TP{n}" for n in range(tp))
    return Case(
        version, flags, env or {}, ranks, shape, None, hardware, None, Measured(), None, None, 0
    )


@pytest.mark.parametrize("version", ["0.5.2", "0.5.9", "0.5.23"])
@pytest.mark.parametrize(
    ("model", "card", "flags", "words"),
    [
        ("llama-3.1-8b", H100, {"tp-size": 3}, "32 attention heads do not divide by 3 ranks"),
        ("llama-3.1-8b", H100, {"context-length": 200_000}, "made for fewer than 200000 tokens"),
        ("llama-3.1-8b", A100, {"attention-backend": "trtllm_mha"}, "no kernels for this card"),
        ("llama-3.1-8b", H100, {"attention-backend": "flashmla"}, "which this model has not"),
        ("llama-3.1-8b", B200, {"attention-backend": "trtllm_mla"}, "which this model has not"),
        ("llama-3.1-8b", B200, {"decode-attention-backend": "fa3"}, "compute capability 10.0"),
        ("deepseek-v3", B200, {"attention-backend": "trtllm_mha"}, "keeps MLA latents"),
        ("llama-3.1-8b", H100, {"max-running-requests": 0}, "max-running-requests 0"),
        ("llama-3.1-8b", H100, {"max-running-requests": -3}, "max-running-requests -3"),
        ("llama-3.1-8b", H100, {"max-total-tokens": -5}, "max-total-tokens -5"),
        ("llama-3.1-8b", H100, {"page-size": 0}, "a page would hold no token"),
        (
            "llama-3.1-8b",
            H100,
            {"page-size": 0, "chunked-prefill-size": 8192},
            "a page would hold no token",
        ),
        ("llama-3.1-8b", H100, {"context-length": 0}, "context-length 0"),
    ],
)
def test_it_would_not_start(
    model: str, card: str, flags: dict[str, Any], words: str, version: str
) -> None:
    with pytest.raises(NoStart, match=words):
        refuse(case(model, card, flags, version))


@pytest.mark.parametrize(
    ("model", "card", "flags", "env"),
    [
        ("llama-3.1-8b", H100, {"tp-size": 8}, {}),
        ("llama-3.1-8b", H100, {"tp-size": 16}, {}),  # 8 KV heads, each on two ranks
        ("deepseek-v3", H100, {"tp-size": 8, "dp-size": 8, "enable-dp-attention": True}, {}),
        ("llama-3.1-8b", H100, {"context-length": 200_000}, LONGER),
        ("llama-3.1-8b", H100, {"context-length": 131_072}, {}),
        ("llama-3.1-8b", B200, {"attention-backend": "trtllm_mha", "page-size": 64}, {}),
        ("llama-3.1-8b", "", {"attention-backend": "trtllm_mha"}, {}),  # cards not told
        ("llama-3.1-8b", "", {"attention-backend": "fa3"}, {}),
        ("llama-3.1-8b", A100, {"attention-backend": "fa3"}, {}),
        ("deepseek-v3", H100, {"tp-size": 8, "attention-backend": "flashmla"}, {}),
        ("deepseek-v3.2", H100, {"tp-size": 8}, {}),
        # flashmla brings pages of its own
        ("deepseek-v3", H100, {"attention-backend": "flashmla", "page-size": 0}, {}),
    ],
)
def test_it_would_start(model: str, card: str, flags: dict[str, Any], env: dict[str, str]) -> None:
    refuse(case(model, card, flags, env=env))


def test_kv_heads_that_do_not_divide() -> None:
    """36 attention heads divide by 6 ranks, 8 KV heads do not."""
    whole = case("llama-3.1-8b", H100, {"tp-size": 6})
    with pytest.raises(NoStart, match="8 KV heads and 6 ranks"):
        refuse(replace(whole, shape=replace(whole.shape, q_heads=36)))


@pytest.mark.parametrize(
    ("gpus", "flags", "words"),
    [
        ([7], {}, "there is no GPU 7 on this host: it has 1 GPU,"),
        ([0, 1], {}, "there is no GPU 1"),
        (None, {"base-gpu-id": 3}, "ask for GPU 3 of 1 GPU"),
        (None, {"tp-size": 2}, "2 ranks on this host, and it has 1 GPU"),
        ([0], {"tp-size": 2}, "the service has 1 GPU"),
        (None, {}, ""),
        ([0], {}, ""),
    ],
)
def test_ranks_without_a_gpu(gpus: list[int] | None, flags: dict[str, Any], words: str) -> None:
    whole = case("llama-3.1-8b", H100, flags)
    found = unseated({"gpus": gpus}, {"gpus": [{"index": 0}]}, whole)
    assert words in found and bool(words) == bool(found)
    assert unseated({"gpus": gpus}, {"gpus": []}, whole) == ""
