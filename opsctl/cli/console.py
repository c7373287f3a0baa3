"""stdout is the result, stderr is talk. Off a terminal: no colour, no animation, no question."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opsctl.cli.frame import Output, Settings, unwritten

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

# Off a terminal nobody has a width: a line is as long as it needs to be, so that grep finds it.
ENDLESS = 10_000
PAGE, NARROWEST = 100, 40


def talk(text: str = "") -> None:
    from opsctl.views.errors import folded

    sys.stderr.write("\n".join(folded(text.split("\n"), stderr_columns())) + "\n")
    sys.stderr.flush()


def lively() -> bool:
    """Whether a person watches stderr: then progress may move."""
    return sys.stderr.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb"


def show(renderable: RenderableType, settings: Settings, *, width: int | None = None) -> None:
    """A result for people on stdout. Off a terminal it breaks at COLUMNS, where somebody says so;
    else at `width`, or nowhere."""
    if sys.stdout.isatty():
        console(settings, error=False).print(renderable)
    else:
        write(plain(renderable, columns() or width or ENDLESS))


def page() -> int:
    """Columns of a text that is to be read rather than searched, off a terminal: COLUMNS, or 100.
    A terminal's own width is rich's matter."""
    return columns() or PAGE


def columns() -> int:
    """COLUMNS of the environment, 0 if nobody set it. (A shell keeps its own to itself.)"""
    said = os.environ.get("COLUMNS", "")
    return max(NARROWEST, int(said)) if said.isdecimal() and int(said) else 0


def stderr_columns() -> int:
    """Where talk breaks: the terminal's width, else COLUMNS, else nowhere (0)."""
    if sys.stderr.isatty():
        return columns() or os.get_terminal_size(sys.stderr.fileno()).columns
    return columns()


def explain(renderable: RenderableType, settings: Settings) -> None:
    """Talk for people on stderr."""
    if sys.stderr.isatty():
        console(settings, error=True).print(renderable)
    else:
        sys.stderr.write(plain(renderable, columns() or ENDLESS))


def plain(renderable: RenderableType, width: int = ENDLESS) -> str:
    """The renderable as text without colour, without trailing blanks."""
    from rich.console import Console

    held = io.StringIO()
    drawn = Console(file=held, width=width, color_system=None, force_terminal=False)
    drawn.print(renderable, soft_wrap=False)
    return "".join(f"{line.rstrip()}\n" for line in held.getvalue().splitlines())


def console(settings: Settings, *, error: bool) -> Console:
    from rich.console import Console

    return Console(
        stderr=error, no_color=settings.no_color or None, highlight=False, emoji=False, markup=False
    )


def data(document: Mapping[str, Any], form: Output, *, each: str = "") -> None:
    """A result for programs on stdout. `each` names the list whose entries are jsonl's lines."""
    write(serialized(document, form, each=each))


def write(text: str) -> None:
    """To stdout, at once. Raises OpsctlError (its disk is full), BrokenPipeError (no reader)."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritten(error) from error


def serialized(document: Mapping[str, Any], form: Output, *, each: str = "") -> str:
    if form is Output.yaml:
        import yaml

        return yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=False)
    if form is Output.jsonl and each:
        rest = {k: v for k, v in document.items() if k == "schema_version"}
        return "".join(_line({**rest, **entry}) for entry in document[each])
    if form is Output.jsonl:
        return _line(document)
    return json.dumps(document, indent=2, ensure_ascii=True) + "\n"


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n"
