"""What rules say, in words; and that they are written as rules have to be."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsctl.engine import catalogue, rules, versions
from opsctl.engine.rules import page


def said(version: str, flags: dict[str, Any], env: dict[str, str] | None = None, **model: Any) -> \
        list[tuple[str, str, str]]:  # fmt: skip
    found = rules.judge(rules.Facts(version, flags, env or {}, model)).findings
    return [(finding.kind, finding.flag, finding.text) for finding in found]


def test_a_refusal_says_what_the_engine_would_do() -> None:
    flags = {"chunked-prefill-size": 1000, "page-size": 64}
    [(kind, flag, text)] = said("0.5.9", flags)
    assert (kind, flag) == ("refuse", "chunked-prefill-size")
    assert "SGLang 0.5.9 would refuse to start" in text
    assert "1000 tokens is not made of whole pages of 64" in text


@pytest.mark.parametrize(("version", "rules_of"), [("0.5.10", []), ("0.5.12", ["expert-replicas"])])
def test_no_replicas_at_all(version: str, rules_of: list[str]) -> None:
    """Found by drawn flags: zero divides nothing."""
    found = rules.judge(rules.Facts(version, {"moe-dp-size": 0})).refusals
    assert [f.rule for f in found] == rules_of


# (version, flags, the flag that nobody wrote so, what set it, what to change)
BY_ITSELF = [
    ("0.5.9", {"disaggregation-mode": "decode", "enable-hierarchical-cache": True},
     "disable-radix-cache on", "a decode server", "enable-hierarchical-cache or "
     "disaggregation-mode"),
    ("0.5.9", {"decode-attention-backend": "trtllm_mha", "chunked-prefill-size": 4},
     "page-size 64", "trtllm_mha", "chunked-prefill-size or decode-attention-backend"),
    ("0.5.16", {"enable-two-batch-overlap": True, "moe-a2a-backend": "ascend_tp"},
     "moe-a2a-backend none", "moe-a2a-backend ascend_tp",
     "enable-two-batch-overlap or moe-a2a-backend"),
]  # fmt: skip


@pytest.mark.parametrize(("version", "flags", "made", "when", "change"), BY_ITSELF)
def test_a_value_that_nobody_wrote_is_told_with_what_set_it(
    version: str, flags: dict[str, Any], made: str, when: str, change: str
) -> None:
    [finding] = rules.judge(rules.Facts(version, flags)).refusals
    assert f"; the engine sets {made} by itself: {when}" in finding.text
    assert finding.hint == f"change {change}"
    [plain] = rules.judge(rules.Facts("0.5.9", {"chunked-prefill-size": 1000, "page-size": 64})
                          ).refusals  # fmt: skip
    assert "by itself" not in plain.text and not plain.hint


def test_a_rewrite_says_what_it_becomes() -> None:
    flags = {"enable-hierarchical-cache": True, "hicache-mem-layout": "page_first_direct"}
    [(kind, flag, text)] = said("0.5.9", flags)
    assert (kind, flag) == ("rewrite", "hicache-mem-layout")
    assert "goes on with hicache-io-backend direct" in text


def test_one_rewrite_leads_to_the_next() -> None:
    """DP attention divides the chunk, and what is left is no whole page."""
    flags = {"tp-size": 8, "dp-size": 8, "enable-dp-attention": True,
             "chunked-prefill-size": 4096, "page-size": 1024}  # fmt: skip
    judged = rules.judge(rules.Facts("0.5.9", flags))
    assert judged.flags["chunked-prefill-size"] == 512
    assert [f.rule for f in judged.refusals] == ["chunks-of-whole-pages"]
    assert rules.effective(rules.Facts("0.5.9", {**flags, "page-size": 64}))[
        "chunked-prefill-size"
    ] == 512  # fmt: skip


@pytest.mark.parametrize(
    ("version", "flags", "env", "rule"),
    [
        ("0.5.9", {"moe-a2a-backend": "mori", "chunked-prefill-size": 8192}, {}, "mori-chunks"),
        ("0.5.23", {"moe-a2a-backend": "pplx", "tp-size": 4}, {}, "pplx-groups"),
        ("0.5.23", {"moe-a2a-backend": "deepep_v2", "enable-two-batch-overlap": True}, {},
         "one-batch-at-a-time"),
        ("0.5.23", {"moe-a2a-backend": "megamoe", "enable-single-batch-overlap": True}, {},
         "one-batch-at-a-time"),
        ("0.5.13", {"moe-a2a-backend": "flashinfer", "tp-size": 4}, {},
         "flashinfer-exchange-groups"),
        ("0.5.9", {"log-level": "badXYZ"}, {}, "levels-of-logging"),
    ],
)  # fmt: skip
def test_refused_by_one_rule(
    version: str, flags: dict[str, Any], env: dict[str, str], rule: str
) -> None:
    judged = rules.judge(rules.Facts(version, flags, env))
    assert rule in {finding.rule for finding in judged.refusals}


def test_room_that_a_variable_gives() -> None:
    flags = {"moe-a2a-backend": "mori", "chunked-prefill-size": 8192, "tp-size": 4}
    room = {"SGLANG_MORI_NUM_MAX_DISPATCH_TOKENS_PER_RANK": "8192"}
    judged = rules.judge(rules.Facts("0.5.23", flags, room))
    assert not judged.refusals
    assert judged.flags["ep-size"] == 4 and judged.flags["deepep-mode"] == "normal"


@pytest.mark.parametrize("version", ["0.5.2", "0.5.9", "0.5.23"])
def test_eagle3_without_a_draft(version: str) -> None:
    flags = {"speculative-algorithm": "EAGLE3"}
    found = [f.kind for f in rules.judge(rules.Facts(version, flags)).findings
             if f.rule == "eagle3-needs-a-draft"]  # fmt: skip
    assert found == ["later"]
    drafted = {**flags, "speculative-draft-model-path": "/srv/draft"}
    judged = rules.judge(rules.Facts(version, drafted))
    assert "eagle3-needs-a-draft" not in {f.rule for f in judged.findings}


def test_an_algorithm_that_only_a_plugin_may_add() -> None:
    (found,) = [f for f in rules.judge(rules.Facts("0.5.23", {"speculative-algorithm": "EAGEL"}))
                .findings if f.rule == "algorithm-unknown"]  # fmt: skip
    assert found.kind == "later" and "EAGEL" in found.text


def test_what_is_off_is_said_of_each_flag() -> None:
    found = said("0.5.9", {"hicache-ratio": 4.0, "hicache-storage-prefetch-policy": "timeout",
                           "speculative-num-steps": 3})  # fmt: skip
    assert {(kind, flag) for kind, flag, _ in found} == {
        ("ignored", "hicache-ratio"),
        ("ignored", "hicache-storage-prefetch-policy"),
        ("ignored", "speculative-num-steps"),
    }


@pytest.mark.parametrize(
    ("folder", "flags", "told"),
    [
        ("/srv/models/Kimi-K2.5", {"reasoning-parser": "kimi_k2"}, []),
        ("/srv/models/Kimi-K2.5", {"reasoning-parser": "qwen3"}, ["reasoning-parser"]),
        ("/m/DeepSeek-V3.1-Terminus", {"tool-call-parser": "deepseekv3"}, ["tool-call-parser"]),
        ("/m/GLM-4.7-FP8", {"tool-call-parser": "glm47", "reasoning-parser": "glm45"}, []),
        ("/m/my-own", {"tool-call-parser": "glm47"}, []),
        ("/m/Qwen3-30B-A3B", {"reasoning-parser": "deepseek-r1"}, []),
    ],
)
def test_parsers_and_families(folder: str, flags: dict[str, Any], told: list[str]) -> None:
    found = [flag for kind, flag, _ in said("0.5.9", flags, folder=folder) if kind == "later"]
    assert found == told


def test_missing_facts_make_silent() -> None:
    """trtllm_mha needs a card that only a host tells."""
    flags = {"attention-backend": "trtllm_mha", "page-size": 64}
    assert said("0.5.9", flags) == []
    judged = rules.judge(rules.Facts("0.5.9", flags, hardware={"capability": 9.0}))
    assert [f.rule for f in judged.refusals] == ["trtllm-mha-cards"]


@pytest.mark.parametrize("version", ["0.5.24", "0.5.9+mine"])
def test_of_other_releases_nothing_is_certain(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opsctl.engine.rules.view.catalogue", lambda _: catalogue("0.5.23"))
    flags = {"enable-hierarchical-cache": True, "disable-radix-cache": True}
    judged = rules.judge(rules.Facts(version, flags))
    assert judged.refusals and not judged.checked


def test_rules_name_flags_that_there_are() -> None:
    known = {name for version in versions() for name in catalogue(version).flags}
    starts = {name for rule in rules.RULES for name in rule.flags if name.endswith("*")}
    assert {n for rule in rules.RULES for n in rule.flags} - starts <= known
    for start in starts:
        assert any(name.startswith(start[:-1]) for name in known), start


def test_rules_are_told_apart_and_speak_of_what_there_is() -> None:
    assert len({rule.id for rule in rules.RULES}) == len(rules.RULES)
    known = {name for version in versions() for name in catalogue(version).flags}
    for rule in rules.RULES:
        assert any(rule.span.holds(version) for version in versions()), rule.id
        assert set(re.findall(r"\{([\w-]+)\}", rule.why)) <= known, rule.id


@given(st.sampled_from(versions()), st.data())
def test_any_flags_at_all(version: str, data: st.DataObject) -> None:
    """Whatever the parser takes is judged: no crash, and what it says is flags of this release."""
    known = catalogue(version)
    names = data.draw(st.lists(st.sampled_from(sorted(known.flags)), max_size=12, unique=True))
    raw = {name: _value(known.flags[name], data) for name in names}
    flags, _ = known.check(raw)
    judged = rules.judge(rules.Facts(version, flags, {}, {"folder": "/m/Kimi-K2"}))
    assert set(judged.flags) <= set(known.flags)
    assert all(finding.text and finding.flag for finding in judged.findings)


def _value(flag: Any, data: st.DataObject) -> Any:
    if flag.choices:
        one = data.draw(st.sampled_from(list(flag.choices)))
    elif flag.kind in ("switch", "onoff", "void"):
        return True
    elif flag.kind in ("int", "size", "float"):
        one = data.draw(st.integers(-2, 9000))
    else:
        one = data.draw(st.sampled_from(["a", "/x", "None"]))
    return [one] if flag.many else one


def test_the_page_is_made_from_the_rules() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "opsctl.engine.rules.page", "--check"], check=False
    )
    assert done.returncode == 0, "run: python -m opsctl.engine.rules.page"
    assert all(rule.id in page.page() for rule in rules.RULES)
