"""deploy, render, config, lab: from a description to hosts, folders and tables."""

import base64
import copy
import json
from pathlib import Path

import pytest

from opsctl import lab
from opsctl.errors import OpsctlError

CANARY = "canary-5d1e7c"
REFERENCE = json.loads(
    (Path(__file__).parent.parent / "views" / "collect-reference.json").read_text()
)


def collected(name):
    return {**copy.deepcopy(REFERENCE), "host": name}


@pytest.fixture
def described(cli):
    """Hosts that take releases; the descriptions hold a secret."""
    for name in cli.hosts:
        one = cli.raw["hosts"][name]["sglang_services"]["kimi"]
        one["secrets"] = {"api-key": CANARY}
        one["flags"] = {"tp-size": 8, "hicache-ratio": 4.0, "enable-hierarchical-cache": True}
        cli.hosts[name].verbs |= {
            "facts": {"standing": collected(name)["services"][0]},
            "stage": lambda call: {
                "changed": True,
                "digest": call.json["digest"],
                "restart": True,
                "diff": "--- a\n+++ b\n-ratio 2.0\n+ratio 4.0\n",
            },
            "lock": {},
            "unlock": {},
            "launch": {},
            "follow": lambda call: iter([{"n": 1, "event": "result", "outcome": "confirmed"}]),
        }
    return cli


def verbs(cli, name):
    return [call.verb for call in cli.hosts[name].calls if call.verb != "collect"]


def test_deploy_plans_and_asks_before_anything_stays_on_a_host(described):
    done = described("deploy")
    assert done.exit_code == 2
    assert "h1 kimi: restart: " in done.stderr
    assert "  -ratio 2.0\n  +ratio 4.0\n" in done.stderr
    # once for what is described, once for the other model that stands there
    assert verbs(described, "h1") == ["facts", "facts", "stage"]
    assert described.hosts["h1"].said("stage")[0].args == ("--check",)


def test_deploy_stages_under_the_lock_and_runs(described):
    done = described("deploy", "--yes", "--limit", "h1")
    assert done.exit_code == 0, done.output
    assert verbs(described, "h1") == [
        "facts", "facts", "stage", "lock", "stage", "launch", "follow", "unlock",
    ]  # fmt: skip
    assert described.hosts["h1"].said("stage")[1].args == ()
    run = described.hosts["h1"].said("launch")[0].json
    assert run["op"] == "swap"
    assert run["target"] == described.hosts["h1"].said("stage")[1].json["digest"]
    assert verbs(described, "h2") == []


def test_deploy_shows_no_secret_anywhere(described):
    for arguments in (["--dry-run"], ["--yes"], ["--yes", "-o", "json"], ["--yes", "--debug"]):
        done = described("deploy", "--limit", "h1", *arguments)
        assert CANARY not in done.output
    told = [call for host in described.hosts.values() for call in host.calls]
    assert not any(CANARY in " ".join(call.args) for call in told)


def test_deploy_refuses_a_wrong_description_before_any_host(described):
    described.raw["hosts"]["h1"]["sglang_services"]["kimi"]["flags"]["hicache-ration"] = 2
    done = described("deploy", "--yes")
    assert done.exit_code == 2
    assert "hicache-ration" in done.stderr
    assert "hicache-ratio" in done.stderr
    assert CANARY not in done.output
    assert not described.hosts["h1"].calls
    assert not described.hosts["h2"].calls


def test_deploy_of_one_host_does_not_mind_another_ones_mistake(described):
    described.raw["hosts"]["h2"]["sglang_services"]["kimi"]["port"] = 0
    assert described("deploy", "--yes", "--limit", "h1").exit_code == 0


def test_a_host_that_cannot_be_asked_stops_a_deployment(described):
    described.lose("h2")
    done = described("deploy", "--yes")
    assert done.exit_code == 4
    assert "launch" not in verbs(described, "h1")


def unfit(described, *names):
    """Their forecasts do not fit: the flags make more ranks than there are GPUs of a huge model."""
    for name in names or described.hosts:
        facts = described.hosts[name].verbs["facts"]
        described.hosts[name].verbs["facts"] = {**facts, **TOO_LITTLE}


