"""Bytes of an element of the KV cache."""

from __future__ import annotations

from opsctl.forecast.device.settings import Settings
from opsctl.forecast.values import Geometry, NoForecast

_BYTES = {"fp8_e5m2": 1, "fp8_e4m3": 1, "bf16": 2, "bfloat16": 2}


def element(shape: Geometry, settings: Settings) -> int:
    wanted = str(settings.flags.get("kv-cache-dtype") or "auto")
    if wanted == "auto":
        return _auto(shape, settings)
    found = _BYTES.get(wanted)
    if found is None:
        raise NoForecast(f"kv-cache-dtype {wanted} is not forecast yet")
    return found


def _auto(shape: Geometry, settings: Settings) -> int:
    if shape.kv_fp8 is None:
        raise NoForecast("config.json does not tell the KV cache's dtype: set kv-cache-dtype")
    if shape.kv_fp8:
        return 1
    if settings.flags.get("dtype") in ("float", "float32"):
        return 4
    return shape.element
