"""Time `opsctl forecast … -o json` as a whole process, and forecasts a second a core as a library.

The peer of the process is `python -c pass` of the same interpreter, run in turn with it, so that a
noisy machine disturbs both alike; `opsctl --version` stands between them. Minimum, median and
maximum of `--runs` rounds are printed, and the ratio of the medians; CPU time is what other work on
the machine disturbs least. As a library `evaluate` is called on a ready Case, in one process, for
`--seconds`, and counted by CPU time. Run: python tools/bench_forecast.py
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsctl.forecast import evaluate
from opsctl.forecast.question import Given, Question, offline

OPSCTL = Path(sys.executable).with_name("opsctl")
PEER = "python -c pass"

TIERED = {"enable-hierarchical-cache": True, "hicache-ratio": 2.0}
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "hidden_size": 8192,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
LATENT: dict[str, Any] = {
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "hidden_size": 7168,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "max_position_embeddings": 163840,
    "torch_dtype": "bfloat16",
}
KIMI: dict[str, Any] = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "text_config": {**LATENT, "architectures": ["DeepseekV3ForCausalLM"]},
    "vision_config": {"vt_num_hidden_layers": 27, "vt_hidden_size": 1152},
}
DSA: dict[str, Any] = {
    **LATENT,
    "architectures": ["DeepseekV32ForCausalLM"],
    "index_topk": 2048,
    "index_head_dim": 128,
    "index_n_heads": 64,
}
EAGLE3: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "head_dim": 128,
    "hidden_size": 7168,
    "torch_dtype": "bfloat16",
}
SPECULATIVE = {
    "speculative-algorithm": "EAGLE3",
    "speculative-draft-model-path": "/srv/models/draft",
    "speculative-eagle-topk": 1,
    "speculative-num-steps": 3,
    "speculative-num-draft-tokens": 4,
}


@dataclass(frozen=True)
class Kind:
    """One model in one setting."""

    name: str
    config: dict[str, Any]
    version: str
    flags: dict[str, Any]
    draft: dict[str, Any] | None = None


KINDS = (
    Kind("MLA, EAGLE3, ratio 4 (reference)", KIMI, "0.5.9",
         {**SPECULATIVE, **TIERED, "hicache-ratio": 4.0}, EAGLE3),
    Kind("MLA, EAGLE3, ratio 2", KIMI, "0.5.23", {**SPECULATIVE, **TIERED}, EAGLE3),
    Kind("GQA, no tier", LLAMA, "0.5.23", {}),
    Kind("DSA, ratio 2", DSA, "0.5.23", TIERED),
)  # fmt: skip


def question(kind: Kind) -> Question:
    """On a host like the reference's."""
    card = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    given = Given(8, card, 95.59, 94.05, 21.71, None, 449, 449)
    entry = {
        "model": {"path": "/srv/models/model"},
        "engine": {"version": kind.version},
        "flags": {"tp-size": 8, "mem-fraction-static": 0.88, **kind.flags},
    }
    return Question(
        "model",
        entry,
        offline(given, _folder(kind.config), _folder(kind.draft) if kind.draft else None),
        given.calibration(),
    )


def _folder(config: dict[str, Any]) -> dict[str, Any]:
    return {"path": "", "exists": True, "texts": {"config.json": json.dumps(config)}, "files": []}


def rate(kind: Kind, seconds: float) -> float:
    """Forecasts a second of one core."""
    case = question(kind).case()
    evaluate(case)
    count, start = 0, time.process_time()
    while time.process_time() - start < seconds:
        for _ in range(200):
            evaluate(case)
        count += 200
    return count / (time.process_time() - start)


@dataclass(frozen=True)
class Taken:
    """Seconds of one whole process."""

    wall: float
    cpu: float


def timed(argv: list[str]) -> Taken:
    """A failing process ends the benchmark."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{' '.join(argv)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Taken(wall, cpu)


def commands(folder: Path) -> dict[str, list[str]]:
    """The reference deployment from files, as an operator asks for it."""
    kind = KINDS[0]
    service, config, draft = (folder / name for name in ("s.json", "config.json", "draft.json"))
    service.write_text(json.dumps(question(kind).entry))
    config.write_text(json.dumps(kind.config))
    draft.write_text(json.dumps(kind.draft))
    asked = [str(OPSCTL), "forecast", str(service), "--model-config", str(config)]
    asked += ["--draft-config", str(draft), "--gpus", "8", "--gpu-total", "95.59"]
    asked += ["--gpu-free-before", "94.05", "--gpu-free-after", "21.71"]
    asked += ["--ram-total", "449", "--ram-available", "449", "-o", "json"]
    return {
        PEER: [sys.executable, "-c", "pass"],
        "opsctl --version": [str(OPSCTL), "--version"],
        "opsctl forecast": asked,
        "opsctl forecast --fit": [*asked, "--fit", "hicache-ratio"],
        "opsctl forecast --compare": [*asked, "--compare"],
    }


def processes(runs: int) -> dict[str, list[Taken]]:
    """One round more than is kept: it warms the caches of all alike."""
    with tempfile.TemporaryDirectory() as folder:
        asked = commands(Path(folder))
        taken: dict[str, list[Taken]] = {name: [] for name in asked}
        for n in range(runs + 1):
            for name, argv in asked.items():
                one = timed(argv)
                if n:
                    taken[name].append(one)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=15, help="rounds of whole processes")
    parser.add_argument("--seconds", type=float, default=2.0, help="CPU seconds a kind of model")
    given = parser.parse_args()
    taken = processes(given.runs)
    base = statistics.median(one.wall for one in taken[PEER])
    work = statistics.median(one.cpu for one in taken[PEER])
    print("| command | min / median / max ms | ratio of medians | CPU, ratio |")
    print("|---|---|---|---|")
    for name, rounds in taken.items():
        walls = sorted(one.wall for one in rounds)
        middle = statistics.median(walls)
        cpu = statistics.median(one.cpu for one in rounds)
        spread = " / ".join(f"{1000 * wall:.0f}" for wall in (walls[0], middle, walls[-1]))
        print(f"| `{name}` | {spread} | {middle / base:.1f} | {cpu / work:.1f} |")
    print("\n| model and settings | forecasts a second a core | µs each |")
    print("|---|---|---|")
    for kind in KINDS:
        found = rate(kind, given.seconds)
        print(f"| {kind.name}, {kind.version} | {found:,.0f} | {1e6 / found:.0f} |")


if __name__ == "__main__":
    main()
