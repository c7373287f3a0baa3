"""What the roles must see to, out of descriptions; and how the rollout's task judges its play."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opsctl.ansible.described import needs, tokens
from opsctl.ansible.engine import asked, local_wheels
from opsctl.ansible.rollout import Teller, by_host, interrupted, nobody_left_out, seen, wanted
from opsctl.ansible.stage import prepared
from opsctl.ansible.stage import result as staged_result
from opsctl.ansible.survey import roles
from opsctl.ansible.verify import result as verified_result
from opsctl.errors import NothingSelected, OpsctlError, SpecError
from opsctl.rollout import Result, Results, make
from opsctl.rollout.model import Takeover
from opsctl.spec import load

GOOD: dict[str, Any] = {"changed": False, "problems": []}


def services(**changes: Any) -> dict[str, Any]:
    kimi = {
        "model": {"path": "/srv/models/Kimi-K2.5", "size": "547GB"},
        "engine": {"version": "0.5.9"},
        "flags": {"tp-size": 8, "speculative-draft-model-path": "/srv/models/eagle3"},
        "secrets": {"api-key": "CANARY-3"},
    }
    document = {"hosts": {"h1": {"sglang_services": {"kimi": kimi | changes}}}}
    return load(document, "h1")


def test_needs_of_the_reference_deployment() -> None:
    found = needs(services(), Path("/inv"))
    assert found["services"] == ["kimi"]
    assert found["users"] == ["sglang"]
    assert found["environments"] == [
        {"version": "0.5.9", "root": "/opt/sglang/0.5.9", "cuda": True, "install": None}
    ]
    assert [(f["path"], f["size"]) for f in found["folders"]] == [
        ("/srv/models/Kimi-K2.5", 547_000_000_000),
        ("/srv/models/eagle3", None),
    ]
    assert found["gpus"] == [
        {"service": "kimi", "version": "0.5.9", "device": "cuda", "gpus": None, "count": 8}
    ]
    assert "CANARY" not in json.dumps(found)


def test_paths_of_the_controller_start_at_the_inventory_and_an_index_is_not_told() -> None:
    install = {"requirements": "r.txt", "mirror": "/abs/wheels", "index": "https://u:CANARY@i/"}
    found = needs(services(engine={"version": "0.5.9", "install": install}), Path("/inv"))
    assert found["environments"][0]["install"] == {
        "requirements": "/inv/r.txt",
        "mirror": "/abs/wheels",
        "resolve": True,
    }
    assert "CANARY" not in json.dumps(found)


def test_a_source_is_told_without_its_token() -> None:
    source = {"hub": "org/tiny", "revision": "0" * 40, "endpoint": "https://hub.example"}
    model = {"path": "/srv/models/tiny", "source": source | {"token": "CANARY-hub"}}
    found = services(model=model)
    said = needs(found, Path("/inv"))
    assert "CANARY" not in json.dumps(said)
    assert source.items() <= said["folders"][0]["source"].items()
    assert said["folders"][1]["source"] is None
    assert tokens(found) == {"/srv/models/tiny": "CANARY-hub"}


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({}, "exactly one of hub, url, s3, rsync, peer, folder; there is none"),
        ({"folder": "/a", "peer": "gpu-02"}, "there is peer and folder"),
        ({"hub": "org/x", "endpoint": "https://h"}, "hub needs endpoint, and revision"),
        (
            {"hub": "org/x", "endpoint": "https://h", "revision": "main"},
            "must be a commit, 40 hex digits",
        ),
        ({"s3": "bucket/x"}, "s3 needs endpoint"),
        ({"url": "https://h/x?sig=CANARY"}, "must hold no user, password or query"),
        ({"url": "https://h/x", "manifest": "https://h/m?sig=1"}, "manifest holds a query"),
        ({"rsync": "/local"}, "must be USER@HOST:/FOLDER"),
        ({"folder": "/a", "limits": "1MB"}, "limits"),
    ],
)
def test_a_source_that_is_not_right_is_refused_in_words(source: Any, said: str) -> None:
    with pytest.raises(SpecError) as refused:
        services(model={"path": "/srv/models/tiny", "source": source})
    assert said in str(refused.value) and "CANARY" not in str(refused.value)


def test_a_missing_requirements_file_is_named(tmp_path: Path) -> None:
    install = {"requirements": str(tmp_path / "r.txt"), "mirror": None}
    with pytest.raises(SpecError, match=r"engine\.install\.requirements.*No such file"):
        asked({"root": "/opt/sglang/0.5.9", "install": install}, "python3", False)


def test_a_mirror_on_the_host_is_used_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("sglang==0.5.9 --hash=sha256:00\n")
    install = {"requirements": str(tmp_path / "r.txt"), "mirror": "/srv/wheels"}
    environment = {"root": "/opt/sglang/0.5.9", "install": install}
    there = asked(environment, "python3", bool(local_wheels(install)))
    assert there is not None and there["wheels"] == "/srv/wheels"
    (tmp_path / "a-1-py3-none-any.whl").touch()
    here = asked(environment, "python3", bool(local_wheels({"mirror": str(tmp_path)})))
    assert here is not None and here["wheels"] == "/opt/sglang/.wheels"


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, []),
        ({"host": {"changed": True, "problems": []}}, ["host"]),
        ({"engine": [GOOD, {"changed": False, "problems": ["in use"]}]}, ["engine"]),
        ({"model": {"changed": False, "problems": ["no weight files"]}}, ["model"]),
        ({"cuda": {"driver": "", "gpus": [], "toolkit": GOOD}}, ["cuda"]),
        ({"nvidia_driver": GOOD | {"reboot": ["another version runs"]}}, ["nvidia_driver"]),
        ({"host_tuning": {"changed": True, "problems": []}}, ["host_tuning"]),
    ],
)
def test_a_survey_names_the_roles_that_have_something_to_do_or_to_refuse(
    changes: dict[str, Any], names: list[str]
) -> None:
    card = {"index": 0, "name": "NVIDIA H200", "state": "ok"}
    said: dict[str, Any] = {"host": GOOD, "engine": [GOOD], "model": GOOD}
    said |= {"nvidia_driver": GOOD | {"reboot": []}, "host_tuning": GOOD}
    cards = [card | {"index": n} for n in range(8)]
    said["cuda"] = {"toolkit": GOOD, "driver": "999.0", "gpus": cards}
    assert roles(said | changes, needs(services(), Path("/inv"))["gpus"]) == names


def test_a_host_that_dropped_out_stops_the_rollout() -> None:
    nobody_left_out({"h1": ("kimi",), "h2": ("kimi",), "bastion": ()}, ["h1", "h2"])
    with pytest.raises(OpsctlError, match="nothing was restarted, since h2 failed"):
        nobody_left_out({"h1": ("kimi",), "h2": ("kimi",)}, ["h1"])


def test_each_host_brings_its_own_digest() -> None:
    staged = {"services": {"kimi": {"digest": "d1", "manifest": {"service": "kimi"}}}}
    assert wanted("h1", "kimi", staged).digest == "d1"
    for nothing in (None, {}, {"services": {"other": {}}}):
        with pytest.raises(OpsctlError, match="no release of kimi was staged in this run"):
            wanted("h1", "kimi", nothing)


def test_a_takeover_that_staging_found_is_planned_by_the_rollout() -> None:
    """Through the task's registered result, which is JSON."""
    taken = Takeover("i1", (), ("user root → sglang",))
    state = {"service": "kimi", "state": "active", "invocation": "i1", "release": {"running": "0"}}
    one = staged(state=state, takeover=taken, verdict="no restart: x")
    said = {"h1": json.loads(json.dumps(staged_result([one])))}
    releases = {("h1", "kimi"): wanted("h1", "kimi", said["h1"])}
    (action,) = make("swap", {"h1": ["kimi"]}, seen(said), releases).actions
    assert (action.kind, action.process, action.later) == ("takeover", "i1", taken.later)


