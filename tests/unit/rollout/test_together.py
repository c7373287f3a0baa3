"""Services of one host that are deployed in one go are judged as one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from opsctl.forecast.fit import FITS, NOT
from opsctl.forecast.question import Question
from opsctl.release.diff import restart_reasons
from opsctl.release.render import render
from opsctl.rollout import together
from opsctl.rollout.model import Takeover
from opsctl.rollout.together import judge, others
from opsctl.spec.load import check
from opsctl.spec.merge import merge
from tests.unit.rollout.test_staging import CONFIG, GIB, NO_SWAP, service

POOLS = {4.0: 637109 * 70272 * 8, 2.0: 318555 * 70272 * 8}  # bytes of all ranks
PROCESSES = 8 * 4.5 * GIB  # a usual scheduler, estimated


def facts(available: float, *around: dict[str, Any], **more: Any) -> dict[str, Any]:
    """`available`: GiB as they are now, with what runs running."""
    return {
        "model": {"path": "/srv/models/m", "exists": True, "texts": {"config.json": CONFIG}},
        "draft": None,
        "memory": {"total": 900 * GIB, "available": int(available * GIB), **NO_SWAP},
        "gpus": [],
        "starts": [],
        "running": None,
        "others": list(around),
        **more,
    }


def neighbour(name: str, ratio: float, *, runs: bool = True) -> dict[str, Any]:
    """As the host tells of it while its release of that ratio stands there."""
    return {
        "service": name,
        "state": "active" if runs else "inactive",
        "enabled": "enabled",
        "standing": True,
        "expected": POOLS[ratio],
        "ranks": 8,
        "held": POOLS[ratio] + PROCESSES if runs else 0,
    }


def verdicts(
    ratios: dict[str, float], told: dict[str, dict[str, Any]], **more: Any
) -> dict[str, str]:
    services = {name: service(ratio) for name, ratio in ratios.items()}
    bare = {name: render(name, one) for name, one in services.items()}
    found = judge(services, bare, told, **more)
    return {name: one.found.fit.verdict for name, one in found.items() if one.found.fit}


def test_two_that_fit_alone_do_not_fit_together() -> None:
    room = facts(500)  # a pool of all ranks is 333.6 GiB
    assert verdicts({"a": 4.0}, {"a": room}) == {"a": FITS}
    assert verdicts({"a": 4.0, "b": 4.0}, {"a": room, "b": room}) == {"a": NOT, "b": NOT}
    assert verdicts({"a": 2.0, "b": 2.0}, {"a": room, "b": room}) == {"a": FITS, "b": FITS}


# What the host has available is said as it is now; a service's own memory comes back to it.
@pytest.mark.parametrize(
    ("ratios", "stand", "fits"),
    [
        # b grows into what a gives back before it
        ({"a": 2.0, "b": 4.0}, {"a": 4.0, "b": 2.0}, {"a": FITS, "b": FITS}),
        # a grows while b still holds its old pools, which it only gives back afterwards
        ({"a": 4.0, "b": 2.0}, {"a": 2.0, "b": 4.0}, {"a": NOT, "b": FITS}),
        ({"a": 4.0, "b": 4.0}, {"a": 2.0, "b": 2.0}, {"a": NOT, "b": NOT}),
        ({"a": 2.0, "b": 2.0}, {"a": 4.0, "b": 4.0}, {"a": FITS, "b": FITS}),
    ],
)
def test_who_comes_first_gives_back_first(
    ratios: dict[str, float], stand: dict[str, float], fits: dict[str, str]
) -> None:
    taken = {name: POOLS[ratio] + PROCESSES for name, ratio in stand.items()}
    left = 650 * GIB - sum(taken.values())
    told = {
        name: facts(
            left / GIB,
            *(neighbour(other, stand[other]) for other in stand if other != name),
            service_memory={"bytes": int(taken[name]), "basis": "cgroup"},
            running={"ranks": {}, "invocation": "x"},
        )
        for name in stand
    }
    assert verdicts(ratios, told) == fits


def test_an_engine_that_takes_what_it_finds_finds_what_those_before_it_left() -> None:
    """0.5.21 sizes its pools by MemAvailable at their moment: in the order of the starts."""
    flags = {"tp-size": 8, "mem-fraction-static": 0.88, "enable-hierarchical-cache": True}
    memory = {"min_available": "32GiB", "calibration": {"kv_tokens": 400_000}}
    one = service(engine={"version": "0.5.21"}, flags=flags, memory=memory)
    room = facts(500)

    def pools(*names: str) -> list[int]:
        bare = {name: render(name, one) for name in names}
        found = judge(dict.fromkeys(names, one), bare, dict.fromkeys(names, room))
        totals = [each.found.result.host_total for each in found.values() if each.found.result]
        return [total for total in totals if total is not None]

    (alone,) = pools("a")
    first, second = pools("a", "b")
    assert first == alone, "nothing of b is taken when a starts"
    found = 500 * GIB - PROCESSES - 10 * GIB  # what a's engine takes its share of
    share = 0.8 * 0.95  # hicache-host-memory-fraction, and what the engine keeps for rounding
    assert first == pytest.approx(share * found, rel=0.01)
    assert second == pytest.approx(share * (found - first - PROCESSES), rel=0.01)


def test_what_is_not_deployed_now_counts_as_the_host_tells_it() -> None:
    told = facts(500, neighbour("old", 2.0, runs=False))
    assert verdicts({"a": 4.0}, {"a": told}) == {"a": NOT}
    assert [one["service"] for one in others("a", told, {})] == ["old"]


MEMORY = {"gpu_free_before": "94.05GiB", "gpu_free_after": "21.71GiB", "kv_tokens": 159277}


# one host's own change → tokens that are forecast from the group's figures; None: none are known
@pytest.mark.parametrize(
    ("change", "tokens", "note"),
    [
        ({}, 159277, ""),
        ({"flags": {"hicache-ratio": 3.0}}, 159277, ""),
        ({"flags": {"mem-fraction-static": 0.9}}, "more", ""),  # its memory still holds
        ({"flags": {"tp-size": 4}}, None, "are of tp-size 8, as described"),
        ({"gpus": [0, 1, 2, 3, 4, 5, 6, 7]}, None, "are of all GPUs, as described"),
        (
            {
                "flags": {"tp-size": 4},
                "memory": {
                    "calibration": {"gpu_free_after": "29.4GiB", "kv_tokens": 276_750}
                },  # measured with the change
            },
            276_750,
            "",
        ),
    ],
)
def test_one_hosts_own_change_is_judged_as_the_command_judges_it(
    change: dict[str, Any], tokens: Any, note: str
) -> None:
    written = service(2.0).model_dump(mode="json", exclude_unset=True)
    written["memory"]["calibration"] = MEMORY
    services, wrong = check({"a": written}, {"a": change} if change else {})
    assert not wrong
    told = {**facts(500), "gpus": []}
    bare = {"a": render("a", services["a"])}
    found = judge(services, bare, {"a": told})["a"].found
    asked = Question("a", merge({"a": written}, {"a": change})["a"], told, base=written).asked()
    known = asked.calibration  # what `opsctl forecast` takes of them
    assert (found.case.measured.tokens if found.case else None) == known.get("kv_tokens")
    if found.result is not None and found.result.device.tokens is not None:
        value = found.result.device.tokens.value
        assert value > 159277 if tokens == "more" else value == tokens
    else:
        assert tokens is None
    assert any(note in text for text in found.notes) if note else known


def test_a_start_that_may_take_hours_widens_its_units_start_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that spans three starts of 5400 s never counts three that fail after 7000."""
    cap = 7200

    def longer(*asked: Any) -> Any:
        found = real(*asked)
        return replace(found, expect={**found.expect, "start": {"seconds": 9, "cap": cap}})

    real = together._forecast
    monkeypatch.setattr(together, "_forecast", longer)
    one, room = service(2.0), facts(500)
    bare = {"a": render("a", one)}

    def deployed(**state: Any) -> Any:
        told = {**room, "standing": {"service": "a", "state": "active", **state}}
        found = judge({"a": one}, bare, {"a": told})["a"]
        return found, render("a", one, expect=found.expect)

    found, release = deployed()
    assert release.digest == found.release.digest != bare["a"].digest
    unit = release.files["sglang-a.service"].content.decode()
    assert f"StartLimitIntervalSec={3 * (10800 + 30)}s" in unit
    # deployed once more, with the model in the page cache meanwhile: nothing changes
    stands, cap = release.manifest, 1800
    again, same = deployed(manifest=stands)
    assert same.digest == release.digest and again.expect == stands["expect"]
    # a service that runs is not restarted for its limit alone
    cap = 7200
    left, same = deployed(manifest=bare["a"].manifest)
    assert same.digest == bare["a"].digest and "limit" not in left.expect["start"]
    reasons = restart_reasons(bare["a"].manifest, release.manifest)
    assert reasons == ["start limit unset → 10800 s"]


