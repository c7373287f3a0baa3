"""A service and its host → what conditions of advisories may ask about. Missing facts stay out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from opsctl.engine.advisories import Advisory, Facts, advisories
from opsctl.engine.advisories.checkpoint import model
from opsctl.forecast import hostside
from opsctl.forecast.case import case as case_of
from opsctl.forecast.device.dsa import row_share
from opsctl.forecast.device.dtype import kv_dtype
from opsctl.forecast.device.fraction import aiter_share, images_share
from opsctl.forecast.device.settings import settings
from opsctl.forecast.evaluate import Result, evaluate
from opsctl.forecast.slack import slack, table
from opsctl.forecast.values import Case, Geometry, Hardware, HostMemory, Latent, NoForecast
from opsctl.onhost.expect import GB, GiB

Answer = Mapping[str, Any]  # of the verb `facts`


def advice(
    manifest: Mapping[str, Any], answer: Answer, known: Case | None = None
) -> list[Advisory]:
    """Of a release on a host, also where its model is not forecast, or does not fit. `known`: its
    case, where somebody has made it."""
    try:
        whole = known or case_of(manifest, answer)
    except NoForecast:
        return bare(manifest, answer)
    try:
        result = evaluate(whole, swap=manifest["memory"]["swap"])
    except NoForecast:
        return advisories(facts(manifest, whole, None, answer))
    return advisories(facts(manifest, whole, result, answer))


def bare(manifest: Mapping[str, Any], answer: Answer) -> list[Advisory]:
    """What needs no figure of a forecast: the same is known of every release."""
    hardware, memory = hostside.hardware(manifest, answer), hostside.memory(answer)
    return advisories(_facts(manifest, answer, hardware, memory, {}, {}))


def facts(
    manifest: Mapping[str, Any], case: Case, result: Result | None, answer: Answer | None = None
) -> Facts:
    """`result` None: there are no figures."""
    shape = case.shape
    known = {
        "architecture": shape.architecture,
        "kind": list(kinds(shape)),
        "nextn": shape.nextn,
        "context": shape.context,
    }
    told, hardware = answer or {}, case.hardware
    figures = {**_shares(case), **({} if result is None else _forecast(case, result))}
    return _facts(manifest, told, hardware, case.memory, known, figures)


def kinds(shape: Geometry) -> tuple[str, ...]:
    """mla or mha first, then what stands on top of it."""
    found = ["mla" if isinstance(shape.attention, Latent) else "mha"]
    found += ["dsa"] if shape.indexer is not None else []
    found += ["swa"] if shape.window else []
    found += ["linear"] if shape.linear else []
    found += ["vision"] if shape.multimodal else []
    return tuple(found)


def _facts(
    manifest: Mapping[str, Any],
    answer: Answer,
    hardware: Hardware,
    memory: HostMemory | None,
    shape: Mapping[str, Any],
    forecast: Mapping[str, Any],
) -> Facts:
    return Facts(
        str(manifest["engine"]["version"]),
        manifest["flags"],
        manifest.get("env") or {},
        {**_model(manifest, answer), **_known(shape)},
        _known(_hardware(hardware, answer)),
        _ranks(manifest),
        _known(_host(manifest, memory, answer)),
        _known(forecast),
    )


def _known(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if value is not None}


def _model(manifest: Mapping[str, Any], answer: Answer) -> dict[str, Any]:
    texts = (answer.get("model") or {}).get("texts") or {}
    folder = str(manifest["model"]["path"]).rstrip("/").rpartition("/")[2]
    flag = str(manifest["flags"].get("quantization") or "")
    return model(texts.get("config.json", ""), texts.get("hf_quant_config.json", ""), folder, flag)


def _hardware(seen: Hardware, answer: Answer) -> dict[str, Any]:
    capability = seen.capability
    return {
        "vendor": seen.vendor,
        "card": list(seen.cards) or None,
        "count": seen.count or None,
        "capability": None if capability is None else float(f"{capability[0]}.{capability[1]}"),
        "memory": None if seen.total is None else seen.total / GiB,
        "mixed": len(set(seen.cards)) > 1 if seen.cards else None,
        "taken": _taken(answer),
    }


def _taken(answer: Answer) -> float | None:
    """Of services of ours the neighbours' figures tell; strangers are processes of nobody's."""
    if "gpu_strangers" not in answer:
        return None
    held: dict[Any, int] = {}
    for one in answer["gpu_strangers"]:
        if not one.get("service"):
            held[one.get("gpu")] = held.get(one.get("gpu"), 0) + int(one.get("memory") or 0)
    return max(held.values(), default=0) / GiB


def _ranks(manifest: Mapping[str, Any]) -> dict[str, Any]:
    flags = manifest["flags"]
    return {
        "host": len(manifest["ranks"]),
        "tp": int(flags.get("tp-size") or 1),
        "pp": int(flags.get("pp-size") or 1),
        "dp": int(flags.get("dp-size") or 1),
        "nodes": int(flags.get("nnodes") or 1),
    }


def _host(manifest: Mapping[str, Any], memory: HostMemory | None, answer: Answer) -> dict[str, Any]:
    limits = [int(group["limit"]) for group in answer.get("cgroups") or ()]
    unit = answer.get("unit") or {}
    found: dict[str, Any] = {
        "swappable": manifest["memory"]["swap"] == "allow",
        "cgroup_limit": min(limits, default=0) / GiB if "cgroups" in answer else None,
        "driver": driver(str(answer.get("driver") or "")),
        "container": answer.get("container"),
        "shm": answer["shm"] / GiB if answer.get("shm") is not None else None,
        **{name: unit.get(name) for name in ("kill_mode", "memlock", "nofile")},
    }
    if memory is not None:
        found |= {
            "ram": memory.total / GiB,
            "available": memory.available / GiB,
            "swap_total": memory.swap_total / GiB,
            "swap_used": memory.swap_used / GiB,
            "hugepages": memory.hugepages / GiB,
            "numa": len(memory.nodes) or None,
            "services": 1 + len(memory.others),
        }
    return found


def driver(version: str) -> float | None:
    """ "580.65.06" → 580.65."""
    found = re.match(r"\d+\.\d+", version)
    return float(found[0]) if found else None


def _shares(case: Case) -> dict[str, float]:
    """What the engine takes otherwise than a reader of the flags would think, as it is reckoned
    with: whatever has no figures."""
    try:
        set_ = settings(case)
    except NoForecast:
        return {}
    given = case.flags.get("mem-fraction-static") is not None
    known: dict[str, Callable[[], float]] = {
        "images_share": lambda: images_share(case, set_),
        "aiter_share": lambda: aiter_share(case, set_, given=given),
        "row_share": lambda: row_share(case, set_, kv_dtype(case, set_)),
    }
    found = {}
    for name, reckon in known.items():
        with suppress(NoForecast):
            found[name] = reckon()
    return found


def _forecast(case: Case, result: Result) -> dict[str, Any]:
    device, pool = result.device, result.per_rank
    tokens = device.tokens.value if device.tokens else None
    left, requests = slack(case, device), table(case, device)
    total, memory = result.host_total, case.memory
    host_tokens = result.host_tokens
    context = case.flags.get("context-length") or case.shape.context
    return {
        "rest": device.rest.value / GiB if device.rest else None,
        "tokens": tokens,
        "context": int(context) if context else None,
        "contexts": tokens / int(context) if tokens is not None and context else None,
        "device_pool": tokens * device.cell / GiB if tokens is not None else None,
        "host_pool": pool / GB if pool is not None else None,
        "host_share": total / memory.available if total is not None and memory else None,
        "host_ratio": host_tokens / tokens if host_tokens and tokens else None,
        "table": None if requests is None else requests / GiB,
        "gpu_left": left.left.value / GiB if left else None,
        "verdict": result.fit.verdict,
    }
