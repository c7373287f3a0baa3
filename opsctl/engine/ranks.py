"""Which ranks log on one host, labelled as the journal's reader labels them.

Read from the launchers of all releases 0.5.2 … 0.5.23, whose rule is one (entrypoints/engine.py,
managers/data_parallel_controller.py), and the prefix that each scheduler gives its log lines: DP if
a data-parallel rank is set, PP and TP where their size is above 1 (TP before PP until 0.5.5; the
journal's reader sorts them). The parts ATTN_CP, MOE_DP and EP follow from TP and are left out. A
single rank shows nothing and is called TP0.

Not known here: sizes that the engine changes by the model's kind (context parallelism of
DeepSeek V3.2 and V4, dwdp), SGLANG_DP_RANK, which a router sets, and the offset of a replica that
joins an elastic one (elastic-ep-join-rank-offset, from 0.5.16 on).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def ranks(flags: Mapping[str, Any]) -> list[str]:
    """Labels of the ranks of this host, in the engine's order of launch.

    `flags`: typed values by canonical name. Raises ValueError for sizes that do not divide.
    """
    tp, pp, replicas = (int(flags.get(name, 1)) for name in ("tp-size", "pp-size", "dp-size"))
    groups = int(flags.get("attn-dp-size", 1))
    if flags.get("enable-dp-attention") and groups == 1:
        replicas, groups = 1, replicas
    nodes, node = int(flags.get("nnodes", 1)), int(flags.get("node-rank", 0))
    _judge(tp, pp, replicas, groups, nodes, node)

    pp_each, nodes_each_pp = max(pp // nodes, 1), max(nodes // pp, 1)
    tp_each = tp // nodes_each_pp
    stages = range(pp_each * (node // nodes_each_pp), pp_each * (node // nodes_each_pp + 1))
    within = node % nodes_each_pp
    found = []
    for replica in range(replicas):
        for stage in stages:
            for rank in range(tp_each * within, tp_each * (within + 1)):
                dp = rank // (tp // groups) if groups > 1 else replica if replicas > 1 else None
                found.append(_label(dp, stage if pp > 1 else None, rank if tp > 1 else None))
    return found


def _label(dp: int | None, pp: int | None, tp: int | None) -> str:
    parts = [f"{name}{n}" for name, n in (("DP", dp), ("PP", pp), ("TP", tp)) if n is not None]
    return " ".join(parts) or "TP0"


def _judge(tp: int, pp: int, replicas: int, groups: int, nodes: int, node: int) -> None:
    sizes = {"tp-size": tp, "pp-size": pp, "dp-size": replicas, "attn-dp-size": groups}
    for name, size in {**sizes, "nnodes": nodes}.items():
        if size < 1:
            raise ValueError(f"{name} is {size}: it must be at least 1")
    if not 0 <= node < nodes:
        raise ValueError(f"node-rank is {node}: with nnodes {nodes} it is 0 to {nodes - 1}")
    if tp % groups:
        raise ValueError(f"tp-size {tp} is not a multiple of its {groups} attention groups")
    if tp * pp % nodes or (pp % nodes and nodes % pp) or (nodes > pp and tp % (nodes // pp)):
        raise ValueError(f"tp-size {tp} × pp-size {pp} cannot be spread over {nodes} nodes")
