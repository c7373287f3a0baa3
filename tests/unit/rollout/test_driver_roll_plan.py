"""A rolling upgrade of drivers on fake hosts: what is planned, and how it ends whatever happens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from opsctl.errors import LockHeld, OpsctlError, Unreachable
from opsctl.onhost.doctor.examine import FAULTS
from opsctl.remote.fake import Call
from opsctl.remote.host import Answer, Silent
from opsctl.rollout.driver import Seen, Step, Wish, step
from opsctl.rollout.driverend import Ended
from opsctl.rollout.driverhost import BOOT_ID, REBOOT, roll
from opsctl.rollout.steps import Order
from tests.unit.rollout.test_fleet import EVENTS, Guarded, Time, result

DIGEST = "a" * 64
WISH = Wish("580", "580.95.05", True, 600.0)
FOUND = {
    "changed": True,
    "problems": [],
    "driver": "580.65.06",
    "loaded": "580.65.06",
    "parts": ["driver", "fabric"],
    "fabric": True,
    "reboot": [],
    "users": [],
    "warnings": [],
}
SETTLED = {**FOUND, "changed": False, "parts": []}


def state(**changes: Any) -> dict[str, Any]:
    release = {"running": DIGEST, "confirmed": DIGEST, "edited": False}
    base = {"service": "kimi", "unit": "sglang-kimi.service", "state": "active", "lock": None}
    return {**base, "run": None, "release": release, "parked": None, "enabled": "enabled"} | changes


def seen(found: Mapping[str, Any] = FOUND, *faults: str, **changes: Any) -> Seen:
    gpus = [{"index": n, "state": "ok"} for n in range(8)]
    checks = [
        {"id": FAULTS[name].check, "status": "fail", "fault": name, "detail": name, "hint": "mend"}
        for name in faults
    ]
    return Seen(found, {"services": [state(**changes)], "gpus": gpus}, checks)


def test_a_host_that_has_its_driver_is_left_alone() -> None:
    assert step("h1", WISH, seen(SETTLED)).kind == "none"
    assert step("h1", Wish("", "", True, 1), seen(SETTLED)).kind == "none"


def test_the_plan_of_one_host() -> None:
    found = step("h1", WISH, seen())
    assert found.line == (
        "h1: driver 580.65.06 → 580.95.05: drain and stop kimi, packages, reboot, doctor, "
        "start kimi, gates"
    )
    assert (found.gpus, found.reboot, found.services, found.locked) == (
        8, True, ("kimi",), ("kimi",)
    )  # fmt: skip


def test_services_are_stopped_only_for_what_needs_it() -> None:
    first = {**FOUND, "driver": None, "loaded": None}
    assert step("h1", WISH, seen(first)).reboot is False
    fabric = step("h1", WISH, seen({**FOUND, "parts": ["fabric"]}))
    assert (fabric.reboot, fabric.services) == (False, ("kimi",))
    marks = step("h1", WISH, seen({**FOUND, "parts": []}))
    assert (marks.kind, marks.services) == ("upgrade", ())
    beside = step("h1", WISH, seen({**FOUND, "parts": ["persistence", "companions"]}))
    assert (beside.reboot, beside.services) == (False, ("kimi",))
    lacks = "lacks nvidia-persistenced of its version, companions of its version"
    assert beside.reason == f"driver 580.65.06 {lacks}"
    daemon = step("h1", WISH, seen({**FOUND, "parts": ["persistence"]}))
    assert (daemon.kind, daemon.services) == ("upgrade", ())


def test_a_service_that_a_roll_has_left_parked_is_started_though_the_driver_is_there() -> None:
    found = step("h1", WISH, seen(SETTLED, state="inactive", parked={"run": "r"}))
    assert (found.kind, found.services, found.reboot) == ("start", ("kimi",), False)


def test_what_a_reboot_starts_ungated_is_told() -> None:
    assert step("h1", WISH, seen(state="inactive")).told == (
        "kimi is stopped and enabled: the reboot starts it, as every reboot does",
    )


@pytest.mark.parametrize(
    ("wish", "told", "words"),
    [
        (Wish("580", "580.95.05", False, 1), seen(), "needs a reboot, and none is allowed"),
        (WISH, seen({**FOUND, "problems": ["a downgrade is refused"]}), "a downgrade is refused"),
        (WISH, seen({**FOUND, "users": [{"name": "train", "pid": 7, "unit": ""}]}), "train (PID 7"),
        (WISH, seen(FOUND, "gpu-lost"), "gpu-lost"),
        (WISH, seen(FOUND, "disk-full"), "disk-full"),
        (WISH, seen(release={"running": "0", "confirmed": None}), "is of other hands"),
        (WISH, seen(release={"running": "b", "confirmed": "a"}), "was never confirmed"),
        (WISH, seen(run={"run": "r", "active": True, "phase": "soak"}), "a run is at work on kimi"),
        (
            WISH,
            seen(lock={"owner": "me", "reason": "why", "run": "r1", "since": 1.8e9}),
            "kimi is locked by me since 2027-01-15 08:00:00Z (run r1): why",
        ),
    ],
)
def test_what_forbids_a_roll(wish: Wish, told: Seen, words: str) -> None:
    with pytest.raises(OpsctlError, match=re.escape(words)):
        step("h1", wish, told)


@pytest.mark.parametrize(
    "faults",
    [
        ["driver-old"],
        ["fabric-manager-version"],
        ["driver-mismatch", "gpu-none"],  # nobody can tell cards of a driver that is not well
        ["thermal", "toolkit-major"],  # blocks nothing
    ],
)
def test_what_an_upgrade_is_for_does_not_forbid_it(faults: list[str]) -> None:
    assert step("h1", WISH, seen(FOUND, *faults)).kind == "upgrade"


@pytest.mark.parametrize("fault", ["engine-unreadable", "unit-masked", "model-unreadable"])
def test_what_keeps_a_service_from_coming_back_forbids_its_stop(fault: str) -> None:
    with pytest.raises(OpsctlError, match=fault):
        step("h1", WISH, seen(FOUND, fault))


def test_a_host_that_tells_of_no_card_at_all_may_have_a_driver_that_is_half_installed() -> None:
    told = seen(FOUND, "gpu-none")
    blind = Seen(told.found, {**told.collected, "gpus": []}, told.checks)
    assert (step("h1", WISH, blind).kind, step("h1", WISH, blind).gpus) == ("upgrade", 0)
    with pytest.raises(OpsctlError, match="gpu-none"):
        step("h1", WISH, told)


def test_a_lock_that_was_left_behind_keeps_nobody_out() -> None:
    assert step("h1", WISH, seen(lock={"owner": "me", "state": "over"})).kind == "upgrade"


# -- one host after the other


@dataclass
class Box(Guarded):
    """A host with a driver: `asked` in order are the calls; it boots anew when told to, after
    `silent` questions that it does not answer."""

    silent: int = 2
    returns: bool = True
    asked: list[str] = field(default_factory=list)
    booted: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        lock = {"state": "over"}
        said = {"services": [{"run": {"run": "r", "active": False}, "lock": lock}]}
        self.verbs = {"park": self._park, "collect": said, **self.verbs}

    def _park(self, call: Call) -> dict[str, Any]:
        must = call.json.get("must")
        self.asked.append("park" if must is None else f"park for {must['driver']}")
        return {}

    def run(self, argv: Any, **more: Any) -> Answer:
        if list(argv) == REBOOT:
            self.asked.append("reboot")
            self.booted = 1
            return Answer(0, "")
        if list(argv) == BOOT_ID:
            if self.booted and (self.silent > 0 or not self.returns):
                self.silent -= 1
                raise Unreachable("no route to host", host=self.name)
            return Answer(0, f"boot {self.booted}\n")
        answer = super().run(argv, **more)
        verb = self.calls[-1].verb
        if verb not in ("collect", "park"):
            self.asked.append(verb)
        return answer


class Programs:
    """The role's program: what it answers to each question, "install" more than once."""

    def __init__(self, box: Box, **answers: Any) -> None:
        installed = {**FOUND, "driver": "580.95.05", "parts": []}
        self.box = box
        self.answers: dict[str, list[Any]] = {
            "fetch": [{"problems": []}],
            "install": [installed | {"reboot": ["the kernel runs 580.65.06"]}, installed],
        } | answers

    def __call__(self, what: str) -> Any:
        self.box.asked.append(what)
        return self.answers[what].pop(0)


