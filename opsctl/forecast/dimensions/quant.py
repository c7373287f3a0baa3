"""How a checkpoint stores a matrix, and which of its matrices it stores so.

Sources: layers/quantization/{fp8,modelopt_quant,awq,gptq,mxfp4}.py and compressed_tensors/ of
0.5.9 and 0.5.23 (create_weights of each method; what their lists of exceptions match).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from opsctl.forecast.shape.config import Config, Fields
from opsctl.forecast.values import NoForecast

# Stored forms of a matrix of `out` × `into` elements.
PLAIN, FP8, INT8, INT4, GPTQ, NVFP4, MXFP4, MXFP8 = (
    "plain", "fp8", "int8", "int4", "gptq", "nvfp4", "mxfp4", "mxfp8",
)  # fmt: skip
_EXCEPTIONS = ("ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules")


@dataclass(frozen=True, slots=True)
class Form:
    """`group`: elements that share a scale; 0: a whole row or matrix."""

    kind: str
    group: int = 0


@dataclass(frozen=True)
class Quant:
    """`rules`: the first whose names match gives the form; no names: all linear layers.
    `experts_only`: only the experts are stored so."""

    rules: tuple[tuple[Form, tuple[str, ...]], ...] = ()
    exceptions: tuple[str, ...] = ()
    experts_only: bool = False
    _seen: dict[str, Form] = field(default_factory=dict, compare=False)

    def form(self, name: str, expert: bool = False) -> Form:
        """Of a linear layer, by its name from "layers." on."""
        found = self._seen.get(name)
        if found is None:
            found = self._seen[name] = self._form(name, expert)
        return found

    def _form(self, name: str, expert: bool) -> Form:
        if (self.experts_only and not expert) or any(_holds(e, name) for e in self.exceptions):
            return Form(PLAIN)
        for form, names in self.rules:
            if not names or any(_holds(one, name) for one in names):
                return form
        return Form(PLAIN)


def quant(config: Config, quant_text: str | None) -> Quant:
    """Raises NoForecast for a way of storing that is not known here."""
    found = config.top.get("quantization_config") or config.text.get("quantization_config")
    found = found if isinstance(found, dict) else config.top.get("compression_config")
    if not isinstance(found, dict):
        found = _of_file(quant_text)
    if not found:
        return Quant()
    method = str(found.get("quant_method") or "").lower().replace("_", "-")
    algorithm = str(found.get("quant_algo") or "").upper()
    if method == "mxfp4":
        return Quant(((Form(MXFP4, 32), ()),), experts_only=True)
    return Quant(tuple(_rules(found, method, algorithm)), _exceptions(found))


def _of_file(quant_text: str | None) -> Fields:
    """ModelOpt's hf_quant_config.json."""
    try:
        whole: Any = json.loads(quant_text) if quant_text else {}
    except ValueError:
        raise NoForecast("hf_quant_config.json is no JSON") from None
    section = whole.get("quantization", whole) if isinstance(whole, dict) else {}
    return section if isinstance(section, dict) else {}


def _rules(found: Fields, method: str, algorithm: str) -> Iterator[tuple[Form, tuple[str, ...]]]:
    groups = found.get("config_groups")
    if isinstance(groups, dict) and groups:
        yield from (_group(group, str(found.get("format") or "")) for group in groups.values())
    elif method in ("fp8", "mxfp8"):
        block = found.get("weight_block_size")
        if method == "mxfp8":
            yield Form(MXFP8, 32), ()
        else:
            yield Form(FP8, int(block[0]) if isinstance(block, list) and block else 0), ()
    elif method in ("awq", "gptq", "awq-marlin", "gptq-marlin"):
        bits = found.get("bits") or found.get("w_bit")
        if bits not in (4, 8):
            raise NoForecast(f"{method} of {bits} bits: its weights are not estimated")
        size = int(found.get("group_size") or found.get("q_group_size") or 128)
        yield (Form(GPTQ, max(0, size)) if bits == 4 else Form(INT8)), ()
    elif algorithm in ("FP8", "NVFP4"):
        yield (Form(FP8) if algorithm == "FP8" else Form(NVFP4, 16)), ()
    else:
        named = method or algorithm or "of no name"
        raise NoForecast(f"quantization {named}: its weights are not estimated")


def _group(group: Any, whole: str) -> tuple[Form, tuple[str, ...]]:
    weights = group.get("weights") if isinstance(group, dict) else None
    if not isinstance(weights, dict):
        raise NoForecast("a group of the quantization names no weights")
    bits, kind = weights.get("num_bits"), weights.get("type")
    size, written = weights.get("group_size"), str(group.get("format") or whole)
    targets = tuple(str(one) for one in group.get("targets") or () if one != "Linear")
    block = weights.get("block_structure")
    if bits == 8:
        eight = int(block[0]) if kind == "float" and isinstance(block, list) and block else 0
        return Form(FP8 if kind == "float" else INT8, eight), targets
    if bits == 4 and kind == "float":
        form = Form(MXFP4, 32) if size == 32 or "mxfp4" in written else Form(NVFP4, 16)
        return form, targets
    if bits == 4 and kind == "int":
        return Form(INT4, int(size) if isinstance(size, int) and size > 0 else 0), targets
    raise NoForecast(f"weights of {bits} bits ({kind}) are not estimated")


def _exceptions(found: Fields) -> tuple[str, ...]:
    named: list[str] = []
    for key in _EXCEPTIONS:
        value = found.get(key)
        named += [str(one) for one in value] if isinstance(value, Sequence | set) else []
    dynamic = found.get("dynamic")  # GPTQModel: "-:pattern" leaves out what matches
    if isinstance(dynamic, Mapping):
        named += [f"re:{key[2:]}" for key in dynamic if str(key).startswith("-:")]
    return tuple(dict.fromkeys(named))


def _holds(pattern: str, name: str) -> bool:
    """Whether an entry of a list means this layer. Prefixes before "layers." differ by file and
    are left out on both sides."""
    if pattern.startswith("re:"):
        return bool(_compiled(pattern[3:]).match(f"model.{name}"))
    _, found, rest = pattern.partition("layers.")
    plain = f"layers.{rest}" if found and "*" not in pattern.split("layers.")[0] else pattern
    if "*" in plain:
        bare = plain.removeprefix("*.") if plain.startswith("*.") else plain
        return any(fnmatchcase(f"{name}{end}", p) for p in (plain, f"*{bare}") for end in ("", "."))
    if name == plain or name.startswith(f"{plain}."):
        return True
    return "." not in plain and plain in name.split(".")


_COMPILED: dict[str, re.Pattern[str]] = {}


def _compiled(pattern: str) -> re.Pattern[str]:
    if pattern not in _COMPILED:
        try:
            _COMPILED[pattern] = re.compile(pattern)
        except re.error:
            raise NoForecast(f"the quantization names {pattern!r}, which is no pattern") from None
    return _COMPILED[pattern]
