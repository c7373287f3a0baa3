"""The host cache tier: its I/O backend, layout, policies, sizes, and what it cannot live with.

Sources: server_args.py `_handle_hicache`, `_handle_cache_compatibility` (to 0.5.18),
arg_groups/hicache_hook.py and kv_cache_hook.py (0.5.19 on), mem_cache/hiradix_cache.py (to 0.5.10).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.engine.rules.rule import IGNORED, REFUSE, REWRITE, Theme
from opsctl.engine.rules.view import View

THEME = Theme("Host cache tier")
IO, LAYOUT, STORE = "hicache-io-backend", "hicache-mem-layout", "hicache-storage-backend"
OFFLOAD = "disaggregation-decode-enable-offload-kvcache"
MODE = "hicache-host-memory-mode"
BACKUP = "disaggregation-decode-retraction-backup"


def _moves(v: View) -> bool:
    """Whether pages go between device and host at all. (A decode server of later releases keeps
    what it takes back from requests in a host pool.)"""
    kept = v.mode == "decode" and v.catalogue.canonical(BACKUP) is not None
    return v.tier or bool(v[OFFLOAD]) or (kept and v[BACKUP] in (None, "host_pool"))


def _normalized(v: View) -> bool:
    """From 0.5.10 on the flags of a tier that is off are left as they are."""
    return _moves(v) or not v.since("0.5.10")


@THEME.rule(
    REFUSE, "tier-needs-the-radix-cache", "enable-hierarchical-cache disable-radix-cache",
    "both are on, or a decode server's radix cache is off by itself",
    "the tier keeps the nodes of the radix tree, and disable-radix-cache leaves none",
)  # fmt: skip
def _(v: View) -> bool:
    return v.tier and bool(v["disable-radix-cache"])


@THEME.rule(
    REFUSE, "host-memory-fraction-is-a-share", "hicache-host-memory-fraction",
    "it is not above 0 and at most 1", "hicache-host-memory-fraction is a share of the free RAM",
)  # fmt: skip
def _(v: View) -> bool:
    share = v["hicache-host-memory-fraction"]
    return share is not None and not 0 < share <= 1


@THEME.rule(
    REFUSE, "buffer-only-needs-storage", f"{MODE} {STORE}",
    "buffer_only without a storage backend",
    "with buffer_only the RAM only passes pages on, so hicache-storage-backend must say where to",
)  # fmt: skip
def _(v: View) -> bool:
    return v.tier and v[MODE] == "buffer_only" and v[STORE] is None


@THEME.rule(
    REFUSE, "buffer-only-not-on-decode", f"{MODE} disaggregation-mode",
    "buffer_only on a decode server", "decode servers do not take the way through the buffer",
)  # fmt: skip
def _(v: View) -> bool:
    return _moves(v) and v[MODE] == "buffer_only" and v.mode == "decode"


@THEME.rule(
    REFUSE, "buffer-only-without-write-back", "hicache-write-policy hicache-host-memory-mode",
    "buffer_only with write_back", "there is no host tier to write back to, only storage",
    "<=0.5.21",
)  # fmt: skip
def _(v: View) -> bool:
    return v.tier and v[MODE] == "buffer_only" and v["hicache-write-policy"] == "write_back"


@THEME.rule(
    REWRITE, "buffer-only-writes-through", "hicache-write-policy hicache-host-memory-mode",
    "buffer_only with write_back", "there is no host tier to write back to, only storage",
    ">=0.5.22",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    if v.tier and v[MODE] == "buffer_only" and v["hicache-write-policy"] == "write_back":
        return {"hicache-write-policy": "write_through"}
    return None


@THEME.rule(
    REWRITE, "size-or-ratio-ends-automatic-size",
    "hicache-host-memory-fraction hicache-ratio hicache-size",
    "hicache-ratio is set, or hicache-size is above 0",
    "a size that is set counts, and the share of the RAM is not used",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    sized = v["hicache-ratio"] is not None or (v["hicache-size"] or 0) > 0
    automatic = v.catalogue.canonical("hicache-host-memory-fraction") is not None
    return {"hicache-host-memory-fraction": None} if automatic and sized else None


@THEME.rule(
    IGNORED, "size-outweighs-ratio", "hicache-ratio hicache-size",
    "both are set", "hicache-size {hicache-size} is above 0 and decides alone",
)  # fmt: skip
def _(v: View) -> bool:
    return v.tier and v.written("hicache-ratio") and (v["hicache-size"] or 0) > 0


@THEME.rule(
    REWRITE, "page-first-direct-needs-direct", f"{IO} {LAYOUT}",
    "layout page_first_direct with I/O backend kernel",
    "the copy kernels do not read the layout page_first_direct", ">=0.5.3",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    if _normalized(v) and v[LAYOUT] == "page_first_direct" and v[IO] == "kernel":
        return {IO: "direct"}
    return None


@THEME.rule(
    REWRITE, "direct-needs-page-first-direct", f"{LAYOUT} {IO}",
    "layout page_first with I/O backend direct (up to 0.5.9 only once the tier is made)",
    "plain copies do not read the layout page_first", ">=0.5.3",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    if _moves(v) and v[LAYOUT] == "page_first" and v[IO] == "direct":
        return {LAYOUT: "page_first_direct"}
    return None


@THEME.rule(
    REWRITE, "mooncake-needs-pages-first", f"{LAYOUT} {STORE} {IO}",
    "layer_first with the storage backend mooncake (or, in later releases, npu_memcache)",
    "this storage sends whole pages, which layer_first does not keep together",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    stores = ("mooncake", "npu_memcache") if v.since("0.5.20") else ("mooncake",)
    if not _normalized(v) or v[STORE] not in stores or v[LAYOUT] != "layer_first":
        return None
    if v["dcp-size"] not in (None, 1) and v[STORE] == "mooncake" and v.since("0.5.19"):
        return None
    if not v.since("0.5.3"):
        return {LAYOUT: "page_first", IO: "kernel"}
    made = {"kernel": "page_first", "direct": "page_first_direct"}.get(v[IO])
    return {LAYOUT: made} if made else None


@THEME.rule(
    REWRITE, "unified-memory-needs-kernel", f"{LAYOUT} {IO} enable-unified-memory",
    "page_first_direct with enable-unified-memory",
    "the rows of the unified pool are strided, and plain copies want them packed", ">=0.5.23",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    if v.tier and v["enable-unified-memory"] and v[LAYOUT] == "page_first_direct":
        return {LAYOUT: "page_first", IO: "kernel"}
    return None


@THEME.rule(
    REWRITE, "fa3-decode-with-kernel", f"decode-attention-backend attention-backend {IO}",
    "the tier with I/O backend kernel, and decode on fa3 because attention-backend says so",
    "fa3 cannot decode while the copy kernels move pages", ">=0.5.5,<=0.5.13.post1",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    if not _moves(v) or v[IO] != "kernel" or v["decode-attention-backend"] is not None:
        return None
    if v["attention-backend"] != "fa3" or v.latent is None or v.sm is None:
        return None
    if v.latent:
        return {"decode-attention-backend": "flashinfer" if v.sm == 10 else "triton"}
    return {"decode-attention-backend": "flashinfer"}


@THEME.rule(
    REWRITE, "explicit-fa3-decode-with-kernel", f"{IO} decode-attention-backend",
    "the tier with I/O backend kernel, and decode-attention-backend fa3",
    "fa3 cannot decode while the copy kernels move pages; plain copies are slower for small pages",
    ">=0.5.4.post1,<=0.5.13.post1",
)  # fmt: skip
def _(v: View) -> Mapping[str, Any] | None:
    if _moves(v) and v[IO] == "kernel" and v["decode-attention-backend"] == "fa3":
        return {IO: "direct"}
    return None


@THEME.rule(
    REFUSE, "tier-or-lmcache", "enable-lmcache enable-hierarchical-cache",
    "both are on", "both would keep the host's copy of the cache", ">=0.5.21",
)  # fmt: skip
def _(v: View) -> bool:
    return v.tier and bool(v["enable-lmcache"])


@THEME.rule(
    REFUSE, "lmcache-goes-with-little",
    "enable-lmcache disable-radix-cache attn-dp-size dcp-size disaggregation-mode "
    "enable-streaming-session hicache-host-memory-mode",
    "enable-lmcache without the radix cache, or with DP attention, decode context parallelism, "
    "streaming sessions, buffer_only, or a prefill or decode server",
    "LMCache keeps the nodes of the radix tree, for plain servers only", ">=0.5.21",
)  # fmt: skip
def _(v: View) -> bool:
    if not v["enable-lmcache"]:
        return False
    split = v.groups > 1 or v.number("dcp-size") > 1 or v.mode != "null"
    other = v["enable-streaming-session"] or v[MODE] == "buffer_only"
    return bool(v["disable-radix-cache"]) or split or bool(other)


@THEME.rule(
    REFUSE, "tier-or-external-linker", "enable-unified-cache-external-linker "
    f"enable-hierarchical-cache {STORE} disable-radix-cache",
    "the linker with the tier, with a storage backend of the tier, or without the radix cache",
    "the external linker takes the tier's place and stands on the radix cache", ">=0.5.19",
)  # fmt: skip
def _(v: View) -> bool:
    if not v["enable-unified-cache-external-linker"]:
        return False
    return v.tier or v[STORE] is not None or bool(v["disable-radix-cache"])


@THEME.rule(
    REFUSE, "offload-is-for-decode", f"{OFFLOAD} disaggregation-mode",
    "decode offload on a server that is not a decode server",
    "only decode servers of a PD pair offload",
)  # fmt: skip
def _(v: View) -> bool:
    return bool(v[OFFLOAD]) and v.mode != "decode"


@THEME.rule(
    REFUSE, "offload-needs-storage", f"{OFFLOAD} {STORE}",
    "decode offload without a storage backend", "hicache-storage-backend must say where to",
    ">=0.5.10",
)  # fmt: skip
def _(v: View) -> bool:
    return bool(v[OFFLOAD]) and v[STORE] is None


@THEME.rule(
    REFUSE, "offload-without-spec-v2", OFFLOAD,
    "decode offload with SGLANG_ENABLE_SPEC_V2",
    "the offload does not work with SGLANG_ENABLE_SPEC_V2", ">=0.5.5.post3,<=0.5.10.post1",
)  # fmt: skip
def _(v: View) -> bool:
    return bool(v[OFFLOAD]) and v.mode == "decode" and v.env("SGLANG_ENABLE_SPEC_V2")


@THEME.rule(
    REFUSE, "tier-over-context-parallel-decode", "dcp-size enable-hierarchical-cache",
    "dcp-size above 1 with the tier on a model without MLA, or with a speculation other than "
    "DSPARK", "only the host pool of MLA follows decode context parallelism, and no draft but "
    "DSPARK's", ">=0.5.17",
)  # fmt: skip
def _(v: View) -> bool:
    if not v.tier or v["dcp-size"] in (None, 1):
        return False
    return v.latent is False or v.algorithm not in ("", "DSPARK")
