"""The rollout engine with real guards: two hosts, the small stand-in engine."""

from __future__ import annotations

import base64
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from opsctl import rollout
from opsctl.release.model import File, Release
from opsctl.remote import connect
from opsctl.remote.host import Host
from opsctl.remote.target import resolve
from tests.conftest import LabHost, ssh_config
from tests.lab import guarding

pytestmark = pytest.mark.lab

Seen = list[tuple[str, Mapping[str, Any]]]


def release(fault: str = "none", **more: Any) -> Release:
    made = guarding.release(fault, **more)
    files = {f["path"]: File(f["mode"], base64.b64decode(f["b64"])) for f in made["files"]}
    manifest = {"unit": "sglang-kimi.service", "digest": made["digest"]}
    return Release("kimi", made["digest"], files, manifest)


@pytest.fixture(scope="module")
def hosts(lab_hosts: list[LabHost]) -> Iterator[dict[str, Host]]:
    """h1 as root, h2 as a user with sudo; a host that is gone is noticed after some 3 s."""
    made = {}
    for lab, user in zip(lab_hosts, ("root", "deploy"), strict=True):
        guarding.prepare(lab)
        options = "-o ServerAliveInterval=1 -o ServerAliveCountMax=2 -o ConnectTimeout=2"
        made[lab.name] = connect(
            resolve(
                lab.name,
                {
                    "ansible_host": lab.address,
                    "ansible_user": user,
                    "ansible_ssh_common_args": f"{options} -F {ssh_config()}",
                },
            )
        )
    yield made
    for host in made.values():
        host.close()


def deployed(
    hosts: dict[str, Host], wanted: Release, *, see: Any = None, **more: Any
) -> tuple[rollout.Results, Seen]:
    seen: Seen = []

    def observe(host: str, service: str, event: Mapping[str, Any]) -> None:
        seen.append((host, event))
        if see is not None:
            see(host, event)

    services = {name: ["kimi"] for name in hosts}
    keys = {(name, "kimi"): rollout.Wanted(wanted.digest) for name in hosts}
    plan = rollout.make("swap", services, rollout.look(hosts, services), keys)
    releases = dict.fromkeys(keys, wanted)
    results = rollout.run(hosts, plan, releases=releases, observer=observe, **more)
    return results, seen


def outcomes(results: rollout.Results) -> list[str]:
    return [result.outcome for result in results.results]


def confirmed(hosts: dict[str, Host]) -> set[Any]:
    said = rollout.look(hosts, {name: ["kimi"] for name in hosts})
    states = [answer["services"][0] for answer in said.values()]  # type: ignore[index]
    assert all(state["state"] == "active" and not state["lock"] for state in states), states
    return {state["release"]["confirmed"] for state in states}


def test_a_release_goes_out_host_by_host_and_then_there_is_nothing_to_do(
    hosts: dict[str, Host],
) -> None:
    first = release()
    results, seen = deployed(hosts, first)
    assert outcomes(results) == ["confirmed", "confirmed"]
    assert results.exit_code == 0
    order = [host for host, event in seen if event["event"] == "phase"]
    assert order == sorted(order)  # h2 begins when h1 is confirmed
    assert confirmed(hosts) == {first.digest}
    again, seen = deployed(hosts, first)
    assert (outcomes(again), again.changed, seen) == (["unchanged", "unchanged"], False, [])


def test_a_fault_is_restored_on_the_canary_and_goes_no_further(hosts: dict[str, Host]) -> None:
    before = confirmed(hosts)
    results, _ = deployed(hosts, release("tools-unparsed", word="bad"))
    assert outcomes(results) == ["rolled_back", "skipped"]
    assert results.exit_code == 5
    error = results.error()
    assert error is not None
    assert "tools: " in error.message
    assert "not touched: h2" in error.message
    assert confirmed(hosts) == before


def test_a_lost_connection_only_blinds_us(hosts: dict[str, Host], lab_hosts: list[LabHost]) -> None:
    lab = lab_hosts[0]

    def cut(host: str, event: Mapping[str, Any]) -> None:
        if event.get("phase") == "start":
            lab.lab("cut")
            threading.Timer(6.0, lambda: lab.lab("mend")).start()

    slow = release(word="lost", loading=2.0)
    results, seen = deployed({"h1": hosts["h1"]}, slow, see=cut)
    assert outcomes(results) == ["confirmed"]
    numbers = [event["n"] for _, event in seen if "n" in event]
    assert numbers == list(range(1, len(numbers) + 1))
    assert sum("connection lost" in str(event.get("text")) for _, event in seen) == 1


def test_ctrl_c_leaves_the_guard_to_itself_and_the_run_is_found_again(
    hosts: dict[str, Host],
) -> None:
    def interrupt(host: str, event: Mapping[str, Any]) -> None:
        if event.get("phase") == "start":
            signal.raise_signal(signal.SIGINT)

    results, _ = deployed(hosts, release(word="left", loading=2.0), see=interrupt)
    assert outcomes(results) == ["detached", "skipped"]
    assert results.exit_code == 130
    said = rollout.look(hosts, {name: ["kimi"] for name in hosts})
    found = rollout.resume(hosts, said, results.run)
    assert [(r.host, r.outcome) for r in found.results] == [("h1", "confirmed")]


def test_other_operations(hosts: dict[str, Host]) -> None:
    one = {"h2": hosts["h2"]}
    services = {"h2": ["kimi"]}
    began = time.monotonic()
    for op, end, state in (
        ("restart", "confirmed", "active"),
        ("stop", "stopped", "inactive"),
        ("start", "confirmed", "active"),
    ):
        plan = rollout.make(op, services, rollout.look(one, services))  # type: ignore[arg-type]
        assert outcomes(rollout.run(one, plan)) == [end], op
        answer: Any = rollout.look(one, services)["h2"]
        assert answer["services"][0]["state"] == state
    assert time.monotonic() - began < 60
