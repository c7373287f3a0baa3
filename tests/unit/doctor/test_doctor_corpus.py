"""Outputs that people showed, odd ones among them: each is read right by what `doctor` reads it
with. A lost, ERR! or split card is never a free one.

Only the decisive lines are kept. `free` is never read: its words and its commas follow the locale
("Échange", "24,5Gi"), and its columns the distribution; /proc/meminfo tells the same everywhere.
"""

from __future__ import annotations

from typing import Any

import pytest

from opsctl.onhost.doctor import examine, gpu, service, texts
from tests.unit.doctor import hosts
from tests.unit.doctor.test_doctor_faults import found, log, says

HEADER_610 = """\
Wed Sep 30 21:53:38 2026
| NVIDIA-SMI 610.57.04              KMD Version: 610.57.04     CUDA UMD Version: 13.3     |
"""
ERR = """\
|   4  ERR!                On   | 00000000:83:00.0 Off |                 ERR! |
|ERR!  ERR! ERR!    ERR! / ERR! |      0MiB / 46068MiB |    ERR!      Default |
|                               |                      |                 ERR! |
|   5  NVIDIA A40          On   | 00000000:84:00.0 Off |                    0 |
|  0%   23C    P8    14W / 300W |      3MiB / 46068MiB |      0%      Default |
"""
UTILISATION = """\
|   0  NVIDIA GeForce ...  Off  | 00000000:01:00.0  On |                  N/A |
| 30%   35C    P8    16W / 350W |   1782MiB / 24576MiB |    ERR!      Default |
"""
GB200 = """\
|   0  NVIDIA GB200                   On  |   00000008:01:00.0 Off |                    0 |
| N/A   37C    P0            166W / 1200W |       0MiB / 189471MiB |      0%      Default |
|                                         |                        |             Disabled |
|   1  NVIDIA GB200                   On  |   00000009:01:00.0 Off |                    0 |
| N/A   37C    P0            157W / 1200W |       0MiB / 189471MiB |      0%      Default |
|                                         |                        |             Disabled |
"""
UNEVEN = """\
|   0  NVIDIA A100-SXM4-40GB          On  |   00000000:10:1C.0 Off |                   On |
| N/A   40C    P0             43W /  400W |     249MiB /  40960MiB |     N/A      Default |
|                                         |                        |              Enabled |
| MIG devices:                                                                            |
| GPU  GI  CI  MIG |              Shared Memory-Usage |        Vol|        Shared         |
|  0    2   0   0  |             142MiB / 20096MiB    | 56      0 |  4   0    2    0    0 |
|  0    3   0   1  |              71MiB /  9984MiB    | 14      0 |  2   0    1    0    0 |
"""
PENDING = """\
|   6  A100-SXM4-40GB      On   | 00000000:B7:00.0 Off |                    0 |
| N/A   32C    P0    55W / 400W |      0MiB / 40537MiB |      0%      Default |
|                               |                      |             Disabled |
|   7  A100-SXM4-40GB      On   | 00000000:BD:00.0 Off |                   On |
| N/A   34C    P0    69W / 400W |      0MiB / 40537MiB |     N/A      Default |
|                               |                      |            Disabled* |
| MIG devices:                                                                |
|  No MIG devices found                                                       |
"""
FULL = """\
|   0  NVIDIA RTX PRO 6000 Blac...    Off | 00000000:01:00.0 Off |                  N/A |
| 54%   80C    P1            300W /  300W |   94292MiB /  97887MiB |    100%      Default |
"""
LOST = "Unable to determine the device handle for GPU0000:CB:00.0: Unknown Error"


def shown(text: str) -> dict[str, Any]:
    """A host whose only answer is the table that nvidia-smi prints for people."""
    seen = hosts.bare()
    says("smi", text)(seen)
    return seen


@pytest.mark.parametrize(
    ("name", "text", "states", "free"),
    [
        ("h04", LOST, ["lost"], []),
        ("h05", ERR, ["error", "ok"], [5]),  # it prints 0MiB / 46068MiB, as if it were free
        ("h07", UTILISATION, ["ok"], [0]),  # the utilisation alone is ERR!
        ("h08", GB200, ["ok", "ok"], [0, 1]),  # PCI domains above 0, both on bus 01
        ("h12", UNEVEN, ["mig"], []),  # no process can allocate the parent's 40960MiB
        ("h13", PENDING, ["ok", "mig"], [6]),  # "Disabled*" waits for a reset
        ("h17", FULL, ["ok"], [0]),
    ],
)
def test_tables_of_nvidia_smi(name: str, text: str, states: list[str], free: list[int]) -> None:
    cards = gpu.known(shown(text))
    assert [card["state"] for card in cards] == states
    assert gpu.free(cards) == free
    for card in cards:
        assert card["state"] == "ok" or card["memory_total"] == card["memory_used"] == 0