TOO_LITTLE = {
    "model": {"path": "/srv/m", "exists": True, "texts": {"config.json": json.dumps(
        {
            "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
            "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
            "v_head_dim": 128, "num_hidden_layers": 61, "num_attention_heads": 64,
            "num_key_value_heads": 64, "hidden_size": 7168, "torch_dtype": "bfloat16",
        }
    )}},
    "memory": {"total": 40 << 30, "available": 30 << 30, "swap_total": 0, "swap_used": 0},
    "gpus": [
        {"index": n, "name": "NVIDIA RTX PRO 6000", "state": "ok", "memory_total": 97887 << 20}
        for n in range(8)
    ],
    "starts": [],
}  # fmt: skip


def _why(said: str) -> str:
    return said.partition("does not fit: ")[2].partition("next:")[0]


@pytest.mark.parametrize("limit", [["--limit", "h1"], []])
def test_what_does_not_fit_ends_with_8_and_changes_nothing(described, limit):
    calibrate(described)
    unfit(described)
    done = described("deploy", "--yes", *limit)
    assert done.exit_code == 8, done.output
    assert "of the forecast" not in done.stderr and "does not fit: " in done.stderr
    assert "too little, " in done.stderr and " -" not in _why(done.stderr)
    assert "next: opsctl forecast kimi; or" in done.stderr  # the processes alone are too many
    for name in ("h1", "h2"):
        assert "lock" not in verbs(described, name)
        assert all(call.args == ("--check",) for call in described.hosts[name].said("stage"))
        assert (name in done.stderr) == (name == "h1" or not limit)


def calibrate(described):
    for one in described.raw["hosts"].values():
        one["sglang_services"]["kimi"]["memory"] = {"calibration": {"kv_tokens": 159277}}


def test_a_forecast_that_was_overridden_is_told_and_recorded(described):
    calibrate(described)
    unfit(described, "h1")
    override = ("--limit", "h1", "--override-forecast", "a test")
    done = described("deploy", "--dry-run", *override)
    assert done.exit_code == 0, done.output
    assert "overridden: a test" in done.stdout
    done = described("deploy", "--yes", "--reason", "why not", *override)
    assert done.exit_code == 0, done.output
    (lock,) = described.hosts["h1"].said("lock")
    reason = "why not; forecast overridden: a test"
    assert lock.args[lock.args.index("--reason") + 1] == reason
    assert described.hosts["h1"].said("launch")[0].json["reason"] == reason
    files = described.hosts["h1"].said("stage")[-1].json["files"]
    (manifest,) = [
        json.loads(base64.b64decode(f["b64"])) for f in files if f["path"] == "release.json"
    ]
    assert manifest["expect"]["override"] == "a test"


def test_render_writes_files_by_host_and_asks_no_host(described, tmp_path):
    out = tmp_path / "out"
    done = described("render", "--out", out)
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{out}/h1/kimi\n{out}/h2/kimi\n"
    unit = (out / "h1" / "kimi" / "sglang-kimi.service").read_text()
    assert "--hicache-ratio=4.0" in unit
    assert CANARY not in unit
    assert not described.hosts["h1"].calls
    only = described("render", "h2", "--out", tmp_path / "two", "-o", "json")
    releases = json.loads(only.stdout)["releases"]
    assert [release["host"] for release in releases] == ["h2"]
    assert "sglang-kimi.service" in releases[0]["files"]


def test_render_needs_a_folder(described):
    done = described("render")
    assert done.exit_code == 2
    assert "--out" in done.stderr


def test_config_show_masks_secrets_and_tells_origins(described):
    described.raw["hosts"]["h1"]["origins"] = {"sglang_services.kimi.flags.tp-size": "a.yml:7"}
    done = described("config", "show", "--limit", "h1", "--origin")
    assert done.exit_code == 0, done.output
    assert CANARY not in done.output
    rows = {line.split()[2]: line.split()[3:] for line in done.stdout.splitlines()[1:]}
    assert rows["flags.tp-size"] == ["8", "a.yml:7"]
    assert rows["secrets.api-key"][0] == "********"
    assert rows["host"] == ["127.0.0.1", "default"]
    assert "ORIGIN" not in described("config", "show").stdout
    values = json.loads(described("config", "show", "kimi", "-o", "json").stdout)["values"]
    assert {value["host"] for value in values} == {"h1", "h2"}
    assert CANARY not in json.dumps(values)


