"""release.json: what the host's own gates and the controller know a release by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opsctl import engine
from opsctl.engine.compatibility import needs
from opsctl.errors import Problem, SpecError
from opsctl.release.facts import cap_of, draft_of, root_of, served_name_of
from opsctl.release.kinds import gpu_key
from opsctl.spec.models import Service


def outline(name: str, service: Service) -> dict[str, Any]:
    """The manifest of a service that is not rendered: without a digest and marks of secrets.

    For a forecast, which must not wait for a unit and a zipapp that nobody asked for. Flags are
    typed already. Raises SpecError for sizes that do not divide.
    """
    try:
        ranks = engine.catalogue(service.engine.version).ranks(service.flags)
    except ValueError as error:
        raise SpecError([Problem(str(error), service=name, key="flags")]) from None
    return manifest(name, service, dict(service.flags), "", ranks, None, {})


def manifest(
    name: str,
    service: Service,
    typed: dict[str, Any],
    release_digest: str,
    ranks: Sequence[str],
    expect: Mapping[str, Any] | None,
    marks: Mapping[str, str],
) -> dict[str, Any]:
    """release.json, as docs/architecture.md has it."""
    model, gates, timing = service.model, service.gates, service.timing
    version, draft = service.engine.version, draft_of(typed)
    catalogue = engine.catalogue(version)
    gpus = list(service.gpus) if service.gpus is not None else None
    count = len(gpus) if gpus is not None else None
    return {
        "schema_version": 1,
        "service": name,
        "unit": f"sglang-{name}.service",
        "digest": release_digest,
        "user": service.user,
        **({"takes_over": service.takes_over} if service.takes_over else {}),
        "engine": {"version": version, "root": root_of(service)},
        "model": {"path": model.path, "served_name": served_name_of(service), "draft_path": draft},
        "address": {"host": service.host, "port": service.port},
        "api_key_file": "secrets/api-key" if "api-key" in marks else None,
        "flags": typed,
        "env": dict(sorted(service.env.items())),
        "secrets": dict(marks),
        "gpus": gpus,
        "gpu_key": gpu_key(version, model.path, count, typed, service.env),
        "ranks": list(ranks),
        "needs": needs(version) if (typed.get("device") or "cuda") == "cuda" else {},
        "expect": dict(expect) if expect is not None else None,
        "gates": {
            "health_in_row": gates.health_in_row,
            "generation": gates.generation,
            "reasoning": _resolved(gates.reasoning, catalogue.has_reasoning_parser(typed)),
            "tools": _resolved(gates.tools, catalogue.has_tool_parser(typed)),
            "max_tokens": gates.max_tokens,
            "request_timeout": gates.request_timeout,
            "soak": gates.soak,
            "poll": gates.poll,
        },
        "memory": {"min_available": int(service.memory.min_available), "swap": service.memory.swap},
        "timing": {
            "drain": timing.drain,
            "stall": timing.stall,
            "cap": cap_of(service),
            "cap_of": "forecast" if timing.cap is None else "description",
        },
    }


def _resolved(wish: bool | None, parser: bool) -> bool:
    return parser if wish is None else wish