def rolled(*boxes: Box, **answers: Any) -> list[Ended]:
    plan = [step(box.name, WISH, seen()) for box in boxes]
    order = Order("r", "me", "CVE", "now", lambda *_: None, clock=Time().clock())
    programs = {box.name: Programs(box, **answers if n == 0 else {}) for n, box in enumerate(boxes)}
    hosts = {box.name: box for box in boxes}
    return roll(hosts, plan, order, programs.__getitem__)  # type: ignore[arg-type]


def test_one_host_after_the_other_in_this_order() -> None:
    boxes = [Box("h1"), Box("h2")]
    assert [one.outcome for one in rolled(*boxes)] == ["upgraded", "upgraded"]
    for box in boxes:
        assert box.asked == [
            "lock", "fetch", "park", "stop", "install", "park for 580.95.05", "reboot", "install",
            "unlock",
        ]  # fmt: skip
        assert "CVE: driver 580.65.06 → 580.95.05" in " ".join(box.said("lock")[0].args)
        must = box.said("park")[-1].json
        assert must["must"]["units"] == ["nvidia-fabricmanager.service"]
        assert (must["op"], must["must"]["gpus"], must["patience"]) == ("start", 8, 60.0)


def refused(*words: str) -> dict[str, Any]:
    return {"problems": ["; ".join(words)]}


