"""The host's part of a Case, from its answer to `facts`: memory, GPUs, what a start will find."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from opsctl.forecast.host.memory import PROCESS
from opsctl.forecast.values import AFTER, ANY, BEFORE, Beginning, Hardware, HostMemory, Other
from opsctl.onhost.expect import gib
from opsctl.onhost.occupied import cards as taken_cards
from opsctl.onhost.occupied import span

# Nodes whose sum is not the host's memory say nothing of it (a container, a rehearsal host).
NODES_AGREE = 0.05
# Of a card; a driver and an idle context hold less. A judgement.
TAKEN = 2 << 30
STARTING = ("active", "activating", "reloading")


def hardware(manifest: Mapping[str, Any], facts: Mapping[str, Any]) -> Hardware:
    """The GPUs of this service: those of `gpus`, else all; only those in order have figures."""
    cards: Sequence[Mapping[str, Any]] = facts.get("gpus") or ()
    asked = manifest.get("gpus")
    if asked is not None:
        cards = [card for card in cards if card["index"] in asked]
    totals = [int(card["memory_total"] or 0) for card in cards if card.get("state") == "ok"]
    known = [total for total in totals if total]
    capabilities = [tuple(card["capability"]) for card in cards if card.get("capability")]
    links = [card["link"] for card in cards if card.get("link")]
    nodes = [card.get("node") for card in cards]
    return Hardware(
        count=len(cards) or len(asked or ()),
        cards=tuple(str(card.get("name") or "") for card in cards),
        total=min(known) if known else None,
        capability=min(capabilities) if len(capabilities) == len(cards) and cards else None,
        vendor=_vendor(manifest, cards),
        link=min(((e["generation"], e["width"]) for e in links), key=_speed, default=None),
        nodes=tuple(int(n) for n in nodes if n is not None) if None not in nodes else (),
    )


def _speed(link: tuple[int, int]) -> int:
    """Each generation doubles a lane."""
    return int(link[1] << link[0])


def _vendor(manifest: Mapping[str, Any], cards: Sequence[Mapping[str, Any]]) -> str:
    if manifest["flags"].get("device") == "cpu":
        return "cpu"
    vendors = {str(card.get("vendor") or "nvidia") for card in cards}
    return "amd" if vendors == {"amd"} else "nvidia"


def memory(facts: Mapping[str, Any]) -> HostMemory | None:
    """The host's memory with this service stopped. None if it was not told."""
    seen = facts.get("memory")
    if not seen:
        return None
    mine = held(facts)
    return HostMemory(
        total=int(seen["total"]),
        available=int(seen["available"]) + mine,
        cgroup_headroom=headroom(facts.get("cgroups") or (), mine),
        hugepages=sum(int(h["size"]) * int(h["free"]) for h in facts.get("hugepages") or ()),
        swap_total=int(seen["swap_total"]),
        swap_used=int(seen["swap_used"]),
        nodes=nodes(facts.get("nodes") or (), seen),
        others=tuple(others(facts.get("others") or ())),
    )


def held(facts: Mapping[str, Any]) -> int:
    """What comes back when this service stops: the kernel's count of its memory. That is not
    believed if it is less than the pools that the running start has logged (huge pages are in no
    count): then those count, and a process a rank, as a record of such a start has it."""
    running = facts.get("running") or {}
    ranks = (running.get("ranks") or {}).values()
    pools = sum(int(pool["bytes"]) for rank in ranks for pool in rank.get("host_pools") or ())
    counted = int((facts.get("service_memory") or {}).get("bytes") or 0)
    if counted and counted >= pools:
        return counted
    return pools + len(ranks) * _process(facts, running)


def _process(facts: Mapping[str, Any], running: Mapping[str, Any]) -> int:
    """Bytes of one rank of what runs, beside its pools. A start that no guard has seen (a hand's,
    systemd's own) has no record: the newest of its release tells it, else of its settings of the
    GPU, else of as many ranks. A guess would be another figure than the forecast reckons with."""
    manifest = (facts.get("standing") or {}).get("manifest") or {}
    known = [start for start in facts.get("starts") or () if start.get("process")]
    wanted = (
        ("invocation", running.get("invocation")),
        ("digest", manifest.get("digest")),
        ("gpu_key", manifest.get("gpu_key")),
    )
    for key, value in wanted:
        for start in known:
            if value is not None and start.get(key) == value:
                return int(start["process"])
    ranks = len(running.get("ranks") or {})
    return next((int(s["process"]) for s in known if len(s.get("ranks") or {}) == ranks), PROCESS)


def headroom(chain: Sequence[Mapping[str, Any]], held: int) -> int | None:
    """What the tightest of the unit's control groups leaves; what the service itself holds is
    given back. None without a limit."""
    left = [int(group["limit"]) - max(0, int(group["used"]) - held) for group in chain]
    return max(0, min(left)) if left else None


