"""What is an engine, whose it is, and which version it runs: by texts of /proc, and by folders."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from opsctl.importing.unit import envfile
from opsctl.onhost import owners, process, running
from opsctl.onhost.systemd import UnitState

ID = "3f" * 32


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("/opt/v/bin/python3 -m sglang.launch_server --tp 8", True),
        ("python3.12 -u -X dev -m sglang.launch_server --tp 8", True),
        ("python -msglang.launch_server", True),
        ("/usr/bin/python3 /usr/local/bin/sglang serve --model-path m", True),
        ("python3 /src/sglang/launch_server.py --tp 8", True),
        ("/opt/v/bin/python /etc/opsctl/kimi/releases/ab/launch.py --tp 8", True),
        ("/opt/v/bin/python -m sglang.bench_serving", False),
        ("/opt/v/bin/python -m sglang_router.launch_router", False),
        ("bash -c python -m sglang.launch_server", False),
        ("docker run --gpus all lmsysorg/sglang python3 -m sglang.launch_server", False),
        ("python3 -m vllm.entrypoints.openai.api_server", False),
        ("sglang::scheduler_TP0", False),
        ("/usr/bin/python3 -X dev launch_server.py --tp 8", True),
        ("/usr/bin/python3 -m sglang serve --model-path m", True),
        ("/usr/bin/python3 /usr/bin/supervisord -c x python -m sglang.launch_server", False),
        ("python3 -m torch.distributed.run -m sglang.launch_server", False),
        ("", False),
    ],
)
def test_what_is_an_engine(command: str, wanted: bool) -> None:
    assert running.is_server(command.split()) is wanted


@pytest.mark.parametrize(
    ("cgroup", "wanted"),
    [
        ("/system.slice/kimi.service", ("unit", "kimi.service", "")),
        ("/llm.slice/llm-a.slice/sglang@kimi.service", ("unit", "sglang@kimi.service", "")),
        (f"/system.slice/docker-{ID}.scope", ("container", ID, "docker")),
        (f"/docker/{ID}", ("container", ID, "docker")),
        (f"/machine.slice/libpod-{ID}.scope/container", ("container", ID, "libpod")),
        (f"/kubepods.slice/kubepods-besteffort.slice/cri-containerd-{ID}.scope",
         ("container", ID, "cri-containerd")),
        (f"/kubepods/besteffort/pod1/{ID}", ("container", ID, "")),
        ("/user.slice/user-0.slice/session-3.scope", ("process", "session-3.scope", "")),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/kimi.service",
         ("process", "kimi.service", "")),
        ("/", ("process", "", "")),
    ],
)  # fmt: skip
def test_whose_a_control_group_is(cgroup: str, wanted: tuple[str, str, str]) -> None:
    assert owners.owner(cgroup) == wanted


@pytest.mark.parametrize(
    ("cgroup", "wanted"),
    [
        ("0::/user.slice/user-4242.slice/user@4242.service/app.slice/kimi.service\n",
         ("user 4242", "kimi.service")),
        ("0::/user.slice/user-4242.slice/user@4242.service/init.scope\n", ("", "")),
        ("0::/system.slice/kimi.service\n", ("", "")),
    ],
)  # fmt: skip
def test_a_unit_of_a_users_own_systemd(cgroup: str, wanted: tuple[str, str]) -> None:
    assert owners.user_unit(cgroup) == wanted


@pytest.mark.parametrize(
    ("exe", "command", "wanted"),
    [
        ("/usr/bin/bash", "/bin/bash /opt/llm/start.sh", True),
        ("/usr/bin/numactl", "numactl -N 0 python -m sglang.launch_server", True),
        ("/usr/bin/python3.11", "/usr/bin/python3 -u /opt/llm/start.py", True),
        ("/usr/bin/python3.11", "/usr/bin/python3 /usr/bin/supervisord -n -c /etc/s.conf", False),
        ("/usr/sbin/cron", "/usr/sbin/cron -f", False),
        ("/usr/sbin/sshd", "sshd: /usr/sbin/sshd -D", False),
        ("/usr/bin/node", "PM2 v5.3.0: God Daemon", False),
        ("/usr/bin/dockerd", "/usr/bin/dockerd -H fd://", False),
        ("", "", False),
    ],
)
def test_which_main_processes_are_there_for_the_engine_alone(
    exe: str, command: str, wanted: bool
) -> None:
    """The others' units would be stopped and disabled with all that they keep."""
    assert owners.is_wrapper(exe, command.split()) is wanted


