"""Thin calls of systemctl, systemd-run and systemd-analyze. Every wait has a limit."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from opsctl.onhost.model import up

_SPAN = re.compile(r"([0-9.]+)(us|ms|s|min|h|d|w|month|y)")
_SECONDS = {
    "us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400, "w": 604800,
    "month": 2629800, "y": 31557600,
}  # fmt: skip
PROPERTIES = (
    "Id", "LoadState", "ActiveState", "SubState", "Result", "MainPID", "InvocationID",
    "NRestarts", "Job", "ControlGroup", "FragmentPath", "DropInPaths", "NeedDaemonReload",
    "UnitFileState", "TimeoutStopUSec", "ActiveEnterTimestampMonotonic", "Slice", "MemoryMax",
    "MemoryHigh", "KillMode", "LimitNOFILE", "LimitMEMLOCK", "ExecMainStatus",
)  # fmt: skip


class CallFailed(Exception):
    """A command of systemd's refused or ran out of time. The text is its own words."""


@dataclass(frozen=True)
class UnitState:
    """What `systemctl show` tells of one unit. `properties` has all that was asked for."""

    name: str = ""
    load: str = ""
    active: str = "inactive"
    sub: str = "dead"
    result: str = ""
    main_pid: int = 0
    invocation: str = ""
    restarts: int = 0
    job: bool = False
    cgroup: str = ""
    alias_of: str = ""  # the unit that this name is only another name of
    properties: Mapping[str, str] = field(default_factory=dict)

    def named(self, asked: str) -> "UnitState":
        """As the answer for `asked`: under that name, even if it is only an alias of the unit."""
        return self if self.name == asked else replace(self, name=asked, alias_of=self.name)

    @property
    def up(self) -> bool:
        """Running, or on its way by our wish: not waiting for an automatic restart."""
        return up(self.active, self.sub)

    @property
    def stop_limit(self) -> float:
        """Seconds that one phase of a stop may take, as the loaded unit says."""
        return seconds(self.properties.get("TimeoutStopUSec", ""))

    @property
    def dropins(self) -> List[str]:
        return self.properties.get("DropInPaths", "").split()


def seconds(span: str) -> float:
    """systemd's "2min 15s" in seconds; an hour for "infinity", which no wait of ours may be."""
    if not span or span == "infinity":
        return 3600.0
    return float(sum(float(number) * _SECONDS[unit] for number, unit in _SPAN.findall(span)))


def parse_show(text: str) -> List[UnitState]:
    """Units of `systemctl show`, which parts them by an empty line."""
    states = []
    for block in text.strip("\n").split("\n\n"):
        pairs: Dict[str, str] = {}
        for line in block.split("\n"):
            key, sign, value = line.partition("=")
            if sign:
                pairs[key] = value
        if pairs:
            states.append(_state(pairs))
    return states


def _state(pairs: Dict[str, str]) -> UnitState:
    return UnitState(
        name=pairs.get("Id", ""),
        load=pairs.get("LoadState", ""),
        active=pairs.get("ActiveState", ""),
        sub=pairs.get("SubState", ""),
        result=pairs.get("Result", ""),
        main_pid=int(pairs.get("MainPID") or 0),
        invocation=pairs.get("InvocationID", ""),
        restarts=int(pairs.get("NRestarts") or 0),
        job=pairs.get("Job", "0") not in ("", "0"),
        cgroup=pairs.get("ControlGroup", ""),
        properties=pairs,
    )


def call(argv: Sequence[str], limit: float = 60.0) -> Tuple[int, str, str]:
    """Exit code, stdout, stderr. Raises CallFailed if it takes longer than `limit` seconds."""
    environment = dict(os.environ, LC_ALL="C", SYSTEMD_PAGER="", SYSTEMD_COLORS="0")
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=limit,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise CallFailed(f"{' '.join(argv[:3])} did not end within {limit:.0f} s") from None
    except FileNotFoundError:
        raise CallFailed(f"{argv[0]} is not installed on this host") from None
    return (
        done.returncode,
        done.stdout.decode("utf-8", "replace"),
        done.stderr.decode("utf-8", "replace"),
    )


