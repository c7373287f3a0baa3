"""Whole texts → descriptions: one thought a test, the text beside what it becomes."""

from __future__ import annotations

from typing import Any

import pytest

from opsctl.importing import Asked, Container, Imported, Mount, from_process, from_text

PYTHON = "/opt/sglang/0.5.9/bin/python -m sglang.launch_server --model-path /srv/models/m"


def take(text: str, kind: str = "auto", **asked: Any) -> Imported:
    return from_text([("", text)], kind, Asked(**{"version": "0.5.9", **asked}))


def service(text: str, kind: str = "auto", **asked: Any) -> dict[str, Any]:
    found = take(text, kind, **asked)
    assert found.service is not None, [str(p) for p in found.problems]
    return found.service


def refusals(text: str, kind: str = "auto", **asked: Any) -> str:
    found = take(text, kind, **asked)
    assert found.service is None
    return "\n".join(str(p) for p in found.problems)


def notes(found: Imported, kind: str) -> list[str]:
    return [note.what for note in found.notes if note.kind == kind]


FLAGS = [
    ("--tp 8", {"tp-size": 8}),
    ("--tensor-parallel-size=8", {"tp-size": 8}),
    ("--mem-frac 0.9", {"mem-fraction-static": 0.9}),
    ("--tp 4 --tp-size 8", {"tp-size": 8}),
    ("--tp ' 8'", {"tp-size": 8}),
    ("--hicache-ratio 4", {"hicache-ratio": 4.0}),
    ("--cuda-graph-bs 1 2 4", {"cuda-graph-bs": [1, 2, 4]}),
    ("--lora-paths a=/x /y", {"lora-paths": ["a=/x", "/y"]}),
    ("""--json-model-override-args '{"a": 1,
        "b": [2]}'""", {"json-model-override-args": {"a": 1, "b": [2]}}),
    ('--model-loader-extra-config {"a": true,"b": 4}',
     {"model-loader-extra-config": {"a": True, "b": 4}}),
    ("--chat-template chatml", {"chat-template": "chatml"}),
    ("--disable-radix-cache # --tp 8", {"disable-radix-cache": True}),
]  # fmt: skip


@pytest.mark.parametrize(("args", "wanted"), FLAGS)
def test_flags(args: str, wanted: dict[str, Any]) -> None:
    assert service(f"{PYTHON} {args}").get("flags") == wanted


AROUND = [
    "exec {}",
    "nohup {} > log 2>&1 &",
    "{} 2>&1 | tee log",
    "bash -c '{}'",
    "sudo -E bash -lc '{}'",
    "env A=b {}",
    "cd /srv && {}",
    "setsid {} &\ndisown",
    "tmux new-session -d -s x '{}'",
    "screen -dmS x {}",
    "stdbuf -oL time {}",
    "timeout -k 5 3600 {}",
    "su - svc -c '{}'",
    "set -e\nmkdir -p /x\necho hi\n{}\nwait",
    "```bash\n$ {}\n```",
    "(env) me@host:~/x$ {}",
    "[root@host ~]# {}",
    "numactl --cpunodebind=0 --membind 0 {}",
    "taskset -c 0-31 {}",
    "trap 'kill 0' EXIT; {}",
]


@pytest.mark.parametrize("around", AROUND)
def test_whatever_stands_around_the_engine(around: str) -> None:
    found = service(around.format(f"{PYTHON} --tp 8"))
    assert found["flags"] == {"tp-size": 8}
    assert found["model"] == {"path": "/srv/models/m"}


def test_what_binds_a_process_is_told_as_lost() -> None:
    assert notes(take(f"numactl -N 0 -m 0 {PYTHON}"), "lost") == ["numactl -N 0 -m 0"]


