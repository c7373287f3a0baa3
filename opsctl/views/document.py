"""The JSON of `opsctl hosts|status|verify`: a promise to other programs, so keys only ever join.

Every figure of memory is an integer in bytes, or null where the host told none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.errors import OpsctlError, Unreachable
from opsctl.views import advisories, undescribed

SCHEMA_VERSION = 1

# What one host said to `collect` (docs/architecture.md), or why it said nothing.
Said = dict[str, Any] | OpsctlError


def document(said: Mapping[str, Said]) -> dict[str, Any]:
    """All hosts as one document. `ok`: every host answered, every service is as it should be."""
    hosts = [host(name, answer) for name, answer in said.items()]
    answered = not any(isinstance(answer, OpsctlError) for answer in said.values())
    good = answered and all(_good(s) for h in hosts for s in h["services"])
    return {"schema_version": SCHEMA_VERSION, "ok": good, "hosts": hosts}


def host(name: str, answer: Said) -> dict[str, Any]:
    if isinstance(answer, OpsctlError):
        reachable = not isinstance(answer, Unreachable)
        return {"host": name, "reachable": reachable, "error": answer.message, "services": []}
    memory = answer.get("memory") or {}
    services = [_service(s, memory) for s in answer.get("services", ())]
    return {"host": name, "reachable": True, "services": services}


def start_ranks(service: Mapping[str, Any]) -> dict[str, Any]:
    """What each rank logged in the start that runs now; nothing of one that is over, since its
    memory is given back."""
    if service.get("state") in ("inactive", "failed", "absent"):
        return {}
    return (service.get("start") or {}).get("ranks") or {}


def overridden(service: Mapping[str, Any]) -> str:
    """The reason with which this release was started though its forecast does not fit; "" if it
    fits."""
    expect = (service.get("manifest") or {}).get("expect") or {}
    return str(expect.get("override") or "")


def expected_ranks(service: Mapping[str, Any]) -> list[str]:
    """Ranks that the running release must show; empty for a unit that opsctl did not write."""
    return list((service.get("manifest") or {}).get("ranks") or ())


def seen_ranks(service: Mapping[str, Any]) -> list[str]:
    """Expected ranks (all ranks, if none are expected) that logged their KV cache in this start,
    and their host pools if the release says that there are any."""
    ranks = start_ranks(service)
    expect = (service.get("manifest") or {}).get("expect") or {}
    pools = bool(expect.get("host_pools"))
    return [
        name
        for name in expected_ranks(service) or ranks
        if (rank := ranks.get(name))
        and rank.get("kv_tokens") is not None
        and (rank.get("host_pools") or not pools)
    ]


def _service(service: Mapping[str, Any], memory: Mapping[str, Any]) -> dict[str, Any]:
    ranks = start_ranks(service)
    return {
        "service": service["service"],
        "unit": service["unit"],
        "state": service["state"],
        "release": (service.get("release") or {}).get("running"),
        "health": service.get("health") or "unknown",
        "ranks": {"expected": len(expected_ranks(service)), "seen": len(seen_ranks(service))},
        "kv": {key: _least(ranks, f"kv_{key}") for key in ("tokens", "bytes")},
        "host_pools": [
            {"rank": name, "name": pool.get("name", ""), "bytes": _whole(pool.get("bytes"))}
            for name, rank in ranks.items()
            for pool in rank.get("host_pools") or ()
        ],
        "memory": {key: _whole(memory.get(key)) for key in ("total", "available", "swap_used")},
        "checks": [
            {key: check.get(key, "") for key in ("id", "status", "detail")}
            for check in service.get("checks") or ()
        ],
        **({"override": overridden(service)} if overridden(service) else {}),
        **({"from_next_start": later} if (later := _later(service)) else {}),
        **_advised(service),
    }


def _later(service: Mapping[str, Any]) -> list[str]:
    """Of a process that was taken over as it ran."""
    return list((service.get("taken_over") or {}).get("later") or ())


def _advised(service: Mapping[str, Any]) -> dict[str, Any]:
    """`verify` alone knows advisories; the other commands do not ask for them."""
    if "advisories" not in service:
        return {}
    return {"advisories": advisories.entries(service["advisories"])}


def _least(ranks: Mapping[str, Mapping[str, Any]], key: str) -> int | None:
    """The ranks' figures are equal in a good start; in a bad one the least is what serves."""
    values = [rank[key] for rank in ranks.values() if rank.get(key) is not None]
    return int(min(values)) if values else None


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) else None


def _good(service: Mapping[str, Any]) -> bool:
    if undescribed.verdict(service) == "inconclusive":
        return True  # of other hands, and nobody asked for it: nothing of it can be as it should
    ranks = service["ranks"]
    return (
        service["state"] == "active"
        and service["health"] == "ok"
        and ranks["seen"] >= ranks["expected"]
        and not any(check["status"] == "fail" for check in service["checks"])
    )
