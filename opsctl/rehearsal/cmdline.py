"""The engine's command line, judged by the catalogue and typed.

Refused as the engine's own parser refuses: a usage line, an error, exit 2. Like it, abbreviations
pass; opsctl must not write any, which is the catalogue's own business.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from opsctl.engine import Flag, catalogue

TYPES: dict[str, Any] = {"int": int, "float": float, "json": json.loads, "json_list": json.loads}


def parse(version: str, argv: Sequence[str]) -> dict[str, Any]:
    """Values by canonical name, defaults included; a switch that was not given is False.

    Raises SystemExit(2) for what the engine would refuse.
    """
    flags = catalogue(version).flags
    parser = argparse.ArgumentParser(prog="launch_server.py")
    for flag in flags.values():
        _add(parser, flag)
    given = vars(parser.parse_args(list(argv)))
    return {name: given[name] for name in flags}


def _add(parser: argparse.ArgumentParser, flag: Flag) -> None:
    names = [f"--{name}" for name in flag.names]
    if flag.kind in ("switch", "void"):
        parser.add_argument(*names, dest=flag.name, action="store_true")
        return
    if flag.kind == "onoff":
        parser.add_argument(
            *names, dest=flag.name, default=flag.default, action=argparse.BooleanOptionalAction
        )
        return
    extra: dict[str, Any] = {"nargs": flag.nargs} if flag.nargs else {}
    if flag.nargs == "?":
        extra["const"] = True
    parser.add_argument(
        *names,
        dest=flag.name,
        type=TYPES.get(flag.kind, str),
        choices=flag.choices or None,
        default=flag.default,
        required=flag.name == "model-path",
        metavar=flag.name.upper().replace("-", "_"),
        **extra,
    )