def test_packages_that_cannot_be_fetched_stop_nothing() -> None:
    boxes = [Box("h1"), Box("h2")]
    first, second = rolled(*boxes, fetch=[refused("404")])
    assert (first.outcome, second.outcome) == ("refused", "skipped")
    assert boxes[0].asked == ["lock", "fetch", "unlock"] and boxes[1].asked == []
    assert "serve as before" in first.state and "upgrade_driver.yml" in first.hint


def test_packages_that_fail_before_the_reboot_let_services_start_on_the_old_driver() -> None:
    box = Box("h1")
    (ended,) = rolled(box, install=[refused("dkms failed")])
    assert ended.outcome == "restored" and ended.cause == "dkms failed"
    assert box.asked == ["lock", "fetch", "park", "stop", "install", "launch", "unlock"]
    assert "must" not in box.said("launch")[0].json
    assert "kimi serves on it" in ended.state


def test_if_the_old_driver_is_not_whole_any_more_that_is_told() -> None:
    refusal = result("failed", n=1, seconds=0, cause="Driver/library version mismatch")
    box = Box("h1", streams=[[refusal]])
    (ended,) = rolled(box, install=[refused("dkms failed")])
    assert ended.outcome == "failed"
    assert "kimi could not be started again (kimi: Driver/library version mismatch)" in ended.state
    assert "opsctl start kimi --limit h1" in ended.hint


def test_a_driver_that_does_not_load_starts_no_service_and_ends_the_roll() -> None:
    refusal = result("failed", n=1, seconds=0, cause="the kernel runs no driver")
    boxes = [Box("h1", streams=[[refusal]]), Box("h2")]
    installed = {**FOUND, "driver": "580.95.05", "reboot": ["x"]}
    first, second = rolled(*boxes, install=[installed, refused("its module does not load")])
    assert (first.outcome, second.outcome) == ("failed", "skipped")
    assert "does not load; kimi: the kernel runs no driver" in first.cause
    assert "kimi is stopped: its guard found the host not well" in first.state
    assert boxes[0].asked[-1] == "unlock" and "launch" not in boxes[0].asked


