"""The reference start as every output of journalctl shows it → the same figures; and which of them
hold for other settings."""

from __future__ import annotations

import json
from typing import Any

import pytest

from opsctl.errors import Refused
from opsctl.forecast.journalled import from_journal
from opsctl.onhost.expect import GiB

ARGS = (
    "server_args=ServerArgs(model_path='/srv/models/Kimi-K2.5', tokenizer_path='a, b', tp_size=8, "
    "pp_size=1, dp_size=1, mem_fraction_static=0.88, max_total_tokens=None, kv_cache_dtype='auto', "
    "dtype='auto', quantization=None, enable_dp_attention=False, speculative_algorithm='EAGLE3', "
    "speculative_draft_model_path='/srv/models/kimi-k2.5-eagle3', hicache_ratio=2.0, "
    "hicache_io_backend='kernel', enable_hierarchical_cache=True, trust_remote_code=True, "
    "cuda_graph_bs=[1, 2, 4], json_model_override_args='{}', api_key='***')"
)
RANKS = [f"TP{n}" for n in range(8)]
UNIT = "sglang-kimi.service"


def lines(
    free_after: str = "21.71", tokens: int = 159277, args: str = ARGS
) -> list[tuple[str, str]]:
    """(rank, text) of a whole start at ratio 2.0, with a bar and the draft's lines."""
    found = [("", args)]

    def all_ranks(text: str) -> None:
        found.extend((rank, text) for rank in RANKS)

    all_ranks("Init torch distributed begin.")
    all_ranks("Init torch distributed ends. elapsed=13.00 s, mem usage=1.54 GB")
    found.extend(
        (r, f"Load weight begin. avail mem={b} GB") for r, b in zip(RANKS, BEFORE, strict=True)
    )
    all_ranks(
        "Load weight end. elapsed=612.40 s, type=KimiK25ForConditionalGeneration, "
        f"dtype=torch.bfloat16, avail mem={free_after} GB, mem usage=72.34 GB."
    )
    all_ranks(f"KV Cache is allocated. #tokens: {tokens}, KV size: 10.42 GB")
    all_ranks("Memory pool end. avail mem=11.28 GB")
    all_ranks(
        "Capture cuda graph end. Time elapsed: 21.00 s. mem usage=0.62 GB. avail mem=10.66 GB."
    )
    all_ranks("Load weight begin. avail mem=10.66 GB")
    all_ranks("Load weight end. elapsed=4.00 s, type=E, avail mem=9.56 GB, mem usage=1.10 GB.")
    all_ranks(f"KV Cache is allocated. #tokens: {tokens}, K size: 0.09 GB, V size: 0.09 GB")
    all_ranks("Allocating 22.39 GB host memory for hierarchical KV cache.")
    found += [("", "INFO:     Application startup complete.")]
    found += [("", "The server is fired up and ready to roll!")]
    found += [("", 'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK')]
    return found


BEFORE = ["94.05", "94.11", "94.11", "94.09", "94.11", "94.11", "94.11", "94.08"]
BAR = "Loading safetensors checkpoint shards: 100% Completed | 64/64 [10:12<00:00,  9.5s/it]"


def stamped(start: list[tuple[str, str]], hour: int = 23) -> list[str]:
    return [
        f"[2026-03-01 {hour}:{n // 60:02}:{n % 60:02}{' ' + rank if rank else ''}] {text}"
        for n, (rank, text) in enumerate(start)
    ]


def pid(line: str) -> int:
    return 100 + int(line[line.index("TP") + 2]) if "TP" in line[:30] else 99


FORMS = {
    "cat": "{line}",
    "short": "Mar 01 23:45:08 gpu-7 python[{pid}]: {line}",
    "short-precise": "Mar 01 23:45:08.123456 gpu-7 sglang::scheduler[{pid}]: {line}",
    "short-iso": "2026-03-01T23:45:08+0100 gpu-7.example python3[{pid}]: {line}",
    "short-iso-precise": "2026-03-01T23:45:08.123456+01:00 gpu-7 python[{pid}]: {line}",
    "short-full": "Sun 2026-03-01 23:45:08 UTC gpu-7 python[{pid}]: {line}",
    "with-unit": "Sun 2026-03-01 23:45:08 UTC gpu-7 sglang-kimi.service[{pid}]: {line}",
    "short-unix": "1772408708.123456 gpu-7 python[{pid}]: {line}",
    "short-monotonic": "[  812.345678] gpu-7 python[{pid}]: {line}",
    "container": "kimi-1  | {line}",
    "kubectl": "2026-03-01T23:45:08.1Z {line}",
    "colours": "\x1b[33m{line}\x1b[0m",
}


def as_json(found: list[str], invocation: str = "a" * 32, unit: str = UNIT) -> list[str]:
    return [
        json.dumps(
            {
                "__REALTIME_TIMESTAMP": str(1772408708000000 + n * 1000000),
                "_SYSTEMD_INVOCATION_ID": invocation,
                "_SYSTEMD_UNIT": unit,
                "_PID": str(pid(line)),
                "SYSLOG_IDENTIFIER": "python",
                "MESSAGE": list(line.encode()) if "\r" in line else line,
            }
        )
        for n, line in enumerate(found)
    ]


