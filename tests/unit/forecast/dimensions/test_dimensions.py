"""Weights from config.json's dimensions against what public models' files hold and starts logged.

sizes.jsonl: fields of config.json as published, with the bytes of all tensors (the model hub's
counts of parameters by dtype, or total_size of the index).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opsctl.forecast.dimensions import imagined
from opsctl.forecast.dimensions.checkpoint import COMPARED
from opsctl.forecast.evaluate import evaluate
from opsctl.forecast.fit import NOT, TIGHT
from opsctl.forecast.question import Given, Question, offline
from opsctl.forecast.shape import geometry
from opsctl.forecast.values import ESTIMATED, Case, NoForecast
from opsctl.forecast.weights import DRAFT, TARGET, GiB, weights

HERE = Path(__file__).parent
PUBLISHED = [json.loads(line) for line in (HERE / "sizes.jsonl").read_text().splitlines()]
BY_NAME = {one["model"]: one["config"] for one in PUBLISHED}


def tensors(config: dict[str, Any], quant: dict[str, Any] | None = None) -> Any:
    texts = json.dumps(config), json.dumps(quant) if quant else None
    return imagined(*texts, geometry(*texts), "0.5.23"), geometry(*texts)


@pytest.mark.parametrize("one", PUBLISHED, ids=[one["model"] for one in PUBLISHED])
def test_the_band_holds_what_the_files_have(one: dict[str, Any]) -> None:
    made, shape = tensors(one["config"])
    assert shape.architecture in COMPARED
    least = sum(group["bytes"] * group["doubt"][0] for group in made["by"])
    most = sum(group["bytes"] * group["doubt"][1] for group in made["by"])
    truth = one.get("bytes") or one["parameters"]
    assert least <= truth <= most
    assert made["bytes"] == pytest.approx(truth, rel=0.006)  # and is near it
    assert most / least < 1.06 or shape.multimodal


def test_enough_models_are_compared() -> None:
    assert len(PUBLISHED) >= 35
    assert {geometry(json.dumps(one["config"])).architecture for one in PUBLISHED} == COMPARED


# What starts logged as "mem usage" of the load, or as free memory before less that after.
LOGGED = [
    ("meta-llama/Meta-Llama-3.1-8B", 1, 15.02),
    ("meta-llama/Meta-Llama-3.1-8B", 1, 78.81 - 63.72),
    ("Qwen/Qwen3-8B", 1, 275.75 - 260.48),
    ("Qwen/Qwen3-30B-A3B", 1, 56.89),
    ("moonshotai/Kimi-K2.5", 8, 94.05 - 21.71),
    ("LiquidAI/LFM2-700M", 1, 1.52),
]


@pytest.mark.parametrize(("name", "ranks", "logged"), LOGGED)
def test_the_band_of_a_rank_holds_what_was_logged(name: str, ranks: int, logged: float) -> None:
    made, shape = tensors(BY_NAME[name])
    found = weights(made, shape, {"tp-size": ranks}, "0.5.9")
    assert found.basis == ESTIMATED and found.least is not None and found.most is not None
    assert found.least <= logged * GiB <= found.most


def test_mtp_layers_are_the_draft_and_not_the_target() -> None:
    made, shape = tensors(BY_NAME["deepseek-ai/DeepSeek-V3"])
    target = weights(made, shape, {"tp-size": 8}, "0.5.14", TARGET).value
    draft = weights(made, shape, {"tp-size": 8}, "0.5.14", DRAFT).value
    assert 0.012 < draft / target < 0.03  # one layer of 62, with an embedding and a head


def test_lists_of_exceptions_are_followed() -> None:
    """ModelOpt's names and globs, with and without a prefix, per layer."""
    plain = BY_NAME["Qwen/Qwen3-30B-A3B"]
    whole = tensors(plain)[0]["bytes"]
    section: dict[str, Any] = {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}
    four = tensors(plain, {"quantization": section})[0]["bytes"]
    assert four < 0.31 * whole
    section["exclude_modules"] = ["lm_head", "model.layers.0*", "*.self_attn.*"]
    kept = tensors(plain, {"quantization": section})[0]["bytes"]
    attention = 48 * 2048 * (4096 + 2 * 512 + 4096)
    experts = 128 * 3 * 2048 * 768
    assert kept - four == pytest.approx((attention + experts) * (2 - 0.5625), rel=0.01)
    section["exclude_modules"] = [f"model.language_model.layers.{n}.mlp.experts.*" for n in (3, 5)]
    kept = tensors(plain, {"quantization": section})[0]["bytes"]
    assert kept - four == pytest.approx(2 * experts * (2 - 0.5625), rel=0.01)


