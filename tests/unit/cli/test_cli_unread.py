"""Values that Ansible cannot read: who needs them is refused, and nobody else."""

import json

import pytest

from opsctl import inventory
from opsctl.errors import SpecError


def gap(host, key, message="'vault_key' is undefined"):
    return {"message": message, "host": host, "key": key, "file": "group_vars/all.yml:7"}


@pytest.fixture
def gaps(cli):
    """The key of kimi is in a variable that nobody defined, on both hosts."""
    key = "sglang_services.kimi.secrets.api-key"
    for host in cli.raw["hosts"].values():
        host["sglang_services"]["kimi"]["secrets"] = {"api-key": "(not read)"}
    cli.raw["unread"] = [gap(host, key) for host in ("h1", "h2")]
    return cli


def test_validate_tells_all_the_rest_too(gaps):
    services = gaps.raw["hosts"]["h2"]["sglang_services"]
    services["kimi"]["portt"] = 1
    services["qwen"] = {**services["kimi"], "gpus": [0, 1]}
    done = gaps("config", "validate")
    assert done.exit_code == 2
    for words in ("'vault_key' is undefined", "portt", "is the port of kimi too", "is unset"):
        assert words in done.stderr
    said = json.loads(gaps("config", "validate", "-o", "json").stdout)
    assert [p["host"] for p in said["problems"] if "undefined" in p["message"]] == ["h1, h2"]


def test_a_value_that_is_not_there_is_not_judged(cli):
    cli.raw["hosts"]["h1"]["sglang_services"]["kimi"]["port"] = None
    cli.raw["unread"] = [gap("h1", "sglang_services.kimi.port")]
    done = cli("config", "validate")
    assert done.stderr.count("kimi") == 1 and "undefined" in done.stderr


def test_explain_needs_no_secret(gaps):
    done = gaps("config", "explain", "tp-size", "kimi")
    assert done.exit_code == 0, done.output
    gaps.raw["unread"].append(gap("h1", "sglang_services.kimi.flags.tp-size"))
    done = gaps("config", "explain", "tp-size", "kimi")
    assert done.exit_code == 2 and "flags.tp-size" in done.stderr


def test_a_forecast_needs_no_secret_and_knows_hosts_first(gaps):
    done = gaps("forecast", "kimi", "--limit", "nope")
    assert done.exit_code == 2
    assert "nope" in done.stderr and "vault_key" not in done.stderr
    assert "vault_key" not in gaps("forecast", "kimi").output


def test_who_needs_secrets_is_refused(gaps):
    with pytest.raises(SpecError, match="vault_key"):
        inventory.must_be_read(gaps.raw)
    with pytest.raises(SpecError, match="vault_key"):
        inventory.must_be_read(gaps.raw, ["h1"], "kimi")
    inventory.must_be_read(gaps.raw, ["h3"])
    inventory.must_be_read(gaps.raw, ["h1"], "qwen")
    assert gaps("config", "show").exit_code == 2


@pytest.mark.parametrize("verb", ["status", "doctor", "plan", "render --out x", "hosts", "verify"])
def test_a_host_that_is_not_meant_keeps_nobody_out(cli, tmp_path, verb):
    """Its port is none: `opsctl … --limit` the others goes on, and all of them does not."""
    told = "is no port"
    cli.raw["unread"] = [gap("h2", "ansible_port", told)]
    words = [str(tmp_path / "x") if word == "x" else word for word in verb.split()]
    done = cli(*words, "--limit", "h2")
    assert done.exit_code == 2 and "host h2, key ansible_port: is no port" in done.stderr
    assert told in cli(*words).stderr
    assert told not in cli(*words, "--limit", "h1").stderr


def test_services_that_a_gap_hides_are_not_left_out_in_silence(cli):
    cli.raw["hosts"]["h2"]["sglang_services"] = None
    cli.raw["unread"] = [gap("h2", "sglang_services")]
    assert "key sglang_services" in cli("status").stderr
    assert "key sglang_services" in cli("status", "--limit", "h2").stderr
    assert cli("status", "--limit", "h1").exit_code == 0