def test_variables_of_the_script() -> None:
    text = f"""
    M=8; export HF_HUB_OFFLINE=1
    ARGS=(--mem-fraction-static 0.8)
    ARGS+=(--tp "$M")
    NOT_EXPORTED=1
    X=${{X:-y}} {PYTHON} "${{ARGS[@]}}"
    """
    found = service(text)
    assert found["flags"] == {"mem-fraction-static": 0.8, "tp-size": 8}
    assert found["env"] == {"HF_HUB_OFFLINE": "1", "X": "y"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("python -m sglang.launch_server --model-path $M", "$M is a variable that the text does"),
        ("python -m sglang.launch_server --model-path m --tp $(nproc)", "what another command"),
        ("pkill x; python -m sglang.launch_server --model-path m", "also runs pkill (line 1)"),
        (f"{PYTHON}\n{PYTHON} --port 1", "starts 2 engines"),
        (f"true || {PYTHON}", "only if the command before it fails"),
        (f"{PYTHON} --no-such-flag 1", "--no-such-flag: SGLang 0.5.9 has no such flag"),
        (f"{PYTHON} --enable-hicache", "0.5.23 has it; write enable-hierarchical"),
        (f"{PYTHON} --reasoning_parser x", "write reasoning-parser"),
        (f"{PYTHON} --h", "may mean"),
        (f"{PYTHON} --max-model-len 8", "a flag of vLLM, another engine, not of the engine's "
         "server; write context-length"),
        (f"{PYTHON} stray", "'stray' belongs to no flag"),
        (f"{PYTHON} --tp", "--tp lacks its value"),
        (f"{PYTHON} --tp eight", "must be a whole number (value: eight)"),
        (f"{PYTHON} --trust-remote-code=true", "takes no value"),
        (f"{PYTHON} --config x.yaml", "takes flags from a file"),
        ("python -m vllm.entrypoints.openai.api_server --model m", "vLLM, another engine"),
        ("python -m sglang.bench_serving", "a benchmark of SGLang"),
        ("python -m sglang_router.launch_router", "the router, not the engine"),
        ("sglang serve m --model-type diffusion", "SGLang's server for diffusion models"),
        ("./start.sh", "the engine is started by ./start.sh, which was not given"),
        ("", "holds no command"),
        ("ls", "starts no SGLang server" ),
        (f"if true; then {PYTHON}; fi", "branches, loops or defines (if)"),
        (f"eval {PYTHON}", "builds a command by eval"),
        ("docker start sglang", "does not say how the container was made"),
        ("docker compose up", "import the compose file"),
        (f"{PYTHON} --chat-template ./x.jinja", "give that folder: --cwd DIR"),
        ("curl -s https://h/x.sh | bash", "line 1 hands what curl prints to bash, which runs it"),
        (f"wget -O- h | sudo sh -s\n{PYTHON}", "line 1 hands what wget prints to sh"),
        (f"bash\n{PYTHON}", "also runs bash without a command (line 1)"),
        (f"{PYTHON} --log-level badXYZ", "takes critical, error, warning, info or debug"),
        ("a\0b", "NUL"),
    ],
)  # fmt: skip
def test_refused_with_the_true_reason(text: str, why: str) -> None:
    assert why in refusals(text)


def test_what_starts_and_fails_later_is_told() -> None:
    found = take(f"{PYTHON} --log-level warn")
    assert found.service is not None
    (note,) = [note for note in found.notes if note.what == "flags.log-level"]
    assert note.kind == "told" and "starts with this and fails later" in note.why


def test_the_version_that_a_path_names() -> None:
    (note,) = [note for note in take(PYTHON, version="").notes if note.what == "SGLang 0.5.9"]
    assert note.why == (
        "as /opt/sglang/0.5.9 says; if it is another, give --engine-version VERSION"
    )


_BARE = "sglang.launch_server --model-path /srv/models/m"
# (text, the version that it names)
PACKAGES = [
    (f"uv run --with sglang==0.5.9 python -m {_BARE}", "0.5.9"),
    (f"uv run --with='sglang[all]==0.5.9' -m {_BARE}", "0.5.9"),
    ("uvx --from 'sglang[all]==0.5.9' sglang serve /srv/models/m", "0.5.9"),
    ("uv tool run --from sglang==0.5.13.post1 sglang serve /srv/models/m", "0.5.13.post1"),
    ("uvx sglang@0.5.9 serve /srv/models/m", "0.5.9"),
    ("pipx run --spec sglang==0.5.9 sglang serve /srv/models/m", "0.5.9"),
    (f'pip install "sglang[all]==0.5.9"\npython -m {_BARE}', "0.5.9"),
    (f"pip install sglang==0.5.8 && uv pip install sglang==0.5.9 && python -m {_BARE}", "0.5.9"),
    (f"python3 -m pip install 'git+https://h/x/sglang.git@v0.5.9' && python -m {_BARE}", "0.5.9"),
    (f"docker run i:v0.5.8 bash -c 'pip install sglang==0.5.9; python -m {_BARE}'", "0.5.9"),
    (f"pip install 'sglang>=0.5.9' && python -m {_BARE}", ""),
    (f"pip install sglang-router==0.2.1 sglang && python -m {_BARE}", ""),
]


