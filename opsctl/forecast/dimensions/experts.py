"""Feed-forward layers: which are dense, which have experts, and how wide they are.

Sources: the model classes of 0.5.9 and 0.5.23; the names are those of the published files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opsctl.forecast.dimensions.parts import Parts, beside, every
from opsctl.forecast.shape.config import Config, optional
from opsctl.forecast.values import Geometry, NoForecast

_EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts")
# Experts as wide as intermediate_size, which is the only width that is named.
_ONE_WIDTH = {"MixtralForCausalLM", "GptOssForCausalLM", "MiniMaxM2ForCausalLM",
              "Llama4ForConditionalGeneration"}  # fmt: skip
_BLOCK_SPARSE = {"MixtralForCausalLM", "MiniMaxM2ForCausalLM"}
_UNGATED = {"relu2"}  # one matrix up, one down


@dataclass(frozen=True, slots=True)
class Experts:
    """`shared`: width of what every token goes through beside the chosen experts; 0: none."""

    count: int
    width: int
    shared: int
    layers: tuple[int, ...]
    matrices: int = 3
    latent: int = 0  # Nemotron 3: experts work on so many channels


def feed_forward(made: Parts, config: Config, shape: Geometry, layers: int) -> None:
    """Of every layer of the target. Raises NoForecast where widths are not told."""
    if shape.architecture.startswith("NemotronH"):
        _nemotron(made, config, shape)
        return
    found = experts(config, shape, layers)
    if found is None:
        _dense(made, shape, _width(config, shape), every(layers), "mlp")
        return
    inner = found.layers
    others = every(layers) if _both(config) else beside(every(layers), inner)
    if others:
        _dense(made, shape, _width(config, shape, beside_experts=True), others, "mlp")
    routed(made, config, shape, found)


def experts(config: Config, shape: Geometry, layers: int) -> Experts | None:
    """None for a model without. Raises NoForecast."""
    text, name = config.text, config.architecture
    count = next((n for key in _EXPERTS if (n := optional(text, key, name) or 0) > 1), 0)
    if not count:
        if any("expert" in key or "moe" in key for key, value in text.items() if value):
            raise NoForecast(f"config.json of {name} speaks of experts in a way not known here")
        return None
    key = "intermediate_size" if shape.architecture in _ONE_WIDTH else "moe_intermediate_size"
    width = config.whole(key)
    return Experts(count, width, _shared(config, shape, width), tuple(_sparse(config, layers)))


def _shared(config: Config, shape: Geometry, width: int) -> int:
    text = config.text
    if shape.architecture == "Llama4ForConditionalGeneration":
        return width
    for key in ("moe_shared_expert_intermediate_size", "shared_expert_intermediate_size"):
        if isinstance(text.get(key), int):
            return int(text[key])
    number = text.get("n_shared_experts") or text.get("num_shared_experts") or 0
    return int(number) * width


def _sparse(config: Config, layers: int) -> Sequence[int]:
    """Ids of the layers with experts."""
    text = config.text
    listed = text.get("moe_layers")
    if isinstance(listed, list) and listed:
        return [int(layer) for layer in listed]
    kinds = text.get("mlp_layer_types")
    if isinstance(kinds, list) and len(kinds) >= layers:
        return [n for n in range(layers) if kinds[n] != "dense"]
    often: Any = text.get("moe_layer_freq")
    if isinstance(often, list):
        return [n for n in range(layers) if n < len(often) and often[n]]
    first = int(text.get("first_k_dense_replace") or text.get("num_dense_layers") or 0)
    every_ = int(often or text.get("interleave_moe_layer_step") or 1)
    if text.get("interleave_moe_layer_step"):
        return [n for n in range(layers) if (n + 1) % every_ == 0]
    step = int(text.get("decoder_sparse_step") or 1)
    dense = set(text.get("mlp_only_layers") or ())
    return [
        n
        for n in range(layers)
        if n >= first and n % every_ == 0 and (n + 1) % step == 0 and n not in dense
    ]


def _both(config: Config) -> bool:
    """Gemma 4 has a dense part beside the experts of every layer."""
    return bool(config.text.get("enable_moe_block"))


def _width(config: Config, shape: Geometry, *, beside_experts: bool = False) -> int:
    if beside_experts and isinstance(config.text.get("intermediate_size_mlp"), int):
        return config.whole("intermediate_size_mlp")
    if shape.architecture.startswith("Lfm2"):
        return _lfm2(config)
    return config.whole("intermediate_size")


def _lfm2(config: Config) -> int:
    """LFM2 names a width that it then adjusts (Lfm2MLP)."""
    text = config.text
    wide = text.get("block_ff_dim") or config.whole("intermediate_size")
    if text.get("block_auto_adjust_ff_dim") is False:
        return int(wide)
    wide = int(2 * int(wide) / 3)
    wide = int(float(text.get("block_ffn_dim_multiplier") or 1.0) * wide)
    step = int(text.get("block_multiple_of") or 256)
    return step * -(-wide // step)


def _dense(made: Parts, shape: Geometry, width: int, layers: Sequence[int], module: str) -> None:
    for name in ("gate_proj", "up_proj"):
        made.matrix(f"{module}.{name}", width, shape.hidden, layers)
    made.matrix(f"{module}.down_proj", shape.hidden, width, layers)


def routed(made: Parts, config: Config, shape: Geometry, found: Experts) -> None:
    """The experts of `found.layers`, what chooses them, and what is shared."""
    block = _block(shape.architecture)
    hidden, layers, each = found.latent or shape.hidden, found.layers, found.count
    up = ("gate_proj", "up_proj") if found.matrices == 3 else ("up_proj",)
    for name in up:
        made.matrix(f"{block}experts.#.{name}", found.width, hidden, layers, each)
    made.matrix(f"{block}experts.#.down_proj", hidden, found.width, layers, each)
    made.plain(f"model.layers.#.{block}gate.weight", [found.count, shape.hidden], layers)
    if shape.architecture == "GptOssForCausalLM":
        made.plain("model.layers.#.mlp.experts.biases", [3 * found.width * each], layers)
    if found.shared:
        name = "shared_expert" if "Qwen" in shape.architecture else "shared_experts"
        for one in up:
            made.matrix(f"{block}{name}.{one}", found.shared, shape.hidden, layers)
        made.matrix(f"{block}{name}.down_proj", shape.hidden, found.shared, layers)


def _block(architecture: str) -> str:
    """The module that holds the experts, below a layer."""
    if architecture.startswith("Gemma4"):
        return ""
    if architecture.startswith("NemotronH"):
        return "mixer."
    return "block_sparse_moe." if architecture in _BLOCK_SPARSE else "mlp."


def _nemotron(made: Parts, config: Config, shape: Geometry) -> None:
    """A layer is attention, Mamba, dense ("-") or experts ("E")."""
    text = config.text
    kinds, pattern = text.get("layers_block_type"), text.get("hybrid_override_pattern")
    letters = (
        ["E" if kind == "moe" else "-" if kind == "mlp" else "x" for kind in kinds]
        if isinstance(kinds, list)
        else list(str(pattern))
    )
    dense = [n for n, letter in enumerate(letters) if letter == "-"]
    if dense:
        width = config.whole("intermediate_size")
        made.matrix("mixer.up_proj", width, shape.hidden, dense)
        made.matrix("mixer.down_proj", shape.hidden, width, dense)
    sparse = tuple(n for n, letter in enumerate(letters) if letter == "E")
    if not sparse:
        return
    latent = optional(text, "moe_latent_size", config.architecture) or 0
    count, width = config.whole("n_routed_experts"), config.whole("moe_intermediate_size")
    found = Experts(count, width, _shared(config, shape, width), sparse, 2, latent)
    routed(made, config, shape, found)
    if latent:
        made.matrix("mixer.fc1_latent_proj", latent, shape.hidden, sparse)
        made.matrix("mixer.fc2_latent_proj", shape.hidden, latent, sparse)
