"""What tasks make of their arguments: what the role's argument spec means by them."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.parsing.dataloader import DataLoader

from opsctl.ansible import cuda, engine, host, host_tuning, model, nvidia_driver, rolespec, survey
from opsctl.errors import SpecError
from opsctl.onhost.doctor.driver import FAULTS

NO: list[Any] = ["no", "false", "False", "off", "0", 0, False]
YES: list[Any] = ["yes", "true", "True", "on", "1", 1, True]


def of(key: str, value: Any) -> Any:
    return rolespec.converted({key: value}, DataLoader())[key]


SWITCHES = [key for key, spec in rolespec.options(DataLoader()).items() if spec["type"] == "bool"]


@pytest.mark.parametrize("key", SWITCHES)
def test_every_switch_means_what_is_written(key: str) -> None:
    assert len(SWITCHES) >= 7
    assert [of(key, value) for value in NO] == [False] * len(NO)
    assert [of(key, value) for value in YES] == [True] * len(YES)
    with pytest.raises(SpecError, match=f"key {key}: must be yes or no: 'maybe' is not"):
        of(key, "maybe")


@pytest.mark.parametrize(
    ("key", "value", "meant"),
    [
        ("nvidia_driver_fabric_manager", True, "yes"),  # an unquoted yes, as YAML reads it
        ("nvidia_driver_fabric_manager", False, "no"),
        ("nvidia_driver_fabric_manager", "True", "yes"),  # what a template of 2.18 makes of it
        ("nvidia_driver_fabric_manager", "yes", "yes"),
        ("nvidia_driver_fabric_manager", "true", "yes"),  # quoted, or of `-e KEY=true`
        ("nvidia_driver_fabric_manager", "false", "no"),
        ("nvidia_driver_fabric_manager", "off", "no"),
        ("nvidia_driver_fabric_manager", "On", "yes"),
        ("nvidia_driver_fabric_manager", "auto", "auto"),
        ("nvidia_driver_branch", 580, "580"),
        ("nvidia_driver_reboot_timeout", "60", 60),
        ("cuda_toolkits", "13.0", ["13.0"]),
        ("cuda_toolkits", ["13.0", "12.9"], ["13.0", "12.9"]),
        ("host_open_files", "65536", 65536),
        ("nvidia_driver_version", None, ""),
    ],
)
def test_values_of_other_kinds(key: str, value: Any, meant: Any) -> None:
    found = of(key, value)
    assert found == meant and isinstance(found, type(meant))


CHOSEN = ["nvidia_driver_fabric_manager", "host_tuning_numa_balancing"]


@pytest.mark.parametrize("key", CHOSEN)
def test_a_choice_of_yes_or_no_takes_every_switchs_words(key: str) -> None:
    """Ansible's own judgement too, which a role meets that is used elsewhere."""
    spec = rolespec.options(DataLoader())[key]
    for words in (NO, YES):
        assert len({of(key, value) for value in words}) == 1
        for value in words:
            assert not ArgumentSpecValidator({key: spec}).validate({key: value}).error_messages
    assert of(key, "no") != of(key, "yes")
    with pytest.raises(SpecError, match=r"must be (yes or no, or|one of auto, yes, no: 'maybe')"):
        of(key, "maybe")


def test_what_doctor_prints_may_be_typed_as_it_stands() -> None:
    fault = FAULTS["fabric-manager-idle"]
    for text, meant in ((fault.cause, "yes"), (fault.mend, "no")):
        (typed,) = re.findall(r"nvidia_driver_fabric_manager: \w+", text)
        assert of("nvidia_driver_fabric_manager", *yaml.safe_load(typed).values()) == meant


def task(plugin: Any, given: dict[str, Any], **answer: Any) -> tuple[dict[str, Any], list[Any]]:
    """The task's result, and what its program was asked."""
    asked: list[Any] = []

    def program(name: str, args: dict[str, Any]) -> dict[str, Any]:
        asked.append(args)
        return {"changed": False, "diff": [], "problems": [], **answer}

    one = object.__new__(plugin.ActionModule)
    one._task = SimpleNamespace(args=given, check_mode=False)
    one._loader, one.program = DataLoader(), program
    one.task_vars = {"inventory_hostname": "h1"}
    return one.act(), asked


