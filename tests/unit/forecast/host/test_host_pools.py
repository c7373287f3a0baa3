"""Host pools of every version, against public logs and the releases' own rules."""

from typing import Any

import pytest

from opsctl.forecast.host import host_pools
from opsctl.forecast.values import (
    COMPUTED,
    Case,
    Device,
    DevicePool,
    Figure,
    Geometry,
    Hardware,
    Heads,
    HostMemory,
    HostPool,
    Indexer,
    Latent,
    Measured,
    NoForecast,
    State,
)

GIB = 1 << 30
B300 = Hardware(8, ("NVIDIA B300",) * 8, None, (10, 3))
ALL = [
    "0.5.2", "0.5.3", "0.5.3.post3", "0.5.4", "0.5.4.post1", "0.5.4.post3", "0.5.5",
    "0.5.5.post2", "0.5.5.post3", "0.5.6", "0.5.7", "0.5.8.post1", "0.5.9", "0.5.10", "0.5.11",
    "0.5.12", "0.5.13", "0.5.14", "0.5.15", "0.5.16", "0.5.17", "0.5.18", "0.5.19", "0.5.20",
    "0.5.21", "0.5.22", "0.5.23",
]  # fmt: skip


def exactly(value: int) -> Figure:
    return Figure(value, value, value, COMPUTED, "")


def mha(layers: int, heads: int, dim: int, v_dim: int = 0, **more: Any) -> Geometry:
    kind = Heads(heads, dim, v_dim or dim)
    return Geometry("MhaForCausalLM", layers, kind, full=tuple(range(layers)), **more)


def mla(layers: int, **more: Any) -> Geometry:
    kind = Latent(512, 64)
    return Geometry("MlaForCausalLM", layers, kind, full=tuple(range(layers)), **more)


def case(version: str, shape: Geometry, tp: int = 1, **more: Any) -> Case:
    flags = {"enable-hierarchical-cache": True, "tp-size": tp, **more.pop("flags", {})}
    found: dict[str, Any] = {
        "version": version,
        "flags": flags,
        "env": {},
        "ranks": tuple(f"TP{n}" for n in range(tp)),
        "shape": shape,
        "draft": None,
        "hardware": Hardware(tp),
        "memory": None,
        "measured": Measured(),
        "weights": None,
        "draft_weights": None,
        "min_available": 10 * GIB,
        **more,
    }
    return Case(**found)


def device(tokens: int, page: int = 1, stage: int = 0, **pools: tuple[int, int]) -> Device:
    """`pools`: name=(rows, bytes a row)."""
    return Device(
        exactly(tokens),
        0,
        0,
        page,
        0.88,
        None,
        None,
        tuple(
            DevicePool(name, exactly(count), row, exactly((count + page) * row))
            for name, (count, row) in pools.items()
        ),
        None,
        stage=stage,
    )


def one(found: tuple[HostPool, ...]) -> HostPool:
    assert len(found) == 1
    return found[0]


# -- public figures --------------------------------------------------------------------------------


def test_the_reference_deployment() -> None:
    found = one(host_pools(
        case("0.5.9", mla(61), 8, flags={"hicache-ratio": 4.0}),
        device(159277, kv=(159277, 70272)),
    ))  # fmt: skip
    assert (found.tokens, round(found.bytes / 1e9, 2)) == (637109, 44.77)
    assert found.pinned == found.bytes == found.least == found.most


def test_qwen3_32b_by_size() -> None:
    """Public log: --hicache-size 100, page 64, fp8."""
    flags = {"hicache-size": 100, "kv-cache-dtype": "fp8_e5m2"}
    found = one(host_pools(case("0.5.17", mha(64, 8, 128), flags=flags), device(0, 64)))
    assert (found.bytes_per_token, found.tokens) == (131072, 762944)
    assert round(found.bytes / 1e9, 2) == 100.0


def glm52(**more: Any) -> Geometry:
    return mla(78, indexer=Indexer(128, tuple(range(78))), **more)