@pytest.mark.parametrize(("text", "version"), PACKAGES)
def test_the_version_that_a_package_names(text: str, version: str) -> None:
    found = take(text, version="", mounts=(("/srv/models", "/srv/models"),))
    if version:
        assert found.service is not None, [str(p) for p in found.problems]
        assert found.service["engine"]["version"] == version
    else:
        assert [p.key for p in found.problems] == ["engine.version"]


def test_an_install_of_something_else_is_not_carried() -> None:
    assert "also runs pip (line 1)" in refusals(f"pip install vllm==0.5.9\npython -m {_BARE}")


def test_the_address_of_a_package_is_not_told() -> None:
    text = f"pip install git+https://u:pass-w0rd@h/sglang.git@v0.5.9 && python -m {_BARE}"
    assert "pass-w0rd" not in str(take(text, version=""))


# (version, argument, why it is left out)
NOTHING = [
    ("0.5.9", "--prefill-round-robin-balance", "has no effect in SGLang 0.5.9"),
    (
        "0.5.13.post1",
        "--enable-piecewise-cuda-graph",
        "has no effect in SGLang 0.5.13.post1; use --enforce-piecewise-cuda-graph",
    ),
    ("0.5.9", "--quantization-param-path None", "the engine takes this value for none"),
]


@pytest.mark.parametrize(("version", "argument", "why"), NOTHING)
def test_what_does_nothing_is_told_as_left_out(version: str, argument: str, why: str) -> None:
    found = take(f"python -m {_BARE} {argument}", version=version)
    assert found.service is not None and "flags" not in found.service
    flag = argument.split()[0]
    assert [n.why for n in found.notes if n.kind == "dropped" and flag in n.what] == [why]


def test_a_version_that_ends_at_a_flag_is_not_proposed() -> None:
    said = refusals(f"python -m {_BARE} --enable-ep-moe", version="")
    assert "give it: --engine-version 0.5.2, which alone takes every flag here" in said


def test_a_flag_that_no_unit_can_keep_secret() -> None:
    text = f"{PYTHON} --ssl-keyfile-password abc".replace("0.5.9", "0.5.23")
    assert "would stand readable in the unit" in refusals(text, version="")


def test_answers_to_what_a_text_leaves_open() -> None:
    text = "python -m sglang.launch_server --model-path $M --chat-template x/y.jinja"
    found = service(text, variables={"M": "/srv/models/k"}, cwd="/srv/work")
    assert found["model"]["path"] == "/srv/models/k"
    assert found["flags"] == {"chat-template": "/srv/work/x/y.jinja"}


def test_a_file_that_the_text_speaks_of() -> None:
    text = "source /etc/sglang.env\n./run.sh 8"
    files = {"/etc/sglang.env": "export A=b\nM=/srv/models/m",
             "run.sh": "python -m sglang.launch_server --model-path $M --tp $1"}  # fmt: skip
    assert "$M is a variable" in refusals(text, files=files)  # another process: M is not exported
    files["/etc/sglang.env"] = "set -a\nA=b\nM=/srv/models/m"
    found = service(text, files=files)
    assert found["flags"] == {"tp-size": 8}
    assert found["env"] == {"A": "b", "M": "/srv/models/m"}


def test_a_file_of_flags() -> None:
    text = f"{PYTHON} --config /etc/x.yaml --tp 4"
    flags = "tp-size: 8\ntrust-remote-code: true\ndisable-radix-cache: false\n"
    flags += "cuda-graph-bs: [1, 2]\nmem-fraction-static: 0.8\n"
    found = take(text, files={"/etc/x.yaml": flags})
    assert found.service is not None
    assert found.service["flags"] == {
        "trust-remote-code": True,
        "cuda-graph-bs": [1, 2],
        "mem-fraction-static": 0.8,
        "tp-size": 4,  # of the command line, which comes after the file
    }
    mapping = {"/etc/x.yaml": "json-model-override-args: {a: 1}"}
    assert "makes no JSON of a mapping" in refusals(text, files=mapping)
    assert "is no YAML" in refusals(text, files={"/etc/x.yaml": "a: ["})
    newer = text.replace("0.5.9", "0.5.23")
    assert service(newer, version="", files=mapping)["flags"] == {
        "json-model-override-args": {"a": 1},
        "tp-size": 4,
    }


