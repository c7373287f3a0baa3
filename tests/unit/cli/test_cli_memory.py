"""`opsctl memory`: one read of each host, and how the command ends."""

import copy
import json


def kimi(cli, name):
    cli.hosts[name].verbs["collect"] = copy.deepcopy(cli.hosts[name].verbs["collect"])
    return cli.hosts[name].verbs["collect"]["services"][0]


def test_each_host_is_read_once(cli):
    done = cli("memory", "kimi")
    assert done.exit_code == 0, done.output
    for host in cli.hosts.values():
        assert [(c.verb, c.args) for c in host.calls] == [
            ("collect", ("--service", "kimi", "--memory"))
        ]
    assert "h1 kimi: release " in done.stdout and "8 of 8 ranks, as forecast" in done.stdout
    assert done.stdout.count("each of TP0 … TP7") == 2 and "44.77 GB" in done.stdout
    document = json.loads(cli("memory", "-o", "json").stdout)
    ranks = document["hosts"][1]["services"][0]["ranks"]
    assert document["ok"] and [rank["rank"] for rank in ranks] == [f"TP{n}" for n in range(8)]


def test_a_rank_beyond_its_forecast_ends_with_1(cli):
    detail = "TP3 has 150,000 tokens, expected 159,277"
    check = {"id": "ranks", "status": "fail", "detail": detail, "evidence": []}
    kimi(cli, "h2")["checks"] = [check]
    done = cli("memory")
    assert done.exit_code == 1
    assert "h2 kimi: release" in done.stdout and "NOT as forecast" in done.stdout
    assert f"h2 kimi: {detail}" in done.stderr and "next: opsctl logs kimi" in done.stderr
    document = json.loads(cli("memory", "-o", "json").stdout)
    assert document["ok"] is False


def test_a_host_that_is_lost_keeps_nobody_from_seeing_the_other(cli):
    cli.lose("h2")
    done = cli("memory")
    assert done.exit_code == 4 and "h1 kimi: release" in done.stdout
    document = json.loads(cli("memory", "-o", "json").stdout)
    assert (document["hosts"][1]["reachable"], document["ok"]) == (False, False)


def test_what_does_not_run_holds_nothing(cli):
    kimi(cli, "h1")["state"] = "inactive"
    done = cli("memory", "--limit", "h1")
    assert done.exit_code == 0
    assert "h1 kimi: inactive" in done.stdout and "nothing is logged or held" in done.stdout
