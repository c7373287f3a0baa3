"""The command as a whole, with fake hosts below it and a reader's document instead of Ansible."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typer.testing import CliRunner

from opsctl import inventory
from opsctl.cli import fleet, main
from opsctl.errors import Unreachable
from opsctl.remote.fake import FakeHost

REFERENCE = json.loads(
    (Path(__file__).parent.parent / "views" / "collect-reference.json").read_text()
)


ABSENT = {
    "state": "absent",
    "health": "unknown",
    "release": {"running": None, "confirmed": None},
    "manifest": None,
    "start": {},
    "checks": [],
}


def described(name, services=("kimi",), groups=("gpu",)):
    one = {"model": {"path": "/srv/m"}, "engine": {"version": "0.5.9"}, "flags": {"tp-size": 8}}
    return {
        "vars": {"ansible_host": f"10.0.0.{name[1:]}", "ansible_user": "root"},
        "sglang_services": {
            service: {**one, "port": 30000 + n} for n, service in enumerate(services)
        },
        "sglang_overrides": {},
        "groups": list(groups),
        "origins": {},
    }  # fmt: skip


def collected(host, **parts):
    """The reference deployment's answer of `collect`, changed."""
    answer = copy.deepcopy(REFERENCE)
    answer["host"] = host
    answer["services"][0].update(parts)
    return answer


def kept(call, diff="", problems=(), **parts):
    """The host's answer about any of its releases: the reference deployment's, changed."""
    manifest = {**REFERENCE["services"][0]["manifest"], "digest": call.args[1], **parts}
    return {
        "digest": call.args[1],
        "manifest": manifest,
        "diff": diff,
        "problems": problems,
        "hints": [],
    }


@dataclass
class Cli:
    hosts: dict[str, FakeHost]
    raw: dict
    path: Path
    reads: list[str] = field(default_factory=list)

    def __call__(self, *args, input=None, env=None):
        return CliRunner(env={"NO_COLOR": "1", **(env or {})}).invoke(
            main.built(), [str(a) for a in args], input=input, prog_name="opsctl"
        )

    def has(self, name, **services):
        """The host answers `collect` as a real one does: all it has, or what is asked for."""
        answer = collected(name)
        kimi = answer["services"][0]

        def entry(service, **parts):
            unit = f"sglang-{service}.service"
            return copy.deepcopy({**kimi, "service": service, "unit": unit, **parts})

        there = {service: entry(service, **parts) for service, parts in services.items()}

        def collect(call):
            wanted = [call.args[n + 1] for n, arg in enumerate(call.args) if arg == "--service"]
            found = [there.get(s) or entry(s, **ABSENT) for s in wanted or there]
            return {**answer, "services": copy.deepcopy(found)}

        self.hosts[name].verbs["collect"] = collect

    def describes(self, name, *services):
        """In the inventory the host has these services."""
        self.raw["hosts"][name] = described(name, services)

    def lose(self, name):
        def gone(call):
            raise Unreachable("timed out", host=name, step="connect")

        self.hosts[name].verbs = dict.fromkeys(
            ("collect", "verify", "lock", "unlock", "remove", "stage", "facts", "history"), gone
        )


@pytest.fixture
def cli(monkeypatch, tmp_path):
    """Two hosts, h1 and h2, each with the service kimi as in the reference deployment."""
    path = tmp_path / "hosts.yml"
    path.write_text("all:\n")
    hosts = {
        name: FakeHost(name, {"collect": collected(name), "facts": {}, "release": kept})
        for name in ("h1", "h2")
    }
    raw = {"hosts": {name: described(name) for name in hosts}, "sources": []}
    made = Cli(hosts, raw, path)

    def document(where, limit=None):
        made.reads.append(str(where))
        return raw

    monkeypatch.setenv("OPSCTL_INVENTORY", str(path))
    monkeypatch.setattr(inventory, "as_far", document)
    monkeypatch.setattr(
        inventory, "book", lambda where, cache=True: inventory.book_of(where, document(where))
    )
    monkeypatch.setattr(fleet, "connect", lambda entry: hosts[entry.name])
    return made