def test_what_staging_saw_makes_the_same_plan_as_a_look() -> None:
    state = {"service": "kimi", "state": "active", "run": None, "lock": None}
    state["release"] = {"running": "d1", "confirmed": "d1"}
    look = {"h1": {"services": [state | {"processes": [], "checks": []}]}}
    found = {"h1": {"services": {"kimi": {"before": state}}}}
    releases = {
        ("h1", "kimi"): wanted(
            "h1", "kimi", {"services": {"kimi": {"digest": "d1", "manifest": {}}}}
        )
    }
    chosen = {"h1": ("kimi",)}
    plan = make("swap", chosen, seen(found), releases)
    assert plan == make("swap", chosen, look, releases)
    assert plan.changes == ()
    for change in ({"state": "failed"}, {"release": {"running": "d0", "confirmed": "d0"}}):
        found["h1"]["services"]["kimi"]["before"] = state | change
        assert make("swap", chosen, seen(found), releases).changes


def test_results_are_told_by_host() -> None:
    results = Results("r1", "swap", (Result("h1", "kimi", "confirmed", "d1", 61.0),))
    assert by_host(results)["h1"]["kimi"]["outcome"] == "confirmed"


def test_progress_is_told_once() -> None:
    said: list[str] = []
    teller = Teller(said.append)
    for ranks in ({"TP0": "weights"}, {"TP0": "weights"}, {"TP0": "kv"}):
        teller("h1", "kimi", {"event": "progress", "time": 1.0, "ranks": ranks})
    teller("h1", "kimi", {"event": "phase", "time": 2.0, "phase": "gates"})
    assert said == ["h1 kimi: 1 rank: weights 1", "h1 kimi: 1 rank: kv 1", "h1 kimi: gates"]


