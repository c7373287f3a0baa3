"""Mamba, GDN, KDA and lightning layers: the slots of recurrent state, and what they leave for KV.

Sources: model_executor/model_runner.py (to 0.5.6), model_runner_kv_cache_mixin.py (0.5.7 to
0.5.15), mem_cache/kv_cache_configurator.py (0.5.16 on) `handle_max_mamba_cache`;
mem_cache/memory_pool.py `MambaPool`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from opsctl.engine.rules import shared
from opsctl.forecast.device.backend import base
from opsctl.forecast.device.settings import Settings, Speculation, names, on
from opsctl.forecast.shape.linear import state_elements
from opsctl.forecast.values import Case, NoForecast, NoRoom, State

GiB = 1 << 30
FULL_RATIO = 0.9  # mamba-full-memory-ratio if unset
_OLD_SLOTS = 512  # where neither slots nor requests are set, without a radix cache
_ELEMENT = {"float32": 4, "bfloat16": 2, "float16": 2}
# Architectures whose radix cache keeps tracking slots beside the running ones ("auto", 0.5.14 on).
_TRACKED = names(
    """
    BailingMoeV2_5ForCausalLM BailingMoeV3ForCausalLM FalconH1ForCausalLM
    GraniteMoeHybridForCausalLM NemotronHForCausalLM NemotronHPuzzleForCausalLM
    Qwen3NextForCausalLM Qwen3_5ForCausalLM Qwen3_5ForConditionalGeneration
    Qwen3_5MoeForCausalLM Qwen3_5MoeForConditionalGeneration
    """
)


@dataclass(frozen=True, slots=True)
class Recurrent:
    """`charged`: bytes that the engine counts for one slot; `kept`: what a slot of this stage
    takes; `verify`: what the states of one request's draft tokens take on it;
    `spare`: one slot of padding is counted; `each`: slots that one request takes, None if
    not known; `drafts`: draft tokens with a state of their own, 0 without speculation;
    `fixed`: slots that the flags set; `share`: state's part of the memory, against KV's."""

    charged: int
    kept: int
    verify: int
    spare: bool
    each: int | None
    drafts: int
    fixed: int | None
    share: float
    requests: int | None  # requests at once of one group, under speculation


def recurrent(
    case: Case, set_: Settings, drafting: Speculation | None, stages: tuple[tuple[int, int], ...]
) -> Recurrent:
    """Raises NoForecast where the rule of this release is not known."""
    shape = case.shape
    assert shape.state is not None
    if set_.pp > 1 and set_.key < (0, 5, 8):
        raise NoForecast("pipeline stages with recurrent layers are not forecast before 0.5.8")
    one = layer_bytes(shape.state, set_)
    layers = len(shape.linear)
    charged, kept = one * layers, one * layers
    if set_.key >= (0, 5, 17) and set_.pp > 1 and layers:
        most = max(sum(1 for n in shape.linear if first <= n < end) for first, end in stages)
        charged = kept = int(one * layers * (most / layers))
    running = None if set_.running is None else set_.running // set_.groups
    each = _each(case, set_, drafting)
    if drafting is not None and each is None and set_.key >= (0, 5, 13):
        raise NoForecast(
            "the slots that a request takes are not known: set mamba-radix-cache-strategy"
        )
    given = set_.flags.get("mamba-full-memory-ratio")
    return Recurrent(
        charged,
        kept,
        _verify_bytes(shape.state, set_, drafting) * layers,
        set_.key >= (0, 5, 17),
        each,
        drafting.tokens if drafting is not None else 0,
        _fixed(set_, running, no_radix(case, set_, drafting)),
        FULL_RATIO if given is None else float(given),
        running if drafting is not None else None,
    )


def of_stage(found: Recurrent, case: Case, set_: Settings, run: tuple[int, int]) -> Recurrent:
    """A slot of one stage: its own layers' states since 0.5.10, those of all layers before."""
    if set_.pp == 1 or set_.key < (0, 5, 10):
        return found
    assert case.shape.state is not None
    own = sum(1 for layer in case.shape.linear if run[0] <= layer < run[1])
    each = found.verify // max(1, len(case.shape.linear))
    return replace(found, kept=layer_bytes(case.shape.state, set_) * own, verify=each * own)