@pytest.mark.parametrize(
    ("cgroup", "father", "engine", "wanted"),
    [
        ("0::/system.slice/llm.service", "systemd", True,
         "PID 7 (python) of llm.service, an SGLang server: takes_over: llm.service in the "
         "description replaces it, if that unit is its own"),
        ("0::/system.slice/nginx.service", "systemd", False, "PID 7 (python) of nginx.service"),
        ("0::/system.slice/system-llm.slice/llm@2.service", "systemd", True,
         "PID 7 (python) of llm@2.service, an SGLang server: first systemctl disable --now "
         "llm@2.service"),
        ("0::/user.slice/x.scope", "systemd", False,
         "PID 7 (python), in no unit (nohup or the like); stop it first: kill 7"),
        ("9:name=systemd:/user.slice/user-0.slice/session-3.scope\n0::/user.slice/x.scope",
         "systemd", True,
         "PID 7 (python), in no unit (nohup or the like), an SGLang server, which a takeover has "
         "to start anew; stop it first: kill 7"),
        ("0::/user.slice/user-4242.slice/session-3.scope", "supervisord", True,
         "PID 7 (python), in no unit (supervisord), an SGLang server, which a takeover has to "
         "start anew; stop it first: stop it in supervisord, which else starts it again"),
        ("0::/user.slice/user-4242.slice/user@4242.service/app.slice/llm.service", "systemd", True,
         "PID 7 (python) of llm.service of user 4242's own systemd, an SGLang server, which a "
         "takeover has to start anew; stop it first: as user 4242: systemctl --user disable --now "
         "llm.service"),
        (f"0::/machine.slice/libpod-{ID}.scope/container", "conmon", True,
         "PID 7 (python) of container 3f3f3f3f3f3f, an SGLang server, which a takeover has to "
         "start anew; stop it first: podman update --restart=no 3f3f3f3f3f3f; podman stop "
         "3f3f3f3f3f3f"),
    ],
)  # fmt: skip
def test_who_holds_a_port_and_how_it_is_freed(
    monkeypatch: pytest.MonkeyPatch, cgroup: str, father: str, engine: bool, wanted: str
) -> None:
    texts = {
        "/proc/7/cgroup": f"{cgroup}\n",
        "/proc/7/comm": "python\n",
        "/proc/7/status": "Name:\tpython\nPPid:\t5\n",
        "/proc/5/status": f"Name:\t{father}\nPPid:\t1\n",
        "/proc/1/status": "Name:\tsystemd\nPPid:\t0\n",
    }
    monkeypatch.setattr(owners.hostfacts, "read", lambda path: texts.get(path, ""))
    assert owners.told(7, engine) == wanted


@pytest.mark.parametrize(
    ("argv0", "wanted"),
    [
        ("/opt/v/bin/python", ["/opt/v/bin/python", "/usr/bin/python3.11"]),
        ("../v/bin/python", ["/srv/v/bin/python", "/usr/bin/python3.11"]),
        ("python", ["/a/bin/python", "/b/bin/python", "/usr/bin/python3.11"]),
    ],
)
def test_by_which_path_a_program_was_found(argv0: str, wanted: list[str]) -> None:
    environ = {"PATH": "/a/bin:/b/bin"}
    assert process.programs([argv0], environ, "/srv/m", "/usr/bin/python3.11") == wanted