@pytest.mark.parametrize("config", ["", "{", "[]"])
def test_a_forecast_that_is_lost_changes_nothing(config: str) -> None:
    """A damaged config.json took the start limit out of the unit: a healthy engine was restarted
    into a start that it could not survive."""
    one, room = service(2.0), facts(500)
    bare = {"a": render("a", one)}
    known = judge({"a": one}, bare, {"a": room})["a"].found.expect
    start = {"seconds": 9, "cap": 7200, "limit": 10800.0}
    stands = render("a", one, expect={**(known or {}), "start": start}).manifest
    assert stands["digest"] != bare["a"].digest
    lost = {**room["model"], "texts": {"config.json": config}}
    running = {"service": "a", "state": "active", "manifest": stands}

    def judged(what: Any) -> together.Judged:
        told = {**room, "model": lost, "standing": running}
        return judge({"a": what}, {"a": render("a", what)}, {"a": told})["a"]

    found = judged(one)
    assert found.found.expect is None
    assert (found.release.digest, found.expect) == (stands["digest"], stands["expect"])
    other = judged(service(4.0))  # what else changes does; the limit is of the host, not of that
    assert restart_reasons(stands, other.release.manifest) == ["hicache-ratio 2.0 → 4.0"]
    given = judged(service(2.0, timing={"cap": 900}))
    assert restart_reasons(stands, given.release.manifest) == [
        "timing cap 5400.0 → 900.0",
        "start limit 10800 s → unset",
    ]


