"""Whatever a journal, a host or an engine says: the reader answers, and harmlessly."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from opsctl.onhost import gates, hostfacts, journal, records
from opsctl.onhost.model import FAIL, INCONCLUSIVE, PASS, Record
from opsctl.onhost.probes import Answer

PIECES = st.sampled_from(
    [
        "[2026-03-01 23:45:08 TP1] ",
        "[2026-03-01 23:45:08] ",
        "Load weight end. elapsed=1.00 s, avail mem=21.71 GB",
        "Load weight begin. avail mem=",
        "KV Cache is allocated. #tokens: 9, K size: 1.00 GB, V size: 1.00 GB",
        "KV Cache is allocated. ",
        "Allocating 44.77 GB host memory for hierarchical KV cache.",
        "Allocating kv hierarchical KV host pool: 9 tokens, 1.00 GB host memory.",
        "Scheduler hit an exception: Traceback (most recent call last):",
        "ValueError: x",
        "Main process exited, code=killed, status=9/KILL",
        "Failed with result 'signal'",
        "server_args=ServerArgs(api_key='CANARY'",
        "Capture cuda graph begin",
        "\r",
        "\n",
        "\x1b[31m",
        "\x1b]52;c;",
        "\x9b",
        "99999999999999999999",
        "-1.0.0 GB",
    ]
)
TEXT = st.lists(PIECES | st.text(max_size=20), max_size=12).map("".join)
MESSAGE = TEXT | st.binary(max_size=60).map(list) | st.none() | st.lists(TEXT, max_size=3)


@given(st.lists(MESSAGE, max_size=12))
@settings(max_examples=300, deadline=None)
def test_any_journal_is_read(messages: list) -> None:
    lines = [json.dumps({"MESSAGE": m, "_PID": str(n % 3)}) for n, m in enumerate(messages)]
    reading = journal.Reading()
    for record in records.parse_export(lines):
        assert not any((ord(c) < 0x20 and c != "\t") or 0x7F <= ord(c) < 0xA0 for c in record.text)
        assert "CANARY'" not in record.text
        reading.feed(record)
    json.dumps(reading.facts.as_json())
    gates.crashed(reading.facts, {"ActiveState": "active"})


@given(st.lists(TEXT, max_size=12), st.integers(0, 2))
@settings(max_examples=200, deadline=None)
def test_facts_from_events_equal_facts_from_records(texts: list[str], pid: int) -> None:
    found = [
        Record(n, part, pid, "") for n, text in enumerate(texts) for part in records.split(text)
    ]
    reading = journal.Reading("i")
    for record in found:
        reading.feed(record)
    by_events = journal.facts(journal.events(found), "i")
    # The first line's time, the PIDs and the last words that no event tells stand in records only.
    reading.facts.began = 0
    for rank in reading.facts.ranks.values():
        rank.pid = 0
    assert bool(by_events.errors) <= bool(reading.facts.errors)
    reading.facts.errors = by_events.errors
    assert by_events == reading.facts


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["choices", "message", "text", "usage", "completion_tokens", "tool_calls", "function",
             "name", "arguments", "content", "reasoning_content", "finish_reason"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(JSON, st.sampled_from([0, 200, 400, 503]))
@settings(max_examples=400, deadline=None)
def test_any_answer_of_an_engine_is_judged(body: object, status: int) -> None:
    for gate in (gates.generation, gates.reasoning, gates.tools):
        for whole in (body, {"choices": [body], "usage": body}, {"choices": [{"message": body}]}):
            answer = Answer(status, json.dumps(whole).encode(), error="x")
            assert gate(answer).status in (PASS, FAIL, INCONCLUSIVE)


@given(st.text(alphabet="0123456789,|[]:. GPUMiBERR!-\n/NA", max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_answer_of_nvidia_smi_is_read(text: str) -> None:
    for gpu in [*hostfacts.parse_gpus(text), *hostfacts.parse_gpu_table(text)["gpus"]]:
        assert gpu["state"] == "ok" or gpu["memory_total"] == gpu["memory_used"] == 0
    hostfacts.parse_gpu_processes(text)
