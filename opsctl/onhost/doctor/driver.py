"""`doctor` on driver, fabric manager and toolkit. Pure: texts and values in, findings out."""

from __future__ import annotations

import re
from typing import Any, List, Mapping, Optional, Sequence, Tuple

from opsctl.onhost import unitfacts
from opsctl.onhost.doctor import smi, xid
from opsctl.onhost.doctor.fault import FAIL, WARN, Fault, Finding, Found, table
from opsctl.onhost.doctor.smi import cards_on_bus, out, state, version

FAULTS = table(
    Fault("driver-none", "driver", FAIL, "NVIDIA cards without a driver",
          "the kernel module nvidia is not loaded, so no program sees the cards",
          "modprobe nvidia; journalctl -k -b | grep -i nvidia", True),
    Fault("driver-smi-missing", "driver", FAIL, "a loaded driver without nvidia-smi",
          "the driver's tools are not installed; nothing can be told of the cards",
          "install the package of nvidia-smi of driver {driver}", True),
    Fault("driver-smi-broken", "driver", FAIL, "an nvidia-smi that crashes, or tells nothing",
          "its library or the driver is damaged; nothing can be told of the cards",
          "nvidia-smi; echo $?; journalctl -k -b | grep -iE 'nvrm|nvidia|segfault'; install the "
          "driver's packages again", True),
    Fault("driver-mismatch", "driver", FAIL, "kernel module and library of different versions",
          "the driver was upgraded under the running kernel module; programs that start now fail",
          "reboot", True),
    Fault("driver-dead", "driver", FAIL, "a driver that nvidia-smi cannot speak with",
          "the kernel module is missing, or failed when it was loaded",
          "lspci -d 10de:; journalctl -k -b | grep -iE 'nvrm|nvidia'", True),
    Fault("driver-hangs", "driver", FAIL, "an nvidia-smi that does not answer",
          "a card or its firmware does not answer the driver; more questions hang too",
          "journalctl -k -b | grep Xid; then reboot", True),
    Fault("driver-waits", "driver", WARN, "another driver on disk than in the kernel",
          "it was upgraded and not loaded; the next reboot changes the driver",
          "reboot when the host is drained"),
    Fault("driver-old", "driver", FAIL, "a driver too old for the engine",
          "torch and the kernels of this release call what the driver does not have",
          "upgrade the driver to {least} or newer, then reboot", True),
    Fault("nouveau", "nouveau", FAIL, "nouveau holds the cards",
          "the open driver of the kernel was loaded first, so NVIDIA's cannot be",
          "echo 'blacklist nouveau' > /etc/modprobe.d/nouveau.conf; update-initramfs -u; reboot",
          True),
    Fault("unsigned-module", "secure-boot", FAIL, "Secure Boot refuses the driver",
          "the module is not signed by a key that the firmware trusts",
          "mokutil --import the key that signed the module, or turn Secure Boot off"),
    Fault("fabric-manager-missing", "fabric", FAIL, "NVSwitches without a fabric manager",
          "on machines with NVSwitches no CUDA program starts without it (error 802)",
          "install nvidia-fabricmanager of exactly {driver}", True),
    Fault("fabric-manager-stopped", "fabric", FAIL, "a fabric manager that does not run",
          "on machines with NVSwitches no CUDA program starts without it (error 802)",
          "systemctl enable --now nvidia-fabricmanager.service", True),
    Fault("fabric-manager-idle", "fabric", WARN, "an enabled fabric manager that does not run",
          "somebody asked for it (nvidia_driver_fabric_manager: yes, or its package), and no "
          "NVSwitch shows on the bus: those of NVLink 5 never do",
          "systemctl restart nvidia-fabricmanager.service; without switches: disable it, and "
          "nvidia_driver_fabric_manager: no"),
    Fault("fabric-manager-version", "fabric", FAIL, "a fabric manager of another version",
          "it works only with a driver of exactly its own version",
          "install nvidia-fabricmanager of exactly {driver}", True),
    Fault("xid-card", "xid", FAIL, "Xid errors that tell of the card",
          "{meaning}",
          "drain the host; nvidia-smi -r -i {bus}, or reboot; if it returns: the vendor"),
    Fault("xid-gone", "xid", FAIL, "Xid errors of a card that has left the bus",
          "{meaning}; no reset brings it back",
          "journalctl -k -b | grep Xid; power the host off and on; if it returns: the vendor"),
    Fault("xid-reset", "xid", WARN, "Xid errors of memory that is taken out of use",
          "{meaning}", "drain the host; nvidia-smi -r -i {bus}, or reboot"),
    Fault("xid-program", "xid", WARN, "Xid errors that mostly tell of a service's program",
          "{meaning}", "journalctl -k -b | grep Xid; opsctl logs {service}"),
    Fault("xid-process", "xid", WARN, "Xid errors that mostly tell of a program, no service's",
          "{meaning}", "journalctl -k -b | grep Xid, which names the process"),
    Fault("sxid", "xid", FAIL, "fatal errors of an NVSwitch",
          "the links that pass this switch are down for all GPUs",
          "reboot; if it returns: the vendor"),
    Fault("toolkit-major", "toolkit", WARN, "nvcc of another CUDA than torch's",
          "kernels that are compiled at run time are built against another major release",
          "put the toolkit of CUDA {cuda} at /usr/local/cuda"),
    Fault("toolkit-missing", "toolkit", WARN, "no nvcc",
          "kernels that no wheel holds cannot be compiled at run time",
          "install the CUDA toolkit {cuda}; its place is /usr/local/cuda"),
)  # fmt: skip

