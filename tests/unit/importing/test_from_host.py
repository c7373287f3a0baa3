"""What a host tells of a running engine, as a description: units, containers, bare processes."""

from __future__ import annotations

from typing import Any

import pytest

from opsctl.importing import Asked, from_text
from opsctl.importing.running import from_host

KEY = "sk-canary-0123456789"
UNIT = """\
[Service]
EnvironmentFile=/etc/kimi.env
ExecStart=/opt/sglang/0.5.9/bin/python -m sglang.launch_server --model-path /srv/m --tp 4 \\
    --hicache-ratio {ratio} --enable-hierarchical-cache --api-key ${{KEY}}
Restart=always
"""
ARGV = (
    f"/opt/sglang/0.5.9/bin/python -m sglang.launch_server --model-path /srv/m --tp 4 "
    f"--hicache-ratio 2 --enable-hierarchical-cache --api-key {KEY}"
).split()
ENVIRON = {"PATH": "/usr/bin", "HOME": "/root", "KEY": KEY, "NCCL_DEBUG": "INFO"}


def process(argv: list[str] | None = None, **changes: Any) -> dict[str, Any]:
    engine = {"root": "/opt/sglang/0.5.9", "version": "0.5.9", "installed": 1.0}
    return {
        "pid": 77,
        "argv": ARGV if argv is None else argv,
        "environ": ENVIRON,
        "cwd": "/",
        "user": "root",
        "started": 100.0,
        "engine": engine,
        "limits": {"memlock": 8 << 20},
        **changes,
    }


def unit(name: str = "sglang-kimi.service", ratio: float = 2, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "state": "active",
        "texts": [[f"/etc/systemd/system/{name}", UNIT.format(ratio=ratio)]],
        "files": {"/etc/kimi.env": f"KEY={KEY}\nNCCL_DEBUG=INFO\n"},
        "changed": 50.0,
        "stale": False,
        **changes,
    }


def found(**changes: Any) -> dict[str, Any]:
    base = {"kind": "unit", "by": "", "process": process(), "unit": unit(), "container": None}
    return {**base, **changes}


def notes(imported: Any) -> str:
    return "\n".join(f"{note.what}: {note.why}" for note in imported.notes)


def test_a_unit_that_runs_as_it_is_written() -> None:
    imported = from_host(found(), Asked())
    assert imported.service is not None and imported.problems == ()
    assert imported.name == "kimi"
    assert imported.service["flags"]["hicache-ratio"] == 2.0
    assert imported.service["env"] == {"NCCL_DEBUG": "INFO"}
    assert set(imported.secrets.values()) == {KEY}
    assert "takes_over" not in imported.service
    assert "stands in the unit" not in notes(imported) and KEY not in notes(imported)
    assert "LimitMEMLOCK 8192 KiB" in notes(imported)


def test_one_of_our_own_units_that_runs() -> None:
    texts = [["/etc/systemd/system/sglang-kimi.service",
              f"[Unit]\nX-OpsctlRelease={'ab' * 32}\n{UNIT.format(ratio=2)}"]]  # fmt: skip
    imported = from_host(found(unit=unit(texts=texts)), Asked())
    assert imported.service is None and not imported.risks
    assert "release abababababab of the service kimi" in imported.problems[0].message
    assert from_host(found(unit=unit(texts=texts)), Asked(own=True)).service is not None


OWN_UNIT = f"""\
[Unit]
X-OpsctlRelease={"ab" * 32}
[Service]
ExecStart=/opt/sglang/0.5.9/bin/python /etc/opsctl/kimi/releases/ab/launch.py --model-path /srv/m
LoadCredential=api-key:/etc/opsctl/kimi/releases/ab/secrets/api-key
LoadCredential=env.HF_TOKEN:/etc/opsctl/kimi/releases/ab/secrets/env.HF_TOKEN
"""
OWN_FILES = {
    "/etc/opsctl/kimi/releases/ab/secrets/api-key": KEY,
    "/etc/opsctl/kimi/releases/ab/secrets/env.HF_TOKEN": "hf_canary_0123456789",
}


@pytest.mark.parametrize("runs", [True, False])
def test_the_secrets_of_one_of_our_own_units_come_along(runs: bool) -> None:
    texts = [["/etc/systemd/system/sglang-kimi.service", OWN_UNIT]]
    argv = "/opt/sglang/0.5.9/bin/python /etc/opsctl/kimi/releases/ab/launch.py --model-path /srv/m"
    told = process(argv.split(), environ={}) if runs else None
    imported = from_host(
        found(process=told, unit=unit(texts=texts, files=OWN_FILES)), Asked(own=True)
    )
    assert imported.service is not None, imported.problems
    assert imported.service["secrets"] == {
        "api-key": "{{ vault_kimi_api_key }}",
        "env": {"HF_TOKEN": "{{ vault_kimi_hf_token }}"},
    }
    assert set(imported.secrets.values()) == set(OWN_FILES.values())
    assert not runs or "every user" not in notes(imported)
    assert not any(secret in notes(imported) for secret in OWN_FILES.values())


