"""Sizes of the parallel groups, and what they do to chunks.

Sources: server_args.py `_handle_data_parallelism`, `_handle_context_parallelism`,
`_handle_pipeline_parallelism`, `check_server_args` (to 0.5.18); arg_groups/parallel_hook.py and
validation_hook.py (0.5.19 on).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.engine.rules.rule import REFUSE, REWRITE, Theme
from opsctl.engine.rules.view import View

THEME = Theme("Parallelism")


@THEME.rule(
    REFUSE, "attention-groups-or-replicas", "attn-dp-size dp-size",
    "attn-dp-size and dp-size both above 1",
    "attention groups and whole replicas do not go together",
)  # fmt: skip
def _(v: View) -> bool:
    both = v.number("attn-dp-size") > 1 and v.number("dp-size") > 1
    return both and not v["enable-dp-attention"]


@THEME.rule(
    REFUSE, "attention-groups-divide-tp", "dp-size attn-dp-size tp-size enable-dp-attention",
    "DP attention whose groups do not divide tp-size",
    "every group of DP attention takes the same number of the {tp-size} ranks",
)  # fmt: skip
def _(v: View) -> bool:
    return v.groups > 1 and v.number("tp-size") % v.groups != 0


@THEME.rule(
    REWRITE, "dp-attention-of-one", "enable-dp-attention dp-size",
    "enable-dp-attention with dp-size 1", "one group is no data parallelism",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    alone = v["enable-dp-attention"] and v.groups == 1
    return {"enable-dp-attention": False} if alone else None


@THEME.rule(
    REWRITE, "dp-lm-head-of-one", "enable-dp-lm-head dp-size",
    "enable-dp-lm-head with dp-size 1", "one group is no data parallelism", ">=0.5.3",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    alone = v["enable-dp-lm-head"] and v.groups == 1 and v.number("dp-size") == 1
    return {"enable-dp-lm-head": False} if alone else None


@THEME.rule(
    REFUSE, "dp-lm-head-needs-dp-attention", "enable-dp-lm-head enable-dp-attention attn-dp-size",
    "enable-dp-lm-head without DP attention",
    "only DP attention has a language-model head for each group",
)  # fmt: skip
def _(v: View) -> bool:
    return bool(v["enable-dp-lm-head"]) and v.groups == 1


@THEME.rule(
    REWRITE, "dp-attention-divides-chunks", "chunked-prefill-size enable-dp-attention dp-size",
    "DP attention and chunked-prefill-size is set",
    "each group prefills its share of a chunk",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    chunk = v["chunked-prefill-size"]
    if v.groups == 1 or chunk is None:
        return None
    return {"chunked-prefill-size": int(chunk) // v.groups}


@THEME.rule(
    REWRITE, "dp-attention-takes-more", "schedule-conservativeness enable-dp-attention",
    "DP attention", "each group judges its load by three tenths of the value",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    if v.groups == 1:
        return None
    return {"schedule-conservativeness": float(v["schedule-conservativeness"] or 0) * 0.3}


@THEME.rule(
    REFUSE, "nodes-divide-ranks", "nnodes tp-size pp-size",
    "tp-size times pp-size does not divide by nnodes",
    "every node takes the same number of ranks, and {tp-size} × {pp-size} do not divide by "
    "{nnodes}",
)  # fmt: skip
def _(v: View) -> bool:
    return v.number("tp-size") * v.number("pp-size") % max(1, v.number("nnodes")) != 0


@THEME.rule(
    REFUSE, "replicas-on-one-node", "dp-size nnodes", "dp-size above 1 over several nodes without "
    "DP attention", "whole replicas stand on one node",
)  # fmt: skip
def _(v: View) -> bool:
    return v.number("dp-size") > 1 and v.number("nnodes") > 1 and v.groups == 1


@THEME.rule(
    REWRITE, "pipeline-without-overlap", "disable-overlap-schedule pp-size", "pp-size above 1",
    "stages of a pipeline wait for each other, so nothing is scheduled ahead",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    return {"disable-overlap-schedule": True} if v.number("pp-size") > 1 else None


@THEME.rule(
    REFUSE, "pipeline-without-speculation", "pp-size speculative-algorithm",
    "pp-size above 1 with speculation (in later releases only where the server is no prefill "
    "server)", "stages of a pipeline do not verify drafts",
)  # fmt: skip
def _(v: View) -> bool:
    if v.number("pp-size") == 1 or not v.algorithm:
        return False
    if v.env("SGLANG_ENABLE_PP_SPEC"):
        return False
    return not v.since("0.5.21") or v.mode != "prefill"


@THEME.rule(
    REFUSE, "pipeline-without-mixed-chunks", "pp-size enable-mixed-chunk",
    "pp-size above 1 with enable-mixed-chunk", "stages of a pipeline do not mix chunks and decodes",
    "<=0.5.10.post1",
)  # fmt: skip
def _(v: View) -> bool:
    return v.number("pp-size") > 1 and bool(v["enable-mixed-chunk"])


@THEME.rule(
    REFUSE, "context-groups-divide-tp", "attn-cp-size tp-size dp-size",
    "attn-cp-size times the groups of DP attention does not divide tp-size",
    "every context-parallel group takes the same number of the {tp-size} ranks",
)  # fmt: skip
def _(v: View) -> bool:
    size = v.number("attn-cp-size")
    groups = v.groups if v.since("0.5.19") else v.number("dp-size")
    return size > 1 and v.number("tp-size") % (size * groups) != 0


@THEME.rule(
    REFUSE, "context-groups-without-pipeline", "attn-cp-size pp-size",
    "attn-cp-size and pp-size both above 1",
    "context parallelism does not go with pipeline stages", "<=0.5.9",
)  # fmt: skip
def _(v: View) -> bool:
    return v.number("attn-cp-size") > 1 and v.number("pp-size") > 1


@THEME.rule(
    REFUSE, "first-gpu", "base-gpu-id", "base-gpu-id below 0", "GPUs are counted from 0"
)  # fmt: skip
def _(v: View) -> bool:
    return v.number("base-gpu-id", 0) < 0


@THEME.rule(
    REFUSE, "step-of-gpus", "gpu-id-step", "gpu-id-step below 1", "ranks take GPUs upwards"
)  # fmt: skip
def _(v: View) -> bool:
    return v.number("gpu-id-step") < 1


@THEME.rule(
    REFUSE, "dense-layers-whole-or-one", "moe-dense-tp-size tp-size",
    "moe-dense-tp-size other than 1 (or, in later releases, tp-size)",
    "dense layers are whole on each rank or split over all",
)  # fmt: skip
def _(v: View) -> bool:
    allowed = {None, 1} | ({v["tp-size"]} if v.since("0.5.19") else set())
    return v["moe-dense-tp-size"] not in allowed
