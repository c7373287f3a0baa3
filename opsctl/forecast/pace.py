"""How fast and how long, where nothing was measured here: bands that hold all public figures found.

tests/unit/forecast/start/ has those figures with their sources; what no figure bears is called a
judgement. GB = 10^9 bytes.
"""

from __future__ import annotations

from typing import NamedTuple


class Band(NamedTuple):
    """Of a rate, `least` is the slowest; of a duration, `least` is the shortest."""

    likely: float
    least: float
    most: float


# Bytes of a model's files that reach the GPUs in a second, all ranks of a host together. The ranks
# map the same files, so that they come from the disk once.
CACHED = Band(6.0e9, 2.0e9, 14e9)  # from the page cache: 5.3 to 10.6 GB/s in public logs
READ: dict[str, Band] = {
    "memory": CACHED,
    "nvme": Band(2.0e9, 0.6e9, 12e9),  # 0.7 to 3.3 GB/s in public logs, 10.6 for the disk alone
    "ssd": Band(0.5e9, 0.2e9, 4e9),  # one SATA disk, up to an array: a judgement
    "rotational": Band(0.15e9, 0.05e9, 0.8e9),  # one disk, up to an array: a judgement
    "virtual": Band(0.8e9, 0.1e9, 6e9),  # a judgement
    "network": Band(0.8e9, 0.2e9, 12e9),  # 0.25 GB/s for mapped files, 2.0 without mapping
}
UNKNOWN = Band(1.0e9, 0.2e9, 12e9)

# Host pools: pages are touched, then pinned. One rank's rate, and that of all ranks together.
# 16.3 GB/s with 8 ranks, 15.1 to 18.9 with 4 in public logs; 2.1 for a single process, and 0.97
# where the driver pins for one process after the other.
PIN_RANK = Band(4.0e9, 0.9e9, 7e9)
PIN_HOST = Band(15.0e9, 0.9e9, 30e9)

# Seconds.
LAUNCH = Band(25, 3, 90)  # processes and imports: 3 to 31 s seen, more from a slow disk
DIST_ONE = Band(1, 0, 10)
DIST = Band(13, 1, 120)  # 13 s for 8 ranks in a public log
KV = Band(2, 0, 20)
GRAPHS = Band(20, 1, 180)  # 1 to 21 s in public logs with compiled kernels
DRAFT_GRAPHS = Band(5, 0, 60)
WARMUP = Band(8, 1, 120)  # 3 to 19 s in real logs

# What is compiled at a first start, and is in the caches afterwards. DeepGEMM itself announces 10
# to 20 minutes; other kernels took 1 to 13. One public report has graphs that took 1,334 s.
COMPILING = Band(240, 0, 1800)

# A draft of one layer whose files were not seen.
DRAFT = Band(4, 0, 60)

# What another start of the same kind may differ by: a judgement.
MEASURED = 0.25
