"""Runs inside an engine's own environment: what does its parser make of a command line?

First it says {"flags": […], "defaults": {…}}. Then each line of stdin is a JSON list of arguments,
and each line of stdout the answer: {"values": {dest: value}}, or {"error": text}. Importing the
engine takes seconds, so one process answers all questions.
"""

import argparse
import contextlib
import json
import logging
import os
import sys


class Refusal(Exception):
    pass


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Refusal(message)


def main():
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the engine prints is no answer
    from sglang.srt.server_args import ServerArgs

    logging.disable(logging.CRITICAL)
    parser = Parser()
    with contextlib.redirect_stdout(sys.stderr):
        ServerArgs.add_cli_args(parser)

    def values(argv):
        return vars(parser.parse_args(["--model-path=m", *argv]))

    def say(answer):
        out.write(json.dumps(answer) + "\n")
        out.flush()

    names = [name for action in parser._actions for name in action.option_strings]
    say({"flags": names, "defaults": values([])})
    for line in sys.stdin:
        try:
            say({"values": values(json.loads(line))})
        except (Refusal, Exception) as error:
            say({"error": f"{type(error).__name__}: {error}"})


main()
