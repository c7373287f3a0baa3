"""The evaluator: versions in order, conditions that nobody may know, and data that is refused."""

from __future__ import annotations

import pytest

from opsctl.engine.advisories import Facts, advisories, condition, read, versions

ORDER = ["0.5.3rc0", "0.5.3", "0.5.3.post1", "0.5.3.post3", "0.5.4", "0.5.9", "0.5.10", "0.5.23"]
MIXED = [ORDER[i] for i in (5, 2, 7, 0, 6, 3, 1, 4)]


def test_versions_are_ordered() -> None:
    assert sorted(MIXED, key=versions.key) == ORDER


@pytest.mark.parametrize("same", ["v0.5.9", "0.5.9+cu130", "0.5.9+rehearsal", " 0.5.9"])
def test_what_does_not_change_a_version(same: str) -> None:
    assert versions.key(same) == versions.key("0.5.9")


@pytest.mark.parametrize("text", ["", "latest", "0.5.9.1.1", "main"])
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a version|more than three"):
        versions.key(text)
    assert advisories(Facts(text, flags={"enable-hierarchical-cache": True})) == []


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        (">=0.5.3,<=0.5.16", ["0.5.3", "0.5.3.post1", "0.5.16"], ["0.5.2", "0.5.3rc0", "0.5.17"]),
        ("<=0.5.10", ["0.5.10", "0.5.9"], ["0.5.10.post1"]),
        ("<0.5.11", ["0.5.10.post1", "0.5.11.dev3"], ["0.5.11"]),
        (">=0.5.19", ["0.5.19", "0.5.99"], ["0.5.18"]),
        ("==0.5.8", ["0.5.8"], ["0.5.8.post1"]),
        (">0.5.8", ["0.5.8.post1"], ["0.5.8"]),
    ],
)
def test_ranges(text: str, inside: list[str], outside: list[str]) -> None:
    one = versions.parse(text)
    assert all(one.holds(v) for v in inside)
    assert not any(one.holds(v) for v in outside)


@pytest.mark.parametrize("text", ["", "0.5.3", ">=", ">=0.5.3,", "~=0.5.3"])
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        versions.parse(text)


FACTS = Facts(
    "0.5.9",
    flags={"hicache-size": 40, "tp-size": 8, "kv-cache-dtype": "fp8_e4m3"},
    env={"SGLANG_X": "1"},
    model={"kind": ["mla", "moe"], "kv_scales": False},
    hardware={"card": ["NVIDIA RTX PRO 6000 Blackwell Server Edition"], "capability": 12.0},
)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("flags.hicache-size set", True),
        ("flags.hicache-size unset", False),
        ("flags.hicache-ratio set", False),
        ("flags.hicache-size > 39.5", True),
        ("flags.hicache-size >= 40", True),
        ("flags.hicache-size < 40", False),
        ("flags.hicache-size <= 39", False),
        ("flags.kv-cache-dtype = fp8_e4m3", True),
        ("flags.kv-cache-dtype != fp8_e4m3", False),
        ("flags.kv-cache-dtype in fp8_e5m2 | fp8_e4m3", True),
        ("flags.kv-cache-dtype not in fp8_e5m2|auto", True),
        ("flags.kv-cache-dtype like FP8*", True),
        # defaults of this version where nothing is written
        ("flags.hicache-ratio = 2", True),
        ("flags.hicache-write-policy = write_through", True),
        ("flags.disable-radix-cache = false", True),
        ("flags.disable-radix-cache = true", False),
        # the engine decides later: no value, and so no number
        ("flags.mem-fraction-static > 0", False),
        ("flags.attention-backend = fa3", False),
        ("flags.attention-backend != fa3", True),
        ("env.SGLANG_X set", True),
        ("env.SGLANG_X = 1", True),
        ("env.SGLANG_X = true", False),
        ("env.SGLANG_Y = 1", False),
        ("env.SGLANG_Y unset", True),
        ("model.kind has mla", True),
        ("model.kind has ml", False),
        ("model.kind lacks dsa", True),
        ("model.kv_scales = false", True),
        ("hardware.card like *rtx pro 6000*", True),
        ("hardware.capability >= 12", True),
        ("hardware.capability = 12.0", True),
        # nobody knows
        ("model.family = kimi-k2", None),
        ("model.family set", None),
        ("host.swap_used > 0", None),
        ("host.swap_used unset", None),
    ],
)
def test_clauses(text: str, answer: bool | None) -> None:
    assert condition.clause(text)(FACTS) is answer


