"""What nvidia-smi and sysfs tell of GPUs beside their memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opsctl.onhost import gpufacts

MIB = 1 << 20
UUID = "GPU-00000000-0000-4000-8000-00000000000"
GOOD = (
    f"0, NVIDIA RTX PRO 6000 Blackwell, {UUID}0, 97887, 512, Disabled, 580.95.05, 12.0, "
    "00000000:01:00.0, 5, 16\n"
    f"1, NVIDIA RTX PRO 6000 Blackwell, {UUID}1, 97887, 0, Disabled, 580.95.05, 12.0, "
    "00000000:11:00.0, [N/A], [N/A]\n"
)


def test_the_long_answer() -> None:
    found = gpufacts.parse(GOOD)
    assert found is not None
    one, two = found
    assert (one["index"], one["memory_total"], one["memory_used"]) == (0, 97887 * MIB, 512 * MIB)
    assert (one["capability"], one["bus"]) == ([12, 0], "00000000:01:00.0")
    assert (one["link"], two["link"]) == ({"generation": 5, "width": 16}, None)
    assert {card["state"] for card in found} == {"ok"} and one["vendor"] == "nvidia"


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ('Field "compute_cap" is not a valid field to query.\n', None),
        ("", []),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", []),
        (GOOD.replace("97887, 0", "[Unknown Error], [Unknown Error]"), ["ok", "error"]),
        # what only the long query asks for does not make a GPU sick
        (GOOD.replace("[N/A], [N/A]", "[Unknown Error], [Unknown Error]"), ["ok", "ok"]),
        (
            GOOD.splitlines()[0]
            + "\nUnable to determine the device handle for GPU1: 0000:11:00.0: Unknown Error\n",
            ["ok", "lost"],
        ),
    ],
)
def test_sick_gpus_and_old_drivers(text: str, states: list[str] | None) -> None:
    found = gpufacts.parse(text)
    assert (None if found is None else [card["state"] for card in found]) == states


def device(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text + "\n")
    return folder


def test_node_and_link_of_a_card_from_sysfs(tmp_path: Path) -> None:
    device(
        tmp_path / "bus/pci/devices/0000:11:00.0",
        numa_node="1",
        max_link_speed="32.0 GT/s PCIe",
        max_link_width="16",
        current_link_speed="2.5 GT/s PCIe",
    )
    found = gpufacts.parse(GOOD)
    assert found is not None
    for card in found:
        gpufacts.place(card, str(tmp_path))
    assert [card["node"] for card in found] == [None, 1]
    assert [card["link"] for card in found] == [{"generation": 5, "width": 16}] * 2


@pytest.mark.parametrize("text", ["-1", "", "x"])
def test_a_host_of_one_node_tells_none(tmp_path: Path, text: str) -> None:
    assert gpufacts.node_of(str(device(tmp_path / "d", numa_node=text))) is None


def test_cards_of_amd(tmp_path: Path) -> None:
    for n, bus in ((1, "0000:c1:00.0"), (0, "0000:e1:00.0")):
        folder = device(
            tmp_path / "devices" / bus,
            mem_info_vram_total=str(288 << 30),
            mem_info_vram_used="1024",
            numa_node="0",
            max_link_speed="32.0 GT/s PCIe",
            max_link_width="16",
        )
        card = tmp_path / f"class/drm/card{n}"
        card.mkdir(parents=True)
        (card / "device").symlink_to(folder)
    device(tmp_path / "class/drm/card2-DP-1")
    device(tmp_path / "class/drm/card3")  # a console without memory of its own
    found = gpufacts.amd(str(tmp_path))
    assert [(card["index"], card["bus"]) for card in found] == [
        (0, "0000:c1:00.0"), (1, "0000:e1:00.0"),
    ]  # fmt: skip
    assert {card["vendor"] for card in found} == {"amd"}
    assert found[0]["memory_total"] == 288 << 30
    assert gpufacts.amd(str(tmp_path / "none")) == []


def test_strangers_are_all_processes_but_ours() -> None:
    processes: list[dict[str, Any]] = [{"gpu": 0, "pid": pid, "memory": MIB} for pid in (1, 2, 0)]
    found = gpufacts.strangers(processes, {2: "kimi", 3: "glm"}, "kimi")
    assert [(one["pid"], one["service"]) for one in found] == [(1, ""), (0, "")]
    found = gpufacts.strangers(processes, {2: "glm"}, "kimi")
    assert [(one["pid"], one["service"]) for one in found] == [(1, ""), (2, "glm"), (0, "")]
