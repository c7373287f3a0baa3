"""What a change of version does: to the flags of a service, and to all of them."""

from __future__ import annotations

from typing import Any

import pytest

from opsctl.engine import catalogue, versions
from opsctl.engine.advisories import Facts
from opsctl.engine.changes import KINDS, Change, changes
from opsctl.engine.renames import successor
from opsctl.errors import SpecError


def found(a: str, b: str, flags: dict[str, Any]) -> dict[tuple[str, str], Change]:
    typed, problems = catalogue(a).check(flags)
    assert problems == []
    return {(change.kind, change.flag): change for change in changes(a, b, typed)}


# (from, to, flags, kind, flag, its text, whether it blocks)
OF_A_SERVICE: list[tuple[str, str, dict[str, Any], str, str, str, bool]] = [
    ("0.5.9", "0.5.23", {"torchao-config": "int4wo"}, "gone", "torchao-config", "is gone", True),
    ("0.5.9", "0.5.23", {"cuda-graph-max-bs": 64}, "renamed", "cuda-graph-max-bs",
     "is now cuda-graph-max-bs-decode", True),
    ("0.5.2", "0.5.23", {"enable-deepep-moe": True}, "renamed", "enable-deepep-moe",
     "is now moe-a2a-backend: deepep", True),
    ("0.5.9", "0.5.23", {"attention-backend": "cutlass_mla"}, "value", "attention-backend",
     "cutlass_mla is not one of its values", True),
    ("0.5.2", "0.5.3", {"enable-ep-moe": True}, "renamed", "enable-ep-moe", "is now ep-size", True),
    ("0.5.9", "0.5.10", {"enable-piecewise-cuda-graph": True}, "void",
     "enable-piecewise-cuda-graph", "is taken and does nothing", False),
    ("0.5.9", "0.5.23", {"disable-cuda-graph": True}, "deprecated", "disable-cuda-graph",
     "use --cuda-graph-backend-{decode,prefill}=disabled", False),
    ("0.5.9", "0.5.23", {"enable-hierarchical-cache": True}, "default", "hicache-ratio",
     "2.0 → unset (the engine decides)", False),
    ("0.5.13.post1", "0.5.14", {"enable-hierarchical-cache": True}, "default",
     "hicache-mem-layout", "layer_first → page_first", False),
    ("0.5.17", "0.5.18", {"enable-expert-distribution-metrics": True}, "renamed",
     "enable-expert-distribution-metrics", "is now expert-balancedness-report-mode", True),
    ("0.5.23", "0.5.9", {"enable-hicache": True, "attn-dp-size": 2, "tp-size": 2}, "gone",
     "attn-dp-size", "is gone", True),
    ("0.5.19", "0.5.20", {"nsa-prefill-backend": "fa3"}, "renamed", "nsa-prefill-backend",
     "is now dsa-prefill-backend", True),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b", "flags", "kind", "flag", "text", "blocks"), OF_A_SERVICE)
def test_what_touches_a_service(
    a: str, b: str, flags: dict[str, Any], kind: str, flag: str, text: str, blocks: bool
) -> None:
    change = found(a, b, flags)[kind, flag]
    assert (change.text, change.blocks) == (text, blocks)
    if blocks:  # and so says the new version's own catalogue
        assert catalogue(b).check({flag: flags[flag]})[1]


# Defaults that changed, and which services they do not touch.
UNTOUCHED: list[tuple[str, str, dict[str, Any], str]] = [
    ("0.5.9", "0.5.23", {}, "hicache-ratio"),  # no host tier
    ("0.5.9", "0.5.23", {"enable-hierarchical-cache": True, "hicache-ratio": 4.0}, "hicache-ratio"),
    ("0.5.11", "0.5.12", {"enable-hierarchical-cache": True}, "hicache-storage-prefetch-policy"),
    ("0.5.3.post2", "0.5.3.post3", {}, "lora-backend"),
    ("0.5.7", "0.5.8", {"dp-size": 1}, "load-balance-method"),
    ("0.5.13.post1", "0.5.14", {}, "nsa-prefill-cp-mode"),  # deprecated: another has the default
]


@pytest.mark.parametrize(("a", "b", "flags", "flag"), UNTOUCHED)
def test_defaults_that_do_not_touch_a_service_are_left_out(
    a: str, b: str, flags: dict[str, Any], flag: str
) -> None:
    assert ("default", flag) not in found(a, b, flags)


TOUCHED: list[tuple[str, str, dict[str, Any], str]] = [
    ("0.5.11", "0.5.12", {"hicache-storage-backend": "file"}, "hicache-storage-prefetch-policy"),
    ("0.5.3.post2", "0.5.3.post3", {"enable-lora": True}, "lora-backend"),
    ("0.5.7", "0.5.8", {"dp-size": 2}, "load-balance-method"),
    ("0.5.21", "0.5.22", {"disaggregation-mode": "decode"},
     "disaggregation-decode-host-receive-threshold"),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b", "flags", "flag"), TOUCHED)
def test_defaults_that_touch_a_service(a: str, b: str, flags: dict[str, Any], flag: str) -> None:
    assert ("default", flag) in found(a, b, flags)


def test_a_default_that_became_a_fallback_is_none() -> None:
    """swa-full-tokens-ratio: 0.8 up to 0.5.18; unset from then on, and 0.8 all the same."""
    assert ("default", "swa-full-tokens-ratio") not in found("0.5.9", "0.5.23", {})


def test_the_reference_deployment_from_0_5_9_to_0_5_23() -> None:
    flags = {
        "tp-size": 8, "mem-fraction-static": 0.88, "trust-remote-code": True,
        "reasoning-parser": "kimi_k2", "tool-call-parser": "kimi_k2",
        "speculative-algorithm": "EAGLE3", "speculative-draft-model-path": "/srv/d",
        "speculative-eagle-topk": 1, "speculative-num-steps": 3,
        "speculative-num-draft-tokens": 4, "enable-hierarchical-cache": True,
        "hicache-ratio": 4.0, "hicache-write-policy": "write_through",
        "hicache-io-backend": "kernel",
    }  # fmt: skip
    seen = found("0.5.9", "0.5.23", flags)
    assert not any(change.blocks for change in seen.values())
    assert ("default", "hicache-mem-layout") in seen
    assert {kind for kind, _ in seen} <= {"default", "begins", "ends"}


def test_advisories_that_begin_and_end() -> None:
    flags = {"speculative-algorithm": "EAGLE3", "enable-hierarchical-cache": True}
    typed, _ = catalogue("0.5.9").check(flags)
    facts = Facts("any", {}, {"SGLANG_ENABLE_SPEC_V2": "1"})
    there = {(c.kind, c.flag) for c in changes("0.5.9", "0.5.23", typed, facts)}
    assert ("ends", "hicache-scheduler-memory-grows") in there
    assert ("begins", "spec-v2-variable-gone") in there  # which needs env
    back = {(c.kind, c.flag) for c in changes("0.5.23", "0.5.9", typed, facts)}
    assert ("begins", "hicache-scheduler-memory-grows") in back


def test_all_flags_in_groups() -> None:
    seen = changes("0.5.9", "0.5.23")
    counts = {kind: sum(change.kind == kind for change in seen) for kind in KINDS}
    old, new = catalogue("0.5.9").flags, catalogue("0.5.23").flags
    assert counts["new"] - counts["gone"] - counts["renamed"] == len(new) - len(old)
    by = {(change.kind, change.flag): change for change in seen}
    assert by["choices", "attention-backend"].text.startswith("−cutlass_mla −dual_chunk_flash_attn")
    assert by["type", "max-total-tokens"].text == (
        "a whole number → a whole number, or one such as 25k or 16Ki"
    )
    assert by["new", "hicache-host-memory-fraction"].text == "a number, default 0.8"
    assert not any(change.blocks for change in seen)


@pytest.mark.parametrize("version", versions())
def test_no_change_of_version_changes_nothing(version: str) -> None:
    assert changes(version, version) == []
    assert changes(version, version, {"enable-hierarchical-cache": True}) == []


def test_posts_that_change_nothing() -> None:
    for a, b in (("0.5.8", "0.5.8.post1"), ("0.5.10", "0.5.10.post1"), ("0.5.12", "0.5.12.post1")):
        assert changes(a, b) == []


@pytest.mark.parametrize(("a", "b"), [("0.5.9", "0.5.99"), ("0.5.99", "0.5.9")])
def test_a_version_without_a_catalogue(a: str, b: str) -> None:
    with pytest.raises(SpecError, match=r"opsctl catalog add 0\.5\.99"):
        changes(a, b)


SUCCESSORS = [
    ("stream-output", "0.5.23", "incremental-streaming-output"),
    ("enable-ep-moe", "0.5.23", "ep-size"),
    ("enable-nsa-prefill-context-parallel", "0.5.13", "enable-nsa-prefill-context-parallel"),
    ("enable-nsa-prefill-context-parallel", "0.5.23", "enable-prefill-cp"),
    # By way of enforce-piecewise-cuda-graph; the value that it stood for is gone.
    ("enable-piecewise-cuda-graph", "0.5.23", "cuda-graph-backend-prefill"),
    ("enable-piecewise-cuda-graph", "0.5.14", "enforce-piecewise-cuda-graph"),
    ("enable-hicache", "0.5.9", "enable-hierarchical-cache"),
    ("torchao-config", "0.5.23", None),
    ("enable-deepep-waterfill", "0.5.23", "enable-waterfill"),
    ("nsa-decode", "0.5.9", "nsa-decode-backend"),
    ("nsa-decode", "0.5.23", "dsa-decode-backend"),
    ("no-such-flag", "0.5.23", None),
]


@pytest.mark.parametrize(("name", "version", "now"), SUCCESSORS)
def test_what_became_of_a_flag(name: str, version: str, now: str | None) -> None:
    assert successor(name, version) == now
