"""The stand-in's lines, against lines of real engines with the same figures."""

from __future__ import annotations

import pytest

from opsctl.rehearsal.wording import Words, host_memory_refused

OLD, NEW = Words("0.5.9"), Words("0.5.23")
LLAMA = ("LlamaForCausalLM", "torch.bfloat16")
SIZES = "K size: 0.00 GB, V size: 0.00 GB"


@pytest.mark.parametrize(
    ("real", "ours"),
    [
        ("Init torch distributed begin.", OLD.dist_begin()),
        (
            "Init torch distributed ends. elapsed=0.07 s, mem usage=0.00 GB",
            OLD.dist_end(0.07, "0.00"),
        ),
        ("Load weight begin. avail mem=21.74 GB", OLD.weights_begin("21.74")),
        (
            "Loading safetensors checkpoint shards: 100% Completed | 1/1 "
            "[00:00<00:00, 66.33it/s]\n",
            OLD.weights_bar(1, 1, 100, 1 / 66.33),
        ),
        (
            "Load weight end. elapsed=0.05 s, type=LlamaForCausalLM, dtype=torch.bfloat16, "
            "avail mem=21.74 GB, mem usage=0.00 GB.",
            OLD.weights_end(0.05, *LLAMA, "21.74", "0.00"),
        ),
        ("Using KV cache dtype: torch.bfloat16", OLD.kv_dtype("torch.bfloat16")),
        (
            "KV Cache is allocated. #tokens: 4096, K size: 0.00 GB, V size: 0.00 GB",
            OLD.kv("torch.bfloat16", 4096, SIZES),
        ),
        ("Memory pool end. avail mem=21.70 GB", OLD.pool_end("21.70")),
        (
            "Allocating 44.77 GB host memory for hierarchical KV cache.",
            OLD.host_pool("44.77", 0),
        ),
        (
            "ValueError: Not enough host memory available. Requesting 64.00 GB but only have "
            "11.40 GB free. Please reduce the size of the hierarchical cache.\n",
            host_memory_refused("64.00", "11.40"),
        ),
        ("Init parallel begin.", NEW.dist_begin()),
        ("Init parallel ends. elapsed=0.07 s", NEW.dist_end(0.07, "0.00")),
        (
            "\rMulti-thread loading shards: 100% Completed | 1/1 [00:00<00:00, 13.52it/s]\n",
            NEW.weights_bar(1, 1, 100, 1 / 13.52),
        ),
        (
            "Load weight end. elapsed=0.14 s, type=LlamaForCausalLM, avail mem=20.30 GB, "
            "mem usage=0.00 GB.",
            NEW.weights_end(0.14, *LLAMA, "20.30", "0.00"),
        ),
        (
            "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 4096, K size: 0.00 GB, "
            "V size: 0.00 GB",
            NEW.kv("torch.bfloat16", 4096, SIZES),
        ),
    ],
)
def test_a_line_is_the_real_engines(real: str, ours: str) -> None:
    assert ours == real


@pytest.mark.parametrize("words", [OLD, NEW])
def test_a_crash_begins_as_the_engine_logs_an_exception(words: Words) -> None:
    text = words.crash("ValueError: x\n")
    assert text.startswith(
        "Scheduler hit an exception: Traceback (most recent call last):\n  File "
    )
    assert text.endswith("ValueError: x\n")
