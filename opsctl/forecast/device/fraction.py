"""mem-fraction-static: as set, else as the engine chooses by the card. MiB = 2^20 bytes.

Sources: server_args.py `__post_init__` (0.5.2), `_handle_gpu_memory_settings` (0.5.3 to 0.5.18),
`adjust_mem_fraction_for_vlm`; arg_groups/memory_hook.py (0.5.19 on). The card's memory is the
least that nvidia-smi or amd-smi shows.
"""

from __future__ import annotations

from opsctl.forecast.device.backend import base
from opsctl.forecast.device.graphs import prefill_mib
from opsctl.forecast.device.settings import Settings, on, settings
from opsctl.forecast.shape import multimodal
from opsctl.forecast.values import Case, NoForecast

MiB = 1 << 20
_CHUNK_BY_CARD = ((20, 2048, 8, 8), (35, 2048, 24, 80), (60, 4096, 32, 160), (160, 8192, 256, 512))
_LARGEST = (16384, 512, 512)
_AITER_SHARE = 0.85  # of the fraction under aiter, 0.90 in 0.5.4.post1, for contexts above …
_AITER_CONTEXT = 8192


def default_fraction(case: Case) -> float:
    """What the engine takes if mem-fraction-static is not set. Raises NoForecast."""
    set_ = settings(case)
    return _for_aiter(_default(case, set_), case, set_, given=False)


def effective_fraction(case: Case, set_: Settings) -> float:
    """What the sizes are reckoned with: the engine changes what is set, too. Raises NoForecast."""
    given = set_.flags.get("mem-fraction-static")
    if case.shape.indexer is not None and set_.key < (0, 5, 3, 1):
        return 0.8  # 0.5.3 sets this for DSA, whatever the flag says
    found = _default(case, set_) if given is None else float(given)
    return _for_aiter(found, case, set_, given=given is not None)


def _for_aiter(found: float, case: Case, set_: Settings, *, given: bool) -> float:
    return found * aiter_share(case, set_, given=given)


def aiter_share(case: Case, set_: Settings, *, given: bool) -> float:
    """What a fraction is multiplied with for the backend. Raises NoForecast."""
    if case.hardware.vendor != "amd":
        return 1.0
    backend = base(case, set_)
    if backend is None:
        raise NoForecast(
            "which attention backend this card gets is not known: set attention-backend"
        )
    if backend != "aiter" or (
        given and on(set_.env.get("SGLANG_AITER_HONOR_EXPLICIT_MEM_FRACTION"))
    ):
        return 1.0
    context = set_.flags.get("context-length") or case.shape.context
    if context is None:
        raise NoForecast("the model's context is not known, on which aiter's share depends")
    share = 0.90 if set_.key == (0, 5, 4, 1) else _AITER_SHARE
    return share if int(context) > _AITER_CONTEXT else 1.0


def chunk_and_batch(case: Case, set_: Settings) -> tuple[int, int]:
    """(chunked-prefill-size, largest batch of a decode graph), by the card where not set."""
    mib = _card_mib(case) / 1024
    chunk, few, many = _LARGEST
    for below, size, fewer, more in _CHUNK_BY_CARD:
        if mib < below:
            chunk, few, many = size, fewer, more
            break
    if 20 <= mib < 35:
        if set_.key < (0, 5, 4, 1):
            few = 16
        if set_.key >= (0, 5, 20):
            chunk, few, many = 4096, 48, 160
    flags = set_.flags
    given = flags.get("chunked-prefill-size")
    chunk = chunk if given is None else int(given)
    listed = flags.get("cuda-graph-bs-decode") or flags.get("cuda-graph-bs")
    if listed:
        return chunk, max(int(size) for size in listed)
    batch = flags.get("cuda-graph-max-bs-decode") or flags.get("cuda-graph-max-bs")
    if batch is not None:
        return chunk, int(batch)
    most = few if set_.tp < 4 else many
    asked = flags.get("max-running-requests")
    if set_.key >= (0, 5, 22) and asked is not None:
        most = min(most, int(asked))
    return chunk, most


def _card_mib(case: Case) -> int:
    if case.hardware.total is None:
        raise NoForecast("mem-fraction-static is not set, and the card's memory is not known")
    return case.hardware.total // MiB


def _default(case: Case, set_: Settings) -> float:
    mib = _card_mib(case)
    reserved = _first_rule(mib, set_) if set_.key < (0, 5, 3) else _reserved(case, set_, mib)
    found = round((mib - reserved) / mib, 3)
    return found * images_share(case, set_)


def _first_rule(mib: int, set_: Settings) -> float:
    """0.5.2: by classes of cards."""
    ranks = set_.tp * set_.pp
    if mib < 35 * 1024:
        kept = 2.8 + ranks / 10
    elif mib < 90 * 1024:
        kept = 9.5 + ranks / 2
    elif mib < 160 * 1024:
        kept = 12 + ranks / 2
    else:
        kept = 32.0
    if set_.algorithm:
        kept += 6 if set_.algorithm == "STANDALONE" else 2
    if set_.flags.get("enable-dp-attention"):
        kept += 4
    return kept * 1024


def _reserved(case: Case, set_: Settings, mib: int) -> float:
    chunk, batch = chunk_and_batch(case, set_)
    flags, key = set_.flags, set_.key
    tokens = chunk if chunk > 0 else int(flags.get("max-prefill-tokens") or 16384)
    kept = 512 + max(tokens, 2048) * 1.5
    if key < (0, 5, 15) or not _decode_graphs_off(set_):
        kept += batch * 2
    kept += set_.tp * set_.pp / 8 * 1024
    groups = int(flags.get("dp-size") or 1) if flags.get("enable-dp-attention") else set_.groups
    if flags.get("enable-dp-attention") or (key >= (0, 5, 22) and groups > 1):
        kept += batch * groups * 3
        if batch > 300:
            kept += batch * groups * 1.5
    prefill = prefill_mib(case, set_, chunk)
    late = (0, 5, 7) <= key < (0, 5, 8) or key < (0, 5, 7)
    if not late:
        kept += prefill
    if mib > 60 * 1024:
        kept = max(kept, 10 * 1024)
    return kept + (prefill if late else 0) + _on_top(set_)


def _on_top(set_: Settings) -> int:
    """What is kept back beside the floor: for a draft up to 0.5.13, for DeepEP from 0.5.15 on."""
    key = set_.key
    if key < (0, 5, 14):
        if not set_.algorithm or set_.algorithm == "NGRAM":
            return 0
        if set_.algorithm == "STANDALONE":
            return 6 * 1024
        return (2 if key < (0, 5, 10) else 4) * 1024
    deepep = set_.flags.get("moe-a2a-backend") == "deepep"
    return 2 * 1024 if key >= (0, 5, 15) and deepep and not _decode_graphs_off(set_) else 0


def _decode_graphs_off(set_: Settings) -> bool:
    flags = set_.flags
    if flags.get("cuda-graph-backend-decode"):
        return bool(flags["cuda-graph-backend-decode"] == "disabled")
    return bool(flags.get("disable-cuda-graph") or flags.get("disable-decode-cuda-graph"))


def images_share(case: Case, set_: Settings) -> float:
    """What the fraction is multiplied with for a vision tower, by its layers and width."""
    shape, flags = case.shape, set_.flags
    if not multimodal(shape, flags) or flags.get("language-only"):
        return 1.0
    if shape.vision is None:
        return 1.0
    layers, hidden = shape.vision
    weight = layers * hidden**2 / (24 * 1024**2)
    return 0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (weight - 1.0)))
