"""status, hosts, verify, logs: what they print, what they ask hosts, and how they end."""

import copy
import json
import os
import signal
import time

import pytest
import yaml

from opsctl.errors import OpsctlError, Unreachable

KEYS = {
    "service", "unit", "state", "release", "health", "ranks", "kv", "host_pools", "memory",
    "checks",
}  # fmt: skip


def check(name, status, detail="x", evidence=()):
    return {"id": name, "status": status, "detail": detail, "evidence": list(evidence)}


def change(cli, name, **parts):
    answer = copy.deepcopy(cli.hosts[name].verbs["collect"])
    answer["services"][0].update(parts)
    cli.hosts[name].verbs["collect"] = answer


def test_status_is_one_line_a_service(cli):
    done = cli("status")
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    assert [line.split()[:3] for line in done.stdout.splitlines()] == [
        ["HOST", "SERVICE", "STATE"],
        ["h1", "kimi", "active"],
        ["h2", "kimi", "active"],
    ]
    assert [call.args for call in cli.hosts["h1"].calls] == [("--probe",)], "one round trip"
    assert cli.hosts["h1"].closed
    cli("status", "kimi", "--limit", "h2")
    assert cli.hosts["h2"].calls[-1].args == ("--service", "kimi", "--probe")


def test_status_for_programs_keeps_the_interface(cli):
    done = cli("status", "-o", "json")
    document = json.loads(done.stdout)
    assert list(document) == ["schema_version", "ok", "hosts"]
    assert document["ok"] is True
    for host in document["hosts"]:
        assert list(host) == ["host", "reachable", "services"]
        assert set(host["services"][0]) == KEYS
    assert yaml.safe_load(cli("status", "-o", "yaml").stdout) == document
    lines = [json.loads(line) for line in cli("status", "-o", "jsonl").stdout.splitlines()]
    assert [line["host"] for line in lines] == ["h1", "h2"]
    assert all(line["schema_version"] == 1 for line in lines)


def test_options_count_before_and_after_the_verb(cli):
    before = cli("-o", "json", "--limit", "h2", "status")
    after = cli("status", "--limit", "h2", "-o", "json")
    assert before.stdout == after.stdout
    assert [h["host"] for h in json.loads(after.stdout)["hosts"]] == ["h2"]
    assert cli("-o", "json", "status", "-o", "text").stdout.startswith("HOST")


def test_a_silent_host_is_shown_and_ends_with_4(cli):
    cli.lose("h2")
    done = cli("status", "-o", "json")
    assert done.exit_code == 4
    document = json.loads(done.stdout)
    assert document["ok"] is False
    silent = {"host": "h2", "reachable": False, "error": "timed out", "services": []}
    assert document["hosts"][1] == silent
    assert document["hosts"][0]["reachable"] is True
    assert done.stderr == "error: h2, connect: timed out\n"


def test_several_silent_hosts_are_all_named(cli):
    cli.lose("h1")
    cli.lose("h2")
    done = cli("hosts")
    assert done.exit_code == 4
    assert done.stderr.splitlines() == [
        "error: 2 of 2 hosts gave no answer, or refused",
        "  h1: timed out",
        "  h2: timed out",
    ]
    assert done.stdout.count("unreachable: timed out") == 2


def test_a_host_that_cannot_tell_ends_with_1(cli):
    cli.hosts["h2"].verbs["collect"] = OpsctlError("no Python interpreter", step="collect")
    done = cli("status")
    assert done.exit_code == 1
    assert "error: h2, collect: no Python interpreter" in done.stderr


def test_an_unknown_service_names_what_there_is(cli):
    done = cli("status", "kimmi")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "no service kimmi" in done.stderr
    assert "did you mean kimi?" in done.stderr
    assert not cli.hosts["h1"].calls


def test_an_unknown_host_names_what_there_is(cli):
    done = cli("status", "--limit", "h3")
    assert done.exit_code == 2
    assert "there is: h1, h2, gpu" in done.stderr