def as_export(found: list[str]) -> str:
    blocks = []
    for n, line in enumerate(found):
        size = len(line.encode()).to_bytes(8, "little").decode("latin-1")
        message = f"MESSAGE\n{size}{line}" if "\r" in line else f"MESSAGE={line}"
        blocks.append(
            f"__CURSOR=s=1;i={n}\n__REALTIME_TIMESTAMP={1772408708000000 + n * 1000000}\n"
            f"_PID={pid(line)}\n{message}\n_SYSTEMD_UNIT={UNIT}\n"
        )
    return "\n".join(blocks)


def written(form: str, found: list[str]) -> str:
    if form == "json":
        return "\n".join(as_json(found))
    if form == "json-pretty":
        return "\n".join(json.dumps(json.loads(line), indent=8) for line in as_json(found))
    if form == "json-sse":
        return "\n\n".join("data: " + line for line in as_json(found))
    if form == "json-seq":
        return "".join("\x1e" + line + "\n" for line in as_json(found))
    if form == "export":
        return as_export(found)
    return "\n".join(FORMS[form].format(line=line, pid=pid(line)) for line in found)


EVERY = [*FORMS, "json", "json-pretty", "json-sse", "json-seq", "export"]


def manifest(version: str = "0.5.9", **flags: Any) -> dict[str, Any]:
    base = {
        "tp-size": 8,
        "mem-fraction-static": 0.88,
        "trust-remote-code": True,
        "speculative-algorithm": "EAGLE3",
        "speculative-draft-model-path": "/srv/models/kimi-k2.5-eagle3",
        "enable-hierarchical-cache": True,
        "hicache-ratio": 4.0,
    }
    return {
        "unit": UNIT,
        "engine": {"version": version},
        "model": {"path": "/srv/models/Kimi-K2.5", "draft_path": None},
        "flags": {k: v for k, v in (base | flags).items() if v is not None},
        "ranks": RANKS,
    }


@pytest.mark.parametrize("form", EVERY)
def test_every_output_of_journalctl_gives_the_same_figures(form: str) -> None:
    found = stamped(lines())
    found.insert(
        20, "\r".join((BAR.replace("100%", "  0%"), BAR)) + found.pop(20)
    )  # glued to a bar
    text = written(form, found)
    for known in (None, manifest()):
        seen = from_journal(text, known)
        assert seen.tokens == 159277
        assert seen.free_before == round(94.05 * GiB)  # the least over the ranks
        assert seen.free_after == round(21.71 * GiB)
        assert seen.weights == round(72.34 * GiB)
        assert seen.draft_weights == round(1.10 * GiB)
        assert seen.notes == ()
        assert seen.seconds["total"] == pytest.approx(len(found) - 2, abs=1)


def test_of_several_starts_the_last_complete_one_counts() -> None:
    first, second = stamped(lines("20.00", 140000), 10), stamped(lines(), 12)
    third = stamped(lines("19.00", 130000), 14)[:60]  # it died while it allocated
    for form in ("cat", "short", "json"):
        if form == "json":
            parts = [as_json(s, c * 32) for s, c in ((first, "a"), (second, "b"), (third, "c"))]
            text = "\n".join(line for part in parts for line in part)
        else:
            text = written(form, [*first, *second, *third])
        assert from_journal(text).tokens == 159277, form
    alone = from_journal(written("short", third))
    assert alone.free_after == 19 * GiB and "not complete" in alone.source


def test_other_units_of_the_host_are_left_out() -> None:
    mine, other = (
        as_json(stamped(lines())),
        as_json(stamped(lines("1.00", 7)), "b" * 32, "sglang-x.service"),
    )
    text = "\n".join(line for pair in zip(mine, other, strict=True) for line in pair)
    assert from_journal(text, manifest()).tokens == 159277


@pytest.mark.parametrize(
    "text", ["", "no engine here\n" * 9, "{", '{"MESSAGE": null}', "__CURSOR=x\n"]
)
def test_a_text_without_a_start_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="tells of no start"):
        from_journal(text)


# settings of the description → tokens, free memory and weights hold; words of the note
HOLDS: list[tuple[dict[str, Any], bool, bool, str]] = [
    ({}, True, True, ""),
    ({"hicache-ratio": None, "hicache-size": 40}, True, True, ""),
    ({"enable-hierarchical-cache": None}, True, True, ""),
    ({"cuda-graph-max-bs": 16, "log-level": "warning"}, True, True, ""),
    ({"chunked-prefill-size": 4096}, True, True, ""),
    ({"mem-fraction-static": 0.9}, False, True, "mem-fraction-static 0.88: its number"),
    ({"kv-cache-dtype": "fp8_e4m3"}, False, True, "kv-cache-dtype auto"),
    ({"max-total-tokens": 9999}, False, True, "max-total-tokens"),
    ({"quantization": "fp8"}, False, False, "quantization"),
    ({"tp-size": 4}, False, False, "tp-size 8"),
    ({"enable-dp-attention": True}, False, False, "enable-dp-attention"),
    ({"speculative-algorithm": None, "speculative-draft-model-path": None}, False, True, "specul"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "tokens", "free", "words"), HOLDS)
