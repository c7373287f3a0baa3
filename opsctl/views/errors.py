"""An error in the words that help at 3 a.m.: host, step, cause, last log lines, next command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

from opsctl.errors import OpsctlError, SpecError
from opsctl.remote.sanitise import text as harmless
from opsctl.views.plays import typeable


def lines(error: OpsctlError, inventory: Path | None = None) -> list[str]:
    """`inventory`: as it was given; for commands that need it too."""
    if isinstance(error, SpecError):
        found = [f"error: {harmless(str(problem))}" for problem in error.problems]
        return [*found, f"{len(found)} problem{'s' if len(found) != 1 else ''} found."]
    where = ", ".join(part for part in (error.host, error.step) if part)
    if error.message.startswith(f"{error.step} on {error.host}: "):
        where = ""  # the message says so itself
    first, *more = (harmless(part) for part in error.message.splitlines() or ["unknown"])
    text = [f"error: {where}: {first}" if where else f"error: {first}"]
    text += [f"  {part}" for part in more]
    text += [f"  │ {harmless(part)}" for part in error.log if part not in error.message]
    if error.hint:
        text.append(f"next: {harmless(typeable(error.hint, inventory))}")
    return text


def folded(said: Sequence[str], width: int) -> list[str]:
    """The lines as they fit a terminal, what is below a line standing deeper. `width` 0: as they
    are."""
    if not width:
        return list(said)
    found: list[str] = []
    for line in said:
        deeper = " " * (len(line) - len(line.lstrip(" ")) + 2)
        found += wrap(line, width, subsequent_indent=deeper, break_on_hyphens=False) or [line]
    return found


def unexpected(error: BaseException) -> str:
    """One line for a fault of opsctl itself; the message may hold line breaks, the line none."""
    what = " ".join(str(error).split()) or "no message"
    return (
        f"error: {type(error).__name__}: {harmless(what)} "
        "(this is a fault of opsctl; repeat the command with --debug for the traceback)"
    )
