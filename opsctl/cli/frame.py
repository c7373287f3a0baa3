"""The frame around every verb: the options that all share, and how an exception ends a command.

Imports nothing heavy: `opsctl --help` must not wait for pydantic, rich or paramiko.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from opsctl.errors import NothingSelected, OpsctlError, Refused


class Output(StrEnum):
    text = "text"
    json = "json"
    jsonl = "jsonl"
    yaml = "yaml"


@dataclass(frozen=True)
class Settings:
    """What every verb may be told; each field is also an option before the verb."""

    inventory: Annotated[
        Path | None,
        typer.Option(
            "--inventory",
            "-i",
            metavar="PATH",
            help="Inventory file or folder. Default: $OPSCTL_INVENTORY, then ansible.cfg's, "
            "then ./inventory.",
        ),
    ] = None
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="HOST[,HOST]",
            help="Only these hosts, groups or globs of them; !HOST leaves one out.",
        ),
    ] = None
    output: Annotated[
        Output | None, typer.Option("--output", "-o", help="Form of the result on stdout.")
    ] = None
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False
    no_color: Annotated[
        bool, typer.Option("--no-color", help="No colour; NO_COLOR does the same.")
    ] = False
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Read the inventory anew with Ansible.")
    ] = False
    ask_become_pass: Annotated[
        bool,
        typer.Option(
            "--ask-become-pass",
            "-K",
            help="Ask for sudo's password, for hosts whose inventory has no "
            "ansible_become_password.",
        ),
    ] = False

    @property
    def form(self) -> Output:
        return self.output or Output.text

    @property
    def hosts(self) -> tuple[str, ...]:
        """Raises NothingSelected for a --limit that names nothing: `--limit "$HOST"` without a HOST
        must not mean the whole fleet; Refused for two of them: Ansible takes the last, and who
        types them means both."""
        if not self.limit:
            return ()
        if len(self.limit) > 1:
            raise Refused(
                f"--limit is given {len(self.limit)} times",
                hint=f"give it once: --limit '{','.join(self.limit)}'",
            )
        named = tuple(part.strip() for part in self.limit[0].split(",") if part.strip())
        if not named:
            raise NothingSelected(
                f"--limit {self.limit[0]!r} names no host", hint="leave --limit out for all hosts"
            )
        return named


@dataclass(frozen=True)
class Change:
    """What every verb that changes a host may be told."""

    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan; change nothing.")] = (
        False
    )
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="With --dry-run: exit 3 if there are changes.")
    ] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
    reason: Annotated[
        str | None,
        typer.Option("--reason", metavar="TEXT", help="Why; kept in the lock and the audit."),
    ] = None
    timeout: Annotated[
        str | None,
        typer.Option(
            "--timeout",
            metavar="TIME",
            help="Longest time to watch, for example 90s, 30min, 2h. The host finishes or "
            "restores by itself even then.",
        ),
    ] = None
    detach: Annotated[
        bool, typer.Option("--detach", help="Start it and return; the host finishes by itself.")
    ] = False

    @property
    def why(self) -> str:
        """Raises Refused for a reason that says nothing."""
        return worded("--reason", self.reason)


def worded(option: str, text: str | None) -> str:
    """A reason as it was typed; "" if none was. Raises Refused for one that says nothing."""
    if text is not None and not text.strip():
        raise Refused(f"{option} {text!r} is empty: it takes a reason in words")
    return text or ""


_GROUPS: tuple[type[Any], ...] = (Settings, Change)


def framed(run: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the shared options that its signature asks for by type, and an orderly end."""
    hints = get_type_hints(run, include_extras=True)
    parameters, build = _expand(inspect.signature(run), hints)

    @functools.wraps(run)
    def wrapper(ctx: typer.Context, **given: Any) -> None:
        arguments = {name: make({**given, "ctx": ctx}) for name, make in build.items()}
        settings = next((a for a in arguments.values() if isinstance(a, Settings)), Settings())
        if isinstance(ctx.obj, Settings):
            settings = merged(ctx.obj, settings)
            arguments = {
                k: settings if isinstance(v, Settings) else v for k, v in arguments.items()
            }

        def checked() -> None:
            for group in arguments.values():
                if isinstance(group, Change):
                    _ = group.why  # before anything is asked of any host
            run(**arguments)

        end = ended(checked, settings)
        if end:
            raise typer.Exit(end)

    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    wrapper.__signature__ = inspect.Signature([context, *parameters])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in (context, *parameters)}
    del wrapper.__wrapped__  # or typer reads the inner signature
    return wrapper


