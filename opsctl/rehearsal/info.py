"""What the engine tells about itself: models, model_info, server_info, load. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.rehearsal.answers import Serving


def models(serving: Serving, created: int) -> dict[str, Any]:
    return {
        "object": "list",
        "data": [
            {
                "id": serving.served_name,
                "object": "model",
                "created": created,
                "owned_by": "sglang",
                "root": serving.served_name,
                "parent": None,
                "max_model_len": serving.model["context_len"],
            }
        ],
    }


def model_info(serving: Serving) -> dict[str, Any]:
    path = serving.flags.get("model-path")
    told: dict[str, Any] = {
        "model_path": path,
        "tokenizer_path": serving.flags.get("tokenizer-path") or path,
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "has_image_understanding": bool(serving.model["vision"]),
        "has_audio_understanding": False,
        "model_type": serving.model["model_type"],
        "architectures": [serving.model["type"]],
    }
    if serving.new:
        told |= {
            "served_model_name": serving.served_name,
            "load_format": serving.flags.get("load-format") or "auto",
            "reasoning_parser": serving.flags.get("reasoning-parser"),
            "tool_call_parser": serving.flags.get("tool-call-parser"),
            "disaggregation_mode": "null",
        }
    return told


def server_args(serving: Serving) -> dict[str, Any]:
    """The arguments as the engine holds them, secrets and all: it prints and serves them so."""
    told = {name.replace("-", "_"): value for name, value in serving.flags.items()}
    path = told.get("model_path")
    told["tokenizer_path"] = told.get("tokenizer_path") or path
    told["served_model_name"] = serving.served_name
    return told


def printed(args: Mapping[str, Any], new: bool) -> str:
    """The `server_args=` line of the start."""
    if new:
        return f"server_args={dict(args)!r}"
    return "server_args=ServerArgs(" + ", ".join(f"{k}={v!r}" for k, v in args.items()) + ")"


def server_info(serving: Serving, gpu: Mapping[str, Any]) -> dict[str, Any]:
    tokens = gpu["kv_tokens"]
    return {
        **server_args(serving),
        "status": "ready",
        "max_total_num_tokens": tokens,
        "max_req_input_len": serving.model["context_len"] - 6,
        "internal_states": [
            {
                "memory_usage": {
                    "weight": float(gpu["weights"]),
                    "kvcache": float(gpu["kv_size"]),
                    "token_capacity": tokens,
                    "graph": float(gpu["graph_size"]),
                },
                "effective_max_running_requests_per_dp": serving.model["max_running_requests"],
            }
        ],
        "version": serving.version,
        "rehearsal": True,
    }


def old_load(running: int, now: float) -> list[dict[str, Any]]:
    return [
        {
            "rid": None,
            "http_worker_ipc": None,
            "dp_rank": None,
            "num_reqs": running,
            "num_waiting_reqs": 0,
            "num_tokens": 0,
            "ts_tic": now,
        }
    ]


def new_loads(serving: Serving, gpu: Mapping[str, Any], running: int, now: float) -> dict[str, Any]:
    return {
        "version": serving.version,
        "accelerator": None,
        "num_accelerators": int(serving.flags.get("tp-size") or 1),
        "loads": [
            {
                "timestamp": now,
                "dp_rank": 0,
                "num_running_reqs": running,
                "num_waiting_reqs": 0,
                "num_used_tokens": 0,
                "num_total_tokens": 0,
                "max_total_num_tokens": gpu["kv_tokens"],
                "max_running_requests": serving.model["max_running_requests"],
                "token_usage": 0.0,
                "gen_throughput": 0.0,
                "cache_hit_rate": 0.0,
                "memory": {
                    "weight_gb": float(gpu["weights"]),
                    "kv_cache_gb": float(gpu["kv_size"]),
                    "graph_gb": float(gpu["graph_size"]),
                    "token_capacity": gpu["kv_tokens"],
                },
                "queues": {"waiting": 0, "grammar": 0, "paused": 0, "retracted": 0},
            }
        ],
    }


def auth(path: str, key: str | None, admin_key: str | None, header: str) -> bool:
    """Whether a request may pass: probes and metrics always, the rest with the key that is set."""
    if path.startswith(("/health", "/ready", "/metrics")):
        return True
    wanted = (admin_key or key) if path == "/flush_cache" else key
    if not wanted:
        return True
    kind, _, token = header.partition(" ")
    return kind.lower() == "bearer" and token == wanted
