"""The engine's own parser judges the catalogue, for both versions.

What we render, it accepts with the same values and nothing else changed. What we refuse, it
refuses or takes as an abbreviation only, but for the slips that values.py says it is stricter on.
"""

from __future__ import annotations

import json
import os
import string
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opsctl.cli.released import opened
from opsctl.engine import Catalogue, Flag, catalogue
from opsctl.engine.adding import added
from opsctl.engine.catalogue import ELSEWHERE, SECRET

pytestmark = [pytest.mark.cpu_engine, pytest.mark.timeout(1800)]

VERSIONS = ("0.5.9", "0.5.23")
JUDGE = Path(__file__).with_name("parser_judge.py")


class Judge:
    """One long-lived process with the engine's parser in it."""

    def __init__(self, environment: Path) -> None:
        self.process = subprocess.Popen(
            [environment / "bin" / "python", JUDGE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={"PATH": os.defpath, "HOME": "/nonexistent", "SGLANG_USE_CPU_ENGINE": "1"},
        )
        first = self._read()
        self.names = {name.removeprefix("--") for name in first["flags"] if name.startswith("--")}
        self.defaults: dict[str, Any] = first["defaults"]

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the judge has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, argv: list[str]) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(argv) + "\n")
        self.process.stdin.flush()
        return self._read()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)


@pytest.fixture(scope="module")
def judges(cpu_engine: Callable[[str], Path]) -> Iterator[Callable[[str], Judge]]:
    started: list[Judge] = []

    @cache
    def of(version: str) -> Judge:
        started.append(Judge(cpu_engine(version)))
        return started[-1]

    yield of
    for judge in started:
        judge.close()


