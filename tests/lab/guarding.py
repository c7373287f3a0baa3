"""What the tests of the guard share: releases of the small stand-in engine, and calls of verbs."""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any

from opsctl.onhost import bundle

HERE = Path(__file__).resolve().parent
ENGINE = "/opt/fake/engine.py"
PORT = 31000
# Short, so that a whole swap takes some seconds. Production has 2 s, 30 s, 900 s and 5400 s.
QUICK: dict[str, Any] = {"poll": 0.2, "soak": 1.0, "request_timeout": 8.0, "health_in_row": 2}


def release(
    fault: str = "none", *, loading: float = 0.5, word: str = "", service: str = "kimi"
) -> dict[str, Any]:
    """The bundle of a release whose engine has a fault. `word` makes it another release."""
    body = (
        "[Unit]\nDescription=stand-in {word}\nX-OpsctlRelease={digest}\n"
        "After=opsctl-recover.service\nStartLimitIntervalSec=600\nStartLimitBurst=3\n"
        "[Service]\nType=exec\nKillMode=mixed\nTimeoutStopSec=10\nRestart=on-failure\n"
        f"RestartSec=30\nExecStart=/usr/bin/python3 {ENGINE} {PORT} {fault} {loading}\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )
    digest = hashlib.sha256(body.replace("{word}", word).encode()).hexdigest()
    unit = body.format(word=word, digest=digest)
    expect = {
        "kv": {"tokens": 4096, "min": 4096, "max": 4096, "bytes_per_token": 8, "basis": "measured"},
        "host_pools": [],
        "host_total": 0,
        "available_after": None,
    }
    manifest = {
        "schema_version": 1,
        "service": service,
        "unit": f"sglang-{service}.service",
        "digest": digest,
        "user": "root",
        "engine": {"version": "0.5.9", "root": "/opt/fake"},
        "model": {"path": "/opt/fake", "served_name": "stand-in", "draft_path": None},
        "address": {"host": "127.0.0.1", "port": PORT},
        "api_key_file": None,
        "flags": {"tp-size": 2},
        "env": {},
        "gpus": None,
        "gpu_key": "k",
        "ranks": ["TP0", "TP1"],
        "expect": expect,
        "gates": {"generation": True, "reasoning": True, "tools": True, "max_tokens": 64, **QUICK},
        "memory": {"min_available": 1 << 28, "swap": "allow"},
        "timing": {"drain": 5.0, "stall": 15.0, "cap": 120.0},
    }
    files = {
        f"sglang-{service}.service": (0o644, unit.encode()),
        "release.json": (0o644, json.dumps(manifest).encode()),
        "onhost.pyz": (0o644, bundle.build()),
    }
    return {
        "service": service,
        "digest": digest,
        "files": [
            {"path": path, "mode": mode, "b64": base64.b64encode(content).decode()}
            for path, (mode, content) in files.items()
        ],
    }


def command(*verb: str) -> str:
    return shlex.join(bundle.boot_argv(len(bundle.build()), *verb))


def ssh(host: Any, text: str) -> list[str]:
    """The OpenSSH command line of a lab host, for tests that hold on to the process."""
    config = host.sh.__globals__["ssh_config"]()
    return ["ssh", "-F", config, host.name, "--", text]


def call(
    host: Any, *verb: str, stdin: Any = None, check: bool = True, timeout: float = 60
) -> dict[str, Any]:
    """A verb through the memory file, as the controller does it."""
    rest = b"" if stdin is None else json.dumps(stdin).encode()
    done = subprocess.run(
        ssh(host, command(*verb)), input=bundle.build() + rest, capture_output=True, timeout=timeout
    )
    if not done.stdout.strip():
        raise AssertionError(f"{verb}: {done.returncode}: {done.stderr.decode()[-2000:]}")
    value: dict[str, Any] = json.loads(done.stdout)
    if check and done.returncode:
        raise AssertionError(f"{verb}: {value}")
    return value


WEIGHTS = (2).to_bytes(8, "little") + b"{}"  # a safetensors file without a tensor


def prepare(host: Any) -> None:
    """The engine, and beside it a model that it could load."""
    host.put(ENGINE, (HERE / "fake_engine.py").read_bytes())
    host.put("/opt/fake/config.json", b"{}")
    host.put("/opt/fake/model.safetensors", WEIGHTS)


def begin(
    host: Any,
    run: str,
    op: str,
    target: str | None = None,
    *,
    watch: dict[str, float] | None = None,
    service: str = "kimi",
) -> None:
    """Lock and launch. The lock of the run before is given back first."""
    held = call(
        host, "lock", service, "--owner", "me", "--reason", "test", "--run", run, check=False
    )
    if "held" in held:
        call(host, "unlock", service, "--run", held["held"]["run"])
        call(host, "lock", service, "--owner", "me", "--reason", "test", "--run", run)
    document: dict[str, Any] = {"run": run, "op": op, "service": service, "target": target}
    document |= {"owner": "me", "reason": "test", "created": time.time()}
    if watch:
        document["watch"] = watch
    call(host, "launch", service, stdin=document)


def result(host: Any, run: str, patience: float = 60, service: str = "kimi") -> dict[str, Any]:
    """The run's result, waited for."""
    path = f"/var/lib/opsctl/{service}/runs/{run}/result.json"
    text = host.sh(
        f"for i in $(seq {int(patience * 5)}); do "
        f"[ -s {path} ] && [ ! -e /var/lib/opsctl/{service}/pending.json ] && break; sleep 0.2; "
        f"done; cat {path}",
        timeout=patience + 30,
        check=False,
    ).stdout
    if not text:
        journal = host.sh("journalctl -n 60 --no-pager -o short-precise", check=False).stdout
        raise AssertionError(f"run {run} gave no result within {patience} s:\n{journal}")
    value: dict[str, Any] = json.loads(text)
    return value


def state(host: Any, service: str = "kimi") -> dict[str, Any]:
    found: dict[str, Any] = call(host, "collect", "--service", service, "--probe")["services"][0]
    return found


def serving(host: Any, digest: str, patience: float = 30) -> dict[str, Any]:
    """The promise: the confirmed release is `digest`, it stands in place, and it answers."""
    until = time.monotonic() + patience
    while True:
        seen = state(host)
        good = seen["health"] == "ok" and seen["release"]["running"] == digest
        if good or time.monotonic() > until:
            break
        time.sleep(0.5)
    assert seen["release"]["confirmed"] == digest, seen["release"]
    assert seen["release"]["running"] == digest, seen["release"]
    assert (seen["state"], seen["health"]) == ("active", "ok"), seen
    assert seen["release"]["pending"] is None
    return seen
