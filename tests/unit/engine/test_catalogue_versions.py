"""All versions' catalogues against what the engine's own parsers said, and every flag of theirs."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from opsctl.engine import Catalogue, Flag, catalogue, store, versions
from opsctl.engine.catalogue import ELSEWHERE, SECRET
from opsctl.engine.order import age

HERE = Path(__file__).parent
# VERSION COUNT SHA256, as tools/ask_parser.py --digest got them from the 38 real parsers.
REAL = [line.split() for line in (HERE / "real_parsers.txt").read_text().splitlines()]
# An inventory of six versions' options, made independently of this repository's reader:
# [[versions], option]; left out are: action "store", type "str", a dest that follows from the name.
SIX = [json.loads(line) for line in (HERE / "six_versions.jsonl").read_text().splitlines()]

TYPES = {
    **{kind: kind for kind in ("int", "float")},
    **dict.fromkeys(("text", "json_text", "lora"), "str"),
    "size": "human_readable_int",
    "nullable": "nullable_str",
    "json": "loads",
    "json_list": "json_list_type",
    "graph_config": "parse_cuda_graph_config_arg",
}


def line(flag: Flag) -> str:
    """As tools/ask_parser.py writes it."""
    shape = {"switch": "switch", "onoff": "onoff", "void": "void", "refused": "refused"}
    negative = [f"--no-{name}" for name in flag.names] if flag.kind == "onoff" else []
    return json.dumps(
        [
            sorted([*(f"--{name}" for name in flag.names), *negative]),
            shape.get(flag.kind, "value"),
            TYPES.get(flag.kind, ""),
            flag.dest,
            flag.nargs or None,
            list(flag.choices) or None,
            flag.default,
        ]
    )


def test_there_is_a_catalogue_of_every_release() -> None:
    ours = [v for v in versions() if store.own().joinpath(f"{v}.json").is_file()]
    assert ours == [version for version, _, _ in REAL]
    assert len(ours) == 38


@pytest.mark.parametrize(("version", "count", "digest"), REAL)
def test_equal_to_the_real_parser(version: str, count: str, digest: str) -> None:
    """Names, dest, type, nargs, choices and default of every option. Where this fails, compare
    with the lines of tools/ask_parser.py."""
    lines = sorted(line(flag) for flag in catalogue(version).flags.values())
    assert len(lines) == int(count)
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest() == digest


# What the inventory has wrong, as the parsers and the sources show.
# It lists as deprecated what only speaks of another deprecated flag or variable.
NOT_DEPRECATED = {
    "fp8-gemm-backend",
    "fp4-gemm-backend",
    "smg-grpc-mode",
    "unified-cache-external-linker-config",
}
NOTHING: tuple[Any, ...] = (None, False, 0, "")  # defaults of 0 and "" are left out of it, too


@pytest.mark.parametrize(("where", "option"), SIX, ids=lambda x: str(x)[:60])
def test_equal_to_the_inventory_of_six_versions(where: list[str], option: dict[str, Any]) -> None:
    names = [n.removeprefix("--") for n in option["names"]]
    if option.get("action") == "boolean_optional":
        names = [n for n in names if not n.startswith("no-")]
    for version in where:
        known = catalogue(version)
        flag = known.flags[known.canonical(names[0]) or ""]
        assert sorted(flag.names) == sorted(names)
        assert flag.dest == option.get("dest", names[0].replace("-", "_"))
        assert list(flag.choices) == option.get("choices", [])
        assert flag.nargs == option.get("nargs", "")
        assert (
            flag.default == option["default"] if "default" in option else (flag.default in NOTHING)
        )
        told = option.get("deprecated", False) and flag.name not in NOT_DEPRECATED
        assert (flag.deprecated is not None) == told
        if "new_flag" in option:
            assert flag.deprecated == option["new_flag"]


def test_the_inventory_of_six_versions_is_whole() -> None:
    counts = {version: sum(version in where for where, _ in SIX) for version, _, _ in REAL}
    found = {version: len(catalogue(version).flags) for version, n in counts.items() if n}
    assert {v: n for v, n in counts.items() if n} == found
    assert len(found) == 6


DEFAULTS = [
    ("hicache-ratio", {"0.5.2": 2.0, "0.5.17": 2.0, "0.5.18": None, "0.5.23": None}),
    ("hicache-size", {"0.5.2": 0, "0.5.23": 0}),
    ("hicache-mem-layout", {"0.5.13.post1": "layer_first", "0.5.14": "page_first"}),
    ("hicache-io-backend", {"0.5.2": "kernel", "0.5.23": "kernel"}),
    ("hicache-storage-prefetch-policy", {"0.5.11": "best_effort", "0.5.12": "timeout"}),
    ("mamba-full-memory-ratio", {"0.5.3.post2": 0.2, "0.5.3.post3": 0.9, "0.5.23": None}),
    ("swa-full-tokens-ratio", {"0.5.2": 0.8, "0.5.23": None}),
    ("mem-fraction-static", {version: None for version, _, _ in REAL}),
    ("tp-size", {version: 1 for version, _, _ in REAL}),
    ("base-gpu-id", {version: 0 for version, _, _ in REAL}),
    ("trust-remote-code", {version: False for version, _, _ in REAL}),
    ("attn-dp-size", {"0.5.21": None, "0.5.22": 1}),
]


@pytest.mark.parametrize(("name", "by_version"), DEFAULTS)
def test_defaults_by_version(name: str, by_version: dict[str, Any]) -> None:
    found = {version: catalogue(version).get({}, name) for version in by_version}
    assert found == by_version
    assert [type(v) for v in found.values()] == [type(v) for v in by_version.values()]


def test_what_an_unset_value_becomes_is_kept_beside_its_default() -> None:
    flags = catalogue("0.5.23").flags
    assert flags["swa-full-tokens-ratio"].fallback == 0.8
    assert flags["mamba-full-memory-ratio"].fallback == 0.9


SAMPLES: dict[str, Any] = {
    "switch": True,
    "void": True,
    "onoff": False,
    "int": 3,
    "float": 0.5,
    "size": "16Ki",
    "text": "word",
    "nullable": "word",
    "json": {"a": 1},
    "json_list": [1, 2],
    "json_text": {"a": 1},
    "graph_config": {"decode": {"max_bs": 8}},
    "lora": "name=/path",
}
# Of flags whose JSON the engine needs to be something of its own.
EXCHANGE = {"num_sms": 20}
SAMPLES_OF: dict[str, Any] = {
    "deepep-config": {"normal_dispatch": EXCHANGE, "normal_combine": EXCHANGE},
    "disaggregation-ib-device": "mlx5_0,mlx5_1",
    "limit-mm-data-per-request": {"image": 1},
}


@pytest.mark.parametrize("version", [version for version, _, _ in REAL])
def test_every_flag_takes_a_value_and_is_written(version: str) -> None:
    known = catalogue(version)
    asked = 0
    for name, flag in known.flags.items():
        if name in ELSEWHERE or name in SECRET or flag.kind == "refused":
            assert known.check({name: {"key": "x"}})[1]
            continue
        value = SAMPLES_OF.get(name, SAMPLES[flag.kind])
        value = flag.choices[0] if flag.choices else value
        typed, problems = known.check({name: [value] if flag.many else value})
        assert problems == [], name
        assert [*typed] == [name]
        argv = known.argv(typed)
        assert argv[0].partition("=")[0] in (f"--{name}", f"--no-{name}")
        assert known.check(typed) == (typed, [])
        for alias in flag.aliases:  # the same by any of its names
            assert known.check({alias: [value] if flag.many else value})[0] == typed
        asked += 1
    assert asked > 0.9 * len(known.flags)


def test_a_name_means_one_flag_in_a_version() -> None:
    for version in versions():
        names = [n for flag in catalogue(version).flags.values() for n in flag.names]
        assert len(names) == len(set(names)), version


# (versions, flag, what to use): those whose parser ends at the flag.
_RUNNER = "--moe-runner-backend=flashinfer"
ENDS = [
    (["0.5.18"], "enable-expert-distribution-metrics", "--expert-balancedness-report-mode"),
    *(
        (["0.5.3", "0.5.3.post1", "0.5.3.post2", "0.5.3.post3", "0.5.4"], f"enable-{name}", instead)
        for name, instead in {
            "ep-moe": "--ep-size",
            "deepep-moe": "--moe-a2a-backend=deepep",
            "triton-kernel-moe": "--moe-runner-backend=triton_kernel",
            "flashinfer-cutlass-moe": f"{_RUNNER}_cutlass",
            "flashinfer-cutedsl-moe": f"{_RUNNER}_cutedsl",
            "flashinfer-trtllm-moe": f"{_RUNNER}_trtllm",
            "flashinfer-mxfp4-moe": f"{_RUNNER}_mxfp4",
        }.items()
    ),
]


@pytest.mark.parametrize(("where", "flag", "instead"), ENDS)
def test_what_the_engine_only_refuses_is_refused_with_what_to_use(
    where: list[str], flag: str, instead: str
) -> None:
    for version in where:
        _, (problem,) = catalogue(version).check({flag: True})
        assert str(problem).endswith(
            f"is known to the engine only to be refused (value: True); use {instead}"
        )


def test_a_known_flag_of_a_new_version_keeps_its_name() -> None:
    """Canonical names stand in units and manifests: a version that lists another first must not
    rename what earlier versions have."""
    for version in versions():
        for name in ("tp-size", "ep-size", "dp-size"):
            assert catalogue(version).canonical(name) == name
            assert isinstance(catalogue(version), Catalogue)


def test_versions_are_in_order_of_release() -> None:
    assert versions() == sorted(versions(), key=age)
    assert versions()[:5] == ["0.5.2", "0.5.3", "0.5.3.post1", "0.5.3.post2", "0.5.3.post3"]
