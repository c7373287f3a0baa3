"""The gates: what passes, what fails, what cannot be judged."""

import json
from typing import Any

import pytest

from opsctl.onhost import gates
from opsctl.onhost.model import FAIL, INCONCLUSIVE, PASS, RankFacts, StartFacts
from opsctl.onhost.probes import Answer

GIB = 1 << 30
NAMES = [f"TP{n}" for n in range(8)]
RUNNING = {
    "ActiveState": "active",
    "SubState": "running",
    "Result": "success",
    "NRestarts": "0",
    "InvocationID": "inv",
}


def facts(**changed: Any) -> StartFacts:
    """The reference start: eight ranks, ratio 4.0."""
    found = StartFacts(invocation="inv", ready=True)
    for name in NAMES:
        found.ranks[name] = RankFacts(
            name,
            kv_tokens=159277,
            kv_bytes=round(10.42 * GIB),
            host_pools=[{"name": "kv", "bytes": 44_770_000_000, "tokens": None}],
        )
    for key, value in changed.items():
        setattr(found, key, value)
    return found


def manifest(**changed: Any) -> dict[str, Any]:
    pool = {"name": "kv", "bytes_per_token": 70272, "ratio": 4.0, "size": None, "page": 1}
    return {
        "engine": {"version": "0.5.9"},
        "flags": {"enable-hierarchical-cache": True},
        "ranks": NAMES,
        "expect": {
            "kv": {"tokens": 159277, "min": 159190, "max": 159360, "bytes_per_token": 70272},
            "host_pools": [pool],
        },
        **changed,
    }


# -- ranks ---------------------------------------------------------------------------------------


def test_eight_of_eight_as_expected() -> None:
    check = gates.ranks(manifest(), facts())
    assert check.status == PASS
    assert "8 of 8 ranks: 159,277 tokens (10.42 GiB), host pools 44.77 GB" in check.detail
    assert len(check.evidence) == 8


def test_silent_ranks_are_named() -> None:
    found = facts()
    for name in ("TP3", "TP6", "TP7"):
        del found.ranks[name]
    check = gates.ranks(manifest(), found)
    assert check.status == FAIL
    assert check.detail.startswith("TP3, TP6, TP7 missing")


def test_the_evidence_begins_with_the_ranks_that_differ() -> None:
    found = facts()
    del found.ranks["TP5"]
    found.ranks["TP6"].kv_tokens = 151_200
    lines = gates.ranks(manifest(), found).evidence
    assert [line.partition(":")[0] for line in lines[:3]] == ["TP5", "TP6", "TP0"]
    assert lines[0] == "TP5: nothing logged" and len(lines) == len(NAMES)


def test_a_rank_without_a_host_pool_is_named() -> None:
    found = facts()
    found.ranks["TP5"].host_pools = []
    check = gates.ranks(manifest(), found)
    assert check.status == FAIL and "TP5 missing: no host pool" in check.detail


def test_without_the_tier_no_host_pool_is_asked_for() -> None:
    found = facts()
    for rank in found.ranks.values():
        rank.host_pools = []
    assert gates.ranks(manifest(flags={}), found).status == PASS


@pytest.mark.parametrize(
    "field, value, named",
    [
        ("kv_tokens", 150000, "tokens differ: TP2 150,000; the others 159,277"),
        ("kv_bytes", 9 * GIB, "bytes differ: TP2 9.00 GiB"),
        (
            "host_pools",
            [{"name": "kv", "bytes": 40_000_000_000, "tokens": None}],
            "host pools differ: TP2 40.00 GB; the others 44.77 GB",
        ),
    ],
)
def test_a_rank_with_another_figure_is_named(field: str, value: Any, named: str) -> None:
    found = facts()
    setattr(found.ranks["TP2"], field, value)
    check = gates.ranks(manifest(), found)
    assert check.status == FAIL and named in check.detail


def test_all_ranks_alike_but_not_as_expected() -> None:
    found = facts()
    for rank in found.ranks.values():
        rank.kv_tokens, rank.kv_bytes = 140000, (140000 * 70272)
        rank.host_pools = [{"name": "kv", "bytes": 39_352_000_000, "tokens": None}]
    check = gates.ranks(manifest(), found)
    assert check.status == FAIL
    assert "140,000 tokens, expected 159,190 to 159,360" in check.detail
    assert "host pool" not in check.detail  # the pool's rule holds for the tokens that there are


