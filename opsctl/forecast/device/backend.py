"""Which attention backends a case runs on: they decide the page, and on AMD the memory fraction.

Sources: model_executor/model_runner.py `model_specific_adjustment` (0.5.2 to 0.5.5.post3);
server_args.py `_handle_attention_backend_compatibility`, `_handle_model_specific_adjustments` (to
0.5.18); arg_groups/overrides.py, arg_groups/model_overrides/ (0.5.15 on).
"""

from __future__ import annotations

from opsctl.forecast.device.hardware import capability
from opsctl.forecast.device.settings import Settings, names
from opsctl.forecast.values import Case, Heads

# MLA architectures that SM 10 runs with trtllm_mla, by the release that first does.
_TRTLLM_MLA: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("DeepseekV3ForCausalLM", (0, 5, 3, 2)),
    ("KimiK25ForConditionalGeneration", (0, 5, 9)),
    ("MistralLarge3ForCausalLM", (0, 5, 7)),
    ("PixtralForConditionalGeneration", (0, 5, 7)),
)
# Plain-head architectures for which SM 10 gets something of its own, or what is not known here.
_OWN_ON_SM10 = names(
    """
    BailingMoeV2_5ForCausalLM BailingMoeV3ForCausalLM Cohere2MoeForCausalLM
    Ernie4_5_VLMoeForConditionalGeneration Exaone4ForCausalLM ExaoneMoEForCausalLM
    FalconH1ForCausalLM Gemma4ForCausalLM Gemma4ForConditionalGeneration
    Gemma4UnifiedForConditionalGeneration GraniteMoeHybridForCausalLM IQuestQ1ForCausalLM
    InklingForConditionalGeneration JetNemotronForCausalLM KimiK3ForConditionalGeneration
    KimiLinearForCausalLM MiniMaxM3SparseForCausalLM
    MossVLForConditionalGeneration MuseGlimmerForCausalLM Olmo2ForCausalLM Olmo3ForCausalLM
    Qwen4ExpForConditionalGeneration Step3p5ForCausalLM
    Step3p7ForConditionalGeneration
    """
)
GDN = names(
    """
    Qwen3NextForCausalLM Qwen3_5ForCausalLM Qwen3_5ForConditionalGeneration
    Qwen3_5MoeForCausalLM Qwen3_5MoeForConditionalGeneration
    """
)
_LFM2 = names("Lfm2ForCausalLM Lfm2MoeForCausalLM")
_NEMOTRON_H = names("NemotronHForCausalLM NemotronHPuzzleForCausalLM")
_MIMO = names("MiMoV2FlashForCausalLM MiMoV2ForCausalLM")
_GPT_OSS = "GptOssForCausalLM"
_LLAMA4 = names("Llama4ForCausalLM Llama4ForConditionalGeneration")
_DEEPSEEK = names(
    """
    DeepseekV2ForCausalLM DeepseekV32ForCausalLM DeepseekV3ForCausalLM GlmMoeDsaForCausalLM
    MistralLarge3ForCausalLM PixtralForConditionalGeneration
    """
)
# From here on deterministic inference chooses before the usual choice is made.
_DETERMINISTIC_FIRST = (0, 5, 12)
_ONE_FOR_BOTH = (0, 5, 4, 1)  # two phases with one backend make it the base
_STRATEGIES = ("mamba-radix-cache-strategy", "mamba-scheduler-strategy")
_AITER_HEADS = (16, 128)  # of MLA on one rank, that aiter has kernels for
_TRTLLM_MHA_SINCE = (0, 5, 6, 1)  # the release from which it is SM 10's own choice


def attention(case: Case, set_: Settings) -> tuple[str, str] | None:
    """(prefill, decode), as set, else as the engine chooses; None where that is not known."""
    prefill, decode = _phases(set_)
    if prefill and decode:
        return prefill, decode
    both = base(case, set_)
    return None if both is None else (prefill or both, decode or both)


def base(case: Case, set_: Settings) -> str | None:
    """attention-backend itself, which counts by itself where each phase has another."""
    given = set_.flags.get("attention-backend")
    if given:
        return str(given)
    prefill, decode = _phases(set_)
    if prefill and prefill == decode and set_.key >= _ONE_FOR_BOTH:
        return prefill
    return _default(case, set_)


def _phases(set_: Settings) -> tuple[str, str]:
    """What the flags say of each phase; "" where they say nothing."""
    flags = set_.flags
    both = flags.get("attention-backend") or ""
    prefill = flags.get("prefill-attention-backend") or both
    decode = flags.get("decode-attention-backend") or both
    return str(prefill), str(decode)


