"""`doctor` on the host itself: system, kernel, memory, disks. Pure."""

from __future__ import annotations

import re
from typing import Any, List, Mapping, Optional

from opsctl.onhost import hostfacts
from opsctl.onhost.doctor import keeping
from opsctl.onhost.doctor.fault import FAIL, WARN, Fault, Finding, Found, table
from opsctl.onhost.doctor.smi import out, state

GiB = 1 << 30
MiB = 1 << 20
# What opsctl is made for: (ID of os-release, versions). RHEL's rebuilds say so in ID_LIKE.
SUPPORTED = {"debian": ("12", "13"), "ubuntu": ("22.04", "24.04")}
RHEL_FAMILY = ("rhel", "rocky", "almalinux", "centos", "ol")
LEAST_SYSTEMD = 247  # LoadCredential=, which hands secrets over
LEAST_SHM = 1 * GiB  # NCCL alone takes some 10 MiB a GPU; shared pools and queues far more
LEAST_IDLE_HUGE = 1 * GiB
# Bits of /proc/sys/kernel/tainted that tell of damage; others (proprietary, out of tree, unsigned)
# are what NVIDIA's driver brings.
TAINT_MACHINE, TAINT_DIED, TAINT_LOCKUP = 4, 7, 14

FAULTS = {**keeping.FAULTS, **table(
    Fault("os-unsupported", "os", WARN, "a system that opsctl's roles do not know",
          "the playbooks prepare Debian 12 and 13, Ubuntu 22.04 and 24.04, and RHEL 9's family",
          "prepare this host by hand, or reinstall it"),
    Fault("systemd-dead", "systemd", FAIL, "a host that systemd does not run, or that is stuck",
          "services are units of systemd; nothing of them can be told",
          "systemctl status; a container without systemd cannot be a host", True),
    Fault("systemd-old", "systemd", FAIL, "a systemd older than 247",
          "it knows no LoadCredential=, by which a unit gets its secrets",
          "upgrade the system", True),
    Fault("cgroup-v1", "cgroups", WARN, "control groups of version 1",
          "limits and figures of a service's memory are not told as well",
          "boot with systemd.unified_cgroup_hierarchy=1"),
    Fault("kernel-died", "kernel", FAIL, "a kernel that has met a bug of its own",
          "an oops: a part of the kernel has ended, locks may be held for ever",
          "journalctl -k -b | grep -A30 -iE 'oops|BUG:'; reboot"),
    Fault("machine-check", "kernel", FAIL, "a machine check",
          "processor, memory or bus reported an error",
          "journalctl -k -b | grep -i 'machine check'; ras-mc-ctl --errors; the vendor"),
    Fault("kernel-lockup", "kernel", WARN, "a processor that hung in the kernel",
          "a soft lockup since boot", "journalctl -k -b | grep -i lockup"),
    Fault("oom", "kernel", WARN, "the kernel killed for want of memory",
          "host memory ran out since boot",
          "journalctl -k -b | grep -i 'out of memory'; opsctl memory"),
    Fault("oom-group", "kernel", WARN, "the kernel killed for want of memory in a group",
          "a limit of a unit or scope was met; the host itself had memory left",
          "journalctl -k -b | grep -i 'memory cgroup'; systemctl show {unit} -p Id,MemoryMax"),
    Fault("disk-errors", "kernel", FAIL, "errors of a disk",
          "reads or writes fail; a model read from there may be damaged",
          "journalctl -k -b | grep -iE 'i/o error|medium error'; smartctl -a {disk}"),
    Fault("reboot-waits", "kernel", WARN, "a reboot that is due",
          "packages were upgraded that only a reboot takes into use", "reboot when drained"),
    Fault("swap-used", "swap", FAIL, "swap in use where it is forbidden",
          "memory.swap of the service forbids it: its gates fail",
          "swapoff -a (with enough memory free), then swapon -a or leave it off"),
    Fault("swap-full", "swap", WARN, "swap that is full",
          "the next shortage of memory kills a process", "find who fills it: smem -s swap"),
    Fault("memory-short", "memory", FAIL, "less memory available than demanded",
          "memory.min_available of the running service is not kept: its gates fail",
          "opsctl memory {service}"),
    Fault("overcommit", "memory", FAIL, "memory that may not be promised twice",
          "vm.overcommit_memory=2 refuses the address space that CUDA reserves",
          "sysctl -w vm.overcommit_memory=0, and in /etc/sysctl.d", True),
    Fault("hugepages-idle", "hugepages", WARN, "huge pages reserved and unused",
          "no other memory can use them; the engine does not either",
          "sysctl -w vm.nr_hugepages=0, and in /etc/sysctl.d and on the kernel's command line"),
    Fault("zone-reclaim", "numa", WARN, "a kernel that rather empties caches than crosses nodes",
          "vm.zone_reclaim_mode is set: loads stall while page cache is thrown away",
          "sysctl -w vm.zone_reclaim_mode=0"),
    Fault("numa-uneven", "numa", WARN, "nodes with unequal memory",
          "a memory module is missing, or has been mapped out",
          "dmidecode -t memory; ipmitool sel list"),
    Fault("shm-none", "shm", FAIL, "/dev/shm is no file system of its own",
          "ranks exchange through it; files there would lie on the disk",
          "mount -t tmpfs -o nosuid,nodev tmpfs /dev/shm; then restart what uses it"),
    Fault("shm-small", "shm", WARN, "a small /dev/shm",
          "ranks and NCCL exchange through it, and end with a bus error when it is full",
          "mount -o remount,size=50% /dev/shm, and in /etc/fstab"),
    Fault("shm-full", "shm", WARN, "a full /dev/shm",
          "leftovers of ended processes, or another service",
          "ls -lS /dev/shm; remove what nobody holds"),
    Fault("shm-mode", "shm", FAIL, "a /dev/shm that not every user may write",
          "ranks exchange through it, and run as the engine's user", "chmod 1777 /dev/shm"),
    Fault("tmp-mode", "tmp", FAIL, "a /tmp that not every user may write",
          "compilers and ranks put files there, as the engine's user", "chmod 1777 /tmp"),
    Fault("tmp-noexec", "tmp", WARN, "a /tmp where nothing may be run",
          "newer releases start each rank through a script there, to bind it to its NUMA node",
          "mount -o remount,exec /tmp, or Environment=TMPDIR= in `env`"),
    Fault("open-files", "limits", FAIL, "fewer open files than the units ask for",
          "a unit whose limit is above fs.nr_open does not start",
          "sysctl -w fs.nr_open=1048576, and in /etc/sysctl.d", True),
    Fault("disk-full", "disk", FAIL, "a disk with no room for opsctl's own files",
          "a run could not record what it does", "df -h {path}; make room", True),
    Fault("disk-readonly", "disk", FAIL, "a disk that cannot be written",
          "the kernel mounts it so after an error; opsctl, or the unit itself, must write there",
          "journalctl -k -b | grep -i remount; mount", True),
    Fault("disk-low", "disk", WARN, "little room",
          "{use} grows there", "df -h {path}; make room"),
    Fault("inodes-out", "disk", WARN, "hardly any inodes left",
          "no file can be made though bytes are free", "df -i {path}"),
)}  # fmt: skip

