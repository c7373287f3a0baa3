"""The promise to other programs, and the table for people, from what hosts say."""

import copy
import json
from pathlib import Path

import pytest

from opsctl.cli.console import plain
from opsctl.errors import OpsctlError, Unreachable
from opsctl.views import document, hosts, status

HERE = Path(__file__).parent


@pytest.fixture
def reference():
    return json.loads((HERE / "collect-reference.json").read_text())


def changed(answer, **parts):
    other = copy.deepcopy(answer)
    other["services"][0].update(parts)
    return other


def test_the_reference_deployment_to_the_digit(reference):
    got = document.document({"h1": reference})
    assert got == {
        "schema_version": 1,
        "ok": True,
        "hosts": [
            {
                "host": "h1",
                "reachable": True,
                "services": [
                    {
                        "service": "kimi",
                        "unit": "sglang-kimi.service",
                        "state": "active",
                        "release": "3f9a" * 16,
                        "health": "ok",
                        "ranks": {"expected": 8, "seen": 8},
                        "kv": {"tokens": 159277, "bytes": 11188339998},
                        "host_pools": [
                            {"rank": f"TP{i}", "name": "kv", "bytes": 44770000000} for i in range(8)
                        ],
                        "memory": {
                            "total": 482324827136,
                            "available": 84396106752,
                            "swap_used": 0,
                        },
                        "checks": [
                            {
                                "id": "unit",
                                "status": "pass",
                                "detail": "this start is running, no restarts",
                            },
                            {"id": "ranks", "status": "pass", "detail": "8 of 8 ranks as expected"},
                        ],
                    }
                ],
            }
        ],
    }
    assert json.loads(json.dumps(got)) == got


def test_bytes_are_integers(reference):
    reference["memory"]["available"] = 84396106752.0
    service = document.document({"h1": reference})["hosts"][0]["services"][0]
    assert type(service["memory"]["available"]) is int
    assert all(type(pool["bytes"]) is int for pool in service["host_pools"])


@pytest.mark.parametrize(
    "parts",
    [
        {"state": "failed"},
        {"state": "activating"},
        {"health": "unhealthy"},
        {"health": "unknown"},
        {"checks": [{"id": "memory", "status": "fail", "detail": "x", "evidence": []}]},
        {"start": None},
    ],
)
def test_what_is_not_as_it_should_be_is_not_ok(reference, parts):
    assert document.document({"h1": changed(reference, **parts)})["ok"] is False


def test_an_inconclusive_check_is_no_failure(reference):
    check = {"id": "ranks", "status": "inconclusive", "detail": "no expectation", "evidence": []}
    assert document.document({"h1": changed(reference, checks=[check])})["ok"] is True


def test_a_silent_host_and_one_that_cannot_tell_are_different(reference):
    got = document.document(
        {"h1": reference, "h2": Unreachable("timed out"), "h3": OpsctlError("no python")}
    )
    assert got["ok"] is False
    assert got["hosts"][1] == {
        "host": "h2",
        "reachable": False,
        "error": "timed out",
        "services": [],
    }
    assert got["hosts"][2] == {
        "host": "h3",
        "reachable": True,
        "error": "no python",
        "services": [],
    }


def test_a_rank_without_its_host_pool_is_not_seen(reference):
    ranks = reference["services"][0]["start"]["ranks"]
    ranks["TP3"]["host_pools"] = []
    ranks["TP6"]["kv_tokens"] = None
    del ranks["TP7"]
    service = document.document({"h1": reference})["hosts"][0]["services"][0]
    assert service["ranks"] == {"expected": 8, "seen": 5}
    assert "TP3, TP6, TP7 missing" in status.rows({"h1": reference})[0][-1]


def test_a_unit_of_other_hands_has_no_expected_ranks(reference):
    answer = changed(reference, manifest=None, release={"running": "0", "confirmed": None})
    service = document.document({"h1": answer})["hosts"][0]["services"][0]
    assert service["ranks"] == {"expected": 0, "seen": 8}
    assert service["release"] == "0"
    assert status.rows({"h1": answer})[0][3] == "0 (not by opsctl)"


