"""`opsctl plan`, `opsctl deploy FILE`: exit codes, what is asked of hosts, and what is refused."""

import copy
import json
import time

import pytest

from opsctl.cli import planfiles
from opsctl.errors import OpsctlError

MODEL = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
    "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
    "num_hidden_layers": 61, "num_attention_heads": 64, "num_key_value_heads": 64,
    "hidden_size": 7168, "torch_dtype": "bfloat16",
}  # fmt: skip
GIB = 1 << 30


@pytest.fixture
def planned(cli):
    """Hosts that run nothing yet, with room for what is described."""
    for name, host in cli.hosts.items():
        one = cli.raw["hosts"][name]["sglang_services"]["kimi"]
        one["flags"] = {"tp-size": 8, "hicache-ratio": 4.0, "enable-hierarchical-cache": True}
        one["memory"] = {"calibration": {"kv_tokens": 159277}, "min_available": "32GiB"}
        host.verbs |= {
            "facts": facts(),
            "stage": lambda call: {"changed": True, "diff": "--- a\n+++ b\n+ratio 4.0\n"},
            "lock": {},
            "unlock": {},
            "launch": {},
            "follow": lambda call: iter([{"n": 1, "event": "result", "outcome": "confirmed"}]),
        }
    return cli


def facts(available=449, **state):
    standing = {"service": "kimi", "state": "absent", "release": {}, **state}
    return {
        "model": {"path": "/srv/m", "exists": True, "texts": {"config.json": json.dumps(MODEL)}},
        "memory": {
            "total": 449 * GIB, "available": available * GIB, "swap_total": 0, "swap_used": 0
        },
        "starts": [],
        "standing": standing,
    }  # fmt: skip


def asked(cli, name):
    return [(call.verb, *call.args[:1]) for call in cli.hosts[name].calls]


def plans(cli, path, *more):
    done = cli("plan", "--out", path, *more)
    assert done.exit_code == 0, done.output
    return done


def test_plan_asks_each_host_twice_and_leaves_nothing_there(planned):
    done = planned("plan")
    assert done.exit_code == 0, done.output
    for name in ("h1", "h2"):
        assert asked(planned, name) == [("facts", "--model"), ("stage", "--check")]
    assert "h1 kimi: start: the first release on this host" in done.stdout
    assert "forecast: fits" in done.stdout
    assert planned("plan", "--exit-code").exit_code == 3
    document = json.loads(planned("plan", "-o", "json").stdout)
    assert [step["action"] for step in document["steps"]] == ["swap", "swap"]
    lines = planned("plan", "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line)["host"] for line in lines] == ["h1", "h2"]


def test_deploy_shows_the_same_plan(planned):
    assert planned("plan").stdout == planned("deploy", "--dry-run").stdout
    assert planned("plan").stdout in planned("deploy").stderr
    assert planned("deploy", "--dry-run", "--exit-code").exit_code == 3
    one, other = (planned(*verb, "-o", "json") for verb in (("plan",), ("deploy", "--dry-run")))
    assert json.loads(one.stdout) == json.loads(other.stdout)


def test_the_canary_goes_first(planned):
    document = json.loads(planned("plan", "--canary", "h2", "-o", "json").stdout)
    assert [step["host"] for step in document["steps"]] == ["h2", "h1"]
    assert planned("plan", "--canary", "h9").exit_code == 2


def poor(cli, name):
    cli.hosts[name].verbs["facts"] = facts(300)


def refuses(cli, name, error):
    def no(call):
        raise error

    cli.hosts[name].verbs["facts"] = no


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        ("fits", "lost", 4),
        ("unfit", "fits", 8),
        ("unfit", "lost", 8),
        ("unready", "fits", 1),
        ("unready", "lost", 4),
        ("busy", "fits", 7),
        ("strange", "fits", 1),
    ],
)
def test_all_that_is_wrong_is_told_and_the_gravest_is_the_code(planned, first, second, code):
    for name, what in (("h1", first), ("h2", second)):
        host = planned.hosts[name]
        if what == "lost":
            planned.lose(name)
        elif what == "unfit":
            poor(planned, name)
        elif what == "unready":
            host.verbs["stage"] = {"changed": True, "diff": "", "problems": ["no such user"]}
        elif what == "busy":
            run = {"run": "r1", "active": True, "phase": "soak"}
            host.verbs["facts"] = facts(run=run, state="active")
        elif what == "strange":
            refuses(planned, name, OpsctlError("no python", host=name))
    for verb in (("plan",), ("deploy", "--dry-run"), ("deploy", "--yes")):
        done = planned(*verb)
        assert done.exit_code == code, done.output
        told = done.stdout + done.stderr
        assert "h1" in told and "h2" in told
        assert ("timed out" in told) == (second == "lost")
        assert ("does not fit" in told) == (first == "unfit")
        assert ("no such user" in told) == (first == "unready")
    for name in ("h1", "h2"):
        assert not planned.hosts[name].said("lock")


