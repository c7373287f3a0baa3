"""The KV cache's dtype, by flag, checkpoint and card.

Sources: model_executor/model_runner.py (to 0.5.15), mem_cache/kv_cache_dtype.py (0.5.16 on)
`configure_kv_cache_dtype`; for DSA server_args.py, arg_groups/overrides.py
`_dsa_kv_cache_dtype_default`.
"""

from __future__ import annotations

from opsctl.forecast.device.hardware import capability
from opsctl.forecast.device.settings import Settings
from opsctl.forecast.values import Case, Geometry, NoForecast

FP4, FP8, MXFP8, BF16 = "fp4_e2m1", "fp8_e4m3", "mxfp8", "bfloat16"
_ONE_BYTE = frozenset({"fp8_e5m2", FP8})
# Bytes that torch counts for an element: two FP4 values share one, which cell.py knows.
_SIZE = {"fp8_e5m2": 1, FP8: 1, FP4: 1, MXFP8: 1, "bf16": 2, BF16: 2}


def kv_dtype(case: Case, set_: Settings) -> tuple[str, int]:
    """(name, bytes of an element). Raises NoForecast."""
    wanted = str(set_.flags.get("kv-cache-dtype") or "auto")
    if case.shape.indexer is not None:
        return _sparse(wanted, case, set_)
    return _plain(wanted, case.shape, set_)


def draft_dtype(case: Case, draft: Geometry, set_: Settings) -> tuple[str, int]:
    """Of the draft's own pool: the flag holds for it too; `auto` asks its own checkpoint."""
    given = set_.flags.get("speculative-draft-kv-cache-dtype")
    wanted = str(given or set_.flags.get("kv-cache-dtype") or "auto")
    if draft.indexer is not None:
        return _sparse(wanted, case, set_)
    return _plain(wanted, draft, set_)


def _plain(wanted: str, shape: Geometry, set_: Settings) -> tuple[str, int]:
    if wanted == "auto":
        if set_.key >= (0, 5, 3):
            if shape.kv_fp8 is None:
                raise NoForecast(
                    "config.json does not tell the KV cache's dtype: set kv-cache-dtype"
                )
            if shape.kv_fp8:
                return FP8, 1
        if set_.flags.get("dtype") in ("float", "float32"):
            return "float32", 4
        return "auto", shape.element
    size = _SIZE.get(wanted)
    if size is None or (wanted == MXFP8 and set_.key < (0, 5, 16)):
        raise NoForecast(f"kv-cache-dtype {wanted} is not forecast yet")
    return wanted, size


def _sparse(wanted: str, case: Case, set_: Settings) -> tuple[str, int]:
    """DSA: FP8 on SM 10 and above, else bf16; 0.5.3 to 0.5.4 force FP8 there."""
    found = capability(case.hardware)
    forced = (0, 5, 3) <= set_.key < (0, 5, 5)
    if wanted == "auto" or forced:
        if found is None:
            raise NoForecast(
                "the KV dtype of a DSA model depends on the card, which is not known here: "
                "set kv-cache-dtype"
            )
        if found[0] >= 10:
            return FP8, 1
        wanted = BF16 if wanted == "auto" else wanted
    if wanted in ("bf16", BF16):
        return BF16, 2
    if wanted == FP8:
        return FP8, 1
    raise NoForecast(f"DSA models take kv-cache-dtype bfloat16 or fp8_e4m3, not {wanted}")
