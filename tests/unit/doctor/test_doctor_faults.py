"""Faults planted in hosts where nothing is wrong: each is found and named, and nothing else is.

A row changes texts of the host; what the host says then is judged as `opsctl doctor` would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from opsctl.onhost.doctor import examine, folders, look
from opsctl.onhost.doctor.fault import Found
from tests.unit.doctor import hosts

Seen = dict[str, Any]
Plant = Callable[[Seen], None]
GiB = 1 << 30


def found(seen: Seen) -> dict[str, list[str]]:
    """Fault → its details, of everything that is not well."""
    told: dict[str, list[str]] = {}
    for one in examine.judge(seen):
        if one.status != "pass":
            told.setdefault(one.fault or f"?{one.check}", []).append(one.detail)
    return told


# -- how a fault is planted


def said(command: str, old: str, new: str, times: int = -1) -> Plant:
    """Another text in what a command says."""

    def plant(seen: Seen) -> None:
        answer = seen["commands"][command]
        assert old in answer["out"], (command, old)
        answer["out"] = answer["out"].replace(old, new, times)

    return plant


def says(command: str, out: str, state: str = "ok", rc: int = 0) -> Plant:
    return lambda seen: seen["commands"][command].update(out=out, state=state, rc=rc)


def card(old: str, new: str) -> Plant:
    """Another line in nvidia-smi's XML, for GPU 0 only."""
    return said("smi-details", old, new, 1)


def file(path: str, text: str | None) -> Plant:
    def plant(seen: Seen) -> None:
        seen["files"].pop(path, None)
        if text is not None:
            seen["files"][path] = text

    return plant


def put(path: str, value: Any) -> Plant:
    """A value at "services.0.unit.active" and the like."""

    def plant(seen: Seen) -> None:
        *way, last = path.split("|")
        place: Any = seen
        for step in way:
            place = place[int(step)] if isinstance(place, list) else place[step]
        if isinstance(place, list):
            place[int(last)] = value
        else:
            place[last] = value

    return plant


def log(line: str) -> Plant:
    def plant(seen: Seen) -> None:
        seen["commands"]["kernel"]["out"] += f"2026-11-01T11:00:00+0000 gpu1 kernel: {line}\n"

    return plant


def both(*plants: Plant) -> Plant:
    def plant(seen: Seen) -> None:
        for one in plants:
            one(seen)

    return plant


def mine(path: str, value: Any) -> Plant:
    return put(f"services|0|{path}", value)


def gone(index: int) -> Plant:
    """A card that fell off the bus after boot: sysfs has it, nvidia-smi lists one less."""

    def plant(seen: Seen) -> None:
        for name in ("smi-cards", "smi-short"):
            lines = seen["commands"][name]["out"].splitlines(keepends=True)
            seen["commands"][name]["out"] = "".join(lines[:index] + lines[index + 1 :])
        seen["commands"]["smi"]["out"] = ""

    return plant


BUS0 = "00000000:11:00.0"
ROW0 = f"0, {hosts.RTX}, GPU-0000, 97887, 94292, Disabled, 580.105.08, 12.0, {BUS0}, 5, 16"
MISMATCH = (
    "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.144\n"
)
HANDLE = "Unable to determine the device handle for "
OTHER = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
EVERY_SMI = ("smi", "smi-cards", "smi-short", "smi-processes", "smi-details", "smi-topology",
             "smi-p2p")  # fmt: skip


def smi(out: str, state: str = "ok", rc: int = 0) -> Plant:
    return both(*[says(name, out, state, rc) for name in EVERY_SMI])


def unseen(seen: Seen) -> None:
    """A container: neither the bus nor /proc/driver is there."""
    seen["pci"] = []
    seen["files"].pop("/proc/driver/nvidia/version")


def lost(line: str, others: bool) -> Plant:
    """nvidia-smi tells of GPU 4 in a line of its own, of the others below it or not at all."""

    def plant(seen: Seen) -> None:
        for name in ("smi", "smi-cards", "smi-short"):
            answer = seen["commands"][name]
            rows = [row for row in answer["out"].splitlines(True) if not row.startswith("4,")]
            at = next((i for i, row in enumerate(rows) if row.startswith("|   4 ")), len(rows))
            answer["out"] = line + "\n" + "".join(rows[:at] + rows[at + 3 :] if others else [])
        text = seen["commands"]["smi-details"]["out"].split("  <gpu id=")
        seen["commands"]["smi-details"]["out"] = (
            "  <gpu id=".join(text[:5] + text[6:]) if others else line + "\n"
        )

    return plant


def stray(port: int) -> Plant:
    """An engine of nobody's that listens there."""
    one = {
        "pid": 900,
        "comm": "sglang::schedul",
        "unit": "session-3.scope",
        "at": [["0.0.0.0", port]],
    }
    return put("strays", [one])


ENGINE = "engine|packages"
SHOW = "unit|show"
CRASHED = both(mine(f"{SHOW}|NRestarts", "7"), mine(f"{SHOW}|ExecMainStatus", "1"),
               mine("unit|result", "exit-code"))  # fmt: skip