def merged(before: Settings, after: Settings) -> Settings:
    """Options given after the verb win over those given before it, even empty ones."""
    values = {f.name: getattr(after, f.name) for f in dataclasses.fields(after)}
    unset = {f.name for f in dataclasses.fields(after) if values[f.name] == f.default}
    return Settings(**values | {name: getattr(before, name) for name in unset})


def ended(run: Callable[[], None], settings: Settings) -> int:
    """Run it; the exit code. Errors become talk on stderr, never a traceback without --debug."""
    code = _ended(run, settings)
    return code if _told() else code or 1


def _ended(run: Callable[[], None], settings: Settings) -> int:
    try:
        if settings.ask_become_pass:
            from opsctl.cli.asking import ask_become_password

            ask_become_password()
        run()
    except OpsctlError as error:
        if settings.debug:
            _traceback()
        complain(error, settings.inventory)
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    except BrokenPipeError:
        # The reader of our stdout (head, less) has gone: nothing is wrong, and nobody listens.
        _hush()
        return 0
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:
        if settings.debug:
            _traceback()
        else:
            _unexpected(error)
        return 1
    return 0


def _told() -> bool:
    """Whether stdout took all that was written; if not (its disk is full), stderr says so."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _hush()
    except OSError as error:
        complain(unwritten(error))
        return False
    return True


def unwritten(error: OSError) -> OpsctlError:
    """For a stdout that takes no more; it names the file behind it where the system tells (Linux),
    and takes nothing more from here on."""
    try:
        where = f"stdout ({Path(f'/proc/self/fd/{sys.stdout.fileno()}').readlink()})"
    except OSError:
        where = "stdout"
    _hush()
    return OpsctlError(f"cannot write the result to {where}: {error.strerror or error}")


def _hush() -> None:
    """What stdout still holds goes nowhere, or Python complains of it when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _expand(
    signature: inspect.Signature, hints: dict[str, Any]
) -> tuple[list[inspect.Parameter], dict[str, Callable[[dict[str, Any]], Any]]]:
    """The options that typer shall see, and how each argument of the verb is made from them."""
    shown: list[inspect.Parameter] = []
    build: dict[str, Callable[[dict[str, Any]], Any]] = {}
    last: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        kind = hints[name]
        if kind in _GROUPS:
            own = get_type_hints(kind, include_extras=True)
            names = [f.name for f in dataclasses.fields(kind)]
            last += [_option(f.name, own[f.name], f.default) for f in dataclasses.fields(kind)]
            build[name] = functools.partial(_make, kind, names)
        elif kind is typer.Context:
            build[name] = functools.partial(lambda key, given: given[key], "ctx")
        else:
            shown.append(_option(name, kind, parameter.default))
            build[name] = functools.partial(lambda key, given: given[key], name)
    return shown + last, build


def _make(kind: type[Any], names: list[str], given: dict[str, Any]) -> Any:
    return kind(**{name: given[name] for name in names})


def _option(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )


def complain(error: OpsctlError, inventory: Path | None = None) -> None:
    """The error on stderr, as it fits the terminal."""
    from opsctl.cli.console import stderr_columns
    from opsctl.views.errors import folded, lines

    sys.stderr.write("\n".join(folded(lines(error, inventory), stderr_columns())) + "\n")


def _unexpected(error: Exception) -> None:
    from opsctl.views.errors import unexpected

    sys.stderr.write(unexpected(error) + "\n")


def _traceback() -> None:
    import traceback

    traceback.print_exc()
