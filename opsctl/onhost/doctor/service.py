"""`doctor` on services: ports, limits, strangers, opsctl's leftovers. Pure."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from opsctl.onhost import hostfacts, listeners
from opsctl.onhost.doctor import folders, smi, units
from opsctl.onhost.doctor.fault import FAIL, WARN, Fault, Finding, Found, table
from opsctl.onhost.doctor.host import gib
from opsctl.onhost.doctor.smi import out

MiB = 1 << 20
LEAST_MEMLOCK = 64 << 30  # bytes; pinned host pools are tens of GiB a rank
LEAST_NOFILE = 65536
CAP_SYS_RESOURCE = 24  # bit of a process's capabilities
LEAST_LEFT = 1 << 30  # bytes on a card that nobody owns: a context alone takes some 500 MiB

FAULTS = {**units.FAULTS, **folders.FAULTS, **table(
    Fault("port-taken", "port", FAIL, "the service's port held by somebody else",
          "the engine finds out after it has loaded the whole model",
          "ss -ltnp 'sport = :{port}'; stop what listens there", True),
    Fault("user-missing", "user", FAIL, "no such user, or no group of its name",
          "the unit names both, and cannot start (217/USER, 216/GROUP)",
          "ansible-playbook playbooks/deploy.yml; its role host makes both", True),
    Fault("user-ordinary", "user", WARN, "an engine's user that is an ordinary one",
          "logind takes the engine's shared memory when the user's last session ends, unless it "
          "lingers (RemoveIPC)",
          "loginctl enable-linger {user}; for good: a system user in `user` of {service}"),
    Fault("memlock", "memlock", FAIL, "a process that may pin little memory",
          "host pools are pinned, and opsctl's unit asks for no limit: something lowers it",
          "systemctl cat sglang-{service}; remove the drop-in that sets LimitMEMLOCK=, systemctl "
          "daemon-reload, then opsctl restart {service}"),
    Fault("limits-container", "memlock", WARN, "a host whose systemd may not raise limits",
          "a container without CAP_SYS_RESOURCE: no unit, role or description can ask for more",
          "on the machine that runs the container: LimitMEMLOCK=infinity and LimitNOFILE=1048576 "
          "for it, or CAP_SYS_RESOURCE"),
    Fault("nofile", "nofile", WARN, "a process that may open few files",
          "each request and each weight file takes some",
          "systemctl cat sglang-{service}; remove the drop-in that sets LimitNOFILE=, systemctl "
          "daemon-reload, then opsctl restart {service}"),
    Fault("orphan", "leftovers", FAIL, "processes of an engine that no service owns, in its way",
          "left by an earlier engine, or started by hand; they hold a service's port, or memory of "
          "its GPUs", "kill {pid}; if it stays: kill -9 {pid}", True),
    Fault("orphan-idle", "leftovers", WARN, "processes of an engine that no service owns",
          "left by an earlier engine, or started by hand; they hold no service's port, and no "
          "memory of its GPUs", "ps -fp {pid}; kill {pid} if nobody needs it"),
    Fault("gpu-stranger", "leftovers", FAIL, "somebody else's processes on the service's GPUs",
          "memory that they hold is not there for the KV cache", "nvidia-smi; ps -fp {pid}", True),
    Fault("gpu-memory", "leftovers", FAIL, "GPU memory that no process owns",
          "a process that ended badly, or one in a container that is hidden here",
          "fuser -v /dev/nvidia*; nvidia-smi -r -i {gpu} when nothing uses it"),
    Fault("secret-mode", "secrets", FAIL, "a secret that others may read",
          "secrets of a release are 0600", "chmod 600 {path}", True),
    Fault("swap-pending", "opsctl", FAIL, "a deployment that was left in the middle",
          "its guard is gone and nothing settles it",
          "opsctl watch {service}; opsctl status {service}"),
    Fault("lock-left", "opsctl", WARN, "a lock that nobody needs any more",
          "its run has ended, or its controller has died; it keeps others out",
          "opsctl unlock {service}"),
    Fault("deadman-left", "opsctl", WARN, "a watchman without a deployment",
          "a timer of an earlier run is still there", "systemctl stop {unit}"),
    Fault("recover-off", "opsctl", WARN, "nothing that settles a deployment at boot",
          "after a power cut an unconfirmed release may start",
          "systemctl enable opsctl-recover.service"),
)}  # fmt: skip


def judge(seen: Mapping[str, Any]) -> List[Finding]:
    """`seen`: the whole look."""
    found = Found(FAULTS)
    for service in seen["services"]:
        units.judge(service, found)
        _limits(service, seen["files"], found)
        if service["manifest"]:
            _port(service, seen["strays"], found)
            folders.models(service, found)
            folders.environment(service, smi.version(seen), found)
            folders.room(service, seen["disks"], found)
        _own(service, found)
    _gpu_memory(seen, found)
    _timers(seen, found)
    _passes(seen, found)
    return found.list


def _limits(service: Mapping[str, Any], files: Mapping[str, str], found: Found) -> None:
    """As the process has them: a unit's, a drop-in's and PAM's are only where they come from."""
    name, limits = service["service"], hostfacts.parse_limits(service["limits"])
    highest = _container(files)
    for limit, least, fault, told in (
        ("Max locked memory", LEAST_MEMLOCK, "memlock", "pin {}"),
        ("Max open files", LEAST_NOFILE, "nofile", "open {} files"),
    ):
        soft = limits.get(limit, (None, None))[0]
        if soft is not None and soft < least:
            kind = "limits-container" if highest.get(limit, (None, None))[1] == soft else fault
            shown = told.format(gib(soft) if fault == "memlock" else soft)
            found.fault(kind, f"{name}'s process may {shown}", name)


