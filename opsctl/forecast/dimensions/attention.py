"""Matrices of attention and of what stands in its place, by layer.

Sources: the model classes of 0.5.9 and 0.5.23 that bear the architectures' names.
"""

from __future__ import annotations

from collections.abc import Sequence

from opsctl.forecast.dimensions.parts import Parts
from opsctl.forecast.shape.config import Config
from opsctl.forecast.values import Geometry, Heads, Latent, NoForecast, State

_GATED = {"Qwen3NextForCausalLM"}  # queries bring a gate of their own size, unsaid in config.json
_ONE_NORM = "self_attn"


def attention(made: Parts, config: Config, shape: Geometry) -> None:
    """Of every layer of the target. Raises NoForecast for a kind that is not known here."""
    if shape.architecture.startswith("NemotronH"):
        _mixers(made, shape)
        return
    if isinstance(shape.attention, Latent):
        latent(made, config, shape, shape.full)
    else:
        heads(made, config, shape, shape.attention, shape.full, full=True)
        heads(made, config, shape, shape.window_attention or shape.attention, shape.window)
    if shape.linear:
        assert shape.state is not None
        recurrent(made, config, shape, shape.state)


def heads(
    made: Parts,
    config: Config,
    shape: Geometry,
    kind: Heads,
    layers: Sequence[int],
    *,
    full: bool = False,
    module: str = "self_attn",
) -> None:
    if not layers:
        return
    gated = config.text.get("attn_output_gate") or shape.architecture in _GATED
    q = shape.q_heads * kind.head_dim
    made.matrix(f"{module}.q_proj", q * (2 if gated else 1), shape.hidden, layers)
    made.matrix(f"{module}.k_proj", kind.count * kind.head_dim, shape.hidden, layers)
    if not (full and config.text.get("attention_k_eq_v")):
        made.matrix(f"{module}.v_proj", kind.count * kind.v_head_dim, shape.hidden, layers)
    made.matrix(f"{module}.o_proj", shape.hidden, shape.q_heads * kind.v_head_dim, layers)
    if config.text.get("attention_bias") or config.text.get("add_qkv_bias"):
        made.plain(f"model.layers.#.{module}.q_proj.bias", [q], layers)


def latent(made: Parts, config: Config, shape: Geometry, layers: Sequence[int]) -> None:
    """MLA, with the indexer of DSA where there is one."""
    assert isinstance(shape.attention, Latent)
    rank, rope = shape.attention.rank, shape.attention.rope
    nope, value = config.whole("qk_nope_head_dim"), config.whole("v_head_dim")
    q, hidden = shape.q_heads * (nope + rope), shape.hidden
    compressed = config.text.get("q_lora_rank")
    if isinstance(compressed, int) and compressed > 0:
        made.matrix("self_attn.q_a_proj", compressed, hidden, layers)
        made.matrix("self_attn.q_b_proj", q, compressed, layers)
    else:
        made.matrix("self_attn.q_proj", q, hidden, layers)
    made.matrix("self_attn.kv_a_proj_with_mqa", rank + rope, hidden, layers)
    made.matrix("self_attn.kv_b_proj", shape.q_heads * (nope + value), rank, layers)
    made.matrix("self_attn.o_proj", hidden, shape.q_heads * value, layers)
    if shape.indexer is None or not isinstance(compressed, int):
        return
    counted = config.top.get("index_n_heads")
    keyed = [layer for layer in layers if layer in shape.indexer.layers]
    if not isinstance(counted, int) or not keyed:
        return
    size = shape.indexer.head_dim
    made.matrix("self_attn.indexer.wq_b", counted * size, compressed, keyed)
    made.matrix("self_attn.indexer.wk", size, hidden, keyed)
    made.plain("model.layers.#.self_attn.indexer.weights_proj.weight", [counted, hidden], keyed)


def recurrent(made: Parts, config: Config, shape: Geometry, state: State) -> None:
    """Raises NoForecast for a kind of state whose layer is not known here."""
    layers, hidden = shape.linear, shape.hidden
    values, channels = state.temporal[0] * state.temporal[1], sum(c for c, _ in state.conv)
    taps = state.conv[0][1] + 1 if state.conv else 0
    if state.kind == "gdn" and shape.architecture.startswith("Qwen3"):
        made.matrix("linear_attn.in_proj_qkv", channels, hidden, layers)
        made.matrix("linear_attn.in_proj_z", values, hidden, layers)
        made.plain("model.layers.#.linear_attn.in_proj_ba.weight", [2 * state.temporal[0], hidden],
                   layers)  # fmt: skip
        made.matrix("linear_attn.out_proj", hidden, values, layers)
        made.plain("model.layers.#.linear_attn.conv1d.weight", [channels, 1, taps], layers)
    elif state.kind == "mamba2":
        _mamba(made, shape, state, "mamba")
    elif state.kind == "conv":
        made.matrix("conv.in_proj", 3 * hidden, hidden, layers)
        made.matrix("conv.out_proj", hidden, hidden, layers)
        made.plain("model.layers.#.conv.conv.weight", [hidden, 1, taps], layers)
    elif state.kind == "kda":
        _kda(made, config, shape, state)
    else:
        raise NoForecast(f"weights of layers of the kind {state.kind} are not estimated")


def _mamba(made: Parts, shape: Geometry, state: State, module: str) -> None:
    inner, channels = state.temporal[0] * state.temporal[1], state.conv[0][0]
    into = inner + channels + state.temporal[0]
    made.matrix(f"{module}.in_proj", into, shape.hidden, shape.linear)
    made.matrix(f"{module}.out_proj", shape.hidden, inner, shape.linear)
    conv = [channels, 1, state.conv[0][1] + 1]
    made.plain(f"model.layers.#.{module}.conv1d.weight", conv, shape.linear)


def _kda(made: Parts, config: Config, shape: Geometry, state: State) -> None:
    wide, size, layers = state.temporal[0] * state.temporal[1], state.temporal[1], shape.linear
    part = config.text.get("linear_attn_config") or {}
    for name in ("q_proj", "k_proj", "v_proj"):
        made.matrix(f"self_attn.{name}", wide, shape.hidden, layers)
    made.matrix("self_attn.o_proj", shape.hidden, wide, layers)
    if part.get("use_full_rank_gate"):
        made.matrix("self_attn.g_proj", wide, shape.hidden, layers)
    else:
        made.matrix("self_attn.g_a_proj", size, shape.hidden, layers)
        made.matrix("self_attn.g_b_proj", wide, size, layers)
    made.matrix("self_attn.f_a_proj", size, shape.hidden, layers)
    made.matrix("self_attn.f_b_proj", wide, size, layers)
    made.matrix("self_attn.b_proj", state.temporal[0], shape.hidden, layers)


def _mixers(made: Parts, shape: Geometry) -> None:
    """Nemotron-H: a layer is attention, Mamba or feed-forward, and is called mixer."""
    assert isinstance(shape.attention, Heads) and shape.state is not None
    kind, q = shape.attention, shape.q_heads * shape.attention.head_dim
    made.matrix("mixer.q_proj", q, shape.hidden, shape.full)
    for name in ("k_proj", "v_proj"):
        made.matrix(f"mixer.{name}", kind.count * kind.head_dim, shape.hidden, shape.full)
    made.matrix("mixer.o_proj", shape.hidden, q, shape.full)
    _mamba(made, shape, shape.state, "mixer")