def expected(known: Catalogue, typed: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """The parser's namespace after our command line, and nothing else changed."""
    values = {known.flags[n].dest: _stored(known.flags[n], v) for n, v in typed.items()}
    return {**defaults, **values}


def _stored(flag: Flag, value: Any) -> Any:
    if flag.kind == "void":
        return None
    if flag.name == "monokernel-backend":  # an old name with one value, for what is now a switch
        return True
    if flag.nargs == "?" and value is True:
        return ""
    return value


def agree(judge: Judge, known: Catalogue, flags: dict[str, Any]) -> None:
    typed, problems = known.check(flags)
    assert not problems, [str(p) for p in problems]
    again, _ = known.check(typed)
    assert again == typed
    answer = judge.ask(known.argv(typed))
    wanted = expected(known, typed, judge.defaults)
    for flag in (known.flags[n] for n in typed if known.flags[n].kind == "void"):
        wanted[flag.dest] = judge.defaults[flag.dest]
    assert answer.get("values") == wanted, answer.get("error") or _differing(answer, wanted)


def _differing(answer: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    got = answer["values"]
    return {k: (got.get(k), wanted.get(k)) for k in {*got, *wanted} if got.get(k) != wanted.get(k)}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_flags_as_the_real_parser(version: str, judges: Callable[[str], Judge]) -> None:
    known = catalogue(version)
    ours = {name for flag in known.flags.values() for name in flag.names}
    ours |= {f"no-{flag.name}" for flag in known.flags.values() if flag.kind == "onoff"}
    assert ours | {"help"} == judges(version).names


@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_defaults_as_the_real_parser(version: str, judges: Callable[[str], Judge]) -> None:
    """Of every flag, also those without one; deprecated ones set what others have a default for."""
    defaults = judges(version).defaults
    known = catalogue(version)
    elsewhere = {"model-path"}  # the judge gives it
    flags = [f for f in known.flags.values() if f.deprecated is None and f.name not in elsewhere]
    assert len(flags) > 300
    for flag in flags:
        assert defaults[flag.dest] == known.get({}, flag.name), flag.name
        assert type(defaults[flag.dest]) is type(known.get({}, flag.name)), flag.name


@pytest.mark.parametrize("version", VERSIONS)
def test_the_source_reads_as_the_catalogue_says(
    version: str, cpu_engine: Callable[[str], Path]
) -> None:
    """`opsctl catalog add` over the engine as it is installed: nothing is left to write."""
    with opened(version, cpu_engine(version)) as package:
        found = added(version, package)
    assert found.flags == len(catalogue(version).flags)
    assert found.files == {}


REFERENCE = {
    "tp-size": 8,
    "mem-fraction-static": 0.88,
    "trust-remote-code": True,
    "reasoning-parser": "kimi_k2",
    "tool-call-parser": "kimi_k2",
    "speculative-algorithm": "EAGLE3",
    "speculative-draft-model-path": "/srv/models/kimi-k2.5-eagle3",
    "speculative-eagle-topk": 1,
    "speculative-num-steps": 3,
    "speculative-num-draft-tokens": 4,
    "enable-hierarchical-cache": True,
    "hicache-ratio": 4.0,
    "hicache-write-policy": "write_through",
    "hicache-io-backend": "kernel",
}
BOTH = [
    REFERENCE,
    {},
    {"hicache-ratio": "4"},
    {"tensor-parallel-size": "2", "ep": 2},
    {"nccl-init-addr": "[::1]:5000"},
    {"disable-radix-cache": False, "enable-metrics": "true"},
    {"watchdog-timeout": 1e-05},
    {"context-length": 262144, "max-total-tokens": "4096"},
    {"chat-template": "-looks-like-a-flag"},
    {"chat-template": "--tp-size=9"},
    {"chat-template": "--"[:1]},
    {"chat-template": ""},
    {"chat-template": "a b\n'\"$(x)%n;\\ é 中"},
    {"chat-template": "--config"},
    {"cpu-offload-gb": -3},
    {"uvicorn-access-log-exclude-prefixes": []},
    {"uvicorn-access-log-exclude-prefixes": ["/health", "", "/a b"]},
    {"debug-tensor-dump-layers": [-1, 3]},
    {"bucket-time-to-first-token": [0.1, -2.5, 1, "3"]},
    {"lora-paths": ["/a", "x=/b", {"lora_name": "n", "lora_path": "/c", "pinned": True}]},
    {"lora-paths": []},
    {"model-checksum": True},
    {"model-checksum": "/sums.json"},
    {"json-model-override-args": {"rope": {"b": [1, 2.5, None, "é"], "a": True}}},
    {
        "preferred-sampling-params": '{"temperature": 0.6}',
        "limit-mm-data-per-request": {"image": 1},
    },
    {"forward-hooks": [{"name": "x", "n": 2**63}]},
    {"quantization-param-path": "/scales.json"},
    {"log-requests-level": 3, "max-lora-chunk-size": "64"},
]
ONE = [
    ("0.5.9", {"hybrid-kvcache-ratio": True}),
    ("0.5.9", {"cuda-graph-bs": [1, 2, 4]}),
    ("0.5.9", {"lora-target-modules": ["q_proj", "all"], "lora-paths": ["/a"]}),
    ("0.5.9", {"fp8-gemm-backend": "triton"}),
    ("0.5.9", {"lora-paths": ["-"], "encoder-urls": ["-", "a"]}),
    ("0.5.23", {"dllm-fdfo": False}),
    ("0.5.23", {"dllm-fdfo": True, "enable-tf32-matmul": False}),
    ("0.5.23", {"context-length": "25.6k", "max-total-tokens": "16Ki"}),
    ("0.5.23", {"cuda-graph-config": {"decode": {"backend": "full", "max_bs": 256}}}),
    ("0.5.23", {"cuda-graph-backend-decode": "disabled", "disable-cuda-graph": True}),
    ("0.5.23", {"monokernel-backend": "amd"}),
    ("0.5.23", {"hierarchical-sparse-attention-extra-config": {"top_k": 2048}}),
    ("0.5.23", {"fuseep-mode": 2}),
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("flags", BOTH, ids=lambda f: ",".join(f) or "none")
def test_rendered_is_accepted(
    version: str, flags: dict[str, Any], judges: Callable[[str], Judge]
) -> None:
    agree(judges(version), catalogue(version), flags)


@pytest.mark.parametrize(("version", "flags"), ONE)
def test_rendered_is_accepted_by_its_version(
    version: str, flags: dict[str, Any], judges: Callable[[str], Judge]
) -> None:
    agree(judges(version), catalogue(version), flags)


# (flags, as a shell user would type it, what the engine does with that)
REFUSED = [
    ({"hicache-rat": 2}, ["--hicache-rat", "2"], "abbreviation"),
    ({"tp": 8}, ["--tp", "8"], "abbreviation"),
    ({"mem-frac": 0.9}, ["--mem-frac=0.9"], "abbreviation"),
    ({"reasoning_parser": "kimi_k2"}, ["--reasoning_parser", "kimi_k2"], "refuses"),
    ({"hicache-ratio": "four"}, ["--hicache-ratio", "four"], "refuses"),
    ({"tp-size": 8.0}, ["--tp-size", "8.0"], "refuses"),
    ({"tp-size": True}, ["--tp-size"], "refuses"),
    ({"tp-size": [1, 2]}, ["--tp-size", "1", "2"], "refuses"),
    ({"hicache-write-policy": "write_thru"}, ["--hicache-write-policy=write_thru"], "refuses"),
    ({"trust-remote-code": 1}, ["--trust-remote-code=1"], "refuses"),
    ({"trust-remote-code": "yes"}, ["--trust-remote-code", "yes"], "refuses"),
    ({"prompt-tokens-buckets": []}, ["--prompt-tokens-buckets"], "refuses"),
    ({"debug-tensor-dump-layers": "1 2"}, ["--debug-tensor-dump-layers=1 2"], "refuses"),
    ({"encoder-urls": ["-x"]}, ["--encoder-urls", "-x"], "refuses"),
    ({"chat-template": "--"}, ["--chat-template=--"], "loses"),
    ({"preferred-sampling-params": "{a: 1}"}, ["--preferred-sampling-params={a: 1}"], "refuses"),
    ({"lora-paths": [{"lora_name": "x"}]}, ["--lora-paths", '{"lora_name": "x"}'], "refuses"),
    ({"log-requests-level": 4}, ["--log-requests-level", "4"], "refuses"),
    ({"no-such-flag": 1}, ["--no-such-flag", "1"], "refuses"),
    (
        {"tp-size": 2, "tensor-parallel-size": 4},
        ["--tp-size=2", "--tensor-parallel-size=4"],
        "slip",
    ),
    ({"hicache-ratio": "nan"}, ["--hicache-ratio=nan"], "slip"),
    ({"tp-size": " 8"}, ["--tp-size= 8"], "slip"),
    ({"tp-size": "1_0"}, ["--tp-size=1_0"], "slip"),
    ({"forward-hooks": {"a": 1}}, ['--forward-hooks={"a": 1}'], "slip"),
    ({"quantization-param-path": "None"}, ["--quantization-param-path=None"], "slip"),
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("flags", "typed_by_hand", "does"), REFUSED, ids=lambda x: str(x)[:40])
def test_refused(
    version: str,
    flags: dict[str, Any],
    typed_by_hand: list[str],
    does: str,
    judges: Callable[[str], Judge],
) -> None:
    judge = judges(version)
    _, problems = catalogue(version).check(flags)
    assert problems
    answer = judge.ask(typed_by_hand)
    assert ("error" in answer) == (does == "refuses")
    if does == "loses":
        assert answer["values"] == {**judge.defaults, "chat_template": []}
    if does == "abbreviation":
        assert not set(flags) & judge.names


OF_OTHER_VERSIONS = [
    ("0.5.9", "enable-hicache", "write enable-hierarchical-cache"),
    ("0.5.9", "attn-dp-size", "0.5.23"),
    ("0.5.23", "cuda-graph-max-bs", "write cuda-graph-max-bs-decode"),
    ("0.5.23", "disable-hicache-numa-detect", "0.5.9"),
    ("0.5.23", "enable-ep-moe", "0.5.2 to 0.5.4 do"),
]


@pytest.mark.parametrize(("version", "name", "said"), OF_OTHER_VERSIONS)
def test_flags_of_other_versions_are_not_flags_of_this_one(
    version: str, name: str, said: str, judges: Callable[[str], Judge]
) -> None:
    assert name not in judges(version).names
    (problem,) = catalogue(version).check({name: 1})[1]
    assert said in str(problem)


WORD = st.text(alphabet=string.printable + "é中-", max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | WORD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORD, inner, max_size=3),
    max_leaves=6,
)
ANY = st.one_of(
    st.integers(-(10**6), 10**6),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.integers(0, 99).map(str),
    st.floats().map(str),
    st.sampled_from(["16k", "1.5M", "2Ki", "1.5Ki", "None", "--", "-", "-1", "auto", "true", "{}"]),
    WORD,
    st.lists(st.integers(-9, 99) | st.floats() | WORD, max_size=4),
    JSON,
    JSON.map(json.dumps),
)


def _fitting(flag: Flag) -> st.SearchStrategy[Any]:
    """Mostly what the flag takes, so that acceptance is tried as much as refusal."""
    if flag.choices:
        one: st.SearchStrategy[Any] = st.sampled_from(flag.choices)
        return (st.lists(one, max_size=3) if flag.many else one) | ANY
    if flag.kind in ("switch", "void", "onoff"):
        return st.booleans() | ANY
    return ANY


@st.composite
def wishes(draw: st.DrawFn, version: str) -> dict[str, Any]:
    flags = catalogue(version).flags
    free = sorted(n for n in flags if n not in ELSEWHERE and n not in SECRET)
    names = draw(st.lists(st.sampled_from(free), min_size=1, max_size=4, unique=True))
    return {draw(st.sampled_from(flags[n].names)): draw(_fitting(flags[n])) for n in names}


# The messages of refusals that the engine's parser does not share, as values.py lists them.
SLIPS = (
    *("must be a whole number", "must be a number", "must be a finite number", "must be a list"),
    *("means unset to the engine", "has no value", "holds NaN", "holds a whole number", "is too"),
    *("must be text", "must be a mapping or a list", "must be a path", "the engine's parser drops"),
)


def by_hand(name: str, value: Any, many: bool) -> list[str]:
    if value is True:
        return [f"--{name}"]
    if many:
        return [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return [f"--{name}={json.dumps(value) if isinstance(value, dict | list) else value}"]


@pytest.mark.parametrize("version", VERSIONS)
def test_any_flags_at_all(version: str, judges: Callable[[str], Judge]) -> None:
    judge, known = judges(version), catalogue(version)
    seen = {"accepted": 0, "refused": 0}

    @settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
    @given(wishes(version))
    def run(flags: dict[str, Any]) -> None:
        wrong = {}
        for name, value in flags.items():
            _, problems = known.check({name: value})
            wrong |= {name: problems[0].message} if problems else {}
        agree(
            judge, known, _without_twins(known, {n: v for n, v in flags.items() if n not in wrong})
        )
        for name, message in wrong.items():
            flag = next(f for f in known.flags.values() if name in f.names)
            # Text to the parser, JSON to the engine, which reads it long after: told at once.
            if flag.form is None and not message.startswith(SLIPS):
                hand = by_hand(name, flags[name], flag.many)
                lost = hand[-1] == f"--{name}=--" or "--" in hand  # see "loses" above
                # With a blank in it, an item that starts with a dash is a value to argparse.
                lost |= "for an option" in message and " " in str(flags[name])
                assert lost or "error" in judge.ask(hand), (name, flags[name], message)
        seen["refused"] += len(wrong)
        seen["accepted"] += len(flags) - len(wrong)

    run()
    assert min(seen.values()) > 120, seen


def _without_twins(known: Catalogue, flags: dict[str, Any]) -> dict[str, Any]:
    """Without a second flag for the same thing, which is refused."""
    dests: dict[str, str] = {}
    for name in flags:
        flag = next(f for f in known.flags.values() if name in f.names)
        dests.setdefault(flag.dest, name)
    return {name: flags[name] for name in dests.values()}
