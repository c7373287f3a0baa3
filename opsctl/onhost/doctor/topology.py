"""`doctor` on how the GPUs of a service reach each other, and the memory. Pure."""

from __future__ import annotations

from itertools import combinations
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from opsctl.onhost.doctor import texts
from opsctl.onhost.doctor.fault import WARN, Fault, Finding, Found, table
from opsctl.onhost.doctor.smi import out

FAULTS = table(
    Fault("topology-split", "topology", WARN, "a service across NUMA nodes without need",
          "ranks exchange over the link between the processors",
          "name the GPUs of one node in `gpus` of {service}: {better}"),
    Fault("nvlink-uneven", "topology", WARN, "an NVLink that is down",
          "pairs of equal cards have unequal links; the slowest pair sets the pace of all",
          "nvidia-smi nvlink -s; nvidia-smi -r when drained; if it stays: the vendor"),
    Fault("p2p-chipset", "p2p", WARN, "a chipset that lets no card reach another",
          "every exchange goes through host memory", "BIOS: ACS and IOMMU off, or `iommu=pt`"),
    Fault("p2p-off", "p2p", WARN, "peer access that was turned off",
          "a setting of the driver forbids it: every exchange goes through host memory",
          "grep -r RegistryDwords /etc/modprobe.d; then reboot"),
)  # fmt: skip
P2P = {"CNS": "p2p-chipset", "DR": "p2p-off"}


def judge(seen: Mapping[str, Any]) -> List[Finding]:
    found = Found(FAULTS)
    read = texts.topology(out(seen, "smi-topology"))
    peers = texts.topology(out(seen, "smi-p2p"))
    for service in seen["services"]:
        manifest, name = service["manifest"], service["service"]
        ranks = len(manifest.get("ranks") or ()) if manifest.get("needs") else 0
        if ranks < 2 or read is None:
            continue
        everything = sorted(read["node"]) or sorted({a for a, _ in read["links"]})
        mine = list(manifest.get("gpus") or everything)[:ranks]
        _nodes(name, mine, ranks, read["node"], found)
        _links(name, mine, read["links"], found)
        if peers is not None:
            _peers(name, mine, peers["links"], found)
    if read is not None:
        found.passed("topology", "links are even, and no service crosses nodes without need")
    if peers is not None:
        found.passed("p2p", "nothing forbids peer access")
    return found.list


def _nodes(
    name: str, mine: Sequence[int], ranks: int, node: Mapping[int, int], found: Found
) -> None:
    """Crossing is a fault only where one node alone has cards enough."""
    used = {node[gpu] for gpu in mine if gpu in node}
    better = one_node(node, ranks)
    if len(used) > 1 and better is not None:
        text = f"{name} on GPUs {', '.join(map(str, mine))} crosses nodes {sorted(used)}"
        cards = ", ".join(map(str, better))
        found.fault("topology-split", text, name, better=f"[{cards}]")


def one_node(node: Mapping[int, int], ranks: int) -> Optional[List[int]]:
    """The first `ranks` cards of a node that has so many; None if none has."""
    for number in sorted(set(node.values())):
        there = sorted(gpu for gpu, its in node.items() if its == number)
        if len(there) >= ranks:
            return there[:ranks]
    return None


def _links(
    name: str, mine: Sequence[int], links: Mapping[Tuple[int, int], str], found: Found
) -> None:
    """Cards whose best link is an NVLink have it to every peer, in equal number, or one is down."""
    pairs: Dict[Tuple[int, int], str] = {
        pair: links[pair] for pair in combinations(sorted(mine), 2) if pair in links
    }
    switched = [link for link in pairs.values() if link.startswith("NV")]
    if len(mine) < 3 or len(switched) < len(pairs) - len(mine) + 1 or not switched:
        return  # bridges between pairs only, or no NVLink at all
    usual = max(set(switched), key=switched.count)
    odd = [f"{a}–{b} {link}" for (a, b), link in pairs.items() if link != usual]
    if odd:
        found.fault("nvlink-uneven", f"{name}: {', '.join(odd[:4])}; the others {usual}", name)


def _peers(
    name: str, mine: Sequence[int], links: Mapping[Tuple[int, int], str], found: Found
) -> None:
    for word, fault in P2P.items():
        pairs = [p for p in combinations(sorted(mine), 2) if links.get(p) == word]
        if pairs:
            first, second = pairs[0]
            text = (
                f"{name}: {len(pairs)} pairs without peer access, GPUs {first} and {second} first"
            )
            found.fault(fault, text, name)