def test_the_host_pool_follows_the_logged_tokens_to_the_rounding() -> None:
    found = facts()
    for rank in found.ranks.values():
        rank.host_pools = [{"name": "kv", "bytes": 22_390_000_000, "tokens": None}]
    check = gates.ranks(manifest(), found)
    assert check.status == FAIL
    assert "logged 22.39 GB for host pool kv, expected 44.77 GB" in check.detail
    for size, status in ((44_765_930_000, PASS), (44_776_000_000, FAIL)):
        for rank in found.ranks.values():
            rank.host_pools = [{"name": "kv", "bytes": size, "tokens": None}]
        assert gates.ranks(manifest(), found).status == status


def test_tokens_of_the_host_pool_where_they_are_logged() -> None:
    found = facts()
    for rank in found.ranks.values():
        rank.host_pools = [{"name": "kv", "bytes": 44_770_000_000, "tokens": 637109}]
    assert gates.ranks(manifest(), found).status == PASS
    for rank in found.ranks.values():
        rank.host_pools[0]["tokens"] = 637108
    assert "637,108 tokens" in gates.ranks(manifest(), found).detail


def test_a_pool_more_than_expected() -> None:
    found = facts()
    for rank in found.ranks.values():
        rank.host_pools.append({"name": "draft", "bytes": 1, "tokens": None})
    check = gates.ranks(manifest(), found)
    assert check.status == FAIL and "2 host pools" in check.detail


def test_bytes_that_do_not_fit_the_tokens() -> None:
    found = facts()
    for rank in found.ranks.values():
        rank.kv_bytes = round(5.21 * GIB)  # the KV cache is FP8, nobody expected it
    check = gates.ranks(manifest(), found)
    assert check.status == FAIL and "5.21 GiB of KV cache" in check.detail


@pytest.mark.parametrize(
    "expect, named",
    [
        (None, "no expectation"),
        ({"kv": {"tokens": None, "min": None, "max": None}, "host_pools": []}, ""),
        (
            {
                "kv": {"tokens": None, "min": None, "max": None, "bytes_per_token": 70272},
                "host_pools": None,
            },
            "could not be forecast",
        ),
    ],
)
def test_without_an_expectation_nothing_passes(expect: Any, named: str) -> None:
    check = gates.ranks(manifest(expect=expect), facts())
    assert check.status != PASS
    assert named in check.detail


def test_without_an_expectation_the_ranks_are_still_compared() -> None:
    found = facts()
    del found.ranks["TP7"]
    assert gates.ranks(manifest(expect=None), found).status == FAIL


def test_a_known_most_alone_still_fails_what_is_above_it() -> None:
    kv = {"tokens": 4096, "min": None, "max": 4096, "bytes_per_token": 70272}
    check = gates.ranks(manifest(expect={"kv": kv, "host_pools": None}), facts())
    assert check.status == FAIL and "at most 4,096" in check.detail


def test_ranks_that_nobody_expected() -> None:
    check = gates.ranks(manifest(ranks=NAMES[:4]), facts())
    assert check.status == FAIL and "TP4, TP5, TP6, TP7 logged, but not expected" in check.detail


def test_replicas_and_stages_are_compared_within_themselves() -> None:
    found = StartFacts()
    for name, tokens, size in (
        ("DP0 TP0", 100, 1), ("DP0 TP1", 100, 1), ("DP1 TP0", 90, 1), ("DP1 TP1", 90, 1),
    ):  # fmt: skip
        found.ranks[name] = RankFacts(name, kv_tokens=tokens, kv_bytes=size)
    without = manifest(ranks=list(found.ranks), flags={}, expect=None)
    assert gates.ranks(without, found).status == INCONCLUSIVE
    found.ranks["DP1 TP1"].kv_tokens = 100
    assert gates.ranks(without, found).status == FAIL


# -- unit ----------------------------------------------------------------------------------------


def test_a_running_unit() -> None:
    assert gates.unit(RUNNING, "inv", facts()).status == PASS


@pytest.mark.parametrize(
    "changed, named",
    [
        ({"SubState": "auto-restart", "ActiveState": "activating"}, "ended"),
        ({"ActiveState": "failed", "SubState": "failed", "Result": "exit-code"}, "ended"),
        ({"ActiveState": "activating", "SubState": "start"}, "not active (running)"),
        ({"InvocationID": "other"}, "another invocation"),
        ({"NRestarts": "2"}, "restarted the unit 2 times"),
        ({"Result": "oom-kill"}, "ended"),
    ],
)
def test_a_unit_that_is_not_this_start(changed: dict, named: str) -> None:
    check = gates.unit({**RUNNING, **changed}, "inv", facts())
    assert check.status == FAIL and named in check.detail


