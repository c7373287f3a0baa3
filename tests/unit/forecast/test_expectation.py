"""The reference deployment to the digit, and what is left open where nothing is sure."""

import json
from typing import Any

import pytest

from opsctl.forecast import forecast, still_holds
from opsctl.forecast.host.memory import PROCESS
from opsctl.onhost.expect import GiB, gb, gib

RANKS = [f"TP{n}" for n in range(8)]
NO_SWAP = {"swap_total": 0, "swap_used": 0, "hugetlb": 0}
CONFIG = json.dumps(
    {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "text_config": {
            "num_hidden_layers": 61,
            "kv_lora_rank": 512,
            "qk_rope_head_dim": 64,
            "dtype": "bfloat16",
        },
    }
)
DRAFT = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "head_dim": 128,
    "hidden_size": 7168,
    "dtype": "bfloat16",
}
GPUS = [
    {
        "index": n,
        "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "memory_total": 97887 << 20,
        "state": "ok",
    }
    for n in range(8)
]
FREE = {"gpu_free_before": int(94.05 * GiB), "gpu_free_after": int(21.71 * GiB)}


def manifest(ratio: float = 4.0, version: str = "0.5.9", **flags: object) -> dict[str, Any]:
    return {
        "engine": {"version": version},
        "model": {"path": "/srv/models/m", "draft_path": "/srv/models/d"},
        "gpus": None,
        "flags": {
            "tp-size": 8,
            "mem-fraction-static": 0.88,
            "enable-hierarchical-cache": True,
            "hicache-ratio": ratio,
            "speculative-algorithm": "EAGLE3",
            "speculative-draft-model-path": "/srv/models/d",
            **flags,
        },
        "env": {"SGLANG_ENABLE_SPEC_V2": "1"},
        "gpu_key": "k1",
        "ranks": RANKS,
        "memory": {"min_available": 32 * GiB, "swap": "forbid"},
    }


def expectation(*given: Any) -> dict[str, Any] | None:
    return forecast(*given).expect


def start(tokens: int = 159277, key: str = "k1", at: int = 1, pool: int = 22_390_000_000) -> dict:
    ranks = {
        name: {"kv_tokens": tokens, "host_pools": [{"name": "kv", "bytes": pool}]} for name in RANKS
    }
    return {"gpu_key": key, "digest": "d", "invocation": "i", "last_event": at, "ranks": ranks}


def memory(available: int) -> dict[str, int]:
    return {"available": available * GiB, "total": 449 * GiB, **NO_SWAP}


def facts(**changed: object) -> dict[str, Any]:
    return {
        "model": {"texts": {"config.json": CONFIG}},
        "draft": {"texts": {"config.json": json.dumps(DRAFT)}},
        "memory": {"available": 449 * GiB, "total": 449 * GiB, **NO_SWAP},
        "gpus": GPUS,
        "starts": [],
        "running": None,
        **changed,
    }


def test_a_start_at_ratio_2_predicts_ratio_4_to_the_digit() -> None:
    found = expectation(manifest(4.0), facts(starts=[start()]))
    assert found is not None
    kv = found["kv"]
    assert (kv["tokens"], kv["bytes_per_token"], kv["basis"]) == (159277, 70272, "measured")
    assert gib(kv["tokens"] * kv["bytes_per_token"]) == "10.42 GiB"
    [pool] = found["host_pools"]
    assert pool == {
        "name": "kv",
        "bytes_per_token": 70272,
        "ratio": 4.0,
        "size": None,
        "page": 1,
        "tokens": 637_109,
        "bytes": 44_770_923_648,  # × 70,272 B
    }
    assert gb(pool["bytes"]) == "44.77 GB"
    assert found["host_total"] == 8 * 44_770_923_648
    assert gib(found["host_total"]) == "333.57 GiB"
    assert found["available_after"] // GiB == 79


def test_ratio_2_is_22_39_gb() -> None:
    found = expectation(manifest(2.0), facts(starts=[start()]))
    assert found is not None
    assert gb(found["host_pools"][0]["bytes"]) == "22.39 GB"


@pytest.mark.parametrize("counted", [0, 9 << 20, 8 * (22_390_000_000 + PROCESS)])
def test_with_the_service_running_its_own_pools_and_processes_come_back(counted: int) -> None:
    """The same figure, whether ratio 2.0 runs meanwhile or not, and whether the kernel's count of
    its memory is there, not believed (less than its pools), or right."""
    used = 8 * (22_390_000_000 + PROCESS)
    now = {"available": 449 * GiB - used, "total": 449 * GiB, **NO_SWAP}
    seen = facts(starts=[start()], memory=now, running=start(), service_memory={"bytes": counted})
    found = expectation(manifest(), seen)
    assert found is not None and found["available_after"] // GiB == 79


