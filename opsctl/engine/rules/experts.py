"""Mixture of experts: groups, kernels and all-to-all backends.

Sources: server_args.py `_handle_moe_kernel_config`, `_handle_a2a_moe`, `_handle_eplb_and_dispatch`
(to 0.5.18); arg_groups/moe_hook.py, overrides.py (0.5.15 on).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.engine.rules.rule import REFUSE, REWRITE, Theme
from opsctl.engine.rules.view import View

THEME = Theme("Experts")
RUNNER, A2A = "moe-runner-backend", "moe-a2a-backend"
_SPANNING = ("deepep", "mooncake", "ascend_fuseep", "flashinfer", "mori", "nixl", "pplx")


@THEME.rule(
    REWRITE, "all-to-all-spans-all-ranks", "ep-size moe-a2a-backend tp-size",
    "moe-a2a-backend deepep, mooncake, flashinfer, mori and others",
    "the experts of {moe-a2a-backend} are spread over all ranks",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    return {"ep-size": v.number("tp-size")} if v[A2A] in _SPANNING else None


@THEME.rule(
    REWRITE, "deepep-normal-without-graphs", "disable-cuda-graph deepep-mode moe-a2a-backend",
    "moe-a2a-backend deepep with deepep-mode normal",
    "the normal mode of DeepEP waits on the CPU, which no graph can", "<=0.5.13.post1",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    normal = v[A2A] == "deepep" and v["deepep-mode"] == "normal"
    return {"disable-cuda-graph": True} if normal else None


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
    REWRITE, "flashinfer-trtllm-without-fusion", "disable-shared-experts-fusion moe-runner-backend",
    "moe-runner-backend flashinfer_trtllm", "flashinfer_trtllm does not fuse shared experts",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    return {"disable-shared-experts-fusion": True} if v[RUNNER] == "flashinfer_trtllm" else None


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
    REFUSE, "two-batches-need-all-to-all", "enable-two-batch-overlap moe-a2a-backend",
    "enable-two-batch-overlap without an all-to-all backend (in later releases, and without DP "
    "attention)", "there is no exchange to hide behind the other batch", ">=0.5.7",
)  # fmt: skip
def _(v: View) -> bool:
    alone = bool(v["enable-two-batch-overlap"]) and v[A2A] == "none"
    return alone and (not v.since("0.5.16") or v.groups == 1)


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
    if ranks % replicas or replicas * groups > ranks or v.number("pp-size") > 1:
        return True
    split = groups > 1 and replicas * groups != ranks
    return split or (v.since("0.5.11") and v.number("attn-cp-size") != replicas)
