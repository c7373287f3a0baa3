"""Containers: each part of a docker run or a compose service is told what becomes of it."""

from __future__ import annotations

from typing import Any

import pytest

from opsctl.importing import Asked, Container, Imported, Mount, from_process
from tests.unit.importing.test_import_texts import refusals, service, take

RUN = "python3 -m sglang.launch_server --model-path"
IMAGE = f"lmsysorg/sglang:v0.5.9 {RUN}"


def told(found: Imported, kind: str = "") -> str:
    return "\n".join(f"{n.what}: {n.why}" for n in found.notes if kind in ("", n.kind))


# (options of docker run, kind, what is told)
FATES = [
    ("-d --rm -it", "dropped", "--detach --rm -i -t: systemd starts the engine"),
    ("--label team=a", "dropped", "--label team=a: a setting of the container"),
    ("-l a=b", "dropped", "--label a=b"),
    ("--pull always", "dropped", "--pull: systemd starts the engine"),
    ("--platform linux/amd64", "dropped", "--platform linux/amd64"),
    ("--hostname h", "dropped", "--hostname h"),
    ("--add-host a:1.2.3.4", "lost", "--add-host a:1.2.3.4: the host's own names"),
    ("--name kimi", "carried", "--name kimi: the service's name"),
    ("--gpus all", "dropped", "--gpus all: a service has all GPUs"),
    ("--network host", "dropped", "--network host: the service listens on the host's own"),
    ("-w /work", "dropped", "--workdir /work: a service starts in a folder of its own"),
    ("-P", "dropped", "-P: the service listens on its own port"),
    ("-m 64g", "lost", "--memory 64g: opsctl's unit sets no such limit"),
    ("-v /x:/y", "dropped", "/x at /y: no flag of the engine names a path in it"),
    ("-v cache:/root/.triton", "dropped", "a volume at /root/.triton: no flag"),
    ("-p 8080:30000", "changed", "127.0.0.1:30000 → 0.0.0.0:8080"),
    ("-p 9000:9000", "dropped", "port 9000: no flag of the engine names it"),
    ("-p 80:30000 -p 81:30000", "lost", "port 81 → 30000: the engine listens on one port alone"),
    ("--network host -p 9000:9000", "dropped", "port 9000: with the host's network nothing"),
    ("-p 9000-9001:9000-9001", "dropped", "port 9001: no flag of the engine names it"),
]


@pytest.mark.parametrize(("options", "kind", "said"), FATES)
def test_every_option_has_a_fate(options: str, kind: str, said: str) -> None:
    assert said in told(take(f"docker run -v /m:/m {options} {IMAGE} /m/a"), kind)


def test_a_port_that_a_flag_names() -> None:
    text = f"docker run -v /m:/m -p 8998:8998 {IMAGE} /m/a --disaggregation-bootstrap-port 8998"
    assert "port 8998: disaggregation-bootstrap-port is a port of the host's own" in told(
        take(text), "changed"
    )


def test_a_hubs_cache_says_where_the_files_are_already() -> None:
    text = f"docker run -v ~/.cache/huggingface:/root/.cache/huggingface {IMAGE} Qwen/Qwen3-8B"
    found = take(text, variables={"HOME": "/home/u"})
    where = "/home/u/.cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots"
    assert where in told(found, "dropped")
    named = take(text.replace(IMAGE, f"-v /m:/m {IMAGE}").replace("Qwen/Qwen3-8B", "/m/a"),
                 variables={"HOME": "/home/u"})  # fmt: skip
    assert "which the model did not come from" in told(named, "dropped")


def test_a_variable_that_names_a_folder_of_the_container() -> None:
    found = take(f"docker run -v /m:/m -v /big:/cache -e HF_HOME=/cache/hf {IMAGE} /m/a")
    assert "HF_HOME names a folder of the container: /cache was /big of the host" in told(found)


def test_folders_of_a_container_that_runs_are_told_too() -> None:
    container = Container("x:v0.5.9", [Mount("/data", "/models"), Mount("/x", "/y")])
    argv = ["python3", "-m", "sglang.launch_server", "--model-path", "/models/k"]
    found = from_process(argv, {}, container=container)
    assert "/x at /y: no flag" in told(found, "dropped") and "/data at" not in told(found)


def test_a_folder_from_where_docker_was_called() -> None:
    text = f"docker run -v ./m:/m {IMAGE} /m/a"
    assert "--cwd DIR" in refusals(text)
    assert service(text, cwd="/srv")["model"]["path"] == "/srv/m/a"
    assert service(f"cd /opt/x && {text}")["model"]["path"] == "/opt/x/m/a"


def test_what_is_given_for_a_variable_is_not_said_to_be_missing() -> None:
    text = f"docker run -v /m:/m -e HF_TOKEN -e NCCL_X {IMAGE} /m/a"
    given = {"HF_TOKEN": "hf_abcdefghijkl1234", "NCCL_X": "1"}
    found = take(text, variables=given)
    assert found.service is not None and found.service["env"] == {"NCCL_X": "1"}
    assert "not exported" not in told(found)
    kept = take(f"NCCL_Y=1\n{text}", variables=given)
    assert "NCCL_Y: set in the shell and not exported" in told(kept, "dropped")


