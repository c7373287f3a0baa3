"""Pages by release and card. Each row is what the release's own ServerArgs gave on such a card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opsctl.forecast.device import page
from opsctl.forecast.refused import refuse
from opsctl.forecast.shape import geometry
from opsctl.forecast.values import Geometry, NoForecast, NoStart
from tests.unit.forecast.device.cases import EAGLE, case, dsa, gqa, mla

CONFIGS = Path(__file__).parents[1] / "datapoints/configs"
LLAMA = gqa(32, 8, 128)
NEMOTRON = gqa(4, 8, 128, architecture="NemotronHForCausalLM")
GPT_OSS = gqa(24, 8, 64, architecture="GptOssForCausalLM")

ROWS: tuple[tuple[str, Geometry, str, dict[str, Any], int], ...] = (
    ("0.5.3.post1", mla(), "b200", {}, 1),
    ("0.5.3.post2", mla(), "b200", {}, 64),
    ("0.5.6", LLAMA, "b200", {}, 1),
    ("0.5.6.post1", LLAMA, "b200", {}, 64),
    ("0.5.4", GPT_OSS, "b200", {}, 64),
    ("0.5.6.post2", NEMOTRON, "b200", {}, 64),
    ("0.5.9", NEMOTRON, "b200", {}, 1),
    ("0.5.23", LLAMA, "b200", EAGLE, 64),
    ("0.5.23", LLAMA, "b200", {**EAGLE, "page-size": 256}, 256),
    ("0.5.23", LLAMA, "b200", {"page-size": 256}, 64),
    ("0.5.16", LLAMA, "b200", {"page-size": 128}, 64),
    ("0.5.17", LLAMA, "b200", {"page-size": 128}, 128),
    ("0.5.23", LLAMA, "h100", {}, 1),
    ("0.5.23", LLAMA, "h100", {"page-size": 32}, 32),
    ("0.5.23", LLAMA, "mi355x", {}, 1),
    ("0.5.9", dsa(), "h100", {"page-size": 1}, 64),
    ("0.5.7", dsa(), "mi355x", {}, 64),
    ("0.5.8", dsa(), "mi355x", {}, 1),
    ("0.5.9", LLAMA, "h100", {"prefill-attention-backend": "fa4"}, 128),
    ("0.5.9", LLAMA, "h100", {"attention-backend": "fa4"}, 1),
    ("0.5.10", LLAMA, "h100", {"prefill-attention-backend": "fa4"}, 1),
    ("0.5.10", LLAMA, "b200", {"prefill-attention-backend": "fa4"}, 128),
    ("0.5.14", LLAMA, "b200", {"attention-backend": "fa4"}, 1),
    ("0.5.15", LLAMA, "b200", {"attention-backend": "fa4"}, 128),
    ("0.5.15", LLAMA, "h100", {"attention-backend": "fa4"}, 1),
    ("0.5.9", mla(), "h100", {"prefill-attention-backend": "trtllm_mla"}, 1),
    ("0.5.9", mla(), "h100", {"decode-attention-backend": "trtllm_mla"}, 64),
)


@pytest.mark.parametrize(("version", "shape", "card", "flags", "expected"), ROWS)
def test_the_page(
    version: str, shape: Geometry, card: str, flags: dict[str, Any], expected: int
) -> None:
    assert page(case(shape, version, card=card, **flags)) == expected


@pytest.mark.parametrize(("version", "expected"), [("0.5.16", 64), ("0.5.17", 128)])
def test_a_backend_that_nobody_named(version: str, expected: int) -> None:
    """From 0.5.17 on fa4 is chosen where keys and values are of unequal width."""
    shape = geometry((CONFIGS / "mimo-v2-flash.json").read_text(), None, version)
    assert page(case(shape, version, card="b200")) == expected


def test_a_card_that_the_release_chooses_wrongly_for() -> None:
    """0.5.6.post1 and post2 take trtllm_mha on SM 12 as on SM 10, and then stop: the rules say."""
    with pytest.raises(NoStart, match="set attention-backend"):
        refuse(case(LLAMA, "0.5.6.post2"))
    chosen = {"attention-backend": "flashinfer"}
    assert page(case(LLAMA, "0.5.6.post2", **chosen)) == 1
    assert page(case(LLAMA, "0.5.7")) == 1


def test_what_is_not_known() -> None:
    unknown = gqa(32, 8, 128, architecture="Exaone4ForCausalLM")
    with pytest.raises(NoForecast, match="page-size"):
        page(case(unknown, "0.5.23", card="b200"))
