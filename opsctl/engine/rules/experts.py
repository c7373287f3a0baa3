"""Mixture of experts: groups and kernels.

Sources: server_args.py `_handle_moe_kernel_config`, `_handle_eplb_and_dispatch`
(to 0.5.18); arg_groups/moe_hook.py, overrides.py (0.5.15 on).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.engine.rules.rule import REFUSE, REWRITE, Theme
from opsctl.engine.rules.view import View

THEME = Theme("Experts")
RUNNER = "moe-runner-backend"


@THEME.rule(
    REFUSE, "balancing-needs-expert-groups", "enable-eplb ep-size moe-a2a-backend",
    "enable-eplb with ep-size 1", "there is nothing to balance where each rank holds all experts",
)  # fmt: skip
def _(v: View) -> bool:
    return bool(v["enable-eplb"]) and v.number("ep-size") == 1


@THEME.rule(
    REFUSE, "flashinfer-cutlass-groups", "ep-size tp-size moe-runner-backend",
    "moe-runner-backend flashinfer_cutlass with ep-size other than 1 and tp-size",
    "flashinfer_cutlass splits experts over no rank or over all",
)  # fmt: skip
def _(v: View) -> bool:
    return v[RUNNER] == "flashinfer_cutlass" and v.number("ep-size") not in (
        1, v.number("tp-size"),
    )  # fmt: skip


@THEME.rule(
    REFUSE, "flashinfer-cutlass-weights", "moe-runner-backend quantization",
    "moe-runner-backend flashinfer_cutlass with quantization that it has no kernels for",
    "flashinfer_cutlass has no kernels for quantization {quantization}",
)  # fmt: skip
def _(v: View) -> bool:
    takes: set[str | None] = {"modelopt_fp4"}
    if v.since("0.5.5"):
        takes |= {None, "modelopt_fp8", "modelopt_mixed"}
    return v[RUNNER] == "flashinfer_cutlass" and v["quantization"] not in takes


@THEME.rule(
    REFUSE, "flashinfer-trtllm-weights", "moe-runner-backend quantization",
    "moe-runner-backend flashinfer_trtllm with quantization that it has no kernels for (up to "
    "0.5.6.post2 unset is none)",
    "flashinfer_trtllm has no kernels for quantization {quantization}",
)  # fmt: skip
def _(v: View) -> bool:
    takes: set[str | None] = {"modelopt_fp4"}
    takes |= {"fp8"} if v.since("0.5.3") else set()
    takes |= {"modelopt_fp8"} if v.since("0.5.5") else set()
    takes |= {None, "compressed-tensors"} if v.since("0.5.7") else set()
    if v.since("0.5.11"):
        takes |= {"mxfp8", "nvfp4_online", "modelopt_mixed"}
    return v[RUNNER] == "flashinfer_trtllm" and v["quantization"] not in takes


@THEME.rule(
    REFUSE, "flashinfer-cutedsl-weights", "moe-runner-backend quantization",
    "moe-runner-backend flashinfer_cutedsl with a model whose weights are not quantised",
    "flashinfer_cutedsl has kernels for NVFP4 alone", ">=0.5.11",
)  # fmt: skip
def _(v: View) -> bool:
    plain = v.facts.model.get("quant") == "none" and v["quantization"] is None
    return v[RUNNER] == "flashinfer_cutedsl" and plain


@THEME.rule(
    REWRITE, "flashinfer-trtllm-without-fusion", "disable-shared-experts-fusion moe-runner-backend",
    "moe-runner-backend flashinfer_trtllm", "flashinfer_trtllm does not fuse shared experts",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    # Waterfill needs the fusion, and comes after.
    alone = v[RUNNER] == "flashinfer_trtllm" and not v.waterfill
    return {"disable-shared-experts-fusion": True} if alone else None


@THEME.rule(
    REFUSE, "cutlass-fp8-without-groups", "ep-size moe-runner-backend quantization",
    "moe-runner-backend cutlass with quantization fp8 and ep-size above 1",
    "the FP8 experts of cutlass are not spread", ">=0.5.4.post3",
)  # fmt: skip
def _(v: View) -> bool:
    return (
        v[RUNNER] == "cutlass"
        and v["quantization"] in ("fp8", "mxfp8")
        and v.number("ep-size") != 1
    )


@THEME.rule(
    REFUSE, "expert-replicas", "moe-dp-size ep-size tp-size pp-size attn-cp-size",
    "moe-dp-size above 1 that, times ep-size, is not tp-size; with pp-size above 1; or, from "
    "0.5.11 on, with another attn-cp-size",
    "replicas of experts times their groups are the ranks, of one stage",
)  # fmt: skip
def _(v: View) -> bool:
    replicas, groups, ranks = v.number("moe-dp-size"), v.number("ep-size"), v.number("tp-size")
    if replicas == 1:
        return False
    if replicas > 1:
        if ranks % replicas or replicas * groups > ranks or v.number("pp-size") > 1:
            return True
        if groups > 1 and replicas * groups != ranks:
            return True
    return bool(v.since("0.5.11") and v.number("attn-cp-size") != replicas)