def test_a_crash_is_told_while_systemd_still_says_active() -> None:
    dead = facts(dead=True, errors=["torch.OutOfMemoryError: CUDA out of memory. Tried"])
    check = gates.crashed(dead, RUNNING)
    assert check is not None
    assert "a GPU has too little memory: torch.OutOfMemoryError" in check.detail
    assert check.evidence == dead.errors


def test_errors_alone_are_no_crash() -> None:
    assert gates.crashed(facts(errors=["KeyError: 'x'"]), RUNNING) is None


def test_a_silent_end_is_told_with_systemds_words() -> None:
    gone = facts(dead=True, exit="code=killed, status=9/KILL, result=signal")
    check = gates.crashed(gone, {"ActiveState": "failed"})
    assert (
        check is not None and "status=9/KILL" in check.detail and "without a word" in check.detail
    )


# -- health, generation, reasoning, tools --------------------------------------------------------

OK, BUSY, REFUSED = Answer(200), Answer(503), Answer(0, error="Connection refused")


@pytest.mark.parametrize(
    "answers, status",
    [
        ([OK, OK, OK], PASS),
        ([BUSY, OK, OK, OK], PASS),
        ([OK, OK, BUSY], FAIL),
        ([OK, BUSY, OK], FAIL),
        ([OK, OK], FAIL),
        ([], FAIL),
        ([OK, OK, REFUSED], FAIL),
    ],
)
def test_health_in_a_row(answers: list[Answer], status: str) -> None:
    assert gates.health(answers, 3).status == status


def test_health_says_what_came_last() -> None:
    assert "Connection refused" in gates.health([REFUSED]).detail


def completion(text: object = "mo", tokens: object = 8, **more: object) -> Answer:
    body = {"choices": [{"index": 0, "text": text, "finish_reason": "length"}]}
    return Answer(
        200, json.dumps({**body, "usage": {"completion_tokens": tokens}, **more}).encode()
    )


@pytest.mark.parametrize(
    "answer, status",
    [
        (completion(), PASS),
        (completion(text="\ufffd"), PASS),  # a tiny random model: tokens, not sense
        (completion(tokens=0), FAIL),
        (completion(tokens=None), FAIL),
        (completion(text=None), FAIL),
        (Answer(200, b""), FAIL),
        (Answer(200, b'{"choices": []}'), FAIL),
        (Answer(200, b"[1]"), FAIL),
        (Answer(500, b"Internal"), FAIL),
        (Answer(400, b'{"object":"error","message":"The input is longer"}'), FAIL),
        (Answer(0, error="no whole answer within 120 s"), FAIL),
    ],
)
def test_generation(answer: Answer, status: str) -> None:
    check = gates.generation(answer)
    assert check.status == status
    assert check.detail


def test_a_generation_that_hangs_says_so() -> None:
    check = gates.generation(Answer(0, error="no whole answer within 120 s"))
    assert "no whole answer within 120 s" in check.detail


def chat(finish: str = "stop", **message: object) -> Answer:
    return Answer(
        200, json.dumps({"choices": [{"message": message, "finish_reason": finish}]}).encode()
    )


@pytest.mark.parametrize(
    "answer, status",
    [
        (chat(reasoning_content="hm", content="42"), PASS),
        (chat(reasoning_content="", content="42"), FAIL),
        (chat(reasoning_content=None, content="<think>hm</think>42"), FAIL),
        (chat(reasoning_content="hm", content=None), FAIL),
        (chat("length", reasoning_content="hm", content=None), INCONCLUSIVE),
        (chat(content="42"), FAIL),
        (Answer(503), FAIL),
    ],
)
def test_reasoning(answer: Answer, status: str) -> None:
    assert gates.reasoning(answer).status == status


