"""`opsctl config explain`, what `config validate` tells of flags together, and completion."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from opsctl.cli.main import meant, unbroken

TIER = {"enable-hierarchical-cache": True, "hicache-mem-layout": "page_first_direct"}


def flags(cli, host, **more):
    cli.raw["hosts"][host]["sglang_services"]["kimi"]["flags"] |= {
        name.replace("_", "-"): value for name, value in more.items()
    }


def test_explain_a_flag(cli):
    done = cli("config", "explain", "hicache-mem-layout")
    assert done.exit_code == 0, done.output
    assert "How a page lies in RAM" in done.stdout
    assert "0.5.14: default layer_first → page_first" in done.stdout
    assert "page-first" in done.stdout and "flags.hicache-mem-layout" in done.stdout


def test_explain_says_plainly_what_is_not_explained(cli):
    done = cli("config", "explain", "kt-method", "--version", "0.5.9")
    assert done.exit_code == 0
    assert "no explanation of ours yet" in done.stdout and "SGLang 0.5.9, text" in done.stdout


def test_a_flag_is_typed_with_its_dashes_too(cli):
    done = cli("config", "explain", "--tp-size", "kimi", "--version", "0.5.9", "-o", "json")
    assert done.exit_code == 0, done.output
    [found] = json.loads(done.stdout)["flags"]
    assert found["flag"] == "tp-size" and found["services"]


@pytest.mark.parametrize(
    ("flag", "said", "instead"),
    [("enable-ep-moe", "has ep-size in its place", "ep-size"),
     ("torchao-config", "has nothing in its place", "")],
)  # fmt: skip
def test_a_flag_that_is_gone_names_its_successor(cli, flag, said, instead):
    assert f"SGLang 0.5.23 does not have it, and {said}" in cli("config", "explain", flag).stdout
    [found] = json.loads(cli("config", "explain", flag, "-o", "json").stdout)["flags"]
    assert found["gone"] == {"version": "0.5.23", "instead": instead}


def test_explain_a_flag_at_which_the_parser_ends(cli):
    said = cli("config", "explain", "enable-ep-moe", "--version", "0.5.3").stdout
    assert "nothing: the engine does not start with it" in said
    assert "use --ep-size" in said and "leave it out" in said and "write it as" not in said
    assert "default  " not in said and "0.5.3: a switch → nothing" in said


def test_explain_a_flag_of_services(cli):
    flags(cli, "h1", **TIER)
    done = cli("config", "explain", "hicache-io-backend", "kimi")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert "not set on h1" in next(line for line in lines if line.startswith("kimi"))
    assert "goes on with hicache-io-backend direct" in done.stdout
    assert "not set on h2" in done.stdout
    document = json.loads(cli("config", "explain", "tp-size", "kimi", "-o", "json").stdout)
    [found] = document["flags"]
    assert found["version"] == "0.5.9"
    assert [(use["hosts"], use["value"]) for use in found["services"]] == [(["h1", "h2"], 8)]


def test_explain_keeps_secrets(cli):
    cli.raw["hosts"]["h1"]["sglang_services"]["kimi"]["secrets"] = {"api-key": "canary-5d1e7c"}
    done = cli("config", "explain", "api-key", "kimi")
    assert done.exit_code == 0 and "canary-5d1e7c" not in done.output
    assert "secrets.api-key" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("hicahe-ratio",), "hicache-ratio"),
        (("cuda-graph-bs", "--version", "0.5.23"), "0.5.2 to 0.5.19"),
        (("cuda-graph-bs", "--version", "0.5.23"), "cuda-graph-bs-decode is in its place"),
        (("enable-ep-moe", "--version", "0.5.23"), "ep-size is in its place"),
        (("torchao-config", "--version", "0.5.23"), "nothing that the engine names"),
        (("tp-size", "--versoin", "0.5.9"), "there is no option --versoin"),
        (("tp-size", "--version", "0.4.0"), "opsctl catalog add 0.4.0"),
    ],
)
def test_wrong_names_and_versions(cli, words, said):
    done = cli("config", "explain", *words)
    assert done.exit_code == 2 and said in done.stderr


def test_validate_refuses_what_the_engine_would(cli):
    flags(cli, "h1", enable_hierarchical_cache=True, disable_radix_cache=True)
    done = cli("config", "validate")
    assert done.exit_code == 2
    assert "host h1, service kimi, key flags.enable-hierarchical-cache" in done.stderr
    assert "SGLang 0.5.9 would refuse to start: the tier keeps the nodes" in done.stderr


# (key, value, what is told): right as a description, and nothing that a unit or secret can be.
UNWRITABLE = [
    ("secrets.api-key", "a b c d e f g h", "a key may hold visible ASCII characters only"),
    ("secrets.api-key", "short", "a secret of less than 8 characters"),
    ("secrets.env.HF_TOKEN", "x" * 200_000, "it is 200000 bytes long"),
    ("secrets.api-key", "srv-models-kimi", "the secret also stands elsewhere"),
    ("model.path", "/srv/a\tb", "cannot hold the control character U+0009"),
    ("engine.root", "/opt/a$b", "a program's path cannot hold a $"),
    ("env.FOO", "x" * 200_000, "it is 200004 bytes long"),
    ("flags.speculative-draft-model-path", "/a/../b", "must not hold . or .. as a part"),
]


@pytest.mark.parametrize(("key", "value", "said"), UNWRITABLE)
def test_validate_refuses_what_render_refuses(cli, tmp_path, key, value, said):
    for host in cli.raw["hosts"].values():
        kimi = host["sglang_services"]["kimi"]
        kimi["model"]["served_name"] = "srv-models-kimi"
        part, _, name = key.rpartition(".")
        for word in part.split("."):
            kimi = kimi.setdefault(word, {})
        kimi[name] = value
    done, written = cli("config", "validate"), cli("render", "--out", tmp_path / "out")
    assert (done.exit_code, written.exit_code) == (2, 2)
    assert f"host h1, h2, service kimi, key {key}: " in done.stderr and said in done.stderr
    assert said in written.stderr
    assert not key.startswith("secrets") or value not in done.stderr


def test_validate_tells_what_is_wrong_with_the_roles_variables(cli):
    wrong = {"message": "is no variable of any role", "key": "host_openfiles"}
    cli.raw["roles"] = [wrong | {"host": host} for host in ("h1", "h2")]
    done = cli("config", "validate")
    assert done.exit_code == 2
    assert "host h1, h2, key host_openfiles: is no variable of any role" in done.stderr
    assert "h1" not in cli("config", "validate", "--limit", "h2").stderr


def test_validate_notes_what_the_engine_would_rewrite(cli):
    flags(cli, "h1", **TIER, speculative_algorithm="EAGLE3")
    done = cli("config", "validate")
    assert done.exit_code == 0, done.output
    assert "note: " in done.stderr
    assert "goes on with hicache-io-backend direct" in done.stderr
    assert "goes on with max-running-requests 48" in done.stderr
    document = json.loads(cli("config", "validate", "-o", "json").stdout)
    assert document["ok"] and not any(one["grave"] for one in document["problems"])


# Completion, as shells ask for it: typer's own scripts, in a process of its own.


def bash(words: list[str]) -> dict[str, str]:
    """bash breaks words at "=", and typer's script hands them over a line each."""
    at = str(len(words) - 1)
    return {"_OPSCTL_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words), "COMP_CWORD": at}


def fish(words: list[str]) -> dict[str, str]:
    told = {"_TYPER_COMPLETE_ARGS": " ".join(words), "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    return {"_OPSCTL_COMPLETE": "complete_fish", **told}


def complete(asked: dict[str, str], folder: Path) -> list[str]:
    program = "import sys; sys.argv = ['opsctl']; from opsctl.cli.entry import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin", **asked},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.stdout.split()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "kimi.yml").write_text(
        'kimi:\n  engine:\n    version: "0.5.9"\n  model:\n    path: /srv/m\n'
    )
    return tmp_path


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["opsctl", "config", "explain", "hicache-i"], ["hicache-io-backend"]),
        (["opsctl", "config", "explain", "--version", "0.5.9", "cuda-graph-m"],
         ["cuda-graph-max-bs"]),
        (["opsctl", "config", "explain", "x", "--version", "0.5.2"],
         ["0.5.23", "0.5.22", "0.5.21", "0.5.20", "0.5.2"]),
        (["opsctl", "forecast", "kimi.yml", "--set", "cuda-graph-m"], ["cuda-graph-max-bs="]),
        (["opsctl", "forecast", "other.yml", "--set", "cuda-graph-max-bs"],
         ["cuda-graph-max-bs-decode=", "cuda-graph-max-bs-prefill="]),
        (["opsctl", "forecast", "kimi.yml", "--set", "hicache-io-backend", "=", "k"],
         ["kernel", "kernel_ascend"]),
        (["opsctl", "forecast", "kimi.yml", "--set", "enable-hierarchical-cache", "=", ""],
         ["true", "false"]),
        (["opsctl", "forecast", "kimi.yml", "--set", "x", "=", "3", "--fit", "hicache-s"],
         ["hicache-size"]),
        (["opsctl", "conf"], ["config"]),
    ],
)  # fmt: skip
def test_completion_in_bash(words, offered, folder):
    assert complete(bash(words), folder) == offered