def _demand(argv: Sequence[str], limit: float = 60.0) -> str:
    code, out, err = call(argv, limit)
    if code != 0:
        raise CallFailed(f"{' '.join(argv[:3])}: {(err or out).strip()[-600:] or f'exit {code}'}")
    return out


class Systemd:
    """The system manager of this host."""

    def show(self, unit: str) -> UnitState:
        states = self.show_all([unit])
        return states[0].named(unit) if states else UnitState(name=unit)

    def show_all(self, units: Sequence[str]) -> List[UnitState]:
        """Names and patterns; a pattern finds only what is loaded."""
        wanted = ",".join(PROPERTIES)
        return parse_show(_demand(["systemctl", "show", f"--property={wanted}", "--", *units]))

    def stop(self, unit: str, grace: Optional[float] = None) -> None:
        """Stop and wait. systemd itself kills what outlives TimeoutStopSec, once per phase; the
        limit here is behind both phases, or `grace` seconds, and then everything in the unit is
        killed."""
        limit = 2 * self.show(unit).stop_limit + 30 if grace is None else grace
        try:
            code, _, err = call(["systemctl", "stop", "--", unit], limit)
        except CallFailed:
            _demand(["systemctl", "kill", "--signal=KILL", "--", unit])
            code, _, err = call(["systemctl", "stop", "--", unit], 60)
        if code != 0 and "not loaded" not in err:
            raise CallFailed(f"systemctl stop {unit}: {err.strip()[-600:]}")

    def start(self, unit: str) -> None:
        """Ask for a start and do not wait: how it goes is read from its state and its journal."""
        _demand(["systemctl", "start", "--no-block", "--", unit])

    def reset_failed(self, unit: str) -> None:
        call(["systemctl", "reset-failed", "--", unit])  # fails for a unit that is not loaded

    def reload(self) -> None:
        _demand(["systemctl", "daemon-reload"], 120)

    def enable(self, unit: str) -> None:
        _demand(["systemctl", "enable", "--quiet", "--", unit], 120)

    def disable(self, unit: str) -> None:
        _demand(["systemctl", "disable", "--quiet", "--", unit], 120)

    def kill(self, unit: str) -> None:
        """End a unit of ours at once, whatever it does. It may be gone already."""
        call(["systemctl", "kill", "--signal=KILL", "--", unit])
        call(["systemctl", "stop", "--", unit])
        call(["systemctl", "reset-failed", "--", unit])

    def stop_timer(self, timer: str) -> None:
        call(["systemctl", "stop", "--", timer])
        call(["systemctl", "reset-failed", "--", timer])

    def verify(self, unit_file: Path) -> List[str]:
        """What systemd dislikes about a unit file, in its words; empty if nothing. Its folder is
        left out: it may not be the one that it will stand in.

        --recursive-errors=no makes a misspelt directive fail; it is there from systemd 250 on.
        """
        argv = ["systemd-analyze", "verify", "--man=no"]
        code, out, err = call([*argv, "--recursive-errors=no", str(unit_file)], 60)
        if code != 0 and "recursive-errors" in err:
            code, out, err = call([*argv, str(unit_file)], 60)
        lines = (err + out).replace(f"{unit_file.parent}/", "").splitlines()
        return [line for line in lines if line.strip()] if code != 0 else []

    def shutting_down(self) -> bool:
        _, out, _ = call(["systemctl", "is-system-running"], 20)
        return out.strip() == "stopping"

    def run_transient(self, unit: str, argv: Sequence[str], every: Optional[float] = None) -> None:
        """Run a command as a unit of its own, or every `every` seconds by a timer.

        Never --pipe or --wait: such a unit dies with the connection of whoever started it.
        --collect, since a failed leftover would stand in the way of the next. AccuracySec, since
        systemd's own default is a minute.
        """
        command = ["systemd-run", "--no-block", "--quiet", "--collect", f"--unit={unit}"]
        if every is None:
            command += ["--service-type=exec"]
        else:
            command += [f"--on-active={every}", f"--on-unit-active={every}"]
            command += ["--timer-property=AccuracySec=1s"]
        command += ["--property=OOMScoreAdjust=-900", "--property=KillMode=mixed"]
        _demand([*command, "--", *argv])
