"""Runs inside an engine's environment: what ModelConfig of the real engine makes of a config.json.

Standard input: {"ranks": n, "cases": {name: {"config": {}, "hf_quant_config": {} or null}}};
standard output: {name: {…}} of the target and {name + "#draft": {…}} of its draft. No GPU, no
weights: only the configuration classes run. What is patched stands first, with the reason.
"""

import contextlib
import importlib
import json
import logging
import os
import pkgutil
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
logging.disable(logging.CRITICAL)
ASKED = json.load(sys.stdin)
RANKS = ASKED["ranks"]

with contextlib.redirect_stdout(sys.stderr):
    import sglang.srt.configs
    from sglang.srt.configs import model_config
    from transformers import AutoConfig, PretrainedConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

NEW = hasattr(model_config, "is_deepseek_dsa")
if NEW:  # the group of ranks does not exist: its size is set where the configurations ask for it
    Parallel = type("Parallel", (), {"attn_tp_size": RANKS})
    for found in pkgutil.iter_modules(sglang.srt.configs.__path__):
        module = importlib.import_module(f"sglang.srt.configs.{found.name}")
        for name, value in (
            ("get_parallel", lambda: Parallel),
            ("linear_attn_tp_size", lambda: RANKS),
            ("_is_cpu", False),  # on a CPU heads are padded
        ):
            if hasattr(module, name):
                setattr(module, name, value)
    from sglang.srt.configs.hybrid_arch import mambaish_config
else:
    import sglang.srt.layers.dp_attention
    from sglang.srt.configs import qwen3_next
    from sglang.srt.model_executor.model_runner import ModelRunner

    sglang.srt.layers.dp_attention.get_attention_tp_size = lambda: RANKS
    qwen3_next._is_cpu = False
    KINDS = (
        "hybrid_lightning_config",
        "hybrid_gdn_config",
        "mamba2_config",
        "kimi_linear_config",
    )

    def mambaish_config(model):
        runner = type("Runner", (), {})()
        runner.model_config, runner.is_draft_worker = model, model.is_draft_model
        found = (getattr(ModelRunner, kind).fget(runner) for kind in KINDS)
        return next((config for config in found if config is not None), None)


def known(kind):
    """A type that comes with code in its checkpoint: a plain configuration keeps its fields."""
    registered = getattr(
        importlib.import_module("sglang.srt.utils.hf_transformers_utils"), "_CONFIG_REGISTRY", {}
    )
    if kind and kind not in CONFIG_MAPPING and kind not in registered:
        fields = {"model_type": kind, "rope_scaling": None}
        AutoConfig.register(kind, type("Plain", (PretrainedConfig,), fields))


def told(model):
    answer = {
        "architecture": model.hf_config.architectures[0],
        "mla": model.attention_arch == model_config.AttentionArch.MLA,
        "layers": max(model.num_hidden_layers, model.num_attention_layers),
        "heads": [model.get_total_num_kv_heads(), model.head_dim, model.v_head_dim],
        "context": model.context_len,
        "dtype": str(model.dtype).removeprefix("torch."),
        "nextn": model.num_nextn_predict_layers,
        "multimodal": bool(model.is_multimodal),
        "sizes": [model.hidden_size, model.num_attention_heads, model.vocab_size],
        "windows": None,
        "state": None,
        "index": None,
    }
    if answer["mla"]:
        answer["latent"] = [model.kv_lora_rank, model.qk_rope_head_dim]
    if model.is_hybrid_swa:
        answer["windows"] = [
            list(model.swa_attention_layer_ids or []),
            list(model.full_attention_layer_ids or []),
            [model.get_swa_num_kv_heads(1), model.swa_head_dim, model.swa_v_head_dim],
        ]
    asked = model_config.is_deepseek_dsa if NEW else model_config.is_deepseek_nsa
    if asked(model.hf_config):
        answer["index"] = [model.index_head_dim, None]
        if NEW:
            skips = model_config.dsa_layer_skips_topk
            layers = range(model.num_hidden_layers)
            answer["index"][1] = [n for n in layers if not skips(model.hf_config, n)]
    hybrid = mambaish_config(model)
    if hybrid is not None:
        state = hybrid.mamba2_cache_params
        full = list(hybrid.full_attention_layer_ids)
        answer["state"] = [list(state.layers), full, state.mamba_cache_per_req]
    return answer


def judge(case, draft):
    config = {key: value for key, value in case["config"].items() if key != "auto_map"}
    if (config.get("quantization_config") or {}).get("quant_method") == "mxfp4":
        del config["quantization_config"]  # asks for a GPU
    known(config.get("model_type"))
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (("config", config), ("hf_quant_config", case["hf_quant_config"])):
            if content:
                Path(folder, f"{name}.json").write_text(json.dumps(content))
        try:
            made = model_config.ModelConfig(folder, trust_remote_code=False, is_draft_model=draft)
            return told(made)
        except Exception as problem:
            return {"problem": f"{type(problem).__name__}: {problem}"[:200]}


ANSWER = {}
with contextlib.redirect_stdout(sys.stderr):
    for name, case in ASKED["cases"].items():
        ANSWER[name] = judge(case, False)
        ANSWER[f"{name}#draft"] = judge(case, True)
json.dump(ANSWER, sys.stdout)
