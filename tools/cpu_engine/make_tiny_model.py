"""Writes a tiny random model with a tokenizer made on the spot: make_tiny_model.py OUT [KIND]

llama  1.4 M parameters, grouped-query attention (4 heads, 2 KV heads of 64): the engine serves it.
mla    DeepSeek-V3's geometry in small (latent 512 + rope 64, as large models have it): 0.5.9 logs
       its KV cache on a CPU and then fails in the warm-up, for want of an MLA kernel.

Same bytes at every run with the same packages (seed 0). Needs transformers, tokenizers and torch.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

SPECIAL = ["<|bos|>", "<|eos|>", "<|pad|>", "<|user|>", "<|assistant|>", "<|system|>"]
TEXT = ["the quick brown fox jumps over the lazy dog", "a tiny tokenizer for a tiny model"] * 50
CHAT = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
COMMON = {
    "vocab_size": 512,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 2048,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}


def tokenizer() -> PreTrainedTokenizerFast:
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(
        TEXT,
        trainers.BpeTrainer(vocab_size=512, special_tokens=SPECIAL, initial_alphabet=alphabet),
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token=SPECIAL[0], eos_token=SPECIAL[1], pad_token=SPECIAL[2]
    )
    fast.chat_template = CHAT
    return fast


def model(kind: str) -> torch.nn.Module:
    torch.manual_seed(0)
    if kind == "llama":
        return LlamaForCausalLM(LlamaConfig(**COMMON, num_key_value_heads=2, head_dim=64))
    config = DeepseekV3Config(
        **COMMON,
        num_key_value_heads=4,
        moe_intermediate_size=128,
        n_shared_experts=1,
        n_routed_experts=8,
        routed_scaling_factor=1.0,
        kv_lora_rank=512,
        q_lora_rank=128,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
        n_group=1,
        topk_group=1,
        num_experts_per_tok=2,
        first_k_dense_replace=1,
    )
    return DeepseekV3ForCausalLM(config)


def main() -> None:
    out, kind = Path(sys.argv[1]), (sys.argv[2:] or ["llama"])[0]
    if kind not in ("llama", "mla"):
        raise SystemExit(f"kind {kind!r}: llama or mla")
    out.mkdir(parents=True, exist_ok=True)
    tokenizer().save_pretrained(out)
    model(kind).to(torch.bfloat16).save_pretrained(out, safe_serialization=True)


if __name__ == "__main__":
    main()
