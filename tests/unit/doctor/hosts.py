"""Hosts in which nothing is wrong, as `doctor` reads them: only the lines that matter, of real
outputs. A test plants a fault by changing a text."""

from __future__ import annotations

import copy
from typing import Any

from opsctl.engine.compatibility import needs

GiB = 1 << 30
RTX = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
H100 = "NVIDIA H100 80GB HBM3"
DRIVER = "580.105.08"

OS = {
    "debian": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nID=debian\n',
    "ubuntu": 'PRETTY_NAME="Ubuntu 22.04.5 LTS"\nVERSION_ID="22.04"\nID=ubuntu\nID_LIKE=debian\n',
    "rocky": 'PRETTY_NAME="Rocky Linux 9.4 (Blue Onyx)"\nVERSION_ID="9.4"\nID="rocky"\n'
    'ID_LIKE="rhel centos fedora"\n',
}
MEMINFO = """\
MemTotal:       471020339 kB
MemFree:        10123456 kB
MemAvailable:   82418073 kB
Shmem:         349999999 kB
SwapTotal:       8388604 kB
SwapFree:        8388604 kB
HugePages_Total:       0
HugePages_Free:        0
Hugepagesize:       2048 kB
Hugetlb:               0 kB
"""
# As /proc/PID/limits shows them for a unit of ours.
LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max core file size        0                    0                    bytes
Max open files            1048576              1048576              files
Max locked memory         unlimited            unlimited            bytes
"""
CARD = """\
  <gpu id="{bus}">
    <product_name>{name}</product_name>
    <persistence_mode>Enabled</persistence_mode>
    <mig_mode><current_mig>Disabled</current_mig><pending_mig>Disabled</pending_mig></mig_mode>
    <gpu_reset_status><reset_required>No</reset_required></gpu_reset_status>
    <gpu_recovery_action>None</gpu_recovery_action>
    <pci><pci_gpu_link_info>
      <pcie_gen><max_link_gen>5</max_link_gen><current_link_gen>{gen}</current_link_gen></pcie_gen>
      <link_widths><max_link_width>16x</max_link_width><current_link_width>16x</current_link_width></link_widths>
    </pci_gpu_link_info></pci>
    <performance_state>{pstate}</performance_state>
    <clocks_event_reasons>
      <clocks_event_reason_sw_power_cap>Not Active</clocks_event_reason_sw_power_cap>
      <clocks_event_reason_hw_thermal_slowdown>Not Active</clocks_event_reason_hw_thermal_slowdown>
      <clocks_event_reason_hw_power_brake_slowdown>Not Active</clocks_event_reason_hw_power_brake_slowdown>
      <clocks_event_reason_sw_thermal_slowdown>Not Active</clocks_event_reason_sw_thermal_slowdown>
    </clocks_event_reasons>
    <fb_memory_usage><total>97887 MiB</total><used>0 MiB</used></fb_memory_usage>
    <compute_mode>Default</compute_mode>
    <utilization><gpu_util>{util} %</gpu_util></utilization>
    <ecc_mode><current_ecc>Enabled</current_ecc><pending_ecc>Enabled</pending_ecc></ecc_mode>
    <ecc_errors>
      <volatile><sram_correctable>0</sram_correctable><sram_uncorrectable_parity>0</sram_uncorrectable_parity><sram_uncorrectable_secded>0</sram_uncorrectable_secded><dram_correctable>3</dram_correctable><dram_uncorrectable>0</dram_uncorrectable></volatile>
      <aggregate><sram_correctable>0</sram_correctable><sram_uncorrectable_parity>0</sram_uncorrectable_parity><sram_uncorrectable_secded>0</sram_uncorrectable_secded><dram_correctable>9</dram_correctable><dram_uncorrectable>0</dram_uncorrectable><sram_threshold_exceeded>No</sram_threshold_exceeded></aggregate>
    </ecc_errors>
    <retired_pages><pending_retirement>N/A</pending_retirement></retired_pages>
    <remapped_rows><remapped_row_corr>1</remapped_row_corr><remapped_row_unc>0</remapped_row_unc><remapped_row_pending>No</remapped_row_pending><remapped_row_failure>No</remapped_row_failure></remapped_rows>
    <gpu_power_readings><power_state>{pstate}</power_state><current_power_limit>600.00 W</current_power_limit><default_power_limit>600.00 W</default_power_limit></gpu_power_readings>
    <fabric><state>{fabric}</state><status>{status}</status></fabric>
  </gpu>
