"""Reads the inventory through Ansible: only Ansible templates and decrypts what Ansible wrote.

The shipped play writes one JSON document to a file of ours (mode 0600), which is gone afterwards.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from opsctl.errors import OpsctlError, Problem, SpecError
from opsctl.inventory import typed
from opsctl.inventory.mistakes import mistakes
from opsctl.inventory.model import Book, BookEntry, HostEntry, Inventory
from opsctl.paths import share

# Reading templates and vaults is local work: minutes mean that a vault waits for a password.
LONGEST = 300.0
# Secrets touch no disk, even if this process is killed before it can take the file away.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
NO_HOSTS = "has no hosts"  # the playbook's words (opsctl.ansible.fleet)
SAID = 15  # last lines of Ansible's own words that are shown with an error


def parse(path: Path, raw: dict[str, Any], only: Collection[str] | None = None) -> Inventory:
    """The reader's document as values, of the hosts in `only` (all if None).

    Raises one SpecError with every problem of every host.
    """
    from opsctl.spec import load, together

    problems: list[Problem] = []
    hosts: dict[str, HostEntry] = {}
    for name, said in raw["hosts"].items():
        if only is not None and name not in only:
            continue
        try:
            services = load(raw, name)
        except SpecError as error:
            problems += error.problems
            continue
        hosts[name] = HostEntry(name, _connection(said), tuple(said.get("groups") or ()), services)
    if problems:
        raise SpecError(together(problems))
    return Inventory(path, hosts)


def book_of(path: Path, raw: dict[str, Any]) -> Book:
    """Names and addresses in the reader's document; descriptions need not be valid for that."""
    gaps: dict[str, list[Problem]] = {}
    for problem in unread(raw):
        gaps.setdefault(problem.host, []).append(problem)
    return Book(
        path,
        {
            name: BookEntry(
                name,
                _connection(said),
                tuple(said.get("groups") or ()),
                tuple(_names(said)),
                tuple(gaps.get(name, ())),
            )
            for name, said in raw["hosts"].items()
        },
    )


def as_far(path: Path, limit: str | None = None) -> dict[str, Any]:
    """What the reader play says, with gaps for what it could not read: `unread` of it lists them,
    and who needs them refuses them (Selected.must_be_read, must_be_read). Raises OpsctlError if
    Ansible cannot read the inventory."""
    with tempfile.TemporaryDirectory(prefix="opsctl-", dir=MEMORY) as folder:
        out = Path(folder) / "read.json"
        out.touch(mode=0o600)
        _play(path, limit, out)
        text = out.read_text(encoding="utf-8")
    if not text:
        raise OpsctlError(
            f"the inventory {path} has no hosts" + (f" that match {limit}" if limit else ""),
            step="read the inventory",
        )
    raw: dict[str, Any] = json.loads(text)
    return raw


def unread(raw: dict[str, Any]) -> list[Problem]:
    """Values that Ansible could not template or decrypt."""
    return [Problem(**problem) for problem in raw.get("unread") or ()]


def of_roles(raw: dict[str, Any]) -> list[Problem]:
    """What is wrong with the roles' variables: names, values, and what they say together."""
    return [Problem(**problem) for problem in raw.get("roles") or ()]


def asks_of_roles(raw: dict[str, Any]) -> dict[str, Any]:
    """By host, what the roles' variables ask for that must fit its engines
    (opsctl.ansible.fitting)."""
    return dict(raw.get("asks") or {})


def must_be_read(
    raw: dict[str, Any],
    hosts: Collection[str] | None = None,
    service: str = "",
    *,
    secrets: bool = True,
) -> None:
    """Raises SpecError for what could not be read of these hosts (all if None) and of this
    service; without `secrets`, secrets do not count."""
    from opsctl.spec import together

    found = [
        problem
        for problem in unread(raw)
        if (hosts is None or problem.host in hosts)
        and (secrets or ".secrets." not in problem.key)
        and (not service or _about(problem.key) in ("", service))
    ]
    if found:
        raise SpecError(together(found))


def _about(key: str) -> str:
    """The service of a key such as sglang_overrides.NAME.flags; "": it is of the whole host."""
    parts = key.split(".")
    return parts[1] if parts[0].startswith("sglang_") and len(parts) > 1 else ""


def _play(path: Path, limit: str | None, out: Path) -> None:
    command = [_ansible_playbook(), "-i", str(path), str(share() / "playbooks" / "read.yml")]
    if limit:
        command += ["--limit", limit]
    quiet = {
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_DEPRECATION_WARNINGS": "0",
        "ANSIBLE_LOG_PATH": os.devnull,
    }
    # Nobody would see the question; `opsctl -K` asks by itself (cli.asking).
    unasked = {"ANSIBLE_BECOME_ASK_PASS": "false", "ANSIBLE_ASK_PASS": "false"}
    # Whatever ansible.cfg is in force: of two equal keys the last would win without a word.
    strict = {"ANSIBLE_DUPLICATE_YAML_DICT_KEY": "error"}
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **quiet, **unasked, **strict, "OPSCTL_READ_OUT": str(out)}
            | typed.environment(out.parent),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LONGEST,
        )
    except subprocess.TimeoutExpired:
        raise OpsctlError(
            f"Ansible did not read {path} within {LONGEST:.0f} s",
            step="read the inventory",
            hint="is a vault waiting for its password? set vault_password_file in ansible.cfg",
        ) from None
    if done.returncode != 0 and not _has_gaps(out):
        said = (done.stdout + done.stderr).splitlines()
        if any(NO_HOSTS in line for line in said):
            raise OpsctlError(f"the inventory {path} {NO_HOSTS}", step="read the inventory")
        if found := mistakes(path):
            raise SpecError(found)
        raise OpsctlError(
            f"Ansible cannot read the inventory {path} (exit {done.returncode})",
            step="read the inventory",
            hint=_hint(said, path),
            log=[line for line in said if line.strip()][-SAID:],
        )


def _hint(said: list[str], path: Path) -> str:
    """Ansible's words for a vault that it cannot open tell nothing of what to set."""
    if any("no vault secrets found" in line or "Decryption failed" in line for line in said):
        return (
            "a vault needs its password: name the file that holds it in "
            "ANSIBLE_VAULT_PASSWORD_FILE, or as vault_password_file in ansible.cfg"
        )
    return f"ansible-inventory -i {path} --list"


def _has_gaps(out: Path) -> bool:
    """Whether the play failed because of values that it could not read, and wrote the rest."""
    text = out.read_text(encoding="utf-8")
    return bool(text and json.loads(text).get("unread"))


def _ansible_playbook() -> str:
    """The one of this environment, else the one on PATH."""
    beside = Path(sys.executable).with_name("ansible-playbook")
    found = str(beside) if beside.exists() else shutil.which("ansible-playbook")
    if not found:
        raise OpsctlError("ansible-playbook is not installed", step="read the inventory")
    return found


def _connection(said: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in (said.get("vars") or {}).items() if k.startswith("ansible_")}


def _names(said: dict[str, Any]) -> list[str]:
    """Names of services as merged; what is no mapping has none, and is refused when it is read."""
    from opsctl.spec.merge import merge

    services, overrides = said.get("sglang_services"), said.get("sglang_overrides")
    if not isinstance(services, dict):
        return []
    return [str(name) for name in merge(services, overrides if isinstance(overrides, dict) else {})]
