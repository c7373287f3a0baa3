"""Models with sliding-window layers whose KV stands in a pool of its own: how memory is split.

Sources: model_executor/model_runner.py `set_num_token_hybrid` (to 0.5.6),
model_runner_kv_cache_mixin.py `set_num_tokens_hybrid_swa` (0.5.7 to 0.5.9),
`_resolve_hybrid_swa_tokens` (0.5.10), pool_configurator.py `HybridSWAPoolConfigurator` (0.5.11
on); server_args.py and arg_groups/ for what turns the pool off.
"""

from __future__ import annotations

from dataclasses import dataclass

from opsctl.forecast.device.cell import heads_charged
from opsctl.forecast.device.settings import Settings
from opsctl.forecast.values import Case, Heads, NoForecast, NoStart

RATIO = 0.8  # swa-full-tokens-ratio if unset
MIMO = frozenset({"MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM"})
_STEP = frozenset({"Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"})
_LLAMA4 = "Llama4ForConditionalGeneration"
_GPT_OSS = "GptOssForCausalLM"
# The engine turns the pool off for these in every release.
_NEVER = frozenset(
    {
        "Gemma2ForCausalLM",
        "Gemma3ForCausalLM",
        "Gemma3ForConditionalGeneration",
        "Gemma3nForCausalLM",
        "Gemma3nForConditionalGeneration",
        "Olmo2ForCausalLM",
        "Olmo3ForCausalLM",
    }
)
_TRTLLM = ("attention-backend", "prefill-attention-backend", "decode-attention-backend")


@dataclass(frozen=True, slots=True)
class Window:
    """Bytes of one token and layer of each kind, and how many layers of this stage are of it."""

    full: int
    swa: int
    full_layers: int
    swa_layers: int
    layers: int  # of the whole model
    ratio: float
    span: int | None
    twice: bool = False  # 0.5.8 counts the window layers of these models twice


def pooled(case: Case, set_: Settings, trtllm: bool) -> bool:
    """Whether the window layers have a pool of their own; else they keep every token, like the
    others. `trtllm`: the attention backend is trtllm_mha. Raises NoForecast."""
    shape, flags = case.shape, set_.flags
    if not shape.window:
        return False
    name = shape.architecture
    if name == _LLAMA4 and set_.key < (0, 5, 8):
        if flags.get("hybrid-kvcache-ratio"):
            raise NoForecast("hybrid-kvcache-ratio is not forecast")
        return False
    off = (
        name in _NEVER
        or set_.key < (0, 5, 7)
        or bool(flags.get("disable-hybrid-swa-memory"))
        or _off_by_tier(name, set_)
        or (name == _GPT_OSS and _gpt_oss_off(set_, trtllm))
    )
    other = shape.window_attention
    if off and other is not None and other != shape.attention:
        raise NoForecast(f"{name} without a pool for its window layers is not forecast")
    return not off


def _off_by_tier(name: str, set_: Settings) -> bool:
    """The host tier and the window pool exclude each other for these."""
    if not set_.flags.get("enable-hierarchical-cache"):
        return False
    return name in _STEP or (name in MIMO and set_.key < (0, 5, 14))


def _gpt_oss_off(set_: Settings, trtllm: bool) -> bool:
    if set_.key < (0, 5, 8):
        return True
    if set_.key < (0, 5, 10) and trtllm:
        return True
    return set_.key < (0, 5, 9) and bool(set_.algorithm)


def window(case: Case, set_: Settings, dtype: tuple[str, int], first: int, end: int) -> Window:
    """Of one stage. Raises NoForecast where the split is not known."""
    shape = case.shape
    heads = shape.attention
    if not isinstance(heads, Heads):
        raise NoForecast("window layers beside MLA are not forecast")
    if set_.pp > 1 and set_.key < (0, 5, 8):
        raise NoForecast("pipeline stages with window layers are not forecast before 0.5.8")
    if _by_requests(set_):
        raise NoForecast(
            "disable-radix-cache with max-running-requests sizes the window pool by requests, "
            "which is not forecast"
        )
    last = end + 1 if set_.key < (0, 5, 21) else end  # earlier releases count one layer too many
    return Window(
        heads_charged(heads, 1, set_, dtype),
        heads_charged(shape.window_attention or heads, 1, set_, dtype),
        sum(1 for layer in shape.full if first <= layer < last),
        sum(1 for layer in shape.window if first <= layer < last),
        shape.layers,
        _ratio(set_),
        shape.window_tokens,
        shape.architecture in MIMO,
    )


def _ratio(set_: Settings) -> float:
    given = set_.flags.get("swa-full-tokens-ratio")
    return RATIO if given is None else float(given)


def _by_requests(set_: Settings) -> bool:
    if set_.key < (0, 5, 14) or not set_.flags.get("disable-radix-cache"):
        return False
    return set_.running is not None


def charged(found: Window, set_: Settings, draft_full: int, draft_swa: int) -> float:
    """What the memory is divided by; what comes out is the tokens of full layers from 0.5.11 on,
    before it the tokens if all layers kept all. `draft_*`: layers of a draft that are counted."""
    full, swa = found.full_layers, found.swa_layers
    if set_.key >= (0, 5, 11):
        if not full:
            return found.swa * (swa + draft_swa) + found.full * draft_full
        return found.full * (full + draft_full) + found.ratio * (found.swa * (swa + draft_swa))
    if set_.key >= (0, 5, 9):
        return found.full * full + found.swa * swa
    return _early_charged(found, set_)


def _early_charged(found: Window, set_: Settings) -> float:
    """0.5.8 counts every layer of the model as a full one, and MiMo's window layers once more."""
    if set_.key < (0, 5, 8):
        return found.full * found.full_layers + found.swa * found.swa_layers
    more = found.swa * found.swa_layers if found.twice else 0
    return found.full * found.layers + more


def split(found: Window, capacity: int, page: int, set_: Settings) -> tuple[int, int]:
    """(tokens of full layers, of window layers). Raises NoForecast if the engine refuses it."""
    full, swa = found.full_layers, found.swa_layers
    if not full:
        return 0, capacity // page * page
    if set_.key >= (0, 5, 11):
        tokens = capacity // page * page
        kept = int(tokens * found.ratio) // page * page
        span = found.span
        if set_.key >= (0, 5, 16) and span is not None and span + page >= kept:
            raise NoStart(
                f"the window pool of {kept} tokens cannot hold one request: the start would fail"
            )
        return tokens, kept
    if set_.key >= (0, 5, 9):
        total = capacity * (found.full * full + found.swa * swa)
        tokens = int(total / (found.full * full + found.ratio * found.swa * swa))
    else:
        tokens = int(capacity * found.layers / (found.ratio * swa + full))
    kept = int(tokens * found.ratio)
    if set_.key >= (0, 5, 10):
        kept = int(tokens // page * page * found.ratio)
    return tokens // page * page, kept // page * page
