"""Which attention backends a case runs on: they decide the page, and on AMD the memory fraction."""

from __future__ import annotations

from opsctl.forecast.device.hardware import capability
from opsctl.forecast.device.settings import Settings
from opsctl.forecast.values import Case, Heads


def attention(case: Case, set_: Settings) -> tuple[str, str] | None:
    """(prefill, decode), as set, else as the engine chooses; None where that is not known."""
    flags = set_.flags
    base = flags.get("attention-backend")
    prefill = flags.get("prefill-attention-backend") or base
    decode = flags.get("decode-attention-backend") or base
    if prefill and decode:
        return str(prefill), str(decode)
    fallback = _default(case, set_)
    if fallback is None:
        return None
    return str(prefill or fallback), str(decode or fallback)


def _default(case: Case, set_: Settings) -> str | None:
    if case.flags.get("device") == "cpu":
        return "cpu"
    if case.shape.indexer is not None:
        return "dsa"
    found = capability(case.hardware)
    if found is None or case.hardware.vendor != "nvidia" or found[0] == 10:
        return None
    grouped = isinstance(case.shape.attention, Heads)
    if found[0] == 9:
        return "fa3"
    return "flashinfer" if grouped else "triton"
