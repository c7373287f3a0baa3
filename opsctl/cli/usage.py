"""How wrong usage ends: typer's own words, and below them what to type next."""

from __future__ import annotations

import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from opsctl.cli.frame import complain
from opsctl.errors import Refused

# Newer typers bring a click of their own: what a bad parameter is besides itself, is in both.
UsageError: Any = typer.BadParameter.__mro__[1]
_STRAY = re.compile(r"unexpected extra argument(?:s|\(s\))? \((.+)\)")
_HELP = "NoArgsIsHelpError"  # shows the help, which says what can be typed


class _Once:
    """An option that takes one value is not given two: the parser would take the last, and who
    types both means both."""

    def parse_args(self, ctx: Any, args: Any) -> Any:
        whole: Any = self
        _, _, order = whole.make_parser(ctx).parse_args(args=list(args))
        rest = super().parse_args(ctx, args)  # type: ignore[misc]  # shows the help, if it is asked
        options = {id(one): one for one in order if _takes_one(one)}
        times = Counter(map(id, order))
        for key, option in options.items():
            if times[key] > 1 and not ctx.resilient_parsing:
                raise UsageError(
                    f"{option.opts[0]} is given {times[key]} times: it takes one value", ctx
                )
        return rest


def _takes_one(param: Any) -> bool:
    switch = param.param_type_name != "option" or param.is_flag or param.count
    return not (switch or param.multiple)


class Verb(_Once, TyperCommand):
    """One verb."""


class Verbs(_Once, TyperGroup):
    """The command itself, whose verbs may be of groups of their own."""

    given: Sequence[str] = ()

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        self.given = tuple(args)
        with self._told():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        with self._told():
            return super().invoke(ctx)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except UsageError as error:
            if type(error).__name__ == _HELP:
                raise
            if error.ctx is not None:
                sys.stderr.write(error.ctx.get_usage() + "\n")
            text = str(error.format_message()).replace("Value error, ", "")  # pydantic's
            complain(Refused(text, hint=self._next(error)))
            raise typer.Exit(Refused.exit_code) from error

    def _next(self, error: Any) -> str:
        """The command as it was typed with what it lacks, or with hosts where they belong; or the
        help of its verb."""
        param = getattr(error, "param", None)
        if param is not None and str(error.format_message()).startswith("Missing"):
            return shlex.join(["opsctl", *self.given]) + f" {_word(param)}"
        stray = _STRAY.search(str(error.format_message()))
        if stray and _takes_hosts_alone(error.ctx.command):
            names = stray[1].split()
            kept = [word for word in self.given if word not in names]
            return shlex.join(["opsctl", *kept, "--limit", ",".join(names)])
        return " ".join(["opsctl", *self._verb(), "-h"])

    def _verb(self) -> Iterator[str]:
        """The verb among the arguments, with its group's name before it."""
        known: Any = self
        for word in self.given:
            if word in getattr(known, "commands", {}):
                yield word
                known = known.commands[word]


def _word(param: Any) -> str:
    word = param.metavar or str(param.name).upper()
    return f"{param.opts[0]} {word}" if param.param_type_name == "option" else word


def _takes_hosts_alone(verb: Any) -> bool:
    """Whatever is named there, but for an option, can only be a host."""
    limits = any("--limit" in param.opts for param in verb.params)
    return limits and all(param.param_type_name == "option" for param in verb.params)
