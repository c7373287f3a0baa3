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
