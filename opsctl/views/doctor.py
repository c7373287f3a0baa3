"""`opsctl doctor`: failures first, then warnings, then how many checks passed.

What several hosts have in common is shown once, with their names.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsctl.errors import OpsctlError, SpecError, Unreachable
from opsctl.onhost.doctor.fault import FAIL, PASS, UNKNOWN, WARN, Fault, Found, table
from opsctl.remote.onhost import NoPython
from opsctl.remote.sanitise import text as harmless
from opsctl.views.plays import from_here, typeable

if TYPE_CHECKING:
    from rich.console import RenderableType

Checks = Mapping[str, Sequence[Mapping[str, Any]]]  # host → its checks

MARKS = {FAIL: ("✗", "red"), WARN: ("!", "yellow"), UNKNOWN: ("?", "yellow"), PASS: ("✓", "green")}
SKEW = 5.0  # seconds between controller and host that nobody notices
# A command of opsctl's in a hint: up to what ends a command, or a clause.
_COMMAND = re.compile(r"(?<![/\w.-])opsctl( [a-z](?:[^;,`()|&\n]|,(?=\S))*[^;,`()|&\s.])")
_OF_HOSTS = {
    *("deploy", "restart", "start", "stop", "rollback", "unlock", "watch", "status", "logs"),
    *("memory", "doctor", "plan", "verify", "hosts", "history", "remove", "forecast", "render"),
}
SHOWN = 3  # findings of one kind on one host that are told one by one


# What only the controller sees.
FAULTS = table(
    Fault("ssh-unreachable", "ssh", FAIL, "a host that cannot be reached",
          "no connection, or none that lasts until it is asked", "ssh USER@HOST by hand"),
    Fault("ssh-jump", "ssh", FAIL, "a jump host that does not lead there",
          "it cannot be reached, refuses the login, or may not forward (AllowTcpForwarding)",
          "ssh -J JUMP USER@HOST by hand"),
    Fault("ssh-login", "ssh", FAIL, "a login that is refused",
          "the host is there; none of the keys, nor ansible_password, is accepted",
          "ssh-copy-id USER@HOST, or ansible_private_key_file, or ssh-add KEY"),
    Fault("ssh-shell", "ssh", FAIL, "a login shell that runs no command",
          "nologin, a shell that is not there, or a command that sshd forces",
          "usermod -s /bin/sh USER, or another ansible_user"),
    Fault("ssh-setting", "ssh", FAIL, "a setting of the connection that opsctl cannot honour",
          "the host was not asked", "docs/connections.md says which there are"),
    Fault("ssh-host-key", "ssh", FAIL, "a host key that is not the known one",
          "it is another machine, was reinstalled, or was never seen",
          "check the fingerprint on its console, then correct known_hosts"),
    Fault("sudo-refused", "sudo", FAIL, "a login that may not become root",
          "opsctl needs root, by a login as root or by sudo",
          "allow it NOPASSWD in sudoers, or set ansible_become_password, or opsctl -K"),
    Fault("python-missing", "python", FAIL, "no Python on the host",
          "opsctl needs python3 there", "install python3, or set ansible_python_interpreter"),
    Fault("python-old", "python", FAIL, "a Python older than 3.9",
          "the part of opsctl that runs on the host needs 3.9",
          "install a newer python3, and set ansible_python_interpreter"),
    Fault("not-examined", "answer", FAIL, "an answer that cannot be used",
          "the host was reached, and the look at it failed", "opsctl doctor --debug"),
    Fault("description", "description", FAIL, "a description that is not right",
          "the host was judged only by what stands there", "opsctl config validate"),
    Fault("clock-skew", "clock", WARN, "a clock that differs from this machine's",
          "times of runs and journals cannot be compared", "timedatectl, on both"),
)  # fmt: skip


def checks(answer: dict[str, Any] | OpsctlError) -> list[dict[str, Any]]:
    """All checks of one host: those of the connection, then what the host itself says."""
    found = Found(FAULTS)
    if isinstance(answer, OpsctlError):
        found.fault(_kind(answer), answer.message)
        told = [one.as_json() for one in found.list]
        return [{**told[0], "hint": answer.hint or _settings(answer) or told[0]["hint"]}]
    for text in answer.get("description") or ():
        found.fault("description", text)
    _skew(answer, found)
    found.passed("ssh", "reached, and root there")
    return [*(one.as_json() for one in found.list), *answer["checks"]]


def _settings(error: OpsctlError) -> str:
    """What to write in the inventory."""
    problems = error.problems if isinstance(error, SpecError) else ()
    told = [f"{p.key}: {p.allowed}" for p in problems if p.key and p.allowed]
    return f"in the inventory: {', '.join(told)}" if told else ""


_OF_STEP = {
    "sudo": "sudo-refused",
    "shell": "ssh-shell",
    "host key": "ssh-host-key",
    "jump": "ssh-jump",
    "login": "ssh-login",
}


def _kind(error: OpsctlError) -> str:
    """A host that gave no answer is a finding, not the end of the look at the others."""
    if isinstance(error, SpecError):
        return "ssh-setting"
    if isinstance(error, NoPython):
        return "python-old" if error.old else "python-missing"
    lost = "ssh-unreachable" if isinstance(error, Unreachable) else "not-examined"
    return _OF_STEP.get(error.step, lost)


def _skew(answer: Mapping[str, Any], found: Found) -> None:
    """The host's time must lie between question and answer; a slow connection is no skew."""
    before, after = answer["window"]
    skew = max(before - answer["time"], answer["time"] - after, 0.0)
    if skew > SKEW:
        which = "behind" if answer["time"] < before else "ahead of"
        found.fault("clock-skew", f"{skew:.0f} s {which} this machine")


