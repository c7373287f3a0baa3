"""What conditions ask of a checkpoint, from the texts beside its weights. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from opsctl.engine.advisories.families import family

# quant_method, quant_algo or the flag quantization → one short name for the weights' format.
_FORMATS = {
    "fp8": "fp8",
    "modelopt_fp8": "fp8",
    "nvfp4": "nvfp4",
    "modelopt_fp4": "nvfp4",
    "mxfp4": "mxfp4",
    "awq": "awq",
    "awq_marlin": "awq",
    "gptq": "gptq",
    "gptq_marlin": "gptq",
    "w4afp8": "w4afp8",
    "w4a8_awq": "w4afp8",
}
_TEXTS = ("text_config", "llm_config", "language_config")


def model(config: str, quant: str = "", folder: str = "", flag: str = "") -> dict[str, Any]:
    """architecture, family, quant, kv_scales, context; only what is told.

    `config`, `quant`: config.json and hf_quant_config.json ("": there is none); `flag`: the flag
    quantization. Text that is no JSON object tells nothing.
    """
    whole = _object(config)
    if not whole:
        return {}
    inner = next((whole[name] for name in _TEXTS if isinstance(whole.get(name), dict)), whole)
    names = whole.get("architectures") or inner.get("architectures") or [""]
    architecture = str(names[0])
    kind = str(inner.get("model_type") or whole.get("model_type") or "")
    scheme = whole.get("quantization_config") or inner.get("quantization_config") or {}
    apart = _object(quant).get("quantization") or {}
    found = {
        "architecture": architecture or None,
        "family": family(architecture, kind, folder),
        "quant": _weights(scheme, apart, flag),
        "kv_scales": _kv(scheme, apart),
        "context": inner.get("max_position_embeddings"),
    }
    return {name: value for name, value in found.items() if value is not None}


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _weights(scheme: Mapping[str, Any], apart: Mapping[str, Any], flag: str) -> str | None:
    """None: quantised in a way that has no short name here."""
    algorithm = str(scheme.get("quant_algo") or apart.get("quant_algo") or "").lower()
    method = str(scheme.get("quant_method") or "").lower()
    for name in (flag.lower(), algorithm, method):
        if name in _FORMATS:
            return _FORMATS[name]
    if method == "compressed-tensors":
        return _groups(scheme)
    return None if method or algorithm or flag else "none"


def _groups(scheme: Mapping[str, Any]) -> str | None:
    """compressed-tensors tells kind and bits of each group of weights; the smallest counts."""
    groups = [group.get("weights") or {} for group in (scheme.get("config_groups") or {}).values()]
    kinds = sorted((int(g.get("num_bits") or 0), str(g.get("type") or "")) for g in groups if g)
    if not kinds:
        return None
    return {(4, "int"): "int4", (4, "float"): "nvfp4", (8, "float"): "fp8", (8, "int"): "int8"}.get(
        kinds[0]
    )


def _kv(scheme: Mapping[str, Any], apart: Mapping[str, Any]) -> bool:
    """Whether the checkpoint says that it was calibrated for a quantised KV cache."""
    told = (scheme.get("kv_cache_scheme"), scheme.get("kv_cache_quant_algo"))
    return any(bool(one) for one in (*told, apart.get("kv_cache_quant_algo")))