def _container(files: Mapping[str, str]) -> Mapping[str, Tuple[Optional[int], Optional[int]]]:
    """systemd's own limits where it cannot raise them for its units; {} where it can."""
    powers = re.search(r"^CapEff:\s*([0-9a-f]+)", files.get("/proc/1/status", ""), re.MULTILINE)
    may = powers is None or int(powers[1], 16) >> CAP_SYS_RESOURCE & 1
    if may and "/run/systemd/container" not in files:
        return {}
    return hostfacts.parse_limits(files.get("/proc/1/limits", ""))


def _port(service: Mapping[str, Any], strays: Sequence[Mapping[str, Any]], found: Found) -> None:
    """An orphan that holds the port is told as one."""
    name, port = service["service"], (service["manifest"].get("address") or {}).get("port")
    if service["port_holder"] and not any(_in_the_way(stray, service) for stray in strays):
        text = f"port {port} is held by {service['port_holder']}"
        found.fault("port-taken", text, name, port=port)
    if service["manifest"].get("user") and service["user"] is None:
        found.fault("user-missing", f"there is no user {service['manifest']['user']}", name)
    elif not service["group"]:
        found.fault("user-missing", f"there is no group {service['manifest']['user']}", name)
    elif service["ordinary"] is not None:
        user = service["manifest"]["user"]
        found.fault("user-ordinary", f"{user} has UID {service['ordinary']}", name, user=user)


def _own(service: Mapping[str, Any], found: Found) -> None:
    name = service["service"]
    for secret in service["secrets"]:
        if secret["mode"] & 0o077:
            text = f"{secret['path']} has mode {secret['mode']:04o}"
            found.fault("secret-mode", text, name, path=secret["path"])
    if service["pending"] and not service["working"]:
        found.fault("swap-pending", f"pending.json of {name}, and no guard at work", name)
    lock = service["lock"]
    if lock and lock.get("state") in ("over", "waiting") and not service["pending"]:
        what = "its run has ended" if lock["state"] == "over" else "its run was never launched"
        text = f"locked by {lock.get('owner')}: {what}"
        # A lock that is over is given back by whoever comes next; one that waits keeps them out.
        if lock["state"] == "waiting":
            found.fault("lock-left", text, name)


