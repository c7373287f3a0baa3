"""The stand-in nvidia-smi's longer answers: `-q -x` and `topo`. Eight sound cards, four a node.

Only what tools ask is told; where a real card tells nothing, neither does this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Box = Mapping[str, Any]
A_NODE = 4  # cards on one processor, as on the reference host

CARD = """\
\t<gpu id="{bus}">
\t\t<product_name>{name}</product_name>
\t\t<persistence_mode>Enabled</persistence_mode>
\t\t<mig_mode>
\t\t\t<current_mig>Disabled</current_mig>
\t\t\t<pending_mig>Disabled</pending_mig>
\t\t</mig_mode>
\t\t<uuid>{uuid}</uuid>
\t\t<gpu_reset_status>
\t\t\t<reset_required>No</reset_required>
\t\t</gpu_reset_status>
\t\t<gpu_recovery_action>None</gpu_recovery_action>
\t\t<pci>
\t\t\t<pci_bus_id>{bus}</pci_bus_id>
\t\t\t<pci_gpu_link_info>
\t\t\t\t<pcie_gen>
\t\t\t\t\t<max_link_gen>5</max_link_gen>
\t\t\t\t\t<current_link_gen>1</current_link_gen>
\t\t\t\t</pcie_gen>
\t\t\t\t<link_widths>
\t\t\t\t\t<max_link_width>16x</max_link_width>
\t\t\t\t\t<current_link_width>16x</current_link_width>
\t\t\t\t</link_widths>
\t\t\t</pci_gpu_link_info>
\t\t</pci>
\t\t<performance_state>P8</performance_state>
\t\t<clocks_event_reasons>
\t\t\t<clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
\t\t\t<clocks_event_reason_hw_thermal_slowdown>Not Active</clocks_event_reason_hw_thermal_slowdown>
\t\t\t<clocks_event_reason_sw_thermal_slowdown>Not Active</clocks_event_reason_sw_thermal_slowdown>
\t\t</clocks_event_reasons>
\t\t<fb_memory_usage>
\t\t\t<total>{total} MiB</total>
\t\t\t<used>{used} MiB</used>
\t\t</fb_memory_usage>
\t\t<compute_mode>Default</compute_mode>
\t\t<utilization>
\t\t\t<gpu_util>0 %</gpu_util>
\t\t</utilization>
\t\t<ecc_mode>
\t\t\t<current_ecc>Disabled</current_ecc>
\t\t\t<pending_ecc>Disabled</pending_ecc>
\t\t</ecc_mode>
\t\t<gpu_power_readings>
\t\t\t<power_state>P8</power_state>
\t\t\t<current_power_limit>600.00 W</current_power_limit>
\t\t\t<default_power_limit>600.00 W</default_power_limit>
\t\t</gpu_power_readings>
\t\t<fabric>
\t\t\t<state>N/A</state>
\t\t\t<status>N/A</status>
\t\t</fabric>
\t</gpu>
"""


def xml(
    box: Box, bus: Callable[[Mapping[str, Any]], str], uuid: Callable[[Mapping[str, Any]], str]
) -> str:
    cards = "".join(
        CARD.format(
            bus=bus(gpu),
            name=box["name"],
            uuid=uuid(gpu),
            total=gpu["total_mib"],
            used=gpu["used_mib"],
        )
        for gpu in box["gpus"]
    )
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n'
        "<!-- REHEARSAL: no GPU is here, the figures come from a scenario file -->\n"
        f"<nvidia_smi_log>\n\t<driver_version>{box['driver']}</driver_version>\n"
        f"\t<cuda_version>{box['cuda']}</cuda_version>\n"
        f"\t<attached_gpus>{len(box['gpus'])}</attached_gpus>\n{cards}</nvidia_smi_log>\n"
    )


def topology(box: Box) -> str:
    """As `topo -m` prints it: PCIe only, the far half behind the other processor."""
    return _matrix(box, "NODE", "SYS", tail="\t0-63\t{node}\t\tN/A")


def peers(box: Box) -> str:
    """As `topo -p2p r` prints it."""
    return _matrix(box, "OK", "OK", tail="")


def _matrix(box: Box, near: str, far: str, tail: str) -> str:
    indices = [gpu["index"] for gpu in box["gpus"]]
    head = "".join(f"\tGPU{i}" for i in indices)
    lines = [head + ("\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID" if tail else "")]
    for a in indices:
        cells = [" X " if a == b else near if a // A_NODE == b // A_NODE else far for b in indices]
        lines.append(f"GPU{a}\t" + "\t".join(cells) + tail.format(node=a // A_NODE))
    return "\n".join(lines) + "\n"
