"""Complete start-up logs of the real engine, and starts of eight ranks in both versions' words."""

from pathlib import Path

import pytest

from opsctl.onhost.journal import Reading, events, facts
from opsctl.onhost.model import Event, Record, StartFacts
from opsctl.onhost.records import split
from opsctl.onhost.wording import parse_prefix

LOGS = Path(__file__).parent / "logs"
GIB = 1 << 30


def records(text: str, source: str = "python") -> list[Record]:
    found = []
    for number, line in enumerate(text.split("\n")):
        found += [Record(number, part, 7, source) for part in split(line)]
    return found


def read(text: str, source: str = "python") -> StartFacts:
    reading = Reading("inv")
    for record in records(text, source):
        reading.feed(record)
    return reading.facts


def log(name: str) -> str:
    return (LOGS / name).read_bytes().decode("utf-8", "replace")


def gib(value: float) -> int:
    return round(value * GIB)


# name → ready, tokens, free before, dtype, host pools, the cause's first words
REAL = {
    "start-0.5.9.log": (True, 4096, 21.74, "bfloat16", 0, ""),
    "start-0.5.23.log": (True, 4096, 20.30, "bfloat16", 0, ""),
    "hicache-0.5.9.log": (True, 256, 21.70, "bfloat16", 1, ""),
    "tiny-deepseek-0.5.9.log": (
        False, 4096, 20.63, "bfloat16", 0, "RuntimeError: Expected size for first two",
    ),
    "host-memory-error-0.5.9.log": (
        False, 256, 20.66, "bfloat16", 0, "ValueError: Not enough host memory available",
    ),
    "host-memory-error-0.5.23.log": (
        False, 256, 21.66, "bfloat16", 0, "ValueError: Not enough host memory available",
    ),
}  # fmt: skip


def test_the_table_has_every_log() -> None:
    assert {path.name for path in LOGS.iterdir()} == set(REAL)


@pytest.mark.parametrize("name", REAL)
def test_a_real_log_gives_its_facts(name: str) -> None:
    ready, tokens, before, dtype, pools, cause = REAL[name]
    found = read(log(name))
    assert list(found.ranks) == ["TP0"]  # a single rank has no prefix and is called TP0
    rank = found.ranks["TP0"]
    assert found.ready is ready
    assert rank.kv_tokens == rank.max_total_tokens == tokens
    assert rank.free_before_weights == gib(before)
    assert rank.kv_dtype == dtype
    assert len(rank.host_pools) == pools
    assert rank.phase == ("ready" if ready else "kv")
    assert found.dead is bool(cause)
    if cause:
        assert found.errors[0].startswith(cause)
        assert not found.ready


def test_an_error_that_the_engine_survives_is_no_crash() -> None:
    """0.5.9 on a newer FastAPI raises in a request's handler and serves on."""
    found = read(log("start-0.5.9.log"))
    assert found.errors == ["AttributeError: '_IncludedRouter' object has no attribute 'path'"]
    assert not found.dead


def test_k_and_v_are_summed_and_mla_is_one() -> None:
    text = (
        "[2026-03-01 23:45:08] KV Cache is allocated. #tokens: 9, K size: 5.22 GB, V size: 5.23 GB"
    )
    assert read(text).ranks["TP0"].kv_bytes == gib(5.22) + gib(5.23)


# -- the reference deployment, in the words of 0.5.9 ---------------------------------------------


def reference(silent: tuple[int, ...] = ()) -> str:
    """Target, its graphs, the draft, its pool: the order up to 0.5.13."""
    lines = [
        "[2026-03-01 23:30:00] server_args=ServerArgs(model_path='/srv/models/Kimi-K2.5', "
        "api_key='CANARY', speculative_algorithm='EAGLE3', enable_hierarchical_cache=True)"
    ]
    steps = (
        "Init torch distributed begin.",
        "Init torch distributed ends. elapsed=13.02 s, mem usage=0.50 GB",
        "Load weight begin. avail mem=94.05 GB",
        "Load weight end. elapsed=612.33 s, type=KimiK25ForConditionalGeneration, "
        "dtype=torch.bfloat16, avail mem=21.71 GB, mem usage=72.34 GB.",
        "KV Cache is allocated. #tokens: 159277, KV size: 10.42 GB",
        "Memory pool end. avail mem=11.26 GB",
        "Capture cuda graph begin. This can take up to several minutes. avail mem=11.10 GB",
        "Capture cuda graph end. Time elapsed: 21.04 s. mem usage=0.51 GB. avail mem=10.59 GB.",
        "Init torch distributed begin.",
        "Init torch distributed ends. elapsed=0.01 s, mem usage=0.00 GB",
        "Load weight begin. avail mem=10.50 GB",
        "Load weight end. elapsed=3.10 s, type=LlamaForCausalLMEagle3, dtype=torch.bfloat16, "
        "avail mem=9.40 GB, mem usage=1.10 GB.",
        "KV Cache is allocated. #tokens: 159277, K size: 0.30 GB, V size: 0.30 GB",
        "Capture draft cuda graph begin. This can take up to several minutes. avail mem=8.80 GB",
        "Capture draft cuda graph end. Time elapsed: 2.00 s. mem usage=0.10 GB. avail mem=8.70 GB.",
        "max_total_num_tokens=159277, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        "max_running_requests=48, context_len=262144, available_gpu_mem=8.70 GB",
        "Allocating 44.77 GB host memory for hierarchical KV cache.",
    )
    for step in steps:
        for rank in range(8):
            if rank in silent or (step.startswith("max_total") and rank):
                continue
            lines.append(f"[2026-03-01 23:45:08 TP{rank}] {step}")
    return "\n".join([*lines, "[2026-03-01 23:46:00] The server is fired up and ready to roll!"])