# (fault, on which host, how it is planted, words of the detail, what else it brings by nature)
FAULTS: list[tuple[str, str, Plant, str, set[str]]] = [
    # the host
    ("os-unsupported", "reference",
     file("/etc/os-release", 'PRETTY_NAME="Debian GNU/Linux 11"\nID=debian\nVERSION_ID="11"\n'),
     "Debian GNU/Linux 11", set()),
    ("os-unsupported", "reference",
     file("/etc/os-release",
          'PRETTY_NAME="Rocky Linux 8.10"\nID=rocky\nID_LIKE="rhel"\nVERSION_ID="8.10"\n'),
     "Rocky Linux 8.10", set()),
    ("os-unsupported", "reference",
     file("/etc/os-release", 'PRETTY_NAME="Arch Linux"\nID=arch\n'), "Arch Linux", set()),
    ("systemd-old", "reference", says("systemd", "systemd 245 (245.4-4ubuntu3)"), "245", set()),
    ("systemd-dead", "bare", put("systemd_error", "Failed to connect to bus: Host is down"),
     "Failed to connect to bus", set()),
    ("cgroup-v1", "reference", file("/sys/fs/cgroup/cgroup.controllers", None), "unified", set()),
    ("open-files", "reference", file("/proc/sys/fs/nr_open", "65536\n"), "65536", set()),
    ("clock-free", "reference",
     both(put("synchronised", False),
          put("units|systemd-timesyncd.service|active", "inactive")), "no service", set()),
    ("clock-free", "reference", put("synchronised", False),
     "systemd-timesyncd.service runs, and has not reached", set()),
    ("journal-volatile", "reference", put("journal|folder", False), "in memory", set()),
    ("journal-storage", "reference",
     both(put("journal|storage", "volatile"), put("journal|file", "/etc/systemd/journald.conf")),
     "Storage=volatile in /etc/systemd/journald.conf: the journal is kept in memory only", set()),
    ("journal-storage", "reference",
     both(put("journal|storage", "none"),
          put("journal|file", "/run/systemd/journald.conf.d/x.conf")),
     "Storage=none in /run/systemd/journald.conf.d/x.conf: the journal is not kept at all", set()),
    ("kernel-died", "reference", file("/proc/sys/kernel/tainted", f"{12289 | 1 << 7}\n"),
     "oops", set()),
    ("machine-check", "reference", log("mce: [Hardware Error]: Machine check events logged"),
     "Machine check events logged", set()),
    ("kernel-lockup", "reference", log("watchdog: BUG: soft lockup - CPU#3 stuck for 26s!"),
     "CPU#3 stuck", set()),
    ("oom", "reference",
     log("Out of memory: Killed process 4001 (sglang::schedul) total-vm:1kB, anon-rss:2kB"),
     "Killed process 4001", set()),
    ("oom-group", "reference",
     log("Memory cgroup out of memory: Killed process 4808 (sglang::schedul) anon-rss:72665692kB"),
     "Memory cgroup out of memory", set()),
    ("disk-errors", "reference",
     log("critical medium error, dev nvme0n1, sector 12345 op 0x0:(READ)"), "nvme0n1", set()),
    ("disk-errors", "reference",
     log("EXT4-fs error (device nvme0n1p2): ext4_find_entry:1455: inode #2: comm x"),
     "nvme0n1p2", set()),
    ("disk-errors", "reference", log("blk_update_request: I/O error, dev sda, sector 9"),
     "dev sda", set()),
    ("reboot-waits", "reference",
     both(put("reboot", True), file("/run/reboot-required.pkgs", "linux-image-6.1.0-40-amd64\n")),
     "linux-image-6.1", set()),
    ("swap-used", "reference",
     file("/proc/meminfo", hosts.MEMINFO.replace("SwapFree:        8388604", "SwapFree: 8388600")),
     "kimi forbids it", set()),
    ("swap-full", "bare",
     file("/proc/meminfo", hosts.MEMINFO.replace("SwapFree:        8388604", "SwapFree: 124")),
     "8.00 GiB of 8.00 GiB", set()),
    ("memory-short", "reference",
     file("/proc/meminfo", hosts.MEMINFO.replace("82418073", "18412345")),
     "18 GiB available", set()),
    ("overcommit", "reference", file("/proc/sys/vm/overcommit_memory", "2\n"), "is 2", set()),
    ("hugepages-idle", "reference",
     put("hugepages", [{"size": 2 << 20, "total": 51200, "free": 51200}]), "100 GiB", set()),
    ("hugepages-idle", "reference",
     put("hugepages", [{"size": 1 << 30, "total": 16, "free": 8}]), "8.00 GiB", set()),
    ("zone-reclaim", "reference", file("/proc/sys/vm/zone_reclaim_mode", "1\n"), "not 0", set()),
    ("numa-uneven", "reference", put("nodes|1|total", 112 * GiB), "node 1 has 112 GiB", set()),
    ("shm-none", "reference", put("disks|/dev/shm|filesystem", False), "not mounted", set()),
    ("shm-small", "reference",
     put("disks|/dev/shm", hosts.disk(64 << 20, 64 << 20, filesystem=True)),
     "0.06 GiB", set()),
    ("shm-full", "reference", put("disks|/dev/shm|free", 2 * GiB), "2.00 GiB of 225 GiB", set()),
    ("shm-full", "reference", put("disks|/dev/shm|free", 14 * GiB), "14 GiB of 225 GiB", set()),
    ("shm-mode", "reference", put("disks|/dev/shm|mode", 0o755), "/dev/shm has mode 0755", set()),
    ("tmp-mode", "reference", put("disks|/tmp|mode", 0o755), "/tmp has mode 0755", set()),
    ("tmp-noexec", "reference", put("disks|/tmp|noexec", True), "noexec", set()),
    ("disk-full", "reference", put("disks|/var/lib/opsctl|free", 1 << 20), "1 MiB", set()),
    ("disk-readonly", "reference", put("disks|/etc/opsctl|readonly", True), "/etc/opsctl", set()),
    ("disk-readonly", "reference", put("disks|/var/cache/opsctl|readonly", True),
     "/var/cache/opsctl cannot be written", set()),
    ("disk-low", "reference", put("disks|/var/log|free", 200 << 20), "/var/log", set()),
    ("disk-low", "reference", put("disks|/tmp|free", 1 << 20), "for /tmp", set()),
    ("inodes-out", "reference", put("disks|/var/cache/opsctl|inodes_free", 12),
     "12 inodes", set()),
    # the driver
    ("driver-none", "reference",
     both(file("/proc/driver/nvidia/version", None), smi("", "missing"),
          file("/proc/modules", "ext4 1 1\n")),
     "8 NVIDIA cards on the bus", set()),
    ("driver-smi-missing", "reference", smi("", "missing"), "nvidia-smi", set()),
    # Whoever could not ask the cards knows nothing of their number: one fault, not two.
    *((fault, host, both(hidden, plant), words, set())
      for hidden in (lambda seen: None, unseen)
      for fault, host, plant, words in (
          ("driver-mismatch", "reference", smi(MISMATCH), "the library is 550.144"),
          ("driver-dead", "reference", smi(OTHER), "couldn't communicate"),
          ("driver-dead", "reference", smi("Failed to initialize NVML: Unknown Error\n"),
           "NVML: Unknown Error"),
          ("driver-hangs", "reference", smi("", "hung"), "did not answer"),
          ("driver-smi-broken", "reference", smi("", rc=-11), "was ended by SIGSEGV"),
          ("driver-smi-broken", "reference", smi(""), "ended with 0 and said nothing"),
          ("driver-smi-broken", "reference", smi("no license found\n", rc=3),
           "ended with 3 and said only: no license found"),
      )),
    ("nouveau", "reference",
     both(file("/proc/driver/nvidia/version", None), smi(OTHER), put("pci|2|driver", "nouveau"),
          file("/proc/modules", "nouveau 1 0\n")), "0000:31:00.0", set()),
    ("driver-waits", "reference", says("module-version", "590.48.01\n"), "on disk is 590.48.01",
     set()),
    ("driver-old", "reference",
     both(file("/proc/driver/nvidia/version",
               "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12\n"),
          says("module-version", "535.183.01\n")), "needs 550.54.14", set()),
    ("driver-old", "reference", mine("manifest", hosts.manifest("0.5.23") | {
        "engine": {"version": "0.5.9", "root": "/opt/sglang/0.5.9"},
        "needs": hosts.needs("0.5.23") | {"driver": "590.0.0"}}), "needs 590.0.0", set()),
    ("nouveau", "reference",
     both(file("/proc/modules", "nouveau 1 0\n"), put("pci|2|driver", "nouveau")),
     "0000:31:00.0", set()),
    ("unsigned-module", "reference",
     both(put("secure_boot", True), file("/proc/modules", "ext4 1 1\n"),
          log("Loading of module nvidia: Key was rejected by service")),
     "Key was rejected", set()),
    ("fabric-manager-missing", "nvswitch",
     put("units|nvidia-fabricmanager.service|load", "not-found"), "4 NVSwitches", set()),
    ("fabric-manager-stopped", "nvswitch",
     put("units|nvidia-fabricmanager.service|active", "failed"), "is failed", set()),
    ("fabric-manager-idle", "reference",
     put("units|nvidia-fabricmanager.service", {"load": "loaded", "active": "inactive",
                                                "sub": "dead", "enabled": "enabled"}),
     "is enabled and inactive", set()),
    ("fabric-manager-version", "nvswitch",
     says("fabric-version", "Fabric Manager version is : 580.95.05\n"), "580.95.05", set()),
    ("fabric-wait", "nvswitch",
     card("<state>Completed</state><status>Success</status>",
          "<state>In Progress</state><status>N/A</status>"), "state In Progress", set()),
    ("xid-gone", "reference",
     log("NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', GPU has fallen off the bus."),
     "Xid 79 on 0000:41:00.0", set()),
    ("xid-card", "reference",
     log("NVRM: Xid (PCI:0000:41:00): 119, pid=7, Timeout after 45s of waiting for RPC response"),
     "GSP", set()),
    ("xid-card", "reference",
     log("NVRM: Xid (PCI:0000:41:00): 48, pid='<unknown>', name=<unknown>, DBE"),
     "Xid 48 on 0000:41:00.0", set()),
    ("xid-reset", "reference",
     log("NVRM: Xid (PCI:0000:41:00): 63, pid=7, name=x, Row Remapper: New row marked"),
     "a reset finishes it", set()),
    ("xid-program", "reference",
     log("NVRM: Xid (PCI:0000:41:00): 31, pid=7, name=sglang::schedul, Ch 00000008"),
     "not its own", set()),
    ("xid-process", "bare",
     log("NVRM: Xid (PCI:0000:41:00): 31, pid=7, name=python3, Ch 00000008"),
     "not its own", set()),
    ("sxid", "nvswitch",
     log("nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"),
     "SXid 20034", set()),
    ("toolkit-major", "reference",
     says("nvcc", "Cuda compilation tools, release 13.0, V13.0.88\n"), "nvcc 13.0", set()),
    ("toolkit-missing", "reference", says("nvcc", "", "missing"), "12.8", set()),
    # the cards
    ("gpu-none", "bare", put("services", [hosts.service()]), "kimi takes 8",
     {"toolkit-missing"}),
    ("gpu-lost", "reference",
     both(says("smi-cards", "".join(
         f"{line}\n" if not line.startswith("3,") else
         "3, " + ", ".join(["[GPU is lost]"] * 10) + "\n"
         for line in hosts.cards(hosts.RTX, 94292, "12.0").splitlines()))),
     "GPU 3 is lost", {"gpu-too-few"}),
    ("gpu-lost", "reference",
     both(says("smi-cards", "Unable to determine the device handle for GPU0000:11:00.0: Unknown "
               "Error\n" + hosts.cards(hosts.RTX, 94292, "12.0").partition("\n")[2])),
     "GPU 0 (0000:11:00.0) is lost", {"gpu-too-few"}),
    *(("gpu-lost", "reference", lost(HANDLE + line, others),
       "GPU 4 (0000:51:00.0) is lost", {"gpu-too-few"})
      for line in ("GPU4: 0000:51:00.0: Unknown Error",
                   "GPU0000:51:00.0: Unknown Error",
                   "GPU 0000:51:00.0: GPU is lost.  Reboot the system to recover this GPU")
      for others in (True, False)),
    ("gpu-error", "reference", said("smi-cards", ROW0, ROW0.replace(hosts.RTX, "ERR!")),
     "ERR!", {"gpu-too-few"}),
    ("gpu-error", "reference",
     said("smi-cards", ROW0, ROW0.replace("94292", "[Unknown Error]")), "ERR!", {"gpu-too-few"}),
    ("gpu-off-bus", "reference", gone(7), "0000:81:00.0", {"gpu-too-few"}),
    ("gpu-too-few", "reference", mine("manifest", hosts.manifest(ranks=["TP0"] * 16)),
     "takes 16 GPUs, 8 are sound", set()),
    ("gpu-absent", "reference", mine("manifest", hosts.manifest(gpus=[6, 7, 8], ranks=["TP0"])),
     "GPU 8 is not here", set()),
    ("gpu-mig", "reference", said("smi-cards", ROW0, ROW0.replace("Disabled", "Enabled")),
     "split by MIG", {"gpu-too-few"}),
    ("gpu-mig-pending", "reference",
     card("<pending_mig>Disabled</pending_mig>", "<pending_mig>Enabled</pending_mig>"),
     "Enabled waits", set()),
    ("gpu-partitioned", "amd", said("rocm", "NPS1, SPX", "NPS4, CPX"), "CPX", set()),
    ("sensor-dead", "amd", said("rocm", "42.0\u00b0C      135.0W", "511.0\u00b0C     1072.7W"),
     "511 °C and 1073 W", set()),
    ("gpu-mixed", "reference",
     said("smi-cards", ROW0, ROW0.replace(hosts.RTX, "NVIDIA RTX 6000 Ada Generation")),
     "RTX 6000 Ada", set()),
    ("gpu-old", "reference", said("smi-cards", "12.0", "7.0"), "7.0", set()),
    ("gpu-new", "reference", said("smi-cards", ", 12.0,", ", 13.0,"), "13.0", set()),
    ("ecc-volatile", "reference",
     card("<dram_uncorrectable>0<", "<dram_uncorrectable>2<"), "2 uncorrectable", set()),
    ("ecc-volatile", "reference",
     card("<sram_uncorrectable_secded>0<", "<sram_uncorrectable_secded>1<"), "1 uncorr", set()),
    ("ecc-aggregate", "reference",
     card("<dram_correctable>9</dram_correctable><dram_uncorrectable>0<",
          "<dram_correctable>9</dram_correctable><dram_uncorrectable>5<"), "5 uncorr", set()),
    ("ecc-sram", "reference", card("exceeded>No<", "exceeded>Yes<"), "threshold", set()),
    ("ecc-pending", "reference", card("<pending_ecc>Enabled<", "<pending_ecc>Disabled<"),
     "Disabled waits", set()),
    ("rows-pending", "reference", card("row_pending>No<", "row_pending>Yes<"), "waits", set()),
    ("rows-failed", "reference", card("row_failure>No<", "row_failure>Yes<"), "failed", set()),
    ("pages-pending", "reference", card("retirement>N/A<", "retirement>Yes<"), "retired", set()),
    ("gpu-reset", "reference", card("required>No<", "required>Yes<"), "asks for a reset", set()),
    ("gpu-recovery", "reference", card("action>None<", "action>Drain and Reset<"),
     "Drain and Reset", set()),
    ("persistence-off", "reference",
     card("<persistence_mode>Enabled", "<persistence_mode>Disabled"),
     "GPU 0", set()),
    ("compute-prohibited", "reference", card("<compute_mode>Default", "<compute_mode>Prohibited"),
     "Prohibited", set()),
    ("compute-exclusive", "reference",
     card("<compute_mode>Default", "<compute_mode>Exclusive_Process"), "Exclusive", set()),
    ("link-narrow", "reference", card("<current_link_width>16x", "<current_link_width>8x"),
     "8 of 16 lanes", set()),
    ("link-slow", "reference", card("<current_link_gen>5", "<current_link_gen>3"), "3 of 5", set()),
    ("power-cap", "reference", card("<current_power_limit>600", "<current_power_limit>450"),
     "450 W of 600 W", set()),
    ("power-brake", "reference",
     card("hw_power_brake_slowdown>Not Active", "hw_power_brake_slowdown>Active"), "brake", set()),
    ("thermal", "reference",
     card("hw_thermal_slowdown>Not Active", "hw_thermal_slowdown>Active"), "heat", set()),
    # how they reach each other
    ("topology-split", "reference",
     mine("manifest", hosts.manifest(gpus=[2, 3, 4, 5], ranks=["a", "b", "c", "d"])),
     "crosses nodes [0, 1]", set()),
    ("nvlink-uneven", "nvswitch", said("smi-topology", "NV18", "NV17", 1), "NV17", set()),
    ("p2p-chipset", "reference", said("smi-p2p", "OK", "CNS"), "28 pairs", set()),
    ("p2p-off", "reference", said("smi-p2p", "OK", "DR"), "28 pairs", set()),
    # services
    ("port-taken", "reference", mine("port_holder", "PID 77 (nginx)"), "30000 is held by PID 77",
     set()),
    ("user-missing", "reference", mine("user", None), "no user sglang", set()),
    ("user-missing", "reference", mine("group", False), "there is no group sglang", set()),
    ("user-ordinary", "reference", mine("ordinary", 1500), "UID 1500", set()),
    ("mount-hangs", "reference",
     both(mine("silent", {"/srv/models/Kimi-K2.5": "nfs4 nas:/models"}), mine("model", None)),
     "/srv/models/Kimi-K2.5 does not answer within 5 s (nfs4 nas:/models)", set()),
    ("model-missing", "reference", mine("model|exists", False), "/srv/models/Kimi-K2.5", set()),
    ("model-incomplete", "reference",
     mine("model|missing", ["model-00003-of-00064.safetensors"]), "model-00003", set()),
    ("model-cut", "reference",
     mine("model|cut", [f"model-{n}.safetensors is cut off: 5 of 9 bytes are there"
                        for n in range(5)]), "model-0.safetensors is cut off: 5 of 9", set()),
    ("model-short", "reference", mine("model|short", "weight files are 5 bytes together"),
     "5 bytes together", set()),
    ("model-foreign", "reference", mine("model|foreign", [
        "model-00003-of-000064.safetensors is a pointer of git-lfs, and not the file that it "
        "stands for"]), "00003-of-000064.safetensors is a pointer", set()),
    ("model-odd", "reference", mine("model|config", "config.json is missing"), "config.json",
     set()),
    ("model-odd", "reference", mine("model|odd", "no weight files"), "no weight files", set()),
    ("model-unindexed", "reference", mine("model|unindexed", "model.safetensors.index.json"),
     "index.json is missing", set()),
    ("model-unreadable", "reference", mine("model|access|2|mode", 0o700), "/srv/models", set()),
    ("model-unreadable", "reference", mine("model|access|4|mode", 0o600), "config.json", set()),
    ("model-unreadable", "reference", mine("model|access|5|mode", 0o600),
     "sglang may not read /srv/models/Kimi-K2.5/model-00001-of-00064.safetensors", set()),
    ("disk-model", "nvswitch",
     both(mine("model|exists", False), mine("manifest", hosts.manifest(
         model={"path": "/srv/models/Kimi-K2.5", "draft_path": None, "size": 547 * 10**9}))),
     "the model takes 509 GiB", {"model-missing"}),
    ("disk-engine", "nvswitch",
     both(mine("engine|exists", False), put("disks|/opt/sglang/0.5.9|free", 3 * GiB)),
     "3.00 GiB", {"engine-missing"}),
    ("engine-missing", "reference", mine("engine|exists", False), "/opt/sglang/0.5.9", set()),
    ("engine-python", "reference", mine("engine|python", False), "leads to no program", set()),
    ("engine-python", "reference",
     both(mine("engine|python", False), mine("engine|python_link", False)),
     "/opt/sglang/0.5.9/bin/python is not there", set()),
    ("engine-unreadable", "reference", mine("engine|access|2|mode", 0o700),
     "sglang may not run /opt/sglang/0.5.9/bin/python: /opt/sglang is shut", set()),
    ("engine-unreadable", "reference", mine("engine|access|4|mode", 0o744), "bin/python", set()),
    ("engine-none", "reference", mine("engine|importable", False), "no SGLang", set()),
    ("engine-unnamed", "reference", mine(ENGINE, {"torch": "2.9.1+cu128"}), "without its dist-info",
     set()),
    ("engine-version", "reference", mine(f"{ENGINE}|sglang", "0.5.8.post1"), "0.5.8.post1", set()),
    ("engine-version", "reference",
     mine(f"{ENGINE}|sglang", "0.5.6.post3.dev975+g4935344fc"), "dev975", set()),
    ("engine-package", "reference", mine(f"{ENGINE}|sgl-kernel", "0.3.20"), "0.3.20", set()),
    ("engine-package", "reference",
     mine(ENGINE, {"sglang": "0.5.9", "torch": "2.9.1", "flashinfer-python": "0.6.3"}),
     "sgl-kernel is not there", set()),
    ("torch-cpu", "reference",
     mine("engine|torch", "__version__ = '2.9.1+cpu'\ncuda: Optional[str] = None\n"),
     "without CUDA", set()),
    ("torch-driver", "reference",
     both(mine("engine|torch", "cuda: Optional[str] = '13.0'\n"),
          file("/proc/driver/nvidia/version",
               "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.124.06  Wed Feb 26\n"),
          says("module-version", "570.124.06\n"),
          says("nvcc", "Cuda compilation tools, release 13.0, V13.0.88\n")),
     "CUDA 13.0, driver 570.124.06", set()),
    ("memlock", "reference",
     mine("limits", hosts.LIMITS.replace("unlimited            unlimited ",
                                         "8388608              8388608   ")), "0.01 GiB", set()),
    ("nofile", "reference", mine("limits", hosts.LIMITS.replace("1048576", "1024   ")), "1024",
     set()),
    ("limits-container", "reference", both(
        mine("limits", hosts.LIMITS.replace("unlimited            unlimited ",
                                            "8388608              8388608   ")),
        file("/proc/1/limits", hosts.LIMITS.replace("unlimited            unlimited ",
                                                    "8388608              8388608   ")),
        file("/proc/1/status", "CapEff:\t00000000fcecffff\n")), "may pin 0.01 GiB", set()),
    ("nofile", "reference", both(
        mine("limits", hosts.LIMITS.replace("1048576", "1024   ")),
        file("/proc/1/limits", hosts.LIMITS.replace("1048576", "1024   ")),
        file("/proc/1/status", "CapEff:\t000001ffffffffff\n")), "1024", set()),
    ("orphan", "reference",
     both(stray(31999), said("smi-processes", "GPU-0000, 4001, 94280", "GPU-0000, 900, 94280")),
     "process 900 (sglang::schedul) in session-3.scope holds 92 GiB of GPU memory", set()),
    ("orphan", "reference", both(stray(30000), mine("port_holder", "PID 900 (sglang::schedul)")),
     "session-3.scope holds port 30000", set()),
    ("orphan-idle", "reference", stray(31999), "(sglang::schedul) in session-3.scope", set()),
    ("orphan-idle", "reference",
     both(stray(31999), said("smi-processes", "GPU-0000, 4001, 94280", "GPU-0000, 900, 94280"),
          mine("manifest", hosts.manifest(gpus=[2, 3], ranks=["a", "b"]))),
     "holds 92 GiB of GPU memory", set()),
    ("gpu-stranger", "reference",
     said("smi-processes", "GPU-0000, 4001, 94280\n",
          "GPU-0000, 4001, 94280\nGPU-0000, 900, 1000\n"), "process 900 holds 0.98 GiB of GPU 0",
     set()),
    ("gpu-memory", "reference",
     said("smi-processes", "GPU-0000, 4001, 94280\n", ""), "GPU 0: 92 GiB", set()),
    ("unit-failed", "reference",
     both(mine("unit|active", "failed"), mine("unit|result", "signal")), "(signal)", set()),
    *(("unit-failed", "reference",
       both(mine("unit|active", "failed"), mine("unit|result", "exit-code"),
            mine(f"{SHOW}|ExecMainStatus", status)), f"(exit-code, status {status}/{name})", set())
      for status, name in (("203", "EXEC"), ("216", "GROUP"))),
    ("unit-looping", "reference", both(CRASHED, mine("unit|active", "activating"),
                                       mine("unit|sub", "auto-restart")),
     "(exit-code, status 1), 7 times", set()),
    ("unit-looping", "reference", both(CRASHED, mine("unit|age", 40.0)), "7 times", set()),
    ("unit-looping", "reference",
     both(CRASHED, mine(f"{SHOW}|NRestarts", "1"), mine("unit|active", "activating"),
          mine("unit|sub", "auto-restart")), "(exit-code, status 1), 1 time so far", set()),
    ("unit-ended", "reference",
     both(CRASHED, mine(f"{SHOW}|NRestarts", "0"), mine("unit|active", "activating"),
          mine("unit|sub", "auto-restart")),
     "sglang-kimi.service has ended (exit-code, status 1); systemd starts it again, the first time",
     set()),
    ("unit-restarted", "reference",
     both(mine(f"{SHOW}|NRestarts", "1"), mine("unit|age", 40.0)), "after it had ended", set()),
    ("unit-masked", "reference",
     both(mine("unit|load", "masked"), mine("release|running", "0")), "is masked", set()),
    ("unit-masked", "reference", mine(f"{SHOW}|UnitFileState", "masked"), "is masked", set()),
    ("unit-gone", "reference",
     both(mine("unit|load", "not-found"), mine("release|running", None)),
     "runs until it is stopped", set()),
    ("unit-gone", "nvswitch", mine("release|confirmed", "d" * 64), "file is gone", set()),
    ("unit-broken", "reference",
     both(mine("unit|load", "bad-setting"), mine("release|edited", True)), "bad-setting",
     {"unit-edited"}),
    ("unit-broken", "reference",
     both(mine("unit|verify", ["u:9: Unknown key name 'ExecStrat'"]), mine("release|edited", True)),
     "ExecStrat", {"unit-edited"}),
    ("unit-disabled", "reference", mine(f"{SHOW}|UnitFileState", "disabled"), "is disabled",
     set()),
    ("unit-edited", "reference", mine("release|edited", True), "by hand", set()),
    ("unit-dropin", "reference",
     mine(f"{SHOW}|DropInPaths", "/etc/systemd/system/sglang-kimi.service.d/o.conf"),
     "sglang-kimi.service.d/o.conf", set()),
    ("unit-stale", "reference", mine(f"{SHOW}|NeedDaemonReload", "yes"), "on disk", set()),
    ("secret-mode", "reference", mine("secrets|0|mode", 0o644), "0644", set()),
    ("swap-pending", "reference", mine("pending", True), "no guard at work", set()),
    ("lock-left", "reference",
     mine("lock", {"owner": "me@laptop", "state": "waiting"}), "me@laptop", set()),
    ("deadman-left", "reference",
     put("units|opsctl-deadman-kimi.timer",
         {"load": "loaded", "active": "active", "sub": "waiting", "enabled": ""}),
     "opsctl-deadman-kimi.timer", set()),
    ("recover-off", "reference", put("units|opsctl-recover.service|enabled", "disabled"),
     "disabled", set()),
    ("recover-off", "reference", both(
        put("units|opsctl-recover.service|enabled", "disabled"),
        mine("release|running", "0"), mine("release|edited", True)), "disabled", {"unit-edited"}),
]  # fmt: skip


