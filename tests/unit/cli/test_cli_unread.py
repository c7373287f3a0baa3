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