def _default(case: Case, set_: Settings) -> str | None:
    if case.flags.get("device") == "cpu" or case.hardware.vendor == "cpu":
        return "cpu"
    unset = not any(_phases(set_))
    if case.shape.indexer is not None and unset:
        return "dsa"
    found = capability(case.hardware)
    if case.hardware.vendor == "nvidia" and found is None:
        return None
    if (own := _of_model(case, set_, found, unset)) is not None:
        return own
    if case.flags.get("enable-deterministic-inference") and set_.key >= _DETERMINISTIC_FIRST:
        return _deterministic(case, found)
    if case.hardware.vendor == "amd":
        return _on_amd(case, set_)
    if found is None or case.hardware.vendor != "nvidia":
        return None
    grouped = isinstance(case.shape.attention, Heads)
    if found[0] == 10:
        return _on_sm10(case, set_) if grouped else "flashinfer"
    if found[0] == 12 and grouped:
        return _on_sm12(set_)
    if found[0] == 9 and grouped and not _one_branch(set_):
        return "flashinfer"
    if found[0] == 9:  # fa3 does not read fp8_e5m2
        return "triton" if case.flags.get("kv-cache-dtype") == "fp8_e5m2" else "fa3"
    return "flashinfer" if grouped else "triton"


def _of_model(case: Case, set_: Settings, found: tuple[int, int] | None, unset: bool) -> str | None:
    """What an architecture asks for, before anything else is looked at. `unset`: no flag names a
    backend, not of one phase either."""
    name, major = case.shape.architecture, 0 if found is None else found[0]
    nvidia = case.hardware.vendor == "nvidia"
    if name in _LLAMA4 and set_.key >= (0, 5, 6):
        if not nvidia:
            return "aiter"
        return {10: "trtllm_mha", 9: "fa3"}.get(major, "triton")
    if name in _LLAMA4 and set_.key >= (0, 5, 4, 1) and major == 10:
        return "trtllm_mha"
    if not nvidia:
        return None
    if name == _GPT_OSS and major != 10 and unset:
        return "fa3" if major == 9 else "triton"
    if major == 10 and not isinstance(case.shape.attention, Heads) and unset:
        since = next((first for known, first in _TRTLLM_MLA if known == name), None)
        return "trtllm_mla" if since is not None and set_.key >= since else None
    if name in _NEMOTRON_H and set_.key >= (0, 5, 19) and unset and major in (10, 12):
        if set_.algorithm and not (major == 10 and set_.branches <= 1):
            return "triton"
        return "trtllm_mha" if major == 10 else None
    return None


def _deterministic(case: Case, found: tuple[int, int] | None) -> str:
    if case.hardware.vendor == "nvidia" and found is not None and found[0] in (10, 12):
        return "triton" if case.shape.architecture in _DEEPSEEK else "flashinfer"
    return "fa3"


def _on_amd(case: Case, set_: Settings) -> str | None:
    shape = case.shape
    if isinstance(shape.attention, Heads):
        return "triton" if shape.architecture == _GPT_OSS and set_.key < (0, 5, 10) else "aiter"
    if not shape.q_heads:
        return None
    return "aiter" if shape.q_heads // set_.tp in _AITER_HEADS else "triton"


def _on_sm10(case: Case, set_: Settings) -> str | None:
    name, key = case.shape.architecture, set_.key
    if name in _OWN_ON_SM10:
        return None
    if name in GDN:
        return _gdn_on_sm10(set_)
    if name in _NEMOTRON_H and (0, 5, 7) <= key < (0, 5, 19):
        own = key < (0, 5, 9) and (set_.algorithm or set_.flags.get("disable-radix-cache"))
        return None if own else "flashinfer"
    if name in _LFM2 or (key < _TRTLLM_MHA_SINCE and name != _GPT_OSS):
        return "flashinfer"
    if name in _MIMO and key >= (0, 5, 17):
        return "fa4"
    return _plain_on_sm10(set_)


def _plain_on_sm10(set_: Settings) -> str:
    known = not set_.algorithm or set_.flags.get("speculative-eagle-topk") is not None
    return "trtllm_mha" if known and _one_branch(set_) else "flashinfer"


def _one_branch(set_: Settings) -> bool:
    """The engine's is_no_spec_infer_or_topk_one."""
    flags = set_.flags
    if flags.get("speculative-eagle-topk") is None:
        return True
    return set_.branches <= 1 and flags.get("page-size") in (None, 1)


def _on_sm12(set_: Settings) -> str:
    """0.5.6.post1 and .post2 choose trtllm_mha and then refuse it (engine/rules,
    no-default-on-consumer-blackwell)."""
    own = _TRTLLM_MHA_SINCE <= set_.key < (0, 5, 7) and _one_branch(set_)
    return "trtllm_mha" if own else "flashinfer"


def _gdn_on_sm10(set_: Settings) -> str | None:
    """Its pages follow from this too, whatever page-size says: see page.py."""
    if set_.key < (0, 5, 10):
        return "triton"
    flags = set_.flags
    if any(flags.get(name) for name in _STRATEGIES):
        return None
    if flags.get("disable-radix-cache"):
        return _plain_on_sm10(set_)
    if not set_.algorithm:
        return "triton"
    if set_.key < (0, 5, 14):
        return None
    return "trtllm_mha" if _plain_on_sm10(set_) == "trtllm_mha" else "triton"