"""  # noqa: E501
FAR = "\tGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"


def bus(index: int) -> str:
    return f"00000000:{0x11 + 0x10 * index:02X}:00.0"


def topology(link: str, far: str) -> str:
    """Eight cards, four on each node."""
    rows = [FAR]
    for a in range(8):
        cells = ["X" if a == b else link if a // 4 == b // 4 else far for b in range(8)]
        cores = "0-55,112-167" if a < 4 else "56-111,168-223"
        rows.append(f"GPU{a}\t" + "\t".join(cells) + f"\t{cores}\t{a // 4}\t\tN/A\n")
    return "".join(rows)


def _asked(out: str = "", state: str = "ok", rc: int | None = 0) -> dict[str, Any]:
    return {"state": state, "rc": rc, "out": out}


def missing() -> dict[str, Any]:
    return _asked("", "missing", None)


def cards(name: str, used: int, capability: str, total: int = 97887) -> str:
    return "".join(
        f"{i}, {name}, GPU-{i:04d}, {total}, {used}, Disabled, {DRIVER}, {capability}, {bus(i)}, "
        "5, 16\n"
        for i in range(8)
    )


def table(name: str, used: int, total: int = 97887) -> str:
    head = f"| NVIDIA-SMI {DRIVER}    Driver Version: {DRIVER}    CUDA Version: 13.0     |\n"
    return head + "".join(
        f"|   {i}  {name[:24]}     On |   {bus(i)} Off |                    0 |\n"
        f"| N/A   31C    P8             14W /  600W | {used:>7}MiB / {total:>6}MiB |      0%"
        "      Default |\n"
        f"|{'':41}|{'':24}|             Disabled |\n"
        for i in range(8)
    )


def details(name: str, *, works: bool = False, fabric: tuple[str, str] = ("N/A", "N/A")) -> str:
    pace = ("5", "P0", "98") if works else ("1", "P8", "0")  # an idle card lowers its link
    body = "".join(
        CARD.format(
            bus=bus(i), name=name, gen=pace[0], pstate=pace[1], util=pace[2], fabric=fabric[0],
            status=fabric[1],
        )
        for i in range(8)
    )  # fmt: skip
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n'
        f"<nvidia_smi_log>\n  <driver_version>{DRIVER}</driver_version>\n"
        f"  <cuda_version>13.0</cuda_version>\n{body}</nvidia_smi_log>\n"
    )


def manifest(version: str = "0.5.9", **changes: Any) -> dict[str, Any]:
    return {
        "service": "kimi", "digest": "d" * 64, "user": "sglang", "gpus": None,
        "engine": {"version": version, "root": f"/opt/sglang/{version}"},
        "model": {"path": "/srv/models/Kimi-K2.5", "draft_path": None, "size": None},
        "address": {"host": "127.0.0.1", "port": 30000},
        "ranks": [f"TP{i}" for i in range(8)],
        "needs": needs(version),
        "memory": {"min_available": 32 * GiB, "swap": "forbid"},
        **changes,
    }  # fmt: skip


def folder(path: str) -> dict[str, Any]:
    steps = ["/", "/srv", "/srv/models", path]
    access = [{"path": step, "mode": 0o755, "uid": 0, "gid": 0, "wanted": 1} for step in steps]
    files = (f"{path}/config.json", f"{path}/model-00001-of-00064.safetensors")
    access += [{"path": p, "mode": 0o644, "uid": 0, "gid": 0, "wanted": 4} for p in files]
    return {"path": path, "exists": True, "folder": True, "config": "", "odd": "", "missing": [],
            "foreign": [], "cut": [], "short": "", "unindexed": "",
            "access": access}  # fmt: skip


def environment(root: str) -> dict[str, Any]:
    return {
        "root": root, "exists": True, "python": True, "python_link": True, "importable": True,
        "python_version": "3.12",
        "access": [{"path": step, "mode": 0o755, "uid": 0, "gid": 0, "wanted": 1}
                   for step in ("/", "/opt", "/opt/sglang", root, f"{root}/bin/python")],
        "packages": {"sglang": "0.5.9", "torch": "2.9.1+cu128", "sgl-kernel": "0.3.21",
                     "flashinfer-python": "0.6.3"},
        "requires": ["torch==2.9.1", "sgl-kernel==0.3.21", "flashinfer_python==0.6.3",
                     'torch==2.10.0; extra == "test"',
                     'sgl-kernel==0.3.20; platform_machine == "aarch64"'],
        "torch": "__version__ = '2.9.1+cu128'\ncuda: Optional[str] = '12.8'\nhip = None\n",
    }  # fmt: skip


def service(**changes: Any) -> dict[str, Any]:
    told = manifest(**changes)
    return {
        "service": "kimi", "described": True, "manifest": told,
        "unit": {"name": "sglang-kimi.service", "load": "loaded", "active": "active",
                 "sub": "running", "result": "success", "up": True, "pid": 4000,
                 "age": 90_000.0, "verify": [],
                 "show": {"Id": "sglang-kimi.service", "ActiveState": "active",
                          "NeedDaemonReload": "no", "UnitFileState": "enabled", "NRestarts": "0",
                          "DropInPaths": "", "ExecMainStatus": "0"}},
        "pids": [4000, *range(4001, 4009)],
        "limits": LIMITS,
        "release": {"running": "d" * 64, "confirmed": "d" * 64, "previous": None, "pending": None,
                    "edited": False},
        "lock": None, "pending": False, "working": False,
        "secrets": [{"path": "/etc/opsctl/kimi/releases/d/secrets/api-key", "mode": 0o600}],
        "port_holder": "",
        "user": {"uid": 998, "gids": [998]},
        "group": True,
        "ordinary": None,
        "silent": {},
        "model": folder("/srv/models/Kimi-K2.5"),
        "draft": None,
        "engine": environment("/opt/sglang/0.5.9"),
    }  # fmt: skip


def disk(total: int = 900 * GiB, free: int = 400 * GiB, **changes: Any) -> dict[str, Any]:
    return {"at": "/", "total": total, "free": free, "inodes": 60_000_000,
            "inodes_free": 50_000_000, "readonly": False, "noexec": False, "filesystem": False,
            **changes}  # fmt: skip


def _unit(active: str = "active", load: str = "loaded", enabled: str = "enabled") -> dict[str, str]:
    return {"load": load, "active": active, "sub": "", "enabled": enabled}


def reference() -> dict[str, Any]:
    """Kimi-K2.5 on eight RTX PRO 6000 under load: Debian 12, driver 580."""
    return copy.deepcopy(
        {
            "time": 1_764_000_000.0,
            "python": "3.11.2",
            "systemd_error": "",
            "files": {
                "/etc/os-release": OS["debian"],
                "/proc/meminfo": MEMINFO,
                "/proc/modules": "nvidia_uvm 1 0\nnvidia 2 5\next4 3 1\n",
                "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for "
                f"x86_64  {DRIVER}  Release Build\n",
                # proprietary, out of tree, unsigned: what the driver brings
                "/proc/sys/kernel/tainted": "12289\n",
                "/proc/sys/vm/overcommit_memory": "0\n",
                "/proc/sys/vm/zone_reclaim_mode": "0\n",
                "/proc/sys/fs/nr_open": "1048576\n",
                "/sys/fs/cgroup/cgroup.controllers": "cpu io memory pids\n",
            },
            "secure_boot": False,
            "reboot": False,
            "journal": {"storage": "auto", "file": "", "folder": True},
            "synchronised": True,
            "pci": [
                {"bus": bus(i)[4:].lower(), "class": "0x030200", "driver": "nvidia"}
                for i in range(8)
            ],
            "amd": [],
            "nodes": [{"node": n, "total": 224 * GiB, "free": GiB, "available": 40 * GiB}
                      for n in range(2)],
            "hugepages": [{"size": 2 << 20, "total": 0, "free": 0}],
            "services": [service()],
            "disks": {
                **{path: disk() for path in ("/var/lib/opsctl", "/etc/opsctl", "/var/log",
                                             "/etc/systemd/system", "/var/cache/opsctl", "/tmp",
                                             "/srv/models/Kimi-K2.5", "/opt/sglang/0.5.9")},
                "/dev/shm": disk(225 * GiB, 224 * GiB, filesystem=True, noexec=True),
            },
            "strays": [],
            "units": {
                "nvidia-persistenced.service": _unit(),
                "nvidia-fabricmanager.service": _unit("inactive", "not-found", ""),
                "opsctl-recover.service": _unit("inactive"),
                "systemd-timesyncd.service": _unit(),
            },
            "commands": {
                "smi": _asked(table(RTX, 94292)),
                "smi-cards": _asked(cards(RTX, 94292, "12.0")),
                "smi-short": _asked("".join(
                    f"{i}, {RTX}, GPU-{i:04d}, 97887, 94292, Disabled, {DRIVER}\n"
                    for i in range(8))),
                "smi-processes": _asked("".join(
                    f"GPU-{i:04d}, {4001 + i}, 94280\n" for i in range(8))),
                "smi-details": _asked(details(RTX, works=True)),
                "smi-topology": _asked(topology("PIX", "SYS")),
                "smi-p2p": _asked(topology("OK", "OK")),
                "rocm": missing(),
                "fabric-version": missing(),
                "module-version": _asked(f"{DRIVER}\n"),
                "nvcc": _asked("Cuda compilation tools, release 12.8, V12.8.93\n"),
                "kernel": _asked("2026-11-01T10:00:00+0000 gpu1 kernel: NVRM: loading NVIDIA UNIX "
                                 f"Open Kernel Module for x86_64  {DRIVER}\n"),
                "systemd": _asked("systemd 252 (252.31-1~deb12u1)\n"),
            },
        }
    )  # fmt: skip


def nvswitch() -> dict[str, Any]:
    """An HGX H100 with nothing on it yet: Ubuntu 22.04, described and not deployed."""
    seen = reference()
    seen["files"]["/etc/os-release"] = OS["ubuntu"]
    seen["pci"] += [{"bus": f"0000:0{i}:00.0", "class": "0x068000", "driver": "nvidia"}
                    for i in range(4)]  # fmt: skip
    seen["units"]["nvidia-fabricmanager.service"] = _unit()
    seen["commands"] |= {
        "smi": _asked(table(H100, 0, 81559)),
        "smi-cards": _asked(cards(H100, 0, "9.0", 81559)),
        "smi-processes": _asked(""),
        "smi-details": _asked(details(H100, fabric=("Completed", "Success"))),
        "smi-topology": _asked(topology("NV18", "NV18")),
        "fabric-version": _asked(f"Fabric Manager version is : {DRIVER}\n"),
        "systemd": _asked("systemd 249 (249.11-0ubuntu3.16)\n"),
    }
    one = seen["services"][0]
    one["unit"] |= {"load": "not-found", "active": "inactive", "sub": "dead", "pid": 0, "up": False}
    one["unit"]["show"] |= {"ActiveState": "inactive", "UnitFileState": ""}
    one |= {"pids": [], "limits": "", "secrets": []}
    one["release"] = dict.fromkeys(("running", "confirmed", "previous", "pending")) | {
        "edited": False
    }
    return seen


def bare() -> dict[str, Any]:
    """RHEL's family without a card and without a service."""
    seen = reference()
    seen["files"] = {k: v for k, v in seen["files"].items() if "nvidia" not in k}
    seen["files"] |= {"/etc/os-release": OS["rocky"], "/proc/modules": "xfs 1 1\n"}
    seen |= {"pci": [], "services": [], "nodes": [], "secure_boot": True, "python": "3.9.18"}
    for name in seen["commands"]:
        if name.startswith(("smi", "module", "nvcc")):
            seen["commands"][name] = missing()
    return seen


def amd() -> dict[str, Any]:
    """Eight MI300X: sysfs tells their memory, nvidia-smi is not there."""
    seen = bare()
    seen["files"]["/etc/os-release"] = OS["ubuntu"]
    seen["amd"] = [
        {"index": i, "name": "AMD Instinct MI300X", "uuid": "", "memory_total": 192 * GiB,
         "memory_used": 300 << 20, "state": "ok", "vendor": "amd", "capability": None,
         "bus": f"0000:{i:02x}:00.0", "link": None, "node": i // 4}
        for i in range(8)
    ]  # fmt: skip
    seen["commands"]["rocm"] = _asked(
        "Device  Node  IDs              Temp        Power     Partitions          SCLK    MCLK    "
        "Fan  Perf  PwrCap  VRAM%  GPU%  \n"
        "              (DID,     GUID)  (Junction)  (Socket)  (Mem, Compute, ID)\n"
        "0       1     0x74a1,   58197  42.0\u00b0C      135.0W    NPS1, SPX, 0        122Mhz  "
        "900Mhz  0%   auto  750.0W  0%     0%    \n"
    )
    return seen
