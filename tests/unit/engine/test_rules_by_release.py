"""What all 38 releases made of more than 220 command lines, and what the rules say of each.

rules_by_release.jsonl was written by tests/engine/rules_judge.py with each released package on the
environments of 0.5.9 and 0.5.23, on cards that were only said to be there. A line: the command and
[first release, last release, "refused" or what became of flags; false ones left out]. Releases
whose parser does not take the line are left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opsctl.engine import catalogue, rules, versions
from opsctl.engine.advisories.checkpoint import model

LINES = [
    json.loads(line)
    for line in Path(__file__).with_name("rules_by_release.jsonl").read_text().splitlines()
]
CONFIGS = Path(__file__).resolve().parents[1] / "forecast/datapoints/configs"
KINDS = {
    "llama-3.1-8b": ["mha"],
    "qwen3-30b-a3b": ["mha", "moe"],
    "deepseek-v3": ["mla", "moe"],
    "kimi-k2.5": ["mla", "moe"],
    "deepseek-v3.2": ["mla", "dsa"],
}
# Lines that begin with x- are about exchanges between experts, from 0.5.9 on.
# Where a rule cannot know what the engine knows, so that it is silent: the backend that is chosen
# by itself (determ, fp4), the groups that sparse attention turns on (dsa), whether prefill graphs
# are there (prefill).
SPARSE = ("dsa", "dsa-fp8", "dsa-page", "dsa-hc", "dsa-e5m2")
SILENT = {
    "determ": {"disable-radix-cache"},
    "fp4": {"refused"},
    "prefill": {"disable-cuda-graph"},
    "hc-prefill": {"disable-cuda-graph"},
    # Not the arguments, but the tier itself does it when it is made.
    "pf+direct": {"hicache-mem-layout"},
    **{name: {"schedule-conservativeness"} for name in SPARSE},
    # The chunk, or the runner of experts, that the engine chooses by itself is none for this
    # exchange.
    **{f"x-a2a-{name}": {"refused"} for name in ("mori", "tbo-mori", "megamoe", "dp-flashinfer")},
    **{f"x-{name}": {"refused"} for name in ("fi-auto", "mega-runner", "mega-runner-deepep")},
    "x-mega-sm90": {"refused"},
    **{f"x-a2a-{name}": {"refused"} for name in ("flashinfer", "tbo-flashinfer")},
}


def typed(argv: list[str], version: str) -> dict[str, Any]:
    known, found = catalogue(version), {}
    words = list(argv)
    while words:
        name, equals, value = words.pop(0)[2:].partition("=")
        flag = known.flags[str(known.canonical(name))]
        found[name] = value if equals else True
        if flag.many:
            found[name] = [value] if equals else []
            while words and not words[0].startswith("--"):
                found[name].append(words.pop(0))
        elif not equals and flag.kind not in ("switch", "onoff"):
            found[name] = words.pop(0)
    flags, problems = known.check(found)
    assert not problems, [str(problem) for problem in problems]
    return flags


def judged(line: dict[str, Any], version: str) -> rules.Judged:
    flags = typed(line["argv"], version)
    text = (CONFIGS / f"{line['model']}.json").read_text()
    known = model(text, flag=str(flags.get("quantization") or ""))
    hardware = {"vendor": "nvidia", "capability": float("{}.{}".format(*line["sm"]))}
    return rules.judge(
        rules.Facts(version, flags, line["env"], {**known, "kind": KINDS[line["model"]]}, hardware)
    )


def span(first: str, last: str) -> list[str]:
    known = versions()
    return known[known.index(first) : known.index(last) + 1]


@pytest.mark.parametrize("line", LINES, ids=lambda line: str(line["id"]))
def test_as_the_releases_answered(line: dict[str, Any]) -> None:
    silent = SILENT.get(line["id"], set())
    for first, last, answer in line["answers"]:
        for version in span(first, last):
            found = judged(line, version)
            refused = [finding.rule for finding in found.refusals]
            if answer == "refused":
                assert refused or "refused" in silent, (version, "is refused, and no rule says so")
                continue
            assert not refused, (version, refused)
            for name, value in answer.items():
                assert name in silent or _same(_ours(found, name, version), value), (version, name)
            for name, value in found.flags.items():
                here = answer.get(name, False)
                claimed = any(name in finding.becomes for finding in found.findings)
                assert not claimed or name in silent or here or not value, (version, name, value)


def _ours(found: rules.Judged, name: str, version: str) -> Any:
    if name in found.flags or any(name in finding.becomes for finding in found.findings):
        return found.flags.get(name)
    return catalogue(version).get({}, name)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) < 1e-9
    return bool(one == other)


def test_every_release_was_asked() -> None:
    asked = {v for line in LINES for first, last, _ in line["answers"] for v in span(first, last)}
    assert asked == set(versions())
    assert len(LINES) >= 220
    assert sum(len(span(a, b)) for line in LINES for a, b, _ in line["answers"]) > 7000
