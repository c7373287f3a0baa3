"""A crash before and after every single effect of a swap, on a machine made of a real file system
in a folder and a small model of systemd. Whatever happens: in the end a confirmed release is the
unit on disk, it is the one that runs, and nothing is left pending.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from opsctl.onhost import files, recover
from opsctl.onhost.guard import Guard, ShuttingDown, World
from opsctl.onhost.model import FAIL, PASS, Check
from opsctl.onhost.startup import Look
from opsctl.onhost.store import Places, Store
from opsctl.onhost.systemd import CallFailed, UnitState

A, B = "a" * 64, "b" * 64
OTHER = "hand.service"
HAND_MADE = b"[Service]\nExecStart=/opt/v/bin/python -m sglang.launch_server --port 31000\n"


class Dead(BaseException):
    """The process ends here: no `except Exception` of the code under test may catch it."""


@dataclass
class Fuse:
    """Burns before effect number `at` (odd), or after it (even): effect (at + 1) // 2."""

    at: int = 0
    count: int = 0
    last: str = ""

    def touch(self, name: str) -> None:
        self.count += 1
        if self.count == self.at:
            self.last = name
            raise Dead(name)

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.touch(f"before {name}")
            value = function(*args, **kwargs)
            self.touch(f"after {name}")
            return value

        return call


@dataclass
class Manager:
    """systemd as far as a swap can see it: it runs what was *loaded*, not what is on disk."""

    units: Path
    broken: set[bytes] = field(default_factory=set)  # unit contents that crash at their start
    loaded: bytes | None = None
    dropins: tuple[str, ...] = ()
    running: bytes | None = None
    failed: bool = False
    enabled: bool = False
    going_down: bool = False
    starts: int = 0
    invocation: str = ""
    log: list[str] = field(default_factory=list)

    name = "sglang-kimi.service"
    other: bool = False  # whether hand.service is there, a unit of another name
    other_runs: bool = False
    other_enabled: bool = False

    def _read(self) -> None:
        path = self.units / self.name
        self.loaded = path.read_bytes() if path.exists() else None
        folder = self.units / f"{self.name}.d"
        self.dropins = tuple(sorted(p.name for p in folder.iterdir())) if folder.is_dir() else ()

    def show(self, unit: str) -> UnitState:
        if unit == OTHER:
            paths = {"FragmentPath": str(self.units / OTHER), "TimeoutStopUSec": "1min 30s"}
            paths["DropInPaths"] = str(self.units / f"{OTHER}.d" / "limits.conf")
            paths["UnitFileState"] = "enabled" if self.other_enabled else "disabled"
            load, active = (
                "loaded" if self.other else "not-found",
                "active" if self.other_runs else "inactive",
            )
            return UnitState(name=unit, load=load, active=active, properties=paths)
        active = "active" if self.running else "failed" if self.failed else "inactive"
        return UnitState(
            name=unit,
            load="loaded" if self.loaded else "not-found",
            active=active,
            sub="running" if self.running else "dead",
            invocation=self.invocation,
            properties={
                "TimeoutStopUSec": "2min 15s",
                "UnitFileState": "enabled" if self.enabled else "disabled",
                "NeedDaemonReload": "no",
            },
        )

    def stop(self, unit: str, grace: float | None = None) -> None:
        if unit == OTHER:
            self.log.append("stop other")
            self.other_runs = False
            return
        self.log.append("stop")
        self.running, self.failed = None, False

    def start(self, unit: str) -> None:
        self.log.append("start")
        if self.loaded is None:
            raise CallFailed("Unit sglang-kimi.service not found.")
        if self.running:
            return
        assert not self.other_runs, "two engines on one port"
        self.starts += 1
        self.invocation = f"{self.starts:032x}"
        self.running = None if self.loaded in self.broken else self.loaded
        self.failed = self.running is None

    def reload(self) -> None:
        self.log.append("reload")
        self._read()

    def enable(self, unit: str) -> None:
        self.enabled = True

    def disable(self, unit: str) -> None:
        if unit == OTHER:
            self.other_enabled = False
            return
        self.enabled = False

    def reset_failed(self, unit: str) -> None:
        self.failed = False

    def verify(self, path: Path) -> list[str]:
        return []

    def shutting_down(self) -> bool:
        return self.going_down

    def power_cut(self) -> None:
        self.running, self.failed, self.invocation = None, False, ""
        self.other_runs = False

    def boot(self) -> None:
        """What systemd does once opsctl-recover.service has ended."""
        if self.enabled and self.loaded is not None:
            self.start(self.name)
        self.other_runs = self.other_enabled
        assert not (self.running and self.other_runs), "two engines on one port"