def test_glm_5_2_and_its_indexer() -> None:
    """Public log of MI355X, about 0.5.20: 153.81 and 35.25 GB."""
    found = host_pools(
        case(
            "0.5.20",
            glm52(),
            4,
            flags={"hicache-ratio": 2.0, "kv-cache-dtype": "fp8_e4m3"},
            hardware=Hardware(4, ("AMD Instinct MI355X",) * 4, None, (9, 5), "amd"),
        ),
        device(3423488 // 2 - 1, kv=(3423488 // 2 - 1, 44928), indexer=(3423488 // 2 - 1, 10296)),
    )
    assert [pool.name for pool in found] == ["kv", "indexer"]
    assert [pool.bytes_per_token for pool in found] == [44928, 10296]
    per_token = [pool.bytes / pool.tokens for pool in found]
    assert [round(3423488 * row / 1e9, 2) for row in per_token] == [153.81, 35.25]


def test_glm_5_2_with_mtp_by_size() -> None:
    """Public figure of 0.5.16 to 0.5.18: --hicache-size 270 takes 335.34 GB a rank in all."""
    draft = mla(1, indexer=Indexer(128, (0,)), nextn=1)
    flags = {"hicache-size": 270, "kv-cache-dtype": "fp8_e4m3", "speculative-algorithm": "NEXTN"}
    found = host_pools(
        case("0.5.16", glm52(), 8, flags=flags, draft=draft, hardware=B300),
        device(1000000, 64, kv=(1000000, 44928), indexer=(1000000, 10296)),
    )
    assert [pool.name for pool in found] == ["kv", "indexer", "draft"]
    assert round(sum(pool.bytes for pool in found) / 1e9, 2) == pytest.approx(335.34, abs=0.01)


def test_qwen3_1_7b_default_ratio() -> None:
    """Public log, about 0.5.15: 3,094,849 tokens, 354.94 GB."""
    device_tokens = (3094849 - 1) // 2
    found = one(host_pools(case("0.5.15", mha(28, 8, 128)), device(device_tokens)))
    assert (found.tokens, round(found.bytes / 1e9, 2)) == (3094849, 354.94)


def test_kimi_with_eagle3_on_0_5_10_has_no_draft_pool() -> None:
    """Issue 21880: 105.6 GB at ratio 2.0."""
    flags = {"hicache-ratio": 2.0, "speculative-algorithm": "EAGLE3"}
    found = one(host_pools(
        case("0.5.10", mla(61), 8, flags=flags, draft=mha(1, 64, 128)), device(751_365)
    ))  # fmt: skip
    assert round(found.bytes / 1e9, 1) == 105.6


# -- rules by version ------------------------------------------------------------------------------


def key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.replace("post", "").split("."))


def since(version: str, first: str) -> bool:
    return key(version) >= key(first)


@pytest.mark.parametrize("version", ALL)
def test_ratio_and_pages(version: str) -> None:
    """1,000 × 2.0 in pages of 64: 31 whole pages, or 32 since 0.5.5.post3."""
    flags = {"hicache-ratio": 2.0}
    found = one(host_pools(case(version, mla(61), flags=flags), device(1000, 64)))
    assert found.tokens == (2048 if since(version, "0.5.5.post3") else 1984)
    assert found.bytes == found.tokens * 70272