def test_the_reference_deployment_is_read() -> None:
    found = read(reference())
    assert sorted(found.ranks) == [f"TP{n}" for n in range(8)]
    for rank in found.ranks.values():
        assert rank.kv_tokens == 159277
        assert rank.kv_bytes == gib(10.42)
        assert rank.free_before_weights == gib(94.05)
        assert rank.free_after_weights == gib(21.71)
        assert rank.weights_bytes == gib(72.34)
        assert rank.load_seconds == 612.33
        assert rank.host_pools == [{"name": "kv", "bytes": 44_770_000_000, "tokens": None}]
        assert rank.phase == "ready"
        assert rank.draft == {
            "weights_bytes": gib(1.10),
            "free_after": gib(9.40),
            "kv_tokens": 159277,
            "kv_bytes": 2 * gib(0.30),
        }
        assert rank.other_pools == []


def test_no_key_stays_in_events_or_facts() -> None:
    found = list(events(records(reference())))
    assert "CANARY" not in repr(found)


def test_a_rank_that_is_silent_is_not_invented() -> None:
    assert sorted(read(reference(silent=(3, 6, 7))).ranks) == ["TP0", "TP1", "TP2", "TP4", "TP5"]


def test_phases_follow_one_rank() -> None:
    reading, seen = Reading(), []
    for record in records(reference()):
        reading.feed(record)
        phase = reading.facts.ranks["TP3"].phase if "TP3" in reading.facts.ranks else ""
        if phase and (not seen or seen[-1] != phase):
            seen.append(phase)
    assert seen == ["dist", "weights", "kv", "graphs", "draft", "hostpool", "ready"]


def test_facts_from_events_equal_facts_from_records() -> None:
    for name in REAL:
        found: list[Event] = list(events(records(log(name))))
        assert facts(found, "inv") == seen_by_events(read(log(name))), name
    assert facts(events(records(reference())), "inv") == seen_by_events(read(reference()))


def seen_by_events(known: StartFacts) -> StartFacts:
    """Without what only records tell: the first line's time, and who wrote the lines."""
    known.began = 0
    for rank in known.ranks.values():
        rank.pid = 0
    return known


# -- 0.5.13 and later ----------------------------------------------------------------------------

NEWEST = """\
[2026-11-01 10:00:00] server_args={'api_key': None, 'speculative_algorithm': 'EAGLE3'}
[2026-11-01 10:00:01.123 TP0] Init parallel begin.
[2026-11-01 10:00:02.001 TP0] Init parallel ends. elapsed=0.99 s
[2026-11-01 10:00:03.001 TP0] Load weight begin. avail mem=94.05 GB
[2026-11-01 10:10:03.001 TP0] Load weight end. elapsed=600.00 s, type=K, avail mem=21.71 GB, mem usage=72.34 GB.
[2026-11-01 10:10:04.001 TP0] Load weight begin. avail mem=21.71 GB
[2026-11-01 10:10:05.001 TP0] Load weight end. elapsed=1.00 s, type=D, avail mem=20.61 GB, mem usage=1.10 GB.
[2026-11-01 10:10:06.001 TP0] KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 150000, KV size: 4.91 GB
[2026-11-01 10:10:06.002 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 150000, K size: 0.29 GB, V size: 0.29 GB
[2026-11-01 10:10:07.001 TP0] Capture target verify CUDA graph begin. backend=full, num_tokens_per_req=4, avail mem=11.00 GB
[2026-11-01 10:10:08.001 TP0] Capture target verify CUDA graph end. bs=[1, 2], elapsed=1.00 s, mem usage=0.10 GB, avail mem=10.90 GB.
[2026-11-01 10:10:09.001 TP0] HiCache auto-sizing: ratio 2.000 -> 1.520; 40.0 GiB host memory per rank (fraction 0.80, 8 ranks on this host), host pools 9.9 GiB.
[2026-11-01 10:10:10.001 TP0] Allocating kv hierarchical KV host pool: 300001 tokens, 10.54 GB host memory.
[2026-11-01 10:10:11.001 TP0] Allocating draft hierarchical KV host pool: 300001 tokens, 1.23 GB host memory.
[2026-11-01 10:10:12.001 TP0] Allocating 3.21 GB host memory for DSA indexer (layout=page_first).
"""  # noqa: E501


