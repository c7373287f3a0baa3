"""The expectation that travels in a release, and the words that explain it.

Pure: a manifest (of a release rendered without an expectation), the host's answer to `facts`, and
the calibration of the description go in; release.json's "expect" comes out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opsctl.forecast import fit as fits
from opsctl.forecast import kv
from opsctl.forecast.geometry import Geometry, NoForecast, geometry, layers_of_draft
from opsctl.forecast.pools import pools, tiered
from opsctl.onhost.expect import count, gb, gib, host_pool_tokens
from opsctl.onhost.learned import RECORDED, recorded_tokens


@dataclass(frozen=True)
class Forecast:
    """`expect` is None where nothing can be said, and `notes` says why. `lines` explain it all."""

    expect: dict[str, Any] | None
    fit: fits.Fit | None
    notes: tuple[str, ...] = ()
    lines: tuple[str, ...] = field(default=())


def expectation(
    manifest: Mapping[str, Any], facts: Mapping[str, Any], calibration: Any = None
) -> dict[str, Any] | None:
    """The "expect" of release.json; None where the model is of a kind that is not forecast."""
    return forecast(manifest, facts, calibration).expect


def forecast(
    manifest: Mapping[str, Any], facts: Mapping[str, Any], calibration: Any = None
) -> Forecast:
    """What this release will take on this host.

    `facts`: the answer of the host's verb `facts`. Of it are used: "model" and "draft" (each
    {"texts": {file name: text}}), "memory", "gpus", "starts" (StartFacts + "gpu_key"), "running"
    (StartFacts of what runs now, or None), "service_memory" ({"bytes"}).
    `calibration`: an object or mapping with gpu_free_before, gpu_free_after, kv_tokens (or None).
    """
    flags, version = manifest["flags"], str(manifest["engine"]["version"])
    try:
        shape = geometry(
            _text(facts, "model", "config.json"), _text(facts, "model", "hf_quant_config.json")
        )
        kv.refuse_unmodelled(flags, manifest.get("env") or {})
        cards = [str(gpu.get("name", "")) for gpu in facts.get("gpus") or []]
        page = kv.page(shape, flags, cards)
        cell = kv.cell(shape, flags, version)
    except NoForecast as reason:
        return Forecast(None, None, (str(reason),), (f"No forecast: {reason}.",))
    notes: list[str] = []
    tokens = _tokens(manifest, facts, calibration, shape, cell, page, notes)
    expect: dict[str, Any] = {
        "kv": {
            "tokens": tokens.value,
            "min": tokens.least,
            "max": tokens.most,
            "bytes_per_token": cell,
            "basis": tokens.basis,
            "source": tokens.source,
        },
        "host_pools": [],
        "host_total": 0,
        "available_after": None,
        "available_least": None,
    }
    _add_pools(expect, manifest, shape, page, notes)
    fit = _fit(expect, manifest, facts)
    if fit is not None:
        expect["available_after"], expect["available_least"] = fit.available_after, fit.least
    expect["notes"] = notes
    return Forecast(expect, fit, tuple(notes), tuple(explain(expect, manifest, fit)))


# -- tokens -------------------------------------------------------------------------------------


def _tokens(
    manifest: Mapping[str, Any],
    facts: Mapping[str, Any],
    calibration: Any,
    shape: Geometry,
    cell: int,
    page: int,
    notes: list[str],
) -> kv.Tokens:
    """The best source that there is: an earlier start with the same GPU settings, figures that
    the owner wrote down, or the cap that a flag sets."""
    flags = manifest["flags"]
    recorded = recorded_tokens(manifest, facts.get("starts") or [])
    if recorded is not None:
        return kv.measured(recorded, cell, RECORDED)
    written = _written(calibration, "kv_tokens")
    try:
        computed = _computed(manifest, facts, calibration, shape, cell)
    except NoForecast as reason:
        notes.append(str(reason))
        computed = None
    if computed is not None:
        computed = kv.capped(computed, flags, page)
        inside = written is not None and _within(written, computed)
        if not inside:
            if written is not None:
                notes.append("calibration.kv_tokens is of other settings and was not used")
            return computed
    if written is not None:
        found = kv.measured(written, cell, "calibration.kv_tokens of the description")
        return kv.capped(found, flags, page)
    notes.append(
        "the number of tokens is not known before the first start: no start with the same GPU "
        "settings is recorded, and memory.calibration is not set"
    )
    unknown = kv.Tokens(None, None, None, "estimated", "max-total-tokens, if set")
    return kv.capped(unknown, flags, page)


def _computed(
    manifest: Mapping[str, Any],
    facts: Mapping[str, Any],
    calibration: Any,
    shape: Geometry,
    cell: int,
) -> kv.Tokens | None:
    before, after = (_written(calibration, f"gpu_free_{when}") for when in ("before", "after"))
    if before is None or after is None:
        return None
    flags, version = manifest["flags"], str(manifest["engine"]["version"])
    fraction = flags.get("mem-fraction-static")
    if fraction is None:
        raise NoForecast("mem-fraction-static is not set: the engine chooses it by itself")
    draft = _text(facts, "draft", "config.json")
    layers = layers_of_draft(draft) if draft else None
    divisor = kv.charged(cell, shape, flags, version, layers)
    reserve, doubt = kv.multimodal_reserve(shape, flags, manifest.get("env") or {}, version)
    return kv.from_free_memory(
        before, after, float(fraction), divisor, reserve=reserve, doubt=doubt
    )


def _text(facts: Mapping[str, Any], which: str, name: str) -> str:
    folder = facts.get(which) or {}
    return str((folder.get("texts") or {}).get(name) or "")


def _within(tokens: int, band: kv.Tokens) -> bool:
    return (band.least or 0) <= tokens and (band.most is None or tokens <= band.most)


def _written(calibration: Any, name: str) -> int | None:
    if calibration is None:
        return None
    found = (
        calibration.get(name)
        if isinstance(calibration, Mapping)
        else getattr(calibration, name, None)
    )
    return None if found is None else int(found)


# -- host ---------------------------------------------------------------------------------------


def _add_pools(
    expect: dict[str, Any],
    manifest: Mapping[str, Any],
    shape: Geometry,
    page: int,
    notes: list[str],
) -> None:
    flags, version = manifest["flags"], str(manifest["engine"]["version"])
    if not tiered(flags):
        return
    try:
        found = pools(
            shape,
            flags,
            version,
            bytes_per_token=expect["kv"]["bytes_per_token"],
            page=page,
            tokens=expect["kv"]["tokens"],
            element=kv.element(shape, flags),
        )
    except NoForecast as reason:
        notes.append(str(reason))
        expect["host_pools"] = expect["host_total"] = None
        return
    expect["host_pools"] = found
    known = all(pool["bytes"] is not None for pool in found)
    total = sum(pool["bytes"] or 0 for pool in found) * len(manifest["ranks"])
    expect["host_total"] = total if known else None


def _fit(
    expect: Mapping[str, Any], manifest: Mapping[str, Any], facts: Mapping[str, Any]
) -> fits.Fit | None:
    memory = facts.get("memory")
    if not memory or manifest["flags"].get("device") == "cpu":
        return None  # on a CPU the weights and the KV cache take host memory too
    sizes = [pool["bytes"] for pool in expect["host_pools"] or []]
    known = expect["host_total"] is not None and None not in sizes
    return fits.of_total(
        fits.stopped(memory, facts.get("running"), facts.get("service_memory")),
        len(manifest["ranks"]),
        sizes if known else None,
        int(manifest["memory"]["min_available"]),
        str(manifest["engine"]["version"]),
    )


# -- words --------------------------------------------------------------------------------------


def explain(
    expect: Mapping[str, Any], manifest: Mapping[str, Any], fit: fits.Fit | None
) -> list[str]:
    """The forecast as an operator reads it, one thought a line."""
    found, ranks = expect["kv"], len(manifest["ranks"])
    lines = [f"{count(found['bytes_per_token'])} B a token and rank"]
    if found["tokens"] is None:
        lines.append("tokens: not known before the first start")
    else:
        size = gib(found["tokens"] * found["bytes_per_token"])
        lines.append(
            f"{count(found['tokens'])} tokens = {size} a rank, {found['basis']}: {found['source']}"
        )
    for pool in expect["host_pools"] or []:
        lines.append(_pool_line(pool, found["tokens"], ranks, manifest))
    if fit is not None and fit.available_after is not None:
        lines.append(f"{gib(fit.available_after)} of host memory left: {fit.verdict}")
        lines += fit.reasons
    return [*lines, *(expect.get("notes") or [])]


def _pool_line(
    pool: Mapping[str, Any], device: int | None, ranks: int, manifest: Mapping[str, Any]
) -> str:
    if pool["bytes"] is None:
        return f"host pool {pool['name']}: ratio {pool['ratio']}, size not known yet"
    tokens = host_pool_tokens(
        device or 0,
        bytes_per_token=pool["bytes_per_token"],
        ratio=pool["ratio"],
        size=pool["size"],
        page=pool["page"],
        version=str(manifest["engine"]["version"]),
    )
    total = pool["bytes"] * ranks
    return (
        f"host pool {pool['name']}: {count(tokens)} tokens = {gb(pool['bytes'])} a rank, "
        f"× {ranks} = {gb(total)} = {gib(total)}"
    )
