"""A service that is stopped for work on its host: who starts it again, and when."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from opsctl.onhost import parking, returned
from tests.unit.doctor import hosts
from tests.unit.onhost_act import test_swap_crashes as crashes
from tests.unit.onhost_act.test_swap_crashes import A, Dead, Fuse


class Returning(crashes.Outside):
    """A host whose driver is well, or not, or only after some looks."""

    def __init__(self, *wrong: str) -> None:
        self.wrong, self.asked = list(wrong), []

    def not_back(self, must: Any, store: Any, systemd: Any) -> list[str]:
        self.asked.append(must)
        return [self.wrong.pop(0)] if self.wrong else []


@pytest.fixture
def parked(tmp_path: Path) -> Any:
    """A confirmed service, parked and stopped by run "up"."""
    host = crashes.bare(tmp_path)
    crashes.deployed(host)
    host.ask("start", None, "up")
    document = host.store.run_document("up") | {"must": {"driver": "2"}, "patience": 10}
    crashes.files.write_json(host.store.run("up") / "run.json", document)
    host.store.write_parked({"run": "up", "reason": "driver 1 → 2"})
    host.systemd.stop("")
    host.systemd.enabled = True
    return host


def boot(host: Any, outside: Any, fuse: Any = None) -> list[dict[str, Any]]:
    """The boot unit, then systemd, then what the boot unit has launched. As in a real boot the
    unit's own start is queued, and a stop takes it away."""
    host.systemd.power_cut()
    host.systemd._read()
    host.launched.clear()
    stops = host.systemd.log.count("stop")
    crashes.recover.recover_service(
        host.store, host.systemd, lambda s, r: host.launched.append((s, r))
    )
    if host.systemd.log.count("stop") == stops:
        host.systemd.boot()
    results = []
    for _, run in host.launched:
        world = host.world(fuse)
        world.outside = outside
        results.append(crashes.Guard(world, run, host.store.run_document(run)).execute())
    return results


def test_a_boot_starts_it_by_a_guard_that_asks_the_host_first(parked: Any) -> None:
    outside = Returning()
    (result,) = boot(parked, outside)
    assert (result["outcome"], outside.asked) == ("confirmed", [{"driver": "2"}])
    assert parked.launched == [("kimi", "up")]
    assert parked.systemd.running == parked.store.release_unit(A)
    assert parked.store.parked() is None
    assert boot(parked, outside) == [] and parked.systemd.running  # from now on as ever


def test_on_a_host_that_is_not_well_nothing_starts_and_the_next_boot_asks_again(
    parked: Any,
) -> None:
    bad = Returning(*["no driver is loaded"] * 99)
    (result,) = boot(parked, bad)
    assert result["outcome"] == "failed" and "no driver is loaded" in result["cause"]
    assert parked.systemd.running is None and parked.store.parked()
    (again,) = boot(parked, bad)
    assert again["outcome"] == "failed" and parked.systemd.running is None
    (mended,) = boot(parked, good := Returning())
    assert mended["outcome"] == "confirmed" and good.asked == [{"driver": "2"}]
    runs = parked.store.runs()
    assert len(runs) == 4 and sum(run.startswith("boot-") for run in runs) == 2
    assert parked.store.parked() is None


