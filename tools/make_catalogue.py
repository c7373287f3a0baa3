#!/usr/bin/env python3
"""Writes opsctl/engine/data/ from a table of the options of several SGLang versions.

    make_catalogue.py FLAGS_JSON [OUT]

FLAGS_JSON: {version: [{"names", "dest", "type", "choices", "default", "nargs", "action",
"deprecated", "new_flag"}]}, as read from each version's own argument parser.

OUT gets one file for each version that opsctl supports, a line a flag, and history.json: which
versions have the names that not all of them have, so that a message can name the right version.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SUPPORTED = ("0.5.9", "0.5.23")  # oldest first
DATA = Path(__file__).resolve().parent.parent / "opsctl" / "engine" / "data"

KINDS = {
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
ACTIONS = {"boolean_optional": "onoff", "DeprecatedAction": "void", "LoRAPathAction": "lora"}

# Text for the parser, JSON for the engine (as their help says): a mapping may be written as one.
JSON_TEXT = {
    "deepep-config",
    "disaggregation-ib-device",
    "hicache-storage-backend-extra-config",
    "hierarchical-sparse-attention-extra-config",
    "hisparse-config",
    "json-model-override-args",
    "kv-events-config",
    "model-loader-extra-config",
    "modelexpress-config",
}


def bare(name: str) -> str:
    return name.removeprefix("--")


def canonical(names: list[str], newest: dict[str, str]) -> str:
    """One name for the same flag in all versions: the one that the newest lists first."""
    return next((name for name in names if newest.get(name) == name), names[0])


def kind(option: dict[str, Any], name: str) -> str:
    if option["action"] in ACTIONS:
        return ACTIONS[option["action"]]
    found = KINDS[option.get("type", "str")]
    return "json_text" if found == "text" and name in JSON_TEXT else found


def flag(option: dict[str, Any], newest: dict[str, str]) -> tuple[str, dict[str, Any]]:
    names = [bare(n) for n in option["names"]]
    if option["action"] == "boolean_optional":
        names = [n for n in names if not n.startswith("no-")]
    name = canonical(names, newest)
    entry: dict[str, Any] = {"kind": kind(option, name)}
    if aliases := [n for n in names if n != name]:
        entry["aliases"] = aliases
    if option["dest"] != name.replace("-", "_"):
        entry["dest"] = option["dest"]
    if "nargs" in option and entry["kind"] != "void":
        entry["nargs"] = option["nargs"]
    for part in ("choices", "default"):
        if option.get(part) is not None:
            entry[part] = option[part]
    if option.get("deprecated"):
        entry["deprecated"] = option.get("new_flag", "")
    return name, entry


def text(version: str, flags: dict[str, dict[str, Any]]) -> str:
    lines = [f'"{name}": {json.dumps(entry)}' for name, entry in sorted(flags.items())]
    return f'{{"version": "{version}", "flags": {{\n' + ",\n".join(lines) + "\n}}\n"


def history(table: dict[str, list[dict[str, Any]]]) -> str:
    versions = list(table)
    has: dict[str, list[str]] = {}
    for version in versions:
        for option in table[version]:
            for name in option["names"]:
                has.setdefault(bare(name), []).append(version)
    changed = {name: found for name, found in sorted(has.items()) if len(found) < len(versions)}
    lines = [f'"{name}": {json.dumps(found)}' for name, found in changed.items()]
    return f'{{"versions": {json.dumps(versions)}, "flags": {{\n' + ",\n".join(lines) + "\n}}\n"


def main() -> None:
    table = json.loads(Path(sys.argv[1]).read_text())
    out = Path(sys.argv[2]) if len(sys.argv) > 2 else DATA
    out.mkdir(parents=True, exist_ok=True)
    newest = {bare(n): bare(o["names"][0]) for o in table[SUPPORTED[-1]] for n in o["names"]}
    for version in SUPPORTED:
        flags = dict(flag(option, newest) for option in table[version])
        (out / f"{version}.json").write_text(text(version, flags))
    (out / "history.json").write_text(history(table))


if __name__ == "__main__":
    main()