@pytest.mark.parametrize("host", ["reference", "nvswitch", "bare", "amd"])
def test_nothing_is_invented_where_nothing_is_wrong(host: str) -> None:
    assert found(getattr(hosts, host)()) == {}


@pytest.mark.parametrize(
    ("fault", "host", "plant", "words", "more"), FAULTS, ids=[row[0] for row in FAULTS]
)
def test_a_planted_fault_is_found_and_nothing_else(
    fault: str, host: str, plant: Plant, words: str, more: set[str]
) -> None:
    seen = getattr(hosts, host)()
    plant(seen)
    told = found(seen)
    known = {name for name in told if not name.startswith("?")}
    assert known == {fault, *more}, told
    assert any(words in detail for detail in told[fault]), told[fault]


def test_every_kind_of_fault_is_planted() -> None:
    assert {row[0] for row in FAULTS} == set(examine.FAULTS)
    assert len(set(examine.FAULTS)) >= 60


def test_every_finding_says_why_and_what_mends_it() -> None:
    for fault, host, plant, _, _ in FAULTS:
        seen = getattr(hosts, host)()
        plant(seen)
        for one in examine.judge(seen):
            if one.fault == fault:
                assert one.cause and one.mend, fault
                assert "{" not in one.cause + one.mend and "\n" not in one.detail, one
                assert one.status == examine.FAULTS[fault].status


