"""Several pools of a rank, in the words of each version: read, compared, reported.

The wordings are those of mem_cache/memory_pool.py, swa_memory_pool.py, memory_pool_host.py and
pool_host/* of the released packages; the figures are of small models and follow from them.
"""

from typing import Any

import pytest

from opsctl.onhost import gates, journal
from opsctl.onhost.learned import taught
from opsctl.onhost.model import FAIL, INCONCLUSIVE, PASS, Record, StartFacts
from opsctl.onhost.report import lines

GIB, GB = 1 << 30, 10**9
AT = "[2026-11-01 10:00:00 TP0] "


def read(*texts: str) -> StartFacts:
    records = [Record(1_000_000 * n, AT + text, 7, "python3") for n, text in enumerate(texts)]
    return journal.facts(journal.events(records))


def manifest(version: str, expect: dict[str, Any], **flags: Any) -> dict[str, Any]:
    return {
        "engine": {"version": version},
        "model": {"path": "/srv/models/m", "served_name": "m"},
        "flags": {"enable-hierarchical-cache": True, **flags},
        "ranks": ["TP0"],
        "gpu_key": "a",
        "expect": expect,
    }


def kv(tokens: int, row: int) -> dict[str, Any]:
    return {"tokens": tokens, "min": tokens, "max": tokens, "bytes_per_token": row}


def own(name: str, row: int, ratio: float, page: int = 64, **more: Any) -> dict[str, Any]:
    return {
        "name": name, "bytes_per_token": row, "ratio": ratio, "size": None, "page": page,
        "of": name, **more,
    }  # fmt: skip


def like(name: str, row: int, of: str = "kv", page: int = 64) -> dict[str, Any]:
    return {
        "name": name, "bytes_per_token": row, "ratio": None, "size": None, "page": page, "like": of
    }  # fmt: skip


# -- DSA: GLM-5.2 on 0.5.20, figures of a public log ---------------------------------------------

INDEXED = (
    "KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 1711680, KV size: 88.04 GB",
    "Allocating kv hierarchical KV host pool: 3423424 tokens, 153.81 GB host memory.",
    "Allocating 35.25 GB host memory for DSA indexer (layout=page_first).",
)
INDEXED_EXPECT = {
    "kv": kv(1711680, 55224),
    "host_pools": [own("kv", 44928, 2.0), like("indexer", 10296)],
}


def test_an_indexer_s_pool_passes() -> None:
    found = read(*INDEXED)
    check = gates.ranks(manifest("0.5.20", INDEXED_EXPECT), found)
    assert check.status == PASS, check.detail
    assert "host pools 153.81 GB + 35.25 GB" in check.detail


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (INDEXED[:2], "logged 1 host pools (kv 153.81 GB), expected 2 (kv + indexer)"),
        ((*INDEXED[:2], INDEXED[2].replace("35.25", "40.44")), "indexer, expected 35.25 GB"),
        ((INDEXED[0], INDEXED[1].replace("153.81", "153.70"), INDEXED[2]), "host pool kv"),
        ((INDEXED[0], INDEXED[1].replace("3423424", "3423488"), INDEXED[2]), "3,423,488 tokens"),
    ],
)  # fmt: skip
def test_an_indexer_s_pool_that_is_not_as_forecast(texts: tuple[str, ...], words: str) -> None:
    check = gates.ranks(manifest("0.5.20", INDEXED_EXPECT), read(*texts))
    assert check.status == FAIL and words in check.detail


# -- drafts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "texts"),
    [
        (
            "0.5.12",
            (
                "Allocating 1.44 GB host memory for hierarchical KV cache.",
                "Allocating 0.08 GB host memory for hierarchical KV cache.",
            ),
        ),
        (
            "0.5.17",
            (
                "Allocating kv hierarchical KV host pool: 20032 tokens, 1.41 GB host memory.",
                "Allocating draft hierarchical KV host pool: 20096 tokens, 0.08 GB host memory.",
            ),
        ),
        (
            "0.5.23",
            (
                "Allocating kv hierarchical KV host pool: 20032 tokens, 1.41 GB host memory.",
                "Allocating draft hierarchical KV host pool: 20032 tokens, 0.08 GB host memory.",
            ),
        ),
    ],
)
def test_a_draft_s_pool(version: str, texts: tuple[str, ...]) -> None:
    expect = {
        "kv": kv(10000, 70272),
        "host_pools": [own("kv", 70272, 2.0), like("draft", 4096)],
    }
    first = "KV Cache is allocated. #tokens: 10000, KV size: 0.65 GB"
    found = read(first, texts[0].replace("1.44", "1.41"), texts[1])
    assert [pool["name"] for pool in found.ranks["TP0"].host_pools] == ["kv", "draft"]
    check = gates.ranks(manifest(version, expect), found)
    assert check.status == PASS, check.detail
    odd = read(first, texts[0].replace("1.44", "1.41"), texts[1].replace("0.08", "0.30"))
    assert gates.ranks(manifest(version, expect), odd).status == FAIL