def test_a_lost_card_above_a_good_table_is_lost() -> None:
    cards = gpu.known(shown(f"{LOST}\n{GB200}"))
    assert [card["state"] for card in cards] == ["lost", "ok", "ok"]


def test_figures_of_the_tables() -> None:
    full, gb200 = gpu.known(shown(FULL))[0], gpu.known(shown(GB200))[1]
    assert full["memory_used"] >> 20 == 94292  # 54 % is the fan
    assert gb200["memory_total"] >> 20 == 189471


def test_h02_the_header_since_610() -> None:
    from opsctl.onhost.hostfacts import parse_gpu_table

    told = parse_gpu_table(HEADER_610)
    assert (told["driver"], told["cuda"]) == ("610.57.04", "13.3")


def test_h18_swap_that_is_full() -> None:
    """A workstation of 31 GiB: swap 976 MiB, 124 KiB of it free."""
    seen = hosts.bare()
    seen["files"]["/proc/meminfo"] = (
        "MemTotal: 32505856 kB\nMemAvailable: 6396313 kB\nSwapTotal: 999424 kB\nSwapFree: 124 kB\n"
    )
    assert set(found(seen)) == {"swap-full"}


def test_h23_a_host_without_swap_whose_kernel_tells_no_more() -> None:
    seen = hosts.bare()
    seen["files"]["/proc/meminfo"] = (
        "MemTotal: 2819652 kB\nMemFree: 65184 kB\nMemAvailable: 65184 kB\n"
        "SwapTotal: 0 kB\nSwapFree: 0 kB\n"
    )
    assert found(seen) == {}


def test_h26_huge_pages_of_an_old_kernel() -> None:
    """536 pages of 2 MiB, 415 free: idle, whatever is reserved for later (HugePages_Rsvd 290)."""
    from opsctl.onhost.hostfacts import parse_meminfo

    text = hosts.MEMINFO.replace("HugePages_Total:       0", "HugePages_Total:     536")
    text = text.replace("Hugetlb:               0 kB\n", "")
    assert parse_meminfo(text)["hugetlb"] == 536 * 2048 << 10


GLUED = (
    "\tGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\tNIC0\tNIC7\tNIC8NIC9\tCPU Affinity\t"
    "NUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\tPXB\tNODE\tSYS\t0-55,112-167\t0\t\tN/A\n"
    "GPU4\tNV18\tNV18\tNV18\tNV18\t X \tNV18\tNV18\tNV18\tSYS\tPXB\tNODENODE\t56-111,168-223\t1"
    "\t\tN/A\n"
)
REVERSED = """\
        GPU0    GPU1    GPU2    GPU3    GPU4    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      SYS     SYS     SYS     SYS     8-15,24-31      1               N/A
GPU1    SYS      X      PHB     NODE    NODE    0-7,16-23       0               N/A
GPU2    SYS     PHB      X      NODE    NODE    0-7,16-23       0               N/A
GPU3    SYS     NODE    NODE     X      PHB     0-7,16-23       0               N/A
GPU4    SYS     NODE    NODE    PHB      X      0-7,16-23       0               N/A
"""


def test_h29_columns_that_run_together() -> None:
    told = texts.topology(GLUED)
    assert told is not None and told["node"] == {0: 0, 4: 1}
    assert set(told["links"].values()) == {"NV18"}


def test_h31_four_cards_of_one_node_and_a_stray_one_before_them() -> None:
    told = texts.topology(REVERSED)
    assert told is not None
    assert told["node"] == {0: 1, 1: 0, 2: 0, 3: 0, 4: 0}
    assert (told["links"][(1, 2)], told["links"][(0, 3)]) == ("PHB", "SYS")
    seen = hosts.reference()
    seen["services"][0]["manifest"] = hosts.manifest(ranks=["TP0", "TP1", "TP2", "TP3"])
    says("smi-topology", REVERSED)(seen)
    says("smi-p2p", "")(seen)
    split = [one for one in examine.judge(seen) if one.fault == "topology-split"]
    assert [one.detail for one in split] == ["kimi on GPUs 0, 1, 2, 3 crosses nodes [0, 1]"]
    assert split[0].mend.endswith("kimi: [1, 2, 3, 4]")