@pytest.mark.parametrize("runs", [True, False])
def test_a_secret_of_our_own_that_cannot_be_read_is_refused(runs: bool) -> None:
    texts = [["/etc/systemd/system/sglang-kimi.service", OWN_UNIT]]
    told = process(environ={}) if runs else None
    imported = from_host(found(process=told, unit=unit(texts=texts, files={})), Asked(own=True))
    assert imported.service is None
    assert [p.message for p in imported.problems] == [
        f"the secret {path.rsplit('/', 1)[-1]} is in {path}, which was not given"
        for path in OWN_FILES
    ]


def test_nobody_is_told_to_kill_what_is_no_engine() -> None:
    told = found(kind="process", unit=None, process=process(["/sbin/init"]), stop="kill 1")
    imported = from_host(told, Asked())
    assert imported.service is None and "kill" not in notes(imported)


def test_what_the_unit_puts_before_the_engine_is_told() -> None:
    shell = f"/bin/bash -c 'exec numactl --interleave=all {' '.join(ARGV[:-1])} $$KEY'"
    text = f"[Service]\nEnvironmentFile=/etc/kimi.env\nExecStart={shell}\n"
    imported = from_host(found(unit=unit(texts=[["/etc/systemd/system/a.service", text]])), Asked())
    assert imported.service is not None
    assert "numactl --interleave=all: the engine is no longer bound to CPUs" in notes(imported)


def test_settings_of_a_unit_that_runs_are_told() -> None:
    imported = from_host(found(), Asked())
    assert "Restart=always: opsctl's unit says Restart=on-failure" in notes(imported)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"ratio": 3, "changed": 150.0},
         "flags.hicache-ratio: 2.0 runs, 3.0 stands in the unit: its files were changed after "
         "this start; what runs is imported"),
        ({"ratio": 3, "changed": 150.0, "stale": True},
         "its files were changed after this start, and systemd has not read them again"),
        ({"changed": 150.0}, "they would start the same engine"),
        ({"files": {"/etc/kimi.env": "KEY=another-key-77\nNCCL_DEBUG=INFO\n"}, "changed": 150.0},
         "secrets.api-key: a secret runs, a secret stands in the unit"),
        ({"files": {"/etc/kimi.env": f"KEY={KEY}\nNCCL_DEBUG=WARN\n"}},
         "env.NCCL_DEBUG: INFO runs, WARN stands in the unit"),
    ],
)  # fmt: skip
def test_an_edited_unit_is_told_and_what_runs_counts(changes: dict[str, Any], told: str) -> None:
    imported = from_host(found(unit=unit(**changes)), Asked())
    assert told in notes(imported), notes(imported)
    assert imported.service is not None and imported.service["flags"]["hicache-ratio"] == 2.0
    assert KEY not in notes(imported) and "another-key" not in notes(imported)


def test_a_unit_of_another_name_is_named() -> None:
    imported = from_host(found(unit=unit("llm.service")), Asked(name="kimi"))
    assert imported.service is not None and imported.service["takes_over"] == "llm.service"
    imported = from_host(found(unit=unit("sglang@kimi.service")), Asked(name="kimi"))
    assert imported.service is not None and "takes_over" not in imported.service
    assert "is an instance of a template" in notes(imported)


def test_a_stopped_unit_is_read_from_its_files() -> None:
    there = found(process=None, unit=unit(state="inactive"))
    imported = from_host(there, Asked(version="0.5.9"))
    assert imported.service is not None and imported.service["flags"]["tp-size"] == 4
    assert "is inactive: read from its files alone" in notes(imported)


def test_a_bare_process_has_nobody() -> None:
    argv = ["python3", *ARGV[1:]]
    engine = {"root": "/data/venv", "version": "0.5.9", "installed": 200.0}
    there = found(kind="process", by="tmux", unit=None, process=process(argv, engine=engine))
    imported = from_host(there, Asked(name="kimi"))
    assert imported.service is not None
    assert imported.service["engine"] == {"version": "0.5.9", "root": "/data/venv"}
    assert "process 77 (tmux)" in notes(imported)
    assert "was installed after this start" in notes(imported)


INSPECTED = {
    "Name": "/sgl",
    "Config": {"Image": "lmsysorg/sglang:v0.5.9-cu130"},
    "HostConfig": {
        "NetworkMode": "bridge",
        "DeviceRequests": [{"Driver": "", "Count": 0, "DeviceIDs": ["4", "5", "6", "7"]}],
    },
    "Mounts": [{"Type": "bind", "Source": "/data/models", "Destination": "/models", "RW": True}],
    "NetworkSettings": {"Ports": {"30000/tcp": [{"HostIp": "0.0.0.0", "HostPort": "8000"},
                                                {"HostIp": "::", "HostPort": "8000"}]}},
}  # fmt: skip


