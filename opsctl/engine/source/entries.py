"""Options of one version as entries of a catalogue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from opsctl.engine.source.options import Option

_KINDS = {
    "bool": "switch",
    "int": "int",
    "float": "float",
    "str": "text",
    "loads": "json",
    "json_list_type": "json_list",
    "nullable_str": "nullable",
    "human_readable_int": "size",
    "parse_cuda_graph_backend_arg": "text",
    "parse_cuda_graph_config_arg": "graph_config",
}
_ACTIONS = {"boolean_optional": "onoff", "DeprecatedAction": "void", "LoRAPathAction": "lora"}
# The engine reads it as text or as JSON, and the help does not say so in every version.
_JSON_TOO = {"disaggregation-ib-device"}


class UnknownType(ValueError):
    """A version reads a flag's value in a way that opsctl has not learnt."""


def entries(options: Iterable[Option], known: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Entries by canonical name, sorted. `known`: names of the versions that there are catalogues
    of → canonical name, so that one flag has one name in all. Raises UnknownType."""
    return dict(sorted(_entry(option, known) for option in options))


def _entry(option: Option, known: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    names = [n.removeprefix("--") for n in option["names"]]
    name = next((n for n in names if known.get(n) == n), names[0])
    entry: dict[str, Any] = {"kind": _kind(option, name)}
    if aliases := [n for n in names if n != name]:
        entry["aliases"] = aliases
    if option["dest"] != name.replace("-", "_"):
        entry["dest"] = option["dest"]
    if "nargs" in option and entry["kind"] not in ("void", "refused"):
        entry["nargs"] = option["nargs"]
    entry |= {k: option[k] for k in ("choices", "default", "fallback") if k in option}
    if option.get("deprecated"):
        entry["deprecated"] = option.get("new_flag", "")
    return name, entry


def _kind(option: Option, name: str) -> str:
    if option.get("refused"):
        return "refused"
    if option["action"] in _ACTIONS:
        return _ACTIONS[option["action"]]
    kind = _KINDS.get(option.get("type", "str"))
    if kind is None:
        raise UnknownType(f"--{name} is read by {option['type']}, which opsctl does not know")
    return "json_text" if kind == "text" and (option.get("json") or name in _JSON_TOO) else kind
