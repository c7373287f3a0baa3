"""Tokens of a host pool against figures of public logs, as gate and forecast count them."""

import pytest

from opsctl.onhost.expect import host_pool_tokens

# version, device tokens, ratio, size (GB), page, bytes per token → host tokens
HOSTS = [
    ("0.5.9", 159277, 4.0, None, 1, 70272, 637109),
    ("0.5.9", 159277, 2.0, None, 1, 70272, 318555),
    ("0.5.17", 100000, None, 100, 64, 131072, 762944),  # Qwen3-32B fp8, public log
    ("0.5.4", 1000, 2.0, None, 64, 1, 1984),  # floored up to 0.5.4
    ("0.5.5.post3", 1000, 2.0, None, 64, 1, 2048),
    ("0.5.5.post3", 1024, 2.0, None, 64, 1, 2112),  # a page more even where it divides
    ("0.5.15", 1547424, 2.0, None, 1, 114688, 3094849),  # Qwen3-1.7B, public log
]


@pytest.mark.parametrize("version, device, ratio, size, page, cell, tokens", HOSTS)
def test_host_pool_tokens(
    version: str,
    device: int,
    ratio: float | None,
    size: float | None,
    page: int,
    cell: int,
    tokens: int,
) -> None:
    found = host_pool_tokens(
        device, bytes_per_token=cell, ratio=ratio, size=size, page=page, version=version
    )
    assert found == tokens


@pytest.mark.parametrize(
    "tokens, cell, size",
    [
        (637109, 70272, 44.77),
        (318555, 70272, 22.39),
        (762944, 131072, 100.0),
        (3094849, 114688, 354.94),
    ],
)
def test_host_pools_are_printed_in_decimal_gb(tokens: int, cell: int, size: float) -> None:
    assert abs(tokens * cell / 1e9 - size) <= 0.005


@pytest.mark.parametrize("ratio, size", [(None, None), (0, None), (-1.0, None), (None, 0)])
def test_a_pool_without_a_rule_is_an_error(ratio: float | None, size: float | None) -> None:
    with pytest.raises(ValueError, match="ratio or a size"):
        host_pool_tokens(1, bytes_per_token=1, ratio=ratio, size=size, version="0.5.9")
