"""`opsctl status`: one line a service, read from what the hosts said to `collect`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from opsctl.errors import OpsctlError, Unreachable
from opsctl.onhost.model import waits
from opsctl.views.document import Said, expected_ranks, overridden, seen_ranks, start_ranks
from opsctl.views.figures import NONE, brief, count, gb, gib, short, span
from opsctl.views.fold import Listing
from opsctl.views.locks import left_over
from opsctl.views.undescribed import CHECK as DESCRIBED

HEAD = 6  # what is looked for first, and stays in one line where there is no room for all
COLUMNS = (
    "HOST",
    "SERVICE",
    "STATE",
    "RELEASE",
    "HEALTH",
    "RANKS",
    "KV TOKENS",
    "HOST POOLS",
    "AVAILABLE",
    "FOR",
    "NOTE",
)


def rows(said: Mapping[str, Said]) -> list[tuple[str, ...]]:
    """The cells of the table; a host that said nothing still has its line."""
    found: list[tuple[str, ...]] = []
    for name, answer in said.items():
        if isinstance(answer, OpsctlError):
            state = "unreachable" if isinstance(answer, Unreachable) else "error"
            found.append((name, NONE, state, *[NONE] * 7, brief(answer.message)))
        elif not answer.get("services"):
            found.append((name, NONE, "no service", *[NONE] * 8))
        else:
            found += [_row(name, answer, service) for service in answer["services"]]
    return found


def table(said: Mapping[str, Said]) -> Listing:
    body = rows(said)
    notes = any(row[-1] != NONE for row in body)
    columns = COLUMNS if notes else COLUMNS[:-1]
    shown = [row[: len(columns)] for row in body]
    return Listing(columns, shown, head=HEAD, style=_style, nothing=NONE)


def _row(name: str, answer: Mapping[str, Any], service: Mapping[str, Any]) -> tuple[str, ...]:
    since = service.get("since") or 0
    running = service.get("state") in ("active", "activating") and since
    return (
        name,
        service["service"],
        _state(service),
        release(service),
        str(service.get("health") or "unknown"),
        ranks(service),
        tokens(service),
        pools(service),
        gib((answer.get("memory") or {}).get("available")),
        span(answer["time"] - since) if running else NONE,
        note(service),
    )


def _state(service: Mapping[str, Any]) -> str:
    """As systemd tells it; but one that only waits to be started again is not on its way."""
    if service.get("masked") and service.get("state") == "inactive":
        return "masked"
    if waits(str(service.get("sub") or "")):
        return str(service["sub"])
    return str(service.get("state") or NONE)


def release(service: Mapping[str, Any]) -> str:
    known = service.get("release") or {}
    running = known.get("running")
    if running is None:
        return NONE
    if known.get("edited"):
        return "edited by hand"
    if running == "0" and service.get("masked"):
        return NONE
    if running == "0":
        return "0 (not by opsctl)"
    word = "confirmed" if running == known.get("confirmed") else "not confirmed"
    return f"{short(running)} {word}"


def ranks(service: Mapping[str, Any]) -> str:
    """Seen of expected; of a unit that promises none (other hands wrote it) those that logged."""
    seen, expected = seen_ranks(service), expected_ranks(service)
    if not expected:
        return str(len(seen)) if seen else NONE
    return f"{len(seen)}/{len(expected)}"


def tokens(service: Mapping[str, Any]) -> str:
    """Equal on all ranks in a good start; if not, the least and the most."""
    facts = start_ranks(service).values()
    values = sorted({r["kv_tokens"] for r in facts if r.get("kv_tokens") is not None})
    if not values:
        return NONE
    return count(values[0]) if len(values) == 1 else f"{count(values[0])} … {count(values[-1])}"


def pools(service: Mapping[str, Any]) -> str:
    """Host memory by rank: "8 × 44.77 GB", or each figure with the number of its ranks."""
    sums = Counter(
        sum(int(pool["bytes"]) for pool in rank["host_pools"])
        for rank in start_ranks(service).values()
        if rank.get("host_pools")
    )
    if not sums:
        return NONE
    return ", ".join(f"{n} × {gb(size)}" for size, n in sorted(sums.items(), reverse=True))


def note(service: Mapping[str, Any]) -> str:
    """What an operator must know before he touches this service."""
    said = [f"masked: {mend}"] if (mend := service.get("masked")) else []
    if left_over(service):
        said.append("a run has ended unwatched: `opsctl watch` shows how")
    elif lock := service.get("lock"):
        said.append(f"locked by {lock.get('owner', '?')}: {lock.get('reason') or 'no reason'}")
    if (run := service.get("run")) and run.get("active"):
        said.append(f"run {run['run']}: {run.get('phase') or 'starting'}")
    if failed := (service.get("run") or {}).get("failed"):
        said.append(f"the last run failed, of release {short(failed.get('release'))}")
    if (service.get("release") or {}).get("pending"):
        said.append("a swap is pending")
    said += [
        check["detail"]
        for check in service.get("checks") or ()
        if (check["id"] == "drift" and check["status"] == "fail") or check["id"] == DESCRIBED
    ]
    if restarts := service.get("restarts"):
        said.append(f"{restarts} restart{'' if restarts == 1 else 's'}")
    if reason := overridden(service):
        said.append(f"its forecast did not fit, overridden: {reason}")
    if later := (service.get("taken_over") or {}).get("later"):
        said.append(f"runs as it was taken over; from the next start on: {', '.join(later)}")
    if parked := service.get("parked"):
        said.append(
            f"stopped for: {parked.get('reason') or 'work on the host'}; a boot starts it when "
            f"doctor finds the host well, or now: opsctl start {service['service']}"
        )
    expected = expected_ranks(service)
    missing = [r for r in expected if r not in seen_ranks(service)]
    if missing and service.get("state") == "active":
        said.append(f"{', '.join(missing)} missing")
    return "; ".join(said) or NONE


_STYLES = {
    "green": ("active", "ok", "pass"),
    "yellow": ("activating", "starting", "inconclusive", "unknown"),
    "red": (
        "failed",
        "auto-restart",
        "masked",
        "inactive",
        "absent",
        "unhealthy",
        "unreachable",
        "error",
        "fail",
    ),
}


def _style(cell: str) -> str:
    return next((style for style, words in _STYLES.items() if cell in words), "")