def test_a_host_that_does_not_come_back() -> None:
    boxes = [Box("h1", returns=False), Box("h2")]
    first, second = rolled(*boxes)
    assert (first.outcome, second.outcome) == ("lost", "skipped")
    assert first.cause == "not back 600 s after its reboot"
    assert "is parked there: at its next boot it starts if doctor" in first.state
    assert "opsctl watch kimi" in first.hint and boxes[0].asked[-1] == "reboot"


def test_gates_that_fail_after_the_reboot() -> None:
    gate = {"id": "health", "status": "fail", "detail": "no answer", "evidence": []}
    end = result("failed", checks=[gate], cause="health: no answer")
    (ended,) = rolled(Box("h1", streams=[[*EVENTS, end]]))
    assert ended.outcome == "failed" and "failed its gates" in ended.state
    assert "opsctl logs kimi --host h1" in ended.hint


def test_a_lock_that_is_taken_meanwhile() -> None:
    box = Box("h1")
    box.verbs["lock"] = LockHeld("locked by me", hint="opsctl status kimi")
    (ended,) = rolled(box)
    assert (ended.outcome, ended.cause) == ("refused", "locked by me")
    assert ended.hint.startswith("opsctl status kimi; then again: ansible-playbook")


@pytest.mark.parametrize(
    ("error", "unlock"), [(Unreachable("no route", host="h1"), False), (Silent("hung"), True)]
)
def test_of_a_host_that_does_not_answer_nobody_knows_whether_it_serves(
    error: OpsctlError, unlock: bool
) -> None:
    box = Box("h1")
    box.verbs["lock"] = error
    (ended,) = rolled(box)
    assert ended.outcome == "refused"
    assert ended.state == "this roll touched nothing; whether its services serve is not known"
    assert ("opsctl unlock kimi" in ended.hint) is unlock


def test_where_no_driver_was_none_is_said_to_be_loaded() -> None:
    box = Box("h1")
    none = {**FOUND, "driver": None, "loaded": None}
    plan = [step("h1", WISH, seen(none, state="inactive"))]
    order = Order("r", "me", "", "now", lambda *_: None, clock=Time().clock())
    programs = Programs(box, install=[refused("no such package")])
    (ended,) = roll({"h1": box}, plan, order, lambda _: programs)
    assert (ended.outcome, ended.driver) == ("restored", "")
    assert ended.state == "no driver is loaded, as before"


def test_a_connection_that_breaks_while_packages_move() -> None:
    box = Box("h1")
    lost = Unreachable("connection reset", host="h1")

    def broken(_: str) -> Any:
        raise lost

    plan = [step("h1", WISH, seen())]
    order = Order("r", "me", "", "now", lambda *_: None, clock=Time().clock())

    def program(what: str) -> Any:
        return {"problems": []} if what == "fetch" else broken(what)

    (ended,) = roll({"h1": box}, plan, order, lambda _: program)
    assert ended.outcome == "lost" and "at its next boot it starts" in ended.state


def test_without_a_reboot_the_guard_is_launched_from_here() -> None:
    box, installed = Box("h1"), {**FOUND, "driver": "580.95.05"}
    plan = [Step("h1", "upgrade", "fabric", ("kimi",), ("kimi",))]
    order = Order("r", "me", "", "now", lambda *_: None, clock=Time().clock())
    (ended,) = roll({"h1": box}, plan, order, lambda _: Programs(box, install=[installed]))
    assert ended.outcome == "upgraded"
    assert box.asked == ["lock", "fetch", "park", "stop", "install", "launch", "unlock"]
    assert box.said("launch")[0].json["must"]["driver"] == "580.95.05"
