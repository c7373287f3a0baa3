"""Names of cards, as nvidia-smi shows them and as people type them."""

import pytest

from opsctl.forecast.device.hardware import capability, unknown_card
from opsctl.forecast.values import Hardware


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", (12, 0)),
        ("RTXPRO6000", (12, 0)),
        ("RTX 6000 Pro", (12, 0)),
        ("rtx 6000 ada", (8, 9)),
        ("NVIDIA RTX 5000 Ada Generation", (8, 9)),
        ("NVIDIA GeForce RTX 5090", (12, 0)),
        ("NVIDIA GeForce RTX 4070 Ti", (8, 9)),
        ("NVIDIA GeForce RTX 3090", (8, 6)),
        ("b300", (10, 3)),
        ("h100", (9, 0)),
        ("NVIDIA GH200 480GB", (9, 0)),
        ("NVIDIA GB200", (10, 0)),
        ("NVIDIA A100-SXM4-80GB", (8, 0)),
        ("NVIDIA RTX A1000", (8, 6)),
        ("NVIDIA L40S", (8, 9)),
        ("NVIDIA GeForce GTX 1080", None),
        ("Quadro RTX 5000", None),
        ("Quadro RTX 4000", None),
        ("banana", None),
        ("", None),
    ],
)
def test_capability_by_name(name: str, found: tuple[int, int] | None) -> None:
    hardware = Hardware(2, (name, name), None, None, "nvidia")
    assert capability(hardware) == found
    assert bool(unknown_card(hardware)) == (found is None)


def test_amd_by_name() -> None:
    assert capability(Hardware(1, ("amd instinct mi300x",), None, None, "amd")) == (9, 4)