def call(name: str = "get_weather", arguments: object = '{"city": "Paris"}') -> list[dict]:
    return [{"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}]


@pytest.mark.parametrize(
    "answer, status, named",
    [
        (chat("tool_calls", content=None, tool_calls=call()), PASS, "parsed"),
        (chat("stop", tool_calls=call()), FAIL, "finish_reason"),
        (chat("tool_calls", tool_calls=call("weather")), FAIL, "names 'weather'"),
        (chat("tool_calls", tool_calls=call(arguments='{"city": ')), FAIL, "no JSON"),
        (chat("tool_calls", tool_calls=call(arguments="{}")), FAIL, "lack the city"),
        (chat("tool_calls", tool_calls=call(arguments=None)), FAIL, "no JSON"),
        (chat("tool_calls", tool_calls=["x"]), FAIL, "names None"),
        (
            chat("stop", content="<|tool_calls_section_begin|>functions.get_weather:0"),
            FAIL,
            "stands raw",
        ),
        (chat("stop", content="It is sunny.", tool_calls=None), FAIL, "no tool call"),
        (chat("stop", content=""), FAIL, "no tool call"),
        (chat("length", content="I think", tool_calls=[]), INCONCLUSIVE, "max_tokens"),
    ],
)
def test_tools(answer: Answer, status: str, named: str) -> None:
    check = gates.tools(answer)
    assert check.status == status and named in check.detail


def test_an_answer_cannot_draw_on_the_terminal() -> None:
    check = gates.generation(completion(text="\x1b[2J\x1b]0;x\x07evil"))
    assert check.evidence == ['"evil"']


# -- memory, soak --------------------------------------------------------------------------------

MEMORY = {"total": 449 * GIB, "available": 78 * GIB, "swap_total": 0, "swap_used": 0}
RULES = {"min_available": 32 * GIB, "swap": "forbid"}


def test_enough_memory() -> None:
    check = gates.memory(MEMORY, RULES, [], [])
    assert check.status == PASS and "78.00 GiB available of 449.00 GiB" in check.detail


@pytest.mark.parametrize(
    "meminfo, rules, status",
    [
        ({"available": 32 * GIB}, {}, PASS),
        ({"available": 32 * GIB - 1}, {}, FAIL),
        ({"swap_used": 4096}, {}, FAIL),
        ({"swap_used": 4096}, {"swap": "allow"}, PASS),
    ],
)
def test_thresholds(meminfo: dict, rules: dict, status: str) -> None:
    assert gates.memory({**MEMORY, **meminfo}, {**RULES, **rules}, None, []).status == status


@pytest.mark.parametrize(
    "processes, gpus, status",
    [
        ([{"gpu": 0, "pid": 11, "memory": GIB}], None, PASS),
        ([{"gpu": 0, "pid": 99, "memory": GIB}], None, FAIL),
        ([{"gpu": 7, "pid": 99, "memory": GIB}], [0, 1], PASS),  # a neighbour's card
        ([{"gpu": -1, "pid": 99, "memory": GIB}], [0, 1], FAIL),  # on an unknown card
        ([{"gpu": 0, "pid": 0, "memory": 0}], None, PASS),  # the driver hides it
    ],
)
def test_strangers_on_our_gpus(processes: list, gpus: Any, status: str) -> None:
    check = gates.memory(MEMORY, RULES, processes, [11, 12], gpus)
    assert check.status == status
    if status == FAIL:
        assert any("process 99" in line for line in check.evidence)


def sample(**changed: Any) -> dict[str, Any]:
    return {
        "active": True,
        "invocation": "inv",
        "available": 78 * GIB,
        "swap_used": 0,
        "healthy": True,
        **changed,
    }


@pytest.mark.parametrize(
    "samples, status",
    [
        ([sample(), sample(), sample()], PASS),
        ([sample(), sample(healthy=False), sample()], PASS),
        ([sample(), sample(healthy=False), sample(healthy=False), sample()], FAIL),
        ([sample(), sample(healthy=False)], FAIL),
        ([sample(), sample(invocation="other")], FAIL),
        ([sample(), sample(active=False), sample()], FAIL),
        ([sample(), sample(available=GIB)], FAIL),
        ([], INCONCLUSIVE),
    ],
)
def test_soak(samples: list, status: str) -> None:
    assert gates.soak(samples, 32 * GIB, 30.0).status == status


def test_the_order_is_the_designs() -> None:
    assert gates.ORDER == (
        "unit", "ranks", "health", "generation", "reasoning", "tools", "memory", "soak",
    )  # fmt: skip


HELD = {"running": "a" * 64, "confirmed": "a" * 64, "edited": False}
LOADED = {"Id": "sglang-kimi.service", "ActiveState": "active", "NeedDaemonReload": "no"}


@pytest.mark.parametrize(
    ("release", "show", "said"),
    [
        ({}, {}, ""),
        ({}, {"DropInPaths": "/usr/lib/systemd/system/service.d/10-vendor.conf"}, ""),
        ({}, {"DropInPaths": "/etc/systemd/system/sglang-kimi.service.d/x.conf"}, "x.conf"),
        ({"edited": True, "running": "0"}, {}, "edited by hand"),
        ({"running": None}, {}, "the unit file is gone"),
        ({}, {"NeedDaemonReload": "yes"}, "systemctl daemon-reload"),
    ],
)
def test_a_hand_on_the_unit_is_seen(release: dict, show: dict, said: str) -> None:
    check = gates.drift({**HELD, **release}, {**LOADED, **show})
    assert (check.status == FAIL) == bool(said)
    assert said in check.detail
