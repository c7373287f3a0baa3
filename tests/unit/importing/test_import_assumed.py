"""What a text leaves open and gives a default for, and the file that docker compose reads unasked:
each is told, and each has a way to say another value."""

from __future__ import annotations

from typing import Any

import pytest

from opsctl.importing import Asked, compose, dotenv, from_text
from opsctl.importing.marks import mark

PYTHON = "/opt/sglang/0.5.9/bin/python -m sglang.launch_server --model-path /srv/m"
DOCKER = "docker run --network host -v /srv/m:/srv/m"
COMPOSE = """\
services:
  llm:
    image: lmsysorg/sglang:${TAG:-v0.5.9}
    network_mode: host
    volumes: ["/srv/m:/srv/m"]
    environment: ["NCCL_DEBUG"]
    command: python3 -m sglang.launch_server --model-path /srv/m --tp ${TP:-8} --port ${PORT}
"""


def take(text: str, **asked: Any) -> Any:
    return from_text([("", text)], asked=Asked(**asked))


def told(imported: Any) -> str:
    return "\n".join(f"{note.what}: {note.why}" for note in imported.notes)


@pytest.mark.parametrize(
    ("text", "name", "default"),
    [
        (f"{PYTHON} --tp ${{TP:-8}}", "TP", "8"),
        (f"TP=${{TP:-8}}; {PYTHON} --tp $TP", "TP", "8"),
        (f": ${{TP:=8}}\n{PYTHON} --tp $TP", "TP", "8"),
        (f"{PYTHON} --port ${{1:-30004}}", "1", "30004"),
        (f"{PYTHON} ${{EXTRA:-}}", "EXTRA", "nothing"),
        (f"{PYTHON} ${{EXTRA:---tp 2 --dp 2}}", "EXTRA", "--tp 2 --dp 2"),
        (f"bash -c '{PYTHON} --tp ${{TP:-8}}'", "TP", "8"),
        (
            f"{DOCKER} img:v0.5.9 bash -c '{PYTHON} --tp ${{TP:-8}}'",
            "TP",
            "8",
        ),
        (
            f"{DOCKER} img:${{TAG:-v0.5.9}} {PYTHON}",
            "TAG",
            "v0.5.9",
        ),
    ],
)
def test_a_default_is_told(text: str, name: str, default: str) -> None:
    found = take(text)
    assert found.service is not None, found.problems
    assert f"{name} is not set in the text: its default is taken: {default};" in told(found)
    assert f"--var {name}=VALUE" in told(found)


def test_what_is_given_or_never_reaches_the_engine_is_not_told() -> None:
    found = take(f"{PYTHON} --tp ${{TP:-8}}", variables={"TP": "4"})
    assert found.service["flags"]["tp-size"] == 4 and "its default" not in told(found)
    assert "its default" not in told(take(f"mkdir ${{LOGS:-/var/log/x}}\n{PYTHON}"))


def test_a_secret_that_is_a_default_is_told_without_it() -> None:
    found = take(f"{PYTHON} --api-key ${{K:-canary-key-77}}")
    assert "K is not set in the text" in told(found) and "canary-key-77" not in told(found)
    assert set(found.secrets.values()) == {"canary-key-77"}
    found = take(f"export HF_TOKEN=${{HF_TOKEN:-canary}}\n{PYTHON}")
    assert "HF_TOKEN is not set" in told(found) and "canary" not in told(found)


def test_compose_reads_the_file_beside_it() -> None:
    found = take(COMPOSE, files={".env": "TP=4\nPORT='30007'\nNCCL_DEBUG=WARN # why\n"})
    assert found.service["port"] == 30007 and found.service["flags"]["tp-size"] == 4
    assert found.service["env"] == {"NCCL_DEBUG": "WARN"}
    assert ".env: read, as docker compose reads it: it sets TP, PORT, NCCL_DEBUG" in told(found)
    assert "TAG is not set in the text: its default is taken: v0.5.9" in told(found)
    over = take(COMPOSE, files={".env": "TP=4\nPORT=1\nNCCL_DEBUG=x"}, variables={"PORT": "30009"})
    assert over.service["port"] == 30009


def test_compose_without_the_file_beside_it() -> None:
    found = take(COMPOSE, variables={"PORT": "30007", "NCCL_DEBUG": "INFO"})
    assert found.service["flags"]["tp-size"] == 8
    assert "TP is not set in the text" in told(found)
    assert "--file .env=COPY" in told(found)


def test_the_lines_of_a_dotenv() -> None:
    text = "# no\nexport A=1\nB = two words # tail\nC='a # $A'\nD=\"x$A\"\nE=${A}2\nF=\nbroken\n"
    text += 'G="two\nlines \\"q\\""\nH: 1\nI=\'it\\\'s\'\n'
    found = dotenv.quoted(text, {}, lambda value, known: compose._interpolated(value, known, {}))
    assert found == {
        "A": "1", "B": "two words", "C": "a # $A", "D": "x1", "E": "12", "F": "",
        "broken": mark("variable", "broken"), "G": 'two\nlines "q"', "H": "1", "I": "it's",
    }  # fmt: skip


def test_docker_reads_such_a_file_as_it_stands() -> None:
    text = "# no\nA='1'\n  B=2 # tail\nC\nD\n\nexport E=1\n"
    assert dotenv.plain(text, {"C": "c"}) == {
        "A": "'1'", "B": "2 # tail", "C": "c", "D": mark("variable", "D"), "export E": "1",
    }  # fmt: skip


def test_a_variable_that_docker_takes_from_whoever_calls_it() -> None:
    text = f"{DOCKER} -e HF_TOKEN img:v0.5.9 {PYTHON}"
    assert take(text).service is None
    found = take(text, variables={"HF_TOKEN": "hf_canary_0123"})
    assert set(found.secrets.values()) == {"hf_canary_0123"}


@pytest.mark.parametrize(
    "pair",
    ["DBPWD=canary-1", "DB_PW=canary-1", "DBPW=canary-1", "MY_CREDS=canary-1", "CRED_X=canary-1",
     "SGLANG_API=sk-canary1"],
)  # fmt: skip
def test_short_names_of_secrets(pair: str) -> None:
    found = take(f"{pair} {PYTHON}")
    assert list(found.secrets.values()) == [pair.partition("=")[2]]
    assert "canary" not in told(found) and "env" not in found.service


@pytest.mark.parametrize("pair", ["PACKAGE=sk-learn", "SACRED_ORDER=yes", "PWDX=1"])
def test_names_that_only_look_like_them(pair: str) -> None:
    assert not take(f"{pair} {PYTHON}").secrets
