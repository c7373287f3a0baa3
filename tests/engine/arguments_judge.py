"""The real engine's own reading of its arguments, on hardware that is only said to be there.

Run with the Python of a CPU environment. One JSON document a line on stdin: {"config": the model's
config.json, "args": arguments by their Python names, "mib": memory of a card, "capability": [major,
minor], "vendor": "nvidia" or "amd"}; one a line comes out: what ServerArgs resolves to, or "error".

What asks for hardware is replaced in every module of the engine: the rest is the engine's.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import logging
import os
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

os.environ.update(TRANSFORMERS_OFFLINE="1", HF_HUB_OFFLINE="1")
warnings.filterwarnings("ignore")

import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import configuration_utils  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402

logging.disable(logging.CRITICAL)

from sglang.srt import server_args  # noqa: E402

# Loaded while the machine is still a CPU: with a GPU they would look for its kernels.
for name in (
    "configs.model_config",
    "layers.quantization",
    "layers.moe.utils",
    "layers.attention.nsa.utils",
    "layers.attention.dsa.utils",
    "arg_groups.overrides",
    "arg_groups.speculative_hook",
    "arg_groups.memory_hook",
    "layers.cp.bcg",
    "layers.cp.utils",
    "speculative.ragged_verify",
):
    with contextlib.suppress(ImportError):
        importlib.import_module(f"sglang.srt.{name}")

# DeepSeek V3.2's own type is left out: the engine has a rule for not knowing it.
UNREGISTERED = {"deepseek_v32"}
TOLD = (
    "mem_fraction_static",
    "page_size",
    "attention_backend",
    "prefill_attention_backend",
    "decode_attention_backend",
    "kv_cache_dtype",
    "chunked_prefill_size",
    "max_running_requests",
    "disable_radix_cache",
)


def everywhere(name: str, value: Any) -> None:
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("sglang") and module is not None and hasattr(module, name):
            setattr(module, name, value)


def pretend(mib: int, capability: tuple[int, int], vendor: str) -> None:
    amd, major = vendor == "amd", capability[0]
    nvidia = not amd
    torch.cuda.get_device_capability = lambda *_, **__: capability
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 8
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_name = lambda *_, **__: "a card"
    torch.version.cuda = None if amd else "12.9"
    torch.version.hip = "7.0" if amd else None
    answers = {
        "get_device_memory_capacity": mib,
        "get_device": "cuda",
        "get_device_sm": major * 10 + capability[1],
        "get_nvidia_driver_version": (580,),
        "is_cuda": nvidia,
        "is_hip": amd,
        "is_cuda_alike": True,
        "is_flashinfer_available": nvidia,
        "is_triton_kernels_available": True,
        "is_hopper_with_cuda_12_3": nvidia and major == 9,
        "is_sm90_supported": nvidia and major == 9,
        "is_sm100_supported": nvidia and major == 10,
        "is_sm120_supported": nvidia and major == 12,
        "is_blackwell": nvidia and major in (10, 12),
        "is_blackwell_supported": nvidia and major in (10, 12),
        **dict.fromkeys(("is_cpu", "is_npu", "is_xpu", "is_mps", "is_musa"), False),
    }
    for name, answer in answers.items():
        everywhere(name, lambda *_, answer=answer, **__: answer)
    for name, answer in (("_is_hip", amd), ("_is_cuda", nvidia), ("_is_cpu", False)):
        everywhere(name, answer)
    platform = Platform(nvidia, major, capability)
    everywhere("get_platform", lambda *_, **__: platform)


class Platform:
    """What 0.5.19 and later ask instead of functions."""

    def __init__(self, nvidia: bool, major: int, capability: tuple[int, int]) -> None:
        self.is_cuda, self.is_hip, self.is_cuda_alike = nvidia, not nvidia, True
        self.is_sm90 = self.is_hopper_with_cuda_12_3 = nvidia and major == 9
        self.is_sm100 = self.is_sm100_or_sm110 = nvidia and major == 10
        self.is_sm120 = nvidia and major == 12
        self.is_blackwell = nvidia and major in (10, 12)
        self.has_flashinfer, self.device_capability = nvidia, capability
        self.device_sm = major * 10 + capability[1]

    def __getattr__(self, name: str) -> bool:
        if name.startswith(("is_", "has_")):
            return False
        raise AttributeError(name)


def register(model_type: str) -> None:
    """A model type that this Transformers does not know yet becomes a plain configuration."""
    if model_type in CONFIG_MAPPING or model_type in UNREGISTERED:
        return
    fields = {"model_type": model_type, "rope_scaling": None, "vocab_size": 32000}
    made = type("Plain", (configuration_utils.PretrainedConfig,), fields)
    transformers.AutoConfig.register(model_type, made, exist_ok=True)


def resolve(asked: dict[str, Any]) -> dict[str, Any]:
    folder = tempfile.mkdtemp()
    try:
        Path(folder, "config.json").write_text(json.dumps(asked["config"]))
        Path(folder, "tokenizer_config.json").write_text("{}")
        register(asked["config"]["model_type"])
        pretend(asked["mib"], tuple(asked["capability"]), asked["vendor"])
        made = server_args.ServerArgs(model_path=folder, device="cuda", **asked["args"])
        view = made
        if hasattr(made, "resolve_once"):
            made.resolve_once()
            from sglang.srt.arg_groups.overrides import resolved_view

            view = resolved_view(made)
        return {name: getattr(view, name) for name in TOLD}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def answer(line: str) -> dict[str, Any]:
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return resolve(json.loads(line))
    except Exception as problem:
        return {"error": f"{type(problem).__name__}: {problem}"[:300]}


for line in sys.stdin.readlines():
    child = os.fork()  # the engine keeps what it resolved: every case gets a process of its own
    if child == 0:
        print(json.dumps(answer(line), default=str), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
