"""The real engine's own reading of its arguments on a card that is only said to be there.

Run with the Python of a CPU environment. One JSON document a line on stdin: {"config": NAME of a
file in the folder that the first argument names, "argv": arguments as of a command line, "env":
variables, "mib": memory of a card, "capability": [major, minor]}; one a line comes out: {"values":
what the fields became, by their Python names}, or {"error": text}.

What asks for hardware is replaced in every module of the engine: the rest is the engine's, its
parser and its last checks included.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import logging
import os
import sys
import warnings
from pathlib import Path
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


def everywhere(name: str, value: Any) -> None:
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("sglang") and module is not None and hasattr(module, name):
            setattr(module, name, value)


PRETENDED: list[Any] = []


def pretend(mib: int, capability: tuple[int, int]) -> None:
    """Anew only for another card, or for modules that came in between: it takes a while."""
    now = [mib, capability, len(sys.modules)]
    if now == PRETENDED:
        return
    PRETENDED[:] = now
    major = capability[0]
    torch.cuda.get_device_capability = lambda *_, **__: capability
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 8
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_name = lambda *_, **__: "a card"
    torch.version.cuda = "13.0"
    answers = {
        "get_device_memory_capacity": mib,
        "get_device": "cuda",
        "get_device_sm": major * 10 + capability[1],
        "get_nvidia_driver_version": (580,),
        "is_cuda": True,
        "is_hip": False,
        "is_cuda_alike": True,
        "is_flashinfer_available": True,
        "is_triton_kernels_available": True,
        "is_hopper_with_cuda_12_3": major == 9,
        "is_sm90_supported": major == 9,
        "is_sm100_supported": major == 10,
        "is_sm120_supported": major == 12,
        "is_blackwell": major in (10, 12),
        "is_blackwell_supported": major in (10, 12),
        **dict.fromkeys(("is_cpu", "is_npu", "is_xpu", "is_mps", "is_musa"), False),
    }
    for name, answer in answers.items():
        everywhere(name, lambda *_, answer=answer, **__: answer)
    for name, answer in (("_is_hip", False), ("_is_cuda", True), ("_is_cpu", False)):
        everywhere(name, answer)
    platform = Platform(major, capability)
    everywhere("get_platform", lambda *_, **__: platform)


class Platform:
    """What 0.5.19 and later ask instead of functions."""

    def __init__(self, major: int, capability: tuple[int, int]) -> None:
        self.is_cuda = self.is_cuda_alike = self.has_flashinfer = True
        self.is_sm90 = self.is_hopper_with_cuda_12_3 = major == 9
        self.is_sm100 = self.is_sm100_or_sm110 = major == 10
        self.is_sm120 = major == 12
        self.is_blackwell = major in (10, 12)
        self.device_capability = capability
        self.device_sm = major * 10 + capability[1]

    def __getattr__(self, name: str) -> bool:
        if name.startswith(("is_", "has_")):
            return False
        raise AttributeError(name)


def register(model_type: str) -> None:
    """A model type that this Transformers does not know yet becomes a plain configuration."""
    if model_type in CONFIG_MAPPING or model_type == "deepseek_v32":
        return
    fields = {"model_type": model_type, "rope_scaling": None, "vocab_size": 32000}
    made = type("Plain", (configuration_utils.PretrainedConfig,), fields)
    AutoConfig.register(model_type, made, exist_ok=True)


class Refusal(Exception):
    pass


def parsed(argv: list[str]) -> Any:
    import argparse

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> Any:
            raise Refusal(message)

    parser = Parser()
    server_args.ServerArgs.add_cli_args(parser)
    return server_args.ServerArgs.from_cli_args(parser.parse_args(argv))


def resolve(asked: dict[str, Any], folder: Path) -> dict[str, Any]:
    model = folder / asked["config"]
    register(json.loads((model / "config.json").read_text())["model_type"])
    pretend(asked["mib"], tuple(asked["capability"]))
    argv = [f"--model-path={model}", "--device=cuda", *asked["argv"]]
    before = dict(os.environ)
    os.environ.update(asked.get("env") or {})
    try:
        made = parsed(argv)
        if hasattr(made, "resolve_once"):
            made.resolve_once()
        made.check_server_args()
        if hasattr(made, "resolved_dict"):
            return dict(made.resolved_dict())
        if hasattr(made, "resolve_once"):
            from sglang.srt.arg_groups.overrides import resolved_view

            view = resolved_view(made)
            return {name: getattr(view, name) for name in vars(made) if name[0] != "_"}
        return {name: value for name, value in vars(made).items() if name[0] != "_"}
    finally:
        os.environ.clear()
        os.environ.update(before)


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the engine prints is no answer
    folder = Path(sys.argv[1])
    for line in sys.stdin:
        try:
            hidden = io.StringIO()
            with contextlib.redirect_stdout(hidden), contextlib.redirect_stderr(hidden):
                found = resolve(json.loads(line), folder)
            answer: dict[str, Any] = {"values": found}
        except (Exception, SystemExit) as problem:
            answer = {"error": f"{type(problem).__name__}: {problem}"[:600]}
        out.write(json.dumps(answer, default=str) + "\n")
        out.flush()


main()
