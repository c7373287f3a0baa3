"""The engine's request to itself before it says that it is ready."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any

from opsctl.rehearsal.state import State


def run(host: str, port: int, state: State, wait: float) -> None:
    """Ask for the model, then for an answer: about a picture if the model sees, else plain text."""
    address = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host
    headers = {"Content-Type": "application/json"}
    if state.serving.flags.get("api-key"):
        headers["Authorization"] = f"Bearer {state.serving.flags['api-key']}"
    link = http.client.HTTPConnection(address, port, timeout=60)
    link.request("GET", "/model_info", headers=headers)
    link.getresponse().read()
    time.sleep(wait)
    path, body = _request(state)
    link.request("POST", path, json.dumps(body), headers)
    link.getresponse().read()
    link.close()


def _request(state: State) -> tuple[str, dict[str, Any]]:
    if state.serving.model["vision"]:
        content = [
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}},
            {"type": "text", "text": "Describe the image."},
        ]
        return "/v1/chat/completions", {
            "model": state.serving.served_name,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": 8,
        }
    return "/generate", {
        "text": "The capital city of France is",
        "sampling_params": {"temperature": 0, "max_new_tokens": 8},
    }