def test_a_version_without_a_catalogue_has_no_defaults() -> None:
    facts = Facts("0.5.99", flags={"hicache-size": 40})
    assert condition.clause("flags.hicache-ratio = 2")(facts) is None
    assert condition.clause("flags.hicache-size = 40")(facts) is True


YES, NO, UNSURE = "env.SGLANG_X set", "env.SGLANG_Y set", "host.swap_used > 0"


@pytest.mark.parametrize(
    ("when", "answer"),
    [
        ([YES, YES], True),
        ([YES, NO], False),
        ([UNSURE, YES], None),
        ([UNSURE, NO], False),
        ([[NO, YES]], True),
        ([[NO, NO]], False),
        ([[UNSURE, YES]], True),
        ([[UNSURE, NO]], None),
        ([YES, [UNSURE, NO]], None),
    ],
)
def test_and_or_and_what_nobody_knows(when: list[str], answer: bool | None) -> None:
    assert condition.parse(when)(FACTS) is answer


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("flags.hicache-size", "is not GROUP.NAME"),
        ("flag.hicache-size set", "no group flag"),
        ("flags.hicache-size > many", "could not convert"),
        ("model.kinds has mla", "model has no kinds"),
        ("flags.a == 1", "is not GROUP.NAME"),
        ("flags.a set 1", "is not GROUP.NAME"),
    ],
)
def test_conditions_that_are_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        condition.parse([text])


GOOD = """
[[advisory]]
id = "one"
severity = "warn"
versions = [">=0.5.9"]
when = ["host.swap_used > 0"]
symptom = "S."
text = "T."
advice = "A."
reference = ["sglang 0.5.9: a.py"]
evidence = "E."
speaks = [{}]
silent = [{}]
"""


def test_what_is_not_known_is_silent_unless_the_data_says_otherwise() -> None:
    (quiet,) = read.parse(GOOD, "t")
    (loud,) = read.parse(GOOD + 'unknown = "speak"\n', "t")
    assert quiet.holds(Facts("0.5.9")) is None
    assert (quiet.unknown, loud.unknown) == ("silent", "speak")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('id = "one"', 'id = "one"\nseverty = "x"', "unknown key severty; known are id"),
        ('severity = "warn"', 'severity = "bad"', "severity is one of critical, warn, info"),
        ('text = "T."', "", "t, one: text is missing"),
        ('text = "T."', "text = 3", "text must be a str"),
        ('">=0.5.9"', '"0.5.9"', "is not a bound"),
        ("swap_used", "swap", "host has no swap"),
        ("silent = [{}]", 'silent = [{}]\nunknown = "shout"', "unknown is silent or speak"),
        ("silent = [{}]", "silent = []", "silent is missing"),
        ("[[advisory]]", "title = 1\n[[advisory]]", "unknown key title"),
    ],
)
def test_data_that_is_refused(old: str, new: str, words: str) -> None:
    assert old in GOOD
    with pytest.raises(ValueError, match=words):
        read.parse(GOOD.replace(old, new), "t")


def test_the_most_severe_comes_first() -> None:
    facts = Facts(
        "0.5.9",
        flags={
            "enable-hierarchical-cache": True,
            "disable-radix-cache": True,
            "hicache-ratio": 2.0,
            "hicache-size": 30,
            "speculative-algorithm": "EAGLE",
        },
    )
    weights = [("critical", "warn", "info").index(a.severity) for a in advisories(facts)]
    assert weights == sorted(weights)
    assert set(weights) == {0, 1, 2}
