"""Flags that hold JSON: what the engine would take, and what it would end of, or lose, late."""

from __future__ import annotations

from typing import Any

import pytest

from opsctl.engine import catalogue, rules, versions

HALF = {"num_sms": 20}
STORE = "hicache-storage-backend-extra-config"
DEVICES = "disaggregation-ib-device"
RIGHT: list[tuple[str, str, Any]] = [
    ("0.5.9", "json-model-override-args", '{"rope_theta": 1}'),
    ("0.5.9", "json-model-override-args", {"rope_theta": 1}),
    ("0.5.2", "preferred-sampling-params", {"temperature": 0.6}),
    ("0.5.2", "preferred-sampling-params", '{"temperature": 0.6}'),
    ("0.5.9", "model-loader-extra-config", '{"enable_multithread_load": true}'),
    ("0.5.8", STORE, '{"prefetch_threshold": 1}'),
    ("0.5.9", STORE, "@/etc/store.toml"),
    ("0.5.23", STORE, "@/etc/store.YAML"),
    ("0.5.9", "deepep-config", "/etc/deepep"),
    ("0.5.9", "deepep-config", {"normal_dispatch": HALF, "normal_combine": HALF}),
    ("0.5.2", DEVICES, "mlx5_0, mlx5_1"),
    ("0.5.9", DEVICES, {"0": "mlx5_0"}),
    ("0.5.9", DEVICES, "/etc/devices.json"),
    ("0.5.23", "hisparse-config", {"top_k": 4096}),
    ("0.5.9", "limit-mm-data-per-request", {"image": 4}),
    ("0.5.16", "modelexpress-config", '{"url": "h:1"}'),
]
WRONG: list[tuple[str, str, Any, str]] = [
    ("0.5.9", "json-model-override-args", "rope_theta=1", "is not JSON"),
    ("0.5.9", "json-model-override-args", "", "is not JSON"),
    ("0.5.9", "json-model-override-args", "[1]", "must be a mapping"),
    ("0.5.9", "json-model-override-args", "null", "must be a mapping"),
    ("0.5.9", "json-model-override-args", [1], "must be a mapping"),
    ("0.5.9", "json-model-override-args", "{'a': 1}", "JSON takes double quotes alone"),
    ("0.5.9", "model-loader-extra-config", "multithread", "is not JSON"),
    ("0.5.9", "kv-events-config", "zmq", "is not JSON"),
    ("0.5.2", "preferred-sampling-params", "temperature=1", "is not JSON"),
    ("0.5.9", "preferred-sampling-params", [1], "must be a mapping"),
    ("0.5.9", "mm-process-config", {"image": 1}, "image must be a mapping"),
    ("0.5.9", "limit-mm-data-per-request", {"images": 4}, "has the kind 'images'"),
    ("0.5.9", "extra-metric-labels", [], "must be a mapping"),
    ("0.5.8.post1", STORE, "@/etc/store.toml", "is not JSON"),
    ("0.5.9", STORE, "@/etc/store.conf", "allowed: a mapping (JSON), or @FILE of .json"),
    ("0.5.9", STORE, "/etc/store.json", "is not JSON"),
    ("0.5.9", STORE, {"prefetch_threshold": 0.5}, "prefetch_threshold must be a whole number"),
    ("0.5.9", STORE, "", "leave the flag out"),
    ("0.5.9", "deepep-config", {"normal_dispatch": HALF}, "lacks normal_dispatch or"),
    ("0.5.9", "deepep-config", '{"normal_dispatch": ', "is not JSON"),
    ("0.5.5", DEVICES, {"0": "mlx5_0"}, "takes no mapping in this release"),
    ("0.5.9", DEVICES, {"gpu0": "mlx5_0"}, "is no mapping of GPUs"),
    ("0.5.9", DEVICES, {"0": ["mlx5_0"]}, "is no mapping of GPUs"),
    ("0.5.9", DEVICES, '{"0": mlx5_0}', "is not JSON"),
    ("0.5.23", "hisparse-config", {"top_k": 8, "device_buffer_size": 4}, "no smaller than top_k"),
    ("0.5.23", "hisparse-config", {"swap_in_block_size": 2048}, "from 1 to 1024"),
    ("0.5.23", "unified-cache-external-linker-config", "[]", "must be a mapping"),
]  # fmt: skip


@pytest.mark.parametrize(("version", "name", "value"), RIGHT)
def test_what_the_engine_takes(version: str, name: str, value: Any) -> None:
    typed, problems = catalogue(version).check({name: value})
    assert problems == [] and [*typed] == [name]


@pytest.mark.parametrize(("version", "name", "value", "said"), WRONG)
def test_what_it_does_not_take_is_refused_at_once(
    version: str, name: str, value: Any, said: str
) -> None:
    typed, problems = catalogue(version).check({name: value}, "kimi")
    assert typed == {} and len(problems) == 1
    text = str(problems[0])
    assert said in text
    assert text.startswith(f"service kimi, key flags.{name}: ")


def test_every_flag_of_a_mapping_refuses_other_text() -> None:
    """In every release: whatever is read as JSON there is judged as JSON."""
    judged = set()
    for version in versions():
        known = catalogue(version)
        for name, flag in known.flags.items():
            if flag.kind not in ("json", "json_text") or name == DEVICES:
                continue
            for wrong in ("[1]", "{a}"):
                assert known.check({name: wrong})[1], (version, name, wrong)
            judged.add(name)
    assert len(judged) == 15


@pytest.mark.parametrize(
    ("version", "mode", "value", "refused"),
    [
        ("0.5.9", "prefill", {"0": "mlx5_0"}, True),
        ("0.5.12.post1", "decode", "/etc/devices.json", True),
        ("0.5.9", "prefill", "mlx5_0,mlx5_1", False),
        ("0.5.9", "null", {"0": "mlx5_0"}, False),
        ("0.5.13", "prefill", {"0": "mlx5_0"}, False),
        ("0.5.8", "prefill", {"0": "mlx5_0"}, False),
    ],
)
def test_mooncakes_check_once_took_names_alone(
    version: str, mode: str, value: Any, refused: bool
) -> None:
    flags = {"disaggregation-mode": mode, DEVICES: value}
    typed, problems = catalogue(version).check(flags)
    assert not problems
    found = [f.rule for f in rules.judge(rules.Facts(version, typed)).refusals]
    assert ("devices-per-gpu" in found) == refused
