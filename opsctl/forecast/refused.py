"""What the engine would end at once for, with this model on these cards: no figure is told then.

Flags that contradict each other are judged by engine/rules. Here is the rest: what only the model
and the cards decide, and values that the parser takes and a later step does not.

Sources, alike in the released packages 0.5.2 to 0.5.23: layers/linear.py QKVParallelLinear and the
assertions of the models (heads over ranks); managers/tp_worker.py (requests and tokens of one
request above zero); server_args.py `check_server_args`, arg_groups/validation_hook.py (a chunk is
divided by the page); model_runner.py `_get_attention_backend_from_str` and layers/attention/
attention_registry.py (backends that read the one or the other kind of cache).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opsctl.engine import rules
from opsctl.errors import SpecError
from opsctl.forecast.advised import kinds
from opsctl.forecast.device.hardware import capability
from opsctl.forecast.device.settings import names, settings
from opsctl.forecast.values import Case, Heads, NoStart
from opsctl.onhost.expect import count

# Architectures whose attention is not split by QKVParallelLinear or DeepseekV2AttentionMLA, or
# whose classes were not read: nothing is said of their heads.
_HEADS_NOT_READ = names(
    """
    CLIPModel Cosmos3EdgeForConditionalGeneration Cosmos3ForConditionalGeneration DeciLMForCausalLM
    DeepseekV4ForCausalLM Dots3NoteForCausalLM FalconMambaForCausalLM GigaChat35ForCausalLM
    Glm5NextForConditionalGeneration HYV4ForCausalLM InklingForConditionalGeneration
    Mamba2ForCausalLM MambaForCausalLM MindSporeForCausalLM MllamaForConditionalGeneration
    Phi3SmallForCausalLM Qwen4ExpForConditionalGeneration WhisperForConditionalGeneration
    """
)
_OF_LATENTS = ("flashmla", "cutlass_mla", "trtllm_mla", "cutedsl_mla", "tokenspeed_mla")
_OF_HEADS = ("trtllm_mha", "hpc_ops")
_BACKENDS = ("attention-backend", "prefill-attention-backend", "decode-attention-backend")
_AT_LEAST_ONE = {
    "max-running-requests": "no request could run",
    "max-total-tokens": "the KV cache would hold no token",
    "context-length": "a request would have no token",
    "page-size": "a page would hold no token",
}


def refuse(case: Case) -> None:
    """Raises NoStart with everything that the engine would end at once for."""
    judged = together(case)
    found = [*_zeros(case, judged), *_heads(case), *_backends(case)]
    if judged is not None and judged.checked:
        found += [one.text for one in judged.refusals]
    if found:
        raise NoStart("; ".join(dict.fromkeys(found)))


def together(case: Case) -> rules.Judged | None:
    """What the rules say of the flags with this model and these cards; None for a release of
    before, whose catalogue is not here any more."""
    shape, hardware = case.shape, case.hardware
    model = {"architecture": shape.architecture, "kind": kinds(shape), "context": shape.context}
    cards: dict[str, object] = {"vendor": hardware.vendor}
    if (found := capability(hardware)) is not None:
        cards["capability"] = float("{}.{}".format(*found))
    known = {name: value for name, value in model.items() if value}
    try:
        return rules.judge(rules.Facts(case.version, case.flags, case.env, known, cards))
    except SpecError:
        return None


def _zeros(case: Case, judged: rules.Judged | None) -> Iterator[str]:
    """A page that a backend brings itself is no matter."""
    flags = judged.flags if judged is not None else case.flags
    for name, why in _AT_LEAST_ONE.items():
        value = flags.get(name)
        if value is not None and int(value) < 1:
            yield f"SGLang {case.version} would refuse to start: {name} {value}: {why}"


def _heads(case: Case) -> Iterator[str]:
    shape = case.shape
    over = settings(case).heads_over
    if over == 1 or case.hardware.vendor == "cpu" or shape.architecture in _HEADS_NOT_READ:
        return
    begin = f"SGLang {case.version} would refuse to start: "
    if shape.q_heads % over:
        yield f"{begin}{shape.q_heads} attention heads do not divide by {over} ranks"
    elif isinstance(shape.attention, Heads):
        held = shape.attention.count
        if held and (held % over if held > over else over % held):
            yield f"{begin}{held} KV heads and {over} ranks do not divide by each other"


def _backends(case: Case) -> Iterator[str]:
    """Sparse attention (DSA) has its own backend, whatever is written."""
    if case.shape.indexer is not None or case.hardware.vendor != "nvidia":
        return
    latent = not isinstance(case.shape.attention, Heads)
    card = capability(case.hardware)
    begin = f"SGLang {case.version} would refuse to start: "
    for name in _BACKENDS:
        backend = case.flags.get(name)
        if backend in _OF_LATENTS and not latent:
            yield f"{begin}{name} {backend} reads the latent cache of MLA, which this model has not"
        elif backend in _OF_HEADS and latent:
            yield f"{begin}{name} {backend} reads keys and values, and this model keeps MLA latents"
        elif backend == "fa3" and card is not None and not _fa3(card[0], latent):
            of = " for MLA" if latent and card[0] == 8 else ""
            yield f"{begin}{name} fa3 has no kernels{of} for compute capability {card[0]}.{card[1]}"


def _fa3(major: int, latent: bool) -> bool:
    return major == 9 or (major == 8 and not latent)


# -- GPUs -----------------------------------------------------------------------------------------


def unseated(manifest: Mapping[str, Any], facts: Mapping[str, Any], case: Case) -> str:
    """Why the ranks do not find their GPUs on this host; "" if they do, or nothing was told."""
    cards: Sequence[Mapping[str, Any]] = facts.get("gpus") or ()
    if not cards or case.hardware.vendor == "cpu":
        return ""
    there = {int(card["index"]) for card in cards}
    asked = manifest.get("gpus")
    if missing := sorted(set(asked or ()) - there):
        which = ", ".join(str(n) for n in missing)
        return f"there is no GPU {which} on this host: it has {_gpus(len(there))}, from 0 on"
    seen, ranks = len(asked) if asked is not None else len(there), len(case.ranks)
    first = int(case.flags.get("base-gpu-id") or 0)
    step = int(case.flags.get("gpu-id-step") or 1)
    if ranks > seen:
        has = "the service has" if asked is not None else "it has"
        made = f"{count(ranks)} rank{'s' if ranks > 1 else ''}"
        return f"the flags make {made} on this host, and {has} {_gpus(seen)}"
    last = first + (ranks - 1) * step
    if last >= seen:
        return f"base-gpu-id {first} and gpu-id-step {step} ask for GPU {last} of {_gpus(seen)}"
    return ""


def _gpus(number: int) -> str:
    return f"{number} GPU{'' if number == 1 else 's'}"
