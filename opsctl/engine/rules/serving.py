"""Scheduling, chunks, workers, metrics and addresses.

Sources: server_args.py `_handle_tokenizer_batching`, `_handle_other_validations`,
`check_server_args` (to 0.5.18); arg_groups/serving_hook.py and validation_hook.py (0.5.19 on).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.engine.rules.rule import LATER, REFUSE, REWRITE, Theme
from opsctl.engine.rules.view import View

EARLY = Theme("Serving")
LAST = Theme("Scheduling and chunks")


@EARLY.rule(
    REWRITE, "old-parser-names", "tool-call-parser", "tool-call-parser qwen25 or glm45",
    "the parser has a new name", ">=0.5.3.post1",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    new = {"qwen25": "qwen", "glm45": "glm"}.get(str(v["tool-call-parser"]))
    return {"tool-call-parser": new} if new else None


@EARLY.rule(
    REWRITE, "one-tokenizer-worker", "tokenizer-worker-num skip-tokenizer-init",
    "skip-tokenizer-init with several tokenizer workers", "there is nothing to tokenize",
    ">=0.5.4,<=0.5.15.post1",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    return {"tokenizer-worker-num": 1} if v["skip-tokenizer-init"] else None


@EARLY.rule(
    REFUSE, "one-way-to-batch-tokenizing",
    "enable-tokenizer-batch-encode enable-dynamic-batch-tokenizer", "both are on",
    "there are two ways to tokenize in batches; choose one", ">=0.5.3",
)  # fmt: skip
def _(v: View) -> bool:
    both = v["enable-tokenizer-batch-encode"] and v["enable-dynamic-batch-tokenizer"]
    return bool(both)


@EARLY.rule(
    REWRITE, "nothing-to-batch-tokenize",
    "enable-tokenizer-batch-encode enable-dynamic-batch-tokenizer skip-tokenizer-init",
    "skip-tokenizer-init with a way to tokenize in batches", "there is nothing to tokenize",
    ">=0.5.4",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    if not v["skip-tokenizer-init"]:
        return None
    ways = ("enable-tokenizer-batch-encode", "enable-dynamic-batch-tokenizer")
    return {name: False for name in ways if v[name]}


@EARLY.rule(
    REFUSE, "tokenizer-workers", "tokenizer-worker-num", "tokenizer-worker-num below 1",
    "somebody has to tokenize",
)  # fmt: skip
def _(v: View) -> bool:
    return v.number("tokenizer-worker-num") < 1


@EARLY.rule(
    REFUSE, "share-of-the-sliding-window", "swa-full-tokens-ratio",
    "swa-full-tokens-ratio is not above 0 and at most 1",
    "it is the window's share of the tokens of full attention", ">=0.5.6.post1",
)  # fmt: skip
def _(v: View) -> bool:
    share = v["swa-full-tokens-ratio"]
    return share is not None and not 0 < share <= 1


@EARLY.rule(
    REFUSE, "metrics-files-need-a-folder", "export-metrics-to-file export-metrics-to-file-dir",
    "export-metrics-to-file without export-metrics-to-file-dir", "nobody says where to",
)  # fmt: skip
def _(v: View) -> bool:
    return bool(v["export-metrics-to-file"]) and v["export-metrics-to-file-dir"] is None


@EARLY.rule(
    REFUSE, "padding-for-compiled-graphs", "disable-cuda-graph-padding enable-torch-compile",
    "both are on", "every batch size would be compiled", ">=0.5.12",
)  # fmt: skip
def _(v: View) -> bool:
    return bool(v["disable-cuda-graph-padding"] and v["enable-torch-compile"])


@EARLY.rule(
    REFUSE, "key-and-certificate", "ssl-keyfile ssl-certfile", "one of them without the other",
    "TLS needs both",
)  # fmt: skip
def _(v: View) -> bool:
    return (v["ssl-keyfile"] is None) != (v["ssl-certfile"] is None)


@EARLY.rule(
    REWRITE, "dump-without-graphs", "disable-cuda-graph debug-tensor-dump-output-folder",
    "debug-tensor-dump-output-folder", "tensors are dumped layer by layer",
    ">=0.5.4.post2,<=0.5.13.post1",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    dumps = v["debug-tensor-dump-output-folder"] is not None
    return {"disable-cuda-graph": True, "skip-server-warmup": True} if dumps else None


# Attributes of Python's logging, whose names the engine looks up in capitals; and what its web
# server knows of them. Neither list is in the parser.
_LEVELS = {"CRITICAL", "FATAL", "ERROR", "WARN", "WARNING", "INFO", "DEBUG", "NOTSET"}
_HTTP_LEVELS = {"critical", "error", "warning", "info", "debug", "trace"}


@EARLY.rule(
    REFUSE, "levels-of-logging", "log-level", "log-level is no level of Python's logging",
    "it takes critical, error, warning, info or debug for log-level, not {log-level}",
)  # fmt: skip
def _(v: View) -> bool:
    level = v["log-level"]
    return level is not None and str(level).upper() not in _LEVELS


@EARLY.rule(
    LATER, "levels-of-the-web-server", "log-level-http log-level",
    "log-level-http (log-level, if unset) is no level of the web server",
    "its web server takes critical, error, warning, info, debug or trace for log-level-http, and "
    "takes log-level where that is unset",
)  # fmt: skip
def _(v: View) -> bool:
    level = v["log-level-http"] or v["log-level"]
    return level is not None and str(level).lower() not in _HTTP_LEVELS


@LAST.rule(
    REFUSE, "chunks-of-whole-pages", "chunked-prefill-size page-size",
    "chunked-prefill-size is no multiple of page-size (after DP attention has divided it)",
    "a chunk of {chunked-prefill-size} tokens is not made of whole pages of {page-size}",
)  # fmt: skip
def _(v: View) -> bool:
    chunk = v["chunked-prefill-size"]
    if chunk is None or chunk <= 0 or (v.mode == "decode" and v.since("0.5.3")):
        return False
    page = v.number("page-size")
    return page < 1 or int(chunk) % page != 0


@LAST.rule(
    REFUSE, "priorities-and-policy", "schedule-policy enable-priority-scheduling",
    "enable-priority-scheduling with a policy other than fcfs and lof",
    "priorities order the queue of fcfs or lof, not of {schedule-policy}",
)  # fmt: skip
def _(v: View) -> bool:
    return bool(v["enable-priority-scheduling"]) and v["schedule-policy"] not in ("fcfs", "lof")


@LAST.rule(
    REFUSE, "retraction-by-priority", "retraction-policy enable-priority-scheduling",
    "retraction-policy priority without enable-priority-scheduling", "requests have no priority",
)  # fmt: skip
def _(v: View) -> bool:
    return v["retraction-policy"] == "priority" and not v["enable-priority-scheduling"]


@LAST.rule(
    REFUSE, "conservative-or-not", "schedule-conservativeness",
    "schedule-conservativeness below 0", "it is a factor", ">=0.5.5",
)  # fmt: skip
def _(v: View) -> bool:
    value = v["schedule-conservativeness"]
    return value is not None and value < 0


@LAST.rule(
    REFUSE, "multiplexing", "enable-pdmux pp-size chunked-prefill-size disaggregation-mode "
    "disable-overlap-schedule",
    "enable-pdmux with pipeline stages, chunks, disaggregation or the overlap schedule",
    "multiplexing wants pp-size 1, chunked-prefill-size -1, disable-overlap-schedule and no "
    "disaggregation", ">=0.5.3.post2",
)  # fmt: skip
def _(v: View) -> bool:
    if not v["enable-pdmux"]:
        return False
    alone = v.number("pp-size") == 1 and v["chunked-prefill-size"] == -1 and v.mode == "null"
    return not (alone and v["disable-overlap-schedule"])


@LAST.rule(
    REFUSE, "scoring-many-items",
    "multi-item-scoring-delimiter disable-radix-cache chunked-prefill-size",
    "multi-item-scoring-delimiter with the radix cache or with chunks",
    "it wants disable-radix-cache and chunked-prefill-size -1",
)  # fmt: skip
def _(v: View) -> bool:
    if v["multi-item-scoring-delimiter"] is None:
        return False
    return not v["disable-radix-cache"] or v["chunked-prefill-size"] != -1


@LAST.rule(
    REFUSE, "longer-than-the-model", "context-length",
    "context-length above the model's own, without SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN",
    "the model was made for fewer than {context-length} tokens; "
    "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 lets it answer all the same", ">=0.5.2",
)  # fmt: skip
def _(v: View) -> bool | None:
    context, asked = v.facts.model.get("context"), v["context-length"]
    if context is None or asked is None:
        return None
    return asked > context and not v.env("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN")


@LAST.rule(
    REWRITE, "graph-sizes-set-the-largest", "cuda-graph-max-bs cuda-graph-bs",
    "cuda-graph-bs is set", "the largest of cuda-graph-bs is the largest graph",
    ">=0.5.3,<=0.5.13.post1",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    sizes = v["cuda-graph-bs"]
    return {"cuda-graph-max-bs": max(sizes)} if sizes else None
