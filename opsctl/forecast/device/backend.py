"""Which attention backends a case runs on: they decide the page, and on AMD the memory fraction.

Sources: model_executor/model_runner.py `model_specific_adjustment` (0.5.2 to 0.5.5.post3);
server_args.py `_handle_attention_backend_compatibility`, `_handle_model_specific_adjustments` (to
0.5.18); arg_groups/overrides.py, arg_groups/model_overrides/ (0.5.15 on).
"""

from __future__ import annotations

from opsctl.forecast.device.hardware import capability
from opsctl.forecast.device.settings import Settings, names
from opsctl.forecast.values import Case, Heads, NoStart

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
    KimiLinearForCausalLM Llama4ForConditionalGeneration MiniMaxM3SparseForCausalLM
    MossVLForConditionalGeneration MuseGlimmerForCausalLM Olmo2ForCausalLM Olmo3ForCausalLM
    Qwen3VLForConditionalGeneration Qwen4ExpForConditionalGeneration Step3p5ForCausalLM
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
_AITER_HEADS = (16, 128)  # of MLA on one rank, that aiter has kernels for
_TRTLLM_MHA_SINCE = (0, 5, 6, 1)  # the release from which it is SM 10's own choice


def attention(case: Case, set_: Settings) -> tuple[str, str] | None:
    """(prefill, decode), as set, else as the engine chooses; None where that is not known."""
    flags = set_.flags
    base = flags.get("attention-backend")
    prefill = flags.get("prefill-attention-backend") or base
    decode = flags.get("decode-attention-backend") or base
    if prefill and decode:
        return str(prefill), str(decode)
    fallback = _default(case, set_)
    if fallback is None:
        return None
    return str(prefill or fallback), str(decode or fallback)


def _default(case: Case, set_: Settings) -> str | None:
    if case.flags.get("device") == "cpu" or case.hardware.vendor == "cpu":
        return "cpu"
    if case.shape.indexer is not None:
        return "dsa"
    if case.hardware.vendor == "amd":
        return _on_amd(case, set_)
    found = capability(case.hardware)
    if found is None or case.hardware.vendor != "nvidia":
        return None
    grouped = isinstance(case.shape.attention, Heads)
    if found[0] == 10:
        return _on_sm10(case, set_) if grouped else _latent_on_sm10(case, set_)
    if case.shape.architecture == _GPT_OSS:
        return "fa3" if found[0] == 9 else "triton"
    if found[0] == 12 and grouped:
        return _on_sm12(case, set_)
    if found[0] == 9 and case.flags.get("kv-cache-dtype") == "fp8_e5m2":
        return "triton"  # fa3 does not read it
    if found[0] == 9:
        return "fa3" if _one_branch(set_) or not grouped else "flashinfer"
    return "flashinfer" if grouped else "triton"


def _on_amd(case: Case, set_: Settings) -> str | None:
    shape = case.shape
    if isinstance(shape.attention, Heads):
        return "triton" if shape.architecture == _GPT_OSS and set_.key < (0, 5, 10) else "aiter"
    if not shape.q_heads:
        return None
    return "aiter" if shape.q_heads // set_.tp in _AITER_HEADS else "triton"


def _latent_on_sm10(case: Case, set_: Settings) -> str:
    name = case.shape.architecture
    if any(name == known and set_.key >= since for known, since in _TRTLLM_MLA):
        return "trtllm_mla"
    return "flashinfer"


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
    known = not set_.algorithm or set_.flags.get("speculative-eagle-topk") is not None
    return "trtllm_mha" if known and _one_branch(set_) else "flashinfer"


def _one_branch(set_: Settings) -> bool:
    """The engine's is_no_spec_infer_or_topk_one."""
    flags = set_.flags
    if flags.get("speculative-eagle-topk") is None:
        return True
    return set_.branches <= 1 and flags.get("page-size") in (None, 1)


def _on_sm12(case: Case, set_: Settings) -> str:
    if _TRTLLM_MHA_SINCE <= set_.key < (0, 5, 7) and _one_branch(set_):
        raise NoStart(
            f"{case.version} chooses trtllm_mha on this card and then refuses it: the start would "
            "fail; set attention-backend"
        )
    if case.shape.architecture in _NEMOTRON_H and set_.key >= (0, 5, 19) and set_.algorithm:
        return "triton"
    return "flashinfer"


def _gdn_on_sm10(set_: Settings) -> str | None:
    """Its pages follow from this too, whatever page-size says: see page.py."""
    if set_.key < (0, 5, 10):
        return "triton"
    by_hand = ("disable-radix-cache", "mamba-radix-cache-strategy", "mamba-scheduler-strategy")
    if any(set_.flags.get(name) for name in by_hand):
        return None
    if not set_.algorithm:
        return "triton"
    return "trtllm_mha" if set_.key >= (0, 5, 14) and set_.branches <= 1 else None
