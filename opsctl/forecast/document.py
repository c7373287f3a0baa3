"""A forecast for programs: docs/reference/forecast.md says what each key means.

Units stand in the names: `_gib` is 2^30 bytes, `_gb` 10^9 bytes, `seconds`; else tokens and bytes.
A figure X comes with `X_band` ([least, most], null where a side is not known), `X_basis`
(computed, measured, estimated) and `X_source`.
"""

from __future__ import annotations

from typing import Any

from opsctl.engine.advisories import Advisory
from opsctl.forecast import start
from opsctl.forecast.compare import Variant
from opsctl.forecast.evaluate import Result
from opsctl.forecast.outlook import Outlook
from opsctl.forecast.solve import Solved
from opsctl.forecast.told import Told
from opsctl.forecast.values import Device, Figure, HostPool, Room
from opsctl.onhost.expect import GB, GiB

SCHEMA = 1
DIGITS = 4


def answer(told: Told) -> dict[str, Any]:
    """All that `opsctl forecast` was asked, JSON-ready. What was not asked has no key."""
    whole = _refusal(told) if told.outlook is None else document(told.outlook)
    if told.solved is not None or told.unsolved:
        whole["fit"] = _solved(told.solved) if told.solved else {"unknown": told.unsolved}
    if told.compared:
        whole["compare"] = [_variant(one) for one in told.compared]
    if told.steps:
        whole["explain"] = list(told.steps)
    return whole


def document(said: Outlook) -> dict[str, Any]:
    """All that is known of one service, JSON-ready."""
    stages = said.result.devices
    whole: dict[str, Any] = {
        "schema_version": SCHEMA,
        "service": said.service,
        "engine": said.case.version,
        "model": _model(said),
        "ranks": len(said.case.ranks),
        "rank_names": list(said.case.ranks),
        "verdict": said.verdict,
        "gpu": _gpu(said, 0),
        "host": _host(said),
        "start": _start(said),
        "payoff": said.payoff.as_json() if said.payoff else None,
        "advisories": [_advisory(one) for one in said.advisories],
        "notes": list(said.notes),
    }
    if len(stages) > 1:
        whole["stages"] = [
            {"stage": f"PP{one.stage}", "gpu": _gpu(said, n), "pools": _host_pools(said, n)}
            for n, one in enumerate(stages)
        ]
    return whole


def _refusal(told: Told) -> dict[str, Any]:
    """The document of what is not forecast: the same first keys, and why."""
    return {
        "schema_version": SCHEMA,
        "service": told.service,
        "engine": told.version,
        "ranks": len(told.ranks),
        "rank_names": list(told.ranks),
        "verdict": told.verdict,
        "refused": told.refused,
        **({"gpu": _room(told.room)} if told.room is not None else {}),
        "advisories": [_advisory(one) for one in told.advisories],
        "notes": list(told.notes),
    }


def _room(room: Room) -> dict[str, Any]:
    """What lacks where the weights leave nothing."""
    return {
        "mem_fraction_static": room.fraction,
        "mem_fraction_static_above": room.above,
        **sized("weights_gib", room.weights, GiB),
        **sized("reserve_gib", room.reserve, GiB),
        **sized("rest_gib", room.rest, GiB),
    }


def sized(name: str, figure: Figure | None, unit: int = 1) -> dict[str, Any]:
    """{"tokens": …, "tokens_band": […], "tokens_basis": …, "tokens_source": …}"""
    if figure is None:
        return {name: None, f"{name}_band": None, f"{name}_basis": None, f"{name}_source": None}
    return {
        name: in_unit(figure.value, unit),
        f"{name}_band": [in_unit(figure.least, unit), in_unit(figure.most, unit)],
        f"{name}_basis": figure.basis,
        f"{name}_source": figure.source,
    }


def in_unit(value: float | None, unit: int) -> float | int | None:
    if value is None or unit == 1:
        return value
    return round(value / unit, DIGITS)


# -- parts ----------------------------------------------------------------------------------------


def _advisory(one: Advisory) -> dict[str, Any]:
    return {
        "id": one.id,
        "severity": one.severity,
        "text": one.text,
        "symptom": one.symptom,
        "advice": one.advice,
        "reference": list(one.reference),
        "certain": one.certain,
    }


def _model(said: Outlook) -> dict[str, Any]:
    shape = said.case.shape
    return {
        "path": said.model,
        "architecture": shape.architecture,
        "attention": list(said.kinds),
        "layers": shape.layers,
        "draft_architecture": said.case.draft.architecture if said.case.draft else None,
    }


