#!/usr/bin/env python3
"""Asks the parser of a released SGLang itself for its options: a line of JSON each, sorted.

    tools/cpu_engine.sh 0.5.23                                   # prints DIR
    pip download --no-deps sglang==0.5.20 && unzip -q sglang-0.5.20-*.whl -d UNPACKED
    PYTHONPATH=UNPACKED SGLANG_USE_CPU_ENGINE=1 DIR/bin/python tools/ask_parser.py

One environment serves many releases, since only their argument parsers are imported: that of 0.5.9
those up to 0.5.12.post1, that of 0.5.23 all newer ones.
`--digest` prints one line instead, VERSION COUNT SHA256: those of all releases stand in
tests/unit/engine/real_parsers.txt, where the catalogues are held against them.

A line is [names, class, type, dest, nargs, choices, default]. class: switch, onoff, void, refused,
value.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any


def lines(parser: argparse.ArgumentParser) -> list[str]:
    return sorted(
        json.dumps(row(action))
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction)
    )


def row(action: argparse.Action) -> list[Any]:
    if isinstance(action, argparse.BooleanOptionalAction):
        shape = "onoff"
    elif action.nargs == 0:
        shape = done(action)
    else:
        shape = "value"
    choices = action.choices
    if isinstance(choices, set | frozenset):
        choices = sorted(choices)
    default = None if action.default == argparse.SUPPRESS else action.default
    return [
        sorted(action.option_strings),
        shape,
        reader(action) if shape == "value" else "",
        action.dest,
        action.nargs if shape == "value" else None,
        None if choices is None else list(choices),
        default,
    ]


def done(action: argparse.Action) -> str:
    """What comes of an option without a value, by giving it."""
    parser, found = argparse.ArgumentParser(), argparse.Namespace()
    try:
        action(parser, found, [], action.option_strings[0])
    except (SystemExit, ValueError, argparse.ArgumentError):
        return "refused"
    return "switch" if vars(found) else "void"


def reader(action: argparse.Action) -> str:
    name = getattr(action.type, "__name__", "str")
    return "str" if name == "parse_cuda_graph_backend_arg" else name  # one of its choices, as text


def twice_is_fine() -> None:
    """Newer transformers know models that older releases register themselves."""
    from transformers.models.auto.configuration_auto import AutoConfig

    register = AutoConfig.register
    AutoConfig.register = staticmethod(lambda name, one, exist_ok=False: register(name, one, True))


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the engine prints is no answer
    twice_is_fine()
    import sglang
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    with contextlib.redirect_stdout(sys.stderr):
        ServerArgs.add_cli_args(parser)
    found = lines(parser)
    if "--digest" not in sys.argv:
        out.write("".join(f"{line}\n" for line in found))
        return
    top = str(Path(sglang.__file__).resolve().parent.parent)
    version = next(d.version for d in distributions(name="sglang", path=[top]))
    digest = hashlib.sha256("\n".join(found).encode()).hexdigest()
    out.write(f"{version} {len(found)} {digest}\n")


if __name__ == "__main__":
    main()
