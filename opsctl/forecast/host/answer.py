"""A Case and the Device of one pipeline stage → the host pools of each of its ranks."""

from __future__ import annotations

from collections.abc import Iterable

from opsctl.forecast.device import stages
from opsctl.forecast.host import draft as drafts
from opsctl.forecast.host import rows, versions
from opsctl.forecast.host.model import Tier, tier, tiered
from opsctl.forecast.host.refusals import refusal
from opsctl.forecast.host.sizing import (
    Ratio,
    Tokens,
    by_ratio,
    by_size,
    followed,
    found_free,
    given,
    power_of_two,
)
from opsctl.forecast.values import Case, Device, Figure, HostPool, NoForecast


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
        window, state = bool(case.shape.window), bool(case.shape.linear)
    why = refusal(case, how, window=window, state=state)
    if why:
        return (HostPool("kv", 0, device.page, None, None, None, None, None, refused=why),)
    plan = drafts.plan(case, how, window=window)
    if plan == drafts.PACKED and how.set.pp > 1:
        raise NoForecast("MTP layers in host pools over pipeline stages are not forecast")
    packed = 1 if plan == drafts.PACKED else 0
    return tuple(_pools(case, device, how, plan, packed, window, state))


def _pools(
    case: Case, device: Device, how: Tier, plan: str, packed: int, window: bool, state: bool
) -> Iterable[HostPool]:
    ratio = _ratio(case, device, how)
    sizes = _sizes(device, how, window or state)
    kv_row = rows.kv_row(case, device, how, packed=packed)
    main = rows.pool(device, "kv")
    count = device.tokens if main is None else main.rows
    found, tokens = _own(case, device, how, "kv", kv_row, count, ratio, sizes.get("kv"))
    yield found
    if case.shape.indexer is not None and how.key >= versions.DSA_APART:
        row = rows.own_indexer_row(case, device, how, packed=packed)
        yield _like(how, "indexer", "kv", row, tokens, device.page, spare=device.page)
    if window:
        swa = rows.pool(device, "swa")
        row = rows.window_row(case, device, how)
        pool, _ = _own(
            case,
            device,
            how,
            "swa",
            row,
            None if swa is None else swa.rows,
            ratio,
            sizes.get("swa"),
        )
        yield pool
    if state:
        yield _state(case, device, how, ratio, sizes.get("mamba"))
    if plan == drafts.SIDECAR:
        assert case.draft is not None
        row = rows.draft_row(case.draft, how)
        beside = followed(tokens, device.tokens, device.page, how.key)
        yield _like(how, "draft", "kv", row, beside, device.page)
        if case.draft.indexer is not None and how.key >= versions.PACKED:
            row = len(case.draft.full) * rows.indexer_row(case.draft.indexer.head_dim)
            yield _like(how, "draft-indexer", "draft", row, beside, device.page, spare=device.page)


def _state(case: Case, device: Device, how: Tier, ratio: Ratio, size: float | None) -> HostPool:
    """Slots of recurrent state; a "page" is one slot."""
    pools = [pool for pool in device.pools if pool.name in rows.STATE]
    if not pools:
        raise NoForecast("the size of the recurrent state is not known")
    row = sum(pool.bytes_per_row for pool in pools)
    pool, _ = _own(case, device, how, "mamba", row, pools[0].rows, ratio, size, page=1)
    return pool


# -- one pool -----------------------------------------------------------------------------------


def _own(
    case: Case,
    device: Device,
    how: Tier,
    name: str,
    row: int,
    count: Figure | None,
    ratio: Ratio,
    size: float | None,
    page: int | None = None,
) -> tuple[HostPool, Tokens]:
    """A pool that is sized by itself: by size if there is one, else by the ratio to the device's
    pool of the same name."""
    page = device.page if page is None else page
    if size:
        tokens = by_size(size, _widest(case, how, device, row), page, how.key)
    else:
        tokens = by_ratio(count, ratio, page, how.key)
    bytes_ = None if tokens.value is None else tokens.value * row
    pool = HostPool(
        name,
        row,
        page,
        None if size or how.auto else how.ratio,
        size or None,
        tokens.value,
        bytes_,
        _pinned(bytes_, how),
        _pinned(None if tokens.least is None else tokens.least * row, how),
        _pinned(None if tokens.most is None else tokens.most * row, how),
        of=name,
        auto=how.auto,
        refused=_too_small(case.version, name, tokens, count, how),
    )
    return pool, tokens


def _like(
    how: Tier, name: str, like: str, row: int, tokens: Tokens, page: int, *, spare: int = 0
) -> HostPool:
    """A pool that takes the tokens of another. `spare`: rows that are allocated beyond them, which
    the engine does not log."""

    def taken(count: int | None) -> int | None:
        return None if count is None else (count + spare) * row

    value = tokens.value
    return HostPool(
        name,
        row,
        page,
        None,
        None,
        value,
        None if value is None else value * row,
        taken(value),
        taken(tokens.least),
        taken(tokens.most),
        like=like,
        auto=how.auto,
    )


def _pinned(size: int | None, how: Tier) -> int | None:
    if size is None or how.key >= versions.REGISTERED:
        return size
    return power_of_two(size)


def _too_small(version: str, name: str, tokens: Tokens, count: Figure | None, how: Tier) -> str:
    if how.key >= versions.SMALLER or tokens.value is None or count is None:
        return ""
    if tokens.value > count.value:
        return ""
    return (
        f"{version} refuses a host pool {name} of {tokens.value:,} rows: it must be larger than "
        f"the device's, {count.value:,}"
    )


# -- how much -----------------------------------------------------------------------------------


def _ratio(case: Case, device: Device, how: Tier) -> Ratio:
    if not how.auto:
        return given(how.ratio)
    if not device.pools:
        return Ratio(None, None, None)
    return found_free(case, how, [pool.bytes for pool in device.pools])


def _sizes(device: Device, how: Tier, several: bool) -> dict[str, float]:
    """GB of each pool by name; none if they are sized by ratio.

    With several pools hicache-size goes to each of them up to 0.5.16, and is split by the device's
    bytes from 0.5.17 on. An indexer's and a draft's pool come on top in all versions.
    """
    if not how.size:
        return {}
    if not several or how.key < versions.SPLIT:
        return dict.fromkeys(("kv", "swa", "mamba"), how.size)
    shares: dict[str, int] = {}
    for pool in device.pools:
        name = "mamba" if pool.name in rows.STATE else pool.name
        if name in ("kv", "swa", "mamba"):
            shares[name] = shares.get(name, 0) + pool.bytes.value
    total = sum(shares.values())
    if not total:
        raise NoForecast("hicache-size is split by the device's pools, whose sizes are not known")
    return {name: how.size * share / total for name, share in shares.items()}


def _widest(case: Case, how: Tier, device: Device, row: int) -> int:
    """The row of the stage that fits the fewest tokens into hicache-size, whose number all stages
    take from 0.5.15 on. Sure where every layer is alike."""
    if how.set.pp == 1 or how.key < versions.STAGES_AGREE:
        return row
    shape = case.shape
    if shape.window or shape.linear:
        raise NoForecast("hicache-size over pipeline stages of a hybrid model is not forecast")
    runs = stages.runs(shape.layers, how.set)
    mine = runs[device.stage][1] - runs[device.stage][0]
    return row // mine * max(end - first for first, end in runs)