def test_the_newest_wording_with_milliseconds_and_a_draft() -> None:
    rank = read(NEWEST).ranks["TP0"]
    assert rank.kv_tokens == 150000
    assert rank.kv_bytes == gib(4.91)
    assert rank.kv_dtype == "float8_e4m3fn"
    assert rank.free_after_weights == gib(21.71)  # the target's, not the draft's
    assert rank.draft["weights_bytes"] == gib(1.10)
    assert rank.draft["kv_bytes"] == 2 * gib(0.29)
    assert rank.host_pools == [
        {"name": "kv", "bytes": 10_540_000_000, "tokens": 300001},
        {"name": "draft", "bytes": 1_230_000_000, "tokens": 300001},
        {"name": "indexer", "bytes": 3_210_000_000, "tokens": None},
    ]
    assert rank.phase == "hostpool"


def test_post_capture_sizing_tells_the_truth_in_its_second_line() -> None:
    rank = read(
        "[2026-11-01 10:00:00 TP0] KV Cache VA upper bound. dtype: torch.bfloat16, "
        "#tokens: 999999, K size: 40.00 GB, V size: 40.00 GB\n"
        "[2026-11-01 10:01:00 TP0] Post-capture KV sizing: KV cache allocated. "
        "dtype: torch.bfloat16, #tokens: 500000, KV size: 40.00 GB, avail mem=3.00 GB"
    ).ranks["TP0"]
    assert (rank.kv_tokens, rank.kv_bytes) == (500000, gib(40.0))


def test_two_pools_without_a_draft_are_two_pools_of_the_target() -> None:
    rank = read(
        "[2026-11-01 10:00:00 TP0] KV Cache is allocated. #tokens: 100, KV size: 1.00 GB\n"
        "[2026-11-01 10:00:00 TP0] KV Cache is allocated. #tokens: 80, KV size: 0.50 GB"
    ).ranks["TP0"]
    assert rank.kv_tokens == 100
    assert rank.other_pools == [{"name": "", "tokens": 80, "bytes": gib(0.5)}]
    assert rank.draft == {}


@pytest.mark.parametrize(
    "text, rank",
    [
        ("[2026-03-01 23:45:08 DP0 PP1 TP3 EP3] x", "DP0 PP1 TP3"),
        ("[2026-03-01 23:45:08.250 TP1] x", "TP1"),
        ("[2026-03-01 23:45:08,250 TP1] x", "TP1"),
        ("[2026-03-01 23:45:08 DP1] x", "DP1"),
        ("[2026-03-01 23:45:08 PP0 ATTN_CP1 MOE_DP2 TP5 EP1] x", "PP0 TP5"),
        ("[2026-03-01 23:45:08 DisaggregationMode.IGPUDECODE TP1] x", "TP1"),
        ("[2026-03-01 23:45:08] x", "TP0"),
        ("[TP2] x", "TP2"),
        ("sglang-1  | [2026-03-01 23:45:08 TP6] x", "TP6"),
        ("[gpu_id=0] Init nccl begin.", ""),
        ("[Gloo] Rank 0 is connected to 0 peer ranks.", ""),
        ("[1/11] nvcc", ""),
        ("plain", ""),
    ],
)
def test_every_rank_prefix(text: str, rank: str) -> None:
    assert parse_prefix(text).rank == rank


def test_lines_of_the_parent_make_no_rank() -> None:
    """In a start of many ranks the parent's lines have no rank, and must not become a TP0."""
    found = read(
        "[2026-03-01 23:45:08 DP0 TP0] Load weight begin. avail mem=94.05 GB\n"
        "[2026-03-01 23:45:08] INFO:     Uvicorn running on http://127.0.0.1:30000 (x)\n"
        "[2026-03-01 23:45:08] The server is fired up and ready to roll!"
    )
    assert list(found.ranks) == ["DP0 TP0"]
    assert found.ready and found.listening
