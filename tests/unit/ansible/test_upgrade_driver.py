"""What the task of upgrade_driver.yml asks, refuses and tells (the roll itself: unit/rollout)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opsctl.ansible import program, upgrade_driver
from opsctl.ansible.action import Action
from opsctl.errors import OpsctlError, SpecError
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
