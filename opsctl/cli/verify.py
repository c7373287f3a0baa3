"""`opsctl verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from opsctl.cli import fleet
from opsctl.cli.console import data, show
from opsctl.cli.frame import Output, Settings
from opsctl.errors import OpsctlError

if TYPE_CHECKING:
    from opsctl.remote.host import Host

# Gates ask for real answers, each bounded by the release's own request timeout.
LONGEST = 900.0


def verify(
    settings: Settings,
    services: Annotated[
        list[str] | None, typer.Argument(metavar="SERVICE", help="All, if none is named.")
    ] = None,
) -> None:
    """Run every gate on what is serving.

    Asks with real requests; changes nothing. Ends with 0 if no gate fails, 1 if one does, 4
    if a host cannot be reached. Also tells what is known to go wrong with what runs there.
    """
    chosen = fleet.choose(settings, services)
    with fleet.opened(chosen) as reached:
        said = reached.each(
            lambda host: verified(host, chosen.services_of(host.name)), timeout=2 * LONGEST
        )
    if settings.form is Output.text:
        from opsctl.views.verify import report

        show(report(said), settings)
    else:
        from opsctl.views.document import document

        data(document(said), settings.form, each="hosts")
    fleet.raise_lost(said)
    if failed := failures(said):
        lines = [f"{where}: {what}" for where, what in failed]
        service = failed[0][0].split()[1]
        raise OpsctlError("\n".join(["a check failed", *lines]), hint=f"opsctl logs {service}")


def verified(host: Host, services: tuple[str, ...]) -> dict[str, Any]:
    """`collect`, with each service's checks replaced by those of all gates, and advisories."""
    from opsctl.remote.onhost import call

    answers = {name: call(host, "verify", name, timeout=LONGEST) for name in services}
    wanted = [part for name in services for part in ("--service", name)]
    seen = call(host, "collect", *wanted, "--probe")
    seen["services"] = [
        {
            **service,
            "checks": [*(answers[service["service"]].get("checks") or ()), *_ours(service)],
            **_advised(host, service),
        }
        for service in seen["services"]
    ]
    return seen


def _advised(host: Host, service: dict[str, Any]) -> dict[str, Any]:
    """{"advisories"}, or {"unadvised": why}: a host that cannot tell the facts has still been
    judged by its gates."""
    from opsctl.forecast.advised import advice
    from opsctl.rollout.staging import facts_of

    manifest = service.get("manifest")
    if not manifest or "engine" not in manifest:  # of release 0 only the unit is known
        return {}
    try:
        return {"advisories": advice(manifest, facts_of(host, service["service"], manifest))}
    except OpsctlError as error:
        return {"unadvised": error.message}


def _ours(service: dict[str, Any]) -> list[dict[str, Any]]:
    """A unit of other hands must not pass because most gates have nothing to compare it with."""
    if "engine" in (service.get("manifest") or {}) or service["state"] == "absent":
        return []
    if (service.get("release") or {}).get("edited"):
        return []  # the gate `drift` says so, and fails
    detail = "not deployed by opsctl: nothing but its unit can be judged"
    return [{"id": "release", "status": "fail", "detail": detail, "evidence": []}]


def failures(said: dict[str, Any]) -> list[tuple[str, str]]:
    """("HOST SERVICE", what failed there)"""
    return [
        (f"{name} {service['service']}", f"{check['id']}: {check['detail']}")
        for name, answer in said.items()
        if not isinstance(answer, OpsctlError)
        for service in answer["services"]
        for check in service["checks"]
        if check["status"] == "fail"
    ]
