"""What the engine makes of a service's flags together: refused late, rewritten, passed over."""

from __future__ import annotations

from collections.abc import Sequence

from opsctl.engine import rules
from opsctl.errors import Problem
from opsctl.spec.models import Service


def refused(name: str, service: Service) -> list[Problem]:
    """What the engine would refuse. Flags are typed and by canonical name."""
    judged = _judged(service)
    return _problems(name, service, judged.refusals if judged.checked else ())


def noted(name: str, service: Service) -> list[Problem]:
    """What it would do otherwise than written; and, of a version that its rules were not checked
    against, what the last one that they were would refuse."""
    judged = _judged(service)
    return _problems(name, service, judged.notes if judged.checked else judged.findings)


def later(name: str, service: Service) -> list[Problem]:
    """What starts, and then fails or answers wrongly."""
    found = [one for one in _judged(service).notes if one.kind == rules.LATER]
    return _problems(name, service, found)


def _judged(service: Service) -> rules.Judged:
    facts = rules.Facts(
        service.engine.version, service.flags, service.env, {"folder": str(service.model.path)}
    )
    return rules.judge(facts)


def _problems(name: str, service: Service, found: Sequence[rules.Finding]) -> list[Problem]:
    return [
        Problem(
            one.text,
            service=name,
            key=f"flags.{one.flag}",
            value=_shown(service.flags[one.flag]) if one.flag in service.flags else "",
            hint=one.hint,
        )
        for one in found
    ]


def _shown(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 200 else text[:200] + "…"
