"""What is told of a text: nothing goes without a word, nothing that is told is false, and no mask
hides what is no secret."""

from __future__ import annotations

import pytest

from opsctl.importing import Asked, Imported, from_text
from opsctl.importing.files import ANY
from opsctl.importing.secretnames import by_name

RUN = "python3 -m sglang.launch_server --model-path"
DOCKER = "docker run --network host -v /data/llm:/m"
IMAGE = "lmsysorg/sglang:v0.5.9"
UNIT = (
    "[Service]\n{}\nExecStart={}/opt/sglang/0.5.9/bin/python -m sglang.launch_server "
    "--model-path /m"
)


def told(found: Imported, kind: str = "") -> str:
    assert found.service is not None, found.problems
    return "\n".join(f"{n.what}: {n.why}" for n in found.notes if kind in ("", n.kind))


def take(*texts: str, **asked: object) -> Imported:
    return from_text([("", text) for text in texts], asked=Asked(version="0.5.9", **asked))  # type: ignore[arg-type]


def unit(settings: str, before: str = "") -> Imported:
    return take(UNIT.format(settings, before))


# -- a name that may be a folder where the container's command works ------------------------------
COMPOSE = f"""
services:
  llm:
    image: {IMAGE}
    network_mode: host
    working_dir: /m
    volumes: ["/data/llm:/m"]
    command: {RUN} qwen
"""


@pytest.mark.parametrize(
    "text",
    [
        f"{DOCKER} -w /m {IMAGE} {RUN} qwen",
        f"{DOCKER} -w /m/ {IMAGE} {RUN} qwen",
        f"{DOCKER} {IMAGE} bash -c 'cd /m && {RUN} qwen'",
        COMPOSE,
    ],
)
def test_a_bare_name_in_a_working_folder_of_a_container(text: str) -> None:
    found = take(text)
    assert "if /data/llm/qwen is a folder of the host, the engine took that one: " in told(found)
    assert "--model-path /data/llm/qwen" in told(found)
    assert "no flag of the engine names a path" not in told(found)
    assert "were written in full" not in told(found)


@pytest.mark.parametrize("where", ["-w /work", "-v data:/work -w /work"])
def test_a_working_folder_that_the_host_does_not_have(where: str) -> None:
    found = take(f"{DOCKER} {where} {IMAGE} {RUN} qwen")
    assert "is a folder of the host" not in told(found)
    assert "/data/llm at /m: no flag of the engine names a path in it" in told(found)


# -- names of secrets -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name",
    ["MYTOKEN", "SSHPASS", "GITTOKEN", "MYSECRET", "DBPASSWORD", "XPASSWD", "FOOAPIKEY", "my-pass"],
)
def test_a_name_of_a_secret_without_a_separator(name: str) -> None:
    assert by_name(name)


@pytest.mark.parametrize("name", ["PADTOKEN", "eosToken", "STOP_TOKEN", "NO_BYPASS", "COMPASS"])
def test_words_that_only_end_so(name: str) -> None:
    assert not by_name(name)


def test_such_a_secret_is_in_no_description() -> None:
    found = unit("Environment=MYTOKEN=canary-1234 SSHPASS=canary-5678")
    assert found.service is not None and "canary" not in repr(found)
    assert set(found.service["secrets"]["env"]) == {"MYTOKEN", "SSHPASS"}


# -- a unit's files -------------------------------------------------------------------------------
# (paths as they were given, the name whose value counts, the order that is told)
ORDERS = [
    (["/d.conf", "/s.service"], "/d.conf", "s.service, d.conf"),
    (["/s.service", "/20.conf", "/10.conf"], "/20.conf", "s.service, 10.conf, 20.conf"),
    (["", "/s.service"], "", "s.service, stdin"),
    (["/s.service", "/d.conf"], "/d.conf", ""),
    (["/s.service", ""], "", ""),
]


@pytest.mark.parametrize(("paths", "counts", "said"), ORDERS)
def test_a_drop_in_counts_after_its_unit(paths: list[str], counts: str, said: str) -> None:
    whole = UNIT.format("Environment=FROM=unit", "")
    parts = [(p, f"[Service]\nEnvironment=FROM=x{p}") for p in paths]
    texts = [(p, whole if p == "/s.service" else text) for p, text in parts]
    found = from_text(texts, asked=Asked(version="0.5.9"))
    assert found.service is not None
    assert found.service["env"] == {"FROM": f"x{counts}"}
    order = f"{said}: read in this order"
    assert (order in told(found)) if said else ("read in this order" not in told(found))