def test_mtp_layers_inside_the_rows() -> None:
    found = read(
        "KV Cache is allocated. #tokens: 10000, KV size: 0.65 GB",
        "Allocating kv hierarchical KV host pool: 20032 tokens, 1.43 GB host memory, packed MTP KV "
        "layers: target_layers=61, draft_layers=1, total_layers=62.",
    )
    expect = {"kv": kv(10000, 70272), "host_pools": [own("kv", 71424, 2.0)]}
    assert gates.ranks(manifest("0.5.18", expect), found).status == PASS


# -- sliding windows -----------------------------------------------------------------------------

EARLY = (
    "KV Cache is allocated. #tokens: 8000, K size: 0.50 GB, V size: 0.50 GB",
    "KV Cache is allocated. #tokens: 10000, K size: 0.70 GB, V size: 0.70 GB",
    "SWAKVPool mem usage: 2.40 GB, swa size: 8000, full size: 10000",
)
LATE = (
    "Full KV Cache is allocated. dtype: torch.bfloat16, #tokens: 10000, "
    "K size: 0.70 GB, V size: 0.70 GB",
    "SWA KV Cache is allocated. dtype: torch.bfloat16, #tokens: 8000, "
    "K size: 0.50 GB, V size: 0.50 GB",
    "SWAKVPool mem usage: 2.40 GB, swa size: 8000, full size: 10000",
)  # fmt: skip


@pytest.mark.parametrize("texts", [EARLY, LATE, (EARLY[1], EARLY[0], EARLY[2])])
@pytest.mark.parametrize("draft", [False, True])
def test_two_lines_are_told_apart(texts: tuple[str, ...], draft: bool) -> None:
    more = ["Load weight begin. avail mem=90.00 GB"] * 2 if draft else []
    tail = ["KV Cache is allocated. #tokens: 10000, K size: 0.10 GB, V size: 0.10 GB"] * draft
    rank = read(*more, *texts, *tail).ranks["TP0"]
    assert (rank.kv_tokens, rank.kv_bytes) == (10000, round(0.7 * GIB) * 2)
    assert rank.other_pools == [{"name": "swa", "tokens": 8000, "bytes": GIB}]
    assert rank.draft.get("kv_tokens") == (10000 if draft else None)


def test_without_the_line_of_both_sizes_the_scheduler_s_number_tells() -> None:
    rank = read(*EARLY[:2], "max_total_num_tokens=10000, chunked_prefill_size=8192").ranks["TP0"]
    assert (rank.kv_tokens, rank.other_pools[0]["tokens"]) == (10000, 8000)


WINDOW_EXPECT = {
    "kv": kv(10000, 150324),
    "pools": [{"name": "swa", "tokens": 8000, "min": 7900, "max": 8100, "bytes_per_token": 134217}],
    "host_pools": [own("kv", 150324, 2.0), own("swa", 134217, 2.0)],
}


