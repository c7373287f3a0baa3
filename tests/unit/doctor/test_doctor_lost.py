"""A lost card is named as itself, whatever nvidia-smi still tells of the others."""

from __future__ import annotations

from typing import Any

import pytest

from opsctl.onhost.doctor import examine, smi
from tests.unit.doctor import hosts
from tests.unit.doctor.test_doctor_faults import HANDLE, found, lost

OLD, NEW = "GPU0000:51:00.0: Unknown Error", "GPU4: 0000:51:00.0: Unknown Error"


def fallen(line: str, others: bool, **changes: Any) -> dict[str, Any]:
    seen = hosts.reference()
    seen["services"][0]["manifest"] = hosts.manifest(**changes)
    lost(HANDLE + line, others)(seen)
    return seen


@pytest.mark.parametrize(
    ("others", "words"),
    [(True, "kimi takes 8 GPUs, 7 of 8 are sound"),
     (False, "kimi takes 8 GPUs, at most 7 of 8 are sound")],
)  # fmt: skip
@pytest.mark.parametrize("line", [OLD, NEW])
def test_the_cards_are_counted_on_the_bus(line: str, others: bool, words: str) -> None:
    told = found(fallen(line, others))
    assert told["gpu-lost"] == ["GPU 4 (0000:51:00.0) is lost"]
    assert told["gpu-too-few"] == [words]


@pytest.mark.parametrize(
    ("line", "where"),
    [(OLD, "the GPU at 0000:51:00.0"), (NEW, "GPU 4 (0000:51:00.0)")],
)
def test_without_the_bus_nothing_is_said_of_cards_that_nobody_told(line: str, where: str) -> None:
    seen = fallen(line, False)
    seen["pci"] = []
    told = {fault: words for fault, words in found(seen).items() if not fault.startswith("?")}
    assert told == {"gpu-lost": [f"{where} is lost"]}


def test_what_the_xml_tells_is_of_the_card_at_that_place_on_the_bus() -> None:
    """It leaves the lost card out, and numbers nothing."""
    seen = fallen(NEW, True)
    answer = seen["commands"]["smi-details"]
    head, *cards = answer["out"].split("  <gpu id=")
    cards[4] = cards[4].replace("<compute_mode>Default", "<compute_mode>Prohibited")
    answer["out"] = "  <gpu id=".join([head, *cards])
    assert found(seen)["compute-prohibited"] == ["GPU 5: compute mode Prohibited"]


@pytest.mark.parametrize("line", [OLD, NEW])
@pytest.mark.parametrize(
    ("gpus", "faults"),
    [([0, 1, 2, 3], set()), ([4, 5, 6, 7], {"gpu-lost", "gpu-too-few"})],
)
def test_it_keeps_only_its_own_service_from_starting(
    line: str, gpus: list[int], faults: set[str]
) -> None:
    for others in (True, False):
        seen = fallen(line, others, gpus=gpus, ranks=["a", "b", "c", "d"])
        told = examine.before(seen, seen["services"][0]["manifest"])
        assert {one.fault for one in told if one.blocks} == faults


def test_a_lost_card_of_unknown_number_is_what_a_service_misses() -> None:
    """The last of eight fell off, and nothing tells its number: not "a GPU that is not there"."""
    seen = hosts.reference()
    line = HANDLE + "GPU0000:81:00.0: Unknown Error\n"
    for name in ("smi-cards", "smi-short"):
        answer = seen["commands"][name]
        answer["out"] = line + "".join(answer["out"].splitlines(True)[:7])
    seen["commands"]["smi"]["out"] = ""
    seen["pci"] = []
    seen["services"][0]["manifest"] = hosts.manifest(gpus=[6, 7], ranks=["a", "b"])
    assert [card["index"] for card in smi.known(seen)] == [-1, *range(7)]
    for told in (examine.judge(seen), examine.before(seen, seen["services"][0]["manifest"])):
        faults = {one.fault: one.detail for one in told if one.fault}
        assert faults == {
            "gpu-lost": "the GPU at 0000:81:00.0 is lost",
            "gpu-too-few": "kimi takes 2 GPUs, 1 is sound",
        }
