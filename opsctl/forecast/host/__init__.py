"""Host memory of a rank: the pools of the hierarchical cache, by every version's own rule.

Sources: the released packages 0.5.2 to 0.5.23 (mem_cache/memory_pool_host.py, hiradix_cache.py,
hi_mamba_radix_cache.py, registry.py; later pool_host/*, hybrid_cache/hybrid_pool_assembler.py,
hicache_auto_size.py and speculative/base_spec_worker.py). Each file names what it was read from.
"""

from opsctl.forecast.host.answer import host_pools
from opsctl.forecast.host.model import tiered

__all__ = ["host_pools", "tiered"]