def test_free_memory_gives_a_band_that_holds_the_truth() -> None:
    found = expectation(manifest(), facts(), FREE)
    assert found is not None
    kv = found["kv"]
    assert kv["basis"] == "computed"
    assert kv["min"] < kv["tokens"] < kv["max"]
    assert kv["min"] <= 159277 <= kv["max"]
    assert gb(found["host_pools"][0]["bytes"]) == "44.77 GB"


def test_the_owners_own_figure_is_taken_if_it_fits_the_others() -> None:
    found = expectation(manifest(), facts(), {**FREE, "kv_tokens": 159277})
    assert found is not None
    assert (found["kv"]["tokens"], found["kv"]["basis"]) == (159277, "measured")


def test_the_owners_own_figure_of_another_fraction_is_not_taken() -> None:
    other = manifest(**{"mem-fraction-static": 0.9})
    found = expectation(other, facts(), {**FREE, "kv_tokens": 159277})
    assert found is not None
    assert found["kv"]["basis"] == "computed" and found["kv"]["tokens"] > 180000
    assert any("other settings" in note for note in found["notes"])


def test_a_start_with_other_gpu_settings_or_unequal_ranks_does_not_count() -> None:
    uneven = start(at=9)
    uneven["ranks"]["TP3"]["kv_tokens"] = 1
    silent = start(at=8)
    del silent["ranks"]["TP7"]
    starts = [start(200000, key="k2", at=7), uneven, silent, start(150000, at=3), start(1, at=2)]
    found = expectation(manifest(), facts(starts=starts))
    assert found is not None and found["kv"]["tokens"] == 150000


def test_nothing_known_leaves_the_tokens_open_but_not_the_rule() -> None:
    found = expectation(manifest(), facts())
    assert found is not None
    kv = found["kv"]
    assert (kv["tokens"], kv["min"], kv["max"], kv["bytes_per_token"]) == (None, None, None, 70272)
    assert found["host_pools"][0]["ratio"] == 4.0
    assert found["host_pools"][0]["bytes"] is None
    assert found["host_total"] is None and found["available_after"] is None
    assert any("not known before the first start" in note for note in found["notes"])


def test_a_cap_is_the_most() -> None:
    found = expectation(manifest(**{"max-total-tokens": 4096}), facts())
    assert found is not None
    assert (found["kv"]["tokens"], found["kv"]["min"], found["kv"]["max"]) == (4096, None, 4096)


def test_an_explicit_size_needs_no_tokens() -> None:
    found = expectation(manifest(**{"hicache-size": 40, "hicache-ratio": None}), facts())
    assert found is not None
    [pool] = found["host_pools"]
    assert (pool["size"], pool["ratio"]) == (40.0, None)
    assert gb(pool["bytes"]) == "40.00 GB"
    assert found["available_after"] is not None


def test_a_cpu_has_no_verdict() -> None:
    found = forecast(manifest(device="cpu"), facts(starts=[start()]))
    assert found.expect is not None and found.fit is not None
    assert found.fit.verdict == "unknown"
    assert found.expect["available_after"] is None


def test_a_model_folder_without_config_has_no_expectation() -> None:
    assert expectation(manifest(), facts(model={"exists": False, "texts": {}})) is None
    assert expectation(manifest(), {}) is None


def test_no_tier_is_no_pool() -> None:
    found = expectation(manifest(**{"enable-hierarchical-cache": False}), facts(starts=[start()]))
    assert found is not None
    assert (found["host_pools"], found["host_total"]) == ([], 0)
    assert found["available_after"] == 449 * GiB - 8 * PROCESS


def test_a_model_of_an_unknown_kind_has_no_expectation() -> None:
    config = json.dumps({"architectures": ["MadeUpForCausalLM"], "num_hidden_layers": 61})
    found = forecast(manifest(), facts(model={"texts": {"config.json": config}}))
    assert found.expect is None and found.fit is None
    assert "MadeUpForCausalLM" in found.notes[0]


def test_weights_that_leave_no_room_do_not_fit() -> None:
    full = {"gpu_free_before": 94 * GiB, "gpu_free_after": 8 * GiB}
    found = forecast(manifest(), facts(), full)
    assert found.expect is None
    assert found.fit is not None and found.fit.verdict == "does not fit"
    assert "no GPU memory" in found.lines[0]