@pytest.mark.parametrize("verb", [("plan",), ("deploy", "--dry-run")])
def test_what_threatens_a_release_is_told_and_stops_nothing(planned, verb):
    answer = {"changed": True, "diff": "", "warnings": ["user llm has UID 1001"]}
    planned.hosts["h1"].verbs["stage"] = lambda call: answer
    done = planned(*verb)
    assert done.exit_code == 0, done.output
    assert done.stderr.count("warning: h1 kimi: user llm has UID 1001") == 1
    assert "warning: h2" not in done.stderr


def test_an_override_makes_it_possible(planned):
    poor(planned, "h1")
    done = planned("plan")
    assert done.exit_code == 8
    assert "next: opsctl forecast kimi --fit hicache-ratio; or override it: " in done.stderr
    assert "--override-forecast REASON" in done.stderr
    done = planned("plan", "--override-forecast", "owner agreed")
    assert done.exit_code == 0 and "overridden: owner agreed" in done.stdout


@pytest.mark.parametrize("text", ["", "   ", "\t"])
@pytest.mark.parametrize(
    ("verb", "option"),
    [
        ("plan", "--override-forecast"),
        ("deploy", "--override-forecast"),
        ("deploy", "--reason"),
        ("restart", "--reason"),
    ],
)
def test_a_reason_that_says_nothing_is_refused_by_name(planned, verb, option, text):
    done = planned(verb, option, text)
    assert done.exit_code == 2 and f"{option} {text!r} is empty" in done.stderr
    assert not planned.hosts["h1"].calls


def test_a_plan_that_cannot_be_done_is_not_written(planned, tmp_path):
    poor(planned, "h1")
    out = tmp_path / "p.json"
    done = planned("plan", "--out", out)
    assert done.exit_code == 8 and f"not written: {out}" in done.stderr
    assert not out.exists()


def test_a_plan_file_is_carried_out_as_it_was_asked(planned, tmp_path):
    out = tmp_path / "p.json"
    done = plans(planned, out, "--limit", "h1", "--canary", "h1")
    assert f"written: {out}" in done.stderr
    assert out.stat().st_mode & 0o777 == 0o600
    assert {path.name for path in tmp_path.iterdir()} == {"hosts.yml", "p.json"}
    done = planned("deploy", out, "--dry-run")
    assert done.exit_code == 0 and "h2" not in done.stdout
    done = planned("deploy", out, "--yes")
    assert done.exit_code == 0, done.output
    assert len(planned.hosts["h1"].said("launch")) == 1
    assert not planned.hosts["h2"].calls


def test_it_still_asks(planned, tmp_path):
    out = tmp_path / "p.json"
    plans(planned, out)
    done = planned("deploy", out)
    assert done.exit_code == 2 and "there is no terminal to ask on" in done.stderr
    assert not planned.hosts["h1"].said("lock")


def test_the_override_of_a_plan_is_carried_out_with_it(planned, tmp_path):
    poor(planned, "h1")
    out = tmp_path / "p.json"
    plans(planned, out, "--override-forecast", "owner agreed")
    assert planned("deploy", out, "--yes").exit_code == 0
    reason = planned.hosts["h1"].said("launch")[0].json["reason"]
    assert reason.endswith("forecast overridden: owner agreed")


def test_a_stale_plan_ends_with_3_and_tells_how_to_plan_again(planned, tmp_path):
    out = tmp_path / "p.json"
    plans(planned, out, "--limit", "h1,h2", "kimi")
    planned.raw["hosts"]["h2"]["sglang_services"]["kimi"]["flags"]["hicache-ratio"] = 3.0
    planned.hosts["h1"].verbs["facts"] = facts(
        release={"running": "a" * 64, "confirmed": "a" * 64}, state="active"
    )
    done = planned("deploy", out, "--yes")
    assert done.exit_code == 3
    assert "description of kimi on h2: hicache-ratio 4.0 → 3.0" in done.stderr
    assert "on h1 kimi has release aaaaaaaaaaaa in place instead of nothing" in done.stderr
    assert f"next: opsctl plan kimi --limit h1,h2 --out {out}" in done.stderr
    assert not planned.hosts["h1"].said("lock")