DRIVER = {
    "branch": 580,
    "version": "",
    "repository": {},
    "fabric_manager": True,
    "persistence": "no",
    "hold": "no",
    "allow_downgrade": "no",
    "allow_repair": "no",
    "allow_reboot": "no",
    "needs": [],
    "reboot_timeout": "60",
}


def test_a_reboot_that_is_not_allowed_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia_driver, "with_key", lambda repository, _: repository)
    answer = {"reboot": ["x"], "driver": None, "warnings": []}
    found, ((asked),) = task(nvidia_driver, DRIVER, **answer)
    assert found["failed"] and "a reboot is needed: x" in found["msg"]
    switches = ("persistence", "hold", "allow_downgrade", "allow_repair")
    assert [asked[key] for key in switches] == [False] * 4
    assert (asked["branch"], asked["fabric_manager"]) == ("580", "yes")


def test_one_toolkit_is_no_list_of_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "with_key", lambda repository, _: repository)
    given = {"needs": [], "toolkits": "13.0", "default": "", "repository": {}, "allow_repair": "no"}
    answer = {"driver": None, "cuda": None, "gpus": [], "toolkit": {"changed": False, "diff": []}}
    answer["toolkit"] |= {"problems": []}  # type: ignore[operator]
    _, (asked,) = task(cuda, given, **answer)
    assert (asked["toolkits"], asked["allow_repair"]) == (["13.0"], False)


def test_other_tasks() -> None:
    given = {"users": "sglang", "folders": {}, "nofile": "65536", "journal_max_use": "4G"}
    _, (asked,) = task(host, given | {"install_python": "no"})
    assert (asked["users"], asked["nofile"]) == (["sglang"], 65536)
    _, (asked,) = task(host_tuning, {"numa_balancing": "no", "swappiness": 10, "memlock": ""})
    assert asked["settings"] == {"numa_balancing": False, "swappiness": "10", "memlock": None}
    environment = {"version": "0.5.9", "root": "/a", "cuda": "no"}
    given = {"environments": [environment], "python": "python3"}
    _, (asked,) = task(engine, given, state="ready", missing=[])
    assert asked["least_driver"] == ""  # an engine on the CPU asks for no driver
    answer = {"bytes": {}, "old": ["/a.old"], "fetch": []}
    _, asked_all = task(model, {"folders": [{"path": "/a"}], "remove_old": "no"}, **answer)
    assert [one["remove_old"] for one in asked_all] == [False]  # and no second one, which removes
    (folder,) = asked_all[0]["folders"]
    assert (folder["load_format"], folder["own_config"]) == ("auto", True)


def test_damage_that_is_only_warned_of_is_told_with_its_host() -> None:
    answer = {"bytes": {}, "old": [], "fetch": [], "warnings": ["model /a: config.json is missing"]}
    said, _ = task(model, {"folders": [{"path": "/a"}]}, **answer)
    assert said["warnings"] == ["h1: model /a: config.json is missing"]


def test_the_look_at_all_of_them_means_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia_driver, "with_key", lambda repository, _: repository)
    given: dict[str, Any] = {
        "host": {"users": [], "folders": {}, "nofile": "65536", "journal_max_use": ""},
        "nvidia_driver": DRIVER,
        "cuda": {"needs": [], "toolkits": [], "allow_repair": "no"},
        "host_tuning": {},
        "engine": {"environments": [], "python": "python3"},
        "model": {"folders": [], "remove_old": "no"},
    }
    nothing = {"changed": False, "problems": [], "reboot": [], "toolkit": {}, "gpus": []}
    said = dict.fromkeys(given, nothing | {"toolkit": nothing, "driver": None})
    _, (asked,) = task(survey, given, **(said | {"engine": []}))
    assert (asked["nvidia_driver"]["allow_repair"], asked["model"]["remove_old"]) == (False, False)
    assert asked["host"]["nofile"] == 65536
    said |= {"engine": [], "model": nothing | {"warnings": ["model /a: damaged"]}}
    told, _ = task(survey, given, **said)
    assert (told["roles"], told["warnings"]) == ([], ["h1: model /a: damaged"])