SWITCH_CLASS = "0x0680"  # bridges: NVSwitches


def judge(seen: Mapping[str, Any]) -> List[Finding]:
    """`seen`: the whole look."""
    found = Found(FAULTS)
    _driver(seen, found)
    _nouveau(seen, found)
    _fabric(seen, found)
    _xids(seen, found)
    _toolkit(seen, found)
    return found.list


def blocking(seen: Mapping[str, Any], manifest: Mapping[str, Any]) -> List[Finding]:
    """What of it concerns one release before its start; `seen`: the look before it."""
    found = Found(FAULTS)
    service = {"service": str(manifest.get("service") or ""), "manifest": manifest}
    _driver({**seen, "services": [service]}, found)
    _nouveau(seen, found)
    _fabric(seen, found)
    return found.list


def older(one: str, other: str) -> bool:
    return numbers(one) < numbers(other)


def numbers(text: str) -> Tuple[int, ...]:
    """ "580.65.06" → (580, 65, 6); what is not a number ends it."""
    found = []
    for part in text.split("."):
        if not part.isdigit():
            break
        found.append(int(part))
    return tuple(found)


def _driver(seen: Mapping[str, Any], found: Found) -> None:
    loaded, cards = version(seen), cards_on_bus(seen)
    wanted = any(service["manifest"].get("needs") for service in seen["services"])
    if not cards and not loaded and not wanted:
        found.passed("driver", "no NVIDIA cards here, and none are asked for")
        return
    silence = smi.silence(seen)
    # Without nouveau the driver would be loaded.
    if silence and not (silence.fault == "driver-none" and _by_nouveau(seen)):
        found.fault(silence.fault, silence.detail, driver=loaded or "…")
    if not cards and not loaded:
        return
    _disk_version(seen, loaded, found)
    for service in seen["services"]:
        least = (service["manifest"].get("needs") or {}).get("driver")
        if least and loaded and older(loaded, least):
            engine = (service["manifest"].get("engine") or {}).get("version", "")
            text = f"driver {loaded}, SGLang {engine} needs {least} or newer".replace("  ", " ")
            found.fault("driver-old", text, service["service"], least=least)
    found.passed("driver", f"NVIDIA driver {loaded}")


def _disk_version(seen: Mapping[str, Any], loaded: str, found: Found) -> None:
    if told := unitfacts.told_waiting(loaded, out(seen, "module-version")):
        found.fault("driver-waits", told)


def _by_nouveau(seen: Mapping[str, Any]) -> List[str]:
    """The cards that nouveau holds."""
    return [d["bus"] for d in seen["pci"] if d["driver"] == "nouveau"]


def _nouveau(seen: Mapping[str, Any], found: Found) -> None:
    modules = {line.split(" ")[0] for line in seen["files"].get("/proc/modules", "").splitlines()}
    held = _by_nouveau(seen)
    if "nouveau" in modules or held:
        on = f", on {', '.join(held)}" if held else ""
        found.fault("nouveau", f"nouveau is loaded{on}")
    found.passed("nouveau", "nouveau is not loaded")
    log = out(seen, "kernel")
    refused = re.search(r"^.*(?:unsigned module|Key was rejected by service).*$", log, re.MULTILINE)
    if seen.get("secure_boot") and refused and "nvidia" not in modules and cards_on_bus(seen):
        found.fault("unsigned-module", refused[0].strip()[-160:])
    if seen.get("secure_boot") is not None:
        found.passed("secure-boot", f"Secure Boot is {'on' if seen['secure_boot'] else 'off'}")


