"""The real engine's own reading of its arguments on a card that is only said to be there.

Run with the Python of a CPU environment. One JSON document a line on stdin: {"config": NAME of a
file in the folder that the first argument names, "argv": arguments as of a command line, "env":
variables, "mib": memory of a card, "capability": [major, minor]}; one a line comes out: {"values":
what the fields became, by their Python names}, or {"error": text}.

Its parser and its last checks are part of it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

from judge_card import pretend, register, server_args


class Refusal(Exception):
    pass


def parsed(argv: list[str]) -> Any:
    import argparse

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> Any:
            raise Refusal(message)

    parser = Parser()
    server_args.ServerArgs.add_cli_args(parser)
    return server_args.ServerArgs.from_cli_args(parser.parse_args(argv))


def resolve(asked: dict[str, Any], folder: Path) -> dict[str, Any]:
    model = folder / asked["config"]
    register(json.loads((model / "config.json").read_text())["model_type"])
    pretend(asked["mib"], tuple(asked["capability"]))
    argv = [f"--model-path={model}", "--device=cuda", *asked["argv"]]
    before = dict(os.environ)
    os.environ.update(asked.get("env") or {})
    try:
        made = parsed(argv)
        if hasattr(made, "resolve_once"):
            made.resolve_once()
        made.check_server_args()
        if hasattr(made, "resolved_dict"):
            return dict(made.resolved_dict())
        if hasattr(made, "resolve_once"):
            from sglang.srt.arg_groups.overrides import resolved_view

            view = resolved_view(made)
            return {name: getattr(view, name) for name in vars(made) if name[0] != "_"}
        return {name: value for name, value in vars(made).items() if name[0] != "_"}
    finally:
        os.environ.clear()
        os.environ.update(before)


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the engine prints is no answer
    folder = Path(sys.argv[1])
    for line in sys.stdin:
        try:
            hidden = io.StringIO()
            with contextlib.redirect_stdout(hidden), contextlib.redirect_stderr(hidden):
                found = resolve(json.loads(line), folder)
            answer: dict[str, Any] = {"values": found}
        except (Exception, SystemExit) as problem:
            answer = {"error": f"{type(problem).__name__}: {problem}"[:600]}
        out.write(json.dumps(answer, default=str) + "\n")
        out.flush()


main()
