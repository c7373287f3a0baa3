"""The geometry of a draft model: an MTP layer inside the checkpoint, or a model in a folder of its
own, as the engine overrides its configuration.

Sources: configs/model_config.py `_config_draft_model`; model_executor/model_runner.py (to 0.5.15)
and model_runner_components/layer_setup.py: num_nextn_predict_layers takes the place of the layers
of a draft worker.
"""

from __future__ import annotations

from dataclasses import replace

from opsctl.forecast.shape import target as targets
from opsctl.forecast.shape.config import read
from opsctl.forecast.shape.registry import FIRST, NEWEST, parsed
from opsctl.forecast.values import Geometry, Indexer, NoForecast

# architecture of the target → that of its MTP draft
MTP = {
    "BailingMoeForCausalLM": "BailingMoeForCausalLMNextN",
    "BailingMoeV2ForCausalLM": "BailingMoeForCausalLMNextN",
    "BailingMoeV2_5ForCausalLM": "BailingMoeForCausalLMNextN",
    "BailingMoeV3ForCausalLM": "BailingMoeForCausalLMNextN",
    "DeepseekV32ForCausalLM": "DeepseekV3ForCausalLMNextN",
    "DeepseekV3ForCausalLM": "DeepseekV3ForCausalLMNextN",
    "Ernie4_5_MoeForCausalLM": "Ernie4_5_MoeForCausalLMMTP",
    "ExaoneMoEForCausalLM": "ExaoneMoEForCausalLMMTP",
    "ExaoneMoeForCausalLM": "ExaoneMoEForCausalLMMTP",
    "Glm4MoeForCausalLM": "Glm4MoeForCausalLMNextN",
    "Glm4MoeLiteForCausalLM": "Glm4MoeLiteForCausalLMNextN",
    "GlmMoeDsaForCausalLM": "GlmMoeDsaForCausalLMNextN",
    "GlmOcrForConditionalGeneration": "GlmOcrForConditionalGenerationNextN",
    "HYV3ForCausalLM": "HYV3ForCausalLMNextN",
    "LongcatFlashForCausalLM": "LongcatFlashForCausalLMNextN",
    "MiMoForCausalLM": "MiMoMTP",
    "MiMoV2FlashForCausalLM": "MiMoV2MTP",
    "MiMoV2ForCausalLM": "MiMoV2MTP",
    "NemotronHForCausalLM": "NemotronHForCausalLMMTP",
    "NemotronHPuzzleForCausalLM": "NemotronHForCausalLMMTP",
    "Qwen3MoeForCausalLM": "Qwen3MoeForCausalLMMTP",
    "Qwen3NextForCausalLM": "Qwen3NextForCausalLMMTP",
    "Qwen3_5ForCausalLM": "Qwen3_5ForCausalLMMTP",
    "Qwen3_5ForConditionalGeneration": "Qwen3_5ForCausalLMMTP",
    "Qwen3_5MoeForCausalLM": "Qwen3_5ForCausalLMMTP",
    "Qwen3_5MoeForConditionalGeneration": "Qwen3_5ForCausalLMMTP",
    "Step3p5ForCausalLM": "Step3p5MTP",
    "Step3p7ForConditionalGeneration": "Step3p5MTP",
}
# drafts of which one layer is used, whatever the file says
_ONE_LAYER = {
    "ExaoneMoEForCausalLMMTP",
    "HYV3ForCausalLMNextN",
    "MiMoV2MTP",
    "NemotronHForCausalLMMTP",
    "Qwen3MoeForCausalLMMTP",
    "Qwen3NextForCausalLMMTP",
    "Qwen3_5ForCausalLMMTP",
    "Step3p5MTP",
}
# … and of which the releases from 0.5.14 on say so in the configuration itself
_SAYS_ONE = _ONE_LAYER - {"Step3p5MTP"}
# Targets whose draft is looked for in their own folder where no other is named: the rest have no
# path of a draft then, and what the engine counts for it differs.
_OWN_FOLDER = {
    "BailingMoeForCausalLM",
    "BailingMoeV2ForCausalLM",
    "BailingMoeV2_5ForCausalLM",
    "DeepseekV32ForCausalLM",
    "DeepseekV3ForCausalLM",
    "Glm4MoeForCausalLM",
    "Glm4MoeLiteForCausalLM",
    "GlmMoeDsaForCausalLM",
    "HYV3ForCausalLM",
}
_ONE_WINDOW_LAYER = {"MiMoV2MTP", "Step3p5MTP"}
_ALGORITHMS = {"EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "DFLASH"}
# Drafts in a folder of their own: sized by their own fields like any model of plain heads.
_PLAIN_DRAFTS = {
    "DFlashDraftModel",
    "LlamaForCausalLMEagle",
    "LlamaForCausalLMEagle3",
    "MistralForCausalLMEagle",
    "Qwen2ForCausalLMEagle",
}


def draft_geometry(
    config_text: str | None,
    quant_text: str | None,
    target: Geometry,
    algorithm: str,
    version: str | None = None,
) -> Geometry:
    """`config_text`: of the draft's folder, None or the target's own where the draft is part of
    the target's checkpoint. Raises NoForecast."""
    if algorithm not in _ALGORITHMS:
        raise NoForecast(f"the draft of speculative-algorithm {algorithm} is not forecast")
    release = parsed(version or NEWEST)
    if not config_text:
        return _pathless(target, version, release)
    config = read(config_text, version)
    name = config.architecture
    if algorithm == "STANDALONE":
        found = targets.geometry(config_text, quant_text, version)
        return _counted(found, config.text.get("num_nextn_predict_layers"), found.layers, release)
    if name in MTP:
        model = targets.geometry(config_text, quant_text, version)
        draft = _inside(model, target, version)
        said = config.text.get("num_nextn_predict_layers")
        flat = not config.nested or release >= (0, 5, 18)
        said = 1 if draft.architecture in _SAYS_ONE and flat else said
        return _counted(draft, said, model.layers, release)
    if name not in _PLAIN_DRAFTS and not _is_mtp(name) and name not in _LATENT_DRAFTS:
        raise NoForecast(f"a draft of the architecture {name} is not forecast")
    targets.known(name, version)
    found = targets.of(config, quant_text, version)
    said = config.text.get("num_nextn_predict_layers")
    draft = _layers(found, _nextn(found, version, said))
    return _counted(draft, said, found.layers, release)


def _pathless(target: Geometry, version: str | None, release: tuple[int, ...]) -> Geometry:
    """The draft of a description that names none."""
    draft = _inside(target, target, version)
    if target.architecture in _OWN_FOLDER:
        return _counted(draft, draft.layers, draft.layers, release)
    if release < (0, 5, 20):
        return replace(draft, counted=0)  # without a path nothing is counted
    return _counted(draft, target.nextn, 0, release)


def _counted(draft: Geometry, said: object, layers: int, release: tuple[int, ...]) -> Geometry:
    """With the layers that the engine counts for the draft as it sizes the target's pool: what
    num_nextn_predict_layers says, else all `layers` of the configuration, whatever is built."""
    if release < (0, 5, 14):
        return replace(draft, counted=0)
    if said is None:
        return replace(draft, counted=layers)
    return replace(draft, counted=said if isinstance(said, int) else layers)


_LATENT_DRAFTS = {"Eagle3DeepseekV2ForCausalLM", "MistralLarge3ForCausalLMEagle"}


def _is_mtp(name: str) -> bool:
    return name in set(MTP.values())


def _nextn(found: Geometry, version: str | None, said: object) -> int:
    """Layers of a draft in a folder of its own. 0 means as much as nothing, but only since
    0.5.13: before, it made a draft without KV, which fails at the first request."""
    if found.architecture in _ONE_LAYER:
        return 1
    if said == 0 and parsed(version or NEWEST) < (0, 5, 13):
        raise NoForecast(f"{version} reads num_nextn_predict_layers 0 as a draft without layers")
    return found.nextn or found.layers


def _inside(model: Geometry, target: Geometry, version: str | None) -> Geometry:
    """The MTP layers of a checkpoint, as a draft."""
    name = MTP.get(model.architecture)
    if name is None:
        raise NoForecast(
            f"{model.architecture} has no MTP draft that the engine knows: set "
            "speculative-draft-model-path, and give its config.json (--draft-config)"
        )
    if version and name not in _LATER_NAME and parsed(version) < parsed(FIRST[name]):
        raise NoForecast(f"{version} has no class for the draft {name}")
    if name == "Glm4MoeLiteForCausalLMNextN" and parsed(version or NEWEST) < (0, 5, 13):
        raise NoForecast(f"{version} runs the MTP draft of {model.architecture} with plain heads")
    layers = 1 if name in _ONE_LAYER else model.nextn
    if not layers:
        raise NoForecast(f"config.json of {model.architecture} names no num_nextn_predict_layers")
    draft = replace(
        model, architecture=name, vision=None, multimodal=target.multimodal, nextn=layers
    )
    if name not in _ONE_WINDOW_LAYER:
        return _layers(draft, layers)
    return replace(draft, layers=1, full=(), window=(0,), linear=(), state=None)


# A draft that earlier releases ran by DeepSeek's class, of the same sizes.
_LATER_NAME = {"GlmMoeDsaForCausalLMNextN", "Glm4MoeLiteForCausalLMNextN"}


def _layers(found: Geometry, layers: int) -> Geometry:
    """Plain attention in each of a draft's layers, and index keys too where the target has some
    (a draft's are never left out)."""
    every = tuple(range(layers))
    indexer = Indexer(found.indexer.head_dim, every) if found.indexer else None
    return replace(
        found, layers=layers, full=every, window=(), linear=(), state=None, indexer=indexer
    )