@dataclass
class Sight:
    """A start is ready at once, or has crashed; gates fail for the units that are named."""

    systemd: Manager
    bad: dict[bytes, str] = field(default_factory=dict)  # unit content → the gate it fails
    refused: dict[str, str] = field(default_factory=dict)  # digest → the gate it fails
    digest: str = ""
    adopted: list[str] = field(default_factory=list)

    started: str = ""
    looked: list[str] = field(default_factory=list)  # at the host, before a start

    def before(self, manifest: Any) -> None:
        self.looked.append(manifest.get("digest", ""))

    def begin(self, manifest: Any, before: str) -> None:
        self.digest, self.started = manifest.get("digest", ""), before

    def adopt(self) -> None:
        self.adopted.append(self.digest)

    def look(self) -> Look:
        state = self.systemd.show("x")
        if state.active != "active" or (self.started and state.invocation == self.started):
            return Look(state, crashed=Check("start", FAIL, "exited at once", ["boom"]))
        return Look(state, ready=True, ranks={"TP0": "ready"})

    def gate(self, name: str) -> Check | None:
        failing = (self.bad.get(self.systemd.running or b""), self.refused.get(self.digest))
        status = FAIL if name in failing else PASS
        return Check(name, status, "as told")

    def record(self) -> dict[str, Any]:
        return {"ready": True}


@dataclass
class Time:
    at: float = 1_000.0

    def now(self) -> float:
        return self.at

    monotonic = now

    def sleep(self, seconds: float) -> None:
        self.at += seconds


class Outside:
    def unwritable(self, folder: Path) -> list[str]:
        return []

    def user_exists(self, name: str) -> bool:
        return True

    def group_exists(self, name: str) -> bool:
        return True

    def exists(self, path: str) -> bool:
        return True

    def absent(self, paths: Any) -> list[str]:
        return []

    left: tuple[str, ...] = ()

    def in_the_way(self, systemd: Any, manifest: Any, but: str = "", after: Any = ()) -> list[str]:
        return [] if but else list(self.left)  # after the stop


class Fused:
    """An object whose every method is an effect that the fuse may burn at."""

    def __init__(self, inner: Any, fuse: Fuse) -> None:
        self._inner, self._fuse = inner, fuse

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        return self._fuse.around(name, value) if callable(value) else value


@dataclass
class Host:
    root: Path
    systemd: Manager
    sight: Sight
    launched: list[tuple[str, str]] = field(default_factory=list)

    @property
    def store(self) -> Store:
        return Store("kimi", Places(self.root))

    def world(self, fuse: Fuse | None = None) -> World:
        systemd = Fused(self.systemd, fuse) if fuse else self.systemd
        return World(self.store, systemd, self.sight, Time(), Outside())

    def guard(
        self, run: str = "r1", fuse: Fuse | None = None, force: bool = False
    ) -> dict[str, Any]:
        guard = Guard(self.world(fuse), run, self.store.run_document(run))
        return guard.execute(force_restore=force)

    def ask(self, op: str, target: str | None, run: str = "r1") -> None:
        folder = self.store.run(run)
        folder.mkdir(parents=True, exist_ok=True)
        document = {"run": run, "op": op, "target": target, "owner": "me", "reason": "test"}
        if op == "takeover":
            document |= {"process": self.systemd.invocation, "later": ["user root → sglang"]}
        files.write_json(folder / "run.json", document)

    def reboot(self) -> None:
        """Power is back: systemd reads the disk, the boot unit runs, enabled units start, and what
        the boot unit has launched runs."""
        self.systemd._read()
        self.launched.clear()
        recover.recover_service(self.store, self.systemd, lambda s, r: self.launched.append((s, r)))
        self.systemd.boot()
        confirmed = self.store.confirmed() or "0"
        assert self.systemd.running in (None, HAND_MADE, self.store.release_unit(confirmed))
        for _, run in list(self.launched):
            self.guard(run)


