"""All that is planned, of all hosts, and all that stands in its way. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from opsctl.errors import DoesNotFit, LockHeld, OpsctlError, SpecError, Unreachable, folded
from opsctl.forecast.values import Figure
from opsctl.rollout import duration
from opsctl.rollout.foresight import Detail, detail
from opsctl.rollout.model import Action, Key, Plan, Wanted
from opsctl.rollout.plan import draw
from opsctl.rollout.staging import OVERRIDES, Staged, mend_hint, unfit_hint
from opsctl.spec.load import together

# The gravest first: one exit code must name what matters most (as with the results of a run).
_GRAVE: tuple[type[OpsctlError], ...] = (DoesNotFit, LockHeld, Unreachable, OpsctlError)


@dataclass(frozen=True)
class Planned:
    """`wrong`: why nothing can be planned there, by host and service ("" for a whole host)."""

    plan: Plan
    staged: Mapping[Key, Staged]
    details: Mapping[Key, Detail]
    wrong: Mapping[Key, OpsctlError]

    @property
    def total(self) -> Figure | None:
        """Seconds for all of it, one service after the other; None where a start is not known, or
        nothing is started."""
        known = [
            self.details[action.key].total
            for action in self.plan.actions
            if action.restarts and action.key in self.details
        ]
        return duration.together(known) if known else None

    def error(self) -> OpsctlError | None:
        """What keeps the plan from being carried out, of all hosts; None if nothing does."""
        found = list(self._problems())
        if not found:
            return None
        specs = [error for _, error in found if isinstance(error, SpecError)]
        if specs:
            return SpecError(together([problem for e in specs for problem in e.problems]))
        kinds = [kind for kind in _GRAVE if any(isinstance(error, kind) for _, error in found)]
        if len(found) == 1:
            return found[0][1]
        first = next(error for _, error in found if isinstance(error, kinds[0]))
        told = folded((host, (service, error.message)) for (host, service), error in found)
        if len(told) == 1 and len(found) > 1:
            hosts, (service, text) = told[0]
            return kinds[0](text, host=hosts, step=service, hint=first.hint, log=first.log)
        lines = [f"{_where((hosts, service))}: {text}" for hosts, (service, text) in told]
        words = "nothing can be done before these are settled"
        return kinds[0]("\n".join([words, *lines]), hint=first.hint)

    def _problems(self) -> Iterator[tuple[Key, OpsctlError]]:
        yield from self.wrong.items()
        for key, one in self.staged.items():
            where = {"host": key[0], "step": key[1]}
            if one.unfit:
                yield key, DoesNotFit(one.unfit, hint=unfit_hint(one, OVERRIDES), **where)
            elif one.problems:
                text = "; ".join(one.problems)
                runs_on = one.takeover is not None and not one.takeover.differs
                what = "cannot be taken over" if runs_on else "would not start"
                yield key, OpsctlError(f"{what}: {text}", hint=mend_hint([one]), **where)


def planned(
    services: Mapping[str, Sequence[str]],
    said: Mapping[str, Sequence[Staged] | OpsctlError],
    *,
    canary: str | None = None,
) -> Planned:
    """`said`: what staging found on each host, without changing anything there, or why it found
    nothing. The order is that of the rollout (order.py)."""
    staged = {
        (one.host, one.service): one
        for found in said.values()
        if not isinstance(found, OpsctlError)
        for one in found
    }
    wanted = {
        key: Wanted(one.digest, one.release.manifest, one.changed, one.takeover)
        for key, one in staged.items()
    }
    states = {
        host: found
        if isinstance(found, OpsctlError)
        else {"services": [{"service": one.service, **one.state} for one in found]}
        for host, found in said.items()
    }
    plan, wrong = draw("swap", services, states, wanted, canary=canary)
    actions: Mapping[Key, Action] = {action.key: action for action in plan.actions}
    details = {key: detail(one, actions.get(key)) for key, one in staged.items()}
    return Planned(plan, staged, details, wrong)


def _where(key: Key) -> str:
    return " ".join(part for part in key if part)