def _fabric(seen: Mapping[str, Any], found: Found) -> None:
    """Machines whose switches stand on the bus must have a fabric manager of their own; of others
    (on a rack-scale machine it runs elsewhere) only one that somebody has enabled is judged."""
    switches = [d for d in seen["pci"] if d["class"].startswith(SWITCH_CLASS)]
    loaded = version(seen)
    unit = seen["units"].get("nvidia-fabricmanager.service") or {}
    if not switches:
        active = unit.get("active")
        if unit.get("load") == "loaded" and unit.get("enabled") == "enabled" and active != "active":
            text = f"nvidia-fabricmanager.service is enabled and {active}"
            found.fault("fabric-manager-idle", text)
        return
    told = re.search(r"version is\s*:\s*(\S+)", out(seen, "fabric-version"))
    if unit.get("load") != "loaded":
        text = f"{len(switches)} NVSwitches, and no nvidia-fabricmanager.service"
        found.fault("fabric-manager-missing", text, driver=loaded)
    elif unit.get("active") != "active":
        text = f"nvidia-fabricmanager.service is {unit.get('active')}"
        found.fault("fabric-manager-stopped", text)
    if told and loaded and told[1] != loaded:
        text = f"fabric manager {told[1]}, driver {loaded}"
        found.fault("fabric-manager-version", text, driver=loaded)
    found.passed("fabric", f"fabric manager {told[1] if told else ''} runs".replace("  ", " "))


def _xids(seen: Mapping[str, Any], found: Found) -> None:
    if state(seen, "kernel") != "ok" or "No journal files" in out(seen, "kernel"):
        found.unknown("xid", "the kernel's log cannot be read", mend="journalctl -k -b")
        return
    for one in xid.read(out(seen, "kernel")):
        unlisted = (xid.PROGRAM, "see NVIDIA's catalogue of Xids")
        whose, meaning = xid.XIDS.get(one.number, unlisted)
        often = f", {one.times} times" if one.times > 1 else ""
        text = f"Xid {one.number} on {one.bus}{often}: {meaning}"
        service = _owner(seen["services"], one.pids) if whose == xid.PROGRAM else ""
        fault = "xid-process" if whose == xid.PROGRAM and not service else whose
        found.fault(fault, text, service, meaning=meaning, bus=one.bus)
    fatal = [(bus, number) for bus, number, dead in xid.switches(out(seen, "kernel")) if dead]
    if fatal:
        told = ", ".join(f"SXid {number} on {bus}" for bus, number in fatal)
        found.fault("sxid", told)
    found.passed("xid", "no Xid in the kernel's log since boot")


def _owner(services: Sequence[Mapping[str, Any]], pids: Sequence[int]) -> str:
    """The service whose program it was. One that has ended meanwhile is nobody's any more: then the
    only service that runs on GPUs, "" if there are several."""
    named = [s["service"] for s in services if set(pids) & set(s["pids"])]
    on_gpus = [s["service"] for s in services if s["manifest"].get("needs")]
    return str((named or (on_gpus if len(on_gpus) == 1 else [""]))[0])


def _toolkit(seen: Mapping[str, Any], found: Found) -> None:
    """Asked only for environments whose torch is built for CUDA: others compile nothing."""
    release = re.search(r"release (\d+)\.(\d+)", out(seen, "nvcc"))
    for service in seen["services"]:
        cuda = torch_cuda(service)
        if not cuda or not service["manifest"].get("needs"):
            continue
        name = service["service"]
        if release is None:
            found.fault(
                "toolkit-missing", f"no nvcc; torch is built for CUDA {cuda}", name, cuda=cuda
            )
        elif release[1] != cuda.split(".")[0]:
            text = f"nvcc {release[1]}.{release[2]}, torch is built for CUDA {cuda}"
            found.fault("toolkit-major", text, name, cuda=cuda)
    if release:
        found.passed("toolkit", f"nvcc {release[1]}.{release[2]}")


def torch_cuda(service: Mapping[str, Any]) -> Optional[str]:
    """CUDA that the environment's torch is built for, "12.8"; "" for none, None if not known.

    From torch/version.py, else from the local part of its version (2.9.1+cu128).
    """
    environment = service.get("engine") or {}
    text = str(environment.get("torch") or "")
    assigned = re.search(r"^cuda[^=\n]*=\s*(?:'([\d.]+)'|None)", text, re.MULTILINE)
    if assigned:
        return assigned[1] or ""
    local = re.search(r"\+cu(\d+)(\d)$", str((environment.get("packages") or {}).get("torch", "")))
    return f"{local[1]}.{local[2]}" if local else None