def unit(digest: str) -> bytes:
    return f"[Unit]\nX-OpsctlRelease={digest}\n[Service]\nExecStart=/bin/x\n".encode()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return bare(tmp_path)


def bare(root: Path) -> Host:
    """A host with two releases staged and nothing deployed."""
    units = root / "etc/systemd/system"
    units.mkdir(parents=True)
    manager = Manager(units)
    made = Host(root, manager, Sight(manager))
    for digest in (A, B):
        folder = made.store.release(digest)
        folder.mkdir(parents=True)
        (folder / "sglang-kimi.service").write_bytes(unit(digest))
        (folder / "release.json").write_text(json.dumps({"digest": digest}))
    made.store.var.mkdir(parents=True)
    return made


def deployed(host: Host, digest: str = A) -> None:
    host.ask("swap", digest, "r0")
    result = host.guard("r0")
    assert result["outcome"] == "confirmed", result


def hand_made(host: Host) -> None:
    host.store.unit_path.write_bytes(HAND_MADE)
    host.store.dropin_folder.mkdir()
    (host.store.dropin_folder / "limits.conf").write_bytes(b"[Service]\nNice=1\n")
    host.systemd._read()
    host.systemd.enabled = True
    host.systemd.start("")


def hand_made_elsewhere(host: Host, digest: str = A) -> None:
    """A unit of another name, which the release says that it takes over."""
    units = host.systemd.units
    (units / OTHER).write_bytes(HAND_MADE)
    (units / f"{OTHER}.d").mkdir()
    (units / f"{OTHER}.d" / "limits.conf").write_bytes(b"[Service]\nNice=1\n")
    host.systemd.other = host.systemd.other_runs = host.systemd.other_enabled = True
    manifest = {"digest": digest, "takes_over": OTHER}
    (host.store.release(digest) / "release.json").write_text(json.dumps(manifest))


def whole(host: Host) -> None:
    """The promise."""
    store = host.store
    confirmed = store.confirmed()
    assert confirmed, "nothing is confirmed"
    assert store.standing() == confirmed
    taken = store.taken()
    if taken is None:
        assert host.systemd.running == store.release_unit(confirmed)
    else:  # since its process was taken over, or since a start of its own that no guard judged
        assert host.systemd.running in (HAND_MADE, store.release_unit(confirmed))
        assert (host.systemd.running == HAND_MADE) == (host.systemd.invocation == f"{1:032x}")
    assert host.systemd.enabled
    assert not (host.systemd.other_runs or host.systemd.other_enabled)
    assert store.pending() is None
    if confirmed == "0":
        assert host.systemd.dropins == ("limits.conf",)
    else:
        assert host.systemd.dropins == ()


# -- the story without accidents


def test_a_good_release_is_confirmed_in_the_binding_order(host: Host) -> None:
    deployed(host)
    host.systemd.log.clear()
    host.ask("swap", B)
    result = host.guard()
    assert (result["outcome"], result["release"]) == ("confirmed", B)
    assert host.systemd.log == ["stop", "reload", "start"]  # the old drain time governs the stop
    whole(host)
    assert host.store.previous() == A
    assert [e["event"] for e in host.store.events("r1")][-1] == "result"
    assert [e["n"] for e in host.store.events("r1")] == list(
        range(1, len(host.store.events("r1")) + 1)
    )


def test_a_bad_release_gives_way_to_the_confirmed_one(host: Host) -> None:
    deployed(host)
    host.sight.bad[unit(B)] = "tools"
    host.ask("swap", B)
    result = host.guard()
    assert (result["outcome"], result["release"]) == ("rolled_back", A)
    assert result["cause"] == "tools: as told"
    assert [c["id"] for c in result["checks"]][-1] == "tools"
    whole(host)