@pytest.mark.parametrize(
    ("events", "again", "told"),
    [
        ([], "ansible-playbook d.yml",
         "interrupted before a host was begun, or between two: opsctl status tells\n"
         "next: ansible-playbook d.yml"),
        ([("h1", {"event": "result", "outcome": "confirmed"}), ("h2", {"event": "phase",
          "phase": "gates"})], "ansible-playbook d.yml",
         "h2 kimi: interrupted; now: gates, and its guard confirms or restores by itself\n"
         "next: opsctl watch kimi --limit h2; then again: ansible-playbook d.yml"),
        ([("h1", {"event": "phase", "phase": "drain"})], "",
         "h1 kimi: interrupted; now: drain, and its guard confirms or restores by itself\n"
         "next: opsctl watch kimi --limit h1"),
    ],
)  # fmt: skip
def test_who_interrupts_is_told_who_is_at_work(
    events: list[tuple[str, Any]], again: str, told: str
) -> None:
    teller = Teller(lambda line: None)
    for host, event in events:
        teller(host, "kimi", {"time": 1.0, **event})
    assert interrupted(teller.pictures, again) == told


def staged(**changes: Any) -> Any:
    release = SimpleNamespace(manifest={"service": "kimi"})
    base = {"service": "kimi", "host": "h1", "digest": "d1", "changed": True, "diff": "+ a"}
    base |= {"state": {"service": "kimi", "state": "active", "processes": [{"pid": 1}]}}
    base |= {
        "verdict": "restart: x",
        "warning": "",
        "problems": (),
        "release": release,
        "takeover": None,
    }
    return SimpleNamespace(**base | changes)


@pytest.mark.parametrize(
    ("surveyed", "right"),
    [({"roles": []}, True), ({"roles": ["model"]}, False), ({}, False), (None, False)],
)
def test_with_check_only_a_host_that_is_prepared_has_to_be_right(
    surveyed: Any, right: bool
) -> None:
    assert prepared({"opsctl_surveyed": surveyed} if surveyed is not None else {}) is right


def test_staging_is_changed_only_if_a_service_is() -> None:
    found = staged_result([staged(), staged(service="b", changed=False, diff="")])
    assert found["changed"] and found["diff"] == [{"prepared": "+ a"}]
    assert not staged_result([staged(changed=False, diff="")])["changed"]
    before = found["services"]["kimi"]["before"]
    assert (before["state"], "processes" in before) == ("active", False)
    warned = staged_result([staged(warning="too little memory; overridden: drill")])
    assert warned["warnings"] == ["kimi on h1: too little memory; overridden: drill"]


def check(status: str) -> dict[str, Any]:
    return {"id": "memory", "status": status, "detail": "78 GiB", "evidence": []}


def test_only_a_failed_gate_fails_verify_but_none_at_all_is_an_error() -> None:
    assert "failed" not in verified_result("h1", {"kimi": [check("pass"), check("inconclusive")]})
    failed = verified_result("h1", {"kimi": [check("fail")]})
    assert failed["failed"] and failed["msg"] == "kimi on h1: memory: 78 GiB"
    with pytest.raises(NothingSelected):
        verified_result("h1", {"kimi": []})
