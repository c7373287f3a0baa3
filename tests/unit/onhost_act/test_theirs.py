"""Which units of other hands may be stopped with their engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opsctl.onhost import hostfacts, process, running, theirs, zero
from opsctl.onhost.store import Places, Refused, Store
from opsctl.onhost.systemd import UnitState

SERVER = "/opt/v/bin/python -m sglang.launch_server --port 1"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"[Service]\nExecStart={SERVER}\n", True),
        ("[Service]\nExecStart=/bin/sh -c 'exec sglang serve --model-path /m'\n", True),
        (
            "ExecStart=/usr/bin/numactl -N 0 \\\n /v/bin/python3 -m \\\n sglang.launch_server\n",
            True,
        ),
        ("ExecStart=/usr/bin/docker run lmsysorg/sglang python3 -m sglang.launch_server\n", True),
        ("ExecStart=/bin/sh -c 'sleep 1000'\n", False),
        ("ExecStart=/usr/sbin/sshd -D $SSHD_OPTS\n", False),
        ("ExecStart=/usr/bin/python3 -m sglang_router.launch_router\n", False),
        ("ExecStart=/opt/sglang/0.5.9/bin/python -m exporter --of sglang\n", False),
        (f"ExecStart={SERVER}\nExecStart=\nExecStart=/bin/sleep 1\n", False),
        (f"# ExecStart={SERVER}\nExecStart=/bin/sleep 1\n", False),
    ],
)
def test_a_command_that_starts_the_server(text: str, wanted: bool) -> None:
    assert theirs.names_server([text]) is wanted


def test_a_script_and_a_dropin_count(tmp_path: Path) -> None:
    script = tmp_path / "llm.sh"
    script.write_text(f"#!/bin/sh\nexec {SERVER}\n")
    text = f"[Service]\nExecStart=-{script} --fast\n"
    assert theirs.names_server([text])
    assert not theirs.names_server([text, "[Service]\nExecStart=\nExecStart=/bin/sleep 1\n"])


@pytest.mark.parametrize(
    ("exe", "argv", "inside", "text", "why"),
    [
        ("/usr/bin/python3", SERVER.split(), False, "", ""),
        ("/bin/sh", ["/bin/sh", "-c", "x"], True, "ExecStart=/x\n", ""),
        ("/bin/sh", ["/bin/sh", "-c", "sleep 9; :"], False, "ExecStart=/bin/sh -c sleep\n",
         "its main process is sh, and no SGLang server runs in it"),
        ("/lib/systemd/systemd-journald", ["x"], False, f"ExecStart={SERVER}\n",
         "its main process is systemd-journald, and not the engine"),
        ("/usr/bin/supervisord", ["supervisord"], True, "ExecStart=/usr/bin/supervisord\n",
         "its main process is supervisord, and not the engine"),
        ("/usr/bin/docker", ["docker", "run"], False, f"ExecStart=/usr/bin/docker run i {SERVER}\n",
         ""),
        ("/usr/bin/docker", ["docker", "run"], False, "ExecStart=/usr/bin/docker run nginx\n",
         "its main process is docker, and not the engine"),
    ],
)  # fmt: skip
def test_what_runs_decides(
    monkeypatch: pytest.MonkeyPatch, exe: str, argv: list[str], inside: bool, text: str, why: str
) -> None:
    monkeypatch.setattr(process, "of", lambda pid: {"exe": exe, "argv": argv})
    monkeypatch.setattr(running, "servers", lambda: [8])
    monkeypatch.setattr(hostfacts, "cgroup_pids", lambda group: [7, 8] if inside else [7])
    assert theirs.problem(UnitState(name="llm.service", main_pid=7), [text]) == why


class One:
    """systemd that knows one unit of another name."""

    def __init__(self, fragment: str) -> None:
        self.fragment = fragment

    def show(self, unit: str) -> UnitState:
        if unit != "llm.service":
            return UnitState(name=unit, load="not-found")
        return UnitState(name=unit, load="loaded", properties={"FragmentPath": self.fragment})


@pytest.mark.parametrize(
    ("text", "unit", "words"),
    [
        ("ExecStart=/usr/sbin/sshd -D\n", "llm.service",
         "takes_over: llm.service is not an engine's unit: its ExecStart= starts no SGLang"),
        (f"ExecStart={SERVER}\n", "nosuch.service", "there is no unit nosuch.service"),
        (f"ExecStart={SERVER}\n", "llm.service", ""),
    ],
)  # fmt: skip
def test_what_the_plan_and_the_guard_say(tmp_path: Path, text: str, unit: str, words: str) -> None:
    (tmp_path / "llm.service").write_text(text)
    store, systemd = Store("kimi", Places(tmp_path)), One(str(tmp_path / "llm.service"))
    manager: Any = systemd
    told = zero.refusal(store, manager, unit)
    assert [words in one for one in told] == ([True] if words else [])
    if words:
        with pytest.raises(Refused, match=unit):
            zero.keep(store, manager, "r1", lambda *_: None, {"takes_over": unit})
        assert not store.release("0").exists()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("EnvironmentFile=/etc/a.env\nExecStart=/opt/v/bin/python -m x\nUser=llm\n",
         ["EnvironmentFile=/etc/a.env is not there", "/opt/v/bin/python of ExecStart= is not there",
          "there is no user llm"]),
        ("EnvironmentFile=-/etc/a.env\nExecStart=-/opt/x\nWorkingDirectory=-/srv/x\n", []),
        ("EnvironmentFile=/etc/a.env\nEnvironmentFile=\nExecStart=@/usr/bin/there a\n", []),
        ("EnvironmentFile=/etc/%p.env\nEnvironmentFile=/etc/*.env\nExecStart=${PY} -m x\n", []),
        ("WorkingDirectory=/srv/x\nExecStart=/usr/bin/there\\\n --a\nUser=root\n",
         ["WorkingDirectory=/srv/x is not there"]),
        ("WorkingDirectory=~\nDynamicUser=yes\nUser=llm\nExecStart=python3 -m x\n", []),
        ("RootDirectory=/srv/root\nExecStart=/opt/x\n", []),
    ],
)  # fmt: skip
def test_what_a_start_of_release_0_lacks(text: str, wanted: list[str]) -> None:
    there = ["/usr/bin/there"].__contains__
    assert theirs.missing([f"[Service]\n{text}"], there, ["root"].__contains__) == wanted


def test_only_a_unit_that_ran_is_examined(tmp_path: Path) -> None:
    store = Store("kimi", Places(tmp_path))
    store.unit_path.parent.mkdir(parents=True)
    store.releases.mkdir(parents=True)
    lacks = (store, lambda path: False, lambda user: True)
    assert zero.missing(*lacks) == []
    for was_active, found in ((True, 1), (False, 0)):
        store.save_zero(b"[Service]\nEnvironmentFile=/a\n", {"was_active": was_active}, {})
        assert len(zero.missing(*lacks)) == found
    store.save_zero(b"[Service]\n", {}, {"a.conf": b"[Service]\nEnvironmentFile=/b.env\n"})
    assert zero.missing(*lacks) == [
        "release 0, the unit that stood there before opsctl: EnvironmentFile=/b.env is not there"
    ]


@pytest.mark.parametrize(
    ("option", "shown"),
    [("--api-key ${KEY}", True), ("--admin-api-key=x", True), ("--tp 1", False)],
)
def test_keys_in_the_command_line_of_release_0(tmp_path: Path, option: str, shown: bool) -> None:
    store = Store("kimi", Places(tmp_path))
    store.releases.mkdir(parents=True)
    store.save_zero(f"[Service]\nExecStart={SERVER} {option}\n".encode(), {}, {})
    assert zero.keys_shown(store) is shown


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        (SERVER, ""),
        (f"-{SERVER}", ""),
        ("/opt/v/bin/sglang serve", ""),
        (f"/usr/bin/numactl --cpunodebind=0 {SERVER}", "numactl"),
        (f"/usr/bin/env KEY=sk-1 {SERVER}", "env"),
        ("/opt/llm/run.sh --fast", "run.sh"),
    ],
)
def test_what_stands_before_the_engine(command: str, wanted: str) -> None:
    assert theirs.front([f"[Service]\nExecStart={command}\n"]) == wanted


def test_what_a_deployment_sets_aside(tmp_path: Path) -> None:
    store = Store("kimi", Places(tmp_path))
    store.dropin_folder.mkdir(parents=True)
    (store.dropin_folder / "10-stop.conf").write_text("[Service]\nKillMode=process\n")
    store.unit_path.write_text(f"[Service]\nExecStart=/usr/bin/numactl -N 0 {SERVER}\n")
    state = UnitState(name=store.unit, properties={"FragmentPath": str(store.unit_path)})
    assert zero.set_aside(store, state) == {"aside": ["10-stop.conf"], "front": "numactl"}