@pytest.mark.parametrize(
    ("folder", "programs", "root"),
    [
        ("opt/v/lib/python3.12/site-packages", ["/opt/v/bin/python"], "/opt/v"),
        ("usr/local/lib/python3.12/dist-packages", ["/usr/bin/python3"], "/usr"),
        ("usr/lib/python3/dist-packages", ["/usr/bin/python3"], "/usr"),
        ("opt/w/lib/python3.12/site-packages", ["/opt/v/bin/python"], None),
        ("usr/lib/python3/dist-packages", ["/bin/bash"], "/usr"),  # a unit's shell, merged /usr
    ],
)
def test_the_version_is_read_and_nothing_is_run(
    tmp_path: Path, folder: str, programs: list[str], root: str | None
) -> None:
    (tmp_path / folder / "sglang-0.5.9.dist-info").mkdir(parents=True)
    (tmp_path / folder / "sglang_router-0.3.0.dist-info").mkdir()
    found = process.engine(tmp_path, programs, {})
    assert (found["root"], found["version"]) == (root, "0.5.9" if root else None)


def test_a_real_process_arrives_exactly() -> None:
    """Arguments and variables of any bytes, through the seal that hosts put on them."""
    from opsctl.remote import sanitise
    from opsctl.remote.onhost import unsealed

    odd = "a b\tc\x1b[2J\u202e\n" + "é" * 20_000
    code = "import sys; sys.stdout.write('x\\n'); sys.stdout.flush(); sys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, "-c", code, odd],
        env={"ODD": odd, "PATH": os.environ["PATH"]},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        told = process.of(child.pid)
    finally:
        child.communicate()
    assert told is not None
    found = unsealed(sanitise.tree({"process": process.sealed(told)})["process"])
    assert found["argv"] == [sys.executable, "-c", code, odd] and found["environ"]["ODD"] == odd
    assert found["user"] and found["limits"]["nofile"] > 0
    assert process.of(2**22 - 1) is None


def test_arguments_that_are_folders_where_the_process_works(tmp_path: Path) -> None:
    (tmp_path / "srv/models/x").mkdir(parents=True)
    (tmp_path / "srv/file").write_text("")
    argv = ["python", "--model-path=models/x", "--tokenizer-path", "models", "file", "models/y",
            "../srv", "/srv/models", "--a", "x y"]  # fmt: skip
    assert process.folders(tmp_path, "/srv", argv) == ["models", "models/x"]
    assert process.folders(tmp_path, "", argv) == []


def test_the_files_of_our_own_secrets_are_read_and_nobody_elses() -> None:
    line = "LoadCredential=api-key:/etc/opsctl/kimi/releases/ab/secrets/api-key"
    others = "LoadCredential=tls:/etc/tls/key"
    ours = f"[Unit]\nX-OpsctlRelease=ab\n[Service]\n{line}\n{others}\n"
    assert running._credentials([["p", ours]]) == [line.partition(":")[2]]
    assert running._credentials([["p", f"[Service]\n{line}\n"]]) == []


class Manager:
    def show(self, name: str) -> UnitState:
        return UnitState(name=name, load="loaded", active="active")


def test_a_file_of_variables_arrives_with_the_bytes_that_systemd_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sealed and opened again: what judges the file must see that it is no UTF-8 text."""
    path = tmp_path / "a.env"
    path.write_bytes(b"A=\xff\n")
    told = {"EnvironmentFiles": f"{path} (ignore_errors=no)"}
    monkeypatch.setattr(running, "_shown", lambda name: told)
    unit = running._unit(Manager(), "llm.service")  # type: ignore[arg-type]
    there = json.loads(base64.b64decode(unit["sealed"]))["files"][str(path)]
    assert envfile.read(there).refused == "holds bytes that are no UTF-8 text"