# What grows where, and how much must be left: figures of ours, a first warning and no more.
ROOM = (
    ("/var/log", "the journal", 1 * GiB),
    ("/var/cache/opsctl", "the cache of compiled kernels", 4 * GiB),
    ("/var/lib/opsctl", "what opsctl records", 256 * MiB),
    ("/tmp", "what compilers and ranks write for a while", 64 * MiB),
)
# The last is the unit's CacheDirectory=: where it cannot be made, the unit does not start.
WRITTEN = ("/var/lib/opsctl", "/etc/opsctl", "/etc/systemd/system", "/var/cache/opsctl")
NOFILE = 1048576  # LimitNOFILE= of our units
LEAST_FREE = 4 * MiB  # as preflight demands it


def judge(seen: Mapping[str, Any]) -> List[Finding]:
    """`seen`: the whole look."""
    found = Found(FAULTS)
    _system(seen, found)
    keeping.judge(seen, found)
    _kernel(seen, found)
    _memory(seen, found)
    _shared(seen, found)
    _disks(seen, found)
    return found.list


def blocking(seen: Mapping[str, Any]) -> List[Finding]:
    """What of it concerns any release before its start; `seen`: the look before it."""
    found = Found(FAULTS)
    _system(seen, found)
    _overcommit(seen, found)
    return found.list


