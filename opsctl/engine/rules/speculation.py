"""Speculation: steps, branches, draft tokens, pages, and what it switches off.

Sources: server_args.py `_handle_speculative_decoding` (to 0.5.13.post1);
arg_groups/speculative_hook.py (0.5.14 on).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.engine.rules import shared
from opsctl.engine.rules.rule import LATER, REFUSE, REWRITE, Theme
from opsctl.engine.rules.view import View

THEME = Theme("Speculation")
ALGORITHM = "speculative-algorithm"
STEPS, TOPK, TOKENS = (
    "speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens",
)  # fmt: skip
SIZES = f"{STEPS} {TOPK} {TOKENS}"
RUNNING = shared.RUNNING
DRAFTED = ("EAGLE", "EAGLE3", "STANDALONE")


def _drafted(v: View) -> bool:
    return v.algorithm in DRAFTED


# Algorithms that a release itself has, where its parser takes any text (plugins may add theirs).
_BUILT_IN = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "DFLASH", "FROZEN_KV_MTP", "NONE")


@THEME.rule(
    LATER, "algorithm-unknown", ALGORITHM,
    "speculative-algorithm that the release itself does not have",
    "it has no speculative-algorithm {speculative-algorithm} of its own, and ends at once if no "
    "plugin of its environment adds it", ">=0.5.12",
)  # fmt: skip
def _(v: View) -> bool:
    known = {*_BUILT_IN, *(["DSPARK"] if v.since("0.5.16") else [])}
    known |= {"UNO"} if v.since("0.5.20") else set()
    return bool(v.algorithm) and v.algorithm not in known


@THEME.rule(
    LATER, "eagle3-needs-a-draft", f"speculative-draft-model-path {ALGORITHM}",
    "EAGLE3 without speculative-draft-model-path",
    "it takes the model itself for the draft, and no model is its own head of EAGLE3: give one by "
    "speculative-draft-model-path",
)  # fmt: skip
def _(v: View) -> bool:
    return v.algorithm == "EAGLE3" and v["speculative-draft-model-path"] is None


def _adaptive(v: View) -> bool:
    return bool(v["speculative-adaptive"])


@THEME.rule(
    REWRITE, "nextn-is-eagle", ALGORITHM, "speculative-algorithm NEXTN",
    "NEXTN is EAGLE with the layers that the checkpoint carries",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    return {ALGORITHM: shared.algorithm(v)} if v.algorithm == "NEXTN" else None


@THEME.rule(
    REFUSE, "standalone-without-dp-attention", f"{ALGORITHM} enable-dp-attention attn-dp-size",
    "STANDALONE with DP attention", "a draft model of its own is not split over groups",
)  # fmt: skip
def _(v: View) -> bool:
    return v.algorithm == "STANDALONE" and v.groups > 1


@THEME.rule(
    REFUSE, "ngram-without-dp-attention", f"{ALGORITHM} enable-dp-attention attn-dp-size",
    "NGRAM with DP attention", "NGRAM does not follow groups of DP attention", ">=0.5.3",
)  # fmt: skip
def _(v: View) -> bool:
    return v.algorithm == "NGRAM" and v.groups > 1


@THEME.rule(
    REWRITE, "speculation-runs-48", "max-running-requests speculative-algorithm",
    "speculation, and max-running-requests is unset",
    f"speculation runs {RUNNING} requests at once unless max-running-requests says otherwise",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    speculates = _drafted(v) or v.algorithm == "NGRAM"
    return {"max-running-requests": RUNNING} if speculates and v["max-running-requests"] is None \
        else None  # fmt: skip


@THEME.rule(
    REWRITE, "speculation-without-overlap", "disable-overlap-schedule speculative-algorithm",
    "NGRAM; EAGLE, EAGLE3 or STANDALONE without SGLANG_ENABLE_SPEC_V2 (from 0.5.11 on only where "
    "it says 0, or speculative-eagle-topk is above 1 up to 0.5.12.post1)",
    "this speculation is scheduled step by step", "<=0.5.13.post1",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    if v.algorithm == "NGRAM":
        return {"disable-overlap-schedule": True}
    if not _drafted(v):
        return None
    if v.since("0.5.11"):
        branches = v.number(TOPK, 0) > 1 and not v.since("0.5.13")
        off = "SGLANG_ENABLE_SPEC_V2" in v.facts.env and not v.env("SGLANG_ENABLE_SPEC_V2")
        return {"disable-overlap-schedule": True} if branches or off else None
    return {"disable-overlap-schedule": not _overlaps(v)}


def _overlaps(v: View) -> bool:
    """Of releases in which the overlap has to be asked for."""
    able = DRAFTED if v.since("0.5.7") else ("EAGLE", "EAGLE3")
    return v.algorithm in able and v.since("0.5.4.post1") and v.env("SGLANG_ENABLE_SPEC_V2")


@THEME.rule(
    REFUSE, "spec-v2-has-one-branch", f"{TOPK} {ALGORITHM}",
    "SGLANG_ENABLE_SPEC_V2 with speculative-eagle-topk above 1",
    "SGLANG_ENABLE_SPEC_V2 drafts a chain, so speculative-eagle-topk must be 1",
    ">=0.5.7,<=0.5.10.post1",
)  # fmt: skip
def _(v: View) -> bool:
    return _overlaps(v) and v.number(TOPK, 0) > 1


@THEME.rule(
    REWRITE, "speculation-without-mixed-chunks", "enable-mixed-chunk speculative-algorithm",
    "speculation with enable-mixed-chunk (from 0.5.19 on EAGLE and EAGLE3 mix)",
    "chunks and verifications are not mixed",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    mixes = v.since("0.5.19") and v.algorithm in ("EAGLE", "EAGLE3")
    speculates = _drafted(v) or v.algorithm == "NGRAM"
    return {"enable-mixed-chunk": False} if speculates and not mixes else None


@THEME.rule(
    REFUSE, "draft-sizes-together", SIZES,
    "speculative-eagle-topk or speculative-num-draft-tokens without speculative-num-steps",
    "speculative-num-steps, speculative-eagle-topk and speculative-num-draft-tokens are set "
    "together or not at all",
)  # fmt: skip
def _(v: View) -> bool:
    if not _drafted(v) or _adaptive(v) or v[STEPS] is not None:
        return False
    return v[TOPK] is not None or v[TOKENS] is not None


@THEME.rule(
    REFUSE, "steps-need-branches", f"{TOPK} {STEPS}",
    "speculative-num-steps without speculative-eagle-topk",
    "speculative-eagle-topk is compared, and there is nothing to compare",
)  # fmt: skip
def _(v: View) -> bool:
    return _drafted(v) and not _adaptive(v) and v[STEPS] is not None and v[TOPK] is None


@THEME.rule(
    REWRITE, "chain-sets-draft-tokens", f"{TOKENS} {STEPS} {TOPK}",
    "speculative-eagle-topk 1, and speculative-num-draft-tokens is not speculative-num-steps + 1",
    "one branch verifies its steps and one token more",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    if not _drafted(v) or v[TOPK] != 1 or v[STEPS] is None:
        return None
    return {TOKENS: int(v[STEPS]) + 1}


@THEME.rule(
    REFUSE, "trtllm-mha-has-one-branch", f"{TOPK} attention-backend",
    "trtllm_mha with speculative-eagle-topk above 1", "trtllm_mha verifies a chain only",
)  # fmt: skip
def _(v: View) -> bool:
    runs = v.runs_on("trtllm_mha", phases="base prefill decode")
    return _drafted(v) and v.number(TOPK, 0) > 1 and runs


@THEME.rule(
    REFUSE, "branches-of-pages", f"{TOPK} page-size attention-backend",
    "speculative-eagle-topk above 1 and page-size above 1, with an attention backend that cannot "
    "branch within a page", "attention-backend {attention-backend} cannot branch within a page of "
    "{page-size} tokens: set page-size or speculative-eagle-topk to 1",
)  # fmt: skip
def _(v: View) -> bool:
    if not _drafted(v) or v.number(TOPK, 0) < 2 or v.number("page-size") < 2:
        return False
    branches = ["flashinfer"]
    branches += ["fa3"] if v.since("0.5.6") else []
    branches += ["triton"] if v.since("0.5.13") else []
    return v["attention-backend"] not in (*_unset(v), *branches)


def _unset(v: View) -> tuple[None, ...]:
    """Up to 0.5.4 the engine compares before it chooses a backend: unset is none of them."""
    return (None,) if v.since("0.5.4.post1") else ()


@THEME.rule(
    REWRITE, "ngram-branches", f"{TOPK} speculative-ngram-max-bfs-breadth", "NGRAM",
    "the branches of NGRAM are speculative-ngram-max-bfs-breadth",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    breadth = v["speculative-ngram-max-bfs-breadth"]
    return {TOPK: breadth} if v.algorithm == "NGRAM" and breadth is not None else None


@THEME.rule(
    REWRITE, "ngram-draft-tokens", f"{TOKENS} speculative-ngram-max-match-window-size",
    "NGRAM, and speculative-num-draft-tokens is unset",
    "NGRAM verifies as many tokens as its window holds",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    if v.algorithm != "NGRAM" or v[TOKENS] is not None:
        return None
    return {TOKENS: shared.ngram_tokens(v)}


@THEME.rule(
    REFUSE, "ngram-pages", f"page-size attention-backend {ALGORITHM}",
    "NGRAM with page-size above 1 and an attention backend other than flashinfer",
    "attention-backend {attention-backend} cannot branch within a page of {page-size} tokens",
    ">=0.5.3",
)  # fmt: skip
def _(v: View) -> bool:
    if v.algorithm != "NGRAM" or v.number("page-size") < 2 or v.number(TOPK, 0) < 2:
        return False
    return v["attention-backend"] not in (*_unset(v), "flashinfer")


@THEME.rule(
    REFUSE, "draft-runner", "speculative-moe-runner-backend",
    "speculative-moe-runner-backend flashinfer_trtllm",
    "the engine does not trust flashinfer_trtllm with drafts", ">=0.5.7,<=0.5.11",
)  # fmt: skip
def _(v: View) -> bool:
    return bool(v["speculative-moe-runner-backend"] == "flashinfer_trtllm")


@THEME.rule(
    REFUSE, "dflash-needs-a-draft", f"speculative-draft-model-path {ALGORITHM} pp-size",
    "DFLASH without speculative-draft-model-path, or with pp-size above 1",
    "DFLASH drafts with a model of its own, on one stage",
)  # fmt: skip
def _(v: View) -> bool:
    if v.algorithm != "DFLASH":
        return False
    return v["speculative-draft-model-path"] is None or v.number("pp-size") > 1


@THEME.rule(
    REFUSE, "sink-needs-a-window", "speculative-draft-sink-size speculative-draft-window-size",
    "speculative-draft-sink-size without speculative-draft-window-size",
    "a sink is what is kept beside a window",
)  # fmt: skip
def _(v: View) -> bool:
    return v["speculative-draft-sink-size"] is not None and (
        v["speculative-draft-window-size"] is None
    )


@THEME.rule(
    REFUSE, "rejection-sampling", f"speculative-use-rejection-sampling {TOPK} {ALGORITHM}",
    "speculative-use-rejection-sampling with an algorithm other than EAGLE and EAGLE3, or more "
    "branches than one", "rejection sampling follows one chain of EAGLE or EAGLE3",
)  # fmt: skip
def _(v: View) -> bool:
    if not v["speculative-use-rejection-sampling"] or not _drafted(v):
        return False
    return v.algorithm == "STANDALONE" or v.number(TOPK) > 1


@THEME.rule(
    REFUSE, "speculation-or-lmcache", f"enable-lmcache {ALGORITHM}",
    "enable-lmcache with speculation", "LMCache does not keep drafts", ">=0.5.21",
)  # fmt: skip
def _(v: View) -> bool:
    return bool(v["enable-lmcache"]) and v.algorithm != ""
