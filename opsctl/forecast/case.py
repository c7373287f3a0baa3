"""A manifest, the host's answer to `facts` and what was measured → the Case of a forecast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from opsctl.errors import Refused
from opsctl.forecast import carried, credible, hostside
from opsctl.forecast.calibration import UNTYPED, Typed, in_use, measured
from opsctl.forecast.device import device
from opsctl.forecast.dimensions import eagle, imagined
from opsctl.forecast.shape import draft_geometry, geometry
from opsctl.forecast.values import Case, Figure, Geometry, NoForecast
from opsctl.forecast.weights import DRAFT, TARGET, weights
from opsctl.onhost.expect import count, version_key

# Where weights come from that nobody has seen.
DIMENSIONS = "config.json's dimensions and the engine's sharding"


def case(
    manifest: Mapping[str, Any],
    facts: Mapping[str, Any],
    calibration: Any = None,
    journal: str = "",
    asked: Typed = UNTYPED,
) -> Case:
    """Raises NoForecast for a model that is not forecast, Refused for a journal of no start and
    for figures that were typed and cannot be."""
    version, flags = str(manifest["engine"]["version"]), manifest["flags"]
    text = _text(facts, "model", "config.json")
    if not text:
        raise NoForecast(_unread(facts))
    shape = geometry(text, _text(facts, "model", "hf_quant_config.json"), version)
    draft = _draft(manifest, facts, shape)
    hardware = hostside.hardware(manifest, facts)
    vendor = hardware.vendor
    loads, why = _weights(facts, "model", shape, flags, version, vendor)
    drafts = _draft_weights(facts, shape, draft, flags, version, vendor)
    first = drafts if version_key(version) >= carried.DRAFT_FIRST else None
    held = credible.known(flags, loads, first, asked.size, hardware, in_use(facts))
    whole = Case(
        version=version,
        flags=flags,
        env=manifest.get("env") or {},
        ranks=tuple(manifest["ranks"]),
        shape=shape,
        draft=draft,
        hardware=hardware,
        memory=hostside.memory(facts),
        measured=measured(manifest, facts, calibration, journal, held, asked),
        weights=loads,
        draft_weights=drafts,
        min_available=int(manifest["memory"]["min_available"]),
        beginning=hostside.beginning(manifest, facts),
    )
    return consistent(possible(_lacking(whole, why), calibration, asked))


def _lacking(whole: Case, why: str) -> Case:
    """With a note which size config.json lacks, where nothing else tells the weights."""
    seen = whole.measured
    if "lacks" not in why or credible.loaded(seen) is not None or seen.tokens is not None:
        return whole
    note = f"{why}: the weights of a rank do not follow from it"
    return replace(whole, measured=replace(seen, notes=(*seen.notes, note)))


def possible(whole: Case, calibration: Any, asked: Typed) -> Case:
    """Without a number of tokens that the cards cannot hold. Raises Refused if it was typed."""
    seen, why = whole.measured, credible.too_many(whole)
    if not why:
        return whole
    if "kv_tokens" in asked.names and seen.tokens == calibration.get("kv_tokens"):
        raise Refused(f"--gpu-tokens: {why}")
    note = f"the number of tokens was not used ({seen.source}): {why}"
    return replace(whole, measured=replace(seen, tokens=None, notes=(*seen.notes, note)))


def _text(facts: Mapping[str, Any], which: str, name: str) -> str:
    texts = (facts.get(which) or {}).get("texts") or {}
    return str(texts.get(name) or "")


def _unread(facts: Mapping[str, Any]) -> str:
    """Why there is no config.json to read."""
    folder = facts.get("model") or {}
    if folder.get("silent"):
        return str(folder["silent"])
    if not folder.get("exists", True):
        return f"{folder.get('path')} is not there"
    return "config.json is not there, or empty"


def _draft(
    manifest: Mapping[str, Any], facts: Mapping[str, Any], target: Geometry
) -> Geometry | None:
    """None without a draft model, or where its folder was not read."""
    algorithm = str(manifest["flags"].get("speculative-algorithm") or "").upper()
    if algorithm in ("", "NGRAM"):
        return None
    text = _text(facts, "draft", "config.json")
    if manifest["model"].get("draft_path") and not text:
        return None
    quant = _text(facts, "draft", "hf_quant_config.json") or None
    version = str(manifest["engine"]["version"])
    return draft_geometry(text or None, quant, target, algorithm, version)


def _weights(
    facts: Mapping[str, Any],
    which: str,
    shape: Geometry,
    flags: Mapping[str, Any],
    version: str,
    vendor: str,
    part: str = TARGET,
) -> tuple[Figure | None, str]:
    """From the tensors' shapes, else from those that config.json's dimensions make; None, and why,
    where neither are known, or not all ways of sharding are."""
    folder = facts.get(which) or {}
    tensors = folder.get("tensors")
    try:
        if tensors:
            return weights(tensors, shape, flags, version, part, vendor), ""
        return _by_dimensions(facts, which, shape, flags, version, vendor, part), ""
    except NoForecast as reason:
        return None, str(reason)


# Ways to load that keep the weights otherwise than the files do.
_OTHERWISE = ("gguf", "bitsandbytes", "sharded_state")


def _by_dimensions(
    facts: Mapping[str, Any],
    which: str,
    shape: Geometry,
    flags: Mapping[str, Any],
    version: str,
    vendor: str,
    part: str,
) -> Figure:
    """Raises NoForecast."""
    texts = _text(facts, which, "config.json"), _text(facts, which, "hf_quant_config.json")
    if flags.get("load-format") in _OTHERWISE:
        raise NoForecast("the weights are kept otherwise than the files hold them")
    make = eagle if which == "draft" and "Eagle" in shape.architecture else imagined
    if which == "draft":  # `shape` is cut down to the draft's layers; the file's are meant
        shape = geometry(texts[0], texts[1], version)
    try:
        made = make(texts[0], texts[1] or None, shape, version)
    except (KeyError, TypeError, ValueError) as problem:
        raise NoForecast(f"config.json's dimensions are not read: {problem}") from None
    found = weights(made, shape, flags, version, part, vendor)
    return replace(found, source=DIMENSIONS)


def _draft_weights(
    facts: Mapping[str, Any],
    target: Geometry,
    draft: Geometry | None,
    flags: Mapping[str, Any],
    version: str,
    vendor: str,
) -> Figure | None:
    """A draft lies in a folder of its own, or inside the target's checkpoint."""
    if draft is None:
        return None
    if facts.get("draft"):
        return _weights(facts, "draft", draft, flags, version, vendor)[0]
    return _weights(facts, "model", target, flags, version, vendor, DRAFT)[0]


def consistent(whole: Case) -> Case:
    """Without a number of tokens that somebody only says to be of these settings, if what was free
    on the GPUs contradicts it: such a number is of other settings."""
    seen = whole.measured
    if seen.tokens is None or seen.sure or seen.free_before is None or seen.free_after is None:
        return whole
    try:
        found = device(replace(whole, measured=replace(seen, tokens=None)))
    except NoForecast:
        return whole
    for one in found:
        tokens = one.tokens
        if tokens is None or tokens.least is None or tokens.most is None:
            continue
        if not tokens.least <= seen.tokens <= tokens.most:
            note = (
                f"{count(seen.tokens)} tokens are of other settings and were not used: free GPU "
                f"memory gives {count(tokens.least)} to {count(tokens.most)}"
            )
            return replace(whole, measured=replace(seen, tokens=None, notes=(*seen.notes, note)))
    return whole