# What preflight asks by itself: each has its own test there.
OF_PREFLIGHT = {
    "systemd-dead", "disk-full", "disk-readonly", "port-taken", "user-missing", "model-missing",
    "engine-missing", "secret-mode", "gpu-stranger", "orphan", "unit-masked",
}  # fmt: skip
OF_FILES = {
    "model-cut",
    "model-foreign",
    "model-odd",
    "engine-none",
    "mount-hangs",
    "model-incomplete",
    "model-unreadable",
    "engine-python",
    "engine-unreadable",
    "engine-version",
}


@pytest.mark.parametrize(
    ("fault", "host", "plant"),
    [row[:3] for row in FAULTS if examine.FAULTS[row[0]].blocks and row[0] not in OF_PREFLIGHT],
    ids=[r[0] for r in FAULTS if examine.FAULTS[r[0]].blocks and r[0] not in OF_PREFLIGHT],
)
def test_what_blocks_is_a_precondition(fault: str, host: str, plant: Plant) -> None:
    """The smaller look that a preflight takes tells it too."""
    seen = getattr(hosts, host)()
    plant(seen)
    one = seen["services"][0]
    seen["commands"] = {name: seen["commands"][name] for name in look.BEFORE}
    told = examine.before(seen, one["manifest"])
    files = Found(folders.FAULTS)
    folders.models(one, files)
    folders.environment(one, "", files)
    names = {one.fault for one in [*told, *files.list] if one.blocks}
    assert fault in names
    assert (fault in OF_FILES) is (fault in {one.fault for one in files.list})


