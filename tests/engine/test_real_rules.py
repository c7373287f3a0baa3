"""The real ServerArgs judges the rules: what we say is refused, it refuses; what we say becomes of
a flag, becomes of it; and what we say nothing of, it takes as written.

Generated combinations of the flags that the rules are about, on several models and cards, for
0.5.9 and 0.5.23. Each example is the engine's own parser, resolution and last checks.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opsctl.engine import catalogue, rules
from opsctl.engine.advisories.checkpoint import model

pytestmark = [pytest.mark.cpu_engine, pytest.mark.timeout(1800)]

VERSIONS = ("0.5.9", "0.5.23")
JUDGE = Path(__file__).with_name("rules_judge.py")
CONFIGS = Path(__file__).resolve().parents[1] / "unit/forecast/datapoints/configs"
# Model → what it is built of. No default of theirs depends on more than that and the card.
MODELS = {"llama-3.1-8b": ["mha"], "qwen3-30b-a3b": ["mha", "moe"], "deepseek-v3": ["mla", "moe"]}
CARDS = ((46068, (8, 9)), (81559, (9, 0)), (183359, (10, 0)), (97887, (12, 0)))
DRAFT = "llama-3.1-8b"
# What the engine refuses after it has chosen an attention backend by itself, which no rule knows.
CHOSEN = re.compile(
    r"deterministic inference|page_size > 1|page_size\(\d+\) > 1|topk = 1 for speculative"
    r"|TRTLLM MHA|mutually exclusive|divisible by page_size|TensorRT-LLM MLA|TRTLLM MLA"
)
# And what it refuses by the model: its own quantisation, which it takes where none is written, and
# that it has no encoder.
NOT_OURS = re.compile(
    "does not match the quantization method|supported for encoder disaggregation"
    "|is not validated for|MegaMOE currently supports only"
)
TAKEN = re.compile("Invalid quantization|Cutlass MoE is only supported")
# What follows from the chunk and from the runner of experts that it chooses by itself.
CHUNKED = re.compile(
    "MAX_DISPATCH_TOKENS_PER_RANK|MEGA_MOE_NUM_MAX_TOKENS|A2A per-rank token budget"
)
RUN = re.compile(
    "MoE A2A is (only )?supported with flashinfer_cutlass|only supported with --moe-run"
)

ON = st.just(True)
FLAGS: dict[str, st.SearchStrategy[Any]] = {
    "tp-size": st.sampled_from([1, 2, 4, 8]),
    "pp-size": st.sampled_from([1, 2]),
    "dp-size": st.sampled_from([1, 2, 3, 8]),
    "attn-dp-size": st.sampled_from([1, 2, 3, 8]),
    "enable-dp-attention": ON,
    "enable-dp-lm-head": ON,
    "ep-size": st.sampled_from([1, 2, 8]),
    "moe-dense-tp-size": st.sampled_from([1, 2]),
    "enable-eplb": ON,
    "base-gpu-id": st.sampled_from([0, -1]),
    "gpu-id-step": st.sampled_from([0, 1]),
    "page-size": st.sampled_from([1, 16, 32, 64, 128]),
    "chunked-prefill-size": st.sampled_from([-1, 1000, 2048, 4096, 8192]),
    "max-running-requests": st.sampled_from([8, 100]),
    "attention-backend": st.sampled_from(
        ["triton", "flashinfer", "fa3", "fa4", "torch_native", "flex_attention", "flashmla",
         "trtllm_mla", "trtllm_mha", "cutlass_mla", "cutedsl_mla", "hpc_ops"]
    ),
    "decode-attention-backend": st.sampled_from(["triton", "flashinfer", "fa3", "flashmla"]),
    "prefill-attention-backend": st.sampled_from(["triton", "flashinfer", "fa3", "fa4"]),
    "kv-cache-dtype": st.sampled_from(["auto", "fp8_e4m3", "fp8_e5m2", "bf16"]),
    "enable-deterministic-inference": ON,
    "sampling-backend": st.sampled_from(["flashinfer", "pytorch"]),
    "enable-hierarchical-cache": ON,
    "disable-radix-cache": ON,
    "hicache-io-backend": st.sampled_from(["kernel", "direct"]),
    "hicache-mem-layout": st.sampled_from(["layer_first", "page_first", "page_first_direct"]),
    "hicache-storage-backend": st.sampled_from(["file", "mooncake"]),
    "hicache-write-policy": st.sampled_from(["write_back", "write_through"]),
    "hicache-ratio": st.sampled_from([2.0, 4.0]),
    "hicache-size": st.sampled_from([0, 30]),
    "hicache-host-memory-mode": st.sampled_from(["cache", "buffer_only"]),
    "hicache-host-memory-fraction": st.sampled_from([0.0, 0.5, 1.5]),
    "enable-lmcache": ON,
    "speculative-algorithm": st.sampled_from(["EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM"]),
    "speculative-num-steps": st.sampled_from([1, 3]),
    "speculative-eagle-topk": st.sampled_from([1, 4]),
    "speculative-num-draft-tokens": st.sampled_from([4, 8]),
    "enable-mixed-chunk": ON,
    "disable-overlap-schedule": ON,
    "disaggregation-mode": st.sampled_from(["null", "prefill", "decode"]),
    "disaggregation-transfer-backend": st.sampled_from(["nixl", "fake"]),
    "disaggregation-decode-enable-offload-kvcache": ON,
    "disaggregation-decode-enable-radix-cache": ON,
    "disaggregation-decode-tp": st.just(4),
    "encoder-only": ON,
    "language-only": ON,
    "enable-prefix-mm-cache": ON,
    "enable-lora": ON,
    "lora-paths": st.sampled_from([["a=/x"], ["a=/x", "b=/y"]]),
    "max-lora-rank": st.just(16),
    "lora-target-modules": st.sampled_from([["q_proj"], ["all"], ["all", "q_proj"]]),
    "max-loras-per-batch": st.sampled_from([0, 1, 4]),
    "max-loaded-loras": st.sampled_from([1, 4, 20]),
    "enable-lora-overlap-loading": ON,
    "moe-runner-backend": st.sampled_from(["triton", "flashinfer_cutlass", "flashinfer_trtllm",
                                           "cutlass"]),
    "quantization": st.sampled_from(["fp8", "awq"]),
    "moe-a2a-backend": st.sampled_from(["none", "deepep", "mooncake", "nixl", "mori", "flashinfer",
                                        "megamoe", "pplx", "deepep_v2", "ascend_tp",
                                        "flashinfer_megamoe"]),
    "speculative-moe-a2a-backend": st.sampled_from(["none", "deepep", "deepep_v2"]),
    "deepep-mode": st.sampled_from(["normal", "auto", "low_latency"]),
    "enable-two-batch-overlap": ON,
    "enable-single-batch-overlap": ON,
    "enable-waterfill": ON,
    "moe-dp-size": st.sampled_from([1, 2]),
    "schedule-policy": st.sampled_from(["fcfs", "lpm", "lof"]),
    "enable-priority-scheduling": ON,
    "retraction-policy": st.sampled_from(["length", "priority"]),
    "schedule-conservativeness": st.sampled_from([-1.0, 0.5]),
    "tokenizer-worker-num": st.sampled_from([0, 4]),
    "skip-tokenizer-init": ON,
    "enable-tokenizer-batch-encode": ON,
    "enable-dynamic-batch-tokenizer": ON,
    "export-metrics-to-file": ON,
    "export-metrics-to-file-dir": st.just("/x"),
    "disable-cuda-graph-padding": ON,
    "enable-torch-compile": ON,
    "swa-full-tokens-ratio": st.sampled_from([0.5, 1.5]),
    "context-length": st.sampled_from([4096, 10_000_000]),
    "tool-call-parser": st.sampled_from(["qwen25", "llama3", "glm45"]),
    "ssl-keyfile": st.just("/x"),
    "cuda-graph-bs": st.just([1, 2, 4]),
    "cuda-graph-max-bs": st.sampled_from([2, 16]),
    "multi-item-scoring-delimiter": st.just(5),
    "debug-tensor-dump-output-folder": st.just("/x"),
    "speculative-draft-sink-size": st.just(4),
    "enable-pdmux": ON,
}  # fmt: skip
ENV = st.sampled_from([{}, {}, {"SGLANG_ENABLE_SPEC_V2": "1"},
                       {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}])  # fmt: skip
# Compared only where we say that it changes, since the engine fills it in or adapts it by model
# and card: what we leave out, we do not claim.
FILLED = {
    "attention-backend", "prefill-attention-backend", "decode-attention-backend",
    "sampling-backend", "page-size", "kv-cache-dtype", "max-running-requests",
    "chunked-prefill-size", "cuda-graph-max-bs", "speculative-num-steps", "speculative-eagle-topk",
    "speculative-num-draft-tokens", "hicache-ratio", "moe-runner-backend", "quantization",
    "swa-full-tokens-ratio", "lora-paths", "lora-target-modules", "enable-lora",
    "enable-lora-overlap-loading", "disable-cuda-graph", "moe-dense-tp-size", "cuda-graph-bs",
    "retraction-policy", "disaggregation-decode-tp", "attn-dp-size", "dp-size",
    "enable-dp-attention", "deepep-mode",
}  # fmt: skip
# Fields of ServerArgs that rules change, whether written or not.
CHANGED = (
    "hicache-io-backend", "hicache-mem-layout", "hicache-write-policy", "disable-radix-cache",
    "disable-overlap-schedule", "enable-mixed-chunk", "ep-size", "enable-dp-lm-head",
    "tool-call-parser", "tokenizer-worker-num", "schedule-conservativeness",
    "speculative-algorithm", "hicache-host-memory-fraction", "moe-a2a-backend",
)  # fmt: skip


class Judge:
    """One long-lived process with the engine in it."""

    def __init__(self, environment: Path, folder: Path) -> None:
        self.process = subprocess.Popen(
            [environment / "bin" / "python", JUDGE, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={"PATH": os.defpath, "HOME": "/nonexistent", "SGLANG_USE_CPU_ENGINE": "1"},
        )

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the judge has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer


@pytest.fixture(scope="module")
def judges(
    cpu_engine: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], tuple[Judge, Path]]]:
    folder = tmp_path_factory.mktemp("models")
    for name in MODELS:
        (folder / name).mkdir()
        text = (CONFIGS / f"{name}.json").read_text()
        (folder / name / "config.json").write_text(text)
        (folder / name / "tokenizer_config.json").write_text("{}")
    started: list[Judge] = []

    @cache
    def of(version: str) -> tuple[Judge, Path]:
        started.append(Judge(cpu_engine(version), folder))
        return started[-1], folder

    yield of
    for judge in started:
        assert judge.process.stdin is not None
        judge.process.stdin.close()
        judge.process.wait(timeout=30)


@st.composite
def services(draw: st.DrawFn, version: str) -> dict[str, Any]:
    """Flags that the parser of this version takes, a few or many of them."""
    known = catalogue(version)
    names = draw(st.lists(st.sampled_from(sorted(FLAGS)), max_size=10, unique=True))
    raw = {name: draw(FLAGS[name]) for name in names if known.canonical(name)}
    flags, _ = known.check(raw)
    return flags


def ask(judge: Judge, folder: Path, case: dict[str, Any], version: str) -> dict[str, Any]:
    flags = dict(case["flags"])
    if flags.get("speculative-algorithm") in ("EAGLE3", "STANDALONE"):
        flags["speculative-draft-model-path"] = str(folder / DRAFT)
    argv = catalogue(version).argv(flags)
    return judge.ask({**case, "argv": argv})


def ours(case: dict[str, Any], version: str) -> rules.Judged:
    config = (CONFIGS / f"{case['config']}.json").read_text()
    known = model(config, flag=str(case["flags"].get("quantization") or ""))
    hardware = {"vendor": "nvidia", "capability": float("{}.{}".format(*case["capability"]))}
    return rules.judge(
        rules.Facts(version, case["flags"], case["env"],
                    {**known, "kind": MODELS[case["config"]]}, hardware)
    )  # fmt: skip


def wrong(case: dict[str, Any], answer: dict[str, Any], version: str) -> list[str]:
    """What we said, and the engine did otherwise."""
    judged = ours(case, version)
    refusals = [finding.rule for finding in judged.refusals]
    if "error" in answer:
        theirs = answer["error"]
        unsure = "attention-backend" not in judged.flags and CHOSEN.search(theirs)
        unsure = unsure or ("quantization" not in judged.flags and TAKEN.search(theirs))
        unsure = unsure or ("chunked-prefill-size" not in case["flags"] and CHUNKED.search(theirs))
        unsure = unsure or ("moe-runner-backend" not in case["flags"] and RUN.search(theirs))
        known = refusals or unsure or NOT_OURS.search(theirs)
        return [] if known else [f"not refused by us: {theirs}"]
    if refusals:
        return [f"refused by us alone: {refusals}"]
    said = {name for finding in judged.findings for name in finding.becomes}
    claimed = {*said, *CHANGED, *(set(case["flags"]) - FILLED)}
    if (
        "enable-deterministic-inference" in case["flags"]
        and "attention-backend" not in judged.flags
    ):
        claimed -= {"disable-radix-cache"}  # which follows from the backend that it chooses
    return [
        f"{name}: {now!r}, and we say {expected!r}"
        for name in sorted(claimed)
        if (now := field(answer["values"], name, version)) is not NONE
        and not same(now, expected := value(judged, name, version))
    ]


NONE = object()


def field(values: dict[str, Any], name: str, version: str) -> Any:
    """NONE: this release keeps it nowhere."""
    flag = catalogue(version).flags.get(name)
    if flag is None or flag.kind == "void":
        return NONE
    names = (flag.dest, name.replace("-", "_"))
    return next((values[one] for one in names if one in values), NONE)


def value(judged: rules.Judged, name: str, version: str) -> Any:
    if name in judged.flags:
        return judged.flags[name]
    # Unset by a rule, or never set.
    removed = any(name in f.becomes and f.becomes[name] is None for f in judged.findings)
    return None if removed else catalogue(version).get({}, name)


def same(now: Any, expected: Any) -> bool:
    if isinstance(now, float) or isinstance(expected, float):
        return now is not None and expected is not None and abs(now - expected) < 1e-9
    return bool(now == expected) or (not now and not expected)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_real_engine_agrees(version: str, judges: Callable[[str], tuple[Judge, Path]]) -> None:
    judge, folder = judges(version)

    @settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
    @given(services(version), st.sampled_from(sorted(MODELS)), st.sampled_from(CARDS), ENV)
    def agree(
        flags: dict[str, Any], name: str, card: tuple[int, tuple[int, int]], env: dict[str, str]
    ) -> None:
        case = {"config": name, "flags": flags, "env": env, "mib": card[0], "capability": card[1]}
        assert wrong(case, ask(judge, folder, case, version), version) == []

    agree()