# (file, its text, what is typed before, the word, what is offered)
INVENTORIES = [
    ("inventory/group_vars/all.yml", 'sglang_services:\n  k:\n    engine: {version: "0.5.3"}\n',
     [], "enable-deepep-", ["enable-deepep-moe"]),
    ("inventory/group_vars/all.yml", "# version: 0.5.3\nsglang_version: 0.5.9\n",
     [], "nsa-p", ["nsa-prefill-backend", "nsa-prefill-cp-mode"]),
    ("hosts.yml", '{"all": {"vars": {"s": {"engine": {"version": "0.5.9"}}}}}',
     ["-i", "hosts.yml"], "nsa-d", ["nsa-decode-backend"]),
    ("inventory/hosts.yml", "version: 550.54.14\n", [], "nsa-p", []),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "before", "word", "offered"), INVENTORIES)
def test_completion_knows_the_services_releases(name, text, before, word, offered, tmp_path):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text)
    words = ["opsctl", *before, "config", "explain", word]
    assert complete(bash(words), tmp_path) == offered


def test_completion_in_a_shell_that_keeps_words_whole(folder):
    words = ["opsctl", "forecast", "kimi.yml", "--set", "hicache-io-backend=k"]
    offered = ["hicache-io-backend=kernel", "hicache-io-backend=kernel_ascend"]
    assert complete(fish(words), folder) == offered


def test_only_the_verb_is_loaded_that_is_completed(monkeypatch):
    monkeypatch.setenv("_OPSCTL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "opsctl\nconfig\nexplain\nhi")
    monkeypatch.setenv("COMP_CWORD", "3")
    assert meant([]) == ("config",)
    monkeypatch.setenv("COMP_WORDS", "opsctl\nconf")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert len(meant([])) > 10


@pytest.mark.parametrize(
    ("words", "whole", "key"),
    [
        (["o", "--set", "a", "=", "b"], ["o", "--set", "b"], "a"),
        (["o", "--set", "a", "="], ["o", "--set", ""], "a"),
        (["o", "--set", "a", "=", "b", "--set", "c"], ["o", "--set", "a=b", "--set", "c"], ""),
        (["o", "--set", "a=b"], ["o", "--set", "a=b"], ""),
        (["o", ""], ["o", ""], ""),
    ],
)
def test_bash_breaks_words_at_equal_signs(words, whole, key):
    assert unbroken(words) == (whole, key)
