"""`opsctl import`: the description on stdout, talk on stderr, secrets in a 0600 file; and what it
writes is what `config validate` and `render` take, through Ansible itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from opsctl.cli import main

PYTHON = "/opt/sglang/0.5.9/bin/python -m sglang.launch_server"
SCRIPT = f"""#!/bin/bash
MODEL=/srv/models/Kimi-K2.5
export HF_TOKEN=hf_abcdefghijklmn
nohup {PYTHON} --model-path $MODEL --tp 8 --mem-frac 0.88 --api-key a-secret-key-1 \\
  --json-model-override-args '{{"a": "{{{{ x }}}}", "b": "{{% y %}}"}}' > log 2>&1 &
"""


def run(*args: object, input: str | None = None) -> Result:
    return CliRunner(env={"NO_COLOR": "1"}).invoke(
        main.built(), ["import", *map(str, args)], input=input, prog_name="opsctl"
    )


def test_a_script(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(SCRIPT)
    done = run(tmp_path / "run.sh", "--name", "kimi")
    assert done.exit_code == 0, done.stderr
    (name,) = yaml.safe_load(done.stdout.replace("!unsafe ", ""))["sglang_services"]
    assert name == "kimi"
    assert "--mem-frac → mem-fraction-static" in done.stderr
    assert "vault_kimi_api_key" in done.stderr
    assert "a-secret-key-1" not in done.output
    assert "hf_abcdefghijklmn" not in done.output


def test_from_stdin_as_json() -> None:
    done = run("-o", "json", input=SCRIPT)
    found = json.loads(done.stdout)
    assert found["ok"]
    assert found["secrets"] == ["vault_kimi_k2_5_api_key", "vault_kimi_k2_5_hf_token"]
    assert {note["kind"] for note in found["notes"]} >= {"moved", "changed", "dropped"}


def test_secrets_go_to_a_new_file_of_their_own(tmp_path: Path) -> None:
    done = run("--secrets-out", tmp_path / "s.yml", input=SCRIPT)
    assert done.exit_code == 0
    assert (tmp_path / "s.yml").stat().st_mode & 0o777 == 0o600
    assert yaml.safe_load((tmp_path / "s.yml").read_text()) == {
        "vault_kimi_k2_5_api_key": "a-secret-key-1",
        "vault_kimi_k2_5_hf_token": "hf_abcdefghijklmn",
    }
    again = run("--secrets-out", tmp_path / "s.yml", input=SCRIPT)
    assert again.exit_code == 2
    assert "there already" in again.stderr


def test_no_file_is_overwritten_and_nothing_is_half_written(tmp_path: Path) -> None:
    out, secrets = tmp_path / "o.yml", tmp_path / "s.yml"
    out.write_text("mine\n")
    done = run("--out", out, "--secrets-out", secrets, input=SCRIPT)
    assert done.exit_code == 2 and "holds another text" in done.stderr
    assert out.read_text() == "mine\n" and not secrets.exists()
    out.unlink()
    secrets.write_text("mine\n")
    done = run("--out", out, "--secrets-out", secrets, input=SCRIPT)
    assert done.exit_code == 2 and "s.yml is there already" in done.stderr
    assert secrets.read_text() == "mine\n" and not out.exists()
    assert run("--out", out, "--secrets-out", out, input=SCRIPT).exit_code == 2
    assert run("--out", out, "--secrets-out", tmp_path / "no" / "s", input=SCRIPT).exit_code == 2
    assert not out.exists()
    assert run("--out", out, input=SCRIPT).exit_code == 0
    assert run("--out", out, input=SCRIPT).exit_code == 0  # the same text


def test_a_dash_is_standard_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("--out", "-", input=SCRIPT)
    assert done.exit_code == 0 and "sglang_services" in done.stdout
    assert run("--secrets-out", "-", input=SCRIPT).exit_code == 2
    assert not list(tmp_path.iterdir())


def test_the_file_beside_a_compose_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "c.yml").write_text(
        "services:\n  llm:\n    image: lmsysorg/sglang:v0.5.9\n    network_mode: host\n"
        "    volumes: [/srv/m:/srv/m]\n"
        "    command: python3 -m sglang.launch_server --model-path /srv/m --tp ${TP:-8}\n"
    )
    (tmp_path / ".env").write_text("TP=4\n")
    done = run(tmp_path / "c.yml")
    assert "tp-size: 4" in done.stdout, done.stderr
    assert ".env: read" in done.stderr


def test_what_is_refused(tmp_path: Path) -> None:
    done = run("--out", tmp_path / "x.yml", input=f"{PYTHON} --model-path $M")
    assert done.exit_code == 2
    assert "--var M=VALUE" in done.stderr
    assert not (tmp_path / "x.yml").exists()
    answered = run("--var", "M=/srv/m", input=f"{PYTHON} --model-path $M")
    assert answered.exit_code == 0


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["/no/such/file"], "cannot read /no/such/file"),
        (["--var", "x"], "has no ="),
        (["--mount", "x"], "has no :"),
        (["--name", "A b"], "is no name for a service"),
        (["--kind", "pid", "x"], "takes one process by its number"),
        (["--kind", "pid", "999999999"], "cannot read process"),
    ],
)
def test_what_an_operator_gets_wrong(args: list[str], why: str) -> None:
    done = run(*args, input="x")
    assert done.exit_code == 2
    assert why in done.stderr


def test_a_process_of_this_machine() -> None:
    """Its arguments and variables, exactly."""
    code = "import sys, time; print(1, flush=True); time.sleep(60)"
    argv = [sys.executable, "-m", "sglang.launch_server", "--model-path", "/srv/m", "--tp", "2"]
    env = {"HF_HUB_OFFLINE": "1", "PATH": os.defpath}
    shown = f"import os; os.execve({sys.executable!r}, {argv!r}, {env!r})"
    module = f"import runpy, sys; {code}"
    folder = Path(__file__).parent / "nothing"
    assert not folder.exists()
    with subprocess.Popen([sys.executable, "-c", shown], env=env, stderr=subprocess.DEVNULL) as one:
        one.wait(timeout=30)  # there is no such module: it ends, and there is nothing to read
    assert run("--kind", "pid", str(one.pid)).exit_code == 2
    stand_in = [sys.executable, "-c", module, *argv[1:]]
    with subprocess.Popen(stand_in, env=env, stdout=subprocess.PIPE) as one:
        assert one.stdout is not None
        one.stdout.readline()
        done = run("--kind", "pid", str(one.pid), "--engine-version", "0.5.9")
        one.kill()
    assert done.exit_code == 2
    assert "Python's own text" in done.stderr


def test_what_it_writes_is_what_ansible_and_render_take(tmp_path: Path) -> None:
    """Templates in values stay text; the vault's variables are filled in by Ansible."""
    inventory = tmp_path / "inventory"
    (inventory / "group_vars" / "all").mkdir(parents=True)
    (inventory / "hosts.yml").write_text("all: {hosts: {h1: {ansible_host: 192.0.2.1}}}\n")
    described = inventory / "group_vars" / "all" / "kimi.yml"
    vault = inventory / "group_vars" / "all" / "vault.yml"
    done = run("--name", "kimi", "--out", described, "--secrets-out", vault, input=SCRIPT)
    assert done.exit_code == 0, done.stderr

    def opsctl(*args: object) -> Result:
        words = ["-i", str(inventory), *map(str, args)]
        return CliRunner().invoke(main.built(), words, prog_name="opsctl")

    valid = opsctl("config", "validate")
    assert valid.exit_code == 0, valid.output
    rendered = opsctl("render", "--out", tmp_path / "out")
    assert rendered.exit_code == 0, rendered.output
    (unit,) = (tmp_path / "out").rglob("sglang-kimi.service")
    text = unit.read_text()
    assert "--mem-fraction-static=0.88" in text
    assert '{\\"a\\":\\"{{ x }}\\",\\"b\\":\\"{%% y %%}\\"}' in text
    (key,) = (tmp_path / "out").rglob("secrets/api-key")
    assert key.read_text() == "a-secret-key-1"
    digest = text.partition("X-OpsctlRelease=")[2].partition("\n")[0]
    files = [
        f"--file=/etc/opsctl/kimi/releases/{digest}/secrets/{path.name}={path}"
        for path in (tmp_path / "out").rglob("secrets/*")
    ]
    own = run(unit, *files)
    assert own.exit_code == 2
    told = " ".join(own.stderr.split())
    assert f"opsctl's own: release {digest[:12]} of the service kimi" in told
    assert "risk" not in own.stderr
    again = run(unit, "--own", *files)
    assert again.exit_code == 0, again.stderr
    first, second = (
        yaml.safe_load(written.replace("!unsafe ", ""))
        for written in (described.read_text(), again.stdout)
    )
    assert second == first
