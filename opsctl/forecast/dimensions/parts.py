"""Tensors by groups, in the form of the host's answer to `facts`, each with its own band."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from opsctl.forecast.dimensions import quant
from opsctl.forecast.dimensions.quant import Form, Quant

Doubt = tuple[float, float]  # what its bytes may be, as a share of what is reckoned
SURE: Doubt = (1.0, 1.0)


class Parts:
    """`prefix`: before every name. `mtp`: the layers are a draft's, which the target leaves out."""

    def __init__(self, stored: Quant, doubt: Doubt) -> None:
        self.stored, self.doubt = stored, doubt
        self.groups: list[dict[str, Any]] = []

    def add(
        self,
        name: str,
        shape: Sequence[int],
        size: float,
        dtype: str,
        layers: Sequence[int] | None,
        count: int,
        doubt: Doubt | None = None,
    ) -> None:
        """`size`: bytes of one element as stored; `count`: tensors of this shape."""
        whole = float(count)
        for part in shape:
            whole *= part
        self.groups.append(
            {
                "name": name,
                "dtype": dtype,
                "shape": list(shape),
                "layers": None if not layers else [min(layers), max(layers)],
                "count": count,
                "bytes": int(whole * size),
                "doubt": doubt or self.doubt,
            }
        )

    def plain(
        self, name: str, shape: Sequence[int], layers: Sequence[int] | None = None, **at: Any
    ) -> None:
        """Two bytes an element: what is never quantised."""
        count = at.pop("each", 1) * (len(layers) if layers else 1)
        self.add(name, shape, 2, "BF16", layers, count, at.get("doubt"))

    def matrix(
        self, module: str, out: int, into: int, layers: Sequence[int], each: int = 1
    ) -> None:
        """A linear layer of `module`, below "layers.#.", in each of `layers`, as it is stored."""
        expert = ".experts." in f".{module}."
        by: dict[Form, list[int]] = {}
        one = module.replace("#", "0")
        for layer in layers:
            form = self.stored.form(f"layers.{layer}.{one}", expert)
            by.setdefault(form, []).append(layer)
        for form, held in by.items():
            self._stored(f"model.layers.#.{module}", out, into, form, held, each)

    def _stored(
        self, name: str, out: int, into: int, form: Form, layers: list[int], each: int
    ) -> None:
        count, kind, group = len(layers) * each, form.kind, form.group
        along = -(-into // group) if group else 1
        if kind == quant.PLAIN:
            self.add(f"{name}.weight", [out, into], 2, "BF16", layers, count)
        elif kind in (quant.FP8, quant.INT8):
            dtype = "F8_E4M3" if kind == quant.FP8 else "I8"
            self.add(f"{name}.weight", [out, into], 1, dtype, layers, count)
            rows = -(-out // group) if group else out
            self.add(f"{name}.weight_scale_inv", [rows, along], 4, "F32", layers, count)
        elif kind == quant.MXFP8:
            self.add(f"{name}.weight", [out, into], 1, "F8_E4M3", layers, count)
            self.add(f"{name}.weight_scale", [out, along], 1, "U8", layers, count)
        elif kind == quant.INT4:
            self.add(f"{name}.weight_packed", [out, -(-into // 8)], 4, "I32", layers, count)
            self.add(f"{name}.weight_scale", [out, along], 2, "BF16", layers, count)
        elif kind == quant.GPTQ:
            self.add(f"{name}.qweight", [-(-into // 8), out], 4, "I32", layers, count)
            self.add(f"{name}.scales", [along, out], 2, "F16", layers, count)
            self.add(f"{name}.qzeros", [along, -(-out // 8)], 4, "I32", layers, count)
        else:
            self.add(f"{name}{_OF_FOUR[kind]}", [out, -(-into // 2)], 1, "U8", layers, count)
            self.add(f"{name}.weight_scale", [out, along], 1, "F8_E4M3", layers, count)

    def told(self) -> dict[str, Any]:
        return {
            "count": sum(group["count"] for group in self.groups),
            "bytes": sum(group["bytes"] for group in self.groups),
            "by": self.groups,
        }


# MXFP4's experts are named so that weights.py pads them as their kernels do.
_OF_FOUR = {quant.NVFP4: ".weight", quant.MXFP4: "_blocks"}


def every(layers: int) -> tuple[int, ...]:
    return tuple(range(layers))


def beside(layers: Iterable[int], others: Iterable[int]) -> tuple[int, ...]:
    """Those of `layers` that are not among `others`."""
    left_out = set(others)
    return tuple(layer for layer in layers if layer not in left_out)