def test_config_show_tells_text_from_numbers(described):
    described.raw["hosts"]["h1"]["sglang_services"]["kimi"]["env"] = {"A": "1", "B": "text"}
    text = described("config", "show", "--limit", "h1").stdout
    rows = {line.split()[2]: line.split()[3] for line in text.splitlines()[1:]}
    assert rows["env.A"] == '"1"'
    assert rows["env.B"] == "text"


def test_config_validate(described):
    done = described("config", "validate")
    assert (done.exit_code, done.stdout) == (0, "2 services are right on 2 hosts\n")
    described.raw["hosts"]["h2"]["sglang_services"]["kimi"]["portt"] = 1
    done = described("config", "validate")
    assert done.exit_code == 2
    assert "portt" in done.stderr
    assert "1 problem found." in done.stderr
    document = json.loads(described("config", "validate", "-o", "json").stdout)
    assert document["ok"] is False
    assert document["problems"][0]["host"] == "h2"
    assert document["problems"][0]["grave"] is True


def test_config_of_an_unknown_service(described):
    assert described("config", "show", "kimmi").exit_code == 2


def test_lab_up_prints_only_the_inventory(cli, monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(
        lab, "up", lambda count, version: asked.append((count, version)) or tmp_path
    )
    done = cli("lab", "up", 3)
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path}\n")
    assert asked == [(3, "0.5.9")]
    assert cli("lab", "up", 0).exit_code == 2
    assert cli("lab", "up", 51).exit_code == 2


def test_lab_ssh_passes_everything_on(cli, monkeypatch):
    asked = []
    monkeypatch.setattr(lab, "ssh", lambda host, command: asked.append((host, command)) or 3)
    done = cli("lab", "ssh", "h1", "free", "-h", "--total")
    assert done.exit_code == 3
    assert asked == [("h1", ["free", "-h", "--total"])]


@pytest.mark.parametrize("verb", ["mend", "freeze", "thaw", "kill", "stop", "start"])
def test_lab_drills(cli, monkeypatch, verb):
    asked = []
    monkeypatch.setattr(lab, "drill", lambda *given: asked.append(given))
    assert cli("lab", verb, "h2").exit_code == 0
    assert asked == [(verb, "h2")]


def test_lab_cut_scenario_status_down(cli, monkeypatch):
    asked = []
    monkeypatch.setattr(lab, "drill", lambda *given: asked.append(given))
    monkeypatch.setattr(lab, "scenario", lambda *given: asked.append(given))
    monkeypatch.setattr(lab, "down", lambda: asked.append("down"))
    monkeypatch.setattr(lab, "status", lambda: "h1 up\n")
    assert cli("lab", "cut", "h1", "drop").exit_code == 0
    assert cli("lab", "cut", "h1").exit_code == 0
    assert cli("lab", "cut", "h1", "sideways").exit_code == 2
    assert cli("lab", "scenario", "h1", "odd-rank").exit_code == 0
    assert cli("lab", "down").exit_code == 0
    assert cli("lab", "status").stdout == "h1 up\n"
    assert asked == [
        ("cut", "h1", "drop"), ("cut", "h1", "down"), ("h1", "odd-rank"), "down",
    ]  # fmt: skip


def test_a_lab_that_cannot_be_booted_says_why(cli, monkeypatch):
    def fail(count, version):
        raise OpsctlError("needs root", hint="sudo opsctl lab up 1")

    monkeypatch.setattr(lab, "up", fail)
    done = cli("lab", "up", 1)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "error: needs root\nnext: sudo opsctl lab up 1\n"


def test_the_shipped_files_are_found(cli):
    done = cli("config", "paths", "-o", "json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)["paths"]
    assert (Path(found["playbooks"]) / "deploy.yml").is_file()
    assert (Path(found["inventory"]) / "example").is_dir()
    assert "playbooks" in cli("config", "paths").stdout
