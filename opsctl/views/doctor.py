"""`opsctl doctor`: failures first, then warnings, then how many checks passed.

What several hosts have in common is shown once, with their names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opsctl.errors import OpsctlError, Unreachable
from opsctl.onhost.doctorfault import FAIL, PASS, UNKNOWN, WARN
from opsctl.remote.sanitise import text as harmless

if TYPE_CHECKING:
    from rich.console import RenderableType

Checks = Mapping[str, Sequence[Mapping[str, Any]]]  # host → its checks

MARKS = {FAIL: ("✗", "red"), WARN: ("!", "yellow"), UNKNOWN: ("?", "yellow"), PASS: ("✓", "green")}
SKEW = 5.0  # seconds between controller and host that nobody notices
SHOWN = 3  # findings of one kind on one host that are told one by one


def checks(answer: dict[str, Any] | OpsctlError) -> list[dict[str, Any]]:
    """All checks of one host: those of the connection, then what the host itself says."""
    if isinstance(answer, OpsctlError):
        return [_lost(answer)]
    found = [_check("ssh", PASS, "reached, and root by sudo where it is not root already")]
    for text in answer.get("description") or ():
        cause = "the description is not right; the host was judged by what stands there"
        found.append(
            _check("description", FAIL, text, cause, "opsctl config validate", "description")
        )
    return [*found, *_skew(answer), *answer["checks"]]


def _lost(error: OpsctlError) -> dict[str, Any]:
    """A host that gave no answer is a finding, not the end of the look at the others."""
    kinds = {"sudo": ("sudo", "sudo-refused"), "host key": ("ssh", "ssh-host-key")}
    name, fault = kinds.get(error.step, ("ssh", "ssh-unreachable"))
    if type(error).__name__ == "NoPython":
        name, fault = "python", "python-missing"
    elif not isinstance(error, Unreachable) and name == "ssh":
        name, fault = "answer", "not-examined"
    causes = {
        "ssh-unreachable": "no connection, or no login",
        "ssh-host-key": "the host is not the one that is known, or is not known yet",
        "sudo-refused": "opsctl needs root, by a login as root or by sudo",
        "python-missing": "opsctl needs python3 on the host",
        "not-examined": "the host was reached and gave no answer that can be used",
    }
    return _check(name, FAIL, error.message, causes[fault], error.hint, fault)


def _skew(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The host's time must lie between question and answer; a slow connection is no skew."""
    before, after = answer["window"]
    skew = max(before - answer["time"], answer["time"] - after, 0.0)
    if skew <= SKEW:
        return []
    which = "behind" if answer["time"] < before else "ahead of"
    detail = f"{skew:.0f} s {which} this machine"
    cause = "one of the two clocks is wrong; times of runs and journals cannot be compared"
    return [_check("clock", WARN, detail, cause, "timedatectl, on both", "clock-skew")]


def _check(
    name: str, status: str, detail: str, cause: str = "", hint: str = "", fault: str = ""
) -> dict[str, Any]:
    told = {"id": name, "status": status, "detail": detail, "cause": cause, "hint": hint}
    return {**told, "fault": fault, "service": ""}


def document(found: Checks) -> dict[str, Any]:
    """Flat: one entry a check and host, so that `jq` needs no second loop."""
    flat = [{"host": host, **check} for host, of_host in found.items() for check in of_host]
    counts = Counter(check["status"] for check in flat)
    return {
        "schema_version": 1,
        "ok": not counts[FAIL],
        "failures": counts[FAIL],
        "warnings": counts[WARN],
        "unknown": counts[UNKNOWN],
        "passed": counts[PASS],
        "checks": flat,
    }


def rows(found: Checks) -> list[tuple[str, str, str, str, str, str]]:
    """(status, check, hosts, detail, cause, hint): what is not well, the worst first."""
    together: dict[tuple[str, ...], list[str]] = {}
    for host, of_host in found.items():
        for row in _of_host(of_host):
            together.setdefault(row, []).append(host)
    ordered = sorted(together.items(), key=lambda item: (FAIL, WARN, UNKNOWN).index(item[0][0]))
    return [(row[0], row[1], ", ".join(hosts), row[2], row[3], row[4]) for row, hosts in ordered]


def _of_host(of_host: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Findings of one kind together: eight cards with one fault are one line."""
    kinds: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for check in of_host:
        if check["status"] != PASS:
            key = (check["status"], check["id"], check["fault"] or check["detail"])
            kinds.setdefault(key, []).append(check)
    told: list[tuple[str, ...]] = []
    for (status, name, _), same in kinds.items():
        details = [str(check["detail"]) for check in same]
        text = "; ".join(details[:SHOWN])
        if len(details) > SHOWN:
            text += f"; and {len(details) - SHOWN} more like it"
        told.append((status, name, text, str(same[0]["cause"]), str(same[0]["hint"])))
    return told


def passed(found: Checks) -> list[str]:
    """ "h1, h2: 31 checks passed" """
    counts: dict[int, list[str]] = {}
    for host, of_host in found.items():
        number = sum(check["status"] == PASS for check in of_host)
        counts.setdefault(number, []).append(host)
    return [
        f"{', '.join(hosts)}: {number} check{'' if number == 1 else 's'} passed"
        for number, hosts in counts.items()
    ]


def report(found: Checks) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, show_header=False)
    drawn.add_column()
    drawn.add_column(no_wrap=True)
    drawn.add_column(overflow="fold")
    several = len(found) > 1
    for status, name, hosts, detail, cause, hint in rows(found):
        mark, style = MARKS[status]
        where = f"{hosts}: " if several else ""
        drawn.add_row(Text(mark, style), Text(name, style), Text(harmless(where + detail)))
        if cause:
            drawn.add_row("", "", Text(harmless(cause), "dim"))
        if hint:
            drawn.add_row("", "", Text(f"→ {harmless(hint)}"))
    lines = [Text.assemble(MARKS[PASS], " ", harmless(line)) for line in passed(found)]
    return Group(*([drawn] if drawn.row_count else []), *lines)
