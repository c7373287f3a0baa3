"""Descriptions within a playbook: read, checked, and what the roles need of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from opsctl.ansible.modelfolders import told
from opsctl.ansible.reading import read_hosts
from opsctl.engine.ranks import ranks
from opsctl.inventory.model import HostEntry
from opsctl.inventory.reader import parse
from opsctl.onhost.modelcheck import BY_NAME, loading
from opsctl.release.facts import draft_of, root_of
from opsctl.spec.models import Service


def described(
    names: Iterable[str], task_vars: Mapping[str, Any], loader: Any
) -> dict[str, HostEntry]:
    """The checked descriptions of these hosts. Raises SpecError with every problem of all."""
    sources = [str(source) for source in task_vars.get("ansible_inventory_sources") or ()]
    document = {"hosts": read_hosts(names, task_vars["hostvars"], loader), "sources": sources}
    return parse(Path(sources[0] if sources else "inventory"), document).hosts


def needs(services: Mapping[str, Service], folder: Path) -> dict[str, Any]:
    """What the roles must see to on one host. Holds no secret: it is a task's result.

    `folder`: where relative paths of the controller start.
    """
    return {
        "services": list(services),
        "users": sorted({service.user for service in services.values()}),
        "environments": _environments(services, folder),
        "folders": _model_folders(services),
        "gpus": gpu_needs(services),
    }


def _environments(services: Mapping[str, Service], folder: Path) -> list[dict[str, Any]]:
    """One a root; of services that share it, one that says how it is installed."""
    ordered = sorted(services.values(), key=lambda s: s.engine.install is not None)
    found = {root_of(s): _environment(s, folder) for s in ordered}
    for service in ordered:
        if (service.flags.get("device") or "cuda") == "cuda":
            found[root_of(service)]["cuda"] = True
    return list(found.values())


def _environment(service: Service, folder: Path) -> dict[str, Any]:
    install = service.engine.install
    found: dict[str, Any] = {"version": service.engine.version, "root": root_of(service)}
    found["cuda"] = False
    if install is None:
        return found | {"install": None}
    mirror = install.mirror and str(folder / Path(install.mirror).expanduser())
    requirements = str(folder / Path(install.requirements).expanduser())
    told = {"requirements": requirements, "mirror": mirror, "resolve": install.resolve}
    # An index may carry a password: the task reads it from the description itself.
    return found | {"install": told}


def _model_folders(services: Mapping[str, Service]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, service in services.items():
        path, size = service.model.path, int(service.model.size or 0)
        least = max(size, (found.get(path) or {}).get("size") or 0) or None
        what, known = f"service {name}: model", found.get(path) or {}
        source = told(service.model.source) or known.get("source")
        entry = {"path": path, "size": least, "what": what, "source": source}
        found[path] = entry | _strictest(known, loading(service.flags, "model"))
        draft = draft_of(service.flags)
        if draft:
            what, source = f"service {name}: draft model", told(service.model.draft_source)
            entry = {"path": draft, "size": None, "what": what, "source": source}
            entry = found.get(draft) or entry
            found[draft] = entry | _strictest(entry, loading(service.flags, "draft"))
    return list(found.values())


def _strictest(known: Mapping[str, Any], how: dict[str, Any]) -> dict[str, Any]:
    """How a folder is loaded that several services name: whole enough for each of them."""
    if "load_format" not in known:
        return how
    formats = (known["load_format"], how["load_format"])
    by_name = next((one for one in formats if one in BY_NAME), formats[0])
    return {"load_format": by_name, "own_config": known["own_config"] or how["own_config"]}


def tokens(services: Mapping[str, Service]) -> dict[str, str]:
    """The token of each model's source, by the model's path."""
    found: dict[str, str] = {}
    for service in services.values():
        pairs = [(service.model.path, service.model.source)]
        pairs.append((draft_of(service.flags) or "", service.model.draft_source))
        found |= {p: s.token.get_secret_value() for p, s in pairs if s is not None and s.token}
    return found


def gpu_needs(services: Mapping[str, Service]) -> list[dict[str, Any]]:
    """What each service asks of the host's GPUs and their driver."""
    return [_gpus(name, service) for name, service in services.items()]


def _gpus(name: str, service: Service) -> dict[str, Any]:
    return {
        "service": name,
        "version": service.engine.version,
        "device": str(service.flags.get("device") or "cuda"),
        "gpus": list(service.gpus) if service.gpus is not None else None,
        "count": len(ranks(service.flags)),
    }
