"""LoRA adapters. Sources: server_args.py `check_lora_server_args`; arg_groups/lora_hook.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.engine.rules.rule import REFUSE, REWRITE, Theme
from opsctl.engine.rules.view import View

THEME = Theme("LoRA")


def _on(v: View) -> bool:
    return bool(v["enable-lora"])


@THEME.rule(
    REFUSE, "loras-in-a-batch", "max-loras-per-batch", "max-loras-per-batch below 1",
    "a batch has room for one adapter at least",
)  # fmt: skip
def _(v: View) -> bool:
    return v.number("max-loras-per-batch", 8) < 1


@THEME.rule(
    REWRITE, "paths-turn-lora-on", "enable-lora lora-paths", "lora-paths without enable-lora",
    "lora-paths turns LoRA on",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    return {"enable-lora": True} if v["lora-paths"] and not v.written("enable-lora") else None


@THEME.rule(
    REFUSE, "lora-needs-a-shape", "enable-lora lora-paths max-lora-rank lora-target-modules",
    "enable-lora without lora-paths, and without both of max-lora-rank and lora-target-modules",
    "without an adapter to look at, max-lora-rank and lora-target-modules must both say how "
    "large adapters may be",
)  # fmt: skip
def _(v: View) -> bool:
    shaped = v["max-lora-rank"] and v["lora-target-modules"]
    return _on(v) and not v["lora-paths"] and not shaped


@THEME.rule(
    REFUSE, "all-modules-alone", "lora-target-modules", "lora-target-modules: all and others",
    "all already names every module",
)  # fmt: skip
def _(v: View) -> bool:
    modules = v["lora-target-modules"] or ()
    return _on(v) and "all" in modules and len(set(modules)) > 1


@THEME.rule(
    REFUSE, "loaded-loras", "max-loaded-loras max-loras-per-batch lora-paths",
    "max-loaded-loras below max-loras-per-batch, or below the number of lora-paths",
    "max-loaded-loras {max-loaded-loras} does not hold what a batch or lora-paths asks for",
)  # fmt: skip
def _(v: View) -> bool:
    loaded = v["max-loaded-loras"]
    if not _on(v) or loaded is None:
        return False
    needed = max(v.number("max-loras-per-batch", 8), len(v["lora-paths"] or ()))
    return int(loaded) < needed


@THEME.rule(
    REFUSE, "overlapped-loras", "enable-lora-overlap-loading max-loaded-loras max-loras-per-batch",
    "enable-lora-overlap-loading, and max-loaded-loras is unset or above twice "
    "max-loras-per-batch", "overlapped loading pins every loaded adapter in RAM, so "
    "max-loaded-loras must be set, to twice max-loras-per-batch at most",
)  # fmt: skip
def _(v: View) -> bool:
    if not _on(v) or not v["enable-lora-overlap-loading"]:
        return False
    loaded = v["max-loaded-loras"]
    return loaded is None or loaded > 2 * v.number("max-loras-per-batch", 8)


@THEME.rule(
    REFUSE, "lora-with-speculation", "enable-lora speculative-algorithm",
    "LoRA with a speculation other than NGRAM (EAGLE and others from 0.5.19 on)",
    "adapters do not go with speculative-algorithm {speculative-algorithm}", ">=0.5.5.post3",
)  # fmt: skip
def _(v: View) -> bool:
    with_ = ["", "NGRAM"]
    if v.since("0.5.19"):
        with_ += ["EAGLE", "EAGLE3", "DFLASH", "DSPARK"]
    return _on(v) and v.algorithm not in with_
