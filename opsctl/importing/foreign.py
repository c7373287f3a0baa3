"""Flags of SGLang's other programs that people paste into a server's command line."""

from __future__ import annotations

# Read in bench_serving.py and multimodal_gen/runtime/server_args.py of 0.5.9 and 0.5.23: names that
# no released server has.
_BENCHMARK = {
    *("dataset-name", "dataset-path", "num-prompts", "random-input-len", "random-output-len"),
    *("random-range-ratio", "max-concurrency", "request-rate", "sharegpt-output-len"),
    *("output-file", "warmup-requests", "flush-cache", "backend"),
}
_DIFFUSION = {
    *("num-gpus", "ulysses-degree", "ring-degree", "sp-degree", "vae-path", "dit-cpu-offload"),
    *("text-encoder-cpu-offload", "image-encoder-cpu-offload", "vae-cpu-offload", "model-variant"),
    *("performance-mode", "lora-nickname", "lora-scale", "lora-merge-mode", "lora-weight-name"),
    *("enable-cfg-parallel", "use-fsdp-inference", "dit-layerwise-offload"),
}
_ROUTER = {"worker-urls", "service-discovery", "cache-threshold", "balance-abs-threshold"}

# What vLLM's flags are called here; "" where the engine has nothing for it.
OF_VLLM = {
    "max-model-len": "context-length",
    "gpu-memory-utilization": "mem-fraction-static",
    "max-num-seqs": "max-running-requests",
    "max-num-batched-tokens": "max-prefill-tokens",
    "enable-auto-tool-choice": "",
    "enforce-eager": "disable-cuda-graph",
    "enable-prefix-caching": "",
    "swap-space": "",
}


def program(name: str) -> str:
    for names, said in (
        (_BENCHMARK, "SGLang's benchmark (bench_serving)"),
        (_DIFFUSION, "SGLang's server for diffusion models, which opsctl does not run"),
        (_ROUTER, "SGLang's router"),
        (OF_VLLM, "vLLM, another engine"),
    ):
        if name in names:
            return said
    return ""
