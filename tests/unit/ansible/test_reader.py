"""The reader play, run by the real ansible-playbook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opsctl.paths import share

GROUP = """\
sglang_services:
  kimi:
    model: {{path: /srv/models/Kimi-K2.5, served_name: "{{{{ inventory_hostname }}}}-kimi"}}
    engine: {{version: "0.5.9"}}
    port: "{{{{ 30000 + 1 }}}}"
    flags:
      hicache-ratio: "{{{{ ratio }}}}"
      trust-remote-code: true
      peers: "{{{{ groups['kimi'] | map('extract', hostvars, 'ansible_host') | list }}}}"
    secrets:
      api-key: {secret}
"""
HOSTS = """\
kimi:
  hosts:
    h1: {ansible_host: 192.0.2.11, ratio: 4.0, ansible_user: "{{ who }}", who: ops}
    h2:
      ansible_host: 192.0.2.12
      sglang_overrides: {kimi: {flags: {hicache-ratio: 3}}}
      RATIO
"""


def tool(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def inventory(folder: Path, *, ratio: str = "ratio: 2.5", secret: str = "plain") -> Path:
    (folder / "group_vars").mkdir()
    (folder / "group_vars" / "kimi.yml").write_text(GROUP.format(secret=secret))
    (folder / "hosts.yml").write_text(HOSTS.replace("RATIO", ratio))
    return folder / "hosts.yml"


def read(path: Path, *more: str, **env: str) -> tuple[subprocess.CompletedProcess[str], Any]:
    out = path.parent / "out.json"
    done = subprocess.run(
        [tool("ansible-playbook"), "-i", str(path), "read.yml", *more],
        cwd=share() / "playbooks",
        env={**os.environ, "OPSCTL_READ_OUT": str(out), "ANSIBLE_NOCOLOR": "1", **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done, json.loads(out.read_text()) if out.exists() else None


def test_templates_are_filled_in_per_host_and_types_kept(tmp_path: Path) -> None:
    done, found = read(inventory(tmp_path))
    assert done.returncode == 0, done.stdout
    h1, h2 = found["hosts"]["h1"], found["hosts"]["h2"]
    # ssh_args of ansible.cfg (here the repository's own) may hold the jump to every host.
    assert "ControlMaster=auto" in h1["vars"].pop("ansible_ssh_args")
    assert h1["vars"] == {"ansible_host": "192.0.2.11", "ansible_user": "ops"}
    assert h1["groups"] == ["kimi"]
    kimi = h1["sglang_services"]["kimi"]
    assert (kimi["port"], kimi["flags"]["hicache-ratio"]) == (30001, 4.0)
    assert kimi["flags"]["peers"] == ["192.0.2.11", "192.0.2.12"]
    assert h2["sglang_services"]["kimi"]["model"]["served_name"] == "h2-kimi"
    assert h2["sglang_services"]["kimi"]["flags"]["hicache-ratio"] == 2.5
    assert h2["sglang_overrides"] == {"kimi": {"flags": {"hicache-ratio": 3}}}


def test_what_is_no_port_is_told_of_its_host_and_the_rest_is_read(tmp_path: Path) -> None:
    path = inventory(tmp_path, ratio="ratio: 2.5\n      ansible_port: abc")
    done, found = read(path)
    assert done.returncode == 2
    said = " ".join(done.stdout.replace("''", "'").split())  # YAML's form of it in 2.18
    assert "host h2, key ansible_port: is no port (value: 'abc'); allowed: 1 to 65535" in said
    assert [(p["host"], p["key"]) for p in found["unread"]] == [("h2", "ansible_port")]
    assert found["hosts"]["h1"]["vars"]["ansible_host"] == "192.0.2.11"
    assert "ansible_port" not in found["hosts"]["h2"]["vars"]


def test_origins_and_sources(tmp_path: Path) -> None:
    _, found = read(inventory(tmp_path))
    group = tmp_path / "group_vars" / "kimi.yml"
    assert found["sources"] == sorted([str(group), str(tmp_path / "hosts.yml")])
    origins = found["hosts"]["h2"]["origins"]
    assert origins["sglang_services.kimi.flags.hicache-ratio"] == f"{group}:7"
    assert origins["sglang_overrides.kimi.flags.hicache-ratio"] == f"{tmp_path}/hosts.yml:6"


def test_the_document_is_for_its_owner_only_and_no_log_shows_it(tmp_path: Path) -> None:
    done, found = read(inventory(tmp_path, secret="CANARY-1"), "-vvv")
    assert found["hosts"]["h1"]["sglang_services"]["kimi"]["secrets"]["api-key"] == "CANARY-1"
    assert (tmp_path / "out.json").stat().st_mode & 0o777 == 0o600
    assert "CANARY" not in done.stdout + done.stderr


def test_vault_values_are_decrypted_and_not_templated(tmp_path: Path) -> None:
    word = tmp_path / "word"
    word.write_text("opens")
    secret = subprocess.run(
        [tool("ansible-vault"), "encrypt_string", "--vault-password-file", str(word), "A{{ x }}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    path = inventory(tmp_path, secret=secret.replace("\n", "\n        "))
    _, found = read(path, "--vault-password-file", str(word))
    assert found["hosts"]["h1"]["sglang_services"]["kimi"]["secrets"]["api-key"] == "A{{ x }}"
    done, found = read(path)
    assert done.returncode != 0
    assert {p["key"] for p in found["unread"]} == {"sglang_services.kimi.secrets.api-key"}
    assert "vault" in found["unread"][0]["message"]
    kimi = found["hosts"]["h1"]["sglang_services"]["kimi"]  # the rest can be judged
    assert (kimi["secrets"]["api-key"], kimi["port"]) == ("(not read)", 30001)


def test_an_undefined_variable_names_host_key_file_and_variable(tmp_path: Path) -> None:
    done, found = read(inventory(tmp_path, ratio="unused: 1", secret="CANARY-2"))
    assert done.returncode == 2
    (problem,) = found["unread"]
    assert problem["host"] == "h2"
    assert problem["key"] == "sglang_services.kimi.flags.hicache-ratio"
    assert problem["file"] == f"{tmp_path}/group_vars/kimi.yml:7"
    assert "'ratio' is undefined" in problem["message"]
    assert "host h2, key sglang_services.kimi.flags.hicache-ratio" in done.stdout
    assert "CANARY" not in done.stdout + done.stderr


def test_limit_is_ansibles_own(tmp_path: Path) -> None:
    _, found = read(inventory(tmp_path, ratio="unused: 1"), "--limit", "kimi:!h2")
    assert list(found["hosts"]) == ["h1"]


def test_settings_beside_the_inventory_count(tmp_path: Path) -> None:
    _, found = read(
        inventory(tmp_path), ANSIBLE_PRIVATE_KEY_FILE="/keys/ops", ANSIBLE_REMOTE_USER="x"
    )
    assert found["hosts"]["h1"]["vars"]["ansible_user"] == "ops"
    assert found["hosts"]["h2"]["vars"]["ansible_user"] == "x"
    assert found["hosts"]["h2"]["vars"]["ansible_ssh_private_key_file"] == "/keys/ops"
    _, found = read(tmp_path / "hosts.yml", "-u", "boss")
    assert found["hosts"]["h2"]["vars"]["ansible_user"] == "boss"


def test_an_inventory_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text("kimi: {hosts: {h1: [")
    done, found = read(path)
    assert done.returncode != 0
    assert found is None


@pytest.mark.parametrize("name", ["describe", "read", "rollout", "stage", "verify"])
def test_without_opsctl_the_message_says_so(tmp_path: Path, name: str) -> None:
    shim = share() / "playbooks" / "action_plugins" / f"opsctl_{name}.py"
    hide = "import runpy, sys; sys.modules['opsctl'] = None; runpy.run_path(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", hide, str(shim)], capture_output=True, text=True, check=False
    )
    assert "opsctl cannot be imported by" in done.stderr
    assert "install opsctl into that environment" in done.stderr