@pytest.mark.parametrize("state", ["inactive", "failed"])
def test_a_start_that_is_over_holds_nothing(reference, state):
    answer = changed(reference, state=state, health="unknown")
    service = document.document({"h1": answer})["hosts"][0]["services"][0]
    assert service["ranks"] == {"expected": 8, "seen": 0}
    assert (service["kv"]["tokens"], service["host_pools"]) == (None, [])
    assert status.rows({"h1": answer})[0][5:8] == ("0/8", "–", "–")


def test_an_absent_service_has_nothing(reference):
    bare = {"service": "kimi", "unit": "sglang-kimi.service", "state": "absent"}
    reference["services"] = [bare]
    service = document.document({"h1": reference})["hosts"][0]["services"][0]
    assert service["release"] is None
    assert service["health"] == "unknown"
    assert service["kv"] == {"tokens": None, "bytes": None}
    assert service["host_pools"] == []


def test_the_table_of_the_reference_deployment(reference):
    assert plain(status.table({"h1": reference})) == (
        "HOST  SERVICE  STATE   RELEASE                 HEALTH  RANKS  KV TOKENS  HOST POOLS"
        "    AVAILABLE  FOR\n"
        "h1    kimi     active  3f9a3f9a3f9a confirmed  ok      8/8    159,277    8 × 44.77 GB"
        "  78.60 GiB  1 h\n"
    )


def test_the_table_shows_what_an_operator_must_know(reference):
    other = changed(
        reference,
        state="activating",
        restarts=2,
        lock={"owner": "ann@desk", "reason": "ratio 4", "run": "r1", "since": 0},
        run={"run": "r1", "active": True, "phase": "start"},
        release={"running": "b" * 64, "confirmed": "a" * 64, "pending": "b" * 64},
    )
    row = status.rows({"h1": other})[0]
    assert row[3] == "bbbbbbbbbbbb not confirmed"
    assert row[-1] == ("locked by ann@desk: ratio 4; run r1: start; a swap is pending; 2 restarts")


def test_pools_that_differ_are_shown_apart(reference):
    ranks = reference["services"][0]["start"]["ranks"]
    ranks["TP5"]["host_pools"][0]["bytes"] = 40000000000
    ranks["TP5"]["kv_tokens"] = 142000
    row = status.rows({"h1": reference})[0]
    assert row[7] == "7 × 44.77 GB, 1 × 40.00 GB"
    assert row[6] == "142,000 … 159,277"


def test_silent_hosts_have_their_line(reference):
    got = status.rows({"h1": Unreachable("timed\nout"), "h2": OpsctlError("no python")})
    assert [(r[0], r[2], r[-1]) for r in got] == [
        ("h1", "unreachable", "timed out"),
        ("h2", "error", "no python"),
    ]
    assert len({len(r) for r in got}) == 1


@pytest.mark.parametrize(
    ("cards", "told"),
    [
        ([], "–"),
        ([(4, "0000:51:00.0", "lost")], "GPU 4 at 0000:51:00.0 (lost)"),
        ([(-1, "0000:51:00.0", "lost")], "GPU at 0000:51:00.0 (lost)"),
        ([(-1, "", "lost")], "GPU (lost)"),
        (
            [(0, "0000:01:00.0", "untold"), (1, "0000:11:00.0", "lost"), (2, "", "untold")],
            "2 × GPU (untold), GPU 1 at 0000:11:00.0 (lost)",
        ),
    ],
)
def test_a_lost_card_is_told_by_its_place(cards, told):
    assert (
        hosts.gpus({"index": i, "name": "", "bus": bus, "state": state} for i, bus, state in cards)
        == told
    )


def test_the_table_of_hosts(reference):
    reference["gpus"][3]["state"] = "lost"
    said = {"h1": reference, "h2": Unreachable("no route")}
    assert hosts.rows(said, {"h1": "10.0.0.1", "h2": "10.0.0.2"}) == [
        (
            "h1",
            "10.0.0.1",
            "Debian GNU/Linux 12 (bookworm)",
            "7 × NVIDIA RTX PRO 6000 Blackwell, 1 × NVIDIA RTX PRO 6000 Blackwell (lost)",
            "580.95.05",
            "449.20 GiB",
            "78.60 GiB",
            "none used",
            "kimi (active)",
        ),
        ("h2", "10.0.0.2", "unreachable: no route", *["–"] * 6),
    ]
    text = plain(hosts.table(said, {}))
    assert text.splitlines()[0].split() == list(hosts.COLUMNS)
    assert not any(line.endswith(" ") for line in text.splitlines())