def test_no_figure_is_carried_over_to_settings_for_which_it_is_wrong(
    changed: dict[str, Any], tokens: bool, free: bool, words: str
) -> None:
    seen = from_journal("\n".join(stamped(lines())), manifest(**changed))
    assert (seen.tokens == 159277) is tokens
    assert (seen.free_before is not None and seen.free_after is not None) is free
    assert (seen.weights is not None) is free
    assert words in " ".join(seen.notes)
    assert bool(words) is bool(seen.notes)


def test_from_0_5_14_on_a_draft_counts_before_the_pools() -> None:
    text = "\n".join(stamped(lines()))
    assert from_journal(text, manifest("0.5.23")).free_after == round(9.56 * GiB)
    other = manifest("0.5.23", **{"speculative-draft-model-path": "/srv/other"})
    seen = from_journal(text, other)
    assert seen.free_after is None and seen.draft_weights is None
    assert seen.free_before is not None and seen.weights is not None


def test_a_journal_of_another_model_gives_nothing() -> None:
    known = manifest()
    known["model"]["path"] = "/srv/models/GLM-5"
    seen = from_journal("\n".join(stamped(lines())), known)
    assert (seen.tokens, seen.free_after, seen.weights) == (None, None, None)
    assert "/srv/models/Kimi-K2.5" in seen.notes[0]


def test_the_form_of_newer_versions_is_read_too() -> None:
    args = (
        "server_args={'model_path': '/srv/models/Kimi-K2.5', 'tp_size': 8, 'pp_size': 1, "
        "'mem_fraction_static': 0.85, 'kv_cache_dtype': 'auto', 'nested': {'a': [1, '}']}, "
        "'speculative_algorithm': 'EAGLE3', 'trust_remote_code': True, "
        "'speculative_draft_model_path': '/srv/models/kimi-k2.5-eagle3'}"
    )
    seen = from_journal("\n".join(stamped(lines(args=args))), manifest())
    assert seen.tokens is None and "mem-fraction-static 0.85" in seen.notes[0]


def test_a_fraction_that_the_engine_chooses_leaves_the_tokens_in_doubt() -> None:
    seen = from_journal("\n".join(stamped(lines())), manifest(**{"mem-fraction-static": None}))
    assert seen.tokens == 159277 and not seen.sure


def test_a_flag_that_the_line_does_not_show_leaves_the_tokens_in_doubt() -> None:
    text = "\n".join(stamped(lines()))
    assert from_journal(text, manifest()).sure
    seen = from_journal(text, manifest(**{"ep-size": 8}))
    assert seen.tokens == 159277 and not seen.sure


def test_a_journal_without_arguments_is_believed_with_care() -> None:
    seen = from_journal("\n".join(stamped(lines()[1:])), manifest())
    assert seen.tokens == 159277 and not seen.sure


PREFILLS = """\
[2026-03-01 23:59:00 TP0] Prefill batch, #new-seq: 1, #new-token: 64, #cached-token: 0, input throughput (token/s): 3.1, cuda graph: False
[2026-03-01 23:59:01 TP0] Prefill batch, #new-seq: 1, #new-token: 8192, #cached-token: 0, input throughput (token/s): 1.0, cuda graph: False
[2026-03-01 23:59:02 TP0] Prefill batch [17], #new-seq: 1, #new-token: 8192, #cached-token: 0, input throughput (token/s): 9000.0, cuda graph: False
[2026-03-01 23:59:03 TP0] Prefill batch, #new-seq: 1, #new-token: 8192, #cached-token: 0, input throughput (token/s): 9200.0, cuda graph: False
[2026-03-01 23:59:04 TP0] Prefill batch, #new-seq: 1, #new-token: 100, #cached-token: 0, input throughput (token/s): 9400.0, cuda graph: False
[2026-03-01 23:59:44 TP0] Prefill batch, #new-seq: 1, #new-token: 8000, #cached-token: 0, input throughput (token/s): 2.5, cuda graph: False
[2026-03-01 23:59:59 TP0] Prefill batch, #new-seq: 1, #new-token: 10, #cached-token: 0, input throughput (token/s): 533.3, cuda graph: False
"""  # noqa: E501


def test_prefill_speed_is_that_after_large_batches_with_work_waiting() -> None:
    seen = from_journal("\n".join(stamped(lines())) + "\n" + PREFILLS).prefill
    assert seen is not None
    assert (seen.value, seen.least, seen.most) == (9300, 9100, 9400)
    few = "\n".join(PREFILLS.splitlines()[:3])
    assert from_journal("\n".join(stamped(lines())) + "\n" + few).prefill is None
