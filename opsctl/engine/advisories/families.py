"""Short names of model families, which conditions ask for. Pure."""

from __future__ import annotations

import re

# Architecture → family, where one architecture means one family.
_BY_ARCHITECTURE = {
    "KimiK25ForConditionalGeneration": "kimi-k2.5",
    "KimiVLForConditionalGeneration": "kimi-vl",
    "KimiLinearForCausalLM": "kimi-linear",
    "DeepseekV32ForCausalLM": "deepseek-v3.2",
    "DeepseekV4ForCausalLM": "deepseek-v4",
    "GlmMoeDsaForCausalLM": "glm-5",
    "Glm4MoeLiteForCausalLM": "glm-4.7-flash",
    "Glm4MoeForCausalLM": "glm-4.5",
    "GptOssForCausalLM": "gpt-oss",
    "Llama4ForConditionalGeneration": "llama4",
    "MiMoV2FlashForCausalLM": "mimo-v2",
    "Step3p5ForCausalLM": "step-3.5",
    "MiniMaxM2ForCausalLM": "minimax-m2",
    "Qwen3NextForCausalLM": "qwen3-next",
    "Qwen3_5ForConditionalGeneration": "qwen3.5",
    "Qwen3_5MoeForConditionalGeneration": "qwen3.5",
    "NemotronHForCausalLM": "nemotron-h",
}


def family(architecture: str, model_type: str = "", folder: str = "") -> str | None:
    """`model_type` as in config.json, `folder`: the model's. Kimi K2 runs under DeepSeek V3's
    architecture and is told apart by either. None: a family that no advisory names."""
    if architecture == "DeepseekV3ForCausalLM":
        kimi = model_type == "kimi_k2" or re.search(r"kimi[-_ ]?k2", folder, re.IGNORECASE)
        return "kimi-k2" if kimi else "deepseek-v3"
    return _BY_ARCHITECTURE.get(architecture)