def test_the_version() -> None:
    text = "python -m sglang.launch_server --model-path /m --cuda-graph-max-bs 8 --tp 2"
    found = from_text([("", text)])
    assert found.service is None
    assert found.versions[0] == "0.5.2"
    assert "0.5.23" not in found.versions
    assert f"--engine-version {found.versions[-1]}" in str(found.problems[0])
    assert service(text.replace("python", "/opt/sglang/0.5.9/bin/python"), version="")[
        "engine"
    ] == {"version": "0.5.9"}
    other = service(text.replace("python", "/opt/envs/x/bin/python"))
    assert other["engine"] == {"version": "0.5.9", "root": "/opt/envs/x"}


def test_a_hubs_model_keeps_its_name_for_clients() -> None:
    found = service("sglang serve zai-org/GLM-5 --tp 8", models="/data/models")
    assert found["model"] == {"path": "/data/models/GLM-5", "served_name": "zai-org/GLM-5"}
    chosen = service("sglang serve zai-org/GLM-5 --served-model-name glm", model="/srv/glm")
    assert chosen["model"] == {"path": "/srv/glm", "served_name": "glm"}


def test_gpus_by_number_and_by_other_names() -> None:
    assert service(f"CUDA_VISIBLE_DEVICES=3,1 {PYTHON}")["gpus"] == [3, 1]
    found = service(f"CUDA_VISIBLE_DEVICES=GPU-1a2b {PYTHON}")
    assert "gpus" not in found
    assert found["env"] == {"CUDA_VISIBLE_DEVICES": "GPU-1a2b"}


def test_secrets_move_and_are_told_by_name() -> None:
    found = take(
        f"HF_TOKEN=hf_abcdefgh1234 {PYTHON} --api-key sk-verysecret1 --admin-api-key short"
    )
    assert found.service is not None
    assert found.service["secrets"] == {
        "api-key": "{{ vault_m_api_key }}",
        "admin-api-key": "{{ vault_m_admin_api_key }}",
        "env": {"HF_TOKEN": "{{ vault_m_hf_token }}"},
    }
    assert found.secrets["vault_m_api_key"] == "sk-verysecret1"
    told = str(found.notes) + repr(found)
    assert not any(secret in told for secret in found.secrets.values())
    assert "admin-api-key" in notes(found, "changed")  # too short to stay


def test_a_secret_within_a_flag_leaves_the_description() -> None:
    args = """--hicache-storage-backend-extra-config '{"password": "p4ssw0rd-x", "n": 1}'"""
    found = take(f"{PYTHON} {args}")
    assert found.service is not None
    assert "p4ssw0rd-x" not in str(found.service)
    assert "p4ssw0rd-x" not in str(found.notes)


UNIT = """[Unit]
Description=x
[Service]
User=llm
WorkingDirectory=/srv/work
Environment="CUDA_VISIBLE_DEVICES=0,1" B=%n
EnvironmentFile=-/etc/default/sglang
ExecStart=/opt/sglang/0.5.9/bin/python -m sglang.launch_server --model-path ${MODEL} $EXTRA \\
  --chat-template ./t.jinja --port 30001
"""


def test_a_unit_with_its_environment_file() -> None:
    files = {"/etc/default/sglang": 'MODEL=/srv/models/m\nEXTRA="--tp 2 --trust-remote-code"\n'}
    texts = [("/etc/systemd/system/sglang-kimi.service", UNIT)]
    found = from_text(texts, asked=Asked(files=files))
    assert found.name == "kimi"
    assert found.service == {
        "model": {"path": "/srv/models/m"},
        "engine": {"version": "0.5.9"},
        "host": "127.0.0.1",
        "port": 30001,
        "gpus": [0, 1],
        "user": "llm",
        "flags": {"tp-size": 2, "trust-remote-code": True, "chat-template": "/srv/work/t.jinja"},
        "env": {"B": "sglang-kimi.service", "MODEL": "/srv/models/m",
                "EXTRA": "--tp 2 --trust-remote-code"},
    }  # fmt: skip
    missing = from_text(texts)
    assert "$MODEL is a variable that the text does not set" in str(missing.problems)


