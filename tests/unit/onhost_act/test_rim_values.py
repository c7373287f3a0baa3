"""The small pure parts around the guard."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from opsctl.onhost import bundle, deadman, ending, files, locks, preflight, swap, systemd, zero
from opsctl.onhost.deadman import decide
from opsctl.onhost.follow import Quiet
from opsctl.onhost.heart import Heart
from opsctl.onhost.store import Places, Refused, Store
from opsctl.onhost.systemd import UnitState

SHOW = """\
Id=sglang-kimi.service
LoadState=loaded
ActiveState=activating
SubState=auto-restart
Result=exit-code
MainPID=0
InvocationID=49f7c4b0a7f04f8d8d4dc3a6e4b5b6d1
NRestarts=2
Job=0
ControlGroup=
TimeoutStopUSec=2min 15s
DropInPaths=/etc/systemd/system/sglang-kimi.service.d/a.conf /run/x.conf

Id=sglang-glm.service
LoadState=not-found
ActiveState=inactive
SubState=dead
Result=success
MainPID=0
InvocationID=
NRestarts=0
TimeoutStopUSec=infinity
"""


def test_show_is_read_unit_by_unit() -> None:
    kimi, glm = systemd.parse_show(SHOW)
    assert (kimi.name, kimi.restarts, kimi.stop_limit) == ("sglang-kimi.service", 2, 135.0)
    assert not kimi.up  # it waits for systemd's own restart
    assert len(kimi.dropins) == 2
    assert (glm.load, glm.invocation, glm.stop_limit) == ("not-found", "", 3600.0)


@pytest.mark.parametrize(
    ("span", "value"),
    [("90ms", 0.09), ("1h 30min", 5400.0), ("1min 30s", 90.0), ("500us", 0.0005), ("", 3600.0)],
)
def test_spans_of_systemd(span: str, value: float) -> None:
    assert systemd.seconds(span) == pytest.approx(value)


@pytest.mark.parametrize(
    ("over", "alive", "age", "resumed", "decision"),
    [
        (True, False, 999.0, 0, "done"),
        (False, True, 119.0, 0, "wait"),
        (False, True, 121.0, 0, "resume"),
        (False, True, 121.0, 1, "restore"),
        (False, False, 5.0, 0, "wait"),  # just launched
        (False, False, 11.0, 0, "resume"),  # gone: no need to wait for the heartbeat to age
        (False, False, float("inf"), 1, "restore"),
    ],
)
def test_what_the_watchman_does(
    over: bool, alive: bool, age: float, resumed: int, decision: str
) -> None:
    assert decide(over, alive, age, 120.0, resumed) == decision


def test_the_heart_stops_when_the_main_thread_breaks_its_promise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("opsctl.onhost.heart.EVERY", 0.02)
    monkeypatch.setattr("opsctl.onhost.heart.QUIET", 0.1)
    beats: list[float] = []
    heart = Heart(lambda: beats.append(time.monotonic()))
    heart.start()
    with heart.allow(0.4):
        time.sleep(0.3)
    assert len(beats) > 5  # a long stop is no silence
    time.sleep(0.5)  # QUIET and more: the promise of 0.4 s is over
    silent = len(beats)
    time.sleep(0.3)
    heart.stop()
    assert len(beats) == silent


def test_the_heartbeat_does_not_follow_the_clock_on_the_wall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store("kimi", Places(tmp_path))
    store.run("r1").mkdir(parents=True)
    assert store.heartbeat_age("r1") == float("inf")
    store.beat("r1")
    monkeypatch.setattr(time, "time", lambda: 9e9)
    assert store.heartbeat_age("r1") < 5
    (store.run("r1") / "heartbeat").write_text("99999999999\n")  # of a boot before this one
    assert store.heartbeat_age("r1") == float("inf")


@pytest.mark.parametrize(
    ("unit", "address"),
    [
        ("ExecStart=/x -m sglang.launch_server --port 8000", {"host": "127.0.0.1", "port": 8000}),
        (
            "ExecStart=/x -m sglang.launch_server \\\n  --host 0.0.0.0 --port=30001",
            {"host": "0.0.0.0", "port": 30001},
        ),
        ("ExecStart=/x -m sglang.launch_server", {"host": "127.0.0.1", "port": 30000}),
        ("ExecStart=/usr/bin/bash -lc 'run.sh'", None),
    ],
)
def test_where_a_hand_made_unit_listens(unit: str, address: dict[str, Any] | None) -> None:
    assert zero.address(unit) == address


class Idle:
    def __init__(self, up: bool = False) -> None:
        self.active = "active" if up else "inactive"

    def show(self, unit: str) -> UnitState:
        return UnitState(name=unit, active=self.active)


def test_the_lock_is_one_runs_and_says_what_it_is_about(tmp_path: Path) -> None:
    store = Store("kimi", Places(tmp_path))
    idle: Any = Idle()
    locks.take(store, idle, "ann", "ratio", "r1")
    locks.take(store, idle, "ann", "ratio", "r1")  # again: its answer may have been lost
    with pytest.raises(locks.Held) as held:
        locks.take(store, idle, "bob", "x", "r2")
    assert (held.value.lock["owner"], held.value.lock["state"]) == ("ann", "waiting")
    assert "being worked on" not in held.value.lock["hint"]
    store.write_parked({"run": held.value.lock["run"], "reason": "driver 1 → 2"})
    told = locks.told(store, UnitState())
    assert told is not None and told["hint"].startswith(
        "its host is being worked on, and starts it"
    )
    store.remove_parked()
    with pytest.raises(Refused, match="held by run r1 of ann"):
        locks.free(store, idle, "r2")
    with pytest.raises(Refused, match="is at work"):
        locks.free(store, Idle(up=True), "r1")  # type: ignore[arg-type]
    store.run("r1").mkdir(parents=True)
    store.write_result("r1", {"outcome": "confirmed"})
    told = locks.told(store, UnitState())
    assert told is not None and told["state"] == "over" and "opsctl unlock kimi" in told["hint"]
    assert locks.free(store, idle, "r1") == {"unlocked": True, "run": "r1"}
    assert locks.free(store, idle, "r1") == {"unlocked": False, "run": "r1"}
    assert [p.name for p in store.var.iterdir()] == ["runs"]  # no temporary file is left


def test_a_line_torn_by_a_power_cut_is_left_out_and_hurts_none_after_it(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    files.append_json(path, {"n": 1})
    with path.open("ab") as file:
        file.write(b'{"n": 2, "eve')
    files.append_json(path, {"n": 3})
    assert files.json_lines(path.read_bytes()) == [{"n": 1}, {"n": 3}]


def test_a_failed_write_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "unit"
    files.write(path, b"old")
    monkeypatch.setattr("os.fsync", lambda descriptor: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        files.write(path, b"new")
    assert path.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["unit"]


def test_two_cannot_hold_the_flock(tmp_path: Path) -> None:
    with files.flock(tmp_path / "f"), pytest.raises(files.Busy), files.flock(tmp_path / "f"):
        pass
    with files.flock(tmp_path / "f"):
        pass


def test_the_zipapp_is_the_same_each_time_and_holds_the_ground_floor_only() -> None:
    assert bundle.build() == bundle.build()
    names = zipfile.ZipFile(io.BytesIO(bundle.build())).namelist()
    assert "opsctl/onhost/guard.py" in names and "__main__.py" in names
    assert all(n in ("__main__.py", "opsctl/__init__.py") or "/onhost/" in n for n in names)


def test_the_program_comes_through_stdin_and_leaves_the_rest_to_the_verb() -> None:
    """A request to a port where nobody listens: the verb has read its own part of stdin."""
    program = bundle.build()
    argv = bundle.boot_argv(len(program), "probe")
    request = {"host": "127.0.0.1", "port": 1, "method": "GET", "path": "/health", "timeout": 2}
    done = subprocess.run(
        [sys.executable, *argv[1:]],
        input=program + json.dumps(request).encode(),
        capture_output=True,
        timeout=60,
    )
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["status"]) == (0, 0), done.stderr
    assert "refused" in answer["error"]


def test_a_program_that_is_cut_off_says_so() -> None:
    argv = bundle.boot_argv(1000, "collect")
    done = subprocess.run(
        [sys.executable, *argv[1:]], input=b"x" * 10, capture_output=True, timeout=60
    )
    assert done.returncode == 1 and b"the connection ended within the program" in done.stderr


def test_errors_are_one_json_document_without_what_stdin_held() -> None:
    program = bundle.build()
    argv = bundle.boot_argv(len(program), "stage")
    done = subprocess.run(
        [sys.executable, *argv[1:]],
        input=program + b"canary not json",
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert json.loads(done.stdout) == {
        "error": {"message": "stdin holds no JSON document", "hint": ""}
    }
    assert b"canary" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("step", "cause", "seconds"),
    [
        ("restore", "generation: no whole answer within 10 s", 10.0),
        ("restore", "start: nothing moved for 900 s", 10.0),
        ("restore", "memory: 17.56 GiB available", None),  # it serves: requests may finish
        ("target", "", None),
    ],
)
def test_only_an_engine_that_answers_nobody_is_not_waited_for(
    step: str, cause: str, seconds: float | None
) -> None:
    pending = swap.Pending("r", "swap", "a", fallback="b", step=step, cause=cause)
    assert swap.grace(pending) == seconds


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store("kimi", Places(tmp_path))


def test_a_heartbeat_needs_no_new_space(store: Store) -> None:
    store.run("r").mkdir(parents=True)
    store.beat("r")
    before = (store.run("r") / "heartbeat").stat()
    store.beat("r")
    after = (store.run("r") / "heartbeat").stat()
    assert (before.st_size, before.st_ino) == (after.st_size, after.st_ino) == (16, before.st_ino)
    assert store.heartbeat_age("r") < 60


def test_a_run_keeps_room_for_its_result(store: Store) -> None:
    folder = store.run("r")
    folder.mkdir(parents=True)
    files.reserve(folder / ending.RESERVE, ending.RESERVED)
    assert (folder / ending.RESERVE).stat().st_blocks * 512 >= ending.RESERVED
    ending.close(store, "r", {"run": "r"}, {**ending_of("failed")})
    assert not (folder / ending.RESERVE).exists() and store.result("r") is not None


def ending_of(outcome: str) -> dict[str, Any]:
    return {"outcome": outcome, "release": "", "seconds": 0.0, "cause": ""}


def test_a_silent_guard_is_told_once_a_minute() -> None:
    quiet = Quiet(100.0)
    ages = [(0, 5), (10, 500), (60, 550), (71, 561), (90, 580), (132, 622), (140, 1), (150, 500)]
    assert [now for now, age in ages if quiet.noticed(float(now), float(age))] == [71, 132]


@pytest.mark.parametrize(
    ("up", "pending", "age", "works"),
    [
        (True, None, None, True),
        (False, None, None, False),
        (False, "r", 5.0, True),  # the dead-man will run it again
        (False, "r", None, False),  # its folder is gone: nobody will
        (False, "../r", None, False),
    ],
)
def test_a_swap_that_nobody_will_finish_is_not_at_work(
    store: Store, up: bool, pending: str | None, age: float | None, works: bool
) -> None:
    store.var.mkdir(parents=True, exist_ok=True)
    if pending:
        store.write_pending({"run": pending, "op": "swap", "target": "a"})
    if age is not None:
        store.run("r").mkdir(parents=True)
        store.beat("r")
    state = UnitState(active="active" if up else "inactive")
    assert locks.working(store, state) is works


def test_a_disk_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside, later = preflight.Outside(), tmp_path / "not" / "yet"
    assert outside.unwritable(later) == []
    monkeypatch.setattr(preflight, "LEAST_FREE", 1 << 60)
    assert "are free on the disk of" in outside.unwritable(later)[0]
    assert outside.unwritable(Path("/proc")) != []


def test_a_full_disk_gives_up_the_reserve_for_what_must_be_written(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = store.run("r")
    folder.mkdir(parents=True)
    files.reserve(folder / ending.RESERVE, ending.RESERVED)
    written = files.write_json

    def full(path: Path, value: Any, mode: int = 0o644) -> None:
        if (folder / ending.RESERVE).exists():
            raise OSError(28, "No space left on device")
        written(path, value, mode)

    monkeypatch.setattr("opsctl.onhost.files.write_json", full)
    deadman._count(store, "r", 1)
    assert json.loads((folder / "resumed.json").read_text()) == {"times": 1}
