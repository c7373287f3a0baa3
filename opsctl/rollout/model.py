"""The values of a rollout: what is planned for each service, and how each one ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from opsctl.errors import (
    DoesNotFit,
    GateFailed,
    Interrupted,
    LockHeld,
    OpsctlError,
    RolledBack,
    Unreachable,
)

Op = Literal["swap", "restart", "start", "stop", "rollback", "restore"]
Kind = Literal[
    "none", "stage", "takeover", "swap", "restart", "start", "stop", "rollback", "restore"
]
Key = tuple[str, str]
"""(host, service)"""

NOTHING = "no restart: nothing changed"
SAME = "the command line is the same"
ZERO = "0"  # the digest of what stood there before opsctl


@dataclass(frozen=True)
class Takeover:
    """`invocation`: systemd's mark of the process that was compared. `differs`: why it has to be
    restarted; empty: it need not. `later`: what the release's unit changes at its next start."""

    invocation: str
    differs: tuple[str, ...] = ()
    later: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "invocation": self.invocation,
            "differs": list(self.differs),
            "later": list(self.later),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> Takeover | None:
        if not value:
            return None
        differs, later = (tuple(map(str, value[key])) for key in ("differs", "later"))
        return cls(str(value["invocation"]), differs, later)


@dataclass(frozen=True)
class Wanted:
    """The release that one service shall run. `manifest` tells why a restart is needed;
    `changed`: whether its files differ from those on the host (None: not asked); `takeover`: how a
    process of other hands that runs in its place compares (None: there is none)."""

    digest: str
    manifest: Mapping[str, Any] | None = None
    changed: bool | None = None
    takeover: Takeover | None = None


@dataclass(frozen=True)
class Action:
    """What is done with one service on one host, and why, in words for the operator."""

    host: str
    service: str
    kind: Kind
    reason: str
    target: str | None = None
    running: str | None = None
    override: str = ""  # the reason with which a forecast that does not fit was overridden
    process: str = ""  # of a takeover: systemd's mark of the process that was compared
    later: tuple[str, ...] = ()  # of a takeover: what applies from the next start on

    @property
    def key(self) -> Key:
        return self.host, self.service

    @property
    def restarts(self) -> bool:
        return self.kind not in ("none", "stage", "takeover")


@dataclass(frozen=True)
class Plan:
    """All actions in the order in which they are done."""

    op: Op
    actions: tuple[Action, ...]

    @property
    def changes(self) -> tuple[Action, ...]:
        return tuple(action for action in self.actions if action.kind != "none")

    @property
    def told(self) -> tuple[Action, ...]:
        """What is done, and where nothing is, what is not as it should be all the same."""
        return tuple(a for a in self.actions if a.kind != "none" or a.reason != NOTHING)


Outcome = Literal[
    "unchanged",  # nothing was to be done
    "staged",  # files are there, nothing was restarted
    "confirmed",  # every gate passed
    "stopped",
    "rolled_back",  # a gate failed, or power did; the confirmed release was restored and serves
    "failed",  # a gate failed, and nothing was restored
    "refused",  # the host or opsctl said no before anything was touched
    "unfit",  # the forecast says that the host would not survive it
    "locked",  # another run holds the lock
    "unreachable",  # nothing was touched: the host could not be asked
    "lost",  # a guard is at work there, but nobody could watch it to its end
    "detached",  # the operator stopped watching; the guard goes on
    "interrupted",  # by the operator, before anything was touched
    "skipped",  # an earlier host was not confirmed, so this one was not touched
]
GOOD: frozenset[str] = frozenset({"unchanged", "staged", "confirmed", "stopped"})


@dataclass(frozen=True)
class Result:
    """How one service on one host ended."""

    host: str
    service: str
    outcome: Outcome
    release: str | None = None
    seconds: float = 0.0
    cause: str = ""
    hint: str = ""
    checks: tuple[Mapping[str, Any], ...] = ()
    log: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return self.outcome in GOOD

    def as_json(self) -> dict[str, Any]:
        return {
            "host": self.host,
            "service": self.service,
            "outcome": self.outcome,
            "release": self.release,
            "seconds": self.seconds,
            "cause": self.cause,
            "hint": self.hint,
            "checks": [dict(check) for check in self.checks],
            "log": list(self.log),
        }


# The gravest first: an operator who sees one exit code must see the one that needs him most.
_ERRORS: tuple[tuple[Outcome, type[OpsctlError]], ...] = (
    ("failed", GateFailed),
    ("rolled_back", RolledBack),
    ("detached", Interrupted),
    ("interrupted", Interrupted),
    ("lost", Unreachable),
    ("unfit", DoesNotFit),
    ("locked", LockHeld),
    ("unreachable", Unreachable),
    ("refused", OpsctlError),
)


@dataclass(frozen=True)
class Results:
    """How a whole run ended."""

    run: str
    op: Op
    results: tuple[Result, ...] = field(default_factory=tuple)

    @property
    def exit_code(self) -> int:
        error = self.error()
        return 0 if error is None else error.exit_code

    @property
    def changed(self) -> bool:
        return any(result.outcome not in ("unchanged", "skipped") for result in self.results)

    def error(self) -> OpsctlError | None:
        """The exception for the gravest result; None if all is well."""
        for outcome, kind in _ERRORS:
            for result in self.results:
                if result.outcome == outcome:
                    return kind(
                        _sentence(result, self.results),
                        host=result.host,
                        step=result.service,
                        hint=result.hint,
                        log=result.log,
                    )
        return None

    def as_json(self) -> dict[str, Any]:
        return {
            "schema_version": 1,
            "ok": self.exit_code == 0,
            "run": self.run,
            "op": self.op,
            "results": [result.as_json() for result in self.results],
        }


_WORDS: Mapping[str, str] = {
    "failed": "failed, and nothing was restored",
    "detached": "no longer watched; the host finishes or restores by itself",
    "interrupted": "interrupted before anything was touched",
    "lost": "lost from sight; the host finishes or restores by itself",
    "unfit": "does not fit",
    "locked": "is locked",
    "unreachable": "was not reached, and nothing was touched there",
    "refused": "refused before anything was touched",
}


def restored(cause: str) -> str:
    """What "rolled_back" means: no gate is to blame where the host lost its power."""
    end = "the last confirmed release was restored and serves"
    return end if cause.startswith("the host lost power") else f"a gate failed; {end}"


def _sentence(result: Result, results: Sequence[Result]) -> str:
    words = restored(result.cause) if result.outcome == "rolled_back" else _WORDS[result.outcome]
    text = f"{result.service} on {result.host}: {words}"
    if result.cause:
        text += f": {result.cause}"
    left = [f"{o.host} {o.service}" for o in results if o.outcome == "skipped"]
    if left:
        text += f" (not touched: {', '.join(dict.fromkeys(left))})"
    return text