def test_targets_of_several_groups_are_followed() -> None:
    plain = BY_NAME["meta-llama/Meta-Llama-3.1-8B"]
    eight = {"num_bits": 8, "type": "float"}
    four = {"num_bits": 4, "type": "float", "group_size": 16}
    quantised = {
        "quant_method": "compressed-tensors",
        "config_groups": {
            "a": {"weights": eight, "targets": ["re:.*self_attn.*"]},
            "b": {"weights": four, "targets": ["Linear"]},
        },
        "ignore": ["lm_head"],
    }
    made = tensors({**plain, "quantization_config": quantised})[0]["bytes"]
    attention, dense = 32 * 2 * 4096 * (4096 + 1024), 32 * 3 * 4096 * 14336
    words = 2 * 2 * 128256 * 4096
    assert made == pytest.approx(attention + 0.5625 * dense + words, rel=0.01)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"quantization_config": {"quant_method": "quark"}}, "quantization quark"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 3}}, "3 bits"),
        ({"moe_num_experts": 64}, "experts in a way not known"),
        ({"audio_config": {"layers": 3}}, "sound"),
        ({"vocab_size": None}, "lacks"),
    ],
)
def test_what_is_not_known_is_not_estimated(change: dict[str, Any], words: str) -> None:
    with pytest.raises(NoForecast, match=words):
        tensors({**BY_NAME["meta-llama/Meta-Llama-3.1-8B"], **change})


def test_an_architecture_that_was_not_compared_has_a_wide_band() -> None:
    config = {**BY_NAME["meta-llama/Meta-Llama-3.1-8B"], "architectures": ["ArceeForCausalLM"]}
    made, shape = tensors(config)  # its feed-forward has two matrices, here three are reckoned
    truth = made["bytes"] - 32 * 2 * 4096 * 14336
    found = weights(made, shape, {}, "0.5.23")
    assert found.least is not None and found.least < truth < found.value


# -- the first question ---------------------------------------------------------------------------


def question(
    model: str, given: Given, flags: dict[str, Any], version: str = "0.5.9", **model_: Any
) -> Question:
    entry = {
        "engine": {"version": version},
        "model": {"path": "/srv/models/X", **model_},
        "flags": flags,
    }
    folder = {"texts": {"config.json": json.dumps(BY_NAME[model])}}
    return Question("x", entry, offline(given, folder, None))


def asked(*of: Any, **model: Any) -> Case:
    return question(*of, **model).case()


def test_a_config_and_the_name_of_a_card_give_tokens() -> None:
    """The reference deployment, of which nothing is told: 159,277 tokens were logged."""
    flags = {"tp-size": 8, "mem-fraction-static": 0.88}
    case = asked("moonshotai/Kimi-K2.5", Given(gpu_name="NVIDIA RTX PRO 6000"), flags)
    tokens = evaluate(case).device.tokens
    assert tokens is not None and tokens.basis == ESTIMATED
    assert tokens.least is not None and tokens.most is not None
    assert tokens.least <= 159_277 <= tokens.most
    assert any("config.json's dimensions" in note for note in case.measured.notes)
    assert any("usual 95.6 GiB" in note for note in case.measured.notes)


