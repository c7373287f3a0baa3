"""What is not computed, by name, with what is missing."""

from __future__ import annotations

from opsctl.forecast.shape.config import Config
from opsctl.forecast.values import NoForecast

_ENCODER = "an encoder or embedding model: what it keeps of a request is not forecast"
_CROSS = "layers with cross-attention to an encoder, whose KV is not forecast"
_DSV4 = "compressed KV, indexer and state pools of its own kind (DeepSeek-V4), not forecast"
_TRANSFORMERS = "run by Transformers' own classes, whose sizes are not known here"

_BY_NAME = {
    "BertForSequenceClassification": _ENCODER,
    "BertModel": _ENCODER,
    "CLIPModel": _ENCODER,
    "Contriever": _ENCODER,
    "EmbeddingGemma2Model": _ENCODER,
    "PixtralVisionModel": _ENCODER,
    "XLMRobertaForSequenceClassification": _ENCODER,
    "XLMRobertaModel": _ENCODER,
    "MllamaForConditionalGeneration": _CROSS,
    "MossVLForConditionalGeneration": _CROSS,
    "WhisperForConditionalGeneration": _CROSS,
    "DeepseekV4ForCausalLM": _DSV4,
    "DeepseekV4ForCausalLMDSpark": _DSV4,
    "DeepseekV4ForCausalLMNextN": _DSV4,
    "BeamForCausalLM": "a schedule of window layers that is not read yet",
    "Cohere2MoeForCausalLM": "a class whose window layers are not read yet",
    "DeciLMForCausalLM": "layers of different shapes (block_configs), which are not read yet",
    "DiffusionGemmaForBlockDiffusion": "block diffusion, whose pools are not forecast",
    "Dots3NoteForCausalLM": "window layers with latent rows of another size (Dots3), not forecast",
    "FalconMambaForCausalLM": "no attention at all: its pools are not forecast",
    "GigaChat35ForCausalLM": "a mixture of MLA and linear layers that is not read yet",
    "Glm5NextForConditionalGeneration": "KDA and pooled index keys (GLM-5 Next), not forecast",
    "HYV4ForCausalLM": "an indexer of its own kind (Hunyuan V4), not forecast",
    "InklingForConditionalGeneration": "window layers and convolution state at once, not forecast",
    "JetVLMForConditionalGeneration": "a nested Jet-Nemotron configuration that is not read yet",
    "K2HorizonForCausalLM": "an attention of its own kind, not forecast",
    "Lfm2VlForConditionalGeneration": "a nested LFM2 configuration that is not read yet",
    "Mamba2ForCausalLM": "no attention at all: its pools are not forecast",
    "MambaForCausalLM": "no attention at all: its pools are not forecast",
    "MiniCPMSALAForCausalLM": "lightning and sparse layers (MiniCPM SALA), not forecast",
    "MiniMaxM3SparseForCausalLM": "a sparse attention with index keys (MiniMax M3), not forecast",
    "MiniMaxM3SparseForConditionalGeneration": "a sparse attention with index keys (MiniMax M3), "
    "not forecast",
    "MuseSparkForConditionalGeneration": "an attention of its own kind, not forecast",
    "Qwen4ExpForConditionalGeneration": "an attention of its own kind (Qwen4-Exp), not forecast",
    "UnlimitedOCRForCausalLM": "window layers only, which are not forecast",
    "ZayaForCausalLM": "convolution state beside attention (ZAYA1), not forecast",
}
# keys of config.json → what they mean, for architectures that no rule here knows
_BY_KEY = {
    "cross_attention_layers": "cross-attention layers",
    "block_configs": "layers of different shapes",
    "attn_config": "an attention configuration of its own kind",
    "new_decoder_architecture": "an attention configuration of its own kind",
    "ssm_cfg": "Mamba layers",
    "attn_layer_period": "Mamba layers",
    "is_hybrid_swa": "window layers that it declares itself",
    "dual_chunk_attention_config": "dual-chunk attention",
}


def refuse(config: Config) -> None:
    """Raises NoForecast."""
    name = config.architecture
    if name.startswith("Transformers"):
        raise NoForecast(f"{name} is {_TRANSFORMERS}")
    if name in _BY_NAME:
        raise NoForecast(f"{name}: {_BY_NAME[name]}")
    for key, meaning in _BY_KEY.items():
        if config.text.get(key) or config.top.get(key):
            raise NoForecast(f"{name} has {meaning} ({key}), which is not forecast")
