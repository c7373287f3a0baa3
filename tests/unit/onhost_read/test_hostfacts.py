"""Real outputs of GPU hosts, the odd ones among them."""

import os

import pytest

from opsctl.onhost import hostfacts

MIB = 1 << 20

MEMINFO = """\
MemTotal:       471020339 kB
MemFree:        10123456 kB
MemAvailable:   82418073 kB
Shmem:            123456 kB
SwapTotal:       8388604 kB
SwapFree:        8388604 kB
HugePages_Total:     536
HugePages_Free:      415
Hugepagesize:       2048 kB
"""


def test_meminfo_of_the_reference_host() -> None:
    found = hostfacts.parse_meminfo(MEMINFO)
    assert found["total"] >> 30 == 449
    assert found["available"] >> 30 == 78
    assert (found["total"] - found["available"]) >> 30 == 370
    assert (found["swap_total"], found["swap_used"]) == (8388604 << 10, 0)
    assert found["hugetlb"] == 536 * 2048 << 10  # an old kernel: no Hugetlb line


def test_hugetlb_of_a_newer_kernel_and_swap_in_use() -> None:
    found = hostfacts.parse_meminfo(
        MEMINFO.replace("SwapFree:        8388604", "SwapFree:        8388600")
        + "Hugetlb:         4194304 kB\n"
    )
    assert found["hugetlb"] == 4 << 30
    assert found["swap_used"] == 4096


@pytest.mark.parametrize("text", ["", "MemTotal: 1 kB\n", "MemAvailable: 1 kB\n"])
def test_a_meminfo_that_lacks_what_counts_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="has no Mem"):
        hostfacts.parse_meminfo(text)


QUERY = """\
0, NVIDIA RTX PRO 6000 Blackwell Server Edition, GPU-aa, 97887, 94292, [N/A], 580.105.08
1, NVIDIA A100-SXM4-40GB, GPU-bb, 40960, 249, Enabled, 580.105.08
2, NVIDIA A40, GPU-cc, 46068, [Unknown Error], Disabled, 580.105.08
3, [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost]
4, ERR!, GPU-dd, 46068, 0, Disabled, 580.105.08
5, NVIDIA GB200, GPU-ee, 189471, 0, Disabled, 580.105.08
"""


