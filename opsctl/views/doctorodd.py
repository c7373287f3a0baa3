"""Odd outputs that hosts really gave, and how doctor reads each; a test reads every one of them.

By the name of the output in the corpus that the test keeps.
"""

from __future__ import annotations

from typing import NamedTuple


class Odd(NamedTuple):
    source: str
    odd: str
    read: str


READ: dict[str, Odd] = {
    "h02": Odd("nvidia-smi", "driver 610 writes `KMD Version` and `CUDA UMD Version`",
               "driver and CUDA as before"),
    "h04": Odd("nvidia-smi", "a line in place of the table: `Unable to determine the device "
               "handle`", "a lost card, named by the bus in the line; never free"),
    "h05": Odd("nvidia-smi", "a card in `ERR!` shows `0MiB / 46068MiB`",
               "in error, without figures; never free"),
    "h07": Odd("nvidia-smi", "the utilisation alone is `ERR!`", "a sound card"),
    "h08": Odd("nvidia-smi", "GB200: PCI domains 8 and 9, the same bus in both; six digits of MiB",
               "two cards, 189471 MiB each"),
    "h12": Odd("nvidia-smi", "MIG: the parent's row shows 40960 MiB, its parts stand below",
               "one card that is split, never free"),
    "h13": Odd("nvidia-smi", "`Disabled*`: MIG waits for a reset", "split until then"),
    "h17": Odd("nvidia-smi", "a row that is cut off before its bus; the fan's share before "
               "the memory", "no card that a release could take; whole, 94292 MiB are in use"),
    "h18": Odd("free", "French words, decimal commas; swap is full",
               "not asked: `/proc/meminfo` tells the same in every language; swap-full"),
    "h23": Odd("free", "another program's columns, nothing of what is available",
               "not asked; no swap is no fault"),
    "h26": Odd("/proc/meminfo", "an old kernel, without `Hugetlb`",
               "pages × their size, whatever is reserved"),
    "h29": Odd("nvidia-smi topo -m", "columns that run together: `NIC8NIC9`, `NODENODE`",
               "links among GPUs from the left, the node from behind the CPUs"),
    "h31": Odd("nvidia-smi topo -m", "five cards, the first on node 1 and the others on node 0",
               "four ranks on GPUs 0 to 3: topology-split, with `gpus` that stand together"),
    "h32": Odd("check_env", "nvcc 13.0 beside a torch for CUDA 12.8", "toolkit-major"),
    "h33": Odd("check_env", "the driver's version once for each card", "one version"),
    "h34": Odd("check_env", "driver 550 (CUDA 12.4), torch for CUDA 12.9", "no fault: one major"),
    "h35": Odd("rocm-smi", "the new table, memory only as a share",
               "temperature, power, partition; memory from sysfs"),
    "h36": Odd("rocm-smi", "the old table", "the same, without a partition"),
    "h37": Odd("rocm-smi", "511 °C and 1072 W on a card of 220 W", "sensor-dead"),
    "h38": Odd("the engine's log", "ranks are started through a script in `/tmp`",
               "tmp-noexec if it cannot be run there"),
    "h39": Odd("nvidia-smi", "two lines on stdout: the library is another than the module",
               "driver-mismatch; no card at all, and none free"),
    "h41": Odd("the kernel's log", "`Memory cgroup out of memory`",
               "oom-group: the host's memory was not full"),
}  # fmt: skip