def _system(seen: Mapping[str, Any], found: Found) -> None:
    release = hostfacts.parse_properties(seen["files"].get("/etc/os-release", ""))
    name = release.get("PRETTY_NAME") or release.get("ID") or "no /etc/os-release"
    if not supported(release):
        found.fault("os-unsupported", name)
    found.passed("os", name)
    found.passed("python", f"Python {seen['python']}")
    told = re.search(r"systemd (\d+)", out(seen, "systemd"))
    if seen["systemd_error"]:
        found.fault("systemd-dead", seen["systemd_error"].strip().splitlines()[-1])
    elif told is None:
        found.unknown("systemd", "systemctl tells no version", mend="systemctl --version")
    elif int(told[1]) < LEAST_SYSTEMD:
        found.fault("systemd-old", f"systemd {told[1]}")
    found.passed("systemd", f"systemd {told[1] if told else ''}")
    if "/sys/fs/cgroup/cgroup.controllers" not in seen["files"]:
        found.fault("cgroup-v1", "no unified control groups at /sys/fs/cgroup")
    found.passed("cgroups", "version 2")
    allowed = seen["files"].get("/proc/sys/fs/nr_open", "").strip()
    if allowed.isdigit() and int(allowed) < NOFILE:
        found.fault("open-files", f"fs.nr_open is {allowed}, units ask for {NOFILE}")
    found.passed("limits", f"fs.nr_open {allowed}")


def supported(release: Mapping[str, str]) -> bool:
    """The same that the roles take (opsctl.ansible.target.distro); a test compares them."""
    name, version = release.get("ID", ""), release.get("VERSION_ID", "")
    if name in RHEL_FAMILY:
        return version.partition(".")[0] == "9"
    return version in SUPPORTED.get(name, ())


def _kernel(seen: Mapping[str, Any], found: Found) -> None:
    text = seen["files"].get("/proc/sys/kernel/tainted", "").strip()
    taint = int(text) if text.isdigit() else 0
    log = out(seen, "kernel")
    if taint >> TAINT_DIED & 1:
        found.fault("kernel-died", f"the kernel is tainted by an oops ({taint})")
    machine = first(log, r"Machine [Cc]heck|\[Hardware Error\]")
    if taint >> TAINT_MACHINE & 1 or machine:
        found.fault("machine-check", machine or f"the kernel is tainted by it ({taint})")
    if taint >> TAINT_LOCKUP & 1 or first(log, "soft lockup"):
        found.fault("kernel-lockup", first(log, "soft lockup") or f"tainted by it ({taint})")
    in_group = first(log, r"Memory cgroup out of memory: Killed process")
    of_host = first(log, r"(?<!cgroup )Out of memory: Killed process")
    if of_host:
        found.fault("oom", of_host)
    if in_group:
        unit = re.search(r"oom_memcg=\S*/([^/\s,]+\.(?:service|scope|slice))\b", log)
        # systemctl takes a pattern, too: what opsctl's units may use
        found.fault("oom-group", in_group, unit=unit[1] if unit else "'sglang-*'")
    disk = first(log, r"I/O error, dev|medium error|EXT4-fs error|XFS .*[Cc]orrupt")
    if disk:
        found.fault("disk-errors", disk, disk=_disk(disk))
    if seen["reboot"]:
        packages = seen["files"].get("/run/reboot-required.pkgs", "").split()
        found.fault(
            "reboot-waits", f"a reboot is due{': ' if packages else ''}{', '.join(packages[:4])}"
        )
    if state(seen, "kernel") == "ok":
        found.passed("kernel", "no oops, machine check, kill or disk error since boot")


def _disk(line: str) -> str:
    """The disk that a line of the kernel names, not its partition; all of them if it names none."""
    name = re.search(r"(?:\bdev |\(device |XFS \()([a-z][\w-]*)", line)
    whole = re.sub(r"^(nvme\d+n\d+|mmcblk\d+)p\d+$|^([a-z]+)\d+$", r"\1\2", name[1]) if name else ""
    return f"/dev/{whole}" if whole else "$(lsblk -dnpo NAME)"


def first(log: str, pattern: str) -> str:
    """The first line of the kernel that matches, without its time and host; "" if none."""
    found = re.search(rf"^.*(?:{pattern}).*$", log, re.MULTILINE)
    return re.sub(r"^\S+ \S+ kernel ?: ?", "", found[0]).strip()[:160] if found else ""