@pytest.mark.parametrize("host", ["reference", "nvswitch"])
def test_a_preflight_of_a_healthy_host_tells_nothing(host: str) -> None:
    seen = getattr(hosts, host)()
    assert [
        one for one in examine.before(seen, seen["services"][0]["manifest"]) if one.blocks
    ] == []


def test_a_card_that_the_release_does_not_use_keeps_it_from_nothing() -> None:
    seen = hosts.reference()
    said("smi-cards", ROW0, ROW0.replace(hosts.RTX, "ERR!"))(seen)
    card("<compute_mode>Default", "<compute_mode>Prohibited")(seen)
    others = hosts.manifest(gpus=[4, 5, 6, 7], ranks=["TP0", "TP1", "TP2", "TP3"])
    assert [one for one in examine.before(seen, others) if one.blocks] == []


def test_a_card_that_is_split_where_no_service_runs_is_no_fault() -> None:
    seen = hosts.reference()
    said("smi-cards", ROW0, ROW0.replace("Disabled", "Enabled"))(seen)
    seen["services"][0]["manifest"] = hosts.manifest(gpus=[4, 5, 6, 7], ranks=["a", "b", "c", "d"])
    assert found(seen) == {}
    told = [one.detail for one in examine.judge(seen) if one.check == "mig"]
    assert told == ["GPU 0 is split, no service is to run there"]


