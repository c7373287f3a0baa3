"""The reference deployment to the digit, and what is left open where nothing is sure."""

import json
from typing import Any

import pytest

from opsctl.forecast import expectation, forecast, still_holds
from opsctl.forecast.fit import PROCESS, of_total, stopped
from opsctl.onhost.expect import GiB, gb, gib

RANKS = [f"TP{n}" for n in range(8)]
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
FREE = {"gpu_free_before": int(94.05 * GiB), "gpu_free_after": int(21.71 * GiB)}


def manifest(ratio: float = 4.0, version: str = "0.5.9", **flags: object) -> dict[str, Any]:
    return {
        "engine": {"version": version},
        "flags": {
            "tp-size": 8,
            "mem-fraction-static": 0.88,
            "enable-hierarchical-cache": True,
            "hicache-ratio": ratio,
            "speculative-algorithm": "EAGLE3",
            **flags,
        },
        "env": {"SGLANG_ENABLE_SPEC_V2": "1"},
        "gpu_key": "k1",
        "ranks": RANKS,
        "memory": {"min_available": 32 * GiB, "swap": "forbid"},
    }


def start(tokens: int = 159277, key: str = "k1", at: int = 1, pool: int = 22_390_000_000) -> dict:
    ranks = {
        name: {"kv_tokens": tokens, "host_pools": [{"name": "kv", "bytes": pool}]} for name in RANKS
    }
    return {"gpu_key": key, "digest": "d", "last_event": at, "ranks": ranks}


def facts(**changed: object) -> dict[str, Any]:
    return {
        "model": {"texts": {"config.json": CONFIG}},
        "draft": {"texts": {"config.json": json.dumps({"num_hidden_layers": 1})}},
        "memory": {"available": 449 * GiB, "total": 449 * GiB},
        "gpus": [{"name": "NVIDIA RTX PRO 6000 Blackwell Server Edition"}] * 8,
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
        "bytes": 44_770_923_648,  # 637,109 tokens × 70,272 B
    }
    assert gb(pool["bytes"]) == "44.77 GB"
    assert found["host_total"] == 8 * 44_770_923_648
    assert gib(found["host_total"]) == "333.57 GiB"
    assert found["available_after"] // GiB == 79


def test_ratio_2_is_22_39_gb() -> None:
    found = expectation(manifest(2.0), facts(starts=[start()]))
    assert found is not None
    assert gb(found["host_pools"][0]["bytes"]) == "22.39 GB"


def test_with_the_service_running_its_own_pools_and_processes_come_back() -> None:
    """The same figure, whether ratio 2.0 runs meanwhile or not."""
    running = start()
    used = 8 * (22_390_000_000 + PROCESS)
    now = {"available": 449 * GiB - used}
    assert stopped(now, running) == 449 * GiB
    assert stopped(now, running, {"bytes": 9 << 20}) == 449 * GiB  # not believed
    assert stopped(now, running, {"bytes": used - GiB}) == 448 * GiB  # the kernel's own count
    assert stopped(now, None) == now["available"]
    found = expectation(manifest(), facts(starts=[running], memory=now, running=running))
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
    assert found.expect is not None and found.fit is None
    assert found.expect["available_after"] is None


def test_a_model_folder_without_config_has_no_expectation() -> None:
    assert expectation(manifest(), facts(model={"exists": False, "texts": {}})) is None
    assert expectation(manifest(), {}) is None


def test_no_tier_is_no_pool() -> None:
    found = expectation(manifest(**{"enable-hierarchical-cache": False}), facts(starts=[start()]))
    assert found is not None
    assert (found["host_pools"], found["host_total"]) == ([], 0)
    assert found["available_after"] == 449 * GiB - 8 * PROCESS


def test_a_model_of_another_kind_has_no_expectation() -> None:
    config = json.dumps({"architectures": ["DeepseekV32ForCausalLM"], "num_hidden_layers": 61})
    found = forecast(manifest(), facts(model={"texts": {"config.json": config}}))
    assert found.expect is None
    assert "DSA" in found.notes[0]


@pytest.mark.parametrize("flag", ["enable-hisparse", "json-model-override-args", "dcp-size"])
def test_flags_that_are_not_modelled_have_no_expectation(flag: str) -> None:
    assert expectation(manifest(**{flag: "2"}), facts(starts=[start()])) is None


@pytest.mark.parametrize(
    "flags, named",
    [
        ({}, "host pool too"),
        ({"speculative-algorithm": None, "hicache-ratio": None}, "set hicache-ratio"),
    ],
)
def test_host_pools_of_the_newest_version_that_are_not_sure(flags: dict, named: str) -> None:
    found = expectation(manifest(version="0.5.23", **flags), facts(starts=[start()]))
    assert found is not None
    assert (found["host_pools"], found["host_total"], found["available_after"]) == (None,) * 3
    assert any(named in note for note in found["notes"])


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


# -- verdicts ------------------------------------------------------------------------------------

POOL = 44_770_923_648


@pytest.mark.parametrize(
    "available, threshold, verdict",
    [(449, 32, "fits"), (449, 75, "tight"), (449, 80, "does not fit"), (380, 16, "does not fit")],
)
def test_verdicts(available: int, threshold: int, verdict: str) -> None:
    found = of_total(available * GiB, 8, [POOL], threshold * GiB, "0.5.9")
    assert found.verdict == verdict


def test_the_newest_versions_may_refuse_what_fits() -> None:
    """449 GiB, 8 ranks of 4.5 ± 1 GiB: above (405 − 10) / 15 = 26.3 GiB a rank it may be luck."""
    lucky = of_total(449 * GiB, 8, [int(41.7 * GiB)], 16 * GiB, "0.5.23")
    assert lucky.verdict == "tight" and "28.28 GB" in lucky.reasons[0]
    safe = of_total(449 * GiB, 8, [int(26.3 * GiB)], 16 * GiB, "0.5.23")
    assert safe.verdict == "fits"
    never = of_total(449 * GiB, 8, [int(51.6 * GiB)], 0, "0.5.23")
    assert never.verdict == "does not fit"


def test_unknown_pools_have_no_verdict() -> None:
    assert of_total(449 * GiB, 8, None, 0, "0.5.9").verdict == "unknown"


# -- a second deployment ------------------------------------------------------------------------


def test_a_recorded_start_that_agrees_changes_nothing() -> None:
    first = expectation(manifest(), facts(), FREE)
    second = expectation(manifest(), facts(starts=[start()]), FREE)
    assert first != second
    assert still_holds(first, second)


def test_what_a_host_has_free_may_move_a_little() -> None:
    first = expectation(manifest(), facts(starts=[start()]))
    less = expectation(manifest(), facts(starts=[start()], memory={"available": 447 * GiB}))
    far = expectation(manifest(), facts(starts=[start()], memory={"available": 436 * GiB}))
    assert still_holds(first, less)
    assert not still_holds(first, far)


def test_other_rules_tokens_or_knowledge_are_news() -> None:
    first = expectation(manifest(), facts(starts=[start()]))
    assert not still_holds(first, expectation(manifest(2.0), facts(starts=[start()])))
    assert not still_holds(first, expectation(manifest(), facts(starts=[start(140000)])))
    assert not still_holds(None, first)
    # What the host learns from its own starts needs no other manifest: onhost/learned.py.
    assert still_holds(expectation(manifest(), facts()), first)
    assert still_holds(None, None)
