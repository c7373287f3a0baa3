"""How runs that have ended end the command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.errors import GateFailed, OpsctlError, RolledBack
from opsctl.views.progress import outcome

# The worst outcome of a fleet is the command's: what is not restored needs hands first.
_ERRORS: dict[str, type[OpsctlError]] = {"failed": GateFailed, "rolled_back": RolledBack}


def raise_for(results: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
    """GateFailed (exit 6) or RolledBack (exit 5) if any run ended so; nothing if all is well."""
    for kind, error in _ERRORS.items():
        bad = {key: r for key, r in results.items() if r.get("outcome") == kind}
        if not bad:
            continue
        (host, service), first = next(iter(bad.items()))
        if len(bad) == 1:
            raise error(
                f"{service}: {outcome(first)}",
                host=host,
                step=_step(first),
                log=[str(line) for line in first.get("log") or ()],
                hint=f"opsctl logs {service} --host {host}",
            )
        lines = [f"{len(bad)} runs ended badly"]
        lines += [f"{h} {s}: {outcome(result)}" for (h, s), result in bad.items()]
        raise error("\n".join(lines), hint=f"opsctl logs {service} --host {host}")


def _step(result: Mapping[str, Any]) -> str:
    """The gate that failed."""
    failed = [c["id"] for c in result.get("checks") or () if c.get("status") == "fail"]
    return f"gate {failed[0]}" if failed else ""
