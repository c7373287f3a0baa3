"""Who is on the GPUs that a release will take, by which words."""

from __future__ import annotations

from typing import Any

import pytest

from opsctl.onhost.occupied import cards, problems, span

GIB = 1 << 30


def manifest(ranks: int = 8, gpus: list[int] | None = None, **flags: Any) -> dict[str, Any]:
    return {"ranks": [f"TP{n}" for n in range(ranks)], "gpus": gpus, "flags": flags}


@pytest.mark.parametrize(
    ("release", "wanted"),
    [
        (manifest(8), list(range(8))),
        (manifest(2), [0, 1]),
        (manifest(2, [4, 6]), [4, 6]),
        (manifest(2, **{"base-gpu-id": 2, "gpu-id-step": 3}), [2, 5]),
        (manifest(2, [1, 3, 5, 7], **{"base-gpu-id": 2}), [5, 7]),
        (manifest(4, [1, 3]), [1, 3]),  # too few: told elsewhere
        (manifest(1, device="cpu"), []),
        ({}, []),  # release 0
    ],
)
def test_each_rank_takes_a_card(release: dict[str, Any], wanted: list[int]) -> None:
    assert cards(release) == wanted


def held(gpu: int, pid: int, size: float) -> dict[str, Any]:
    return {"gpu": gpu, "pid": pid, "memory": int(size * GIB)}


GLM, OWN = "sglang-glm.service", "sglang-kimi.service"
OWNERS = {100: GLM, 101: GLM, 200: OWN}
TOLD: list[tuple[dict[str, Any], list[dict[str, Any]], tuple[str, ...], list[str]]] = [
    (manifest(4), [], (), []),
    (manifest(4), [held(0, 200, 90)], (OWN,), []),
    (
        manifest(4),
        [held(n, 100, 71.5) for n in range(4)],
        (OWN,),
        [
            "71.50 GiB of each of GPU 0-3 are held by service glm: give each service `gpus` of its "
            "own, or stop that one on the host: systemctl stop sglang-glm.service"
        ],
    ),
    (
        manifest(4),
        [held(1, 100, 2), held(1, 101, 3), held(2, 101, 1), held(4, 101, 9)],
        (OWN,),
        [
            "1.00 GiB to 5.00 GiB of each of GPU 1-2 are held by service glm: give each service "
            "`gpus` of its own, or stop that one on the host: systemctl stop sglang-glm.service"
        ],
    ),
    (manifest(4, [4, 5, 6, 7]), [held(n, 100, 71.5) for n in range(4)], (OWN,), []),
    (manifest(4), [held(n, 100, 71.5) for n in range(4)], (OWN, GLM), []),  # leaves before it
    (manifest(4), [held(0, 100, 0.5)], (OWN,), []),  # a context alone
    (manifest(4), [held(3, 999, 1)], (OWN,), ["1.00 GiB of GPU 3 are held by PID 999"]),
    (
        manifest(4),
        [held(n, 998, 70) for n in range(3)] + [held(-1, 999, 2)],  # a slice of some GPU
        (OWN,),
        [
            "70.00 GiB of each of GPU 0-2 are held by PID 998",
            "2.00 GiB of a GPU are held by PID 999",
        ],
    ),
    (manifest(4, [0, 1, 2, 4]), [held(3, 999, 1)], (OWN,), []),
    (manifest(4), [held(0, 0, 1)], (OWN,), []),  # nvidia-smi hides PIDs inside a container
    (manifest(1, device="cpu"), [held(0, 100, 1)], (OWN,), []),
]


@pytest.mark.parametrize(("release", "there", "leaving", "wanted"), TOLD)
def test_who_is_in_the_way(
    release: dict[str, Any],
    there: list[dict[str, Any]],
    leaving: tuple[str, ...],
    wanted: list[str],
) -> None:
    assert problems(release, there, OWNERS, leaving) == wanted


@pytest.mark.parametrize(
    ("indices", "words"), [([3], "3"), ([0, 1, 2, 5], "0-2, 5"), ([4, 2], "2, 4"), ([], "")]
)
def test_cards_are_told_in_runs(indices: list[int], words: str) -> None:
    assert span(indices) == words
