"""config.json as the engine reads it: the nested text configuration, numbers, dtype, context.

Sources: sglang/srt/utils/hf_transformers_utils.py (0.5.3 to 0.5.11) and hf_transformers/common.py
(0.5.12 to 0.5.23): get_hf_text_config, get_context_length; configs/model_config.py:
_get_and_verify_dtype, get_total_num_kv_heads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opsctl.forecast.shape.registry import NEWEST, parsed
from opsctl.forecast.values import NoForecast

Fields = Mapping[str, Any]

# Where the language model's part is looked for. The releases differ in what wins if a file has
# several: up to 0.5.11 text_config first, later thinker_config first.
_NESTED_OLD = ("text_config", "llm_config", "language_config", "thinker_config")
_NESTED_NEW = ("thinker_config", "llm_config", "language_config", "text_config")
_KV_HEADS = (
    "n_head_kv",
    "num_kv_heads",
    "num_key_value_heads",
    "multi_query_group_num",
    "num_attention_groups",
)
_CONTEXT = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
)
# bytes; a float32 checkpoint runs in half precision under dtype "auto"
_ELEMENT = {"bfloat16": 2, "float16": 2, "half": 2, "float32": 2, "float": 2}

# What Transformers' own classes put in for a field that config.json leaves out, where that is no
# function of the other fields: read from Transformers 4.57 (of 0.5.9) and 5.19 (of 0.5.23), which
# agree. All other model types: the heads of KV are the heads of Q, head_dim is hidden / heads.
_HEAD_DIM = {
    "ernie4_5": 128,
    "gemma": 256,
    "gemma2": 256,
    "gemma3_text": 256,
    "gemma3n_text": 256,
    "glm": 128,
    "glm4": 128,
    "gpt_oss": 64,
    "llama4_text": 128,
    "qwen3": 128,
    "qwen3_next": 256,
    "qwen3_vl_text": 128,
    "seed_oss": 128,
}
_KV_HEADS_LEFT_OUT = {
    "deepseek_v3": 128,
    "ernie4_5": 2,
    "ernie4_5_moe": 4,
    "exaone4": 32,
    "falcon_h1": 8,
    "gemma": 16,
    "gemma2": 4,
    "gemma3_text": 4,
    "gemma3n_text": 2,
    "glm": 2,
    "glm4": 2,
    "glm4_moe": 8,
    "gpt_oss": 8,
    "lfm2": 8,
    "llama4_text": 8,
    "mixtral": 8,
    "phimoe": 8,
    "qwen2": 32,
    "qwen2_moe": 16,
    "qwen3": 32,
    "qwen3_moe": 4,
    "qwen3_next": 2,
    "qwen3_vl_text": 32,
    "seed_oss": 8,
    "smollm3": 4,
    "stablelm": 32,
    "starcoder2": 2,
}
# Where head_dim is left out, Transformers' classes of these types leave it empty, and so did the
# engine: v_head_dim (0.5.7 to 0.5.13) or head_dim itself, and it cannot add up the cell.
_HEAD_DIM_EMPTY = {
    "hunyuan_v1_dense": ((0, 5, 2), (0, 5, 14)),
    "hunyuan_v1_moe": ((0, 5, 2), (0, 5, 14)),
    "mistral": ((0, 5, 7), (0, 5, 10)),  # filled in by Transformers 5
    "mixtral": ((0, 5, 7), (0, 5, 14)),
}
# Here the releases' Transformers differ: whoever leaves the field out gets no forecast.
_KV_HEADS_UNSURE = {"mistral", "qwen3_vl_moe_text"}


@dataclass(frozen=True, slots=True)
class Config:
    """`top`: the whole file; `text`: the language model's part of it (maybe the same)."""

    top: Fields
    text: Fields
    architecture: str

    @property
    def nested(self) -> bool:
        return self.text is not self.top

    @property
    def model_type(self) -> str:
        return str(self.text.get("model_type") or "")

    def get(self, key: str) -> Any:
        """Of the text part, else of the whole."""
        value = self.text.get(key)
        return self.top.get(key) if value is None else value

    def whole(self, key: str) -> int:
        """A number above zero. Raises NoForecast."""
        return number(self.text, key, self.architecture)


