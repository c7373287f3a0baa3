"""CUDA graphs, as far as they decide how much memory the engine keeps back.

Sources: server_args.py `_handle_piecewise_cuda_graph` (0.5.10 to 0.5.13),
`_apply_cuda_graph_compatibility` (0.5.14 to 0.5.18), arg_groups/cuda_graph_hook.py (0.5.19 on);
configs/model_config.py for the lists of architectures.
"""

from __future__ import annotations

from functools import cache

from opsctl.forecast.device.settings import Settings, names
from opsctl.forecast.shape import multimodal
from opsctl.forecast.values import Case, Latent, NoForecast

MiB_A_SIZE = 8  # of a captured prefill size
LATENT_MIB = 1536  # in one, for MLA
# DeepEP captures up to 2,048 tokens, in steps of eight, and takes this more.
_DEEPEP_SIZES, _DEEPEP_MIB = 38, 1024
_NO_PIECEWISE = names(
    """
    BailingMoeV2_5ForCausalLM DeepseekV4ForCausalLM LLaDAModelLM Qwen3NextForCausalLM
    """
)
_NO_PIECEWISE_DSA = _NO_PIECEWISE | {"DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"}
_NEMOTRON_H = names("NemotronHForCausalLM NemotronHPuzzleForCausalLM NemotronH_Nano_VL_V2")
# Multimodal architectures whose prefill is captured all the same, by the release that lists them:
# for piecewise graphs, and for breakable ones.
_IMAGES_PIECEWISE: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("Cohere2VisionForConditionalGeneration", (0, 5, 14)),
    ("KimiK25ForConditionalGeneration", (0, 5, 16)),
    ("MiniMaxM3SparseForConditionalGeneration", (0, 5, 16)),
    ("MiniMaxM3SparseForCausalLM", (0, 5, 16)),
)
_IMAGES_BREAKABLE: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("Qwen3_5ForConditionalGeneration", (0, 5, 16)),
    ("Qwen3_5MoeForConditionalGeneration", (0, 5, 16)),
    ("InternS2MobiusForConditionalGeneration", (0, 5, 18)),
    ("KimiK25ForConditionalGeneration", (0, 5, 18)),
    ("KimiK3ForConditionalGeneration", (0, 5, 18)),
    ("MuseGlimmerForConditionalGeneration", (0, 5, 18)),
    ("Cohere2VisionForConditionalGeneration", (0, 5, 19)),
    ("PaddleOCRVLForConditionalGeneration", (0, 5, 19)),
    ("MiniMaxM3SparseForConditionalGeneration", (0, 5, 22)),
    ("MiniMaxM3SparseForCausalLM", (0, 5, 22)),
    ("Qwen4ExpForConditionalGeneration", (0, 5, 22)),
)
# Flags that keep piecewise graphs off, with the values that do not.
_OFF: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("enable-torch-compile", (False,)),
    ("moe-a2a-backend", ("none",)),
    ("dllm-algorithm", ()),
    ("cpu-offload-gb", (0,)),
    ("enable-hierarchical-cache", (False,)),
    ("enable-deterministic-inference", (False,)),
    ("enable-symm-mem", (False,)),
    ("enable-eplb", (False,)),
    ("expert-distribution-recorder-mode", ()),
    ("debug-cuda-graph", (False,)),
)


@cache
def captured_sizes(most: int) -> int:
    """How many prefill sizes up to `most` tokens are captured."""
    steps = ((4, 33, 4), (48, 257, 16), (288, 513, 32), (576, 1025, 64), (1280, 4097, 256))
    found = sum(1 for step in steps for size in range(*step) if size <= most)
    return found + len(range(4608, most + 1, 512))


def prefill_mib(case: Case, set_: Settings, chunk: int) -> int:
    """MiB that are kept back for prefill graphs. Raises NoForecast where that is not sure."""
    flags, key = set_.flags, set_.key
    latent = isinstance(case.shape.attention, Latent)
    if key < (0, 5, 10):
        return _early(set_, chunk, latent)
    if not _captured(case, set_, latent):
        return 0
    deepep = _DEEPEP_MIB if key >= (0, 5, 17) and flags.get("moe-a2a-backend") == "deepep" else 0
    if latent:
        return LATENT_MIB + deepep
    if deepep and not flags.get("cuda-graph-bs-prefill"):
        return _DEEPEP_SIZES * MiB_A_SIZE + deepep
    given = flags.get("cuda-graph-bs-prefill")
    if given:
        return len(given) * MiB_A_SIZE
    most = flags.get("cuda-graph-max-bs-prefill") or flags.get("piecewise-cuda-graph-max-tokens")
    return captured_sizes(int(most) if most else _most(set_, chunk)) * MiB_A_SIZE


