"""`opsctl doctor`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opsctl.cli import fleet
from opsctl.cli.console import data, show
from opsctl.cli.frame import Output, Settings
from opsctl.errors import NotExamined, OpsctlError, SpecError, Unreachable

if TYPE_CHECKING:
    from opsctl.remote.host import Host

LONGEST = 180.0  # s; every command on the host has a limit of its own, the longest of 20 s


def doctor(settings: Settings) -> None:
    """Say what is wrong with hosts, and what mends it.

    One connection and one read a host: system, driver, GPUs, links, memory, disks, model files,
    engine, limits, and what earlier runs left. Changes nothing. Ends with 0 if no check fails,
    though there may be warnings; 1 if one fails; 2 if a host was reached and could not be
    examined; 4 if one could not be reached.
    """
    from opsctl import inventory
    from opsctl.views.doctor import checks, document, report

    path = inventory.find(settings.inventory)
    raw = inventory.as_far(path)
    chosen = inventory.select(inventory.book_of(path, raw), (), settings.hosts, bare=True)
    chosen.must_be_read()
    described = {name: manifests(raw, name) for name in chosen.names}
    with fleet.opened(chosen) as reached:
        said = reached.each(lambda host: examined(host, described[host.name]), timeout=LONGEST)
    found = {name: checks(answer) for name, answer in said.items()}
    if settings.form is Output.text:
        show(report(found, settings.inventory), settings)
    else:
        data(document(found, settings.inventory), settings.form, each="checks")
    raise_worst(said, found)


def manifests(raw: Mapping[str, Any], host: str) -> list[dict[str, Any]] | SpecError:
    """What is described for the host, as releases know it; a description that is wrong is a
    finding, and no reason to look no further."""
    from opsctl import spec
    from opsctl.release.manifest import outline

    try:
        found = []
        for name, service in spec.load(raw, host).items():
            told = outline(name, service)
            size = int(service.model.size) if service.model.size else None
            found.append({**told, "model": {**told["model"], "size": size}})
        return found
    except SpecError as error:
        return error


def examined(host: Host, described: list[dict[str, Any]] | SpecError) -> dict[str, Any]:
    """The host's answer, with what only the controller can tell: the description, the clock."""
    from opsctl.remote.onhost import call

    wanted = [] if isinstance(described, SpecError) else described
    before = time.time()
    stdin = json.dumps({"manifests": wanted}).encode()
    answer = call(host, "doctor", stdin=stdin, timeout=LONGEST)
    answer["window"] = [before, time.time()]
    if isinstance(described, SpecError):
        answer["description"] = [str(problem) for problem in described.problems]
    return answer


def raise_worst(said: Mapping[str, Any], found: Mapping[str, list[dict[str, Any]]]) -> None:
    """Raises Unreachable (4), NotExamined (2), OpsctlError (1): the first that any host earns."""
    lost = [name for name, answer in said.items() if isinstance(answer, Unreachable)]
    blind = [n for n, a in said.items() if isinstance(a, OpsctlError) and n not in lost]
    sick = [n for n, all_ in found.items() if any(c["status"] == "fail" for c in all_)]
    if lost:
        raise Unreachable(f"could not be reached: {', '.join(lost)}")
    if blind:
        raise NotExamined(f"could not be examined: {', '.join(blind)}")
    if sick:
        raise OpsctlError(f"a check failed on {', '.join(sick)}")