def read(config_text: str, version: str | None = None) -> Config:
    """Raises NoForecast."""
    try:
        top = json.loads(config_text)
    except ValueError as problem:
        raise NoForecast(f"config.json is no JSON: {problem}") from None
    if not isinstance(top, dict):
        raise NoForecast("config.json is no JSON object")
    return of(top, version)


def of(top: Fields, version: str | None = None) -> Config:
    """Raises NoForecast."""
    text = text_part(top, version)
    names = top.get("architectures") or text.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise NoForecast("config.json names no architecture")
    return Config(top, text, names[0])


def text_part(top: Fields, version: str | None = None) -> Fields:
    """The part that describes the language model."""
    names = top.get("architectures") or [""]
    first = str(names[0]) if isinstance(names, list) and names else ""
    if first.startswith("Llava") and first.endswith("ForCausalLM"):
        return top  # the original Llava files: the nested part is of no use
    old = version is not None and parsed(version) < (0, 5, 12)
    for name in _NESTED_OLD if old else _NESTED_NEW:
        part = top.get(name)
        if not isinstance(part, dict):
            continue
        if name == "thinker_config" and isinstance(part.get("text_config"), dict):
            inner: Fields = part["text_config"]
            return inner
        found: Fields = part
        return found
    return top


def number(fields: Fields, key: str, where: str) -> int:
    """A number above zero. Raises NoForecast."""
    value = fields.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise NoForecast(f"config.json of {where} lacks {key} as one whole number")
    return value


def optional(fields: Fields, key: str, where: str) -> int | None:
    """Like `number`, None where the field is left out or null."""
    return None if fields.get(key) is None else number(fields, key, where)


def kv_heads(config: Config) -> int:
    """Heads of the KV cache (get_total_num_kv_heads). Raises NoForecast."""
    text = config.text
    if text.get("multi_query") and not text.get("new_decoder_architecture"):
        return 1
    for key in _KV_HEADS:
        found = optional(text, key, config.architecture)
        if found is not None:
            return found
    if config.model_type in _KV_HEADS_UNSURE:
        raise NoForecast(
            f"config.json of {config.architecture} lacks num_key_value_heads, and what stands in "
            "for it differs by the release of Transformers"
        )
    if config.model_type in _KV_HEADS_LEFT_OUT:
        return _KV_HEADS_LEFT_OUT[config.model_type]
    return config.whole("num_attention_heads")


def head_dim(config: Config, version: str | None) -> int:
    """Raises NoForecast."""
    found = optional(config.text, "head_dim", config.architecture)
    if found is not None:
        return found
    if config.model_type in _HEAD_DIM_EMPTY:
        first, end = _HEAD_DIM_EMPTY[config.model_type]
        if first <= parsed(version or NEWEST) < end:
            raise NoForecast(
                f"config.json of {config.architecture} lacks head_dim, and {version} fails on "
                "that: set it with json-model-override-args"
            )
    if config.model_type in _HEAD_DIM:
        return _HEAD_DIM[config.model_type]
    return config.whole("hidden_size") // config.whole("num_attention_heads")


def element(config: Config) -> int:
    """Bytes of an element under dtype "auto". Raises NoForecast."""
    for place in (config.text, config.top):
        name = place.get("torch_dtype") or place.get("dtype")
        if isinstance(name, str):
            size = _ELEMENT.get(name.removeprefix("torch."))
            if size is None:
                raise NoForecast(f"config.json names the dtype {name}, which is not known here")
            return size
    return 2  # Transformers' default is float32, hence half precision


def context(config: Config) -> int | None:
    """Tokens that the model allows (get_context_length); None where the file leaves it to a class
    of Transformers."""
    scaling = config.text.get("rope_scaling") or config.text.get("rope_parameters")
    factor: Any = 1
    if isinstance(scaling, dict):
        factor = scaling.get("factor", 1)
        if "original_max_position_embeddings" in scaling or scaling.get("rope_type") == "llama3":
            factor = 1
    for key in _CONTEXT:
        value = config.text.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return int(value * factor) if isinstance(factor, int | float) else value
    return None
