"""Damage what nvidia-smi says, and no card becomes free by it: a card that is split, lost or in
ERR! stays so, and one that is not told whole is none that a release could take."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsctl.onhost.doctor import examine, gpu, smi
from tests.unit.doctor import hosts

NAME, TOTAL, DRIVER = "NVIDIA A100-SXM4-80GB", 81920, hosts.DRIVER
TRUTH = st.lists(
    st.sampled_from(["ok", "ok", "ok", "mig", "error", "lost"]), min_size=1, max_size=8
)
BROKEN = ("ERR!", "[GPU is lost]", "[Unknown Error]", "Unknown Error", "[Not Found]", "",
          "[GPU requires reset]")  # fmt: skip
GARBAGE = st.sampled_from(
    ["WARNING: infoROM is corrupted at gpu 0000:11:00.0", "0", "1, 2, 3", "|   0  ", ",,,,,,,,,,",
     "\x00\ufffd", "Wed Sep 30 21:53:38 2026", "No devices were found", "+-----+"]
)  # fmt: skip
# What tells of a card that no release could take any more; which of them, hangs on what is left.
TOLD = {"driver-smi-broken", "gpu-lost", "gpu-error", "gpu-off-bus", "gpu-too-few", "gpu-none"}
QUERIES, TABLE = ("smi-cards", "smi-short"), "smi"


def row(index: int, state: str, *, whole: bool) -> str:
    if state == "lost":
        # odd cards as an older driver tells them: by the bus alone
        which = f"GPU{hosts.bus(index)}" if index % 2 else f"GPU{index}: {hosts.bus(index)}"
        return f"Unable to determine the device handle for {which}: Unknown Error\n"
    name = "ERR!" if state == "error" else NAME
    mig = "Enabled" if state == "mig" else "Disabled"
    plain = f"{index}, {name}, GPU-{index:04d}, {TOTAL}, 0, {mig}, {DRIVER}"
    return f"{plain}, 8.0, {hosts.bus(index)}, 4, 16\n" if whole else f"{plain}\n"


def drawn(index: int, state: str) -> str:
    if state == "lost":
        return row(index, state, whole=True)
    name = "ERR!" if state == "error" else NAME
    ecc, mig = ("On", "Enabled") if state == "mig" else ("0", "Disabled")
    sensors = (
        "ERR!  ERR! ERR!    ERR! / ERR! " if state == "error" else "N/A   31C    P0    60W / 400W"
    )
    return (
        f"|   {index}  {name:<24} On   | {hosts.bus(index)} Off | {ecc:>20} |\n"
        f"|{sensors:<31}|      0MiB / {TOTAL}MiB |      0%      Default |\n"
        f"|{'':31}|{'':22}| {mig:>20} |\n+{'-' * 31}+{'-' * 22}+{'-' * 22}+\n"
    )


def host(truth: list[str]) -> dict[str, Any]:
    """All three answers tell the same cards."""
    seen = hosts.reference()
    seen["services"][0]["manifest"]["ranks"] = [f"TP{i}" for i in range(len(truth))]
    seen["pci"] = seen["pci"][: len(truth)]
    head = f"| NVIDIA-SMI {DRIVER}    Driver Version: {DRIVER}    CUDA Version: 13.0     |\n"
    answers = {
        "smi-cards": "".join(row(i, s, whole=True) for i, s in enumerate(truth)),
        "smi-short": "".join(row(i, s, whole=False) for i, s in enumerate(truth)),
        "smi": head + "".join(drawn(i, s) for i, s in enumerate(truth)),
    }
    for name, text in answers.items():
        seen["commands"][name]["out"] = text
    for name in ("smi-details", "smi-topology", "smi-p2p", "smi-processes"):
        seen["commands"][name]["out"] = ""
    return seen


@st.composite
def damaged(draw: Any, text: str, words: Any, separator: str) -> str:
    """One to three harms: a cell, a cut line, a lost line, a cut text, garbage around a line."""
    for _ in range(draw(st.integers(1, 3))):
        lines = text.splitlines()
        at = draw(st.integers(0, max(len(lines) - 1, 0)))
        kind = draw(st.sampled_from(["cell", "cut", "drop", "end", "before", "after"]))
        if kind == "end":
            text = text[: draw(st.integers(0, len(text)))]
            continue
        if kind in ("before", "after") or not lines:
            lines.insert(at + (kind == "after"), draw(GARBAGE))
        elif kind == "drop":
            del lines[at]
        elif kind == "cut":
            lines[at] = lines[at][: draw(st.integers(0, len(lines[at])))]
        else:
            cells = lines[at].split(separator)
            # Which card a row is of, no other cell tells: an index that is another's stays out.
            cells[draw(st.integers(0, len(cells) - 1))] = f" {draw(words)} "
            lines[at] = separator.join(cells)
        text = "\n".join(lines) + "\n"
    return text


def free(seen: dict[str, Any]) -> set[int]:
    return set(gpu.free(smi.known(copy.deepcopy(seen))))


def lost(seen: dict[str, Any]) -> list[int]:
    cards = smi.known(copy.deepcopy(seen))
    assert len({card["index"] for card in cards}) == len(cards)
    return [card["index"] for card in cards if card["state"] == "lost"]


def faults(seen: dict[str, Any]) -> set[str]:
    return {one.fault for one in examine.judge(copy.deepcopy(seen)) if one.fault}


@given(TRUTH, st.data())
@settings(max_examples=300, deadline=None)
def test_one_damaged_answer_among_three(truth: list[str], data: Any) -> None:
    seen = host(truth)
    good = free(seen)
    assert good == {i for i, s in enumerate(truth) if s == "ok"}
    assert lost(seen) == [i for i, s in enumerate(truth) if s == "lost"]
    name = data.draw(st.sampled_from((*QUERIES, TABLE)))
    words = st.sampled_from((*BROKEN, "[N/A]"))  # [N/A] is a card without MIG; the others know
    answer = seen["commands"][name]
    answer["out"] = data.draw(damaged(answer["out"], words, "|" if name == TABLE else ","))
    assert free(seen) <= good, answer["out"]
    if free(seen) < good:
        assert faults(seen) & TOLD, answer["out"]


@pytest.mark.parametrize("name", [*QUERIES, TABLE])
@given(TRUTH, st.data())
@settings(max_examples=250, deadline=None)
def test_a_damaged_answer_that_is_the_only_one(name: str, truth: list[str], data: Any) -> None:
    seen = host(truth)
    for other in (*QUERIES, TABLE):
        if other != name:
            seen["commands"][other]["out"] = ""
    if name == "smi-short":
        seen["commands"]["smi-cards"]["out"] = 'Field "compute_cap" is not a valid field to query.'
    good, answer = free(seen), seen["commands"][name]
    assert good == {i for i, s in enumerate(truth) if s == "ok"}
    damage = damaged(answer["out"], st.sampled_from(BROKEN), "|" if name == TABLE else ",")
    answer["out"] = data.draw(damage)
    assert free(seen) <= good, answer["out"]
    if free(seen) < good:
        assert faults(seen) & TOLD, answer["out"]