@pytest.mark.parametrize("version", ALL)
def test_size_wins_over_ratio_and_is_per_rank(version: str) -> None:
    flags = {"hicache-size": 100, "hicache-ratio": 3.0}
    found = one(host_pools(case(version, mla(61), 8, flags=flags), device(1000, 64)))
    whole = int(100e9 // 70272) // 64 * 64
    assert found.tokens == whole + (64 if since(version, "0.5.5.post3") else 0)
    assert (found.ratio, found.size) == (None, 100)


@pytest.mark.parametrize("version", ALL)
def test_blocks_are_powers_of_two_up_to_0_5_4_post1(version: str) -> None:
    """Issue 14282: 40 GB a rank takes 64 GiB of pinned memory."""
    flags = {"hicache-size": 40}
    found = one(host_pools(case(version, mla(61), flags=flags), device(1000)))
    assert found.bytes == pytest.approx(40e9, rel=1e-5)
    assert found.pinned == (found.bytes if since(version, "0.5.4.post2") else 64 * GIB)


@pytest.mark.parametrize("version", ALL)
def test_v_heads_of_another_size(version: str) -> None:
    """K 192, V 128: the host keeps K twice up to 0.5.13."""
    found = one(host_pools(case(version, mha(10, 8, 192, 128), 4), device(1000)))
    assert found.bytes_per_token == 10 * 2 * 2 * (320 if since(version, "0.5.14") else 384)


DSA = {"kv-cache-dtype": "bfloat16"}


@pytest.mark.parametrize("version", [version for version in ALL if since(version, "0.5.3")])
def test_dsa_and_its_indexer(version: str) -> None:
    found = host_pools(case(version, glm52(), 8, flags=DSA, hardware=B300), device(10000, 64))
    row, index = 78 * 576 * 2, 78 * 132
    if (0, 5, 3) <= key(version) < (0, 5, 5):
        row //= 2  # FP8 is forced on this card
    expected = [("kv", row)]
    if since(version, "0.5.11"):
        expected.append(("indexer", index))
    elif since(version, "0.5.9"):
        expected = [("kv", row + index)]
    assert [(pool.name, pool.bytes_per_token) for pool in found] == expected
    assert {pool.tokens for pool in found} == {found[0].tokens}


@pytest.mark.parametrize(("version", "layers"), [("0.5.20", 78), ("0.5.21", 78), ("0.5.22", 21)])
def test_layers_that_keep_no_index_keys(version: str, layers: int) -> None:
    shape = mla(78, indexer=Indexer(128, tuple(range(21))))
    found = host_pools(case(version, shape, flags=DSA, hardware=B300), device(10000, 64))
    assert found[1].bytes_per_token == layers * 132


EAGLE3 = {"speculative-algorithm": "EAGLE3", "hicache-ratio": 2.0}


@pytest.mark.parametrize("version", ALL)
def test_a_draft_of_its_own_kind(version: str) -> None:
    """None up to 0.5.10, then a pool of its own, most often a page longer; as long since 0.5.23."""
    shape = case(version, mla(61), 8, flags=EAGLE3, draft=mha(1, 64, 128))
    found = host_pools(shape, device(10000, 64))
    assert [pool.name for pool in found] == (
        ["kv", "draft"] if since(version, "0.5.11") else ["kv"]
    )
    if since(version, "0.5.11"):
        longer = 0 if since(version, "0.5.23") else 64
        assert found[1].tokens == found[0].tokens + longer
        assert found[1].bytes_per_token == 8 * 256 * 2 and found[1].like == "kv"


def test_a_ratio_of_floats_may_come_out_too_small() -> None:
    """For some numbers of tokens, n × (m / n) is a trifle less than m in floating point."""
    shape = case("0.5.12", mla(61), flags=EAGLE3, draft=mha(1, 64, 128))
    lengths = set()
    for tokens in range(900, 1100):
        found = host_pools(shape, device(tokens))
        assert found[0].tokens is not None and found[1].tokens is not None
        lengths.add(found[1].tokens - found[0].tokens)
    assert lengths == {0, 1}


@pytest.mark.parametrize("version", ALL)
def test_mtp_layers(version: str) -> None:
    """In a pool of their own in 0.5.11 to 0.5.17, inside the target's rows since 0.5.18."""
    flags = {"speculative-algorithm": "EAGLE"}
    shape = case(version, mla(61), 8, flags=flags, draft=mla(1, nextn=1))
    found = host_pools(shape, device(10000))
    rows = [(pool.name, pool.bytes_per_token) for pool in found]
    if since(version, "0.5.18"):
        assert rows == [("kv", 62 * 1152)]
    elif since(version, "0.5.11"):
        assert rows == [("kv", 61 * 1152), ("draft", 1152)]
    else:
        assert rows == [("kv", 61 * 1152)]


def test_mtp_layers_of_a_dsa_model() -> None:
    shape = case(
        "0.5.23",
        glm52(),
        8,
        flags={**DSA, "speculative-algorithm": "NEXTN"},
        draft=mla(1, indexer=Indexer(128, (0,)), nextn=1),
        hardware=B300,
    )
    found = host_pools(shape, device(10000, 64))
    assert [(p.name, p.bytes_per_token) for p in found] == [
        ("kv", 79 * 1152),
        ("indexer", 79 * 132),
    ]


# -- sliding windows and recurrent state -----------------------------------------------------------

GPT_OSS = Geometry(
    "GptOssForCausalLM",
    36,
    Heads(8, 64, 64),
    full=tuple(range(1, 36, 2)),
    window=tuple(range(0, 36, 2)),
    window_tokens=128,
)


def windowed(version: str, **flags: Any) -> tuple[HostPool, ...]:
    return host_pools(
        case(version, GPT_OSS, 8, flags=flags),
        device(10000, 64, kv=(10000, 4608), swa=(8000, 4608)),
    )


@pytest.mark.parametrize("version", ["0.5.2", "0.5.9", "0.5.11", "0.5.12"])
def test_windows_are_refused_up_to_0_5_12(version: str) -> None:
    found = one(windowed(version))
    assert version in found.refused and "sliding window" in found.refused
    assert found.bytes is None


def test_0_5_12_takes_them_by_a_variable() -> None:
    shape = case("0.5.12", GPT_OSS, 8, env={"SGLANG_ENABLE_UNIFIED_RADIX_TREE": "1"})
    found = host_pools(shape, device(10000, 64, kv=(10000, 4608), swa=(8000, 4608)))
    assert [pool.name for pool in found] == ["kv", "swa"]


@pytest.mark.parametrize("version", ["0.5.13", "0.5.16", "0.5.17", "0.5.20"])
def test_each_pool_has_the_ratio(version: str) -> None:
    kv, swa = windowed(version, **{"hicache-ratio": 2.0})
    assert (kv.tokens, swa.tokens, swa.of) == (20032, 16064, "swa")


def test_size_is_given_to_each_pool_then_split() -> None:
    """Issue 32373: twice the size up to 0.5.16."""
    both = windowed("0.5.16", **{"hicache-size": 90})
    assert [round(pool.bytes / 1e9, 1) for pool in both if pool.bytes] == [90.0, 90.0]
    kv, swa = windowed("0.5.17", **{"hicache-size": 90})
    assert kv.bytes is not None and swa.bytes is not None
    assert round((kv.bytes + swa.bytes) / 1e9, 1) == 90.0
    assert kv.bytes / swa.bytes == pytest.approx(10064 / 8064, rel=1e-4)
    assert kv.auto and kv.least is not None and kv.least < kv.bytes


NEXT = Geometry(
    "Qwen3NextForCausalLM",
    48,
    Heads(2, 256, 256),
    full=tuple(range(3, 48, 4)),
    linear=tuple(n for n in range(48) if n % 4 != 3),
    state=State("gdn", (32, 128, 128), ((8192, 3),)),
)


def recurrent(version: str, **flags: Any) -> tuple[HostPool, ...]:
    row = 36 * (32 * 128 * 128 * 4 + 8192 * 3 * 2)
    return host_pools(
        case(version, NEXT, flags=flags), device(10000, kv=(10000, 24576), mamba=(100, row))
    )


@pytest.mark.parametrize("version", ["0.5.2", "0.5.9"])
def test_recurrent_state_is_refused_up_to_0_5_9(version: str) -> None:
    assert "recurrent state" in one(recurrent(version)).refused


@pytest.mark.parametrize("version", ["0.5.10", "0.5.13", "0.5.16", "0.5.23"])
def test_slots_of_recurrent_state(version: str) -> None:
    kv, state = recurrent(version, **{"hicache-ratio": 2.0})
    assert (kv.bytes_per_token, state.name, state.page) == (24576, "mamba", 1)
    assert state.tokens == 201 and state.bytes == 201 * 77266944


@pytest.mark.parametrize("version", ["0.5.14", "0.5.15.post1"])
def test_recurrent_state_wants_a_layout_that_is_not_the_default(version: str) -> None:
    found = one(recurrent(version, **{"hicache-ratio": 2.0}))
    assert "page_first for" in found.refused and "page_first_direct" in found.refused
    assert len(recurrent(version, **{"hicache-io-backend": "direct"})) == 2


def test_layer_first_is_refused_since_0_5_14() -> None:
    flags = {"hicache-mem-layout": "layer_first"}
    assert one(recurrent("0.5.23", **flags)).refused
    assert len(recurrent("0.5.13", **flags)) == 2


# -- what the engine refuses, and what is not said -------------------------------------------------


@pytest.mark.parametrize("version", ["0.5.9", "0.5.14", "0.5.15", "0.5.23"])
def test_a_host_pool_smaller_than_the_device_pool(version: str) -> None:
    found = one(host_pools(case(version, mla(61), flags={"hicache-ratio": 0.5}), device(1000)))
    assert bool(found.refused) is not since(version, "0.5.15")


def test_no_tier_no_pools() -> None:
    assert (
        host_pools(case("0.5.9", mla(61), flags={"enable-hierarchical-cache": False}), device(1))
        == ()
    )


def test_tokens_that_are_not_known() -> None:
    nothing = Device(None, 0, 0, 1, None, None, None, (), None)
    found = one(host_pools(case("0.5.9", mla(61)), nothing))
    assert (found.tokens, found.bytes, found.pinned) == (None, None, None)
    assert one(host_pools(case("0.5.9", mla(61), flags={"hicache-size": 9}), nothing)).tokens


@pytest.mark.parametrize(
    ("flags", "draft", "words"),
    [
        ({"radix-cache-backend": "x"}, None, "radix-cache-backend"),
        ({"kv-cache-dtype": "fp4_e2m1"}, None, "fp4_e2m1"),
        ({"speculative-algorithm": "DFLASH"}, mha(1, 8, 64), "DFLASH"),
        ({"speculative-algorithm": "EAGLE"}, None, "draft model's config.json"),
        ({**EAGLE3, "enable-multi-layer-eagle": True}, mha(1, 8, 64), "multi-layer"),
    ],
)
def test_what_is_not_sure_is_refused_by_name(
    flags: dict[str, Any], draft: Geometry | None, words: str
) -> None:
    with pytest.raises(NoForecast, match=words):
        host_pools(case("0.5.16", mha(10, 8, 64), flags=flags, draft=draft), device(1000))


# -- sized by what is free -------------------------------------------------------------------------


def automatic(available: int, version: str = "0.5.21", **flags: Any) -> HostPool:
    memory = HostMemory(512 * GIB, available * GIB)
    shape = case(version, mla(61), 8, memory=memory, flags=flags)
    return one(host_pools(shape, device(1000000, kv=(1000000, 70272))))


def test_the_default_ratio_where_there_is_room() -> None:
    found = automatic(2000)
    assert found.auto and found.ratio is None and found.tokens == 2000001
    assert found.least == found.most == found.bytes


def test_what_is_free_bounds_it() -> None:
    """(A − 8 processes − 10 GiB) / 8 × 0.8 × 0.95 a rank."""
    found = automatic(446)
    budget = (446 - 36 - 10) / 8 * 0.8 * 0.95 * GIB
    assert found.bytes == pytest.approx(budget, rel=1e-4)
    assert found.least is not None and found.most is not None
    assert found.least < found.bytes < found.most
    smaller = automatic(446, **{"hicache-host-memory-fraction": 0.4})
    assert smaller.bytes == pytest.approx(budget / 2, rel=1e-4)


def test_before_0_5_21_the_default_ratio_is_blind() -> None:
    assert automatic(100, "0.5.20").tokens == 2000001 and not automatic(100, "0.5.20").auto


def test_nothing_left_is_refused() -> None:
    assert "no host memory" in automatic(30).refused


# -- pipeline stages -------------------------------------------------------------------------------


def test_stages_own_their_layers() -> None:
    flags = {"pp-size": 2, "hicache-ratio": 2.0}
    rows = [
        one(host_pools(case("0.5.16", mla(61), flags=flags), device(1000, stage=stage)))
        for stage in (0, 1)
    ]
    assert [row.bytes_per_token for row in rows] == [30 * 1152, 31 * 1152]
    assert rows[0].tokens == rows[1].tokens == 2001


@pytest.mark.parametrize(("version", "same"), [("0.5.14", False), ("0.5.15", True)])
def test_stages_agree_on_the_fewest_tokens_since_0_5_15(version: str, same: bool) -> None:
    flags = {"pp-size": 2, "hicache-size": 10}
    tokens = [
        one(host_pools(case(version, mla(61), flags=flags), device(1000, stage=stage))).tokens
        for stage in (0, 1)
    ]
    assert (tokens[0] == tokens[1]) is same
    assert tokens[1] == int(10e9 // (31 * 1152)) + 1