# Architectures whose radix cache the engine turns off by itself: before these releases.
_NO_RADIX = {"KimiLinearForCausalLM": (0, 5, 14), "BailingMoeV2_5ForCausalLM": (0, 5, 13)}


def no_radix(case: Case, set_: Settings, drafting: Speculation | None) -> bool:
    """Whether no prefix is kept: as the flags say, or because the release cannot with this model
    or, in 0.5.9, with speculation without the extra buffer."""
    flags, key = set_.flags, set_.key
    if flags.get("disable-radix-cache") or key < (0, 5, 3, 2):
        return True
    if key < _NO_RADIX.get(case.shape.architecture, (0,)):
        return True
    if flags.get("enable-deterministic-inference") and shared.deterministic_without_radix(
        flags, key, base(case, set_)
    ):
        return True
    strategy = flags.get("mamba-radix-cache-strategy") or flags.get("mamba-scheduler-strategy")
    return (0, 5, 9) <= key < (0, 5, 10) and drafting is not None and strategy != "extra_buffer"


def layer_bytes(state: State, set_: Settings) -> int:
    return sum(_parts(state, set_))


def _verify_bytes(state: State, set_: Settings, drafting: Speculation | None) -> int:
    """States of the draft tokens of one request in one layer. From 0.5.14 on neighbouring tokens
    of a chain share what their convolutions overlap in; those of KDA do not."""
    if drafting is None:
        return 0
    temporal, conv = _parts(state, set_)
    dense = (temporal + conv) * drafting.tokens
    if not state.conv or set_.key < (0, 5, 14) or drafting.branches > 1 or state.kind == "kda":
        return dense
    taps = state.conv[0][1]
    return temporal * drafting.tokens + conv // taps * (taps + drafting.tokens - 1)


def _parts(state: State, set_: Settings) -> tuple[int, int]:
    """Bytes of the state itself and of the convolution."""
    temporal, conv = state_elements(state, set_.heads_over)
    size = getattr(state, "element", 4)
    asked = set_.flags.get("mamba-ssm-dtype") or set_.env.get("SGLANG_MAMBA_SSM_DTYPE")
    if asked is not None:
        if str(asked) not in _ELEMENT:
            raise NoForecast(f"mamba-ssm-dtype {asked} is not forecast")
        size = _ELEMENT[str(asked)]
    conv_size = _ELEMENT.get(str(set_.env.get("SGLANG_MAMBA_CONV_DTYPE")), 2)
    return temporal * size, conv * conv_size


def _fixed(set_: Settings, running: int | None, no_radix: bool) -> int | None:
    """Slots that no memory decides."""
    key = set_.key
    slots = set_.flags.get("max-mamba-cache-size")
    if (0, 5, 3, 2) <= key < (0, 5, 7) and not no_radix:
        return None  # the flag is ignored
    if slots is not None:
        return int(slots) // set_.groups
    if not no_radix:
        return None
    if running is not None:
        return max(1, running) if key >= (0, 5, 23) else running
    return _OLD_SLOTS // set_.groups if key < (0, 5, 9) else None


def _each(case: Case, set_: Settings, drafting: Speculation | None) -> int | None:
    """Slots that one running request takes, of all that there are."""
    flags, key = set_.flags, set_.key
    if no_radix(case, set_, drafting):
        return 1
    base = 2 if key >= (0, 5, 17) and on(set_.env.get("SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK")) else 3
    strategy = flags.get("mamba-radix-cache-strategy") or flags.get("mamba-scheduler-strategy")
    overlap = not flags.get("disable-overlap-schedule")
    if key < (0, 5, 7):
        return 3
    if key < (0, 5, 8):
        return 4 if strategy == "extra_buffer" and drafting is not None else 5
    if key < (0, 5, 10):
        if strategy != "extra_buffer":
            return 3
        return 4 if drafting is not None else 5
    if strategy in (None, "auto"):
        strategy = _automatic(case, set_, overlap)
    if strategy is None:
        return None
    if strategy == "no_buffer":
        return 3
    lazy = strategy == "extra_buffer_lazy"
    # Stages turn the overlap off, after the strategy was chosen.
    return base + (2 if overlap and set_.pp == 1 and not lazy else 1)


