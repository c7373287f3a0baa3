"""Hybrids whose layers partly keep a recurrent state of fixed size in place of KV.

Sources: sglang/srt/configs/{qwen3_next,qwen3_5,nemotron_h,falcon_h1,kimi_linear,bailing_hybrid,
lfm2,lfm2_moe,granitemoehybrid,jet_nemotron}.py, mamba_utils.py of 0.5.9 and 0.5.23; the same
shapes in the earlier releases that have these models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from opsctl.forecast.shape.config import Config, number
from opsctl.forecast.shape.registry import NEWEST, parsed
from opsctl.forecast.values import NoForecast, State


@dataclass(frozen=True, slots=True)
class Linear:
    """`full`: ids of the layers that keep KV; `linear`: ids of those that keep state."""

    layers: int
    full: tuple[int, ...]
    linear: tuple[int, ...]
    state: State


def linear(config: Config, version: str | None) -> Linear | None:
    """None for a model without such layers. Raises NoForecast."""
    rule = _RULES.get(config.architecture)
    if rule is None:
        return None
    release = parsed(version or NEWEST)
    if rule is _nemotron_h and release < (0, 5, 10) and not config.get("hybrid_override_pattern"):
        raise NoForecast(f"{version} does not read layers_block_type of {config.architecture}")
    found = rule(config)
    if found is None:
        return None
    asked = _state_element(config) if config.architecture in _ASKED_OF_CONFIG else 4
    if release < (0, 5, 9):
        asked = 4  # earlier releases ask the environment only
    state = found.state
    sized = State(state.kind, state.temporal, state.conv, state.groups, asked)
    return Linear(found.layers, found.full, found.linear, sized)


def state_elements(state: State, ranks: int) -> tuple[int, int]:
    """Elements of the recurrent state and of the convolution of one layer and request on one rank
    (Mamba2StateShape.create). Raises NoForecast where the engine refuses to split so."""
    heads, rows, columns = state.temporal
    if heads % ranks:
        raise NoForecast(f"{heads} heads of recurrent state do not divide over {ranks} ranks")
    conv = 0
    for channels, taps in state.conv:
        if state.groups and state.groups % ranks:
            channels += 2 * (ranks - state.groups) * columns  # the engine repeats the groups
        if channels % ranks:
            raise NoForecast(f"{channels} channels do not divide over {ranks} ranks")
        conv += channels // ranks * taps
    return heads // ranks * rows * columns, conv


_ELEMENT = {"float32": 4, "bfloat16": 2, "float16": 2}


def _state_element(config: Config) -> int:
    name = config.get("mamba_ssm_dtype")
    return _ELEMENT.get(str(name), 4)  # the engine warns of other names and takes float32


def _split(layers: int, is_linear: Callable[[int], bool]) -> tuple[tuple[int, ...], ...]:
    full = tuple(n for n in range(layers) if not is_linear(n))
    return full, tuple(n for n in range(layers) if is_linear(n))


def _whole(config: Config, key: str, default: int) -> int:
    return default if config.text.get(key) is None else config.whole(key)


def _gdn(config: Config) -> Linear:
    """Gated DeltaNet: Qwen3-Next and Qwen3.5. The engine's class has the interval as default 4."""
    layers = config.whole("num_hidden_layers")
    every = _whole(config, "full_attention_interval", 4)
    kinds = config.text.get("layer_types")
    full, recurrent = _split(layers, lambda n: bool((n + 1) % every))
    if isinstance(kinds, list) and len(kinds) >= layers:
        said = tuple(n for n in range(layers) if kinds[n] == "linear_attention")
        if said != recurrent:  # the engine goes by the interval alone
            raise NoForecast(f"{config.architecture}: layer_types contradict the interval {every}")
    keys = _whole(config, "linear_num_key_heads", 16)
    key_dim = _whole(config, "linear_key_head_dim", 128)
    values = _whole(config, "linear_num_value_heads", 32)
    value_dim = _whole(config, "linear_value_head_dim", 128)
    taps = _whole(config, "linear_conv_kernel_dim", 4) - 1
    channels = 2 * keys * key_dim + values * value_dim
    state = State("gdn", (values, value_dim, key_dim), ((channels, taps),), keys)
    return Linear(layers, full, recurrent, state)


