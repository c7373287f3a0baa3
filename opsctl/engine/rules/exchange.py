"""All-to-all exchanges between experts: which one it becomes, and what each demands.

Sources: server_args.py `_handle_a2a_moe` (to 0.5.18), arg_groups/moe_hook.py (0.5.19 on);
overrides.py `_a2a_backend_overrides`, `_a2a_ep_size`, `_a2a_fusion_adjustments` (0.5.15 on);
arg_groups/deepseek_v4_hook.py (0.5.17 to 0.5.20) and mega_moe_hook.py (0.5.18 on) for megamoe. The
releases' own answers to such command lines stand in tests/unit/engine/rules_by_release.jsonl.

A runner of experts that is left to the engine ("auto") follows from the model and the card: what
depends on it is not judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.engine.rules.rule import REFUSE, REWRITE, Theme
from opsctl.engine.rules.view import View

THEME = Theme("Exchanges between experts")
RUNNER, A2A, DRAFT = "moe-runner-backend", "moe-a2a-backend", "speculative-moe-a2a-backend"
FUSION = "disable-shared-experts-fusion"
MODE, CHUNK = "deepep-mode", "chunked-prefill-size"
_SPANNING = (
    *("deepep", "mooncake", "ascend_fuseep", "flashinfer", "mori", "nixl", "pplx", "megamoe"),
    *("deepep_v2", "flashinfer_megamoe"),
)
# Models whose experts have no other way than the fused kernel of megamoe (mega_moe_hook.py of
# 0.5.21 to 0.5.23); before, DeepSeek V4 alone is looked at.
_ONLY_FUSED = {
    *("DeepseekV4ForCausalLM", "InternS2PreviewForConditionalGeneration", "MellumForCausalLM"),
    *("Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM", "Qwen3NextForCausalLM"),
    *("Qwen3VLMoeForConditionalGeneration", "Qwen3_5MoeForCausalLM"),
    "Qwen3_5MoeForConditionalGeneration",
}
_V4 = {"DeepseekV4ForCausalLM"}


def _room(v: View, name: str, unset: int) -> int:
    """A number of tokens that a variable gives; what it is where it is unset."""
    text = v.facts.env.get(name, "").strip()
    return int(text) if text.isdecimal() else unset


# Tokens of the smallest chunk that the engine chooses by itself, on the smallest card.
_SMALLEST = 2048


def _chunk(v: View) -> int:
    """Tokens that one group prefills at once, at least; 0 without chunks, and where nobody
    prefills."""
    size = _SMALLEST // v.groups if v[CHUNK] is None else int(v[CHUNK])
    return 0 if v.mode == "decode" else max(size, 0)


@THEME.rule(
    REWRITE, "megamoe-is-an-exchange", f"{RUNNER} {A2A}", "moe-runner-backend megamoe",
    "it is another name for moe-a2a-backend megamoe", ">=0.5.18",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    return {RUNNER: "auto", A2A: "megamoe"} if v[RUNNER] == "megamoe" else None


@THEME.rule(
    REWRITE, "waterfill-chooses-the-exchange",
    f"{A2A} {FUSION} enable-waterfill enable-deepep-waterfill",
    "enable-waterfill (enable-deepep-waterfill up to 0.5.15.post1) with an exchange other than "
    "deepep (from 0.5.16 on also megamoe)",
    "it fills up what deepep sends, and the shared experts with it", ">=0.5.12",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    if not v.waterfill:
        return None
    fills = ("deepep", "megamoe") if v.since("0.5.16") else ("deepep",)
    changed: dict[str, Any] = {} if v[A2A] in fills else {A2A: "deepep"}
    return {**changed, **({FUSION: False} if v[FUSION] else {})}


@THEME.rule(
    REWRITE, "megamoe-by-its-variable", A2A,
    "SGLANG_OPT_USE_DEEPGEMM_MEGA_MOE with another exchange",
    "SGLANG_OPT_USE_DEEPGEMM_MEGA_MOE chooses it", ">=0.5.12,<=0.5.17",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    return {A2A: "megamoe"} if v.env("SGLANG_OPT_USE_DEEPGEMM_MEGA_MOE") else None


@THEME.rule(
    REWRITE, "ascend-tp-is-none", A2A, "moe-a2a-backend ascend_tp",
    "the engine itself no longer trusts it", ">=0.5.16",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    return {A2A: "none"} if v[A2A] == "ascend_tp" else None


@THEME.rule(
    REWRITE, "all-to-all-spans-all-ranks", f"ep-size {A2A} tp-size",
    "moe-a2a-backend deepep, mooncake, flashinfer, mori, megamoe and others",
    "the experts of {moe-a2a-backend} are spread over all ranks",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    return {"ep-size": v.number("tp-size")} if v[A2A] in _SPANNING else None


@THEME.rule(
    REWRITE, "exchange-without-fusion", f"{FUSION} {A2A}",
    "moe-a2a-backend flashinfer, flashinfer_megamoe or deepep_v2",
    "{moe-a2a-backend} does not fuse shared experts", ">=0.5.9",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    apart = v[A2A] in ("flashinfer", "flashinfer_megamoe", "deepep_v2")
    return {FUSION: True} if apart else None


@THEME.rule(
    REWRITE, "deepep-normal-without-graphs", f"disable-cuda-graph {MODE} {A2A}",
    "moe-a2a-backend deepep with deepep-mode normal",
    "the normal mode of DeepEP waits on the CPU, which no graph can", "<=0.5.13.post1",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    normal = v[A2A] == "deepep" and v[MODE] == "normal"
    return {"disable-cuda-graph": True} if normal else None


@THEME.rule(
    REFUSE, "two-batches-need-all-to-all", f"enable-two-batch-overlap {A2A}",
    "enable-two-batch-overlap without an all-to-all backend (in later releases, and without DP "
    "attention)", "there is no exchange to hide behind the other batch", ">=0.5.7",
)  # fmt: skip
def _(v: View) -> bool:
    alone = bool(v["enable-two-batch-overlap"]) and v[A2A] == "none"
    return alone and (not v.since("0.5.16") or v.groups == 1)


# -- flashinfer


@THEME.rule(
    REFUSE, "flashinfer-exchange-groups",
    f"{A2A} enable-dp-attention dp-size attn-dp-size tp-size",
    "moe-a2a-backend flashinfer (from 0.5.20 on also flashinfer_megamoe) without DP attention in "
    "as many groups as there are ranks",
    "{moe-a2a-backend} wants each rank to be a group of DP attention", ">=0.5.13",
)  # fmt: skip
def _(v: View) -> bool:
    if v[A2A] not in ("flashinfer", "flashinfer_megamoe"):
        return False
    if (v.architecture or "").startswith("MuseSpark"):
        return False  # which has a way of its own from 0.5.23 on
    return v.groups != v.number("tp-size") or v.groups == 1


@THEME.rule(
    REFUSE, "flashinfer-exchange-runner", f"{RUNNER} {A2A}",
    "moe-a2a-backend flashinfer (flashinfer_megamoe) with a moe-runner-backend that it does not "
    "serve", "{moe-a2a-backend} does not serve moe-runner-backend {moe-runner-backend}", ">=0.5.9",
)  # fmt: skip
def _(v: View) -> bool:
    runner = v[RUNNER]
    if v[A2A] == "flashinfer_megamoe":
        return runner not in (None, "auto", "flashinfer_megamoe")
    serves = {None, "auto", "flashinfer_cutlass"}
    serves |= {"flashinfer_cutedsl"} if v.since("0.5.13") else set()
    serves |= {"flashinfer_trtllm_routed"} if v.since("0.5.15") else set()
    serves |= {"flashinfer_trtllm", "deep_gemm"} if v.since("0.5.19") else set()
    return v[A2A] == "flashinfer" and runner not in serves


@THEME.rule(
    REFUSE, "flashinfer-exchange-in-chunks", f"{CHUNK} {A2A}",
    "moe-a2a-backend flashinfer without chunks", "its buffers are made for chunks", ">=0.5.22",
)  # fmt: skip
def _(v: View) -> bool:
    whole = v[CHUNK] is not None and v[CHUNK] <= 0
    return v[A2A] == "flashinfer" and whole and v.mode != "decode"


# -- mori


@THEME.rule(
    REWRITE, "mori-is-normal", f"{MODE} {A2A}",
    "moe-a2a-backend mori with deepep-mode auto (in 0.5.9 with any)",
    "mori sends in the normal mode", ">=0.5.9",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    free = v[MODE] == "auto" or not v.since("0.5.10")
    return {MODE: "normal"} if v[A2A] == "mori" and free else None


@THEME.rule(
    REFUSE, "mori-chunks", f"{CHUNK} {A2A}",
    "moe-a2a-backend mori with chunks (of a group of DP attention) above "
    "SGLANG_MORI_NUM_MAX_DISPATCH_TOKENS_PER_RANK, which is 4096 unless set",
    "a chunk of {chunked-prefill-size} tokens does not go into what mori sends at once: set "
    "SGLANG_MORI_NUM_MAX_DISPATCH_TOKENS_PER_RANK as high", ">=0.5.9",
)  # fmt: skip
def _(v: View) -> bool:
    chunk = v.number(CHUNK, 0) if not v.since("0.5.10") else _chunk(v)
    room = _room(v, "SGLANG_MORI_NUM_MAX_DISPATCH_TOKENS_PER_RANK", 4096)
    return v[A2A] == "mori" and chunk > room


# -- pplx


@THEME.rule(
    REFUSE, "pplx-is-quick", f"{MODE} {A2A}", "moe-a2a-backend pplx with deepep-mode normal",
    "pplx has no mode but low_latency", ">=0.5.17",
)  # fmt: skip
def _(v: View) -> bool:
    return bool(v[A2A] == "pplx" and v[MODE] == "normal")


@THEME.rule(
    REFUSE, "pplx-groups", f"{A2A} enable-dp-attention dp-size attn-dp-size",
    "moe-a2a-backend pplx without DP attention in two groups at least",
    "pplx exchanges between groups of DP attention", ">=0.5.17",
)  # fmt: skip
def _(v: View) -> bool:
    return v[A2A] == "pplx" and v.groups < 2


@THEME.rule(
    REFUSE, "pplx-runner", f"{RUNNER} {A2A}",
    "moe-a2a-backend pplx with a moe-runner-backend other than deep_gemm",
    "pplx does not serve moe-runner-backend {moe-runner-backend}", ">=0.5.17",
)  # fmt: skip
def _(v: View) -> bool:
    return v[A2A] == "pplx" and v[RUNNER] not in (None, "auto", "deep_gemm")


@THEME.rule(
    REFUSE, "pplx-chunks", f"{CHUNK} {A2A}",
    "moe-a2a-backend pplx with chunks (of a group of DP attention; unset, 2048 tokens at least) "
    "above SGLANG_PPLX_NUM_MAX_DISPATCH_TOKENS_PER_RANK, which is 128 unless set",
    "a chunk does not go into what pplx sends at once: set chunked-prefill-size, and "
    "SGLANG_PPLX_NUM_MAX_DISPATCH_TOKENS_PER_RANK as high as a group's part of it", ">=0.5.17",
)  # fmt: skip
def _(v: View) -> bool:
    room = _room(v, "SGLANG_PPLX_NUM_MAX_DISPATCH_TOKENS_PER_RANK", 128)
    return v[A2A] == "pplx" and _chunk(v) > room


@THEME.rule(
    REWRITE, "pplx-chooses", f"{MODE} {RUNNER} {A2A}",
    "moe-a2a-backend pplx with deepep-mode or moe-runner-backend auto",
    "pplx serves low_latency and deep_gemm alone", ">=0.5.17",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    if v[A2A] != "pplx":
        return None
    mode = {MODE: "low_latency"} if v[MODE] == "auto" else {}
    return {**mode, **({RUNNER: "deep_gemm"} if v[RUNNER] == "auto" else {})}


# -- deepep_v2


@THEME.rule(
    REFUSE, "deepep-v2-runner", f"{RUNNER} {A2A}",
    "moe-a2a-backend deepep_v2 with a moe-runner-backend other than deep_gemm",
    "deepep_v2 does not serve moe-runner-backend {moe-runner-backend}", ">=0.5.19",
)  # fmt: skip
def _(v: View) -> bool:
    return v[A2A] == "deepep_v2" and v[RUNNER] not in (None, "auto", "deep_gemm")


@THEME.rule(
    REFUSE, "one-batch-at-a-time", f"enable-two-batch-overlap enable-single-batch-overlap {A2A}",
    "moe-a2a-backend deepep_v2 (from 0.5.21 on also megamoe) with enable-two-batch-overlap or "
    "enable-single-batch-overlap", "{moe-a2a-backend} sends and computes in one go", ">=0.5.19",
)  # fmt: skip
def _(v: View) -> bool:
    overlaps = v["enable-two-batch-overlap"] or v["enable-single-batch-overlap"]
    whole = v[A2A] == "deepep_v2" or (v[A2A] == "megamoe" and v.since("0.5.21"))
    return bool(overlaps) and whole


@THEME.rule(
    REFUSE, "deepep-v2-drafts", f"{DRAFT} {A2A} speculative-algorithm",
    "speculation (but NGRAM) whose drafts exchange by deepep_v2, which they take from "
    "moe-a2a-backend unless speculative-moe-a2a-backend says otherwise",
    "the engine does not trust deepep_v2 with drafts", ">=0.5.19",
)  # fmt: skip
def _(v: View) -> bool:
    inherits = v[DRAFT] is None and v.algorithm not in ("", "NGRAM")
    return bool((v[A2A] if inherits else v[DRAFT]) == "deepep_v2")


@THEME.rule(
    REFUSE, "deepep-v2-chunks", f"{CHUNK} {A2A} tp-size",
    "moe-a2a-backend deepep_v2 with chunks (a rank's part; unset, 2048 tokens at least) above "
    "SGLANG_DEEPEP_V2_NUM_MAX_DISPATCH_TOKENS_PER_RANK, which is 128 unless set",
    "a rank's part of a chunk does not go into what deepep_v2 sends at once: set "
    "SGLANG_DEEPEP_V2_NUM_MAX_DISPATCH_TOKENS_PER_RANK as high", ">=0.5.19",
)  # fmt: skip
def _(v: View) -> bool:
    room = _room(v, "SGLANG_DEEPEP_V2_NUM_MAX_DISPATCH_TOKENS_PER_RANK", 128)
    ranks = max(v.number("tp-size") // max(v.groups, 1), 1)
    return v[A2A] == "deepep_v2" and -(-_chunk(v) // ranks) > room


# -- megamoe


@THEME.rule(
    REFUSE, "megamoe-cards", A2A,
    "moe-a2a-backend megamoe on an NVIDIA card of another capability than 9.x and 10.x",
    "megamoe has no kernels for this card", ">=0.5.21",
)  # fmt: skip
def _(v: View) -> bool | None:
    return None if v.sm is None else v[A2A] == "megamoe" and v.sm not in (9, 10)


@THEME.rule(
    REFUSE, "flashinfer-megamoe-cards", A2A,
    "moe-a2a-backend flashinfer_megamoe on an NVIDIA card of another capability than 10.x",
    "flashinfer_megamoe has no kernels for this card", ">=0.5.20",
)  # fmt: skip
def _(v: View) -> bool | None:
    return None if v.sm is None else v[A2A] == "flashinfer_megamoe" and v.sm != 10


@THEME.rule(
    REFUSE, "flashinfer-megamoe-weights", f"{A2A} quantization",
    "moe-a2a-backend flashinfer_megamoe with a model whose weights are not quantised",
    "flashinfer_megamoe has kernels for MXFP8 and FP4 alone", ">=0.5.20",
)  # fmt: skip
def _(v: View) -> bool:
    plain = v.facts.model.get("quant") == "none" and v["quantization"] is None
    return v[A2A] == "flashinfer_megamoe" and plain


@THEME.rule(
    REFUSE, "megamoe-chunks", f"{CHUNK} {A2A}",
    "moe-a2a-backend megamoe with a model whose experts have no other way (DeepSeek V4; from "
    "0.5.21 on Qwen3 MoE and others too), without chunks, or with chunks above "
    "SGLANG_OPT_DEEPGEMM_MEGA_MOE_NUM_MAX_TOKENS_PER_RANK (unless set 1024 in 0.5.17, then 8192)",
    "megamoe wants chunks, and SGLANG_OPT_DEEPGEMM_MEGA_MOE_NUM_MAX_TOKENS_PER_RANK as high as "
    "they are", ">=0.5.17",
)  # fmt: skip
def _(v: View) -> bool | None:
    fused = _ONLY_FUSED if v.since("0.5.21") else _V4
    staged = v.number("pp-size") > 1 and v["enable-dynamic-chunking"]
    if v[A2A] != "megamoe" or v.architecture not in fused or staged or v.mode == "decode":
        return False
    if v[CHUNK] is None or v["enable-prefill-cp"]:
        return None
    usual = 8192 if v.since("0.5.18") else 1024
    room = _room(v, "SGLANG_OPT_DEEPGEMM_MEGA_MOE_NUM_MAX_TOKENS_PER_RANK", usual)
    return bool(v[CHUNK] <= 0 or v[CHUNK] // v.groups > room)