@pytest.mark.parametrize(
    ("version", "texts"),
    [
        (
            "0.5.13",
            (
                *EARLY,
                "Allocating 3.01 GB host memory for hierarchical KV cache.",
                "Allocating 2.16 GB host memory for hierarchical KV cache.",
            ),
        ),
        (
            "0.5.17",
            (
                *LATE,
                "Allocating full hierarchical KV host pool: 20032 tokens, 3.01 GB host memory.",
                "Allocating swa hierarchical KV host pool: 16064 tokens, 2.16 GB host memory.",
            ),
        ),
    ],
)
def test_window_pools_on_device_and_host(version: str, texts: tuple[str, ...]) -> None:
    found = read(*texts)
    check = gates.ranks(manifest(version, WINDOW_EXPECT), found)
    assert check.status == PASS, check.detail
    assert [pool["name"] for pool in found.ranks["TP0"].host_pools] == ["kv", "swa"]
    expect = {**WINDOW_EXPECT, "pools": [{**WINDOW_EXPECT["pools"][0], "max": 7950}]}
    check = gates.ranks(manifest(version, expect), found)
    assert check.status == FAIL and "8,000 rows of swa, expected 7,900 to 7,950" in check.detail
    heavy = {**WINDOW_EXPECT["pools"][0], "bytes_per_token": 10 * 134217}
    check = gates.ranks(manifest(version, {**WINDOW_EXPECT, "pools": [heavy]}), found)
    assert check.status == FAIL and "of swa" in check.detail


# -- recurrent state: Qwen3.5-27B, figures of a public log ---------------------------------------

RECURRENT = (
    "Mamba Cache is allocated. max_mamba_cache_size: 124, conv_state size: 0.34GB, "
    "ssm_state size: 17.58GB ",
    "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 330323, "
    "K size: 10.08 GB, V size: 10.08 GB",
    "Allocating kv hierarchical KV host pool: 660647 tokens, 43.30 GB host memory.",
    "Allocating 38.33 GB host memory for hierarchical Mamba cache "
    "(249 state slots, layout=page_first).",
)  # fmt: skip
SLOT = 153_944_064  # 48 layers of (48 × 128 × 128 × 4 B + 10,240 × 3 × 2 B)
RECURRENT_EXPECT = {
    "kv": kv(330323, 65536),
    "pools": [{"name": "mamba", "tokens": 124, "min": 124, "max": 124, "bytes_per_token": SLOT}],
    "host_pools": [own("kv", 65536, 2.0, 1), own("mamba", SLOT, 2.0, 1)],
}


def test_slots_of_recurrent_state() -> None:
    found = read(*RECURRENT)
    check = gates.ranks(manifest("0.5.23", RECURRENT_EXPECT), found)
    assert check.status == PASS, check.detail
    fewer = read(RECURRENT[0].replace("124", "100"), *RECURRENT[1:])
    assert gates.ranks(manifest("0.5.23", RECURRENT_EXPECT), fewer).status == FAIL


def test_the_report_tells_of_them() -> None:
    kv_line, tier, *_ = lines(manifest("0.5.23", RECURRENT_EXPECT), read(*RECURRENT), {}, [])
    assert kv_line == (
        "GPU KV cache: 330,323 tokens × 1 GPUs (20.16 GiB per GPU), "
        "124 slots of recurrent state (17.92 GiB)"
    )
    assert tier.startswith(
        "Host tier: 81.63 GB × 1 = 82 GB pinned; prefix capacity 330,323 → 660,647"
    )


def test_a_pool_that_no_line_tells_of_is_inconclusive() -> None:
    found = read(*RECURRENT[1:])
    check = gates.ranks(manifest("0.5.23", RECURRENT_EXPECT), found)
    assert check.status == INCONCLUSIVE and "no mamba pool was logged" in check.detail


# -- sized by what is free, stages, what starts teach --------------------------------------------


@pytest.mark.parametrize(("size", "status"), [("50.00", PASS), ("80.00", FAIL), ("20.00", FAIL)])
def test_a_pool_that_the_engine_sized(size: str, status: str) -> None:
    pool = own("kv", 100000, 0.0, auto=True, least=40 * GB, most=60 * GB) | {"ratio": None}
    tokens = int(float(size) * GB / 100000)
    found = read(
        "KV Cache is allocated. #tokens: 10000, KV size: 0.93 GB",
        "HiCache auto-sizing: ratio 2.000 -> 50.0; 60.0 GiB host memory per rank",
        f"Allocating kv hierarchical KV host pool: {tokens} tokens, {size} GB host memory.",
    )
    check = gates.ranks(manifest("0.5.21", {"kv": kv(10000, 100000), "host_pools": [pool]}), found)
    assert check.status == status, check.detail


