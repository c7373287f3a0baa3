"""Model folders of the right shape and apparent size: sparse files, real config.json and index.

`python3 -m opsctl.rehearsal.model_files FOLDER` makes the models of all scenarios. Each shard
begins with a little real data, so that reading it moves the disk's counters.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from pathlib import Path
from typing import Any

HEAD = 1 << 16  # real bytes at the start of each shard
SIZE = 547_000_000_000  # bytes on disk, as measured on the reference host
SHARDS = 64

# Geometry of Kimi-K2.5: the language model's figures are nested, as that model has them.
KIMI: dict[str, Any] = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "model_type": "kimi_k25",
    "torch_dtype": "bfloat16",
    "text_config": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "kimi_k2",
        "num_hidden_layers": 61,
        "num_nextn_predict_layers": 0,
        "hidden_size": 7168,
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_routed_experts": 384,
        "num_experts_per_tok": 8,
        "max_position_embeddings": 262144,
        "vocab_size": 163840,
        "torch_dtype": "bfloat16",
    },
    "vision_config": {"vt_num_hidden_layers": 27, "vt_hidden_size": 1152},
}
# A draft of one layer, in the form that EAGLE-3 drafts have; the scenario's figures follow from it.
DRAFT: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "num_hidden_layers": 1,
    "hidden_size": 7168,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "head_dim": 128,
    "max_position_embeddings": 262144,
    "vocab_size": 163840,
    "torch_dtype": "bfloat16",
}
# The tiny model that real engines served on a CPU (scenario small-0.5.23).
TINY: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 2048,
    "vocab_size": 512,
    "torch_dtype": "bfloat16",
}


def make(folder: Path, config: dict[str, Any], size: int, shards: int) -> None:
    """Weight files that sum to `size` bytes, with the index that names them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "generation_config.json").write_text("{}\n")
    (folder / "tokenizer_config.json").write_text('{"rehearsal": true}\n')
    names = [f"model-{n:05d}-of-{shards:06d}.safetensors" for n in range(1, shards + 1)]
    # A header that is one, and describes no tensor: their shapes follow from config.json.
    text = b'{"rehearsal": {}}'
    head = struct.pack("<Q", len(text)) + text + os.urandom(4096) * (HEAD // 4096)
    for number, name in enumerate(names):
        share = size // shards + (size % shards if number == 0 else 0)
        with (folder / name).open("wb") as file:
            file.write(head)
            file.truncate(share)
    index = {
        "metadata": {"total_size": size},
        "weight_map": {f"model.layers.{n}.weight": name for n, name in enumerate(names)},
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def main() -> None:
    folder = Path(sys.argv[1])
    make(folder / "Kimi-K2.5", KIMI, SIZE, SHARDS)
    make(folder / "kimi-k2.5-eagle3", DRAFT, 6_400_000_000, 1)
    make(folder / "tiny-llama", TINY, 3_000_000, 1)


if __name__ == "__main__":
    main()
