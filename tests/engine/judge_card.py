"""What the judges of ServerArgs share: the engine on a card that is only said to be there.

Imported by the scripts that run with the Python of a CPU environment, before anything of the
engine. What asks for hardware is replaced in every module of the engine: the rest is the engine's.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys
import warnings
from typing import Any

os.environ.update(TRANSFORMERS_OFFLINE="1", HF_HUB_OFFLINE="1", SGLANG_DISABLE_CUDNN_CHECK="1")
warnings.filterwarnings("ignore")

import torch  # noqa: E402
from transformers import configuration_utils  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, AutoConfig  # noqa: E402

logging.disable(logging.CRITICAL)
_register = AutoConfig.register
AutoConfig.register = staticmethod(lambda name, one, exist_ok=False: _register(name, one, True))

from sglang.srt import server_args  # noqa: E402

__all__ = ["pretend", "register", "server_args"]

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
    "arg_groups.pipeline",
    "layers.cp.bcg",
    "layers.cp.utils",
    "layers.cp.base",
    "speculative.ragged_verify",
    "speculative.spec_info",
    "speculative.spec_registry",
    "speculative.adaptive_spec_params",
    "lora.lora_registry",
):
    with contextlib.suppress(Exception):
        importlib.import_module(f"sglang.srt.{name}")

# DeepSeek V3.2's own type is left out: the engine has a rule for not knowing it.
UNREGISTERED = {"deepseek_v32"}
PRETENDED: list[Any] = []


def everywhere(name: str, value: Any) -> None:
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("sglang") and module is not None and hasattr(module, name):
            setattr(module, name, value)


def pretend(mib: int, capability: tuple[int, int], vendor: str = "nvidia") -> None:
    """Anew only for another card, or for modules that came in between: it takes a while."""
    now = [mib, capability, vendor, len(sys.modules)]
    if now == PRETENDED:
        return
    PRETENDED[:] = now
    amd, major = vendor == "amd", capability[0]
    nvidia = not amd
    torch.cuda.get_device_capability = lambda *_, **__: capability
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 8
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_name = lambda *_, **__: "a card"
    torch.version.cuda = None if amd else "13.0"
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
    AutoConfig.register(model_type, made, exist_ok=True)