def test_a_unit_that_starts_a_shell() -> None:
    line = "ExecStart=/bin/bash -lc 'source /opt/v/bin/activate && M=8 && exec python3 -m "
    line += "sglang.launch_server --model-path /m --tp $$M'"
    found = take(f"[Service]\nType=simple\n{line}\n")
    assert found.service is not None
    assert found.service["flags"] == {"tp-size": 8}
    assert found.service["engine"]["root"] == "/opt/v"


DOCKER = (
    "docker run -d --rm --name kimi --gpus '\"device=4,5\"' --ipc=host --shm-size 32g "
    "-v /data:/models:ro -p 127.0.0.1:8080:30000 -e A=b -e HF_TOKEN=hf_abcdefghijkl "
    "lmsysorg/sglang:v0.5.9-cu129 python3 -m sglang.launch_server --model-path /models/k "
    "--host 0.0.0.0 --chat-template /models/t.jinja"
)


def test_docker_run() -> None:
    found = take(DOCKER, version="")
    assert found.name == "kimi"
    assert found.service == {
        "model": {"path": "/data/k", "served_name": "/models/k"},
        "engine": {"version": "0.5.9"},
        "host": "127.0.0.1",
        "port": 8080,
        "gpus": [4, 5],
        "flags": {"chat-template": "/data/t.jinja"},
        "env": {"A": "b"},
        "secrets": {"env": {"HF_TOKEN": "{{ vault_kimi_hf_token }}"}},
    }


@pytest.mark.parametrize(
    ("gpus", "inside", "wanted"),
    [
        ("all", "", None),
        ("2", "", [0, 1]),
        ("device=4", "", [4]),
        ('"device=4,5,6"', "5", None),
        ('"device=4,5,6"', "2,0", [6, 4]),
        ("device=GPU-1", "", None),
    ],
)
def test_gpus_of_a_container(gpus: str, inside: str, wanted: list[int] | None) -> None:
    visible = f"-e CUDA_VISIBLE_DEVICES={inside} " if inside else ""
    text = f"docker run --gpus '{gpus}' {visible}-v /m:/m x python -m sglang.launch_server "
    found = take(f"{text}--model-path /m/a")
    if found.service is None:
        assert wanted is None
        assert found.problems
    else:
        assert found.service.get("gpus") == wanted


def test_a_path_inside_of_the_image_is_refused() -> None:
    assert "is inside the container's image" in refusals(DOCKER.replace("/models/k", "/opt/k"))
    named = DOCKER.replace("-v /data:/models:ro", "-v models:/models")
    assert "in a volume whose folder on the host" in refusals(named)
    found = service(DOCKER.replace("/models/k", "/opt/k"), mounts=(("/x", "/opt"),))
    assert found["model"]["path"] == "/x/k"


COMPOSE = """
services:
  db: {image: postgres}
  llm:
    image: "lmsysorg/sglang:${TAG:-v0.5.9}"
    entrypoint: python3 -m sglang.launch_server
    command: --model-path /models/k --tp 2 --host 0.0.0.0
    environment: {A: "1", B: true}
    volumes: ["/data:/models"]
    ports: ["8000:30000"]
    deploy: {resources: {reservations: {devices: [{device_ids: ["2", "3"]}]}}}
"""


def test_compose() -> None:
    found = service(COMPOSE, version="")
    assert found["model"]["path"] == "/data/k"
    assert (found["host"], found["port"], found["gpus"]) == ("0.0.0.0", 8000, [2, 3])
    assert found["flags"] == {"tp-size": 2}
    assert found["env"] == {"A": "1", "B": "true"}


def test_a_process() -> None:
    argv = ["/opt/x/bin/python3", "-u", "-m", "sglang.launch_server", "--model-path=/srv/models/m",
            "--chat-template", "a $(b) <c>", "--tp", "2"]  # fmt: skip
    environ = {"PATH": "/usr/bin", "INVOCATION_ID": "x", "HF_HUB_OFFLINE": "1", "TZ": "UTC"}
    unit = "# /etc/systemd/system/sglang-k.service\n[Service]\nType=simple\nUser=llm\n"
    unit += "Environment=PATH=/usr/bin\nExecStart=/opt/x/run\n"
    found = from_process(argv, environ, unit, "sglang-0.5.9.dist-info")
    assert found.name == "k"
    assert found.service == {
        "model": {"path": "/srv/models/m"},
        "engine": {"version": "0.5.9", "root": "/opt/x"},
        "host": "127.0.0.1",
        "port": 30000,
        "user": "llm",
        "flags": {"chat-template": "a $(b) <c>", "tp-size": 2},
        "env": {"PATH": "/usr/bin", "HF_HUB_OFFLINE": "1", "TZ": "UTC"},
    }
    assert "memlock" in {risk.id for risk in found.risks}