def test_a_reason_lets_it_pass_and_a_release_that_runs_needs_none() -> None:
    one = service(4.0)
    release = render("a", one)
    tight = facts(300)

    def judged(override: str = "", **state: Any) -> Any:
        told = {**tight, "standing": {"service": "a", **state}} if state else tight
        return judge({"a": one}, {"a": release}, {"a": told}, override)["a"]

    refused = judged()
    assert "does not fit" in refused.unfit and not refused.warning
    passed = judged("the owner knows")
    assert not passed.unfit and passed.expect["override"] == "the owner knows"
    assert passed.warning.endswith("overridden: the owner knows")
    digest = release.digest
    runs = {"state": "active", "release": {"running": digest, "confirmed": digest}}
    left = judged(**runs, manifest=release.manifest)
    assert not left.unfit and "is not restarted" in left.warning
    recorded = {**release.manifest, "expect": {**passed.expect}}
    again = judged(state="inactive", release={"running": digest}, manifest=recorded)
    assert not again.unfit and again.expect["override"] == "the owner knows"


@pytest.mark.parametrize(
    ("available", "differs", "state", "words"),
    [
        (245, (), {}, "245.00 GiB available, 430.00 GiB demanded by memory.min_available"),
        (431, (), {}, ""),
        (245, ("hicache-ratio 2.0 → 4.0",), {}, ""),  # it starts anew: the forecast judges that
        (245, (), {"invocation": "i2"}, ""),  # another process than the one that was compared
    ],
)
def test_a_takeover_that_the_gate_of_memory_would_end_is_told(
    available: float, differs: tuple[str, ...], state: dict[str, Any], words: str
) -> None:
    bare = render("a", service(2.0))
    memory = {**bare.manifest["memory"], "min_available": 430 * GIB}
    release = replace(bare, manifest={**bare.manifest, "memory": memory})
    runs = {"state": "active", "release": {"running": "0"}, "invocation": "i1", **state}
    told = together.memory_now("a", runs, release, facts(available), Takeover("i1", differs))
    assert words in told and bool(told) is bool(words)
