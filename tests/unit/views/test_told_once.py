"""What is the same on several hosts is told once; commands with a playbook can be typed."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from opsctl.cli.console import plain
from opsctl.engine.advisories import Advisory
from opsctl.errors import (
    DoesNotFit,
    OpsctlError,
    Problem,
    SpecError,
    Unreachable,
    folded,
)
from opsctl.forecast.told import Told
from opsctl.paths import share
from opsctl.rollout.model import Plan
from opsctl.rollout.plan import make
from opsctl.rollout.planned import Planned
from opsctl.views import errors, forecast, plan, plays, verify
from opsctl.views.once import Once


def test_hosts_are_joined_in_the_order_in_which_they_were_met() -> None:
    found = folded([("h2", "full"), ("h1", "busy"), ("h3", "full"), ("h2", "full")])
    assert found == [("h2, h3", "full"), ("h1", "busy")]


def test_a_block_is_told_of_the_first_and_an_unnamed_one_of_each() -> None:
    once, blocks = Once(), [("", [("own", "")]), ("notes", [("n", "")]), ("gone", [])]
    assert list(once.lines("h1", blocks)) == [("own", ""), ("n", "")]
    assert list(once.lines("h2", blocks)) == [("own", ""), ("the same as on h1: notes", "dim")]
    other = [("notes", [("other", "")])]
    assert list(once.lines("h3", other)) == [("other", "")]


def wrong(*errors_: OpsctlError) -> OpsctlError:
    told = {(f"h{n}", ""): error for n, error in enumerate(errors_, 1)}
    error = Planned(Plan("swap", ()), {}, {}, told).error()
    assert error is not None
    return error


def test_one_fault_of_many_hosts_is_one_line_of_a_refused_plan() -> None:
    same = [OpsctlError("there is no user sglang") for _ in range(3)]
    error = wrong(*same)
    assert (error.host, error.message) == ("h1, h2, h3", "there is no user sglang")
    error = wrong(*same, Unreachable("no route"))
    assert isinstance(error, Unreachable)
    assert error.message.splitlines()[1:] == ["h1, h2, h3: there is no user sglang", "h4: no route"]
    bad = SpecError([Problem("is no flag", service="kimi", key="flags.x")])
    spec = wrong(*(SpecError([replace(p, host=f"h{n}") for p in bad.problems]) for n in (1, 2)))
    assert isinstance(spec, SpecError)
    assert [str(p) for p in spec.problems] == ["host h1, h2, service kimi, key flags.x: is no flag"]
    assert isinstance(wrong(DoesNotFit("a"), DoesNotFit("b")), DoesNotFit)


def test_hosts_that_do_not_answer_alike_are_told_together() -> None:
    gone = {f"h{n}": Unreachable("no route") for n in range(3)}
    with pytest.raises(Unreachable, match="answers: h0, h1, h2: no route"):
        make("restart", dict.fromkeys(gone, ("kimi",)), gone)


def test_hosts_that_cannot_be_planned_alike_are_one_line() -> None:
    steps = [plan.Step(f"h{n}", "", "", "no route", blocked=True) for n in range(3)]
    steps.insert(1, plan.Step("other", "kimi", "", "busy", blocked=True))
    text = plain(plan.drawing(steps))
    assert text.splitlines() == [
        "h0, h1, h2: cannot be planned: no route",
        "other kimi: cannot be planned: busy",
    ]
    assert len(plan.document(steps)["steps"]) == 4, "for programs each host is there"


KNOWN = Advisory("pools-grow", "warn", "pools grow", "", "restart", "", True)


def test_a_fleets_forecast_tells_advisories_once() -> None:
    once = Once()
    told = [
        Told(host, "kimi", "0.5.9", (), None, "not known", advisories=(KNOWN,), notes=("n",))
        for host in ("h1", "h2", "h3")
    ]
    text = "".join(plain(forecast.drawing(one, once)) for one in told)
    assert text.count("pools grow") == text.count("note: n") == 1
    assert text.count("the same as on h1 kimi: advisories, notes") == 2
    assert "h3 kimi: not forecast" in text
    assert plain(forecast.drawing(told[0])).count("pools grow") == 1


def test_a_fleets_verification_tells_them_once() -> None:
    service = {"service": "kimi", "checks": [], "advisories": [KNOWN]}
    said = {host: {"services": [service]} for host in ("h1", "h2")}
    text = plain(verify.report(said))
    assert text.count("pools grow") == 1
    assert "the same as on h1 kimi: advisories" in text


# -- commands -------------------------------------------------------------------------------------


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OPSCTL_INVENTORY", "ANSIBLE_INVENTORY", "ANSIBLE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "my hosts"
    path.mkdir()
    return path


def test_a_playbook_is_named_as_it_can_be_typed_here(
    inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hint = "ansible-playbook playbooks/deploy.yml prepares hosts"
    error = OpsctlError("would not start", hint=hint)
    (last,) = errors.lines(error, Path("my hosts"))[1:]
    program, option, hosts, play, *rest = shlex.split(last.removeprefix("next: "))
    assert (program, option, hosts) == ("ansible-playbook", "-i", "my hosts")
    assert Path(play) == share() / "playbooks" / "deploy.yml" and Path(play).is_file()
    assert rest == ["prepares", "hosts"]
    monkeypatch.setenv("OPSCTL_INVENTORY", str(inventory))
    monkeypatch.chdir(share())
    found = plays.typeable("remove it, then ansible-playbook deploy.yml (role engine)")
    wanted = f"ansible-playbook -i {shlex.quote(str(inventory))} playbooks/deploy.yml"
    assert found == f"remove it, then {wanted} (role engine)"


@pytest.mark.usefixtures("inventory")
def test_what_is_no_playbook_of_ours_is_left_alone() -> None:
    text = "ansible-playbook mine.yml"
    assert plays.typeable(text) == text
    assert "-i" not in plays.typeable("ansible-playbook deploy.yml"), "no inventory is known here"
