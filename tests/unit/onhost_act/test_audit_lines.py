"""Every verb that changes something leaves one line in the history, also when it fails."""

from pathlib import Path
from typing import Any

import pytest

from opsctl.onhost import ending, files, locks
from opsctl.onhost.collect import _run
from opsctl.onhost.history import history
from opsctl.onhost.remove import remove, stop
from opsctl.onhost.store import Places, Refused, Store
from opsctl.onhost.systemd import CallFailed, UnitState


class Fake:
    """A system manager whose guard is at work, or whose `stop` fails, if it is told so."""

    def __init__(self, guard: str = "inactive", error: str = "") -> None:
        self.guard, self.error = guard, error

    def show(self, unit: str) -> UnitState:
        return UnitState(name=unit, active=self.guard if "guard" in unit else "inactive")

    def stop(self, unit: str) -> None:
        if self.error:
            raise CallFailed(self.error)

    def reset_failed(self, unit: str) -> None:
        return


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store("kimi", Places(tmp_path))
    idle: Any = Fake()
    locks.take(made, idle, "ann@desk", "driver", "r-1")
    return made


def lines(store: Store) -> list[dict[str, Any]]:
    return files.json_lines(files.read(store.var / "history.jsonl") or b"")


@pytest.mark.parametrize("verb", [stop, remove])
@pytest.mark.parametrize(
    ("systemd", "outcome", "cause"),
    [
        (Fake(), "", ""),
        (Fake(guard="active"), "failed", "a guard is at work on kimi"),
        (Fake(error="systemctl stop did not end within 9 s"), "failed", "systemctl stop did not"),
    ],
)
def test_stop_and_remove(store: Store, verb: Any, systemd: Any, outcome: str, cause: str) -> None:
    if outcome:
        with pytest.raises((Refused, CallFailed)):
            verb(store, systemd)
    else:
        verb(store, systemd)
    (line,) = lines(store)
    done = {stop: "stopped", remove: "removed"}[verb]
    assert (line["op"], line["outcome"]) == (verb.__name__, outcome or done)
    assert line["cause"].startswith(cause) and bool(line["cause"]) == bool(cause)
    assert (line["owner"], line["reason"], line["run"]) == ("ann@desk", "driver", "r-1")
    assert line["time"] > 0 and line["seconds"] >= 0


def test_a_lock_that_somebody_else_takes_away(store: Store) -> None:
    idle: Any = Fake()
    locks.free(store, idle, "r-1", by="bob@home", reason="ann is on holiday")
    (line,) = lines(store)
    assert (line["op"], line["outcome"], line["owner"]) == ("unlock", "unlocked", "bob@home")
    assert (line["reason"], line["cause"]) == ("ann is on holiday", "the lock was ann@desk's")


def test_the_last_lines_are_told_and_of_what_never_was_here_none(store: Store) -> None:
    assert history(store, 2) == {"service": "kimi", "entries": []}
    for n in range(3):
        store.audit({"time": n, "op": "stop"})
    assert [entry["time"] for entry in history(store, 2)["entries"]] == [1, 2]


def test_a_run_that_gives_its_own_lock_back_is_told_by_its_own_line(store: Store) -> None:
    idle: Any = Fake()
    locks.free(store, idle, "r-1")
    assert lines(store) == []


@pytest.mark.parametrize("outcome", ["confirmed", "rolled_back"])
def test_a_run_that_was_rolled_back_names_the_release_that_failed(
    store: Store, outcome: str
) -> None:
    store.run("r").mkdir(parents=True)
    result = {"outcome": outcome, "release": "a" * 64, "target": "b" * 64}
    ending.close(store, "r", {"run": "r", "op": "swap"}, {**result, "seconds": 1.0, "cause": ""})
    (line,) = lines(store)
    assert line["release"] == "a" * 64
    assert line.get("failed") == ("b" * 64 if outcome == "rolled_back" else None)


@pytest.mark.parametrize(
    ("outcome", "seconds", "told"),
    [("rolled_back", 9.0, True), ("failed", 9.0, True), ("failed", 0.0, False),
     ("confirmed", 9.0, False)],
)  # fmt: skip
def test_the_last_run_tells_which_release_it_could_not_bring_up(
    store: Store, outcome: str, seconds: float, told: bool
) -> None:
    store.run("r").mkdir(parents=True)
    document = {"run": "r", "op": "swap", "owner": "ann@desk"}
    files.write_json(store.run("r") / "run.json", document)
    result = {"outcome": outcome, "release": "a" * 64, "target": "b" * 64}
    store.write_result("r", {**result, "seconds": seconds, "cause": "start: exit 1"})
    run = _run(store, UnitState(name="guard")) or {}
    assert (run["op"], run["owner"], run["outcome"]) == ("swap", "ann@desk", outcome)
    failed = run.get("failed")
    assert bool(failed) is told
    if failed:
        assert (failed["release"], failed["cause"]) == ("b" * 64, "start: exit 1")