def document(found: Checks, inventory: Path | None = None) -> dict[str, Any]:
    """Flat: one entry a check and host, so that `jq` needs no second loop. `inventory`: as it was
    given; None: wherever opsctl itself finds it."""
    flat = [
        {"host": host, **check, "hint": on(str(check["hint"]), host, inventory)}
        for host, of_host in found.items()
        for check in of_host
    ]
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


def rows(found: Checks, inventory: Path | None = None) -> list[tuple[str, str, str, str, str, str]]:
    """(status, check, hosts, detail, cause, hint): what is not well, the worst first."""
    together: dict[tuple[str, ...], list[str]] = {}
    for host, of_host in found.items():
        for row in _of_host(of_host):
            together.setdefault(row, []).append(host)
    ordered = sorted(together.items(), key=lambda item: (FAIL, WARN, UNKNOWN).index(item[0][0]))
    return [
        (row[0], row[1], ", ".join(hosts), row[2], row[3], on(row[4], ",".join(hosts), inventory))
        for row, hosts in ordered
    ]


def on(hint: str, hosts: str, inventory: Path | None = None) -> str:
    """The hint as it can be typed: its commands for these hosts alone, since a service may be on
    others, too, and for this inventory."""
    given = f" -i {shlex.quote(from_here(inventory))}" if inventory else ""

    def whole(found: re.Match[str]) -> str:
        words = found[1].split()
        if words[0] not in {*_OF_HOSTS, "config"}:
            return found[0]
        limited = words[0] == "config" or "--limit" in words
        limit = "" if limited else f" --limit {shlex.quote(hosts)}"
        return f"{found[0]}{limit}{'' if '-i' in words else given}"

    return typeable(_COMMAND.sub(whole, hint), inventory)


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
        if number:
            counts.setdefault(number, []).append(host)
    return [
        f"{', '.join(hosts)}: {number} check{'' if number == 1 else 's'} passed"
        for number, hosts in counts.items()
    ]


def report(found: Checks, inventory: Path | None = None) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, show_header=False)
    drawn.add_column()
    drawn.add_column(no_wrap=True)
    drawn.add_column(overflow="fold")
    several = len(found) > 1
    for status, name, hosts, detail, cause, hint in rows(found, inventory):
        mark, style = MARKS[status]
        where = f"{hosts}: " if several else ""
        drawn.add_row(Text(mark, style), Text(name, style), Text(harmless(where + detail)))
        if cause:
            drawn.add_row("", "", Text(harmless(cause), "dim"))
        if hint:
            drawn.add_row("", "", Text(f"→ {harmless(hint)}"))
    lines = [Text.assemble(MARKS[PASS], " ", harmless(line)) for line in passed(found)]
    return Group(*([drawn] if drawn.row_count else []), *lines)