@pytest.mark.parametrize("verdict", ["turned", "gone"])
def test_a_host_whose_memory_went_makes_it_stale(planned, tmp_path, verdict):
    out = tmp_path / "p.json"
    plans(planned, out)
    if verdict == "turned":
        poor(planned, "h2")
        said, code = "kimi on h2: the forecast of RAM: fits → does not fit", 3
    else:
        planned.lose("h2")
        said, code = "h2, connect: timed out", 4
    done = planned("deploy", out, "--yes")
    assert done.exit_code == code and said in done.stderr


def test_a_host_more_or_less_makes_it_stale(planned, tmp_path):
    out = tmp_path / "p.json"
    plans(planned, out, "--limit", "gpu")
    planned.raw["hosts"]["h2"]["groups"] = []
    done = planned("deploy", out, "--yes")
    assert done.exit_code == 3 and "kimi on h2: is not selected any more" in done.stderr
    planned.raw["hosts"]["h1"]["groups"] = []
    done = planned("deploy", out, "--yes")
    assert done.exit_code == 3 and "does not hold any more" in done.stderr


def test_an_old_plan_is_refused(planned, tmp_path, monkeypatch):
    out = tmp_path / "p.json"
    plans(planned, out)
    now = time.time()
    monkeypatch.setattr(planfiles.time, "time", lambda: now + 25 * 3600)
    done = planned("deploy", out, "--yes")
    assert done.exit_code == 3 and "was made 1 d 1 h ago, and a plan is good for 1 d" in done.stderr
    assert planned("deploy", out, "--yes", "--max-age", "48h").exit_code == 0
    assert planned("deploy", out, "--yes", "--max-age", "soon").exit_code == 2
    monkeypatch.setattr(planfiles.time, "time", lambda: now - 3600)
    assert planned("deploy", out, "--yes").exit_code == 3


def test_what_is_no_plan_file_is_no_service_either(planned, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").write_text("hello\n")
    (tmp_path / "folder.json").mkdir()
    for name, said in (
        ("missing.json", "there is no file missing.json"),
        ("./missing", "there is no file missing"),
        ("notes", "notes is no plan file"),
        ("folder.json", "cannot read folder.json: Is a directory"),
    ):
        done = planned("deploy", name)
        assert done.exit_code == 2 and said in done.stderr, done.stderr
    (tmp_path / "kimi").mkdir()  # a folder of the service's name is no plan
    assert planned("deploy", "kimi", "--dry-run").exit_code == 0
    done = planned("deploy", "kimi", "notes")
    assert done.exit_code == 2 and "a plan says itself what is deployed" in done.stderr
    for option in (("--limit", "h1"), ("--override-forecast", "x"), ("--canary", "h1")):
        done = planned("deploy", "notes", *option)
        assert done.exit_code == 2 and f"{option[0]} is decided by the plan" in done.stderr


def test_a_plan_that_cannot_be_written_is_refused_before_any_host_is_asked(planned, tmp_path):
    done = planned("plan", "--out", tmp_path / "no" / "such" / "p.json")
    assert done.exit_code == 2 and f"there is no folder {tmp_path}/no/such" in done.stderr
    assert f"next: mkdir -p {tmp_path}/no/such" in done.stderr
    assert not (tmp_path / "no").exists()
    done = planned("plan", "--out", tmp_path)
    assert done.exit_code == 2 and f"{tmp_path} is a folder" in done.stderr
    assert not planned.hosts["h1"].calls


def test_a_plan_is_written_over_an_older_one_and_over_nothing_else(planned, tmp_path):
    mine = tmp_path / "kimi.yml"
    mine.write_text("sglang_services: {}\n")
    done = planned("plan", "--out", mine)
    assert done.exit_code == 2 and "is no plan file: nothing was written" in done.stderr
    assert not planned.hosts["h1"].calls
    assert mine.read_text() == "sglang_services: {}\n"
    for _ in range(2):
        assert planned("plan", "--out", tmp_path / "p.json").exit_code == 0


def test_services_of_one_host_are_judged_as_one(planned):
    """Either fits alone; together they do not."""
    one = planned.raw["hosts"]["h1"]["sglang_services"]
    second = {"port": 30001, "gpus": list(range(8, 16))}
    one["second"] = {**copy.deepcopy(one["kimi"]), **second}
    one["kimi"]["gpus"] = list(range(8))
    planned.hosts["h1"].verbs["facts"] = facts(449)
    assert planned("plan", "kimi", "--limit", "h1").exit_code == 0
    done = planned("plan", "--limit", "h1")
    assert done.exit_code == 8
    assert "h1 kimi: the forecast" in done.stderr and "h1 second: the forecast" in done.stderr