PYTHON = "/opt/sglang/0.5.9/bin/python {} -m sglang.launch_server --model-path /m"
SWITCHES = [
    ("-u", "dropped", "python -u: opsctl's unit has PYTHONUNBUFFERED=1"),
    ("-O", "lost", 'env: {PYTHONOPTIMIZE: "1"} does the same'),
    ("-uOO", "lost", 'python -OO: opsctl\'s unit does not give it; env: {PYTHONOPTIMIZE: "2"}'),
    ("-X faulthandler", "lost", 'env: {PYTHONFAULTHANDLER: "1"}'),
    ("-Xdev", "lost", 'env: {PYTHONDEVMODE: "1"}'),
    ("-W ignore", "lost", 'env: {PYTHONWARNINGS: "ignore"}'),
    ("-I", "lost", "python -I: opsctl's unit does not give it to Python"),
]


@pytest.mark.parametrize(("switch", "kind", "said"), SWITCHES)
def test_options_of_python_itself(switch: str, kind: str, said: str) -> None:
    assert said in told(take(PYTHON.format(switch)), kind)


def test_a_version_that_contradicts_is_told() -> None:
    said = "--engine-version 0.5.10: /opt/sglang/0.5.9 says 0.5.9: flags were read as 0.5.10"
    assert said in told(take(PYTHON.format(""), version="0.5.10"), "told")
    assert "says" not in told(take(PYTHON.format(""), version="0.5.9"))
    image = take(f"docker run -v /m:/m {IMAGE} /m/a", version="0.5.8")
    assert "lmsysorg/sglang:v0.5.9 says 0.5.9" in told(image, "told")
    argv = PYTHON.format("").split()
    host = from_process(argv, {}, "", "0.5.9", asked=Asked(version="0.5.10"))
    assert "--engine-version 0.5.10: the host says 0.5.9" in told(host, "told")
    path = from_process(argv, {}, "", "0.5.8")
    assert path.service is not None and path.service["engine"]["version"] == "0.5.8"
    assert "SGLang 0.5.8: /opt/sglang/0.5.9 says 0.5.9" in told(path, "told")


COMPOSE = """
services:
  proxy: {{image: nginx}}
  llm:
    image: lmsysorg/sglang:v0.5.9
    command: python3 -m sglang.launch_server --model-path /models/k{more}
    volumes: ["./models:/models"]
    labels: {{a: b}}
    {keys}
"""


def compose(keys: str = "", more: str = "", **asked: Any) -> Imported:
    return take(COMPOSE.format(keys=keys, more=more), cwd="/srv", **asked)


def test_folders_beside_a_compose_file() -> None:
    found = compose()
    assert found.service is not None and found.service["model"]["path"] == "/srv/models/k"
    assert "--cwd DIR" in refusals(COMPOSE.format(keys="", more=""))


def test_files_of_variables_as_compose_reads_them() -> None:
    files = {"a.env": "export A='x y'  # no\nB=\"q${A}\"\nC\n", "b.env": "A=1 # no\nD='2'\n"}
    found = compose("env_file: a.env", files=files, variables={"C": "c"})
    assert found.service is not None
    assert found.service["env"] == {"A": "x y", "B": "qx y", "C": "c"}
    raw = compose("env_file: [{path: b.env, format: raw}]", files=files)
    assert raw.service is not None and raw.service["env"] == {"A": "1 # no", "D": "'2'"}


def test_a_file_of_variables_that_may_be_missing() -> None:
    optional = compose("env_file: [{path: ./a.env, required: false}]")
    assert optional.service is not None
    assert "--file ./a.env=COPY" in told(optional, "told")
    needed = compose("env_file: [{path: ./a.env}]")
    assert needed.service is None and "--file ./a.env=COPY" in str(needed.problems[0])


def test_a_dollar_that_stands_for_itself() -> None:
    found = compose(more=" --served-model-name $${X}")
    assert found.service is not None
    assert found.service["model"]["served_name"] == "${X}"
    assert "--served-model-name ${X}: is this very text to the engine" in told(found, "told")
    shell = "entrypoint: [sh, -c]\n    environment: {X: k2}"
    line = f'["exec {RUN} /models/$${{X}}"]'
    text = COMPOSE.format(keys=shell, more="").replace(f"{RUN} /models/k", line)
    assert service(text, cwd="/srv")["model"]["path"] == "/srv/models/k2"


@pytest.mark.parametrize(
    ("keys", "kind", "said"),
    [
        ("", "dropped", "proxy: other services of the file"),
        ("", "dropped", "labels: there is no container any more"),
        ("deploy: {replicas: 2}", "lost", "deploy.replicas 2: one engine"),
        ("deploy: {resources: {limits: {cpus: '4'}}}", "lost", "deploy.resources.limits"),
        ("deploy: {restart_policy: {condition: any}}", "dropped", "deploy.restart_policy"),
    ],
)
def test_every_key_of_a_compose_service_has_a_fate(keys: str, kind: str, said: str) -> None:
    assert said in told(compose(keys), kind)


def test_options_of_docker_after_its_image() -> None:
    text = f"docker run lmsysorg/sglang:v0.5.9 --gpus all {RUN} /m/a"
    assert "options of docker stand before the image" in refusals(text)