# Starts that logged their tokens, from config, card and flags alone.
STARTS = [
    ("meta-llama/Meta-Llama-3.1-8B", "NVIDIA H100 80GB HBM3", {"mem-fraction-static": 0.88},
     "0.5.2", 444_500),
    ("Qwen/Qwen3-32B", "NVIDIA H100 80GB HBM3", {"mem-fraction-static": 0.9}, "0.5.19", 39_078),
    ("Qwen/Qwen3-14B", "NVIDIA GeForce RTX 4090", {"tp-size": 4, "mem-fraction-static": 0.8},
     "0.5.5", 298_447),
    ("moonshotai/Kimi-K2.5", "AMD Instinct MI355X",
     {"tp-size": 8, "mem-fraction-static": 0.826, "attention-backend": "triton"}, "0.5.9",
     2_454_421),
]  # fmt: skip


@pytest.mark.parametrize(("model", "card", "flags", "version", "logged"), STARTS)
def test_the_band_of_tokens_holds_what_was_logged(
    model: str, card: str, flags: dict[str, Any], version: str, logged: int
) -> None:
    tokens = evaluate(asked(model, Given(gpu_name=card), flags, version)).device.tokens
    assert tokens is not None and tokens.most is not None
    assert (tokens.least or 0) <= logged <= tokens.most


def test_a_verdict_is_as_sure_as_what_it_stands_on() -> None:
    """At 0.82 weights of 61 GiB leave something of an H100, or not: tight."""
    case = asked("Qwen/Qwen3-32B", Given(gpu_name="H100"), {})
    assert evaluate(case).fit.gpu == TIGHT
    case = asked("Qwen/Qwen3-32B", Given(gpu_name="H200"), {})
    assert evaluate(case).fit.gpu == "fits"
    with pytest.raises(NoForecast, match="leave no GPU memory"):
        evaluate(asked("meta-llama/Meta-Llama-3.1-70B", Given(gpu_name="H100"), {}))
    assert NOT == "does not fit"


def test_model_size_stands_in_where_dimensions_do_not() -> None:
    """Kimi-K2.5 without its quantisation's width: 595 GB over eight ranks were 72.3 GiB."""
    config = json.loads(json.dumps(BY_NAME["moonshotai/Kimi-K2.5"]))
    config["text_config"]["quantization_config"]["config_groups"] = {}
    config["text_config"]["quantization_config"]["quant_method"] = "quark"
    BY_NAME["quark"] = config
    given = Given(gpu_name="RTX PRO 6000")
    assert asked("quark", given, {"tp-size": 8}).weights is None
    found = asked("quark", given, {"tp-size": 8}, size="595GB").weights
    assert found is not None and found.least is not None and found.most is not None
    assert found.source.startswith("model.size")
    assert found.least < 72.3 * GiB < found.most


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("NVIDIA H100 80GB HBM3", 79.6),
        ("h100", 79.6),
        ("NVIDIA A100-SXM4-80GB", 80.0),
        ("NVIDIA A100-PCIE-40GB", 40.0),
        ("NVIDIA A10", 22.5),
        ("RTXPRO6000", 95.6),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 95.6),
        ("NVIDIA H200", 140.4),
        ("AMD Instinct MI300X", 192.0),
    ],
)
def test_the_usual_memory_of_a_card(name: str, gib: float) -> None:
    total = asked("Qwen/Qwen3-8B", Given(gpu_name=name), {}).hardware.total
    assert total is not None and total / GiB == pytest.approx(gib, abs=0.06)


def test_cards_of_several_sizes_have_no_usual_memory() -> None:
    for name in ("A100", "NVIDIA RTX 3080", "H100 64GB", "V100", "B300"):
        assert asked("Qwen/Qwen3-8B", Given(gpu_name=name), {}).hardware.total is None
    told = asked("Qwen/Qwen3-8B", Given(gpus=1, gpu_name="H100", gpu_total=79.65), {})
    assert told.hardware.doubt == 0
