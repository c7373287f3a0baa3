"""The values of `doctor`: a fault that can be found, and what was found. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Dict, Iterable, List, NamedTuple

PASS, WARN, FAIL, UNKNOWN = "pass", "warn", "fail", "unknown"


class Fault(NamedTuple):
    """One kind of fault. `what`: what is found; `cause`: why that is bad, or where it comes from;
    `mend`: the command, with {names} that the finding fills in. `blocks`: it would keep a release
    from starting, so it is one of the preconditions of a rollout."""

    id: str
    check: str
    status: str
    what: str
    cause: str
    mend: str
    blocks: bool = False


@dataclass(frozen=True)
class Finding:
    """One line of `doctor`. `fault` is "" for what passed or could not be told."""

    check: str
    status: str
    detail: str
    fault: str = ""
    cause: str = ""
    mend: str = ""
    service: str = ""
    blocks: bool = False

    def as_json(self) -> Dict[str, Any]:
        found = asdict(self)
        found["id"] = found.pop("check")
        found["hint"] = found.pop("mend")
        order = ("id", "status", "detail", "cause", "hint", "fault", "service")
        return {key: found[key] for key in order}


class Found:
    """What the judges of one subject find, in order. `faults`: the kinds that it may name."""

    def __init__(self, faults: Dict[str, Fault]) -> None:
        self._faults = faults
        self.list: List[Finding] = []

    def fault(self, name: str, detail: str, service: str = "", **fill: object) -> None:
        """`fill`: the values of the {names} in the fault's cause and command."""
        kind = self._faults[name]
        fill = {"service": service, **fill}
        cause, mend = kind.cause.format(**fill), kind.mend.format(**fill)
        self.list.append(
            Finding(kind.check, kind.status, detail, name, cause, mend, service, kind.blocks)
        )

    def unknown(self, check: str, detail: str, cause: str = "", mend: str = "") -> None:
        self.list.append(Finding(check, UNKNOWN, detail, cause=cause, mend=mend))

    def passed(self, check: str, detail: str) -> None:
        """Said only if nothing was found wrong, or unknown, in this check."""
        if not any(one.check == check for one in self.list):
            self.list.append(Finding(check, PASS, detail))


class Problem(str):
    """What would keep a release from starting, in words; `mend`: the command that puts it right, ""
    where none is known."""

    mend: str

    def __new__(cls, text: str, mend: str = "") -> "Problem":
        made = super().__new__(cls, text)
        made.mend = mend
        return made


def mends(problems: Iterable[str]) -> List[str]:
    """The commands of those that have one, each once."""
    return list(dict.fromkeys(p.mend for p in problems if isinstance(p, Problem) and p.mend))


def table(*faults: Fault) -> Dict[str, Fault]:
    return {fault.id: fault for fault in faults}
