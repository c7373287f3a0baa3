"""Plan files: what they hold, what is no plan file, and what makes one stale."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from opsctl.errors import DoesNotFit, OpsctlError, Refused, Unreachable
from opsctl.rollout import planfile, stage
from opsctl.rollout.planfile import Asked, document, parsed, stale
from opsctl.rollout.planned import Planned, planned
from tests.unit.rollout.test_staging import Machine, service

CREATED = 1_772_409_908.0
ASKED = Asked(("kimi",), ("h1", "h2"), "h2", "", "inventory")
SECRET = "canary-k3y-0123456789"


def found(*names: str, **more: Any) -> Planned:
    said = {}
    for name in names or ("h1", "h2"):
        host = Machine()
        host.name = name
        described = service(**{"secrets": {"api-key": SECRET}, **more})
        said[name] = stage(host, {"kimi": described}, check=True)
    return planned({name: ["kimi"] for name in said}, said)


def made(plan: Planned | None = None, **more: Any) -> dict[str, Any]:
    return document(plan or found(**more), ASKED, created=CREATED, by="me@here")


@pytest.fixture(scope="module")
def plan() -> dict[str, Any]:
    return made()


def written(plan: dict[str, Any]) -> bytes:
    return json.dumps(plan, indent=1).encode()


def test_it_holds_what_was_planned_on_what_grounds(plan: dict[str, Any]) -> None:
    assert [(s["host"], s["service"], s["action"]) for s in plan["steps"]] == [
        ("h1", "kimi", "swap"),
        ("h2", "kimi", "swap"),
    ]
    step = plan["steps"][0]
    assert (step["engine"], step["verdict"], step["override"]) == ("0.5.9", "fits", None)
    assert step["stood"]["running"] is None and step["stood"]["active"] is True
    assert plan["descriptions"][step["description"]]["flags"]["hicache-ratio"] == 4.0
    assert len(plan["descriptions"]) == 1, "what two hosts share is kept once"
    assert (plan["created"], plan["by"]) == ("2026-03-02T00:05:08Z", "me@here")


def test_it_is_read_as_it_was_written_and_holds_no_secret(plan: dict[str, Any]) -> None:
    text = written(plan)
    assert parsed(text, "p.json") == plan
    assert planfile.asked_of(plan) == ASKED
    assert planfile.age(plan, CREATED + 60) == 60
    assert SECRET not in text.decode()


def changed(**parts: Any) -> Callable[[dict[str, Any]], bytes]:
    return lambda plan: written({**plan, **parts})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (lambda plan: b"", "no plan file"),
        (lambda plan: b"sglang_services: {}\n", "no plan file"),
        (lambda plan: b"\x7fELF\0\0", "no plan file"),
        (lambda plan: b"[1, 2]", "no plan file"),
        (lambda plan: b'{"schema_version": 1, "changes": 2, "steps": []}', "no plan file"),
        (changed(schema_version=2), "a plan of schema 2, and opsctl .* reads schema 1"),
        (changed(by="somebody else"), "damaged"),
        (lambda plan: written(plan)[:-40], "damaged"),
        (lambda plan: written({k: v for k, v in plan.items() if k != "checksum"}), "damaged"),
    ],
)
def test_what_is_no_plan_file_is_told_apart(
    plan: dict[str, Any], content: Callable[[dict[str, Any]], bytes], said: str
) -> None:
    with pytest.raises(Refused, match=said) as caught:
        parsed(content(plan), "p.json")
    assert caught.value.exit_code == 2 and caught.value.hint


def test_a_file_with_a_right_checksum_and_wrong_parts_is_damaged(plan: dict[str, Any]) -> None:
    for part in ("steps", "asked", "created", "descriptions"):
        wrong = {k: v for k, v in plan.items() if k not in ("checksum", part)}
        with pytest.raises(Refused, match="damaged"):
            parsed(written({**wrong, "checksum": planfile._hash(wrong)}), "p.json")


def test_the_same_question_with_the_same_answer_holds(plan: dict[str, Any]) -> None:
    assert stale(plan, made()) == []


def step(plan: dict[str, Any], host: str = "h1") -> dict[str, Any]:
    return next(s for s in plan["steps"] if s["host"] == host)


def stood(**parts: Any) -> Callable[[dict[str, Any]], None]:
    return lambda plan: step(plan)["stood"].update(parts)


A = "a" * 64
RUN = {"run": "r2", "op": "rollback", "owner": "ann@desk", "outcome": "confirmed"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (stood(running=A), ["on h1 kimi has release aaaaaaaaaaaa in place instead of nothing"]),
        (stood(running="0"), ["on h1 kimi has a unit of other hands in place instead of nothing"]),
        (stood(edited=True), ["on h1 the unit of kimi was edited"]),
        (stood(active=False), ["on h1 kimi does not run any more"]),
        (stood(dropins=["9.conf"]), ["on h1 drop-ins of kimi: none → 9.conf"]),
        (stood(confirmed=A), ["on h1 the confirmed release of kimi is release aaaaaaaaaaaa "
                              "instead of nothing"]),
        (stood(run=RUN), ["on h1 kimi has been through rollback of ann@desk (confirmed; run r2)"]),
        (stood(run={**RUN, "outcome": None}), ["on h1 kimi has been through rollback of ann@desk "
                                               "(at work; run r2)"]),
        (stood(run=RUN, running=A), ["on h1 kimi has release aaaaaaaaaaaa in place"]),
        (lambda plan: step(plan).update(digest=A), ["kimi on h1: release "]),
        (lambda plan: step(plan).update(action="stage"), ["kimi on h1: what is to be done: swap "
                                                          "→ stage"]),
        (lambda plan: step(plan).update(ram_verdict="does not fit", verdict="does not fit"),
         ["kimi on h1: the forecast of RAM: fits → does not fit"]),
        (lambda plan: plan.update(opsctl="9.9"), ["opsctl 9.9 is at work, and "]),
        (lambda plan: plan["steps"].reverse(), ["the order: kimi on h1, kimi on h2 → kimi on h2, "
                                                "kimi on h1"]),
        (lambda plan: plan["steps"].pop(), ["kimi on h2: is not selected any more"]),
        (lambda plan: plan["steps"].append({**step(plan), "host": "h3"}),
         ["kimi on h3: was not in the plan"]),
    ],
)  # fmt: skip
def test_what_has_changed_is_told(
    plan: dict[str, Any], change: Callable[[dict[str, Any]], Any], said: list[str]
) -> None:
    now = copy.deepcopy(plan)
    change(now)
    lines = stale(plan, now)
    assert len(lines) == len(said), lines
    for line, begins in zip(lines, said, strict=True):
        assert line.startswith(begins)


def test_another_description_is_told_by_key_and_once_for_all_hosts(plan: dict[str, Any]) -> None:
    assert stale(plan, made(ratio=3.0)) == [
        "description of kimi on h1, h2: hicache-ratio 4.0 → 3.0"
    ]
    gates = made(gates={"soak": "5s"})
    assert stale(plan, gates) == ["description of kimi on h1, h2: gates soak 30.0 → 5.0"]
    assert stale(plan, made(found(secrets={"api-key": "another-0123456789"}))) == [
        "description of kimi on h1, h2: secret api-key changed"
    ]


def test_a_verdict_that_has_become_better_is_no_reason(plan: dict[str, Any]) -> None:
    before = copy.deepcopy(plan)
    step(before).update(ram_verdict="tight", verdict="tight")
    assert stale(before, plan) == []


def test_an_edited_unit_that_was_edited_again(plan: dict[str, Any]) -> None:
    before, now = copy.deepcopy(plan), copy.deepcopy(plan)
    step(before)["stood"].update(edited=True, unit="1")
    step(now)["stood"].update(edited=True, unit="2")
    assert stale(before, now) == ["on h1 the unit of kimi was edited again"]


def test_a_plan_that_cannot_be_done_tells_all_hosts_and_the_gravest_code() -> None:
    poor = Machine(available=300 << 30)
    said = {
        "h1": stage(poor, {"kimi": service()}, check=True),
        "h2": Unreachable("timed out", host="h2"),
        "h3": OpsctlError("no python", host="h3"),
    }
    whole = planned({name: ["kimi"] for name in said}, said)
    error = whole.error()
    assert isinstance(error, DoesNotFit)
    for words in ("h1 kimi: the forecast says", "h2: timed out", "h3: no python"):
        assert words in error.message
    del said["h1"]
    error = planned({name: ["kimi"] for name in said}, said).error()
    assert isinstance(error, Unreachable) and "h3: no python" in error.message