def test_an_inventory_that_is_not_there_is_named(cli, tmp_path):
    done = cli("status", "-i", tmp_path / "nope")
    assert done.exit_code == 2
    assert f"there is no inventory at {tmp_path / 'nope'} (given with -i)" in done.stderr


def test_hosts_without_services_are_hosts(cli):
    cli.raw["hosts"]["h2"]["sglang_services"] = {}
    cli.hosts["h2"].verbs["collect"] = {**cli.hosts["h2"].verbs["collect"], "services": []}
    assert "h2" in cli("hosts").stdout
    assert "h2" not in cli("status").stdout


def gates(status):
    def verify(call):
        passed = [check(name, "pass") for name in ("unit", "ranks", "health", "generation")]
        return {"checks": [*passed, check("memory", status, "31.0 GiB available", ["free: …"])]}

    return verify


def test_verify_shows_gates_and_the_four_lines(cli):
    for host in cli.hosts.values():
        host.verbs["verify"] = gates("pass")
    done = cli("verify", "--limit", "h1")
    assert done.exit_code == 0, done.output
    assert "GPU KV cache: 159,277 tokens × 8 GPUs (10.42 GiB per GPU)" in done.stdout
    assert "RAM: 370 GiB used of 449, 78 GiB available, no swap" in done.stdout
    assert [c.verb for c in cli.hosts["h1"].calls] == ["verify", "collect", "facts"]


def test_verify_tells_what_is_known_to_go_wrong_and_still_passes(cli):
    cli.hosts["h1"].verbs["verify"] = gates("pass")
    done = cli("verify", "--limit", "h1")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    first = next(n for n, line in enumerate(lines) if "hicache-scheduler-memory-grows" in line)
    assert lines[first].startswith("! warn hicache-scheduler-memory-grows: Entries of the radix")
    assert first < next(n for n, line in enumerate(lines) if line.startswith("GPU KV cache:"))
    told = json.loads(cli("verify", "-o", "json", "--limit", "h1").stdout)
    known = {a["id"]: a for a in told["hosts"][0]["services"][0]["advisories"]}
    assert known["hicache-scheduler-memory-grows"]["severity"] == "warn"
    assert known["hicache-scheduler-memory-grows"]["reference"]
    assert "hicache-ratio-and-size" not in known


def test_verify_does_not_hide_gates_of_a_host_that_cannot_tell_its_facts(cli):
    cli.hosts["h1"].verbs["verify"] = gates("pass")
    cli.hosts["h1"].verbs["facts"] = OpsctlError("the model's folder cannot be read")
    done = cli("verify", "--limit", "h1")
    assert done.exit_code == 0, done.output
    assert "no advisories: the model's folder cannot be read" in done.stdout
    told = json.loads(cli("verify", "-o", "json", "--limit", "h1").stdout)
    assert "advisories" not in told["hosts"][0]["services"][0]


def test_verify_ends_with_1_if_a_check_fails(cli):
    for host in cli.hosts.values():
        host.verbs["verify"] = gates("fail")
    done = cli("verify", "-o", "json", "--limit", "h1")
    assert done.exit_code == 1
    document = json.loads(done.stdout)
    assert document["ok"] is False
    assert document["hosts"][0]["services"][0]["checks"][-1] == {
        "id": "memory",
        "status": "fail",
        "detail": "31.0 GiB available",
    }
    assert "h1 kimi: memory: 31.0 GiB available" in done.stderr
    assert "│ free: …" in cli("verify", "--limit", "h1").stdout


def test_verify_passes_what_is_inconclusive_and_says_so(cli):
    cli.hosts["h1"].verbs["verify"] = gates("inconclusive")
    done = cli("verify", "--limit", "h1")
    assert done.exit_code == 0
    assert "?  memory" in done.stdout


