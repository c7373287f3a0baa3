"""The real engine's own reading of its arguments, on hardware that is only said to be there.

Run with the Python of a CPU environment. One JSON document a line on stdin: {"config": the model's
config.json, "args": arguments by their Python names, "mib": memory of a card, "capability": [major,
minor], "vendor": "nvidia" or "amd"}; one a line comes out: what ServerArgs resolves to, or "error".
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from judge_card import pretend, register, server_args

TOLD = (
    "mem_fraction_static",
    "page_size",
    "attention_backend",
    "prefill_attention_backend",
    "decode_attention_backend",
    "kv_cache_dtype",
    "chunked_prefill_size",
    "max_running_requests",
    "disable_radix_cache",
)


def resolve(asked: dict[str, Any]) -> dict[str, Any]:
    folder = tempfile.mkdtemp()
    try:
        Path(folder, "config.json").write_text(json.dumps(asked["config"]))
        Path(folder, "tokenizer_config.json").write_text("{}")
        register(asked["config"]["model_type"])
        pretend(asked["mib"], tuple(asked["capability"]), asked["vendor"])
        made = server_args.ServerArgs(model_path=folder, device="cuda", **asked["args"])
        view = made
        if hasattr(made, "resolve_once"):
            made.resolve_once()
            from sglang.srt.arg_groups.overrides import resolved_view

            view = resolved_view(made)
        return {name: getattr(view, name) for name in TOLD}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def answer(line: str) -> dict[str, Any]:
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return resolve(json.loads(line))
    except Exception as problem:
        return {"error": f"{type(problem).__name__}: {problem}"[:300]}


for line in sys.stdin.readlines():
    child = os.fork()  # the engine keeps what it resolved: every case gets a process of its own
    if child == 0:
        print(json.dumps(answer(line), default=str), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