def _gpu_memory(seen: Mapping[str, Any], found: Found) -> None:
    """Who holds memory on the cards. Orphans are told once, by their PID."""
    cards: List[Dict[str, Any]] = smi.known(seen)
    holders = hostfacts.parse_gpu_processes(out(seen, "smi-processes"), cards)
    ours = {pid for service in seen["services"] for pid in service["pids"]}
    strays = {stray["pid"]: stray for stray in seen["strays"]}
    wanted = [s["manifest"].get("gpus") for s in seen["services"] if s["manifest"].get("needs")]
    taken = [one for one in holders if any(gpus is None or one["gpu"] in gpus for gpus in wanted)]
    for stray in strays.values():
        _orphan(stray, seen["services"], holders, taken, found)
    for one in taken:
        if one["pid"] > 0 and one["pid"] not in ours and one["pid"] not in strays:
            text = f"process {one['pid']} holds {gib(one['memory'])} of GPU {one['gpu']}"
            found.fault("gpu-stranger", text, pid=one["pid"])
    if out(seen, "smi-processes").startswith(("No devices", "Failed", "NVIDIA-SMI has failed")):
        return
    busy = {one["gpu"] for one in holders}
    busy |= {card["index"] for card in smi.details(seen, cards) if card["display"]}
    for card in cards:
        if card["state"] == "ok" and card["memory_used"] > LEAST_LEFT and card["index"] not in busy:
            text = f"GPU {card['index']}: {gib(card['memory_used'])} in use, and no process"
            found.fault("gpu-memory", text, gpu=card["index"])


def _in_the_way(stray: Mapping[str, Any], service: Mapping[str, Any]) -> bool:
    """Whether it listens where the service is to listen."""
    wanted = service["manifest"].get("address") or {}
    return any(listeners.taken(wanted, listeners.Place(*at)) for at in stray["at"])


def _orphan(
    stray: Mapping[str, Any],
    services: Sequence[Mapping[str, Any]],
    holders: Sequence[Mapping[str, Any]],
    taken: Sequence[Mapping[str, Any]],
    found: Found,
) -> None:
    """`taken`: those of the `holders` that are on a service's cards. What is in nobody's way keeps
    no release from starting."""
    pid = stray["pid"]
    own = [f"port {one['manifest']['address']['port']}" for one in services
           if _in_the_way(stray, one)]  # fmt: skip
    held = sum(one["memory"] for one in holders if one["pid"] == pid)
    has = [*own, *([f"{gib(held)} of GPU memory"] if held else [])]
    text = f"process {pid} ({stray['comm']}) in {stray['unit'] or 'no unit'}"
    text += f" holds {' and '.join(has)}" if has else ""
    harms = bool(own) or any(one["pid"] == pid for one in taken)
    found.fault("orphan" if harms else "orphan-idle", text, pid=pid)


def _timers(seen: Mapping[str, Any], found: Found) -> None:
    alive = {s["service"] for s in seen["services"] if s["working"] or s["pending"]}
    for unit, state in seen["units"].items():
        timer = re.fullmatch(r"opsctl-deadman-(.+)\.timer", unit)
        if timer and state["active"] == "active" and timer[1] not in alive:
            found.fault("deadman-left", f"{unit} is active, nothing is pending", unit=unit)
    # A unit that was edited counts as of other hands ("0"); its deployment is ours all the same.
    releases = [service["release"] for service in seen["services"]]
    deployed = any(r.get("edited") or r.get("running") not in (None, "0") for r in releases)
    recover = seen["units"].get("opsctl-recover.service") or {}
    if deployed and recover.get("enabled") != "enabled":
        found.fault(
            "recover-off", f"opsctl-recover.service is {recover.get('enabled') or 'not there'}"
        )


def _passes(seen: Mapping[str, Any], found: Found) -> None:
    if any(s["manifest"] for s in seen["services"]):
        for check, text in (("port", "free, or the service's own"), ("user", "there"),
                            ("model", "whole"), ("engine", "as described")):  # fmt: skip
            found.passed(check, text)
    if any(s["limits"] for s in seen["services"]):
        found.passed("memlock", "unlimited, as the process has it")
        if not any(one.fault == "limits-container" for one in found.list):
            found.passed("nofile", "enough, as the process has it")
    if seen["services"]:
        found.passed("unit", "as deployed")
        found.passed("secrets", "0600")
        found.passed("opsctl", "nothing left over")
    found.passed("leftovers", "no orphan, no stranger on the GPUs")