def test_it_waits_for_what_comes_up_beside_it_and_no_longer(parked: Any) -> None:
    late = Returning("fabric manager is activating", "fabric manager is activating")
    (result,) = boot(parked, late)
    assert result["outcome"] == "confirmed" and len(late.asked) == 3
    notes = [e["text"] for e in parked.store.events("up") if e["event"] == "note"]
    assert notes == ["waits: fabric manager is activating"]


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_run_that_was_parked_and_never_launched_is_no_failure(
    tmp_path: Path, by_hand: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A roll was interrupted; then another parked the service anew, or an operator started it."""
    host = crashes.bare(tmp_path)
    crashes.deployed(host)
    monkeypatch.setattr(parking.stage, "renew", lambda *_: None)
    monkeypatch.setattr(parking.launch, "_own_lock", lambda *_: None)
    run = {"op": "start", "service": "kimi", "target": None, "owner": "me", "reason": "driver"}
    host.systemd.stop("")
    parking.park(host.store, host.systemd, {**run, "run": "x-interrupted"})
    if by_hand:
        host.ask("start", None, "y-by-hand")
        assert host.guard("y-by-hand")["outcome"] == "confirmed"
    else:
        parking.park(host.store, host.systemd, {**run, "run": "y-again"})
    boot(host, Returning())
    assert host.store.parked() is None
    audit = parking.files.json_lines((host.store.var / "history.jsonl").read_bytes())
    told = [(e["run"], e["outcome"]) for e in audit if e["op"] == "start"]
    assert told == [("y-by-hand" if by_hand else "y-again", "confirmed")]


def test_a_start_that_an_operator_asks_for_unparks_it(parked: Any) -> None:
    parked.ask("start", None, "by-hand")
    assert parked.guard("by-hand")["outcome"] == "confirmed"
    assert parked.store.parked() is None


LONGEST = 40  # fuses; the story has fewer effects, so that the last ones do not burn


@pytest.mark.parametrize("at", range(1, LONGEST))
def test_a_power_cut_at_any_effect_of_the_start_leaves_it_served_after_the_next(
    parked: Any, at: int
) -> None:
    fuse = Fuse(at)
    with suppress(Dead):
        boot(parked, Returning(), fuse)
    assert bool(fuse.last) == (at <= fuse.count) and fuse.count < LONGEST
    boot(parked, Returning())
    assert parked.systemd.running == parked.store.release_unit(A)
    assert parked.store.parked() is None and not parked.store.pending_is_there()


def test_only_a_start_can_be_parked(parked: Any) -> None:
    with pytest.raises(parking.Refused, match="only a start can be parked"):
        parking.park(parked.store, parked.systemd, {"op": "swap", "run": "x", "service": "kimi"})


MUST = {"driver": hosts.DRIVER, "gpus": 8, "units": ["nvidia-fabricmanager.service"]}
XID = "2026-11-01T10:00:00+0000 h kernel: NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off"


def test_a_host_that_is_back_as_promised() -> None:
    assert returned.judge(MUST, hosts.nvswitch()) == []


def loads(version: str) -> Callable[[Any], None]:
    def change(seen: Any) -> None:
        path = "/proc/driver/nvidia/version"
        seen["files"][path] = seen["files"][path].replace(hosts.DRIVER, version)

    return change


def loads_nothing(seen: Any) -> None:
    del seen["files"]["/proc/driver/nvidia/version"]
    for name in seen["commands"]:
        if name.startswith("smi"):
            seen["commands"][name]["out"] = "NVIDIA-SMI has failed because it couldn't communicate"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (loads("580.65.06"), f"the kernel runs driver 580.65.06, {hosts.DRIVER} is installed"),
        (loads_nothing, f"the kernel runs no driver, {hosts.DRIVER} is installed"),
        (lambda s: s["commands"]["smi-cards"].update(
            out=s["commands"]["smi-cards"]["out"].rpartition("7, ")[0]), "7 GPUs are well, 8 were"),
        (lambda s: s["units"].pop("nvidia-fabricmanager.service"), "service is not known"),
        (lambda s: s["units"]["nvidia-fabricmanager.service"].update(active="failed"),
         "nvidia-fabricmanager.service is failed"),
        (lambda s: s["commands"]["kernel"].update(out=XID), "Xid 79"),
    ],
)  # fmt: skip
def test_a_host_that_is_not_back_is_told(change: Callable[[Any], None], words: str) -> None:
    seen = hosts.nvswitch()
    change(seen)
    assert any(words in problem for problem in returned.judge(MUST, seen))
