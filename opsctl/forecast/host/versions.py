"""From which release on a rule of the host pools holds: the first one that has it.

All read by comparing the packages of two neighbouring releases.
"""

from __future__ import annotations

# torch.empty(pin_memory=True) before: its allocator takes a power of two of bytes for each block.
REGISTERED = (0, 5, 4, 2)  # memory is registered with CUDA after it was taken
PAGE_MORE = (0, 5, 5, 3)  # a page beyond the whole ones, before: cut down to whole pages
DSA_INSIDE = (0, 5, 9)  # the DSA indexer's keys are kept too, inside the rows of the KV pool
MAMBA = (0, 5, 10)  # recurrent state has a host pool; before, the engine refuses
DSA_APART = (0, 5, 11)  # the indexer has a pool of its own
DRAFT = (0, 5, 11)  # the draft model's KV has a host pool
DSA_ROW = (0, 5, 12)  # the KV pool of DSA takes the device's row; 0.5.11 alone takes a plain one
SWA_BY_ENV = (0, 5, 12)  # sliding windows, if SGLANG_ENABLE_UNIFIED_RADIX_TREE is set
SWA = (0, 5, 13)  # sliding windows by themselves
HUGE_PAGES = (0, 5, 13)  # SGLANG_HUGEPAGE_SIZE
V_HEADS = (0, 5, 14)  # K and V heads of two sizes; before, V takes the room of K
PAGE_FIRST = (0, 5, 14)  # hicache-mem-layout page_first is the default, layer_first before
SMALLER = (0, 5, 15)  # a host pool may be smaller than the device pool; before, an assertion
STAGES_AGREE = (0, 5, 15)  # pools by size take the fewest tokens of all pipeline stages
MAMBA_DIRECT = (0, 5, 14)  # recurrent state takes the layout page_first_direct alone …
MAMBA_PAGE_FIRST = (0, 5, 16)  # … page_first too; never again layer_first
SPLIT = (0, 5, 17)  # hicache-size is split between pools; before, each pool takes all of it
PACKED = (0, 5, 18)  # layers of an MTP draft lie in the rows of the target's host pool
BY_RANKS = (0, 5, 19)  # the engine's test divides what is free by the ranks of the host
BUFFER_ONLY = (0, 5, 19)
AUTO = (0, 5, 21)  # without ratio and size the engine sizes by the memory that it finds
CGROUPS = (0, 5, 21)  # the engine's test knows cgroup limits
DSA_LIVE = (0, 5, 22)  # layers without an indexer of their own take no room for it
SIDECAR_EQUAL = (0, 5, 23)  # a draft has exactly the target's tokens; before, often a page more
