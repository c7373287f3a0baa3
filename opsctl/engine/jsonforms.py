"""Which flags hold JSON, what the engine needs it to be, and what may stand in its place.

Read in the packages of 0.5.2 to 0.5.23, where the engine uses the value: its parser takes any text
for most of these flags, and it ends, or goes on without them, only when the model is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from opsctl.engine.order import age

Judge = Callable[[Mapping[str, Any]], str]
_ENDINGS = (".json", ".toml", ".yaml", ".yml")
_DEVICES = "names of devices with commas between them"
_PER_GPU = 'a mapping of each GPU\'s number to its devices: {"0": "mlx5_0"}'


def _any(found: Mapping[str, Any]) -> str:
    return ""


@dataclass(frozen=True)
class Form:
    """`allowed`: in words. `at`, `endings`: of a file that is read in place of JSON: what stands
    before its path, and how its name ends; None: no file is read, (): of any name. `names`: other
    text is no JSON, but names of things. `unset`: empty text is as if the flag were not there.
    `judge`: what is wrong with a mapping, "" for nothing."""

    allowed: str = "a mapping (JSON)"
    at: str = ""
    endings: tuple[str, ...] | None = None
    names: bool = False
    unset: bool = False
    judge: Judge = _any

    def file(self, text: str) -> str | None:
        """The path of the file that the text names in place of JSON."""
        if self.endings is None or not text.startswith(self.at) or text.startswith(("{", "[")):
            return None
        path = text.removeprefix(self.at)
        return path if path and (not self.endings or path.lower().endswith(self.endings)) else None

    def stands_for(self, text: str) -> bool:
        """Whether the text is right without being JSON."""
        named = self.names and bool(text) and not text.startswith(("{", "["))
        return named or self.file(text) is not None


def form_of(name: str, version: str) -> Form | None:
    """None: the flag holds no JSON mapping, or nobody knows what it has to be."""
    newest = None
    for since, form in _FORMS.get(name, ()):
        if age(version) >= age(since):
            newest = form
    return newest


def file_of(name: str, text: str) -> tuple[str, str] | None:
    """What stands before the path, and the path, where a flag's text names a file in place of
    JSON in any release."""
    for _, form in _FORMS.get(name, ()):
        if (path := form.file(text)) is not None and (form.endings != () or "/" in path):
            return form.at, path
    return None


def _modalities(found: Mapping[str, Any]) -> str:
    wrong = [key for key in found if key not in ("image", "video", "audio")]
    return f"has the kind {wrong[0]!r}" if wrong else ""


def _settings(found: Mapping[str, Any]) -> str:
    kinds = ("image", "video", "audio")
    wrong = [key for key in kinds if not isinstance(found.get(key, {}), Mapping)]
    return f"{wrong[0]} must be a mapping itself" if wrong else ""


def _prefetch(found: Mapping[str, Any]) -> str:
    """Numbers that the engine asks for by their type, and refuses to start without."""
    kinds: tuple[tuple[str, type | tuple[type, ...], str], ...] = (
        ("prefetch_threshold", int, "a whole number"),
        ("prefetch_timeout_base", (int, float), "a number"),
        ("prefetch_timeout_per_ki_token", (int, float), "a number"),
        ("hicache_storage_pass_prefix_keys", bool, "true or false"),
    )
    for key, kind, said in kinds:
        if key in found and not isinstance(found[key], kind):
            return f"{key} must be {said}"
    return ""


def _exchange(found: Mapping[str, Any]) -> str:
    """DeepEP's: both halves, with as many SMs."""
    halves = [found.get(key) for key in ("normal_dispatch", "normal_combine")]
    if not all(isinstance(half, Mapping) and "num_sms" in half for half in halves):
        return "lacks normal_dispatch or normal_combine, each a mapping with num_sms"
    first, second = (half["num_sms"] for half in halves if isinstance(half, Mapping))
    return "" if first == second else "normal_dispatch and normal_combine differ in num_sms"


def _per_gpu(found: Mapping[str, Any]) -> str:
    right = all(key.isdigit() and isinstance(value, str) for key, value in found.items())
    return "" if found and right else "is no mapping of GPUs to devices"


def _sparse(found: Mapping[str, Any]) -> str:
    top, block = found.get("top_k", 2048), found.get("swap_in_block_size", 960)
    buffer = found.get("device_buffer_size", 2 * top if isinstance(top, int) else 0)
    if not isinstance(top, int) or not isinstance(buffer, int) or buffer < top:
        return "device_buffer_size must be a whole number, no smaller than top_k"
    if isinstance(block, bool) or not isinstance(block, int) or not 0 < block <= 1024:
        return "swap_in_block_size must be a whole number from 1 to 1024"
    return ""


_OBJECT = Form()
_UNSET = Form(unset=True)
_FILE = f"a mapping (JSON), or @FILE of {', '.join(_ENDINGS)}"
# name → (the first release of which it is true, what it is), oldest first.
_FORMS: Mapping[str, tuple[tuple[str, Form], ...]] = {
    "json-model-override-args": (("0.5.2", _OBJECT),),
    "model-loader-extra-config": (("0.5.2", _UNSET),),
    "kv-events-config": (("0.5.2", _OBJECT),),
    "preferred-sampling-params": (("0.5.2", _UNSET),),
    "default-chat-template-kwargs": (("0.5.2", _OBJECT),),
    "extra-metric-labels": (("0.5.2", _OBJECT),),
    "radix-eviction-policy-config": (("0.5.2", _OBJECT),),
    "unified-cache-external-linker-config": (("0.5.2", _OBJECT),),
    "modelexpress-config": (("0.5.2", _OBJECT),),
    "hierarchical-sparse-attention-extra-config": (("0.5.2", _OBJECT),),
    "hisparse-config": (("0.5.2", Form(judge=_sparse)),),
    "mm-process-config": (("0.5.2", Form(judge=_settings)),),
    "limit-mm-data-per-request": (
        ("0.5.2", Form("a mapping (JSON) of image, video, audio", judge=_modalities)),
    ),
    "hicache-storage-backend-extra-config": (
        ("0.5.2", _UNSET),
        ("0.5.4", Form(unset=True, judge=_prefetch)),
        ("0.5.9", Form(_FILE, "@", _ENDINGS, unset=True, judge=_prefetch)),
    ),
    "deepep-config": (
        (
            "0.5.2",
            Form("a mapping (JSON), or a file of it", "", (), unset=True, judge=_exchange),
        ),
    ),
    "disaggregation-ib-device": (
        ("0.5.2", Form(_DEVICES, names=True, judge=lambda _: "takes no mapping in this release")),
        (
            "0.5.5.post2",
            Form(
                f"{_DEVICES}; {_PER_GPU}; a .json file of it",
                *("", (".json",)),
                names=True,
                judge=_per_gpu,
            ),
        ),
    ),
}