def test_h32_a_toolkit_of_another_major_than_torchs() -> None:
    seen = hosts.reference()
    says("nvcc", "Cuda compilation tools, release 13.0, V13.0.88")(seen)
    assert found(seen) == {"toolkit-major": ["nvcc 13.0, torch is built for CUDA 12.8"]}


def test_h33_one_line_of_the_driver_a_card() -> None:
    """550.90.07 once for each of eight cards: one version, and none of it "key: value"."""
    from opsctl.onhost.doctor import driver

    seen = hosts.bare()
    rows = "".join(f"{n}, NVIDIA A100, GPU-{n}, 81920, 0, Disabled, 550.90.07\n" for n in range(8))
    says("smi-short", rows)(seen)
    assert driver.version(seen) == "550.90.07"


def test_h34_an_older_driver_of_the_same_major_is_enough() -> None:
    """550 (CUDA 12.4) runs a torch for CUDA 12.9."""
    seen = hosts.reference()
    seen["files"]["/proc/driver/nvidia/version"] = (
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.127.08  Tue Oct 15\n"
    )
    says("module-version", "550.127.08")(seen)
    says("nvcc", "Cuda compilation tools, release 12.9, V12.9.86")(seen)
    seen["services"][0]["engine"]["torch"] = "cuda: Optional[str] = '12.9'\n"
    assert found(seen) == {}


NEW = (
    "0       1     0x74a1,   58197  42.0°C      135.0W    NPS1, SPX, 0        122Mhz  900Mhz  "
    "0%   auto  750.0W  0%     0%    "
)
OLD = "0    35.0c           150W    800Mhz  1600Mhz  0%   manual  500W    0%     0%    "
NONSENSE = "0    511.0c  1072.741824W  N/A   N/A   100.0%  auto  220.0W    2%   100%  "


@pytest.mark.parametrize(
    ("line", "temperature", "power", "cap", "partition"),
    [
        (NEW, 42.0, 135.0, 750.0, "SPX"),
        (OLD, 35.0, 150.0, 500.0, ""),
        (NONSENSE, 511.0, 1072.741824, 220.0, ""),
    ],
    ids=["h35", "h36", "h37"],
)
def test_tables_of_rocm_smi(
    line: str, temperature: float, power: float, cap: float, partition: str
) -> None:
    assert texts.rocm(f"GPU  Temp ...\n{line}\n") == [
        {"index": 0, "temperature": temperature, "power": power, "cap": cap,
         "partition": partition}
    ]  # fmt: skip


def test_h37_sensors_that_tell_nonsense() -> None:
    seen = hosts.amd()
    says("rocm", NONSENSE)(seen)
    assert set(found(seen)) == {"sensor-dead"}


def test_h38_ranks_are_started_through_a_script_in_tmp() -> None:
    seen = hosts.reference()
    seen["disks"]["/tmp"]["noexec"] = True
    assert set(found(seen)) == {"tmp-noexec"}


def test_h39_a_driver_that_was_upgraded_under_the_kernels_module() -> None:
    seen = hosts.reference()
    text = (
        "Failed to initialize NVML: Driver/library version mismatch\n"
        "NVML library version: 550.144\n"
    )
    for name in ("smi", "smi-cards", "smi-short", "smi-processes", "smi-details"):
        says(name, text)(seen)
    told = found(seen)
    assert "the library is 550.144" in told["driver-mismatch"][0]
    assert gpu.known(seen) == []  # an empty table is no free card


def test_h41_a_kill_within_a_group_is_not_one_of_the_host() -> None:
    seen = hosts.reference()
    log("Memory cgroup out of memory: Killed process 4808 (sglang::schedul)")(seen)
    assert set(found(seen)) == {"oom-group"}


def test_pins_of_a_real_wheel() -> None:
    """Lines of sglang 0.5.2 and 0.5.23: extras, markers and extras in brackets."""
    assert service.pins(
        [
            'sgl-kernel==0.3.9.post2; extra == "srt"',
            "flashinfer_python[cu13]==0.7.2",
            "torch==2.14.1",
            "cuda-python>=13.0",
        ]
    ) == [("flashinfer-python", "==", "0.7.2"), ("torch", "==", "2.14.1")]