def _early(set_: Settings, chunk: int, latent: bool) -> int:
    flags, key = set_.flags, set_.key
    if not flags.get("enable-piecewise-cuda-graph") or key < (0, 5, 5, 1):
        return 0
    given = flags.get("piecewise-cuda-graph-max-tokens")
    if key < (0, 5, 7):
        return int(given or 4096) // 4
    if key < (0, 5, 8):
        return int(given or chunk) // 8
    return captured_sizes(int(given or (2048 if latent else chunk))) * MiB_A_SIZE


def _most(set_: Settings, chunk: int) -> int:
    """Tokens of the largest captured prefill."""
    flags, most = set_.flags, chunk
    if flags.get("max-total-tokens"):
        most = min(most, int(flags["max-total-tokens"]))
    if (0, 5, 13) <= set_.key < (0, 5, 17) and flags.get("context-length"):
        most = min(most, int(flags["context-length"]))
    return most


def _captured(case: Case, set_: Settings, latent: bool) -> bool:
    flags, key = set_.flags, set_.key
    if flags.get("disable-piecewise-cuda-graph") or flags.get("disable-prefill-cuda-graph"):
        return False
    if flags.get("cuda-graph-config"):
        raise NoForecast("cuda-graph-config decides what is kept back: set mem-fraction-static")
    chosen = flags.get("cuda-graph-backend-prefill")
    if chosen:
        return str(chosen) != "disabled"
    if flags.get("enforce-piecewise-cuda-graph"):
        return True
    if key >= (0, 5, 14) and flags.get("disable-cuda-graph"):
        return False
    images = multimodal(case.shape, flags)
    if key < (0, 5, 15):
        unfit = images and not _listed(case, set_, _IMAGES_PIECEWISE)
        return not unfit and _piecewise(case, set_)
    if not images or _listed(case, set_, _IMAGES_BREAKABLE):
        return _breakable(case, set_, latent)
    return key >= (0, 5, 16) and _listed(case, set_, _IMAGES_PIECEWISE) and _piecewise(case, set_)


def _listed(case: Case, set_: Settings, known: tuple[tuple[str, tuple[int, ...]], ...]) -> bool:
    name = case.shape.architecture
    return any(name == listed and set_.key >= since for listed, since in known)


def _piecewise(case: Case, set_: Settings) -> bool:
    flags, key = set_.flags, set_.key
    unfit = _NO_PIECEWISE_DSA if key < (0, 5, 13) else _NO_PIECEWISE
    if case.shape.architecture in unfit or case.hardware.vendor != "nvidia":
        return False
    if set_.groups > 1 or flags.get("enable-dp-attention") or set_.pp > 1:
        return False
    if set_.algorithm and key < (0, 5, 11):
        return False
    if flags.get("load-format") == "gguf" or flags.get("quantization") == "gguf":
        return False
    return all(flags.get(name) in (None, *harmless) for name, harmless in _OFF)


def _breakable(case: Case, set_: Settings, latent: bool) -> bool:
    flags, key = set_.flags, set_.key
    if key >= (0, 5, 22) and set_.pp > 1:
        return False
    if case.hardware.vendor != "nvidia":
        return False
    backend = str(flags.get("moe-a2a-backend") or "none")
    if key < (0, 5, 17):
        attended = set_.groups > 1 or bool(flags.get("enable-dp-attention"))
        return not latent and backend == "none" and not attended
    if backend not in ("none", "deepep", "megamoe", "flashinfer") or flags.get(
        "enable-two-batch-overlap"
    ):
        return False
    if key < (0, 5, 18):
        sparse = case.shape.indexer is not None
        return (not latent or sparse) and case.shape.architecture not in _NEMOTRON_H
    state = case.shape.state
    return not (key >= (0, 5, 20) and state is not None and state.kind == "kda")