def test_what_is_restored_is_recorded_and_what_failed_is_not(host: Host) -> None:
    """A forecast has to know what runs now by its figures; a start that a gate refused is none."""
    deployed(host)
    host.sight.bad[unit(B)] = "tools"
    host.ask("swap", B)
    before = len(host.sight.looked)
    host.guard()
    newest = host.store.starts()[0]
    assert newest["digest"] == A and newest["gpu_key"] == host.store.manifest(A).get("gpu_key")
    assert (host.store.var / "starts" / f"{host.systemd.invocation}.json").exists()
    assert B not in {start["digest"] for start in host.store.starts()}
    assert host.sight.looked[before:] == [B, A], "the host is looked at before each start"


def test_a_crash_is_told_with_its_lines_and_restored(host: Host) -> None:
    deployed(host)
    host.systemd.broken.add(unit(B))
    host.ask("swap", B)
    result = host.guard()
    assert (result["outcome"], result["log"]) == ("rolled_back", ["boom"])
    whole(host)


def test_a_first_deployment_that_fails_is_stopped_and_says_what_is_left(host: Host) -> None:
    host.systemd.broken.add(unit(A))
    host.ask("swap", A)
    result = host.guard()
    assert result["outcome"] == "failed"
    assert "nothing was ever confirmed here" in result["cause"]
    assert (host.systemd.running, host.systemd.enabled, host.store.pending()) == (None, False, None)


def test_what_stood_there_before_is_restored_with_its_dropins(host: Host) -> None:
    hand_made(host)
    host.sight.bad[unit(A)] = "ranks"
    host.ask("swap", A)
    result = host.guard()
    assert (result["outcome"], result["release"]) == ("rolled_back", "0")
    whole(host)


def test_rollback_goes_back_to_what_stood_there_before(host: Host) -> None:
    hand_made(host)
    deployed(host)
    assert host.systemd.dropins == ()
    host.ask("rollback", None)
    result = host.guard()
    assert (result["outcome"], result["release"]) == ("confirmed", "0")
    whole(host)


def test_what_serves_already_is_not_touched(host: Host) -> None:
    deployed(host)
    host.systemd.log.clear()
    host.ask("swap", A)
    assert host.guard()["outcome"] == "unchanged"
    assert host.systemd.log == []


def test_a_unit_edited_by_hand_is_put_right_and_a_copy_kept(host: Host) -> None:
    deployed(host)
    host.store.unit_path.write_bytes(unit(A) + b"# edited\n")
    host.ask("swap", A)
    assert host.guard()["outcome"] == "confirmed"
    assert (host.store.run("r1") / "unit.before").read_bytes().endswith(b"# edited\n")
    whole(host)


@pytest.mark.parametrize("op", ["restart", "start"])
def test_a_failing_restart_is_tried_once_more_and_then_told(host: Host, op: str) -> None:
    deployed(host)
    host.systemd.stop("")
    host.systemd.broken.add(unit(A))
    host.systemd.log.clear()
    host.ask(op, None)
    result = host.guard()
    assert result["outcome"] == "failed"
    assert host.systemd.log.count("start") == 2
    assert "is left failed" in result["cause"]


def test_a_restart_that_comes_up_at_the_second_time_is_confirmed(host: Host) -> None:
    deployed(host)
    host.systemd.broken.add(unit(A))
    start = host.systemd.start

    def second(name: str) -> None:
        start(name)
        host.systemd.broken.clear()

    host.systemd.start = second  # type: ignore[method-assign]
    host.ask("restart", None)
    assert host.guard()["outcome"] == "confirmed"
    whole(host)


def test_both_failing_is_told_with_both_causes(host: Host) -> None:
    deployed(host)
    host.systemd.broken |= {unit(A), unit(B)}
    host.ask("swap", B)
    result = host.guard()
    assert result["outcome"] == "failed"
    assert "then the restored release aaaaaaaaaaaa failed too" in result["cause"]
    assert host.store.standing() == A and host.store.confirmed() == A


