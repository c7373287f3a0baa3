"""The verbs of `opsctl lab`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from pathlib import Path

from opsctl.errors import OpsctlError
from opsctl.lab import inventory, rehearse, shell
from opsctl.rehearsal.scenario import ScenarioError, packaged, read

DRILLS = ("cut", "mend", "freeze", "thaw", "kill", "stop", "start")
NAME = re.compile(r"h([1-9][0-9]?)")


def up(count: int, version: str = "0.5.9") -> Path:
    """Boot h1 … hCOUNT (those that run stay), make them rehearsal hosts; the inventory's path.

    An inventory that is there already keeps the owner's edits. Raises OpsctlError.
    """
    if not 1 <= count <= 50:
        raise OpsctlError(f"a lab has 1 to 50 hosts, not {count}")
    scenario_name, _, _ = inventory.played(version)
    if not (shell.folder() / "hosts").is_dir():
        inventory.forget(shell.folder())  # it was of a lab that is gone
    shell.run("up", str(count))
    hosts = [f"h{n}" for n in range(1, count + 1)]
    with ThreadPoolExecutor(min(8, count)) as pool:
        list(pool.map(lambda host: rehearse.prepare(host, packaged()[scenario_name]), hosts))
    return inventory.write(shell.folder(), hosts, version)


def down() -> None:
    """Stop all hosts and forget their disks and the inventory; the base stays."""
    shell.run("down")
    inventory.forget(shell.folder())


def status() -> str:
    return shell.run("status")


def ssh(host: str, command: Sequence[str]) -> int:
    """Run a command on a host, or open a shell there; its exit code."""
    _known(host.rpartition("@")[2])
    sys.stdout.flush()
    terminal = ["-t"] if not command and sys.stdin.isatty() else []
    return subprocess.run(["ssh", "-F", str(_config()), *terminal, host, *command]).returncode


def scenario(host: str, name: str) -> str:
    """Make a host play another scenario from its next start on: a packaged one, or a file.

    Answers the flags that its fault waits for, "" if it waits for none. Raises OpsctlError.
    """
    _known(host)
    known = packaged()
    path = known.get(name) or Path(name)
    if not path.is_file():
        near = get_close_matches(name, known, n=1, cutoff=0.4)
        raise OpsctlError(
            f"no scenario {name!r}; there are: {', '.join(known)}",
            hint=f"did you mean {near[0]}?" if near else "or give the path of a file",
        )
    try:
        fault = read(path).fault
    except ScenarioError as error:
        raise OpsctlError(str(error)) from None
    rehearse.play(host, path.read_text())
    when = fault.when if fault else {}
    return ", ".join(f"{flag} = {json.dumps(value)}" for flag, value in when.items())


def drill(verb: str, host: str, *options: str) -> None:
    """cut (down, drop or reject), mend, freeze, thaw, kill, stop or start a host."""
    if verb not in DRILLS:
        raise OpsctlError(f"no drill {verb!r}; there are: {', '.join(DRILLS)}")
    _known(host)
    shell.run(verb, host, *options)


def _known(host: str) -> None:
    if not NAME.fullmatch(host):
        raise OpsctlError(f"no lab host is called {host!r}: they are h1, h2, …")
    if not (shell.folder() / "hosts" / host).is_dir():
        raise OpsctlError(f"{host} does not exist", hint=f"opsctl lab up {host[1:]}")


def _config() -> Path:
    return shell.folder() / "ssh" / "config"
