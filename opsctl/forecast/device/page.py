"""Tokens of a page of the KV cache."""

from __future__ import annotations

from opsctl.forecast.values import Case, Heads, NoForecast

# Attention backends whose page size is forced, or is not 1 if unset.
_FORCED = {"flashmla": 64, "cutlass_mla": 128}
_ALLOWED = {"trtllm_mla": ((32, 64), 64), "trtllm_mha": ((16, 32, 64), 64)}
_PLAIN = frozenset({"triton", "flashinfer", "fa3", "torch_native", "flex_attention"})
_BACKENDS = ("attention-backend", "prefill-attention-backend", "decode-attention-backend")
# Names of cards where an unset backend never resolves to one of the above: no SM 10.x.
_PLAIN_CARDS = (
    *("RTX PRO", "RTX A", "RTX 6000", "RTX 5", "RTX 4", "RTX 3", "H100", "H200", "H20", "H800"),
    *("A100", "A800", "A40", "A30", "A10", "L40", "L20", "L4"),
)


def page(case: Case) -> int:
    """Raises NoForecast where the engine's own choice of a backend is not sure."""
    flags = case.flags
    wanted = int(flags["page-size"]) if flags.get("page-size") else None
    chosen = [str(flags[name]) for name in _BACKENDS if flags.get(name)]
    for backend in chosen:
        if backend in _FORCED:
            return _FORCED[backend]
        if backend in _ALLOWED:
            allowed, fallback = _ALLOWED[backend]
            return wanted if wanted in allowed else fallback
        if backend == "fa4" and isinstance(case.shape.attention, Heads):
            return 128
        if backend not in _PLAIN and wanted is None:
            raise NoForecast(f"the page size of attention-backend {backend} is not known here")
    if chosen or flags.get("device") == "cpu" or _plain(case.hardware.cards):
        return wanted or 1
    if wanted in (32, 64):
        return wanted  # every backend that an unset choice may resolve to takes these
    raise NoForecast(
        "which attention backend this card gets is not known here: set page-size and "
        "attention-backend"
    )


def _plain(cards: tuple[str, ...]) -> bool:
    return bool(cards) and all(any(name in card for name in _PLAIN_CARDS) for card in cards)
