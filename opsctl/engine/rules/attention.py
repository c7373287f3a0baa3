"""Attention backends: the pages and dtypes that they take, and what they switch off.

Sources: server_args.py `_handle_attention_backend_compatibility`, `_handle_kv4_compatibility` (to
0.5.18); arg_groups/attention_hook.py and overrides.py (0.5.15 on).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.engine.rules import shared
from opsctl.engine.rules.rule import REFUSE, REWRITE, Theme
from opsctl.engine.rules.view import View

THEME = Theme("Attention, pages and dtypes")
BASE, DECODE, PREFILL = (
    "attention-backend", "decode-attention-backend", "prefill-attention-backend",
)  # fmt: skip
ALL = f"{BASE} {PREFILL} {DECODE}"
EVERY = "base prefill decode"
_DETERMINISTIC = (
    "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM",
)  # fmt: skip


@THEME.rule(
    REWRITE, "one-backend-for-both-phases", ALL,
    "prefill-attention-backend and decode-attention-backend are the same",
    "the backend of both phases is the backend", ">=0.5.5",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    same = v[PREFILL] is not None and v[PREFILL] == v[DECODE]
    return {BASE: v[PREFILL]} if same else None


@THEME.rule(
    REWRITE, "deterministic-samples-with-pytorch",
    "sampling-backend enable-deterministic-inference", "enable-deterministic-inference",
    "no other sampling is deterministic", ">=0.5.3",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    if v["enable-deterministic-inference"] and v["sampling-backend"] != "ascend":
        return {"sampling-backend": "pytorch"}
    return None


@THEME.rule(
    REFUSE, "deterministic-backends", "attention-backend enable-deterministic-inference",
    "enable-deterministic-inference with an attention backend that is not",
    "attention-backend {attention-backend} does not give the same answer for every batch",
    ">=0.5.3",
)  # fmt: skip
def _(v: View) -> bool:
    known = {"flashinfer", "fa3", "triton"}
    known |= {"ascend"} if v.since("0.5.13") else set()
    known |= {"fa4"} if v.since("0.5.16") else set()
    known |= {"intel_xpu"} if v.since("0.5.19") else set()
    unset = (None,) if v.since("0.5.4") else ()  # before, it does not choose one by itself
    return bool(v["enable-deterministic-inference"]) and v[BASE] not in (*unset, *known)


@THEME.rule(
    REWRITE, "deterministic-flashinfer-without-radix",
    "disable-radix-cache attention-backend enable-deterministic-inference",
    "enable-deterministic-inference with attention-backend flashinfer (up to 0.5.3.post1 triton "
    "too)",
    "this backend is deterministic only without a prefix cache", ">=0.5.3",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    without = shared.deterministic_without_radix(v, v.key, v[BASE])
    return {"disable-radix-cache": True} if without else None


@THEME.rule(
    REFUSE, "deterministic-latents", "attention-backend enable-deterministic-inference",
    "enable-deterministic-inference on DeepSeek V2 to V3.2 with flashinfer, or, from 0.5.17 on, "
    "with fa4 on a card that is not SM 10",
    "attention-backend {attention-backend} is not deterministic on this model; fa3 and triton are",
    ">=0.5.5",
)  # fmt: skip
def _(v: View) -> bool:
    if not v["enable-deterministic-inference"] or v.architecture not in _DETERMINISTIC:
        return False
    if v[BASE] == "fa4":
        return v.since("0.5.17") and v.sm is not None and v.sm not in (10, 11)
    return bool(v[BASE] in ("flashinfer", "intel_xpu"))


@THEME.rule(
    REFUSE, "flex-without-speculation", "speculative-algorithm attention-backend",
    "flex_attention with speculation", "attention-backend flex_attention cannot verify drafts",
    ">=0.5.3",
)  # fmt: skip
def _(v: View) -> bool:
    return v[BASE] == "flex_attention" and v.algorithm != ""


@THEME.rule(
    REWRITE, "eager-backends", "disable-cuda-graph attention-backend",
    "torch_native or flex_attention", "attention-backend {attention-backend} has no CUDA graphs",
    "<=0.5.13.post1",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    return {"disable-cuda-graph": True} if v.runs_on(
        "torch_native", "flex_attention", phases="base"
    ) else None  # fmt: skip


def _forced(v: View, backend: str, phases: str) -> Mapping[str, Any] | None:
    if not v.runs_on(backend, phases=phases):
        return None
    wanted = v["page-size"]
    made = shared.page(backend, 1 if wanted is None else wanted, v.key)
    return None if made == wanted else {"page-size": made}


@THEME.rule(
    REWRITE, "flashmla-pages", f"page-size {ALL}", "flashmla with a page other than 64",
    "flashmla works on pages of 64 tokens",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    return _forced(v, "flashmla", "base decode")


@THEME.rule(
    REWRITE, "cutlass-mla-pages", f"page-size {ALL}", "cutlass_mla with a page other than 128",
    "cutlass_mla works on pages of 128 tokens",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    return _forced(v, "cutlass_mla", "base decode")


@THEME.rule(
    REFUSE, "trtllm-mla-needs-blackwell", ALL, "trtllm_mla on a card before Blackwell",
    "trtllm_mla has kernels for SM 10 and 12 alone",
)  # fmt: skip
def _(v: View) -> bool | None:
    if not v.runs_on("trtllm_mla") or v.sm is None:
        return None
    return v.sm not in ((10, 12) if v.since("0.5.4.post2") else (10,))


@THEME.rule(
    REWRITE, "trtllm-mla-pages", f"page-size {ALL}", "trtllm_mla with a page other than 32 or 64",
    "trtllm_mla works on pages of 32 or 64 tokens",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    return _forced(v, "trtllm_mla", "base decode")


@THEME.rule(
    REFUSE, "trtllm-mla-dtypes", f"kv-cache-dtype {ALL}",
    "trtllm_mla with a KV cache that is neither 16-bit nor fp8_e4m3 (FP4 up to 0.5.13)",
    "trtllm_mla does not read kv-cache-dtype {kv-cache-dtype}",
)  # fmt: skip
def _(v: View) -> bool:
    takes = {"auto", "fp8_e4m3"}
    if v.since("0.5.5"):
        takes |= {"bf16", "fp4_e2m1"}
    return v.runs_on("trtllm_mla") and v["kv-cache-dtype"] not in takes


@THEME.rule(
    REWRITE, "cutedsl-mla-pages", f"page-size {ALL}", "cutedsl_mla with a page other than 32 or 64",
    "cutedsl_mla works on pages of 32 or 64 tokens",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    return _forced(v, "cutedsl_mla", EVERY)


@THEME.rule(
    REFUSE, "cutedsl-mla-decodes-only", PREFILL, "prefill-attention-backend cutedsl_mla",
    "cutedsl_mla has kernels for decoding alone",
)  # fmt: skip
def _(v: View) -> bool:
    return bool(v[PREFILL] == "cutedsl_mla")


@THEME.rule(
    REFUSE, "cutedsl-mla-needs-sm100", ALL, "cutedsl_mla on a card that is not SM 10",
    "cutedsl_mla has kernels for SM 10 alone",
)  # fmt: skip
def _(v: View) -> bool | None:
    return v.runs_on("cutedsl_mla", phases=EVERY) and v.sm is not None and v.sm != 10


@THEME.rule(
    REFUSE, "cutedsl-mla-dtypes", f"kv-cache-dtype {ALL}",
    "cutedsl_mla with a KV cache that is neither 16-bit nor fp8_e4m3",
    "cutedsl_mla does not read kv-cache-dtype {kv-cache-dtype}",
)  # fmt: skip
def _(v: View) -> bool:
    takes = ("auto", "fp8_e4m3", "bf16", "bfloat16")
    return v.runs_on("cutedsl_mla", phases=EVERY) and v["kv-cache-dtype"] not in takes


@THEME.rule(
    REWRITE, "cutedsl-mla-prefill", f"{PREFILL} {BASE} {DECODE}",
    "cutedsl_mla, and prefill-attention-backend unset", "cutedsl_mla decodes only",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    if v.runs_on("cutedsl_mla") and v[PREFILL] is None:
        return {PREFILL: "trtllm_mla"}
    return None


@THEME.rule(
    REFUSE, "trtllm-mha-cards", ALL, "trtllm_mha on a card that it has no kernels for",
    "trtllm_mha has no kernels for this card",
)  # fmt: skip
def _(v: View) -> bool | None:
    if not v.runs_on("trtllm_mha", phases=EVERY) or v.sm is None:
        return None
    return v.sm not in ((9, 10, 12) if v.since("0.5.19") else (10,))


@THEME.rule(
    REWRITE, "trtllm-mha-pages", f"page-size {ALL}",
    "trtllm_mha with a page other than 16, 32, 64 (or, in later releases, 128)",
    "trtllm_mha works on pages of 16 tokens and more",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    return _forced(v, "trtllm_mha", EVERY)


@THEME.rule(
    REWRITE, "hpc-ops-pages", f"page-size {ALL}", "hpc_ops with a page other than 64",
    "hpc_ops works on pages of 64 tokens",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    return _forced(v, "hpc_ops", EVERY)


@THEME.rule(
    REWRITE, "fa3-reads-no-e5m2", "attention-backend kv-cache-dtype",
    "attention-backend fa3 with kv-cache-dtype fp8_e5m2", "fa3 reads fp8_e4m3 only",
    ">=0.5.4.post1",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    if v[BASE] == "fa3" and v["kv-cache-dtype"] == "fp8_e5m2":
        return {BASE: "triton"}
    return None


@THEME.rule(
    REFUSE, "fa4-prefills-only", f"{BASE} {DECODE}", "fa4 for decoding",
    "fa4 has kernels for prefill alone: write it as prefill-attention-backend", ">=0.5.4,<=0.5.7",
)  # fmt: skip
def _(v: View) -> bool:
    return v.runs_on("fa4")


@THEME.rule(
    REFUSE, "no-default-on-consumer-blackwell", BASE,
    "SM 12, a model without MLA, and attention-backend is unset",
    "it chooses trtllm_mha for this card, which has no kernels for it: set attention-backend, for "
    "example to flashinfer", ">=0.5.6.post1,<=0.5.6.post2",
)  # fmt: skip
def _(v: View) -> bool:
    chosen = v[BASE] is None and v.sm == 12 and v.latent is False
    return chosen and v.number("speculative-eagle-topk", 0) < 2


@THEME.rule(
    REWRITE, "fa4-pages", f"page-size {ALL}",
    "fa4 (up to 0.5.14 of prefill alone) on a model without MLA, from 0.5.10 on only on SM 10",
    "fa4 works on pages of 128 tokens", ">=0.5.4",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    asked = v.latent is False and shared.fa4_asked(v, v.key)
    return {"page-size": 128} if asked and shared.fa4_on(v.sm, v.key) else None


@THEME.rule(
    REWRITE, "dual-chunk-without-radix", "disable-radix-cache enable-mixed-chunk attention-backend",
    "dual_chunk_flash_attn", "dual_chunk_flash_attn has neither prefix cache nor mixed chunks",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    if v[BASE] != "dual_chunk_flash_attn":
        return None
    eager = {} if v.since("0.5.3") else {"disable-cuda-graph": True}
    return {"disable-radix-cache": True, "enable-mixed-chunk": False, **eager}


@THEME.rule(
    REFUSE, "fp4-backends", f"{ALL} kv-cache-dtype",
    "kv-cache-dtype fp4_e2m1 with a backend that does not read it",
    "attention-backend {attention-backend} does not read kv-cache-dtype fp4_e2m1",
    ">=0.5.7,<=0.5.15.post1",
)  # fmt: skip
def _(v: View) -> bool | None:
    if v["kv-cache-dtype"] != "fp4_e2m1" or v.written(PREFILL, DECODE) or v[BASE] is None:
        return None
    if v.latent is None or v.vendor == "amd" or v[BASE] == "fa4":
        return None
    if v.latent:
        return v[BASE] not in ("cutlass_mla", "flashinfer", "trtllm_mla", "flashmla")
    return v[BASE] not in ("triton", "torch_native", "flex_attention", "trtllm_mha")


@THEME.rule(
    REWRITE, "dsa-pages", "page-size", "DeepSeek sparse attention on NVIDIA cards",
    "the indexer of this model works on pages of 64 tokens", ">=0.5.3",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    sparse = "dsa" in (v.facts.model.get("kind") or ())
    return {"page-size": 64} if sparse and v.vendor == "nvidia" else None


@THEME.rule(
    REFUSE, "dsa-dtypes", "kv-cache-dtype", "DeepSeek sparse attention with fp8_e5m2",
    "this model's sparse attention reads bfloat16 or fp8_e4m3 only", ">=0.5.4.post2",
)  # fmt: skip
def _(v: View) -> bool:
    sparse = "dsa" in (v.facts.model.get("kind") or ())
    return sparse and v["kv-cache-dtype"] not in ("auto", "bf16", "bfloat16", "fp8_e4m3")
