"""What nvidia-smi and sysfs tell of GPUs beside their memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opsctl.onhost import gpubus, gpufacts

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


BUSES = [f"0000:{n}1:00.0" for n in range(4)]
LINE = "Unable to determine the device handle for GPU0000:21:00.0: Unknown Error\n"


def rows(*indices: int) -> str:
    return "".join(
        f"{n}, A, {UUID}{n}, 97887, 0, Disabled, 580.95.05, 12.0, 0000{BUSES[n]}, 5, 16\n"
        for n in indices
    )


@pytest.mark.parametrize(
    ("text", "buses", "found"),
    [
        # nvidia-smi ended at the lost card: the bus tells its number, and that there are others
        (LINE, BUSES, [(0, "untold"), (1, "untold"), (2, "lost"), (3, "untold")]),
        (LINE + rows(0, 1, 3), BUSES, [(0, "ok"), (1, "ok"), (2, "lost"), (3, "ok")]),
        (LINE, [], [(-1, "lost")]),  # a container without the bus
        (LINE, BUSES[:2], [(-1, "lost")]),  # the bus knows nothing of it
        # one card belongs to another driver: places on the bus are no numbers of nvidia-smi's
        (
            LINE + rows(1).replace("1, A", "0, A", 1),
            BUSES,
            [(-1, "lost"), (0, "ok")],
        ),
        (rows(0, 1), BUSES, [(0, "ok"), (1, "ok")]),  # none is lost: what lacks is told elsewhere
    ],
)
def test_the_bus_tells_what_nvidia_smi_did_not_come_to(
    text: str, buses: list[str], found: list[tuple[int, str]]
) -> None:
    cards = gpubus.completed(gpufacts.parse(text) or [], buses)
    assert [(card["index"], card["state"]) for card in cards] == found
    assert all(card["memory_total"] == 0 for card in cards if card["state"] != "ok")


def test_nvidias_cards_on_the_bus(tmp_path: Path) -> None:
    folder = tmp_path / "bus/pci/devices"
    device(folder / "0000:11:00.0", vendor="0x10de", **{"class": "0x030200"})
    device(folder / "0000:01:00.0", vendor="0x10de", **{"class": "0x030000"})
    device(folder / "0000:02:00.0", vendor="0x10de", **{"class": "0x068000"})  # an NVSwitch
    device(folder / "0000:03:00.0", vendor="0x8086", **{"class": "0x030000"})
    found = gpubus.pci(str(tmp_path))
    assert gpubus.on_bus(found) == ["0000:01:00.0", "0000:11:00.0"]
    assert len(found) == 3 and gpubus.pci(str(tmp_path / "none")) == []
