"""Which settings shape GPU memory. A start with the same gpu_key calibrates this one.

The rule is: everything counts, except what is listed here with its reason. A setting that is
listed by mistake would carry a wrong figure into a forecast; one that is missing only costs a
calibration. So only what reaches no tensor on the GPU is listed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

# flag (canonical long name) → why it does not shape GPU memory
HOST_TIER = "sizes or fills the tier in host memory, after the GPU's pools stand"
# hicache-io-backend and hicache-mem-layout are missing on purpose: the engine picks another
# attention backend by them (0.5.9, ServerArgs._handle_hicache), and with it other buffers.
# enable-hierarchical-cache is missing for the same reason.
PARSER = "works on text, in the HTTP process"
LOGGING = "only says what is logged or measured"
SERVING = "only says where and to whom the HTTP process answers"

NOT_ON_GPU: dict[str, str] = {
    "hicache-ratio": HOST_TIER,
    "hicache-size": HOST_TIER,
    "hicache-write-policy": HOST_TIER,
    "hicache-storage-backend": HOST_TIER,
    "hicache-storage-prefetch-policy": HOST_TIER,
    "hicache-storage-backend-extra-config": HOST_TIER,
    "hicache-host-memory-mode": HOST_TIER,
    "hicache-host-memory-fraction": HOST_TIER,
    "disable-hicache-numa-detect": HOST_TIER,
    "reasoning-parser": PARSER,
    "tool-call-parser": PARSER,
    "tool-server": PARSER,
    "chat-template": PARSER,
    "completion-template": PARSER,
    "hf-chat-template-name": PARSER,
    "sampling-defaults": PARSER,
    "log-level": LOGGING,
    "log-level-http": LOGGING,
    "log-requests": LOGGING,
    "log-requests-level": LOGGING,
    "log-requests-format": LOGGING,
    "log-requests-target": LOGGING,
    "decode-log-interval": LOGGING,
    "show-time-cost": LOGGING,
    "crash-dump-folder": LOGGING,
    "enable-metrics": LOGGING,
    "enable-metrics-for-all-schedulers": LOGGING,
    "tokenizer-metrics-custom-labels-header": LOGGING,
    "tokenizer-metrics-allowed-custom-labels": LOGGING,
    "extra-metric-labels": LOGGING,
    "bucket-time-to-first-token": LOGGING,
    "bucket-inter-token-latency": LOGGING,
    "bucket-e2e-request-latency": LOGGING,
    "collect-tokens-histogram": LOGGING,
    "prompt-tokens-buckets": LOGGING,
    "generation-tokens-buckets": LOGGING,
    "gc-warning-threshold-secs": LOGGING,
    "enable-request-time-stats-logging": LOGGING,
    "kv-events-config": LOGGING,
    "enable-trace": LOGGING,
    "uvicorn-access-log-exclude-prefixes": LOGGING,
    "otlp-traces-endpoint": LOGGING,
    "export-metrics-to-file": LOGGING,
    "export-metrics-to-file-dir": LOGGING,
    "served-model-name": SERVING,
    "host": SERVING,
    "port": SERVING,
    "fastapi-root-path": SERVING,
    "skip-server-warmup": SERVING,
    "warmups": SERVING,
    "weight-version": SERVING,
    "file-storage-path": SERVING,
    "enable-cache-report": SERVING,
    "stream-interval": SERVING,
    "incremental-streaming-output": SERVING,
    "watchdog-timeout": SERVING,
    "soft-watchdog-timeout": SERVING,
    "dist-timeout": SERVING,
    "ssl-keyfile": SERVING,
    "ssl-certfile": SERVING,
    "ssl-ca-certs": SERVING,
    "ssl-keyfile-password": SERVING,
    "enable-ssl-refresh": SERVING,
}

# The same for environment variables; all others count.
ENV_NOT_ON_GPU: dict[str, str] = {
    "SGLANG_LOG_MS": LOGGING,
    "SGLANG_LOGGING_CONFIG_PATH": LOGGING,
    "HF_HUB_OFFLINE": SERVING,
    "TRANSFORMERS_OFFLINE": SERVING,
    "TZ": LOGGING,
}


def gpu_key(
    engine_version: str,
    model_path: str,
    gpus: int | None,
    flags: Mapping[str, Any],
    env: Mapping[str, str],
) -> str:
    """16 hex digits over all that shapes GPU memory. `flags` are typed, by canonical long name;
    `gpus` is the count of GPUs, None for all of the host's."""
    shape = {
        "engine": engine_version,
        "model": model_path,
        "gpus": gpus,
        "flags": {k: v for k, v in flags.items() if k not in NOT_ON_GPU},
        "env": {k: v for k, v in env.items() if k not in ENV_NOT_ON_GPU},
    }
    return hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:16]