def test_stages_have_their_own_rows() -> None:
    records = [
        Record(1, f"[2026-11-01 10:00:00 PP{n} TP0] {text}", 7 + n, "python3")
        for n, size in ((0, "0.35"), (1, "0.34"))
        for text in (
            f"KV Cache is allocated. #tokens: 10000, KV size: {size} GB",
            f"Allocating {('0.75', '0.72')[n]} GB host memory for hierarchical KV cache.",
        )
    ]
    found = journal.facts(journal.events(records))
    one = {"kv": kv(10000, 37200), "host_pools": [own("kv", 37200, 2.0)]}
    other = {"kv": kv(10000, 36000), "host_pools": [own("kv", 36000, 2.0)]}
    asked = manifest("0.5.9", {**one, "stages": {"PP1": other}})
    asked["ranks"] = ["PP0 TP0", "PP1 TP0"]
    assert gates.ranks(asked, found).status == PASS
    asked["expect"] = one
    assert gates.ranks(asked, found).status == FAIL


def test_what_a_start_teaches_of_every_pool() -> None:
    unknown = {"tokens": None, "min": None, "max": None}
    pool = RECURRENT_EXPECT["pools"][0]
    expect = {
        **RECURRENT_EXPECT,
        "kv": {**RECURRENT_EXPECT["kv"], **unknown},
        "pools": [{**pool, **unknown}],
    }
    start = {**read(*RECURRENT).as_json(), "gpu_key": "a"}
    known = taught(manifest("0.5.23", expect), [start])
    assert known["expect"]["kv"]["tokens"] == 330323
    assert known["expect"]["pools"][0]["tokens"] == 124
    assert gates.ranks(known, read(*RECURRENT)).status == PASS


# -- real lines of the pool classes of 0.5.23, run on a CPU with small models ---------------------

GPT_OSS = """\
Full KV Cache is allocated. dtype: torch.bfloat16, #tokens: 200000, K size: 0.93 GB, V size: 0.93 GB
SWA KV Cache is allocated. dtype: torch.bfloat16, #tokens: 160000, K size: 0.40 GB, V size: 0.40 GB
SWAKVPool mem usage: 2.66 GB, swa size: 160000, full size: 200000
Memory pool end. avail mem=80.00 GB
Allocating full hierarchical KV host pool: 400001 tokens, 3.99 GB host memory.
Allocating swa hierarchical KV host pool: 320001 tokens, 1.72 GB host memory."""
QWEN3_NEXT = """\
Mamba Cache is allocated. max_mamba_cache_size: 7746, conv_state size: 1.00GB, ssm_state size: 28.37GB 
KV Cache is allocated. dtype: torch.bfloat16, #tokens: 200000, K size: 0.72 GB, V size: 0.72 GB
Memory pool end. avail mem=80.00 GB
Allocating kv hierarchical KV host pool: 400001 tokens, 3.07 GB host memory.
Allocating 63.06 GB host memory for hierarchical Mamba cache (15493 state slots, layout=page_first).
"""  # noqa: E501, W291


def rows(name: str, count: int, row: int) -> dict[str, Any]:
    return {"name": name, "tokens": count, "min": count, "max": count, "bytes_per_token": row}


# Two ranks: 13 full and 7 window layers of 2 × 96 × 2 heads; 5 layers of 2 × 192 × 2 heads, and 15
# of 8 × 64 × 128 in FP32 with a convolution of 1,536 channels and 3 taps.
FULL, SWA, HYBRID = 13 * 2 * 2 * 96 * 2, 7 * 2 * 2 * 96 * 2, 5 * 2 * 2 * 192 * 2
STATE = 15 * (8 * 128 * 64 * 4 + 1536 * 3 * 2)


@pytest.mark.parametrize(
    ("text", "expect"),
    [
        (
            GPT_OSS,
            {
                "kv": kv(200000, FULL),
                "pools": [rows("swa", 160000, SWA)],
                "host_pools": [own("kv", FULL, 2.0, 1), own("swa", SWA, 2.0, 1)],
            },
        ),
        (
            QWEN3_NEXT,
            {
                "kv": kv(200000, HYBRID),
                "pools": [rows("mamba", 7746, STATE)],
                "host_pools": [own("kv", HYBRID, 2.0, 1), own("mamba", STATE, 2.0, 1)],
            },
        ),
    ],
)
def test_what_the_real_pool_classes_print(text: str, expect: dict[str, Any]) -> None:
    check = gates.ranks(manifest("0.5.23", expect), read(*text.splitlines()))
    assert check.status == PASS, check.detail