def _gpu(said: Outlook, stage: int) -> dict[str, Any]:
    device: Device = said.result.devices[stage]
    return {
        "bytes_per_token": device.cell,
        "charged_bytes_per_token": device.charged,
        "page": device.page,
        "mem_fraction_static": device.fraction and round(device.fraction, 6),
        **sized("weights_gib", said.weights, GiB),
        **sized("reserve_gib", device.reserve, GiB),
        **sized("rest_gib", device.rest, GiB),
        **sized("tokens", device.tokens),
        **sized("kv_gib", kv_bytes(device), GiB),
        "max_running_requests": device.max_running,
        "verdict": said.result.fit.gpu,
        "pools": [
            {
                "name": pool.name,
                **sized("tokens", pool.rows),
                "bytes_per_token": pool.bytes_per_row,
                **sized("gib", pool.bytes, GiB),
            }
            for pool in device.pools
        ],
    }


def kv_bytes(device: Device) -> Figure | None:
    """All pools of the target: tokens × bytes for plain attention, as the engine prints it."""
    tokens = device.tokens
    if tokens is None:
        return None
    if {pool.name for pool in device.pools} <= {"kv", "draft"}:
        sizes = [
            None if n is None else n * device.cell
            for n in (tokens.value, tokens.least, tokens.most)
        ]
    else:
        own = [pool.bytes for pool in device.pools if not pool.name.startswith("draft")]
        sizes = [
            _sum([one.value for one in own]),
            _sum([one.least for one in own]),
            _sum([one.most for one in own]),
        ]
    return Figure(sizes[0] or 0, sizes[1], sizes[2], tokens.basis, tokens.source)


def _sum(parts: list[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _host_pools(said: Outlook, stage: int) -> list[dict[str, Any]] | None:
    pools = said.result.pools[stage]
    return None if pools is None else [_host_pool(pool) for pool in pools]


def _host_pool(pool: HostPool) -> dict[str, Any]:
    return {
        "name": pool.name,
        "tokens": pool.tokens,
        "gb": in_unit(pool.bytes, GB),
        "bytes": pool.bytes,
        "pinned_gb": in_unit(pool.pinned, GB),
        "bytes_per_token": pool.bytes_per_token,
        "page": pool.page,
        "ratio": pool.ratio,
        "size_gb": pool.size,
    }


def _host(said: Outlook) -> dict[str, Any]:
    fit, memory = said.result.fit, said.case.memory
    return {
        "tier": said.tier,
        "pools": _host_pools(said, 0),
        "per_rank_gb": in_unit(said.result.per_rank, GB),
        "total_gb": in_unit(said.result.host_total, GB),
        "total_gib": in_unit(said.result.host_total, GiB),
        "prefix_tokens": said.result.prefix,
        "prefix_caches": said.caches,
        "available_before_gib": in_unit(memory.available if memory else None, GiB),
        "available_after_gib": in_unit(fit.available_after, GiB),
        "available_after_gib_band": [in_unit(fit.least, GiB), None],
        "demanded_gib": in_unit(said.case.min_available, GiB),
        "verdict": fit.ram,
        "reasons": list(fit.reasons),
    }


def _start(said: Outlook) -> dict[str, Any]:
    total = said.start_total
    return {
        **sized("seconds", total),
        "cap_seconds": start.cap(said.start),
        "phases": [
            {"phase": name, **sized("seconds", figure)} for name, figure in said.start.items()
        ],
    }


# -- wishes ---------------------------------------------------------------------------------------


def _solved(found: Solved) -> dict[str, Any]:
    return {
        "key": found.key,
        "value": found.value,
        "set": list(found.sets),
        "unit": found.unit,
        "possible": found.possible,
        "headroom_gib": in_unit(found.headroom, GiB),
        "gpu_headroom_gib": in_unit(found.gpu_headroom, GiB),
        "limits": list(found.limits),
        "notes": list(found.notes),
        **_chosen(found.result),
    }


def _chosen(result: Result | None) -> dict[str, Any]:
    """What the value that was found leads to."""
    if result is None:
        return {}
    tokens = result.device.tokens
    return {
        "tokens": tokens.value if tokens else None,
        "per_rank_gb": in_unit(result.per_rank, GB),
        "total_gib": in_unit(result.host_total, GiB),
        "available_after_gib": in_unit(result.fit.available_after, GiB),
        "verdict": result.fit.verdict,
    }


def _variant(one: Variant) -> dict[str, Any]:
    head = {"name": one.name, "set": list(one.sets), "notes": list(one.notes)}
    said = one.outlook
    if said is None:
        return {**head, "refused": one.why}
    device, total = said.result.device, said.start_total
    return {
        **head,
        "prefix_tokens": said.result.prefix,
        **sized("kv_gib", kv_bytes(device), GiB),
        **_chosen(said.result),
        "reasons": list(said.result.fit.reasons),
        **sized("start_seconds", total),
        "advisories": [advisory.id for advisory in said.advisories],
    }