@pytest.mark.parametrize("manifest", [None, {"digest": "0", "ranks": [], "gates": {}}])
def test_verify_does_not_pass_a_unit_of_other_hands_and_shows_its_figures(cli, manifest):
    cli.hosts["h1"].verbs["verify"] = lambda call: {"checks": [check("unit", "pass")]}
    change(cli, "h1", manifest=manifest)
    done = cli("verify", "--limit", "h1")
    assert done.exit_code == 1
    assert "release: not deployed by opsctl" in done.stderr
    assert "GPU KV cache: 159,277 tokens × 8 GPUs" in done.stdout


def test_verify_tells_an_unreachable_host_from_a_failed_check(cli):
    cli.hosts["h1"].verbs["verify"] = gates("fail")
    cli.lose("h2")
    assert cli("verify").exit_code == 4


RECORDS = [
    {"time": 1772409908000000, "text": "[2026-03-01 23:45:08 TP0] a", "pid": 1, "source": "python"},
    {
        "time": 1772409908000000,
        "text": "[2026-03-01 23:45:08 TP3] b\x1b[2J",
        "pid": 2,
        "source": "",
    },
]


def logging(cli, *names):
    for name in names or ("h1", "h2"):
        cli.hosts[name].verbs["logs"] = lambda call: iter(RECORDS)


def test_logs_shows_this_start(cli):
    logging(cli)
    done = cli("logs", "kimi", "--host", "h1", "-n", 5)
    assert done.exit_code == 0, done.output
    assert done.stdout == "[2026-03-01 23:45:08 TP0] a\n[2026-03-01 23:45:08 TP3] b␛[2J\n"
    assert cli.hosts["h1"].said("logs")[0].args == ("kimi", "--lines", "5")
    assert cli.hosts["h1"].closed


def test_logs_of_several_hosts_name_them(cli):
    logging(cli)
    assert [line.split()[0] for line in cli("logs", "kimi").stdout.splitlines()] == [
        "h1", "h1", "h2", "h2",
    ]  # fmt: skip


def test_logs_filters_see_every_line(cli):
    logging(cli, "h1")
    done = cli("logs", "kimi", "--host", "h1", "--rank", "TP3", "-n", 1, "-o", "jsonl")
    assert [json.loads(line)["rank"] for line in done.stdout.splitlines()] == ["TP3"]
    assert cli.hosts["h1"].said("logs")[0].args == ("kimi", "--lines", "0")
    none = cli("logs", "kimi", "--host", "h1", "--grep", "nothing")
    assert none.stdout == ""
    assert "no line of kimi" in none.stderr


def test_logs_refuses_a_bad_pattern(cli):
    done = cli("logs", "kimi", "--grep", "(")
    assert done.exit_code == 2
    assert "--grep (" in done.stderr


def test_logs_follow_ends_at_ctrl_c_and_closes_the_stream(cli):
    closed = []

    def endless(call):
        try:
            yield from RECORDS
            time.sleep(0.3)  # until both lines are shown
            os.kill(os.getpid(), signal.SIGINT)
            while True:
                time.sleep(0.02)
                yield RECORDS[0]
        finally:
            closed.append(call.args)

    cli.hosts["h1"].verbs["logs"] = endless
    done = cli("logs", "kimi", "--host", "h1", "-f")
    assert done.exit_code == 0, done.output
    assert closed == [("kimi", "--lines", "100", "--follow")]
    assert cli.hosts["h1"].closed
    assert done.stdout.startswith("[2026-03-01 23:45:08 TP0] a\n")


def test_logs_follow_says_when_a_host_is_lost(cli):
    def cut(call):
        yield RECORDS[0]
        raise Unreachable("connection lost", host="h1", step="logs")

    cli.hosts["h1"].verbs["logs"] = cut
    done = cli("logs", "kimi", "--host", "h1", "-f")
    assert done.exit_code == 4
    assert done.stdout.count("\n") == 1
    assert "connection lost" in done.stderr


def test_verify_names_the_service_whose_logs_to_read(cli):
    cli.hosts["h1"].verbs["verify"] = gates("fail")
    assert "next: opsctl logs kimi\n" in cli("verify", "--limit", "h1").stderr
