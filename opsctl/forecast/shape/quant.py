"""Whether kv-cache-dtype "auto" becomes FP8 for a checkpoint, by release.

Source: configure_kv_cache_dtype (model_executor/model_runner.py to 0.5.15, mem_cache/
kv_cache_dtype.py from 0.5.16): the loaded model's quantisation says kv_cache_quant_algo FP8, and
each quantisation class has its own rule for what that is (layers/quantization/*).
"""

from __future__ import annotations

import json
from typing import Any

from opsctl.forecast.shape.config import Config, Fields
from opsctl.forecast.shape.registry import NEWEST, parsed

_FP8_NAMES = {"FP8", "FLOAT8"}
# Methods whose class carries no kv_cache_quant_algo in any release: "auto" is the model's dtype.
_NEVER = {
    "awq",
    "awq_marlin",
    "bitsandbytes",
    "gptq",
    "gptq_marlin",
    "marlin",
    "moe_wna16",
    "mxfp4",
    "quark",
    "w4afp8",
    "w8a8_fp8",
    "w8a8_int8",
    "auto-round",
    "gguf",
}


def kv_fp8(config: Config, quant_text: str | None, version: str | None) -> bool | None:
    """None where it cannot be told: then kv-cache-dtype has to be set."""
    release = parsed(version or NEWEST)
    if release < (0, 5, 3):
        return False  # the runner of 0.5.2 does not look at the checkpoint
    found = config.top.get("quantization_config") or config.text.get("quantization_config")
    if not isinstance(found, dict):
        found = config.top.get("compression_config")
    if isinstance(found, dict):
        return _of_config(found, quant_text, release)
    return _of_file(quant_text) if quant_text else False


def _of_config(found: Fields, quant_text: str | None, release: tuple[int, ...]) -> bool | None:
    method = str(found.get("quant_method") or "").lower()
    algorithm = str(found.get("quant_algo") or "").upper()
    if method.startswith("modelopt") or (not method and algorithm):
        return _modelopt(found, algorithm, quant_text, release)
    if method in ("fp8", "mxfp8"):
        return release >= (0, 5, 18) and _is_fp8(found.get("kv_cache_quant_algo"))
    if method in ("compressed-tensors", "compressed_tensors"):
        return release >= (0, 5, 19) and _static_tensor(found.get("kv_cache_scheme"))
    return False if method in _NEVER else None


def _modelopt(
    found: Fields, algorithm: str, quant_text: str | None, release: tuple[int, ...]
) -> bool | None:
    """ModelOpt's own section in config.json; what it lacks may stand in a file of its own."""
    scheme = found.get("kv_cache_scheme")
    if isinstance(scheme, dict):
        return _eight_bits(scheme)
    if isinstance(scheme, str) and "FP4" in algorithm:
        return scheme.strip().upper() in _FP8_NAMES
    if found.get("kv_cache_quant_algo") is not None:
        if release < (0, 5, 16) and _is_fp8(found["kv_cache_quant_algo"]):
            return None  # these releases read the field in some of their paths only
        return _is_fp8(found["kv_cache_quant_algo"])
    if algorithm == "MIXED_PRECISION" or not algorithm:
        return _of_file(quant_text) if quant_text else None
    return False


def _static_tensor(scheme: Any) -> bool:
    """The one scheme that CompressedTensorsKVCacheMethod takes: static, symmetric, one scale."""
    if not isinstance(scheme, dict) or not _eight_bits(scheme):
        return False
    whole = scheme.get("strategy") == "tensor" and bool(scheme.get("symmetric", True))
    return whole and not scheme.get("dynamic", False)


def _eight_bits(scheme: Fields) -> bool:
    return scheme.get("type") == "float" and scheme.get("num_bits") == 8


def _of_file(quant_text: str) -> bool | None:
    """hf_quant_config.json."""
    try:
        whole: Any = json.loads(quant_text)
        section = whole.get("quantization", whole)
        return _is_fp8(section.get("kv_cache_quant_algo"))
    except (ValueError, AttributeError):
        return None


def _is_fp8(value: Any) -> bool:
    return isinstance(value, str) and value.upper() == "FP8"