def test_a_display_holds_memory_that_no_compute_process_owns() -> None:
    seen = hosts.reference()
    said("smi-processes", "GPU-0000, 4001, 94280\n", "")(seen)
    card("<product_name>", "<display_active>Enabled</display_active><product_name>")(seen)
    assert found(seen) == {}


@pytest.mark.parametrize(
    ("shut", "mend"),
    [
        ([1], "chmod a+rX /srv,"),
        ([1, 2], "chmod a+rX /srv /srv/models,"),
        ([4], "chmod a+rX -R /srv/models/Kimi-K2.5,"),
        ([1, 3], "chmod a+rX /srv; chmod a+rX -R /srv/models/Kimi-K2.5,"),
    ],
)
def test_what_is_shut_is_what_the_command_opens(shut: list[int], mend: str) -> None:
    """And what shuts out of model and draft is told once."""
    seen = hosts.reference()
    for index in shut:
        mine(f"model|access|{index}|mode", 0o600)(seen)
    seen["services"][0]["draft"] = seen["services"][0]["model"]
    (one,) = [one for one in examine.judge(seen) if one.fault]
    assert one.mend.startswith(mend)


def test_units_of_other_hands_are_their_own_business() -> None:
    """A mask, a drop-in or a unit that no boot starts: whoever made the unit may want it so."""
    seen = hosts.reference()
    one = seen["services"][0]
    one["described"] = False
    one["release"] |= {"running": "0", "confirmed": None}
    dropin = "/etc/systemd/system/sglang-kimi.service.d/o.conf"
    one["unit"]["show"] |= {"UnitFileState": "disabled", "DropInPaths": dropin}
    assert found(seen) == {}
    one["unit"]["load"] = "masked"
    assert found(seen) == {}