_LETTER = {"mamba": "M", "attention": "*"}


def _kept(letter: str) -> str:
    return letter if letter in "M*" else "-"


def _nemotron_h(config: Config) -> Linear:
    """Layers by a pattern of letters, or by layers_block_type in newer files: M mamba,
    * attention, - and E keep nothing."""
    kinds = config.text.get("layers_block_type")
    pattern = config.text.get("hybrid_override_pattern")
    if isinstance(kinds, list):
        letters = [
            "M" if kind == "mamba" else "*" if kind == "attention" else "-" for kind in kinds
        ]
    elif isinstance(pattern, str):
        letters = list(pattern)
    else:
        raise NoForecast(f"config.json of {config.architecture} lacks hybrid_override_pattern")
    heads = config.whole("mamba_num_heads")
    head_dim = config.whole("mamba_head_dim")
    size = config.whole("ssm_state_size")
    groups = config.whole("n_groups")
    taps = _whole(config, "conv_kernel", _whole(config, "mamba_d_conv", 4)) - 1
    channels = heads * head_dim + 2 * groups * size
    state = State("mamba2", (heads, head_dim, size), ((channels, taps),), groups)
    attention = tuple(n for n, letter in enumerate(letters) if letter == "*")
    mamba = tuple(n for n, letter in enumerate(letters) if letter == "M")
    return Linear(len(letters), attention, mamba, state)


def _mamba2(config: Config, inner: int) -> State:
    heads, head_dim = config.whole("mamba_n_heads"), config.text.get("mamba_d_head")
    if head_dim is None or head_dim == "auto":
        head_dim = inner // heads
    groups, size = config.whole("mamba_n_groups"), config.whole("mamba_d_state")
    taps = config.whole("mamba_d_conv") - 1
    channels = inner + 2 * groups * size
    return State("mamba2", (heads, int(head_dim), size), ((channels, taps),), groups)


def _falcon_h1(config: Config) -> Linear:
    """Attention and Mamba side by side in every layer."""
    layers = config.whole("num_hidden_layers")
    inner = config.text.get("mamba_d_ssm")
    if inner is None:
        inner = config.whole("mamba_expand") * config.whole("hidden_size")
    every = tuple(range(layers))
    return Linear(layers, every, every, _mamba2(config, int(inner)))


def _granite(config: Config) -> Linear | None:
    """Granite 4. Files without Mamba layers are plain."""
    layers, kinds = config.whole("num_hidden_layers"), config.text.get("layer_types")
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise NoForecast(f"config.json of {config.architecture} lacks layer_types for its layers")
    full, recurrent = _split(layers, lambda n: kinds[n] in ("mamba", "linear_attention"))
    if not recurrent:
        return None
    inner = config.whole("mamba_expand") * config.whole("hidden_size")
    return Linear(layers, full, recurrent, _mamba2(config, inner))


def _kda(config: Config) -> Linear:
    """Kimi Linear: Kimi Delta Attention in the layers that linear_attn_config counts from 1."""
    layers, name = config.whole("num_hidden_layers"), config.architecture
    part = config.text.get("linear_attn_config")
    if not isinstance(part, dict) or not isinstance(part.get("kda_layers"), list):
        raise NoForecast(f"config.json of {name} lacks linear_attn_config.kda_layers")
    chosen = {int(layer) - 1 for layer in part["kda_layers"]}
    full, recurrent = _split(layers, lambda n: n in chosen)
    heads, size = number(part, "num_heads", name), number(part, "head_dim", name)
    taps = number(part, "short_conv_kernel_size", name) - 1
    return Linear(layers, full, recurrent, _kda_state(heads, size, taps))


def _kda_state(heads: int, size: int, taps: int) -> State:
    return State("kda", (heads, size, size), ((heads * size, taps),) * 3, 0)


