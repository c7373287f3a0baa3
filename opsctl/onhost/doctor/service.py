"""`doctor` on services: ports, model, environment, limits, strangers, opsctl's leftovers. Pure."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Optional, Tuple

from opsctl.onhost import hostfacts
from opsctl.onhost.doctor import access, driver, gpu, texts, units
from opsctl.onhost.doctor.driver import older, out, torch_cuda
from opsctl.onhost.doctor.fault import FAIL, WARN, Fault, Finding, Found, table
from opsctl.onhost.doctor.host import gib

MiB = 1 << 20
LEAST_MEMLOCK = 64 << 30  # bytes; pinned host pools are tens of GiB a rank
LEAST_NOFILE = 65536
CAP_SYS_RESOURCE = 24  # bit of a process's capabilities
ENVIRONMENT = 15 << 30  # bytes; an estimate of ours, with what pip unpacks beside it
LEAST_LEFT = 1 << 30  # bytes on a card that nobody owns: a context alone takes some 500 MiB
REBUILD = ("ansible-playbook playbooks/deploy.yml (the role engine builds it anew; without "
           "engine.install, repair {root} by hand)")  # fmt: skip

FAULTS = {**units.FAULTS, **table(
    Fault("port-taken", "port", FAIL, "the service's port held by somebody else",
          "the engine finds out after it has loaded the whole model",
          "ss -ltnp 'sport = :{port}'; stop what listens there", True),
    Fault("user-missing", "user", FAIL, "no such user",
          "the unit cannot start", "ansible-playbook playbooks/deploy.yml (role host)", True),
    Fault("user-ordinary", "user", WARN, "an engine's user that is an ordinary one",
          "logind takes the engine's shared memory when the user's last session ends, unless it "
          "lingers (RemoveIPC)",
          "loginctl enable-linger {user}; for good: a system user in `user` of {service}"),
    Fault("model-missing", "model", FAIL, "no model folder",
          "nothing to load", "ansible-playbook playbooks/deploy.yml, or copy it to {path}", True),
    Fault("model-incomplete", "model", FAIL, "weight files missing or empty",
          "the model's own index names them; the engine ends in the middle of the load",
          "fetch them again into {path}", True),
    Fault("model-cut", "model", FAIL, "weight files that are cut off",
          "shorter than their own headers say: a copy that broke off, or a disk that was full; the "
          "engine ends in the middle of the load", "fetch them again into {path}", True),
    Fault("model-short", "model", FAIL, "weight files smaller than they should be together",
          "files are cut off, another model lies there, or the size that is named is not its own",
          "ls -l {path}; compare with the model's source, and fetch again what is short"),
    Fault("model-odd", "model", FAIL, "a model folder that is not whole",
          "the engine cannot tell what to load", "fetch the model again into {path}"),
    Fault("disk-model", "disk", FAIL, "no room for the model",
          "its size is described, and the disk has less", "df -h {path}; make room"),
    Fault("disk-engine", "disk", WARN, "little room for the engine's environment",
          "torch, its CUDA libraries and the kernels are some 10 GiB", "df -h {path}; make room"),
    Fault("model-unreadable", "model", FAIL, "a model that the engine's user may not read",
          "folder or file modes keep the user out", "chmod a+rX {shut}, or chown it", True),
    Fault("engine-missing", "engine", FAIL, "no environment of the engine",
          "the unit's interpreter is not there",
          "ansible-playbook playbooks/deploy.yml (role engine)", True),
    Fault("engine-python", "engine", FAIL, "an environment without its interpreter",
          "the unit runs bin/python; it is gone, or the Python that it was made with is",
          REBUILD, True),
    Fault("engine-unreadable", "engine", FAIL, "an environment that the engine's user may not run",
          "folder or file modes keep the user out: the start ends at once (203/EXEC)",
          "chmod a+rX {shut}; ansible-playbook playbooks/deploy.yml keeps host_folders so (role "
          "host); a Python in somebody's home: build with another one (engine_python)", True),
    Fault("engine-none", "engine", FAIL, "an environment without SGLang",
          "no sglang.launch_server in its site-packages: the start would end at once",
          REBUILD, True),
    Fault("engine-version", "engine", FAIL, "an environment of another SGLang",
          "flags and forecasts are checked against the version that is described",
          "correct engine.version or engine.root of {service}", True),
    Fault("engine-package", "engine", FAIL, "a package of another version than SGLang pins",
          "torch, kernels and SGLang call each other by exact versions", REBUILD),
    Fault("torch-cpu", "engine", FAIL, "a torch without CUDA",
          "the engine would end, or serve from the CPU", "install torch {torch} for CUDA {cuda}"),
    Fault("torch-driver", "engine", FAIL, "a torch too new for the driver",
          "CUDA {cuda} needs a driver of its own major release",
          "upgrade the driver, or install a torch for an older CUDA"),
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
    Fault("orphan", "leftovers", FAIL, "processes of an engine that no service owns",
          "left by an earlier engine, or started by hand; they hold GPU memory and the port",
          "kill {pid}; if it stays: kill -9 {pid}", True),
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
            _port(service, found)
            files(service, found)
            environment(service, driver.version(seen), found)
            _room(service, seen["disks"], found)
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


def _port(service: Mapping[str, Any], found: Found) -> None:
    name, port = service["service"], (service["manifest"].get("address") or {}).get("port")
    if service["port_holder"]:
        text = f"port {port} is held by {service['port_holder']}"
        found.fault("port-taken", text, name, port=port)
    if service["manifest"].get("user") and service["user"] is None:
        found.fault("user-missing", f"there is no user {service['manifest']['user']}", name)
    elif service["ordinary"] is not None:
        user = service["manifest"]["user"]
        found.fault("user-ordinary", f"{user} has UID {service['ordinary']}", name, user=user)


def files(service: Mapping[str, Any], found: Found) -> None:
    """The model and its draft. What shuts both is told once."""
    name = service["service"]
    told: List[str] = []
    for what in ("model", "draft"):
        model = service[what]
        if model is None:
            continue
        path = model["path"]
        if not model["exists"]:
            found.fault("model-missing", f"{path} is not there", name, path=path)
        elif model["missing"]:
            absent = model["missing"]
            text = f"{path}: {len(absent)} weight files missing or empty, {absent[0]} first"
            found.fault("model-incomplete", text, name, path=path)
        elif model["cut"]:
            text = f"{path}: {', '.join(model['cut'][:3])}"
            more = len(model["cut"]) - 3
            text += f", and {more} more" if more > 0 else ""
            found.fault("model-cut", text, name, path=path)
        elif model["short"]:
            found.fault("model-short", f"{path}: {model['short']}", name, path=path)
        elif model["problems"]:
            found.fault("model-odd", f"{path}: {model['problems'][0]}", name, path=path)
        else:
            shut = [one for one in access.shut(model["access"], service["user"]) if one not in told]
            told += shut
            if shut:
                text = f"{service['manifest'].get('user')} may not read {access.told(shut)}"
                found.fault("model-unreadable", text, name, shut=access.opened(shut, path))


def environment(service: Mapping[str, Any], running: str, found: Found) -> None:
    environment, manifest, name = service["engine"], service["manifest"], service["service"]
    if environment is None:
        return
    root, packages = environment["root"], environment["packages"]
    shut = access.shut(environment["access"], service.get("user"))
    version = str((manifest.get("engine") or {}).get("version") or "")
    if not environment["exists"]:
        found.fault("engine-missing", f"{root} is not there", name)
    elif not (environment["python"] or environment["python_link"] or packages):
        if manifest.get("needs"):  # else of other hands: its unit may run another program
            found.fault("engine-python", f"{root}/bin/python is not there", name, root=root)
    elif not environment["python"]:
        what = "leads to no program" if environment["python_link"] else "is not there"
        found.fault("engine-python", f"{root}/bin/python {what}", name, root=root)
    elif not manifest.get("needs") and not packages:
        return  # of other hands: what it is made of is not known
    elif shut:
        text = f"{manifest.get('user')} may not run {root}/bin/python: {access.told(shut)} is shut"
        found.fault("engine-unreadable", text, name, shut=access.opened(shut, root))
    elif environment.get("elsewhere") and "sglang" not in packages:
        return
    elif "sglang" not in packages or not environment["importable"]:
        found.fault("engine-none", f"{root} holds no SGLang", name, root=root)
    elif version and version not in (packages["sglang"], packages["sglang"].partition("+")[0]):
        text = f"{root} holds SGLang {packages['sglang']}, described is {version}"
        found.fault("engine-version", text, name)
    elif manifest.get("needs"):
        _packages(service, running, found)


def _room(service: Mapping[str, Any], disks: Mapping[str, Mapping[str, Any]], found: Found) -> None:
    """For what is still to come: a model or an environment that is not there yet."""
    name, model, engine = service["service"], service["model"], service["engine"]
    size = int((service["manifest"].get("model") or {}).get("size") or 0)
    if model and not model["exists"]:
        free = (disks.get(model["path"]) or {}).get("free", size)
        if free < size:
            text = f"{gib(free)} are free for {model['path']}, the model takes {gib(size)}"
            found.fault("disk-model", text, name, path=model["path"])
    if engine and not engine["exists"]:
        free = (disks.get(engine["root"]) or {}).get("free", ENVIRONMENT)
        if free < ENVIRONMENT:
            text = f"{gib(free)} are free for {engine['root']}"
            found.fault("disk-engine", text, name, path=engine["root"])


def _packages(service: Mapping[str, Any], running: str, found: Found) -> None:
    environment, name, needs = service["engine"], service["service"], service["manifest"]["needs"]
    root, packages = environment["root"], environment["packages"]
    for package, operator, wanted in pins(environment["requires"]):
        has = packages.get(package, "")
        if not has or (operator == "==" and has.partition("+")[0] != wanted):
            text = f"{root}: {package} {has or 'is not there'}, sglang pins {wanted}"
            found.fault("engine-package", text, name, root=root)
    cuda = torch_cuda(service)
    if "torch" in packages and cuda == "":
        text = f"{root}: torch {packages['torch']} is built without CUDA"
        found.fault("torch-cpu", text, name, torch=needs["torch"], cuda=needs["cuda"])
    least = needs["drivers"].get((cuda or "").split(".")[0], "")
    if least and running and older(running, least) and not older(running, str(needs["driver"])):
        text = f"torch is built for CUDA {cuda}, driver {running} is older than {least}"
        found.fault("torch-driver", text, name, cuda=cuda)


def pins(requires: List[str]) -> List[Tuple[str, str, str]]:
    """(name, "==", version) of what every installation needs; extras are left out."""
    found = []
    for line in requires:
        demand, _, marker = line.partition(";")
        match = re.match(r"([\w.-]+)(?:\[[\w,]+\])?\s*\(?(==)\s*([\w.+]+)\)?\s*$", demand.strip())
        if match and "extra" not in marker and "aarch64" not in marker:
            found.append((re.sub(r"[-_.]+", "-", match[1]).lower(), match[2], match[3]))
    return found


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
    cards: List[Dict[str, Any]] = gpu.known(seen)
    holders = hostfacts.parse_gpu_processes(out(seen, "smi-processes"), cards)
    ours = {pid for service in seen["services"] for pid in service["pids"]}
    strays = {stray["pid"]: stray for stray in seen["strays"]}
    for stray in strays.values():
        held = sum(one["memory"] for one in holders if one["pid"] == stray["pid"])
        on = f", {gib(held)} of GPU memory" if held else ""
        text = f"process {stray['pid']} ({stray['comm']}) in {stray['unit'] or 'no unit'}{on}"
        found.fault("orphan", text, pid=stray["pid"])
    wanted = [s["manifest"].get("gpus") for s in seen["services"] if s["manifest"].get("needs")]
    for one in holders:
        mine = any(gpus is None or one["gpu"] in gpus for gpus in wanted)
        if mine and one["pid"] > 0 and one["pid"] not in ours and one["pid"] not in strays:
            text = f"process {one['pid']} holds {gib(one['memory'])} of GPU {one['gpu']}"
            found.fault("gpu-stranger", text, pid=one["pid"])
    if out(seen, "smi-processes").startswith(("No devices", "Failed", "NVIDIA-SMI has failed")):
        return
    busy = {one["gpu"] for one in holders}
    told = (texts.details(out(seen, "smi-details")) or {}).get("cards", [])
    busy |= {card["index"] for card in told if card["display"]}
    for card in cards:
        if card["state"] == "ok" and card["memory_used"] > LEAST_LEFT and card["index"] not in busy:
            text = f"GPU {card['index']}: {gib(card['memory_used'])} in use, and no process"
            found.fault("gpu-memory", text, gpu=card["index"])


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