def nodes(found: Sequence[Mapping[str, int]], seen: Mapping[str, Any]) -> tuple[int, ...]:
    total = sum(node["total"] for node in found)
    if abs(total - int(seen["total"])) > NODES_AGREE * int(seen["total"]):
        return ()
    return tuple(node["available"] for node in found)


def others(found: Iterable[Mapping[str, Any]]) -> Iterable[Other]:
    """What other services will still take: those that run or start, those that start at boot, and
    those that are staged and were never started. One that somebody stopped and disabled is not
    counted; one whose pools are not known counts with its processes, one that is ready with what
    its release was forecast beyond what it has logged. One that is `settled` by the
    time that this service starts runs its new release by then: it may also give something back.
    One that is deployed `after` it takes nothing before."""
    for one in found:
        counts = (
            one["state"] in STARTING or one["enabled"] == "enabled" or not one.get("standing", True)
        )
        process = int(one.get("process") or PROCESS)
        taken = int(one["held"])
        if one.get("pinned") is not None:  # its start is over: nothing of it is still to come
            taken = max(taken, int(one["pinned"]) + int(one["ranks"]) * process)
        left = int(one["expected"] or 0) + int(one["ranks"]) * process - taken
        if counts and (left > 0 or one.get("settled")):
            when = BEFORE if one.get("settled") else AFTER if one.get("after") else ANY
            yield Other(str(one["service"]), left, when, _why(one))


def _why(one: Mapping[str, Any]) -> str:
    """How it is known that a service will take memory, for people."""
    name, state = one["service"], one["state"]
    if one.get("settled"):
        return "it is deployed before this one"
    if one.get("after"):
        return "it is deployed after this one"
    if not one.get("standing", True):
        remove = f"opsctl remove {name} --limit HOST"
        return f"it is staged and was never started ({remove} takes it away)"
    if state in STARTING:
        return f"its unit is {state}, and holds less than its release will take"
    return (
        f"its unit is {state} and starts at the next boot (opsctl remove {name} --limit HOST, or "
        f"systemctl disable sglang-{name} on the host, ends that)"
    )


def on_the_cards(manifest: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """What is on this service's GPUs while it does not run itself, for people; "" where nothing
    is. Its start is refused as long as that stays, and no figure of a forecast tells it."""
    if facts.get("running") or (facts.get("service_memory") or {}).get("bytes"):
        return ""
    wanted = set(taken_cards(manifest))
    used = {
        int(card["index"]): int(card.get("memory_used") or 0)
        for card in facts.get("gpus") or ()
        if int(card["index"]) in wanted
    }
    held = {index: size for index, size in used.items() if size >= TAKEN}
    if not held:
        return ""
    running = [str(one["service"]) for one in facts.get("others") or () if one["state"] in STARTING]
    who = (
        f" ({', '.join(running)} {'runs' if len(running) == 1 else 'run'} here)" if running else ""
    )
    return (
        f"up to {gib(max(held.values()))} of GPU {span(held)} are in use while this service does "
        f"not run{who}: the forecast is of free GPUs, and a start beside that is refused"
    )


def beginning(manifest: Mapping[str, Any], facts: Mapping[str, Any]) -> Beginning:
    """What a start now would read, and what of it is warm."""
    model, draft = facts.get("model") or {}, facts.get("draft") or {}
    return Beginning(
        model_bytes=model.get("weights_bytes") or None,
        draft_bytes=draft.get("weights_bytes") or None,
        cached=model.get("cached"),
        storage=str((model.get("storage") or {}).get("kind") or ""),
        loaded=loaded(facts.get("starts") or ()),
        kernels=kernels(manifest, facts),
    )


def loaded(starts: Iterable[Mapping[str, Any]]) -> int | None:
    """Bytes a second that the newest start here read from the disk, of starts that found little of
    their model in the page cache."""
    for start in starts:
        size = (start.get("model") or {}).get("bytes")
        share = start.get("cached")
        took = [
            float(rank["load_seconds"])
            for rank in (start.get("ranks") or {}).values()
            if rank.get("load_seconds")
        ]
        if size and took and share is not None and share <= 0.5:
            return int(size * (1 - share) / max(took))
    return None


def kernels(manifest: Mapping[str, Any], facts: Mapping[str, Any]) -> bool | None:
    """Whether kernels are compiled already: the caches hold some, and the last start was of this
    engine version. None if nothing was told, or if that start left none: it needed none, or
    somebody cleared the caches."""
    found = facts.get("kernels")
    if not found:
        return None
    if found["engine_version"] != manifest["engine"]["version"]:
        return False
    return True if found["files"] else None
