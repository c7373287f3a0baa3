"""What recorded starts of this host, a journal and the owner's figures give, in which order."""

from __future__ import annotations

from typing import Any

import pytest

from opsctl.forecast.calibration import measured
from opsctl.onhost.expect import GiB

FLAGS = {"tp-size": 2, "mem-fraction-static": 0.88, "speculative-algorithm": "EAGLE3"}
JOURNAL = """\
[2026-03-01 10:00:00] server_args=ServerArgs(model_path='/m', tp_size=2, mem_fraction_static=0.88, speculative_algorithm='EAGLE3')
[2026-03-01 10:00:01 TP0] Load weight begin. avail mem=90.00 GB
[2026-03-01 10:00:01 TP1] Load weight begin. avail mem=91.00 GB
[2026-03-01 10:00:02 TP0] Load weight end. elapsed=1 s, avail mem=30.00 GB, mem usage=60.00 GB.
[2026-03-01 10:00:02 TP1] Load weight end. elapsed=1 s, avail mem=30.50 GB, mem usage=60.10 GB.
[2026-03-01 10:00:03 TP0] KV Cache is allocated. #tokens: 500, KV size: 1.00 GB
[2026-03-01 10:00:03 TP1] KV Cache is allocated. #tokens: 500, KV size: 1.00 GB
[2026-03-01 10:00:04] The server is fired up and ready to roll!
"""  # noqa: E501


def manifest(version: str = "0.5.9", key: str = "k", **flags: Any) -> dict[str, Any]:
    return {
        "engine": {"version": version},
        "model": {"path": "/m", "draft_path": "/d"},
        "flags": {k: v for k, v in (FLAGS | flags).items() if v is not None},
        "env": {},
        "gpus": None,
        "gpu_key": key,
        "ranks": ["TP0", "TP1"],
    }


def start(key: str = "k", tokens: int = 1000, **changed: Any) -> dict[str, Any]:
    rank = {
        "kv_tokens": tokens,
        "free_before_weights": 94 * GiB,
        "free_after_weights": 21 * GiB,
        "weights_bytes": 73 * GiB,
        "load_seconds": 600.0,
        "draft": {"weights_bytes": GiB, "free_after": 20 * GiB},
        "host_pools": [{"name": "kv", "bytes": 3 * GiB}, {"name": "draft", "bytes": GiB}],
    }
    worse = {**rank, "free_before_weights": 93 * GiB, "weights_bytes": 74 * GiB}
    return {
        "invocation": "i",
        "gpu_key": key,
        "last_event": 1,
        "engine_version": "0.5.9",
        "model": {"path": "/m", "draft_path": "/d", "bytes": 547 * 10**9},
        "flags": dict(FLAGS),
        "env": {},
        "gpus": None,
        "ranks": {"TP0": rank, "TP1": worse},
        "seconds": {"weights": 600.0, "total": 700.0},
        "cached": 0.1,
        "process": 4 * GiB,
        **changed,
    }


def test_the_same_gpu_key_gives_all_and_the_worst_rank_counts() -> None:
    found = measured(manifest(), {"starts": [start("other", 5), start()]})
    assert (found.tokens, found.sure) == (1000, True)
    assert (found.free_before, found.free_after) == (93 * GiB, 21 * GiB)
    assert (found.weights, found.draft_weights) == (74 * GiB, GiB)
    assert (found.process, found.cached, found.pinned) == (4 * GiB, 0.1, 8 * GiB)
    assert found.seconds["weights"] == 600.0


def test_a_record_without_flags_still_gives_its_tokens() -> None:
    """Records that were written before settings were in them."""
    old = {"gpu_key": "k", "last_event": 1, "ranks": {n: {"kv_tokens": 7} for n in ("TP0", "TP1")}}
    found = measured(manifest(), {"starts": [old]})
    assert (found.tokens, found.free_before, dict(found.seconds)) == (7, None, {})
    assert measured(manifest(key="other"), {"starts": [old]}).tokens is None


# changed flags → tokens, free memory and weights, draft's weights
RELATED: list[tuple[dict[str, Any], bool, bool, bool]] = [
    ({"hicache-ratio": 3.0, "enable-hierarchical-cache": True}, True, True, True),
    ({"mem-fraction-static": 0.9}, False, True, True),
    ({"kv-cache-dtype": "fp8_e5m2"}, False, True, True),
    ({"quantization": "awq"}, False, False, True),
    ({"moe-runner-backend": "triton"}, False, False, True),
    ({"speculative-draft-model-path": "/other"}, False, True, False),
]


@pytest.mark.parametrize(("changed", "tokens", "free", "draft"), RELATED)
def test_a_related_start_gives_what_its_changed_settings_leave_alone(
    changed: dict[str, Any], tokens: bool, free: bool, draft: bool
) -> None:
    found = measured(manifest(key="new", **changed), {"starts": [start()]})
    assert (found.tokens is not None) is tokens
    assert (found.free_before is not None) is (found.free_after is not None) is free
    assert (found.weights is not None) is free
    assert (found.draft_weights is not None) is draft
    assert found.process == 4 * GiB and found.seconds
    assert bool(found.notes) is not free