def _bailing(config: Config) -> Linear:
    """Ling 2.5 (lightning attention) and Ling 3 (KDA: it alone has a short convolution)."""
    layers, text = config.whole("num_hidden_layers"), config.text
    size = text.get("layer_group_size", 1)
    if isinstance(size, list):
        if len(size) != layers:
            raise NoForecast(f"{config.architecture}: layer_group_size is not of its layers")
        full, recurrent = _split(layers, lambda n: size[n] == 1)
    else:
        every = number({"layer_group_size": size}, "layer_group_size", config.architecture)
        full, recurrent = _split(layers, lambda n: bool((n + 1) % every))
    heads = config.whole("num_attention_heads")
    width = text.get("head_dim") or config.whole("hidden_size") // heads
    if text.get("short_conv_kernel_size") is not None:
        taps = config.whole("short_conv_kernel_size") - 1
        return Linear(layers, full, recurrent, _kda_state(heads, width, taps))
    return Linear(layers, full, recurrent, State("lightning", (heads, width, width), (), 0))


def _lfm2(config: Config) -> Linear:
    """LFM2: short convolutions, no recurrent state beside."""
    layers, kinds = config.whole("num_hidden_layers"), config.text.get("layer_types")
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise NoForecast(f"config.json of {config.architecture} lacks layer_types for its layers")
    full = tuple(n for n, kind in enumerate(kinds) if kind == "full_attention")
    conv = tuple(n for n, kind in enumerate(kinds) if kind in ("conv", "short_conv"))
    taps = _whole(config, "conv_L_cache", 3) - 1
    state = State("conv", (0, 0, 0), ((config.whole("hidden_size"), taps),), 0)
    return Linear(layers, full, conv, state)


def _jet(config: Config) -> Linear:
    """Jet-Nemotron: GDN-like JetBlock layers."""
    kinds = config.text.get("layer_types")
    part = (config.text.get("efficient_attention_config") or {}).get("jet")
    if not isinstance(kinds, list) or not isinstance(part, dict):
        raise NoForecast(f"config.json of {config.architecture} lacks its JetBlock settings")
    name = config.architecture
    heads, keys = number(part, "num_heads", name), number(part, "head_dim", name)
    values = int(keys * float(part["expand_v"]))
    taps = number(part, "conv_size", name) - 1
    channels = 2 * heads * keys + heads * values
    state = State("gdn", (heads, values, keys), ((channels, taps),), heads)
    full = tuple(n for n, kind in enumerate(kinds) if kind in ("attn", "swa"))
    jet = tuple(n for n, kind in enumerate(kinds) if kind == "jet")
    return Linear(len(kinds), full, jet, state)


_RULES: dict[str, Callable[[Config], Linear | None]] = {
    "BailingMoeV2_5ForCausalLM": _bailing,
    "BailingMoeV3ForCausalLM": _bailing,
    "FalconH1ForCausalLM": _falcon_h1,
    "GraniteMoeHybridForCausalLM": _granite,
    "JetNemotronForCausalLM": _jet,
    "KimiLinearForCausalLM": _kda,
    "KimiK3ForConditionalGeneration": _kda,
    "KimiK3LinearForCausalLM": _kda,
    "Lfm2ForCausalLM": _lfm2,
    "Lfm2MoeForCausalLM": _lfm2,
    "NemotronHForCausalLM": _nemotron_h,
    "NemotronHPuzzleForCausalLM": _nemotron_h,
    "NemotronH_Nano_VL_V2": _nemotron_h,
    "Qwen3NextForCausalLM": _gdn,
    "Qwen3_5ForCausalLM": _gdn,
    "Qwen3_5ForConditionalGeneration": _gdn,
    "Qwen3_5MoeForCausalLM": _gdn,
    "Qwen3_5MoeForConditionalGeneration": _gdn,
}
# Only these classes pass their own mamba_ssm_dtype on; the others' state is float32.
_ASKED_OF_CONFIG = frozenset(_RULES) - {
    "BailingMoeV2_5ForCausalLM",
    "BailingMoeV3ForCausalLM",
    "GraniteMoeHybridForCausalLM",
    "KimiLinearForCausalLM",
    "KimiK3ForConditionalGeneration",
    "KimiK3LinearForCausalLM",
    "Lfm2MoeForCausalLM",
}