def _memory(seen: Mapping[str, Any], found: Found) -> None:
    meminfo = _meminfo(seen)
    if meminfo is None:
        found.unknown("memory", "/proc/meminfo cannot be read", mend="cat /proc/meminfo")
        return
    rules = [(s["service"], s["manifest"].get("memory") or {}, s["unit"]["active"] == "active")
             for s in seen["services"]]  # fmt: skip
    used, total = meminfo["swap_used"], meminfo["swap_total"]
    forbids = [name for name, rule, _ in rules if rule.get("swap") == "forbid"]
    if used and forbids:
        found.fault("swap-used", f"{gib(used)} in use, {forbids[0]} forbids it", forbids[0])
    elif total and used > 0.95 * total:
        found.fault("swap-full", f"{gib(used)} of {gib(total)} in use")
    found.passed("swap", f"{gib(used)} of {gib(total)} in use" if total else "none")
    for name, rule, runs in rules:
        least = int(rule.get("min_available") or 0)
        if runs and meminfo["available"] < least:
            text = f"{gib(meminfo['available'])} available, {name} demands {gib(least)}"
            found.fault("memory-short", text, name)
    _overcommit(seen, found)
    found.passed("memory", f"{gib(meminfo['available'])} of {gib(meminfo['total'])} available")
    idle = sum(page["size"] * page["free"] for page in seen["hugepages"])
    if idle >= LEAST_IDLE_HUGE:
        found.fault("hugepages-idle", f"{gib(idle)} in huge pages that nobody uses")
    found.passed("hugepages", "none idle")
    _numa(seen, found)


def _overcommit(seen: Mapping[str, Any], found: Found) -> None:
    if seen["files"].get("/proc/sys/vm/overcommit_memory", "").strip() == "2":
        found.fault("overcommit", "vm.overcommit_memory is 2")


def _numa(seen: Mapping[str, Any], found: Found) -> None:
    if seen["files"].get("/proc/sys/vm/zone_reclaim_mode", "0").strip() not in ("", "0"):
        found.fault("zone-reclaim", "vm.zone_reclaim_mode is not 0")
    nodes = seen["nodes"]
    if len(nodes) > 1:
        most = max(nodes, key=lambda node: int(node["total"]))
        low = [node for node in nodes if node["total"] < 0.75 * most["total"]]
        for node in low:
            text = f"node {node['node']} has {gib(node['total'])}"
            text += f", node {most['node']} {gib(most['total'])}"
            found.fault("numa-uneven", text)
    found.passed("numa", f"{len(nodes) or 1} node{'s' if len(nodes) > 1 else ''}")


def _meminfo(seen: Mapping[str, Any]) -> Optional[Mapping[str, int]]:
    try:
        return hostfacts.parse_meminfo(seen["files"].get("/proc/meminfo", ""))
    except ValueError:
        return None


def _shared(seen: Mapping[str, Any], found: Found) -> None:
    shm = seen["disks"].get("/dev/shm") or {}
    if shm.get("filesystem") is False:
        found.fault("shm-none", "/dev/shm is not mounted")
    elif shm.get("total", LEAST_SHM) < LEAST_SHM:
        found.fault("shm-small", f"/dev/shm has {gib(shm['total'])}")
    elif shm.get("total") and shm["free"] < 0.1 * shm["total"]:
        found.fault("shm-full", f"{gib(shm['free'])} of {gib(shm['total'])} are free in /dev/shm")
    for path, fault in (("/dev/shm", "shm-mode"), ("/tmp", "tmp-mode")):
        mode = (seen["disks"].get(path) or {}).get("mode")
        if mode is not None and mode & 0o003 != 0o003:
            found.fault(fault, f"{path} has mode {mode:04o}")
    if shm:
        found.passed("shm", f"/dev/shm has {gib(shm.get('total', 0))}")
    if (seen["disks"].get("/tmp") or {}).get("noexec"):
        found.fault("tmp-noexec", "/tmp is mounted noexec")
    found.passed("tmp", "/tmp may hold scripts")


def _disks(seen: Mapping[str, Any], found: Found) -> None:
    disks = seen["disks"]
    for path in WRITTEN:
        disk = disks.get(path) or {}
        if disk.get("readonly"):
            found.fault("disk-readonly", f"{path} cannot be written")
        elif disk.get("free", LEAST_FREE) < LEAST_FREE:
            found.fault("disk-full", f"{disk['free'] // MiB} MiB are free for {path}", path=path)
    full = {one.detail.split(" for ")[-1] for one in found.list if one.fault == "disk-full"}
    for path, use, least in ROOM:
        disk = disks.get(path) or {}
        if path not in full and disk.get("free", least) < least:
            text = f"{gib(disk['free'])} are free for {path}"
            found.fault("disk-low", text, path=path, use=use)
    for path, disk in disks.items():
        if disk.get("inodes") and disk["inodes_free"] < 0.01 * disk["inodes"]:
            found.fault(
                "inodes-out", f"{disk['inodes_free']} inodes are free for {path}", path=path
            )
    state_disk = disks.get("/var/lib/opsctl") or {}
    found.passed("disk", f"{gib(state_disk.get('free', 0))} free for opsctl's own files")


def gib(count: float) -> str:
    return f"{count / GiB:.2f} GiB" if count < 10 * GiB else f"{count / GiB:.0f} GiB"