@pytest.mark.parametrize("key", ["k", "new"], ids=["same", "related"])
def test_a_start_that_nobody_saw_begin_hides_nothing_of_an_older_one(key: str) -> None:
    taken_over = start(invocation="j", process=None, seconds={}, cached=None, tokens=1001)
    older = [start("other", 5, process=9 * GiB, flags=None), start()]
    found = measured(manifest(key=key), {"starts": [taken_over, *older]})
    assert (found.tokens, found.free_after) == (1001, 21 * GiB)
    assert (found.process, found.cached, found.seconds["weights"]) == (4 * GiB, 0.1, 600.0)


UNRELATED: list[dict[str, Any]] = [
    {"engine_version": "0.5.10"},
    {"model": {"path": "/other"}},
    {"gpus": [0, 1]},
    {"ranks": {"TP0": {}}},
    {"flags": {**FLAGS, "tp-size": 4}},
    {"flags": {**FLAGS, "enable-dp-attention": True}},
    {"flags": None},
]


@pytest.mark.parametrize("other", UNRELATED)
def test_an_unrelated_start_gives_nothing(other: dict[str, Any]) -> None:
    found = measured(manifest(key="new"), {"starts": [start(**other)]})
    assert (found.tokens, found.free_before, found.process) == (None, None, None)


def test_an_environment_that_may_matter_takes_free_memory_away() -> None:
    found = measured(manifest(key="new"), {"starts": [start(env={"NCCL_BUFFSIZE": "1"})]})
    assert found.free_before is None and "env.NCCL_BUFFSIZE" in found.notes[0]
    found = measured(manifest(key="new"), {"starts": [start(env={"SGLANG_ENABLE_SPEC_V2": "1"})]})
    assert found.free_before is not None


def test_from_0_5_14_on_the_draft_is_loaded_before_the_pools() -> None:
    newer = start(engine_version="0.5.14")
    assert measured(manifest("0.5.14"), {"starts": [newer]}).free_after == 20 * GiB
    other = manifest("0.5.14", "new", **{"speculative-draft-model-path": "/other"})
    found = measured(other, {"starts": [newer]})
    assert (found.free_before, found.free_after) == (93 * GiB, None)
    assert found.weights == 74 * GiB


WRITTEN = {"gpu_free_before": 80 * GiB, "gpu_free_after": 10 * GiB, "kv_tokens": 9}


def test_records_go_before_a_journal_and_a_journal_before_the_owner() -> None:
    facts = {"starts": [start()]}
    assert measured(manifest(), facts, WRITTEN, JOURNAL).free_before == 93 * GiB
    found = measured(manifest(), {}, WRITTEN, JOURNAL)
    assert (found.tokens, found.free_before, found.free_after) == (500, 90 * GiB, 30 * GiB)
    found = measured(manifest(), {}, WRITTEN)
    assert (found.tokens, found.sure) == (9, False)
    assert (found.free_before, found.free_after) == (80 * GiB, 10 * GiB)
    assert measured(manifest(), {}, None).source == ""


def test_memory_before_and_after_the_weights_is_not_mixed() -> None:
    facts = {"starts": [start(ranks={n: {"kv_tokens": 7} for n in ("TP0", "TP1")})]}
    found = measured(manifest(), facts, WRITTEN)
    assert (found.tokens, found.free_before, found.free_after) == (7, 80 * GiB, 10 * GiB)
    half = {"gpu_free_after": 10 * GiB}
    assert measured(manifest(), {}, half).free_before is None


def test_the_prefill_speed_of_what_runs_is_taken() -> None:
    told = {"prefill": {"value": 9, "least": 8, "most": 10, "samples": 5}}
    found = measured(manifest(), told).prefill
    assert found is not None and (found.value, found.least, found.most) == (9, 8, 10)


def test_times_are_of_all_starts_of_this_release_and_else_of_related_ones() -> None:
    def took(seconds: float, key: str = "k", **changed: Any) -> dict[str, Any]:
        return start(key, seconds={"weights": seconds}, **changed)

    other = took(9.0, "k2", flags={**FLAGS, "hicache-ratio": 2.0})
    found = measured(manifest(), {"starts": [took(3.0), other, took(4.0), start(seconds={})]})
    assert [one.seconds["weights"] for one in found.earlier] == [3.0, 4.0]
    found = measured(manifest(key="new"), {"starts": [took(3.0), other, took(1.0, gpus=[7])]})
    assert [one.seconds["weights"] for one in found.earlier] == [3.0, 9.0]
    assert found.earlier[0].cached == 0.1 and found.earlier[0].pinned == 8 * GiB
