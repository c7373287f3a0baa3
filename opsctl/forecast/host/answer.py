"""A Case and the Device of one pipeline stage → the host pools of each of its ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opsctl.forecast.device import dsa, stages
from opsctl.forecast.device.settings import speculation
from opsctl.forecast.device.window import pooled
from opsctl.forecast.host import draft as drafts
from opsctl.forecast.host import rows, versions
from opsctl.forecast.host.model import Tier, tier, tiered
from opsctl.forecast.host.refusals import refusal
from opsctl.forecast.host.sizing import (
    Tokens,
    Way,
    by_ratio,
    by_size,
    followed,
    found_free,
    given,
    power_of_two,
)
from opsctl.forecast.values import Case, Device, DevicePool, Figure, HostPool, NoForecast


def host_pools(case: Case, device: Device) -> tuple[HostPool, ...]:
    """In the order in which the engine takes them; none without the host tier.

    A single pool with `refused` set where the engine does not start like this at all. Raises
    NoForecast where its rule is not sure.
    """
    if not tiered(case.flags):
        return ()
    how = tier(case)
    window = rows.pool(device, "swa") is not None
    state = any(pool.name in rows.STATE for pool in device.pools)
    if not device.pools:  # tokens are not known: the geometry alone tells
        window = pooled(case, how.set, False)
        state = bool(case.shape.linear)
    why = refusal(case, how, window=window, state=state)
    if why:
        return (HostPool("kv", 0, device.page, None, None, None, None, None, refused=why),)
    plan = drafts.plan(case, how, window=window)
    if plan == drafts.PACKED and how.set.pp > 1:
        raise NoForecast("MTP layers in host pools over pipeline stages are not forecast")
    return tuple(_pools(_Asked(case, device, how, window or state), plan, window, state))


@dataclass(frozen=True, slots=True)
class _Asked:
    case: Case
    device: Device
    how: Tier
    hybrid: bool  # more than one kind of layers, each with a pool of its own


def _pools(asked: _Asked, plan: str, window: bool, state: bool) -> Iterable[HostPool]:
    case, device, how = asked.case, asked.device, asked.how
    packed = 1 if plan == drafts.PACKED else 0
    ways = _ways(
        asked, [name for name, is_there in (("swa", window), ("mamba", state)) if is_there]
    )
    main = rows.pool(device, "kv")
    count = device.tokens if main is None else main.rows
    row = rows.kv_row(case, device, how, packed=packed)
    inside = case.shape.indexer is not None and how.key < versions.DSA_APART
    spare = device.page * rows.own_indexer_row(case, device, how, packed=0) if inside else 0
    kv, tokens = _own(asked, "kv", row, count, ways["kv"], beside=spare)
    yield kv
    if case.shape.indexer is not None and not inside:
        row = rows.own_indexer_row(case, device, how, packed=packed)
        yield _like(asked, "indexer", "kv", row, tokens, spare=device.page)
    if window:
        swa = rows.pool(device, "swa")
        row = rows.window_row(case, device, how)
        yield _own(asked, "swa", row, None if swa is None else swa.rows, ways["swa"])[0]
    if state:
        slots = rows.pool(device, "mamba")
        row = rows.state_row(case, how, device.stage)
        yield _own(
            asked, "mamba", row, None if slots is None else slots.rows, ways["mamba"], page=1
        )[0]
    if plan == drafts.SIDECAR:
        yield from _sidecar(asked, tokens)


def _sidecar(asked: _Asked, tokens: Tokens) -> Iterable[HostPool]:
    device, how, draft = asked.device, asked.how, asked.case.draft
    assert draft is not None
    beside = followed(tokens, device.tokens, device.page, how.key)
    yield _like(asked, "draft", "kv", rows.draft_row(asked.case, how), beside)
    if draft.indexer is not None and how.key >= versions.PACKED:
        row = len(draft.full) * dsa.index_bytes(draft.indexer)
        yield _like(asked, "draft-indexer", "draft", row, beside, spare=device.page)


# -- one pool -----------------------------------------------------------------------------------


def _own(
    asked: _Asked,
    name: str,
    row: int,
    count: Figure | None,
    way: Way,
    page: int = 0,
    beside: int = 0,
) -> tuple[HostPool, Tokens]:
    """A pool that is sized by itself: by size if there is one, else by the ratio to the device's
    pool of the same name, whose rows are `count`. `beside`: bytes that it takes and does not log
    (a page of index keys, while they are part of it)."""
    how, page = asked.how, page or asked.device.page
    if way.size:
        tokens = by_size(way.size, _widest(asked, row), page, how.key, shared=way.shared)
    else:
        tokens = by_ratio(count, way.ratio, page, how.key)
    value, least, most = (_times(n, row) for n in (tokens.value, tokens.least, tokens.most))
    pool = HostPool(
        name,
        row,
        page,
        None if way.size or how.auto else how.ratio,
        way.size or None,
        tokens.value,
        value,
        _pinned(value, how, beside),
        _pinned(least, how, beside),
        _pinned(most, how, beside),
        of=name,
        auto=how.auto or way.shared,
        refused=_refused(asked, name, tokens, count),
    )
    return pool, tokens


def _like(
    asked: _Asked, name: str, like: str, row: int, tokens: Tokens, *, spare: int = 0
) -> HostPool:
    """A pool that takes the tokens of another. `spare`: rows that are allocated beyond them, which
    the engine does not log."""
    return HostPool(
        name,
        row,
        asked.device.page,
        None,
        None,
        tokens.value,
        _times(tokens.value, row),
        _times(tokens.value, row, spare),
        _times(tokens.least, row, spare),
        _times(tokens.most, row, spare),
        like=like,
        auto=asked.how.auto,
    )


def _times(tokens: int | None, row: int, spare: int = 0) -> int | None:
    return None if tokens is None else (tokens + spare) * row


def _pinned(size: int | None, how: Tier, beside: int = 0) -> int | None:
    if size is None:
        return None
    return size + beside if how.key >= versions.REGISTERED else power_of_two(size) + beside


def _refused(asked: _Asked, name: str, tokens: Tokens, count: Figure | None) -> str:
    version, how = asked.case.version, asked.how
    if how.auto and tokens.most is not None and tokens.most <= asked.device.page:
        return f"{version} finds no host memory for its pools beyond the 10 GiB that it leaves"
    if how.key >= versions.SMALLER or tokens.value is None or count is None:
        return ""
    if tokens.value > count.value:
        return ""
    return (
        f"{version} refuses a host pool {name} of {tokens.value:,} rows: it must be larger than "
        f"the device's, {count.value:,}"
    )


# -- how much -----------------------------------------------------------------------------------


def _ways(asked: _Asked, others: Sequence[str]) -> dict[str, Way]:
    """How the pool "kv" and each of `others` is sized.

    With several pools hicache-size goes to each of them up to 0.5.16, and is split by the device's
    bytes from 0.5.17 on. An indexer's and a draft's pool come on top in all versions.
    """
    device, how = asked.device, asked.how
    names = ("kv", *others)
    if not how.size:
        found = given(how.ratio)
        if how.auto:
            found = found_free(asked.case, how, [_mirrored(asked, pool) for pool in device.pools])
        return dict.fromkeys(names, Way(found, 0.0, False))
    if not others or how.key < versions.SPLIT:
        return dict.fromkeys(names, Way(given(how.ratio), how.size, False))
    shares = dict.fromkeys(names, 0)
    for pool in device.pools:
        name = "mamba" if pool.name in rows.STATE else pool.name
        if name in shares:
            shares[name] += _weight(asked, pool)
    total = sum(shares.values())
    if not all(shares.values()):
        raise NoForecast("hicache-size is split by the device's pools, whose sizes are not known")
    return {
        name: Way(given(how.ratio), how.size * share / total, True)
        for name, share in shares.items()
    }


def _mirrored(asked: _Asked, pool: DevicePool) -> Figure:
    """Bytes of this pool on the stage that has most, by which all stages choose their ratio."""
    weights = (_weight(asked, pool), pool.bytes.least, pool.bytes.most)
    value, least, most = (None if n is None else _widest(asked, n) for n in weights)
    assert value is not None
    return Figure(value, least, most, pool.bytes.basis, pool.bytes.source)


def _weight(asked: _Asked, pool: DevicePool) -> int:
    """Bytes that a device pool is split by. States of draft tokens count as if each had its own
    window of the convolution, which in memory they share."""
    state = rows.pool(asked.device, "mamba")
    if pool.name != "mamba-draft" or state is None:
        return pool.bytes.value
    drafts_each = speculation(asked.case, asked.how.set).tokens
    return (pool.rows.value + 1) * state.bytes_per_row * drafts_each


def _widest(asked: _Asked, size: int) -> int:
    """Bytes of the stage with most layers, from those of this one: it fits the fewest tokens into
    host memory, and all stages take its number from 0.5.15 on. Sure where every layer is alike."""
    how, shape = asked.how, asked.case.shape
    if how.set.pp == 1 or how.key < versions.STAGES_AGREE:
        return size
    keys = shape.indexer is None or len(shape.indexer.layers) in (0, shape.layers)
    if asked.hybrid or (how.auto and not keys):
        raise NoForecast(
            "host pools over pipeline stages of unlike layers are forecast by hicache-ratio only"
        )
    runs = stages.runs(shape.layers, how.set)
    first, end = runs[asked.device.stage]
    return size // (end - first) * max(last - start for start, last in runs)
