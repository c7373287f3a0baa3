"""Driver and GPUs against what an engine version needs."""

from __future__ import annotations

from typing import Any

import pytest

from opsctl.ansible.compatibility import judge


def gpus(count: int, **state: str) -> list[dict[str, Any]]:
    return [{"index": n, "state": state.get(f"g{n}", "ok")} for n in range(count)]


def need(**changes: Any) -> dict[str, Any]:
    base = {"service": "kimi", "version": "0.5.9", "device": "cuda", "gpus": None, "count": 8}
    return base | changes


@pytest.mark.parametrize(
    ("changes", "driver", "there", "said"),
    [
        ({}, "580.95.05", gpus(8), ""),
        ({}, "550.54.14", gpus(8), ""),
        ({}, "550.54.13", gpus(8), "driver 550.54.14 or newer, this host has 550.54.13"),
        ({"version": "0.5.23"}, "575.57.08", gpus(8), "driver 580.65.06 or newer"),
        ({"version": "0.5.23"}, "1000.1", gpus(8), ""),
        ({"version": "9.9.9"}, "1.0", gpus(8), ""),  # nothing is known, nothing is claimed
        ({}, None, [], "nvidia-smi shows none"),
        ({"device": "cpu"}, None, [], ""),
        ({}, "580.95.05", gpus(4), "take 8 GPUs, 4 are there"),
        ({"gpus": [0, 1], "count": 2}, "580.95.05", gpus(8, g5="lost"), ""),
        ({"gpus": [0, 9], "count": 2}, "580.95.05", gpus(8), "GPU 9 is not on this host"),
        ({}, "580.95.05", gpus(8, g3="lost"), "GPU 3 is in state lost"),
        ({}, "580.95.05", gpus(8, g3="mig"), "GPU 3 is in state mig"),
    ],
)
def test_judged(changes: dict[str, Any], driver: Any, there: list[Any], said: str) -> None:
    found = "\n".join(judge(need(**changes), driver, there))
    assert said in found if said else found == ""