def test_a_release_that_is_not_whole_is_refused_before_anything_is_touched(host: Host) -> None:
    deployed(host)
    (host.store.release(B) / "release.json").unlink()
    host.systemd.log.clear()
    host.ask("swap", B)
    result = host.guard()
    assert result["outcome"] == "failed" and "stage it again" in result["cause"]
    assert host.systemd.log == []
    whole(host)


def test_what_an_engine_left_behind_is_told_and_does_not_keep_the_old_one_away(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed(host)
    monkeypatch.setattr(Outside, "left", ("port 30000 is held by PID 7 (python3)",))
    host.ask("swap", B)
    result = host.guard()
    assert result["outcome"] == "rolled_back"
    assert result["cause"] == "start: after the stop, port 30000 is held by PID 7 (python3)"
    whole(host)


def test_a_shutdown_is_no_fault_of_the_release(host: Host) -> None:
    """systemd stops the engine before the guard: that must not be taken for a crash."""
    deployed(host)
    host.systemd.broken.add(unit(B))
    host.systemd.going_down = True
    host.ask("swap", B)
    with pytest.raises(ShuttingDown):
        host.guard()
    assert host.store.result("r1") is None
    host.systemd.going_down = False
    host.systemd.power_cut()
    host.reboot()
    result = host.store.result("r1")
    assert result is not None and "lost power or was restarted" in result["cause"]
    whole(host)


# -- a process that runs on


def test_a_process_is_taken_over_without_being_touched(host: Host) -> None:
    hand_made(host)
    host.systemd.log.clear()
    host.ask("takeover", A)
    result = host.guard()
    assert (result["outcome"], result["release"]) == ("confirmed", A)
    assert host.systemd.log == ["reload"]
    assert host.sight.adopted == [A]
    assert (host.store.standing(), host.store.previous()) == (A, "0")
    assert (host.store.taken() or {})["later"] == ["user root → sglang"]
    assert result["checks"][0]["id"] == "unit"
    whole(host)


def test_a_gate_that_fails_gives_the_old_unit_back_and_touches_no_process(host: Host) -> None:
    hand_made(host)
    host.systemd.log.clear()
    host.sight.refused[A] = "tools"
    host.ask("takeover", A)
    result = host.guard()
    assert (result["outcome"], result["release"]) == ("rolled_back", "0")
    assert host.systemd.log == ["reload", "reload"]
    assert (host.systemd.starts, host.sight.adopted) == (1, [A, "0"])
    whole(host)


def test_what_was_taken_over_is_started_by_its_own_unit_and_proven(host: Host) -> None:
    hand_made(host)
    host.ask("takeover", A)
    host.guard()
    host.ask("restart", None, "r2")
    assert host.guard("r2")["outcome"] == "confirmed"
    assert host.systemd.running == unit(A) and host.store.taken() is None
    whole(host)


@pytest.mark.parametrize("op", ["restart", "swap"])
def test_what_never_started_by_its_own_unit_falls_back_on_what_did(host: Host, op: str) -> None:
    hand_made(host)
    host.ask("takeover", A)
    host.guard()
    host.systemd.broken |= {unit(A), unit(B)}
    host.ask(op, B if op == "swap" else None, "r2")
    result = host.guard("r2")
    assert (result["outcome"], result["release"]) == ("rolled_back", "0")
    assert host.systemd.running == HAND_MADE
    whole(host)


@pytest.mark.parametrize("breaks", [False, True])
def test_the_first_boot_after_a_takeover_is_judged(host: Host, breaks: bool) -> None:
    """No run is pending, and yet this boot starts a unit that has never run."""
    hand_made(host)
    host.ask("takeover", A)
    host.guard()
    host.systemd.broken |= {unit(A)} if breaks else set()
    host.systemd.power_cut()
    host.reboot()
    assert host.store.confirmed() == ("0" if breaks else A)
    assert host.store.taken() is None
    whole(host)


def test_rollback_after_a_takeover_restores_the_unit_and_its_dropins(host: Host) -> None:
    hand_made(host)
    host.ask("takeover", A)
    host.guard()
    host.ask("rollback", None, "r2")
    assert host.guard("r2")["release"] == "0"
    assert host.systemd.running == HAND_MADE and host.systemd.starts == 2
    whole(host)


def test_another_process_than_the_planned_one_is_not_taken_over(host: Host) -> None:
    hand_made(host)
    host.ask("takeover", A)
    host.systemd.stop("")
    host.systemd.start("")
    host.systemd.log.clear()
    result = host.guard()
    assert result["outcome"] == "failed"
    assert "was started again since it was planned; plan again" in result["cause"]
    assert host.systemd.log == [] and host.store.unit_path.read_bytes() == HAND_MADE


def test_a_process_that_ends_while_it_is_taken_over_comes_back_by_its_old_unit(host: Host) -> None:
    hand_made(host)
    reload = host.systemd.reload

    def ends() -> None:
        host.systemd.running, host.systemd.failed = None, True
        host.systemd.reload = reload  # type: ignore[method-assign]
        reload()

    host.systemd.reload = ends  # type: ignore[method-assign]
    host.ask("takeover", A)
    result = host.guard()
    assert (result["outcome"], result["release"]) == ("rolled_back", "0")
    assert host.systemd.starts == 2
    whole(host)


def test_a_process_that_ends_while_the_guard_is_away_is_not_replaced(
    burning: Fuse, fresh: Callable[[], Host]
) -> None:
    for at in range(1, 60):
        host = fresh()
        hand_made(host)
        host.ask("takeover", A)
        run_until_dead(host, burning, at)
        if host.store.pending_is_there() and host.store.unit_path.read_bytes() == HAND_MADE:
            break
    host.systemd.running, host.systemd.failed = None, True
    result = host.guard()
    assert (result["outcome"], result["release"]) == ("rolled_back", "0")
    assert result["cause"] == "start: the engine that was to be taken over has ended"
    whole(host)


def test_a_takeover_of_our_own_unit_is_refused(host: Host) -> None:
    deployed(host)
    host.ask("takeover", B)
    result = host.guard()
    assert "no unit of other hands stands there" in result["cause"]
    whole(host)


# -- a unit of another name


def test_a_unit_of_another_name_is_stopped_disabled_and_kept(host: Host) -> None:
    hand_made_elsewhere(host)
    host.ask("swap", A)
    assert host.guard()["outcome"] == "confirmed"
    assert host.systemd.log[:2] == ["stop", "stop other"]
    assert (host.systemd.units / OTHER).read_bytes() == HAND_MADE
    whole(host)
    host.ask("rollback", None, "r2")
    assert host.guard("r2")["release"] == "0"
    assert host.systemd.running == HAND_MADE
    whole(host)


def test_a_unit_of_another_name_comes_back_under_the_services_name(host: Host) -> None:
    hand_made_elsewhere(host)
    host.sight.bad[unit(A)] = "ranks"
    host.ask("swap", A)
    result = host.guard()
    assert (result["outcome"], result["release"]) == ("rolled_back", "0")
    assert host.systemd.running == HAND_MADE
    whole(host)


def test_a_unit_that_means_another_thing_under_another_name_is_refused(host: Host) -> None:
    hand_made_elsewhere(host)
    (host.systemd.units / OTHER).write_bytes(HAND_MADE + b"EnvironmentFile=/etc/%n.env\n")
    host.ask("swap", A)
    result = host.guard()
    assert result["outcome"] == "failed" and "hand.service says %n" in result["cause"]
    assert host.systemd.other_runs and host.systemd.log == []


# -- accidents at every point


def good(host: Host) -> None:
    deployed(host)
    host.ask("swap", B)


def gate_fails(host: Host) -> None:
    deployed(host)
    host.sight.bad[unit(B)] = "generation"
    host.ask("swap", B)


def crashes(host: Host) -> None:
    deployed(host)
    host.systemd.broken.add(unit(B))
    host.ask("swap", B)


def takes_over(host: Host) -> None:
    hand_made(host)
    host.ask("swap", A)


def takes_over_badly(host: Host) -> None:
    hand_made(host)
    host.sight.bad[unit(A)] = "ranks"
    host.ask("swap", A)


def takes_over_running(host: Host) -> None:
    hand_made(host)
    host.ask("takeover", A)


def takes_over_running_badly(host: Host) -> None:
    hand_made(host)
    host.sight.refused[A] = "tools"
    host.ask("takeover", A)


def takes_over_what_cannot_start(host: Host) -> None:
    """Nobody knows before the next start, or the next boot."""
    hand_made(host)
    host.systemd.broken.add(unit(A))
    host.ask("takeover", A)


def takes_over_another(host: Host) -> None:
    hand_made_elsewhere(host)
    host.ask("swap", A)


def takes_over_another_badly(host: Host) -> None:
    hand_made_elsewhere(host)
    host.systemd.broken.add(unit(A))
    host.ask("swap", A)


def restarts_what_was_taken_over(host: Host) -> None:
    hand_made(host)
    host.ask("takeover", A, "r0")
    host.guard("r0")
    host.systemd.broken.add(unit(A))
    host.ask("restart", None)


def restarts(host: Host) -> None:
    deployed(host)
    host.ask("restart", None)


def back_to_zero(host: Host) -> None:
    hand_made(host)
    deployed(host)
    host.ask("rollback", None)


STAYS = [
    takes_over_running,
    takes_over_running_badly,
    takes_over_what_cannot_start,
]  # no process is touched
STORIES = [
    *(good, gate_fails, crashes, takes_over, takes_over_badly, restarts, back_to_zero),
    *(*STAYS, restarts_what_was_taken_over, takes_over_another, takes_over_another_badly),
]


@pytest.fixture
def burning(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fuse]:
    """Every change that the store makes to the disk is a place where the fuse may burn."""
    fuse = Fuse()
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # slow, and nothing to see here
    for name in ("replace", "rename", "unlink", "symlink"):
        monkeypatch.setattr(os, name, fuse.around(f"os.{name}", getattr(os, name)))
    yield fuse


def run_until_dead(host: Host, fuse: Fuse, at: int) -> bool:
    """True if the guard died at point `at`; False if it ended before."""
    fuse.count, fuse.at = 0, at
    try:
        host.guard(fuse=fuse)
    except Dead:
        return True
    finally:
        fuse.at = 0
    return False


def points(story: Callable[[Host], None], burning: Fuse, fresh: Callable[[], Host]) -> int:
    host = fresh()
    story(host)
    burning.count, burning.at = 0, 0
    host.guard(fuse=burning)
    return burning.count


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[[], Host]:
    made = iter(range(10_000))

    def make() -> Host:
        folder = tmp_path / str(next(made))
        folder.mkdir()
        return bare(folder)

    return make


@pytest.mark.parametrize(
    "accident", ["power cut", "two power cuts", "guard killed", "guard killed twice"]
)
@pytest.mark.parametrize("story", STORIES, ids=lambda s: s.__name__)
def test_an_accident_at_every_point(
    story: Callable[[Host], None], accident: str, burning: Fuse, fresh: Callable[[], Host]
) -> None:
    total = points(story, burning, fresh)
    assert total > 20
    for at in range(1, total + 1):
        host = fresh()
        story(host)
        before = host.systemd.running
        assert run_until_dead(host, burning, at), f"point {at} was not reached"
        where = f"{accident} at point {at} of {total}, {burning.last}"
        try:
            if "power" in accident:
                host.systemd.power_cut()
                if accident == "two power cuts":
                    try:
                        burning.count, burning.at = 0, 1 + at % 25
                        host.reboot()
                    except Dead:
                        host.systemd.power_cut()
                    burning.at = 0
                host.reboot()
            elif accident == "guard killed":
                host.guard()
            else:
                run_until_dead(host, burning, 1 + at % 30)
                host.guard(force=True)
            settled(host, before)
            assert host.systemd.starts == 1 or story not in STAYS or "power" in accident
        except Exception as error:
            raise AssertionError(where) from error


def settled(host: Host, before: bytes | None) -> None:
    """The promise; or, where the first deployment had not begun, all as it was."""
    if host.store.confirmed():
        whole(host)
    else:
        assert host.systemd.running == before
        assert host.systemd.other_runs == host.systemd.other
        assert host.store.pending() is None
    result = host.store.result("r1")
    assert result is not None and host.store.events("r1")[-1]["event"] == "result"
