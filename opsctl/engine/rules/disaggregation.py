"""Prefill and decode servers, and encoders of their own.

Sources: server_args.py `_handle_pd_disaggregation`, `_handle_encoder_disaggregation`;
arg_groups/pd_disaggregation_hook.py (0.5.13 on).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.engine.rules.rule import REFUSE, REWRITE, Theme
from opsctl.engine.rules.view import View

THEME = Theme("Prefill, decode and encoder servers")
RADIX = "disaggregation-decode-enable-radix-cache"
TRANSFER = "disaggregation-transfer-backend"


@THEME.rule(
    REWRITE, "decode-without-radix", f"disable-radix-cache disaggregation-mode {RADIX}",
    "a decode server without disaggregation-decode-enable-radix-cache",
    "a decode server gets its cache from prefill servers and keeps no tree",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    if v.mode != "decode":
        return None
    return {"disable-radix-cache": not v[RADIX]}


@THEME.rule(
    REWRITE, "prefill-without-graphs", "disable-cuda-graph disaggregation-mode",
    "a prefill server without piecewise graphs (up to 0.5.9 they have to be asked for)",
    "a prefill server never decodes", "<=0.5.12.post1",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    if v.mode != "prefill":
        return None
    if v.since("0.5.10") and not v["disable-piecewise-cuda-graph"]:
        return None
    if not v.since("0.5.10") and v["enable-piecewise-cuda-graph"]:
        return None
    return {"disable-cuda-graph": True}


@THEME.rule(
    REFUSE, "prefill-sends-for-real", f"{TRANSFER} disaggregation-mode",
    "a prefill server with disaggregation-transfer-backend fake",
    "a prefill server has to send what it computed", ">=0.5.10",
)  # fmt: skip
def _(v: View) -> bool:
    return v.mode == "prefill" and v[TRANSFER] == "fake"


@THEME.rule(
    REFUSE, "decode-radix-with-fake", f"{TRANSFER} {RADIX}",
    "disaggregation-decode-enable-radix-cache with disaggregation-transfer-backend fake",
    "there is no cache to keep",
)  # fmt: skip
def _(v: View) -> bool:
    return v.mode == "decode" and bool(v[RADIX]) and v[TRANSFER] == "fake"


@THEME.rule(
    REFUSE, "decode-radix-with-speculation", f"speculative-algorithm {RADIX}",
    "disaggregation-decode-enable-radix-cache with a speculation that does not keep it",
    "speculative-algorithm {speculative-algorithm} does not go with a decode server's radix cache",
)  # fmt: skip
def _(v: View) -> bool:
    if v.mode != "decode" or not v[RADIX]:
        return False
    keeps = ("", "EAGLE", "EAGLE3", "NEXTN", "DSPARK") if v.since("0.5.16") else ("",)
    return v.algorithm not in keeps


@THEME.rule(
    REFUSE, "decode-knows-its-own-size",
    "disaggregation-decode-tp disaggregation-decode-dp disaggregation-mode",
    "disaggregation-decode-tp or -dp on a decode server", "they tell a prefill server about decode "
    "servers",
)  # fmt: skip
def _(v: View) -> bool:
    told = (v["disaggregation-decode-tp"], v["disaggregation-decode-dp"])
    return v.mode == "decode" and any(one is not None for one in told)


@THEME.rule(
    REFUSE, "devices-per-gpu", "disaggregation-ib-device",
    "a mapping of devices, or a file of it, with Mooncake",
    "Mooncake's check takes names with commas between them alone, and "
    "{disaggregation-ib-device} for one of them", ">=0.5.9,<=0.5.12.post1",
)  # fmt: skip
def _(v: View) -> bool:
    text = str(v["disaggregation-ib-device"] or "").strip()
    sends = v.mode in ("prefill", "decode") and v[TRANSFER] == "mooncake"
    checked = sends or v["encoder-transfer-backend"] == "mooncake"
    return checked and (text.startswith("{") or text.endswith(".json"))


@THEME.rule(
    REFUSE, "encoder-or-language", "encoder-only language-only", "both are on",
    "a server is one half or the other",
)  # fmt: skip
def _(v: View) -> bool:
    return bool(v["encoder-only"] and v["language-only"])


@THEME.rule(
    REFUSE, "language-needs-encoders", "encoder-urls language-only",
    "language-only without encoder-urls", "somebody has to encode", "<=0.5.12.post1",
)  # fmt: skip
def _(v: View) -> bool:
    return bool(v["language-only"]) and not v["encoder-urls"]


@THEME.rule(
    REFUSE, "encoder-is-not-disaggregated", "encoder-only disaggregation-mode",
    "encoder-only with disaggregation-mode prefill or decode", "an encoder server does neither",
)  # fmt: skip
def _(v: View) -> bool:
    return bool(v["encoder-only"]) and v.mode != "null"


@THEME.rule(
    REFUSE, "prefix-images-need-an-encoder", "enable-prefix-mm-cache encoder-only",
    "enable-prefix-mm-cache without encoder-only", "only an encoder server keeps encoded images",
)  # fmt: skip
def _(v: View) -> bool:
    return bool(v["enable-prefix-mm-cache"]) and not v["encoder-only"]
