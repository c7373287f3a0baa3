"""Which release of the engine is the first to run which architecture.

Source: the classes that sglang/srt/models registers (EntryClass) in the released packages 0.5.2
to 0.5.23. No architecture here was dropped again by a later release.
"""

from __future__ import annotations

from functools import cache

from opsctl.onhost.expect import version_key

# first release → architectures
_FIRST = {
    "0.5.2": """
        ArceeForCausalLM BaichuanForCausalLM BailingMoeForCausalLM BertForSequenceClassification
        BertModel CLIPModel ChatGLMModel Cohere2ForCausalLM CohereForCausalLM Contriever
        DbrxForCausalLM DeciLMForCausalLM DeepseekForCausalLM DeepseekV2ForCausalLM
        DeepseekV3ForCausalLM DeepseekV3ForCausalLMNextN DeepseekVL2ForCausalLM
        Ernie4_5_ForCausalLM Ernie4_5_MoeForCausalLM Ernie4_5_MoeForCausalLMMTP
        ExaoneForCausalLM GPT2LMHeadModel GPTBigCodeForCausalLM Gemma2ForCausalLM
        Gemma2ForSequenceClassification Gemma3ForCausalLM Gemma3ForConditionalGeneration
        Gemma3nForCausalLM Gemma3nForConditionalGeneration GemmaForCausalLM Glm4ForCausalLM
        Glm4MoeForCausalLM Glm4MoeForCausalLMNextN Glm4vForConditionalGeneration
        Glm4vMoeForConditionalGeneration GptOssForCausalLM GraniteForCausalLM
        GraniteMoeForCausalLM Grok1ForCausalLM Grok1ModelForCausalLM HunYuanDenseV1ForCausalLM
        HunYuanMoEV1ForCausalLM InternLM2ForCausalLM InternLM2ForRewardModel
        InternLM3ForCausalLM InternS1ForConditionalGeneration InternVLChatModel
        KimiVLForConditionalGeneration Llama4ForCausalLM Llama4ForConditionalGeneration
        LlamaEmbeddingModel LlamaForCausalLM LlamaForCausalLMEagle LlamaForCausalLMEagle3
        LlamaForClassification LlamaForSequenceClassification
        LlamaForSequenceClassificationWithNormal_Weights LlavaForConditionalGeneration
        LlavaLlamaForCausalLM LlavaMistralForCausalLM LlavaQwenForCausalLM LlavaVidForCausalLM
        LongcatFlashForCausalLM LongcatFlashForCausalLMNextN MiMoForCausalLM MiMoMTP
        MiniCPM3ForCausalLM MiniCPMForCausalLM MiniCPMO MiniCPMV
        Mistral3ForConditionalGeneration MistralForCausalLM MistralModel MixtralForCausalLM
        MllamaForConditionalGeneration MultiModalityCausalLM OPTForCausalLM Olmo2ForCausalLM
        OlmoForCausalLM OlmoeForCausalLM PersimmonForCausalLM Phi3ForCausalLM
        Phi3SmallForCausalLM Phi4MMForCausalLM PhiForCausalLM PhiMoEForCausalLM
        PixtralVisionModel QWenLMHeadModel QuantMixtralForCausalLM
        Qwen2AudioForConditionalGeneration Qwen2ForCausalLM Qwen2ForCausalLMEagle
        Qwen2ForRewardModel Qwen2ForSequenceClassification Qwen2MoeForCausalLM
        Qwen2VLForConditionalGeneration Qwen2_5_VLForConditionalGeneration Qwen3ForCausalLM
        Qwen3ForSequenceClassification Qwen3MoeForCausalLM Qwen3NextForCausalLM
        Qwen3NextForCausalLMMTP StableLmForCausalLM Step3VLForConditionalGeneration
        TorchNativeLlamaForCausalLM TorchNativePhi3ForCausalLM TransformersForCausalLM
        XLMRobertaForSequenceClassification XLMRobertaModel XverseForCausalLM
        XverseMoeForCausalLM YiVLForCausalLM
    """,
    "0.5.3": """
        ApertusForCausalLM BailingMoEForCausalLM BailingMoeForCausalLMNextN
        BailingMoeV2ForCausalLM DeepseekV32ForCausalLM DotsOCRForCausalLM DotsVLMForCausalLM
        FalconH1ForCausalLM Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration
        Sarashina2VisionForCausalLM SolarForCausalLM Starcoder2ForCausalLM
    """,
    "0.5.3.post1": """
        NemotronHForCausalLM
    """,
    "0.5.4": """
        DeepseekOCRForCausalLM POINTSV15ChatModel Qwen3OmniMoeForConditionalGeneration
    """,
    "0.5.4.post1": """
        MiniMaxM2ForCausalLM NVILAForConditionalGeneration NVILALiteForConditionalGeneration
    """,
    "0.5.4.post2": """
        KimiLinearForCausalLM
    """,
    "0.5.5.post1": """
        JetNemotronForCausalLM
    """,
    "0.5.5.post3": """
        OrionForCausalLM TeleFLMForCausalLM
    """,
    "0.5.6": """
        JetVLMForConditionalGeneration LLaDA2MoeModelLM MindSporeForCausalLM
        NemotronH_Nano_VL_V2
    """,
    "0.5.6.post1": """
        Ministral3ForCausalLM MistralLarge3ForCausalLM MistralLarge3ForCausalLMEagle
        PixtralForConditionalGeneration
    """,
    "0.5.6.post2": """
        PaddleOCRVLForConditionalGeneration
    """,
    "0.5.7": """
        GlmAsrForConditionalGeneration MiDashengLMModel MiMoV2FlashForCausalLM MiMoV2MTP
    """,
    "0.5.8": """
        AfmoeForCausalLM Glm4MoeLiteForCausalLM IQuestCoderForCausalLM
        IQuestLoopCoderForCausalLM NemotronHForCausalLMMTP
    """,
    "0.5.9": """
        BailingMoeV2_5ForCausalLM Ernie4_5_VLMoeForConditionalGeneration Exaone4ForCausalLM
        ExaoneMoEForCausalLM ExaoneMoEForCausalLMMTP GPTJForCausalLM GlmMoeDsaForCausalLM
        GlmOcrForConditionalGeneration GlmOcrForConditionalGenerationNextN
        GraniteMoeHybridForCausalLM InternS1ProForConditionalGeneration
        KimiK25ForConditionalGeneration Lfm2ForCausalLM Lfm2MoeForCausalLM
        LightOnOCRForConditionalGeneration Qwen3ForRewardModel Qwen3_5ForCausalLMMTP
        Qwen3_5ForConditionalGeneration Qwen3_5MoeForConditionalGeneration SDARForCausalLM
        SDARMoeForCausalLM Step3p5ForCausalLM Step3p5MTP StepVLForConditionalGeneration
    """,
    "0.5.10": """
        Lfm2VlForConditionalGeneration SarvamMLAForCausalLM SarvamMoEForCausalLM
        TransformersEmbeddingModel TransformersForSequenceClassification
        TransformersMoEEmbeddingModel TransformersMoEForCausalLM
        TransformersMoEForSequenceClassification TransformersMultiModalEmbeddingModel
        TransformersMultiModalForCausalLM TransformersMultiModalForSequenceClassification
        TransformersMultiModalMoEEmbeddingModel TransformersMultiModalMoEForCausalLM
        TransformersMultiModalMoEForSequenceClassification WhisperForConditionalGeneration
    """,
    "0.5.11": """
        DFlashDraftModel Gemma4ForCausalLM Gemma4ForConditionalGeneration HYV3ForCausalLM
        HYV3ForCausalLMNextN MiMoV2ForCausalLM MistralForCausalLMEagle
        MossVLForConditionalGeneration NemotronH_Nano_Omni_Reasoning_V3
        Qwen3ASRForConditionalGeneration VoxtralForConditionalGeneration
    """,
    "0.5.12": """
        DeepseekV4ForCausalLM DeepseekV4ForCausalLMNextN Eagle3DeepseekV2ForCausalLM
        Gemma4AssistantForCausalLM InternS2PreviewForConditionalGeneration LagunaForCausalLM
        MiniCPMV4_6ForConditionalGeneration
    """,
    "0.5.13": """
        Cohere2MoeForCausalLM Cohere2VisionForConditionalGeneration
        Gemma4UnifiedAssistantForCausalLM Gemma4UnifiedForConditionalGeneration
        Glm4MoeLiteForCausalLMNextN NemotronHPuzzleForCausalLM Qwen3MoeForCausalLMMTP
        Step3p7ForConditionalGeneration
    """,
    "0.5.14": """
        MiMoV2ASRForCausalLM ZayaForCausalLM
    """,
    "0.5.15": """
        DFlashLagunaForCausalLM HrmTextForCausalLM LocateAnythingForConditionalGeneration
        UnlimitedOCRForCausalLM
    """,
    "0.5.16": """
        DeepseekV4ForCausalLMDSpark GlmImageForConditionalGeneration GlmMoeDsaForCausalLMNextN
        InklingForConditionalGeneration InklingForConditionalGenerationMTP MellumForCausalLM
        MiniMaxM3SparseForCausalLM MiniMaxM3SparseForConditionalGeneration Qwen3DSparkModel
    """,
    "0.5.17": """
        DSparkDraftModel EmbeddingGemmaModel KimiK3ForConditionalGeneration
        Lfm2BidirectionalModel Qwen3Model Qwen3_5ForCausalLM Qwen3_5MoeForCausalLM
    """,
    "0.5.18": """
        InternS2MobiusForConditionalGeneration MuseGlimmerAssistantModel MuseGlimmerForCausalLM
        MuseGlimmerForConditionalGeneration
    """,
    "0.5.19": """
        BailingMoeV3ForCausalLM DFlash2DraftModel Dots3NoteForCausalLM Dots3NoteForCausalLMNextN
        GraniteMoeSWAForCausalLM GraniteMoeSharedForCausalLM GraniteSWAForCausalLM
        KimiK3LinearForCausalLM Lfm2DSparkDraftModel LingDSparkModel MiniCPMSALAForCausalLM
        Spark2_5ForCausalLM
    """,
    "0.5.20": """
        Cosmos3EdgeForConditionalGeneration Cosmos3ForConditionalGeneration
        FalconMambaForCausalLM Glm5NextForConditionalGeneration
        Glm5NextForConditionalGenerationNextN HYV4ForCausalLM HYV4ForCausalLMNextN
        K2HorizonForCausalLM Mamba2ForCausalLM MambaForCausalLM NanbeigeForCausalLM
        NanbeigeForSequenceClassification NemotronH_Omni_Reasoning_V3 Qwen4ExpForCausalLMMTP
        Qwen4ExpForConditionalGeneration XllmForCausalLM
    """,
    "0.5.21": """
        BailingMM2NativeForConditionalGeneration BailingMMNativeForConditionalGeneration
        BailingMoeV3VLForConditionalGeneration DiffusionGemmaForBlockDiffusion
        GigaChat35ForCausalLM GigaChat35ForCausalLMNextN IQuestQ1ForCausalLM IQuestQ1MTP
        LiLiCorrDraftModel
    """,
    "0.5.22": """
        EmbeddingGemma2Model ExaoneMoeForCausalLM
    """,
    "0.5.23": """
        BeamForCausalLM DFlash2BeamDraftModel DSparkMiniMaxDraftModel
        MiniCPMV4_7ForConditionalGeneration MiniMaxDFlash2DraftModel
        MuseSparkForConditionalGeneration
    """,
}

NEWEST = "0.5.23"
FIRST = {name: version for version, names in _FIRST.items() for name in names.split()}


@cache
def parsed(version: str) -> tuple[int, ...]:
    """A version as something to compare, made once."""
    return version_key(version)