def test_a_process_in_a_container() -> None:
    argv = ["python3", "-m", "sglang.launch_server", "--model-path", "/models/k", "--port", "80"]
    container = Container("x:v0.5.9", [Mount("/data", "/models")], [("", 8000, 80)])
    found = from_process(argv, {"NV_X": "1", "CUDA_VERSION": "13"}, container=container)
    assert found.service is not None
    assert found.service["model"] == {"path": "/data/k", "served_name": "/models/k"}
    assert (found.service["host"], found.service["port"]) == ("0.0.0.0", 8000)
    assert "env" not in found.service


RISKS = [
    ("Type=simple", "type"),
    ("Type=notify", "type-notify"),
    ("Restart=always", "restart-always"),
    ("Restart=always\nRestartSec=10", "restart-limit"),
    ("Restart=on-failure", "restart-pause"),
    ("", "restart-none"),
    ("KillMode=process", "kill-mode"),
    ("KillMode=control-group", "kill-all"),
    ("", "stop-timeout"),
    ("KillSignal=SIGKILL", "kill-signal"),
    ("", "memlock"),
    ("LimitMEMLOCK=64G", "memlock"),
    ("", "nofile"),
    ("MemoryMax=400G", "memory-limit"),
    ("OOMScoreAdjust=-1000", "oom-score"),
    ("User=root", "root"),
    ("PrivateDevices=yes", "devices"),
    ("DeviceAllow=/dev/null", "devices-closed"),
    ("PrivateTmp=yes", "tmp"),
    ("MemoryDenyWriteExecute=yes", "jit"),
    ("Environment=HF_TOKEN=x", "secret-env"),
    ("StandardOutput=append:/var/log/x", "log-file"),
    ("ExecStartPre=/bin/sleep 30", "sleep"),
    ("ExecStartPre=/usr/bin/pkill -9 python", "kill-others"),
    ("EnvironmentFile=-/x", "env-file"),
]


@pytest.mark.parametrize(("setting", "risk"), RISKS)
def test_risks(setting: str, risk: str) -> None:
    text = f"[Unit]\n[Service]\n{setting}\nExecStart={PYTHON}\n"
    assert risk in {one.id for one in take(text).risks}


SAFE = f"""[Unit]
After=network-online.target nvidia-persistenced.service
Wants=network-online.target
RequiresMountsFor=/srv/models/m
StartLimitIntervalSec=20000
StartLimitBurst=3
[Service]
Type=exec
User=llm
ExecStart={PYTHON}
KillMode=mixed
TimeoutStopSec=150
Restart=on-failure
RestartSec=30
LimitMEMLOCK=infinity
LimitNOFILE=1048576
"""


def test_a_careful_unit_has_one_risk_left() -> None:
    assert {one.id for one in take(SAFE).risks} == {"type"}


N = 30_000
LARGE = [
    "api-key" + " " * N + "-",
    "a" * N,
    "a-" * N,
    "-" * N,
    "A=b " * N,
    "$((" * N,
    "${A:-" * N,
    "'" * (N + 1),
    f"{PYTHON} " + "--tp 8 " * N,
    f"{PYTHON} " + "{ " * N,
    f"{PYTHON} --chat-template {{" + "," * N,
    f"{PYTHON} --chat-template " + "[" * N,
    f"{PYTHON} --chat-template eyJ" + "eyJ" * N,
    f"{PYTHON} --chat-template " + "a+" * N,
    "[Service]\nExecStart=" + "a\\\n" * N,
    "[Service]\nExecStart=/x " + "$A " * N,
    "[Service]\nEnvironment=" + "'" * N,
    "services:\n  a: &a {image: x}\n" + "  b: *a\n" * N,
    "services: " + "[" * N,
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", LARGE, ids=lambda text: text[:20])
def test_no_text_takes_long(text: str) -> None:
    """What grows with the square of the text would take hours here."""
    assert take(text).service is None or "--tp" in text or "chat" in text
