"""What every changing verb does before it touches a host: show the plan, and ask."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from opsctl.cli.console import data, explain, show
from opsctl.cli.frame import Change, Output, Settings
from opsctl.errors import ChangesPending, OpsctlError, Refused
from opsctl.views.plan import Step, document, drawing, pending

if TYPE_CHECKING:
    from opsctl.forecast.values import Figure
    from opsctl.inventory import Selected


def agreed(
    steps: Sequence[Step],
    chosen: Selected,
    settings: Settings,
    change: Change,
    *,
    always: bool = False,
    total: Figure | None = None,
) -> bool:
    """Whether the verb shall go on: the operator wants it, or there is nothing to be asked about.

    `always`: naming the hosts is not enough, since what is done cannot be undone.
    `total`: seconds of all of it, where they are known. With --dry-run the plan is the result;
    raises ChangesPending only with --exit-code, too.
    Raises Refused (exit 2) where nobody can be asked, OpsctlError if the answer is not yes.
    """
    wanted = pending(steps)
    if change.dry_run:
        if settings.form is Output.text:
            show(drawing(steps, total), settings)
        else:
            data(document(steps, total), settings.form, each="steps")
        if wanted and change.exit_code:
            raise ChangesPending(f"{len(wanted)} changes pending")
        return False
    explain(drawing(steps, total), settings)
    if wanted and not change.yes:
        hosts = len({step.host for step in wanted})
        question = f"Go on with {len(wanted)} change{_s(len(wanted))} on {hosts} host{_s(hosts)}?"
        _ask(question, chosen, always=always)
    return True


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _ask(question: str, chosen: Selected, *, always: bool) -> None:
    """On a terminal a question. Off it, hosts that were all named were meant; a fleet was not."""
    if not at_terminal():
        if not always and not chosen.fleet_wide:
            return
        raise Refused(
            f"this changes {', '.join(chosen.names)}, and there is no terminal to ask on",
            hint=f"{typed()} --yes",
        )
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise OpsctlError("nothing was changed: the answer was not yes")


def at_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty() and not os.environ.get("CI")


def typed() -> str:
    """The command as the operator typed it."""
    return shlex.join(["opsctl", *sys.argv[1:]])


def watch_limit(change: Change) -> float | None:
    """Seconds of --timeout. Raises Refused for text that is no span of time."""
    return None if change.timeout is None else spanned("--timeout", change.timeout)


def spanned(option: str, text: str) -> float:
    """Seconds of an option such as 90s, 30min, 2h. Raises Refused."""
    from opsctl.spec.models import seconds

    try:
        return seconds(float(text) if text.replace(".", "", 1).isdigit() else text)
    except ValueError as error:
        raise Refused(f"{option} {text}: {error}") from None
