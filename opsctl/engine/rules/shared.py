"""What the rules and the forecast both decide, written once. Plain values in, plain values out: the
forecast asks ten thousand times a second. Keys are versions as advisories.versions.key makes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Key = tuple[int, ...]
Flags = Mapping[str, Any]

# -- pages of attention backends ------------------------------------------------------------------

# backend → the one page size that it takes
FORCED = {"flashmla": 64, "cutlass_mla": 128, "hpc_ops": 64}
# backend → page sizes that it takes; any other becomes 64
TAKES = {"trtllm_mla": (32, 64), "cutedsl_mla": (32, 64), "trtllm_mha": (16, 32, 64)}
# Where only decode-attention-backend and attention-backend count, not the one of prefill.
DECODING = frozenset({"flashmla", "cutlass_mla", "trtllm_mla"})
_LARGER_TRTLLM = (0, 5, 17)  # trtllm_mha takes pages of 128 too from here on
_FA4, _FA4_CARDS, _FA4_USED = (0, 5, 4), (0, 5, 10), (0, 5, 15)


def pages(backend: str, key: Key) -> tuple[int, ...]:
    """The page sizes that a backend takes in this release; () for any."""
    if backend in FORCED:
        return (FORCED[backend],)
    if backend == "trtllm_mha" and key >= _LARGER_TRTLLM:
        return (*TAKES[backend], 128)
    return TAKES.get(backend, ())


def page(backend: str, wanted: int, key: Key) -> int:
    """What the backend makes of a page size."""
    taken = pages(backend, key)
    if not taken or wanted in taken:
        return wanted
    return taken[0] if len(taken) == 1 else 64


def fa4_asked(flags: Flags, key: Key, *chosen: str | None) -> bool:
    """Whether fa4 would have pages of 128 on a model without MLA and the right card: to 0.5.14 only
    where the flag of prefill names it, later wherever it is used, unless drafts branch. `chosen`:
    backends that the engine chose by itself, where that is known."""
    used: tuple[Any, ...] = (flags.get("prefill-attention-backend"),)
    if key >= _FA4_USED:
        used += (flags.get("attention-backend"), flags.get("decode-attention-backend"), *chosen)
        if (flags.get("speculative-eagle-topk") or 0) > 1:
            return False
    return "fa4" in used and key >= _FA4


def fa4_on(major: int | None, key: Key) -> bool | None:
    """Whether a card of this compute capability has them; None: the card is not known."""
    if key < _FA4_CARDS:
        return True
    return None if major is None else major == 10


# -- parallelism ----------------------------------------------------------------------------------


def groups(flags: Flags) -> int:
    """Groups of DP attention; 1 without it."""
    size = flags.get("attn-dp-size")
    if size not in (None, 1):
        return int(size)
    return int(flags.get("dp-size") or 1) if flags.get("enable-dp-attention") else 1


# -- speculation ----------------------------------------------------------------------------------

# What the engine runs at once under speculation if max-running-requests is not set.
RUNNING = 48
_NGRAM_TOKENS = 12


def algorithm(flags: Flags) -> str:
    """In capitals, "" for none: NEXTN is EAGLE with the layers that the checkpoint carries."""
    found = str(flags.get("speculative-algorithm") or "").upper()
    return "EAGLE" if found == "NEXTN" else found


def ngram_tokens(flags: Flags) -> int:
    """Tokens that NGRAM verifies: as many as its window holds, unless set."""
    given = flags.get("speculative-num-draft-tokens")
    if given is not None:
        return int(given)
    return int(flags.get("speculative-ngram-max-match-window-size") or _NGRAM_TOKENS)


# -- the prefix cache -----------------------------------------------------------------------------


def deterministic_without_radix(flags: Flags, key: Key, base: str | None) -> bool:
    """Deterministic inference keeps no prefixes with flashinfer (up to 0.5.3.post1 with triton
    neither). `base`: attention-backend, chosen or set."""
    if not flags.get("enable-deterministic-inference") or key < (0, 5, 3):
        return False
    if (0, 5, 3, 2) <= key < (0, 5, 4):
        return False
    return base in (("flashinfer",) if key >= (0, 5, 4) else ("flashinfer", "triton"))