@pytest.mark.parametrize("flag", ["enable-hisparse", "json-model-override-args", "dcp-size"])
def test_flags_that_are_not_modelled_have_no_expectation(flag: str) -> None:
    assert expectation(manifest(**{flag: "2"}), facts(starts=[start()])) is None


def test_the_newest_version_gives_the_draft_a_host_pool_too() -> None:
    found = expectation(manifest(version="0.5.23"), facts(starts=[start()]))
    assert found is not None
    kv, draft = found["host_pools"]
    assert (draft["name"], draft["like"], draft["tokens"]) == ("draft", "kv", kv["tokens"])


def test_the_newest_version_may_size_the_pools_by_what_it_finds() -> None:
    flags = {"speculative-algorithm": None, "hicache-ratio": None}
    found = expectation(manifest(version="0.5.23", **flags), facts(starts=[start()]))
    assert found is not None
    [pool] = found["host_pools"]
    assert pool["auto"] and pool["ratio"] is None
    assert pool["least"] <= pool["bytes"] <= pool["most"]


def test_images_and_the_draft_are_charged_in_the_newest_version() -> None:
    """0.5.14 counts the draft's KV, 0.5.18 keeps 100 MiB (or 1,124) back for images."""
    old = expectation(manifest(), facts(), FREE)
    new = expectation(manifest(version="0.5.23"), facts(), FREE)
    assert old is not None and new is not None
    rest = (21.71 - 0.12 * 94.05) * GiB - (100 << 20)
    assert abs(new["kv"]["tokens"] - rest / 71424) < 1.5
    assert new["kv"]["bytes_per_token"] == 70272  # the pool's own cell is as before
    assert old["kv"]["max"] - old["kv"]["min"] < new["kv"]["max"] - new["kv"]["min"]


def test_it_is_explained() -> None:
    lines = forecast(manifest(), facts(starts=[start()])).lines
    text = "\n".join(lines)
    for part in ("70,272 B", "159,277 tokens = 10.42 GiB", "637,109 tokens = 44.77 GB", "fits"):
        assert part in text


# -- a second deployment ------------------------------------------------------------------------


def test_a_recorded_start_that_agrees_changes_nothing() -> None:
    first = expectation(manifest(), facts(), FREE)
    second = expectation(manifest(), facts(starts=[start()]), FREE)
    assert first != second
    assert still_holds(first, second)


def test_what_a_host_has_free_may_move_a_little() -> None:
    first = expectation(manifest(), facts(starts=[start()]))
    less = expectation(manifest(), facts(starts=[start()], memory=memory(447)))
    far = expectation(manifest(), facts(starts=[start()], memory=memory(433)))
    assert still_holds(first, less)
    assert not still_holds(first, far)


def test_other_rules_tokens_or_knowledge_are_news() -> None:
    first = expectation(manifest(), facts(starts=[start()]))
    assert not still_holds(first, expectation(manifest(2.0), facts(starts=[start()])))
    assert not still_holds(first, expectation(manifest(), facts(starts=[start(140000)])))
    assert not still_holds(None, first)
    # What the host learns from its own starts needs no other manifest: onhost/learned.py.
    assert still_holds(expectation(manifest(), facts()), first)
    assert still_holds(None, None) and still_holds(first, None)


def test_a_deployment_does_not_believe_figures_of_other_ranks_either() -> None:
    """540 GB over four ranks: 130.76 GiB of a card of 95.59."""
    given = manifest(**{"tp-size": 4})
    believed = forecast(given, facts(), FREE)
    assert believed.fit is not None and believed.fit.verdict == "fits"
    found = forecast(given, facts(), FREE, size=540 * 10**9)
    assert found.fit is not None and found.fit.verdict == "does not fit"
    assert "130.76 GiB" in found.fit.reasons[0]
    same = forecast(manifest(), facts(), FREE, size=540 * 10**9)
    assert same.expect == forecast(manifest(), facts(), FREE).expect


@pytest.mark.parametrize(
    ("folder", "why"),
    [
        ({"silent": "/m does not answer within 5 s", "exists": False}, "does not answer within 5"),
        ({"path": "/m", "exists": False, "texts": {}}, "/m is not there"),
        ({"path": "/m", "exists": True, "texts": {}}, "config.json is not there, or empty"),
        ({"path": "/m", "exists": True, "texts": {"config.json": "{"}}, "config.json is no JSON"),
    ],
)
def test_why_nothing_can_be_said(folder: dict[str, Any], why: str) -> None:
    found = forecast(manifest(), facts(model=folder))
    assert found.expect is None and why in found.notes[0]