def test_one_end_long_ago_is_no_loop() -> None:
    seen = hosts.reference()
    CRASHED(seen)
    assert found(seen) == {}


def mended(host: str, *plants: Plant) -> str:
    seen = getattr(hosts, host)()
    both(*plants)(seen)
    (one,) = [one for one in examine.judge(seen) if one.fault]
    return one.mend


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("NVRM: Xid (PCI:0000:41:00): 48, pid=9, DBE", "nvidia-smi -r -i 0000:41:00.0,"),
        ("NVRM: Xid (PCI:0000:41:00): 119, pid=9, RPC", "nvidia-smi -r -i 0000:41:00.0,"),
        ("NVRM: Xid (PCI:0008:01:00.0): 154, GPU recovery", "nvidia-smi -r -i 0008:01:00.0,"),
        ("NVRM: Xid (PCI:0000:41:00): 63, pid=9, Row", "nvidia-smi -r -i 0000:41:00.0,"),
        ("NVRM: Xid (PCI:0000:41:00): 79, pid=9, off", "power the host off and on"),
        ("NVRM: Xid (PCI:0000:41:00): 94, pid=9, Contained", "opsctl logs kimi"),
        ("critical medium error, dev nvme0n1, sector 1", "smartctl -a /dev/nvme0n1"),
        ("EXT4-fs error (device nvme0n1p2): x", "smartctl -a /dev/nvme0n1"),
        ("EXT4-fs error (device sda3): x", "smartctl -a /dev/sda"),
        ("XFS (dm-0): Metadata corruption detected: Corruption", "smartctl -a /dev/dm-0"),
        ("Memory cgroup out of memory: Killed process 4808 (x)", "systemctl show 'sglang-*'"),
    ],
)
def test_what_the_line_tells_stands_in_the_command(line: str, words: str) -> None:
    told = mended("reference", log(line))
    assert words in told
    assert ("nvidia-smi -r" in told) is words.startswith("nvidia-smi -r")


def test_a_kill_in_a_group_names_the_unit_that_is_limited() -> None:
    killed = log("Memory cgroup out of memory: Killed process 4808 (x) anon-rss:72665692kB")
    group = log("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/system.slice/"
                "train.service,task_memcg=/system.slice/train.service/a,task=x,pid=1")  # fmt: skip
    assert "systemctl show train.service -p" in mended("reference", group, killed)


def test_an_xid_of_a_program_names_the_service_whose_program_it_was() -> None:
    def two(seen: Seen) -> None:
        other = hosts.service(service="glm", ranks=["TP0"])
        seen["services"].append({**other, "service": "glm", "pids": [77]})

    xid = "NVRM: Xid (PCI:0000:41:00): 31, pid={}, name=python3, Ch 00000008"
    assert "opsctl logs glm" in mended("reference", two, log(xid.format(77)))
    assert "opsctl logs kimi" in mended("reference", two, log(xid.format(4003)))
    assert "opsctl" not in mended("reference", two, log(xid.format(5)))


def test_a_failed_unit_is_started_again_by_its_name() -> None:
    told = mended("reference", mine("unit|active", "failed"), mine("unit|result", "signal"))
    assert told == "opsctl logs kimi; mend what it says, then opsctl start kimi"
