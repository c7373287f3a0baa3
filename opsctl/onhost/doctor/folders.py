"""`doctor` on the folders that a release names: model, draft, engine. Pure."""

from __future__ import annotations

import re
from typing import Any, List, Mapping, Tuple

from opsctl.onhost import modelcheck, storage
from opsctl.onhost.doctor import access
from opsctl.onhost.doctor.driver import older, torch_cuda
from opsctl.onhost.doctor.fault import FAIL, WARN, Fault, Found, table
from opsctl.onhost.doctor.host import gib

ENVIRONMENT = 15 << 30  # bytes; an estimate of ours, with what pip unpacks beside it
REBUILD = ("ansible-playbook playbooks/deploy.yml (the role engine builds it anew; without "
           "engine.install, repair {root} by hand)")  # fmt: skip

FAULTS = table(
    Fault("mount-hangs", "disk", FAIL, "a file system that does not answer",
          "a server that is gone, for one: whatever reads there waits for it, the engine too",
          "findmnt -l; bring its server back, or: umount -lf {mount}, and mount it anew", True),
    Fault("model-missing", "model", FAIL, "no model folder",
          "nothing to load", "ansible-playbook playbooks/deploy.yml, or copy it to {path}", True),
    Fault("model-incomplete", "model", FAIL, "weight files missing or empty",
          "the model's own index names them, or the numbers of the others do; the engine ends in "
          "the load, or serves without them", "fetch them again into {path}", True),
    Fault("model-foreign", "model", FAIL, "files that are no weights",
          "a pointer of git-lfs, or the page of an error, was saved under the file's name: the "
          "engine ends in the load",
          "fetch them again into {path}; in a clone: git -C {path} lfs pull", True),
    Fault("model-cut", "model", FAIL, "weight files that are cut off",
          "shorter than their own headers say: a copy that broke off, or a disk that was full; the "
          "engine ends in the middle of the load", "fetch them again into {path}", True),
    Fault("model-short", "model", FAIL, "weight files smaller than they should be together",
          "files are cut off, another model lies there, or the size that is named is not its own",
          "ls -l {path}; compare with the model's source, and fetch again what is short"),
    Fault("model-odd", "model", FAIL, "a model folder that the engine cannot read",
          "its configuration, its weights or their index are not there, or damaged: the engine "
          "cannot tell what to load", "fetch the model again into {path}", True),
    Fault("model-unindexed", "model", WARN, "weights in several files without their index",
          "the engine loads every .safetensors file of the folder, and a second form of the "
          "weights too", "fetch {index} again into {path}"),
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
    Fault("engine-unnamed", "engine", FAIL, "an SGLang that names no version",
          "its files are there and its dist-info is not: which release it is, and what it pins, "
          "cannot be told", REBUILD),
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
)  # fmt: skip


def models(service: Mapping[str, Any], found: Found) -> None:
    """The model and its draft, and mounts that do not answer. What shuts both is told once."""
    name = service["service"]
    told: List[str] = []
    for path, mount in service["silent"].items():
        source = mount.partition(" ")[2]  # what umount takes without looking at the place
        found.fault("mount-hangs", storage.told(path, mount), name, mount=source or "its place")
    for what in ("model", "draft"):
        model = service[what]
        if model is None:
            continue
        path = model["path"]
        if not model["exists"]:
            found.fault("model-missing", f"{path} is not there", name, path=path)
            continue
        flags = service["manifest"].get("flags") or {}
        how = modelcheck.loading(flags, what)
        for fault, text in modelcheck.faults(model, **how):
            found.fault(fault, f"{path}: {text}", name, path=path)
        if model["unindexed"] and how["load_format"] in modelcheck.BY_NAME:
            text = f"{path}: {model['unindexed']} is missing"
            found.fault("model-unindexed", text, name, path=path, index=model["unindexed"])
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
    elif not environment["importable"]:
        found.fault("engine-none", f"{root} holds no SGLang", name, root=root)
    elif "sglang" not in packages:
        text = f"{root} holds an SGLang without its dist-info; described is {version or 'none'}"
        found.fault("engine-unnamed", text, name, root=root)
    elif version and version not in (packages["sglang"], packages["sglang"].partition("+")[0]):
        text = f"{root} holds SGLang {packages['sglang']}, described is {version}"
        found.fault("engine-version", text, name)
    elif manifest.get("needs"):
        _packages(service, running, found)


def room(service: Mapping[str, Any], disks: Mapping[str, Mapping[str, Any]], found: Found) -> None:
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