def test_one_nameless_copy_stands_for_one_file() -> None:
    two = UNIT.format("EnvironmentFile=/etc/a.env\nEnvironmentFile=/etc/b.env", "")
    copy = "NCCL_DEBUG=INFO\n"
    wrong = take(two, files={ANY: copy, "x.env": copy})
    assert wrong.service is None
    assert [p.hint for p in wrong.problems] == [
        f"say of which file --env-file is the copy: --file /etc/{name}.env=COPY" for name in "ab"
    ]
    by_its_name = take(two, files={ANY: copy, "a.env": copy})
    assert [p.hint.rsplit(" ", 1)[-1] for p in by_its_name.problems] == ["/etc/b.env=COPY"]
    for files in ({ANY: copy, "/etc/b.env": "A=1\n"}, {"a.env": copy, "b.env": "A=1\n"}):
        found = take(two, files=files)
        assert found.service is not None
        assert found.service["env"] == {"NCCL_DEBUG": "INFO", "A": "1"}


@pytest.mark.parametrize(
    "text",
    [
        f"docker run --network host --env-file a --env-file b {IMAGE} {RUN} /m",
        COMPOSE.replace("    working_dir", "    env_file: [a, b]\n    working_dir"),
    ],
)
def test_nor_for_two_of_a_container(text: str) -> None:
    wrong = take(text, files={ANY: "A=1\n"}, mounts=(("/m", "/m"),))
    assert "say of which file --env-file is the copy: --file a=COPY" in [
        p.hint for p in wrong.problems
    ]


# -- what is no secret is shown -------------------------------------------------------------------
def test_the_flag_and_the_reference_are_shown() -> None:
    found = take(COMPOSE.replace("qwen", "qwen --api-key $${SGLANG_API_KEY}"))
    assert "--api-key ${SGLANG_API_KEY}: is this very text to the engine" in told(found)


def test_a_credentials_name_and_path_are_shown() -> None:
    said = told(unit("LoadCredential=hf_token:/etc/k\nSetCredential=k:canary-1234"))
    assert "LoadCredential=hf_token:/etc/k" in said
    assert "SetCredential=***" in said and "canary" not in said


# -- nothing goes without a word ------------------------------------------------------------------
LINES = [
    ("Environment=A=1\nUnsetEnvironment=A", "UnsetEnvironment=A: takes away what the unit sets"),
    ("Environment=A=1\nUnsetEnvironment=A=2", "UnsetEnvironment=A=2: the variable has another"),
    ("UnsetEnvironment=B", "UnsetEnvironment=B: opsctl's unit does not set it"),
    ("UnsetEnvironment=HOME", "UnsetEnvironment=HOME: opsctl's unit sets it"),
    ("MemoryMax=infinity", "MemoryMax=infinity: no limit: opsctl's unit has none either"),
    ("TasksMax=infinity", "TasksMax=infinity: no limit"),
]


@pytest.mark.parametrize(("settings", "said"), LINES)
def test_lines_of_a_unit(settings: str, said: str) -> None:
    found = unit(settings)
    assert said in told(found, "dropped")
    assert "memory-limit" not in [risk.id for risk in found.risks]


def test_a_variable_that_env_takes_away() -> None:
    assert "env -u LD_PRELOAD: opsctl's unit does not set it" in told(
        unit("", "/usr/bin/env -u LD_PRELOAD "), "dropped"
    )
    assert "env -u A: takes away what was set before" in told(unit("Environment=A=1", "env -u A "))


# -- the wrong unit -------------------------------------------------------------------------------
def test_of_a_unit_without_an_engine_the_error_stands_alone() -> None:
    sshd = "[Unit]\nDescription=ssh\n[Service]\nEnvironmentFile=-/etc/default/ssh\nNice=3\n"
    found = take(f"{sshd}ExecStart=/usr/sbin/sshd -D $OPTS\nRestart=no\n")
    assert found.service is None and not found.notes and not found.risks
    assert [p.message for p in found.problems] == ["starts no SGLang server"]


# -- each kind of text in its own words -----------------------------------------------------------
def test_a_relative_folder_of_a_container_file() -> None:
    text = f"[Container]\nImage={IMAGE}\nVolume=./w:/m\nNetwork=host\nExec={RUN} /m/qwen\n"
    found = take(text, cwd="/etc/containers/systemd")
    assert found.service is not None
    assert found.service["model"]["path"] == "/etc/containers/systemd/w/qwen"
    assert any("--cwd DIR" in problem.hint for problem in take(text).problems)


KEYS = [
    ("    ipc: host", "ipc host: the engine's processes"),
    ("    mem_limit: 64g", "mem_limit 64g: opsctl's unit sets no such limit"),
    ("    ulimits: {memlock: -1}", "ulimits memlock: opsctl's unit sets"),
    ("    privileged: true", "privileged: the engine needs no rights"),
    ("    gpus: all", "gpus all: a service has all GPUs"),
    ("    gpus: [{count: 2}]", "gpus 2: a number of GPUs becomes the first ones"),
    ("    ports: ['30000']", "ports 30000: docker chose a port"),
]


@pytest.mark.parametrize(("line", "said"), KEYS)
def test_compose_is_told_by_its_own_keys(line: str, said: str) -> None:
    text = COMPOSE.replace("    working_dir", f"{line}\n    working_dir")
    found = take(text)
    assert any(one.startswith(said) for one in told(found).splitlines())
    assert "working_dir /m: " in told(found) and "--workdir" not in told(found)
