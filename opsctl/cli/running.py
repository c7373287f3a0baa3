"""`opsctl import --host`: an engine that runs on a host, by whoever's hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opsctl.cli import fleet
from opsctl.errors import NothingSelected, OpsctlError, Refused

if TYPE_CHECKING:
    from opsctl.cli.frame import Settings
    from opsctl.importing import Asked, Imported
    from opsctl.remote.host import Host

LONGEST = 120.0  # seconds


@dataclass(frozen=True)
class Where:
    """The host, and which of its engines; with none named, the only one that runs there."""

    host: str
    unit: str = ""
    pid: int = 0
    container: str = ""

    @property
    def arguments(self) -> list[str]:
        named = {"--unit": self.unit, "--pid": str(self.pid or ""), "--container": self.container}
        return [part for option, value in named.items() if value for part in (option, value)]


def imported(where: Where, settings: Settings, asked: Asked) -> Imported:
    """Raises NothingSelected (no such host; none or several engines there), Unreachable."""
    from opsctl.importing.running import from_host

    if len(where.arguments) > 2:
        raise Refused("--unit, --pid and --container exclude each other", hint="give one of them")
    chosen = fleet.choose(settings, bare=True, limit=[where.host])
    if len(chosen.names) != 1:
        raise Refused(f"--host {where.host} names {len(chosen.names)} hosts", hint="name one")
    with fleet.opened(chosen) as reached:
        said = reached.each(lambda host: _ask(host, where), timeout=LONGEST)
    (answer,) = said.values()
    if isinstance(answer, OpsctlError):
        raise answer
    return from_host(opened(one(answer["found"], where.host)), asked)


def _ask(host: Host, where: Where) -> dict[str, Any]:
    from opsctl.remote import onhost

    return onhost.call(host, "running", *where.arguments, timeout=LONGEST)


def one(found: Sequence[Mapping[str, Any]], host: str) -> Mapping[str, Any]:
    """The only engine; raises NothingSelected with what to type for each of several."""
    if not found:
        raise NothingSelected(
            f"no SGLang server runs on {host}",
            hint="of a unit that is stopped: --unit NAME",
        )
    if len(found) > 1:
        lines = [f"{len(found)} SGLang servers run on {host}; say which:"]
        raise NothingSelected("\n".join([*lines, *(f"  {_line(each)}" for each in found)]))
    return found[0]


def _line(found: Mapping[str, Any]) -> str:
    option = {
        "unit": f"--unit {found['name']}",
        "container": f"--container {str(found['name'])[:12]}",
        "process": f"--pid {found.get('pid')}",
    }[found["kind"]]
    engine = (found.get("engine") or {}).get("version") or "of an unknown version"
    name = (found.get("container") or {}).get("name")
    parts = [
        f"container {name}" if name else "",
        f"SGLang {engine}",
        str(found.get("model") or ""),
        f"port {found['port']}" if found.get("port") else "",
        f"process {found.get('pid')} of {found.get('user')}",
        str(found.get("by") or ""),
    ]
    return f"{option}: {', '.join(part for part in parts if part)}"


def opened(found: Mapping[str, Any]) -> dict[str, Any]:
    """With all that was sealed on the host."""
    from opsctl.remote.onhost import unsealed

    value = dict(found)
    if found.get("process"):
        value["process"] = unsealed(found["process"])
    if found.get("unit"):
        value["unit"] = {**found["unit"], **unsealed(found["unit"]["sealed"])}
    if found.get("container"):
        sealed = found["container"]["sealed"]
        inspected = unsealed(sealed) if sealed else None
        value["container"] = {**found["container"], "inspected": inspected}
    return value