def _automatic(case: Case, set_: Settings, overlap: bool) -> str | None:
    if set_.key < (0, 5, 14):
        return "no_buffer"
    name = case.shape.architecture
    known = name in _TRACKED or (name == "KimiLinearForCausalLM" and set_.key >= (0, 5, 16))
    if not known:
        return "no_buffer"
    wanted = overlap or int(set_.flags.get("page-size") or 1) > 1
    plain = (set_.flags.get("linear-attn-backend") or "triton") == "triton"
    return "extra_buffer" if wanted and plain else "no_buffer"


def take(found: Recurrent, rest: float, set_: Settings) -> tuple[int, float]:
    """(slots, GiB left for KV) out of `rest` GiB. Raises NoForecast if nothing fits."""
    one, key, spare = found.charged, set_.key, 1 if found.spare else 0
    if one == 0:
        return found.fixed or 0, rest
    if (0, 5, 8) <= key < (0, 5, 13) or ((0, 5, 7) <= key < (0, 5, 8) and found.fixed is None):
        # every request at once may hold a state for each draft token
        rest -= one * (found.requests or 0) * found.drafts / GiB
    slots, rest = (
        (found.fixed, _reserve(found, found.fixed, rest, set_))
        if found.fixed is not None
        else _by_share(found, rest, set_)
    )
    if slots <= 0:
        raise NoRoom("no memory is left for recurrent state: the start would fail")
    each = one
    if key < (0, 5, 7) and key >= (0, 5, 3, 2):
        each = one * (1 + found.drafts)
    return slots, rest - (slots + spare) * each / GiB


def _reserve(found: Recurrent, slots: int, rest: float, set_: Settings) -> float:
    """What fixed slots leave once the draft tokens' states are set aside, 0.5.13 on."""
    if not found.drafts or set_.key < (0, 5, 13):
        return rest
    requests = slots
    if set_.flags.get("max-mamba-cache-size") is not None:
        requests = min(found.requests or 0, slots // (found.each or 1))
    spare = 1 if found.spare else 0
    return rest - found.charged * (requests + spare) * found.drafts / GiB


def _by_share(found: Recurrent, rest: float, set_: Settings) -> tuple[int, float]:
    one, share, key = found.charged, found.share, set_.key
    budget = rest * share / (1 + share) * GiB
    if key < (0, 5, 7) and key >= (0, 5, 3, 2):
        return int(budget // one // (1 + found.drafts)) // set_.groups, rest
    spare = 1 if found.spare else 0
    if not found.drafts or key < (0, 5, 13):
        return int((budget - spare * one) // one), rest
    drafts, each = found.drafts, found.each or 1
    budget -= spare * one * (1 + drafts)
    slots = int(budget // (one * (1 + drafts / each)))
    requests = min(found.requests or 0, slots // each)
    return slots, rest - one * (requests + spare) * drafts / GiB


def slots_beside(found: Recurrent, tokens: float, charged: float, set_: Settings) -> int | None:
    """Slots that stand beside a KV pool of so many tokens, if memory was split by `share`; what
    is left after whole slots and tokens can hide up to 1 + share slots. None: not known."""
    if found.fixed is not None:
        return found.fixed
    if found.drafts or set_.flags.get("max-total-tokens") is not None or not found.charged:
        return None
    spare = 1 if found.spare else 0
    return max(0, int(found.share * tokens * charged / found.charged) - spare)
