"""Outputs that people showed (corpus.jsonl, as they stand there): each is read right by what
`doctor` and the roles read it with. A lost, ERR! or split card is never a free one.

Where people showed something that is not asked for, the test takes its figures to where they are
read: `free` is made of /proc/meminfo, and a report of an environment of what nvcc and torch say.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from opsctl.ansible.target import engine
from opsctl.onhost import hostfacts
from opsctl.onhost.doctor import examine, folders, gpu, look, smi, texts
from opsctl.views.doctorodd import READ
from tests.unit.doctor import hosts
from tests.unit.doctor.test_doctor_faults import found, log, says

RAW: dict[str, str] = {}
for _line in (Path(__file__).parent / "corpus.jsonl").read_text("utf-8").splitlines():
    _told = json.loads(_line)
    RAW[_told["id"]] = _told["output"]


def test_the_page_tells_of_every_output() -> None:
    assert list(READ) == list(RAW)
    here = Path(__file__).read_text("utf-8")
    assert [name for name in RAW if f'"{name}"' not in here] == []


def shown(text: str) -> dict[str, Any]:
    """A host whose only answer is the table that nvidia-smi prints for people."""
    seen = hosts.bare()
    says("smi", text)(seen)
    return seen


@pytest.mark.parametrize(
    ("name", "states", "free"),
    [
        ("h02", [], []),  # a header alone
        ("h04", ["lost"], []),
        ("h05", ["error", "ok"], [5]),  # it prints 0MiB / 46068MiB, as if it were free
        ("h07", ["ok"], [0]),  # the utilisation alone is ERR!
        ("h08", ["ok", "ok"], [0, 1]),  # PCI domains above 0, both on bus 01
        ("h12", ["mig"], []),  # no process can allocate the parent's 40960MiB
        ("h13", ["ok", "mig"], [6]),  # "Disabled*" waits for a reset
        ("h17", [], []),  # cut off before the bus: nobody knows whether it is split
        ("h39", [], []),  # an empty table is no free card
    ],
)
def test_tables_of_nvidia_smi(name: str, states: list[str], free: list[int]) -> None:
    cards = smi.known(shown(RAW[name]))
    assert [card["state"] for card in cards] == states
    assert gpu.free(cards) == free
    for card in cards:
        assert card["state"] == "ok" or card["memory_total"] == card["memory_used"] == 0


def test_a_lost_card_above_a_good_table_is_lost() -> None:
    cards = smi.known(shown(RAW["h04"] + "\n" + RAW["h08"]))
    assert [card["state"] for card in cards] == ["lost", "ok", "ok"]
    assert [card["index"] for card in cards] == [-1, 0, 1]  # it tells its place on the bus only
    assert cards[0]["bus"] == "0000:cb:00.0"


def test_figures_of_the_tables() -> None:
    whole = RAW["h17"].replace("Off | ...", "Off | 00000000:01:00.0 Off |                  N/A |")
    full, gb200 = smi.known(shown(whole))[0], gpu.known(shown(RAW["h08"]))[1]
    assert full["memory_used"] >> 20 == 94292  # 54 % is the fan
    assert gb200["memory_total"] >> 20 == 189471


@pytest.mark.parametrize(
    ("name", "version", "cuda"), [("h02", "610.57.04", "13.3"), ("h08", "590.48.01", "13.1")]
)
def test_headers_before_and_since_610(name: str, version: str, cuda: str) -> None:
    told = hostfacts.parse_gpu_table(RAW[name])
    assert (told["driver"], told["cuda"]) == (version, cuda)


def meminfo(text: str) -> str:
    """/proc/meminfo of the host on which `free` printed this, in whatever language: its first
    column of figures is the total, its last of the first row what is available, its last row the
    swap (total, used, free)."""
    units = {"": 1, "Ki": 1, "Mi": 1 << 10, "Gi": 1 << 20}  # in KiB
    rows = []
    for line in text.splitlines()[1:]:
        cells = re.findall(r"([\d.,]+)([KMG]i)?(?=\s|$)", line.partition(":")[2])
        rows.append([int(float(n.replace(",", ".")) * units[u]) for n, u in cells])
    memory, swap = rows[0], rows[-1]
    free = memory[2]
    available = memory[5] if len(memory) > 5 else free
    told = {"MemTotal": memory[0], "MemFree": free, "MemAvailable": available,
            "SwapTotal": swap[0], "SwapFree": swap[2]}  # fmt: skip
    return "".join(f"{name}: {value} kB\n" for name, value in told.items())


@pytest.mark.parametrize(
    ("name", "total", "available", "swap_used", "faults"),
    [
        ("h18", 31 << 20, int(6.1 * (1 << 20)), 976 << 10, {"swap-full"}),  # 124 KiB are left
        ("h23", 2819652, 65184, 0, set()),
    ],
)
def test_memory_as_free_showed_it(
    name: str, total: int, available: int, swap_used: int, faults: set[str]
) -> None:
    seen = hosts.bare()
    seen["files"]["/proc/meminfo"] = meminfo(RAW[name])
    told = hostfacts.parse_meminfo(seen["files"]["/proc/meminfo"])
    assert (told["total"] >> 10, told["available"] >> 10) == (total, available)
    assert abs((told["swap_used"] >> 10) - swap_used) <= 124
    assert set(found(seen)) == faults


def test_huge_pages_of_an_old_kernel() -> None:
    """536 pages of 2 MiB, 415 free: idle, whatever is reserved for later."""
    rest = "".join(line for line in hosts.MEMINFO.splitlines(True) if "uge" not in line)
    told = hostfacts.parse_meminfo(rest + RAW["h26"])
    assert "Hugetlb:" not in RAW["h26"] and told["hugetlb"] == 536 * 2048 << 10


def test_columns_that_run_together() -> None:
    told = texts.topology(RAW["h29"])
    assert told is not None and told["node"] == {0: 0, 4: 1}
    assert set(told["links"].values()) == {"NV18"}


def test_four_cards_of_one_node_and_a_stray_one_before_them() -> None:
    told = texts.topology(RAW["h31"])
    assert told is not None
    assert told["node"] == {0: 1, 1: 0, 2: 0, 3: 0, 4: 0}
    assert (told["links"][(1, 2)], told["links"][(0, 3)]) == ("PHB", "SYS")
    seen = hosts.reference()
    seen["services"][0]["manifest"] = hosts.manifest(ranks=["TP0", "TP1", "TP2", "TP3"])
    says("smi-topology", RAW["h31"])(seen)
    says("smi-p2p", "")(seen)
    split = [one for one in examine.judge(seen) if one.fault == "topology-split"]
    assert [one.detail for one in split] == ["kimi on GPUs 0, 1, 2, 3 crosses nodes [0, 1]"]
    assert split[0].mend.endswith("kimi: [1, 2, 3, 4]")


def environment(text: str) -> dict[str, Any]:
    """The host on which this report of an environment was made, of its driver, nvcc and torch."""
    seen = hosts.reference()
    nvcc = re.search(r"^NVCC: (.*)$", text, re.MULTILINE)
    loaded = re.search(r"^CUDA Driver Version: (\S+)$", text, re.MULTILINE)
    torch = re.search(r"^PyTorch: \S+\+cu(\d+)(\d)$", text, re.MULTILINE)
    assert nvcc and loaded and torch
    module = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {loaded[1]}  Tue Oct 15\n"
    seen["files"]["/proc/driver/nvidia/version"] = module
    says("module-version", loaded[1])(seen)
    says("nvcc", nvcc[1])(seen)
    built = f"cuda: Optional[str] = '{torch[1]}.{torch[2]}'\n"
    seen["services"][0]["engine"]["torch"] = built
    return seen


@pytest.mark.parametrize(
    ("name", "faults"),
    [
        ("h32", {"toolkit-major": ["nvcc 13.0, torch is built for CUDA 12.8"]}),
        ("h34", {}),  # driver 550 (CUDA 12.4) runs a torch for CUDA 12.9: the same major
    ],
)
def test_driver_toolkit_and_torch(name: str, faults: dict[str, list[str]]) -> None:
    assert found(environment(RAW[name])) == faults


def test_one_line_of_the_driver_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """One version, however many cards told it; and none of it "key: value"."""
    lines = RAW["h33"].replace("CUDA Driver Version: ", "").partition("sglang:")[0]
    assert lines.split() == ["550.90.07"] * 4
    monkeypatch.setattr(engine.Path, "read_text", lambda *_, **__: (_ for _ in ()).throw(OSError()))
    monkeypatch.setattr(engine, "run", lambda _: lines)
    assert engine.driver() == "550.90.07"
    seen = hosts.bare()
    rows = [f"{n}, NVIDIA A100, GPU-{n}, 81920, 0, Disabled, {told}\n"
            for n, told in enumerate(lines.split())]  # fmt: skip
    says("smi-short", "".join(rows))(seen)
    assert smi.version(seen) == "550.90.07"


@pytest.mark.parametrize(
    ("name", "temperature", "power", "cap", "partition"),
    [
        ("h35", 42.0, 135.0, 750.0, "SPX"),
        ("h36", 35.0, 150.0, 500.0, ""),
        ("h37", 511.0, 1072.741824, 220.0, ""),
    ],
)
def test_tables_of_rocm_smi(
    name: str, temperature: float, power: float, cap: float, partition: str
) -> None:
    assert texts.rocm(RAW[name]) == [
        {"index": 0, "temperature": temperature, "power": power, "cap": cap,
         "partition": partition}
    ]  # fmt: skip
    seen = hosts.amd()
    says("rocm", RAW[name])(seen)
    assert set(found(seen)) == ({"sensor-dead"} if name == "h37" else set())


def test_ranks_are_started_through_a_script_in_tmp() -> None:
    script = re.search(r"-> (\S+\.sh)", RAW["h38"])
    assert script and str(Path(script[1]).parent) in look.DISKS
    seen = hosts.reference()
    seen["disks"][str(Path(script[1]).parent)]["noexec"] = True
    assert set(found(seen)) == {"tmp-noexec"}


def test_a_driver_that_was_upgraded_under_the_kernels_module() -> None:
    seen = hosts.reference()
    for name in ("smi", "smi-cards", "smi-short", "smi-processes", "smi-details"):
        says(name, RAW["h39"])(seen)
    told = found(seen)
    assert "the library is 550.144" in told["driver-mismatch"][0]
    assert smi.known(seen) == []


def test_a_kill_within_a_group_is_not_one_of_the_host() -> None:
    seen = hosts.reference()
    log(RAW["h41"])(seen)
    assert set(found(seen)) == {"oom-group"}


def test_pins_of_a_real_wheel() -> None:
    """Lines of sglang 0.5.2 and 0.5.23: extras, markers and extras in brackets."""
    assert folders.pins(
        [
            'sgl-kernel==0.3.9.post2; extra == "srt"',
            "flashinfer_python[cu13]==0.7.2",
            "torch==2.14.1",
            "cuda-python>=13.0",
        ]
    ) == [("flashinfer-python", "==", "0.7.2"), ("torch", "==", "2.14.1")]
