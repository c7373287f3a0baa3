"""Whether the ranks' memory fits the NUMA nodes that the engine binds them to.

Sources: utils/numa_utils.py of 0.5.8 to 0.5.23 and HiRadixCache of 0.5.8 and 0.5.9.

0.5.8 and 0.5.9 bind by themselves with numa_set_preferred: memory spills to other nodes, nothing
can fail. From 0.5.10 on every scheduler on a host with several nodes is started through
`numactl --membind`, which is strict: beyond the node's memory the kernel kills, however much the
others have. It needs numactl installed; SGLANG_NUMA_BIND_V2=0 makes it preferred again, and from
0.5.18 on SGLANG_AUTO_NUMA_BIND=0 turns it off. With --numa-node it is strict since 0.5.8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opsctl.forecast.device.settings import parsed
from opsctl.forecast.values import Case
from opsctl.onhost.expect import gib

_STRICT_BY_HAND = (0, 5, 8)
_AUTOMATIC = (0, 5, 10)
_CAN_BE_OFF = (0, 5, 18)
_FALSE = frozenset({"0", "false", "no", "n", "f", "off"})


def lacking(case: Case, needs: Sequence[int]) -> tuple[bool, str]:
    """`needs`: bytes of each rank. (surely, why); (False, "") if the nodes hold them all."""
    memory, key, env = case.memory, parsed(case.version), case.env or {}
    if memory is None or len(memory.nodes) < 2 or _off(env, "SGLANG_NUMA_BIND_V2"):
        return False, ""
    by_hand = case.flags.get("numa-node")
    if by_hand and key >= _STRICT_BY_HAND:
        return _short(memory.available, memory.nodes, needs, _given(by_hand), "--numa-node")
    if key < _AUTOMATIC or (key >= _CAN_BE_OFF and _off(env, "SGLANG_AUTO_NUMA_BIND")):
        return False, ""
    count, places = len(memory.nodes), case.hardware.nodes
    if len(places) < len(needs):  # not known: as machines are usually built
        places = tuple(n * count // len(needs) for n in range(len(needs)))
    _, why = _short(memory.available, memory.nodes, needs, places, "numactl, if it is installed,")
    return False, why  # whether it is installed is not known here


def _short(
    available: int,
    nodes: Sequence[int],
    needs: Sequence[int],
    places: Sequence[int],
    binder: str,
) -> tuple[bool, str]:
    # What this service holds now comes back on some node: as much on each, nothing better is known.
    back = max(0, available - sum(nodes)) // len(nodes)
    taken = [0] * len(nodes)
    for need, node in zip(needs, places, strict=False):
        if not 0 <= node < len(nodes):
            return True, f"{binder} names node {node}, and there are {len(nodes)}"
        taken[node] += need
    for node, size in enumerate(taken):
        has = nodes[node] + back
        if size > has:
            return True, (
                f"{binder} binds ranks to NUMA node {node}: they take {gib(size)}, it has "
                f"{gib(has)}"
            )
    return False, ""


def _given(value: object) -> list[int]:
    if isinstance(value, (list, tuple)):
        return [int(node) for node in value]
    return [int(node) for node in str(value).replace(",", " ").split()]


def _off(env: Mapping[str, str], name: str) -> bool:
    return str(env.get(name, "")).lower() in _FALSE