def test_a_container_is_read_with_its_mounts_ports_and_gpus() -> None:
    argv = [
        "python3",
        "-m",
        "sglang.launch_server",
        "--model-path",
        "/models/m",
        "--tp",
        "4",
        "--host",
        "0.0.0.0",
    ]
    engine = {"root": "/usr", "version": "0.5.9", "installed": 1.0}
    told = {"id": "ab" * 32, "name": "sgl", "runtime": "docker", "why": "", "inspected": INSPECTED}
    there = found(kind="container", unit=None, container=told, process=process(argv, engine=engine))
    imported = from_host(there, Asked(name="kimi"))
    assert imported.service is not None, imported.problems
    assert imported.service["model"]["path"] == "/data/models/m"
    assert (imported.service["port"], imported.service["gpus"]) == (8000, [4, 5, 6, 7])
    assert "docker update --restart=no sgl; docker stop sgl" in notes(imported)


def test_a_container_that_nobody_can_inspect_is_told() -> None:
    argv = ["python3", "-m", "sglang.launch_server", "--model-path", "/models/m", "--tp", "4"]
    told = {"id": "ab" * 32, "name": "", "runtime": "crio", "why": "no tool", "inspected": None}
    there = found(kind="container", unit=None, container=told, process=process(argv))
    imported = from_host(there, Asked(name="kimi"))
    assert imported.service is None  # its model is inside, as far as anybody can tell
    assert "was not inspected (no tool)" in notes(imported)
    helped = from_host(there, Asked(name="kimi", mounts=(("/data", "/models"),)))
    assert helped.service is not None and helped.service["model"]["path"] == "/data/m"


RELATIVE = [
    "/opt/sglang/0.5.9/bin/python",
    "-m",
    "sglang.launch_server",
    "--model-path",
    "models/x",
]


def test_a_folder_that_reads_like_a_hubs_name_is_known_by_the_host() -> None:
    there = from_host(found(unit=None, kind="process", process=process(
        RELATIVE, cwd="/srv/work", folders=["models/x"])), Asked())  # fmt: skip
    assert there.service is not None
    assert there.service["model"] == {"path": "/srv/work/models/x", "served_name": "models/x"}
    hub = from_host(found(unit=None, kind="process", process=process(
        RELATIVE, cwd="/srv/work", folders=[])), Asked())  # fmt: skip
    assert hub.service is not None and hub.service["model"]["path"] == "/srv/models/x"
    assert "taken for a model of a hub" not in notes(hub)


def test_where_nobody_has_looked_both_are_told() -> None:
    text = f"[Service]\nWorkingDirectory=/srv/work\nExecStart={' '.join(RELATIVE)}\n"
    said = "if /srv/work/models/x is a folder of the host, the engine took that one: --model-path "
    assert f"{said}/srv/work/models/x" in notes(from_text([("", text)]))
    assert said not in notes(from_text([("", text)], asked=Asked(model="/srv/m")))
    draft = text.replace("--model-path models/x", "--model-path /m --tokenizer-path models/x")
    assert "write flags.tokenizer-path in full" in notes(from_text([("", draft)]))
    assert "taken for" not in notes(from_text([("", text.replace("=/srv/work", "=/"))]))


def test_an_ordinary_user_is_a_risk_that_says_what_mends_it() -> None:
    runs = found(process=process(user="llm"), ordinary_uid=1001)
    runs["unit"]["texts"][0][1] += "User=llm\n"
    imported = from_host(runs, Asked())
    assert imported.service is not None and imported.service["user"] == "llm"
    (risk,) = [risk for risk in imported.risks if risk.id == "ipc-user"]
    assert risk.setting == "User=llm, UID 1001" and "loginctl enable-linger" in risk.risk
    spared = from_host({**runs, "ordinary_uid": None}, Asked())
    assert "ipc-user" not in [risk.id for risk in spared.risks]


def test_of_a_unit_without_an_engine_the_error_stands_alone() -> None:
    ssh = unit(name="ssh.service", files={})
    ssh["texts"] = [["/lib/systemd/system/ssh.service", "[Service]\nExecStart=/usr/sbin/sshd -D\n"]]
    imported = from_host(found(process=None, unit=ssh, main="sshd"), Asked())
    assert imported.service is None and not imported.notes and not imported.risks
    (problem,) = imported.problems
    assert problem.message == "starts no SGLang server"
    assert problem.hint.startswith("ssh.service: its main process is sshd, and no engine is inside")