def test_only_a_sound_gpu_shows_memory() -> None:
    found = hostfacts.parse_gpus(QUERY)
    assert [gpu["state"] for gpu in found] == ["ok", "mig", "error", "lost", "error", "ok"]
    assert [gpu["memory_total"] // MIB for gpu in found] == [97887, 0, 0, 0, 0, 189471]
    assert [gpu["index"] for gpu in found] == [0, 1, 2, 3, 4, 5]
    assert found[0]["memory_used"] == 94292 * MIB


@pytest.mark.parametrize(
    ("text", "index", "bus"),
    [
        ("GPU0000:CB:00.0: Unknown Error", -1, "0000:cb:00.0"),
        ("GPU3: 0000:CB:00.0: Unknown Error", 3, "0000:cb:00.0"),
        ("GPU3: 00000000:CB:00.0: GPU is lost.  Reboot", 3, "00000000:cb:00.0"),
        ("GPU 0000:CB:00.0: GPU is lost.  Reboot", -1, "0000:cb:00.0"),
        ("GPU 11: 0008:01:00.0: Unknown Error", 11, "0008:01:00.0"),
        ("GPU3: Unknown Error", 3, ""),
    ],
)
def test_a_lost_gpu_is_one_line_before_the_answer(text: str, index: int, bus: str) -> None:
    text = f"Unable to determine the device handle for {text}"
    for (gpu,) in (hostfacts.parse_gpus(text), hostfacts.parse_gpu_table(text)["gpus"]):
        assert (gpu["state"], gpu["index"], gpu["bus"]) == ("lost", index, bus)


@pytest.mark.parametrize(
    ("line", "index"),
    [
        ("GPU3: 0000:CB:00.0", 3),
        ("GPU0000:CB:00.0", 3),  # the others keep their numbers: the gap is its own
        ("GPU0: 0000:CB:00.0", 3),  # 0 is another card's
    ],
)
def test_a_lost_gpu_never_has_the_number_of_a_sound_one(line: str, index: int) -> None:
    sound = [f"{n}, NVIDIA A40, GPU-{n}, 46068, 3, Disabled, 580.105.08\n" for n in range(5)]
    line = f"Unable to determine the device handle for {line}: Unknown Error\n"
    found = hostfacts.parse_gpus(line + "".join(sound[:3] + sound[4:]))
    assert [gpu["index"] for gpu in found] == [0, 1, 2, 3, 4]
    assert [gpu["index"] for gpu in found if gpu["state"] == "lost"] == [index]
    (first, *others) = hostfacts.parse_gpus(line.replace("GPU3", "GPU2") + "".join(sound[:3]))
    assert (first["index"], first["state"], len(others)) == (-1, "lost", 3)  # no gap tells it


@pytest.mark.parametrize(
    "text",
    ["", "No devices were found", "NVIDIA-SMI has failed because it couldn't communicate"],
)
def test_no_gpu_is_no_gpu(text: str) -> None:
    assert hostfacts.parse_gpus(text) == []


GB200 = """\
Mon Apr 20 17:03:28 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 590.48.01              Driver Version: 590.48.01      CUDA Version: 13.1     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA GB200                   On  |   00000008:01:00.0 Off |                    0 |
| N/A   37C    P0            166W / 1200W |       0MiB / 189471MiB |      0%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA GB200                   On  |   00000009:01:00.0 Off |                    0 |
| N/A   37C    P0            157W / 1200W |       0MiB / 189471MiB |      0%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
| Processes:                                                                              |
|    0   N/A  N/A           1234      C   sglang::scheduler_TP0                  94280MiB |
"""
HEADER_610 = """\
Wed Sep 30 21:53:38 2026
| NVIDIA-SMI 610.57.04              KMD Version: 610.57.04     CUDA UMD Version: 13.3     |
"""
ERR = """\
|   4  ERR!                On   | 00000000:83:00.0 Off |                 ERR! |
|ERR!  ERR! ERR!    ERR! / ERR! |      0MiB / 46068MiB |    ERR!      Default |
|                               |                      |                 ERR! |
+-------------------------------+----------------------+----------------------+
|   5  NVIDIA A40          On   | 00000000:84:00.0 Off |                    0 |
|  0%   23C    P8    14W / 300W |      3MiB / 46068MiB |      0%      Default |
"""
UTILISATION = """\
|   0  NVIDIA GeForce ...  Off  | 00000000:01:00.0  On |                  N/A |
| 30%   35C    P8    16W / 350W |   1782MiB / 24576MiB |    ERR!      Default |
"""
MIG = """\
|   0  NVIDIA A100-SXM4-40GB          On  |   00000000:10:1C.0 Off |                   On |
| N/A   40C    P0             43W /  400W |     249MiB /  40960MiB |     N/A      Default |
|                                         |                        |              Enabled |
+-----------------------------------------+------------------------+----------------------+
| MIG devices:                                                                            |
|  0    2   0   0  |             142MiB / 20096MiB    | 56      0 |  4   0    2    0    0 |
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


@pytest.mark.parametrize(
    "text, gpus",
    [
        (GB200, [(0, "NVIDIA GB200", "ok", 189471, 0), (1, "NVIDIA GB200", "ok", 189471, 0)]),
        (ERR, [(4, "ERR!", "error", 0, 0), (5, "NVIDIA A40", "ok", 46068, 3)]),
        (UTILISATION, [(0, "NVIDIA GeForce ...", "ok", 24576, 1782)]),
        (MIG, [(0, "NVIDIA A100-SXM4-40GB", "mig", 0, 0)]),
        (PENDING, [(6, "A100-SXM4-40GB", "ok", 40537, 0), (7, "A100-SXM4-40GB", "mig", 0, 0)]),
        (HEADER_610, []),
    ],
)
def test_tables_for_people(text: str, gpus: list[tuple]) -> None:
    """An ERR! card prints memory as if it were free, and a MIG parent what nobody can allocate."""
    found = [
        (g["index"], g["name"], g["state"], g["memory_total"] // MIB, g["memory_used"] // MIB)
        for g in hostfacts.parse_gpu_table(text)["gpus"]
    ]
    assert found == gpus


@pytest.mark.parametrize(
    "text, driver, cuda, error",
    [
        (GB200, "590.48.01", "13.1", ""),
        (HEADER_610, "610.57.04", "13.3", ""),
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 1",
            "",
            "",
            "Failed to initialize NVML: Driver/library version mismatch",
        ),
    ],
)
def test_headers(text: str, driver: str, cuda: str, error: str) -> None:
    found = hostfacts.parse_gpu_table(text)
    assert (found["driver"], found["cuda"], found["error"]) == (driver, cuda, error)


def test_gpu_processes() -> None:
    gpus = hostfacts.parse_gpus(QUERY)
    text = "GPU-aa, 1234, 94280\nGPU-zz, 99, 10\nGPU-ee, [N/A], [N/A]\nNo running processes found\n"
    assert hostfacts.parse_gpu_processes(text, gpus) == [
        {"gpu": 0, "pid": 1234, "memory": 94280 * MIB},
        {"gpu": -1, "pid": 99, "memory": 10 * MIB},
        {"gpu": 5, "pid": 0, "memory": 0},
    ]


STAT = (
    "4242 (sglang::sched) (x) R 1 4242 4242 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 9 0 777 "
    "1048576 2560 18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0"
)


def test_stat_with_brackets_in_the_name() -> None:
    found = hostfacts.parse_stat(STAT)
    assert found == {
        "comm": "sglang::sched) (x",
        "state": "R",
        "ticks": 200,
        "started": 777,
        "rss_pages": 2560,
    }


@pytest.mark.parametrize("text", ["", "1 (x", "1 (x) R 1 2"])
def test_a_stat_that_is_cut_off_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="stat"):
        hostfacts.parse_stat(text)


def test_status_and_io() -> None:
    text = "Name:\tsglang::schedul\nUid:\t0\t998\t0\t0\nVmRSS:\t  2048 kB\nRssShmem:\t1024 kB\n"
    found = hostfacts.parse_status(text)
    assert found == {
        "name": "sglang::schedul",
        "uid": 998,
        "rss": 2 * MIB,
        "shared": MIB,
        "swap": 0,
    }
    assert hostfacts.parse_io("rchar: 9\nread_bytes: 4096\nwrite_bytes: 1\n") == 4096
    assert hostfacts.parse_io("") == 0


def test_limits() -> None:
    found = hostfacts.parse_limits(
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max open files            1024                 1048576              files     \n"
        "Max locked memory         unlimited            unlimited            bytes     \n"
    )
    assert found == {"Max open files": (1024, 1048576), "Max locked memory": (None, None)}


def test_properties() -> None:
    text = '# x\nNAME="Debian GNU/Linux"\nActiveState=active\nExecStart={ a=b }\nempty=\nnone\n'
    assert hostfacts.parse_properties(text) == {
        "NAME": "Debian GNU/Linux",
        "ActiveState": "active",
        "ExecStart": "{ a=b }",
        "empty": "",
    }


# -- the readers, on this very process -----------------------------------------------------------


def test_readers_see_this_process_and_forgive_one_that_is_gone() -> None:
    here = os.getpid()
    found = hostfacts.samples([here, 2**22 - 1])
    assert list(found) == [here]
    read, rss, ticks = found[here]
    assert read >= 0 and rss > MIB and ticks > 0
    [process] = hostfacts.processes([here, 2**22 - 1])
    assert process["pid"] == here and process["rss"] > MIB
    assert hostfacts.meminfo()["total"] > 0


def test_a_command_that_is_missing_or_hangs_says_nothing() -> None:
    assert hostfacts.run(["no-such-command-here"]) == ""
    assert hostfacts.run(["sleep", "5"], timeout=0.1) == ""


def test_a_failing_command_still_says_why() -> None:
    assert hostfacts.run(["sh", "-c", "echo lost; exit 18"]) == "lost\n"


@pytest.mark.parametrize("group", ["", "relative", "/../../etc"])
def test_a_strange_control_group_has_no_processes(group: str) -> None:
    assert hostfacts.cgroup_pids(group) == []
