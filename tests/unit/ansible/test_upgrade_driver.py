"""What the task of upgrade_driver.yml asks, refuses and tells (the roll itself: unit/rollout)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader

from opsctl.ansible import program, upgrade_driver
from opsctl.ansible.action import Action
from opsctl.errors import OpsctlError, Problem, SpecError, Unreachable
from opsctl.remote.start import sudo_refuses
from opsctl.rollout.driver import PLAYBOOK
from opsctl.rollout.driverend import Ended
from tests.unit.rollout.test_driver_roll_plan import FOUND, SETTLED, seen

GIVEN = {
    "branch": "580",
    "version": "580.95.05",
    "repository": {"url": "http://m/", "key": "http://m/key.asc", "fingerprint": "AB"},
    "allow_reboot": False,
    "reboot_timeout": 600,
    "needs": [{"service": "a", "version": "0.5.23", "device": "cuda", "gpus": None, "count": 8}],
}


def test_hosts_with_the_same_trouble_are_told_together_before_anything_is_touched() -> None:
    wishes = {"h1": GIVEN, "h2": GIVEN, "h3": GIVEN | {"allow_reboot": True}}
    with pytest.raises(OpsctlError) as refused:
        upgrade_driver.planned(["h1", "h2", "h3"], wishes, dict.fromkeys(wishes, seen()), {})
    first, told, hint = refused.value.message.splitlines()
    assert first == "nothing was touched:"
    assert told.startswith("h1, h2: driver: driver 580.65.06 → 580.95.05 needs a reboot")
    assert "-e nvidia_driver_allow_reboot=true" in hint


class Hosts:
    """Variables of the inventory and the command line, raw."""

    def __init__(self, **values: Any) -> None:
        self.values = values

    def raw_get(self, name: str) -> dict[str, Any]:
        return self.values


@pytest.mark.parametrize("no", ["no", "false", False])
def test_what_is_wished_is_what_the_roles_spec_means_by_it(no: Any) -> None:
    switches = ("allow_reboot", "allow_downgrade", "allow_repair", "hold", "persistence")
    values: dict[str, Any] = {f"nvidia_driver_{name}": no for name in switches}
    values |= {"nvidia_driver_branch": 580, "nvidia_driver_fabric_manager": True}
    entry: Any = SimpleNamespace(services={})
    found = upgrade_driver.wished(["h1"], {"h1": entry}, Hosts(**values), DataLoader())["h1"]
    assert [found[name] for name in switches] == [False] * 5
    assert (found["branch"], found["fabric_manager"]) == ("580", "yes")
    assert found["reboot_timeout"] == 1200  # the role's own default
    assert upgrade_driver.wish(found).allow_reboot is False


class Stop(Exception):
    pass


def acting(monkeypatch: pytest.MonkeyPatch, wrong: list[Problem]) -> tuple[Any, list[Any]]:
    """The task up to its first connection, and what the connections would be made of."""
    made: list[Any] = []
    entry = SimpleNamespace(services={}, connection={"ansible_user": "carol"})
    monkeypatch.setattr(upgrade_driver, "refuse_limit", lambda _: None)
    monkeypatch.setattr(upgrade_driver, "described", lambda names, *_: dict.fromkeys(names, entry))
    monkeypatch.setattr(upgrade_driver.rolevars, "wrong", lambda *_: wrong)
    monkeypatch.setattr(upgrade_driver, "wished", lambda names, *_: {key: {} for key in names})
    monkeypatch.setattr(upgrade_driver, "refuse_unreadable", lambda _: None)
    monkeypatch.setattr(upgrade_driver, "resolve", lambda name, said: made.append((name, said)))

    def connect(_: Any) -> Any:
        raise Stop

    monkeypatch.setattr(upgrade_driver, "connect", connect)
    task = object.__new__(upgrade_driver.ActionModule)
    task.task_vars = {"ansible_play_hosts_all": ["h1", "h2"], "hostvars": None}
    task._task, task._loader = SimpleNamespace(args={}, check_mode=False), None
    task._play_context = SimpleNamespace(become_pass="hunter2", password="hunter3")
    return task, made


def test_passwords_that_are_asked_for_at_the_start_are_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task, made = acting(monkeypatch, [])
    with pytest.raises(Stop):
        task.act()
    given = {"ansible_become_password_asked": "hunter2", "ansible_password_asked": "hunter3"}
    assert made == [("h1", {"ansible_user": "carol", **given})]


def test_a_wrong_variable_of_many_hosts_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = [Problem("is wrong", host=name, key="nvidia_driver_hold") for name in ("h1", "h2")]
    task, _ = acting(monkeypatch, wrong)
    with pytest.raises(SpecError) as refused:
        task.act()
    assert str(refused.value) == "host h1, h2, key nvidia_driver_hold: is wrong"


def test_a_host_that_another_roll_boots_is_not_to_be_left_out() -> None:
    lock = {"owner": "me@desk", "reason": "CVE", "run": "r1", "since": 1.8e9}
    gone = Unreachable("the connection was lost: closed", host="h1")
    error = upgrade_driver.silence({"h1": gone}, {"h2": seen(lock=lock), "h3": seen()})
    assert isinstance(error, Unreachable)
    assert error.message == (
        "nothing was touched, since not every host answers: h1: the connection was lost: closed; "
        "kimi is locked by me@desk since 2027-01-15 08:00:00Z (run r1): CVE (h2)"
    )
    assert error.hint.startswith("another roll may be booting it anew: `opsctl status` shows who")
    assert f"wait, then again: {PLAYBOOK}. A host that --limit leaves out is not" in error.hint


def test_a_password_that_sudo_wants_is_named() -> None:
    refused = sudo_refuses("h2", "carol", "sudo", 1, "sudo: a password is required", False)
    error = upgrade_driver.silence({"h1": refused, "h2": refused}, {})
    assert "since not every host could be read: h1, h2: sudo is refused for carol" in error.message
    assert "ansible_become_password" in error.hint and "-K" in error.hint
    assert "--limit" not in error.hint


def test_the_plan_keeps_the_order_that_it_is_given() -> None:
    wishes = {name: GIVEN | {"allow_reboot": True} for name in ("h2", "h1")}
    told = {"h1": seen(SETTLED), "h2": seen(FOUND)}
    plan = upgrade_driver.planned(["h2", "h1"], wishes, told, {})
    assert [(one.host, one.kind) for one in plan] == [("h2", "upgrade"), ("h1", "none")]
    assert upgrade_driver.result_of_check(plan)["changed"]
    assert not upgrade_driver.result_of_check(plan[1:])["changed"]


def test_a_host_that_does_not_serve_comes_first_whatever_the_inventory_says() -> None:
    names = ["h1", "h2", "h3"]
    wishes = {name: GIVEN | {"allow_reboot": True} for name in names}
    told = {
        "h1": seen(health="ok"),
        "h2": seen(health="ok"),
        "h3": seen(SETTLED, state="inactive", parked={"run": "r"}),
    }
    services = dict.fromkeys(names, ("kimi",))
    plan = upgrade_driver.planned(names, wishes, told, services)
    assert [(one.host, one.kind) for one in plan] == [
        ("h3", "start"), ("h1", "upgrade"), ("h2", "upgrade")
    ]  # fmt: skip
    assert plan[0].down == {"kimi": "does not serve (inactive, parked)"}


def test_a_result_names_the_command_as_it_was_typed() -> None:
    ended = Ended("h1", "failed", "", "no", "now", "put that right; then again: " + PLAYBOOK)
    found = upgrade_driver.retyped(upgrade_driver.result([ended]), "ansible-playbook -i x b.yml")
    assert "then again: ansible-playbook -i x b.yml" in found["msg"]
    assert found["hosts"]["h1"]["hint"].endswith("ansible-playbook -i x b.yml")
    assert PLAYBOOK in upgrade_driver.retyped({"msg": PLAYBOOK}, "")["msg"]


def test_only_hosts_of_the_roll_may_be_allowed_to_be_down() -> None:
    assert upgrade_driver.refuse_unknown("h1, h2", ["h1", "h2"]) == ["h1", "h2"]
    assert upgrade_driver.refuse_unknown(["h1"], ["h1"]) == ["h1"]
    assert upgrade_driver.refuse_unknown("", ["h1"]) == []
    with pytest.raises(OpsctlError, match="h9 is none of the hosts of this roll"):
        upgrade_driver.refuse_unknown("h1,h9", ["h1"])


def test_the_program_is_asked_in_three_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(program, "run", lambda host, name, args: asked.append(args) or {})
    ask = upgrade_driver.asking("host", GIVEN)  # type: ignore[arg-type]
    for what in ("look", "fetch", "install"):
        ask(what)
    ways = [(a["check"], a["fetch"], a["stopping"]) for a in asked]
    assert ways == [(True, False, True), (False, True, True), (False, False, False)]
    assert asked[0]["needs"] == [{"service": "a", "engine": "0.5.23", "driver": "580.65.06"}]
    assert "reboot_timeout" not in asked[0]


def test_the_host_that_ended_the_roll_is_told_with_its_state_and_what_to_type() -> None:
    ended = [
        Ended("h1", "upgraded", "580.95.05"),
        Ended("h2", "failed", "580.95.05", "no module", "kimi is stopped", "opsctl start kimi"),
        Ended("h3", "skipped"),
    ]
    found = upgrade_driver.result(ended)
    assert found["failed"] and found["changed"]
    assert found["msg"].splitlines() == [
        "h2: no module",
        "now: kimi is stopped",
        "next: opsctl start kimi",
        "not touched: h3",
    ]
    assert upgrade_driver.at_fault(ended) == "h2" and upgrade_driver.at_fault(ended[:1]) == ""
    task = object.__new__(Action)
    task.task_vars = {"inventory_hostname": "h1"}
    assert task.once("why", "h2").startswith("why\n(it is h2's; Ansible counts this task")
    assert task.once("why", "h1") == task.once("why", "") == "why"
    assert "failed" not in upgrade_driver.result(ended[:1])
    assert not upgrade_driver.result([Ended("h1", "unchanged")])["changed"]


def test_a_key_that_is_not_on_the_controller_is_told_before_any_host_is_asked(
    tmp_path: Path,
) -> None:
    wish = {"branch": "580", "version": "", "repository": {"key": str(tmp_path / "no.asc")}}
    upgrade_driver.refuse_unreadable({"h1": wish | {"branch": ""}})
    with pytest.raises(SpecError) as caught:
        upgrade_driver.refuse_unreadable({"h1": wish, "h2": wish})
    assert str(caught.value).startswith(
        "host h1, h2, key nvidia_driver_repository.key: "
        "this file of the controller cannot be read: No such file or directory"
    )
