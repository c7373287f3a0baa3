"""The reading and the plain verbs of the ground floor on a real host."""

from __future__ import annotations

import importlib.util
import json
import select
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_spec = importlib.util.spec_from_file_location(
    "guarding", Path(__file__).resolve().parent / "guarding.py"
)
assert _spec is not None and _spec.loader is not None
guarding = importlib.util.module_from_spec(_spec)
sys.modules["guarding"] = guarding
_spec.loader.exec_module(guarding)

pytestmark = pytest.mark.lab

GOOD = guarding.release(word="verbs")


@pytest.fixture(scope="module")
def host(lab_host: Any) -> Any:
    assert guarding.call(lab_host, "collect")["services"] == []  # nothing of ours is there
    guarding.prepare(lab_host)
    guarding.call(lab_host, "stage", stdin=GOOD)
    guarding.begin(lab_host, "r1", "swap", GOOD["digest"])
    assert guarding.result(lab_host, "r1")["outcome"] == "confirmed"
    return lab_host


def lines(host: Any, *verb: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        guarding.ssh(host, guarding.command(*verb)),
        input=guarding.bundle.build(),
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_collect_tells_of_the_running_release(host: Any) -> None:
    seen = guarding.state(host)
    assert seen["manifest"]["digest"] == GOOD["digest"]
    assert {c["id"]: c["status"] for c in seen["checks"]} == {
        "unit": "pass",
        "drift": "pass",
        "ranks": "pass",
        "memory": "pass",
    }
    assert [p["comm"] for p in seen["processes"]] == ["python3"]
    assert seen["since"] > 1e9 and (seen["run"]["run"], seen["run"]["phase"]) == ("r1", "confirm")
    ended = {key: seen["run"][key] for key in ("active", "op", "owner", "outcome")}
    assert ended == {"active": False, "op": "swap", "owner": "me", "outcome": "confirmed"}
    assert (seen["lock"]["owner"], seen["lock"]["state"]) == ("me", "over")


def test_a_hand_edit_is_seen(host: Any) -> None:
    unit = "/etc/systemd/system/sglang-kimi.service"
    host.sh(f"cp -p {unit} /tmp/unit; echo '# mine' >> {unit}")
    assert guarding.state(host)["release"]["edited"] is True
    drift = [c for c in guarding.state(host)["checks"] if c["id"] == "drift"]
    assert drift[0]["status"] == "fail" and "edited by hand" in drift[0]["detail"]
    host.sh(f"cp -p /tmp/unit {unit}")
    assert guarding.state(host)["release"]["edited"] is False


def test_verify_asks_all_gates_and_closes_with_the_report(host: Any) -> None:
    answer = guarding.call(host, "verify", "kimi")
    assert [c["id"] for c in answer["checks"]] == [
        "unit", "drift", "ranks", "health", "generation", "reasoning", "tools", "memory",
    ]  # fmt: skip
    assert {c["status"] for c in answer["checks"]} == {"pass"}
    assert answer["report"][0].startswith("GPU KV cache: 4,096 tokens × 2 GPUs")


def shard(tensors: dict[str, Any], size: int) -> bytes:
    header = json.dumps(tensors).encode()
    return struct.pack("<Q", len(header)) + header + bytes(size)


def test_facts_tell_files_memory_and_starts(host: Any) -> None:
    host.put("/opt/model/config.json", b'{"model_type": "llama"}')
    one = {"dtype": "BF16", "shape": [4, 8], "data_offsets": [0, 64]}
    host.put("/opt/model/model.safetensors", shard({"model.layers.1.x.weight": one}, 64))
    host.sh("mkdir -p /opt/draft /var/cache/opsctl/kimi/.cache; echo k > /opt/draft/x.gguf")
    host.sh("echo kernel > /var/cache/opsctl/kimi/.cache/k")
    asked = ("facts", "--model", "/opt/model", "--draft", "/opt/draft", "--service", "kimi")
    answer = guarding.call(host, *asked)
    model = answer["model"]
    assert model["texts"] == {"config.json": '{"model_type": "llama"}'}
    assert model["tensors"]["by"] == [
        {
            "name": "model.layers.#.x.weight",
            "dtype": "BF16",
            "shape": [4, 8],
            "layers": [1, 1],
            "count": 1,
            "bytes": 64,
        }
    ]
    assert guarding.call(host, *asked)["model"]["tensors"] == model["tensors"]  # kept
    assert (model["weights_bytes"], model["cached"]) == (model["files"][1]["bytes"], 1.0)
    assert model["storage"]["kind"] in ("nvme", "ssd", "rotational", "virtual", "unknown")
    assert answer["draft"]["tensors"] is None
    assert answer["draft"]["tensors_reason"] == ".gguf files tell no shapes"
    assert answer["nodes"][0]["total"] > answer["nodes"][0]["available"] > 0
    assert answer["kernels"]["files"] == 1 and answer["kernels"]["engine_version"] == "0.5.9"
    assert answer["others"] == [] and answer["gpu_strangers"] == []
    assert answer["unit"]["kill_mode"] == "mixed" and answer["unit"]["nofile"] > 0
    assert (answer["driver"], answer["container"]) == ("", True)  # a lab host is a container
    assert answer["starts"][0]["gpu_key"] == "k"
    assert answer["starts"][0]["flags"] == {"tp-size": 2}
    assert answer["starts"][0]["seconds"]["total"] > 0
    assert answer["starts"][0]["memory"]["begin"] > 1 << 30
    assert answer["starts"][0]["ranks"]["TP1"]["kv_tokens"] == 4096
    assert answer["service_memory"]["bytes"] > 1 << 20
    seen = guarding.state(host)
    assert set(answer["standing"]) == set(seen)
    # Memory moves between two looks, and facts do not ask the engine for its health.
    for key in set(seen) - {"processes", "checks", "since", "health"}:
        assert answer["standing"][key] == seen[key], key
    assert answer["running"] == seen["start"]


def test_logs_are_of_this_start_and_harmless(host: Any) -> None:
    found = lines(host, "logs", "kimi")
    assert any("fired up" in line["text"] for line in found)
    assert len(lines(host, "logs", "kimi", "--lines", "3")) == 3
    host.sh("printf 'evil \\033]0;x\\007 \\033[2J end\\n' | systemd-cat -t evil; journalctl --sync")
    # A journald that reads what came only when its sender is dead does not know of which start.
    host.put(
        "/opt/evil.sh", b"printf 'evil \\033]0;title\\007\\033[2J end\\n%s\\n' \"$1\"; exit 1\n"
    )
    host.put(
        "/etc/systemd/system/sglang-evil.service",
        b"[Service]\nExecStart=sh /opt/evil.sh 'ImportError: no evil'\n",
    )
    host.sh(
        "systemctl daemon-reload; systemctl kill --signal=STOP systemd-journald; "
        "systemctl start --no-block sglang-evil; "
        "timeout 30 sh -c 'until systemctl is-failed -q sglang-evil; do sleep 0.2; done'; "
        "systemctl kill --signal=CONT systemd-journald; journalctl --sync"
    )
    for more in ((), ("--lines", "9"), ("--follow",), ("--follow", "--lines", "9")):
        read = followed if "--follow" in more else lines
        texts = [line["text"] for line in read(host, "logs", "evil", *more)]
        assert any(t.split() == ["evil", "end"] for t in texts), (more, texts)
        assert not any("\x1b" in t for t in texts)
    assert "ImportError: no evil" in guarding.state(host, "evil")["start"]["errors"]
    host.sh("rm /etc/systemd/system/sglang-evil.service; systemctl daemon-reload")
    host.sh("systemctl reset-failed sglang-evil", check=False)


def followed(host: Any, *verb: str) -> list[dict[str, Any]]:
    """What a following verb tells of the past: it is listened to until it has been silent."""
    process = subprocess.Popen(
        guarding.ssh(host, guarding.command(*verb)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(guarding.bundle.build())
    process.stdin.flush()
    found = []
    while select.select([process.stdout.fileno()], [], [], 5.0)[0]:
        if not (line := process.stdout.readline()):
            break
        found.append(json.loads(line))
    process.stdin.close()
    process.wait(timeout=30)
    return found


def test_follow_tells_all_events_from_a_number_on(host: Any) -> None:
    events = lines_of_follow(host, "1")
    assert [e["n"] for e in events] == list(range(1, len(events) + 1))
    assert events[-1]["event"] == "result"
    assert [e["phase"] for e in events if e["event"] == "phase"] == [
        "stop", "commit", "start", "gates", "soak", "confirm",
    ]  # fmt: skip
    assert lines_of_follow(host, str(len(events))) == events[-1:]


def lines_of_follow(host: Any, first: str) -> list[dict[str, Any]]:
    """stdin stays open, as the controller keeps it."""
    process = subprocess.Popen(
        guarding.ssh(host, guarding.command("follow", "kimi", "r1", "--from", first)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(guarding.bundle.build())
    process.stdin.flush()
    found = [json.loads(line) for line in process.stdout]
    process.stdin.close()
    process.wait(timeout=30)
    return found


def test_stop_start_and_remove(host: Any) -> None:
    assert guarding.call(host, "stop", "kimi")["state"] == "inactive"
    assert guarding.call(host, "verify", "kimi")["checks"][0]["status"] == "fail"
    guarding.begin(host, "r2", "start")
    assert guarding.result(host, "r2")["outcome"] == "confirmed"
    guarding.serving(host, GOOD["digest"])
    assert guarding.call(host, "remove", "kimi")["removed"] is True
    assert host.sh("ls /etc/systemd/system | grep -c sglang", check=False).stdout.strip() == "0"
    history = host.sh("cat /var/lib/opsctl/kimi/history.jsonl").stdout.splitlines()
    done = [json.loads(line) for line in history]
    assert [e["op"] for e in done] == ["swap", "stop", "start", "remove"]
    assert {e["owner"] for e in done} == {"me"}
    assert guarding.call(host, "history", "kimi", "--lines", "2")["entries"] == done[-2:]
