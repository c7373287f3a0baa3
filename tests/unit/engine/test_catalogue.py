"""The catalogue's words: names, values, places. (Real parsers judge it in tests/engine.)"""

from __future__ import annotations

import json
from typing import Any

import pytest

from opsctl.engine import catalogue, versions
from opsctl.errors import SpecError


def refused(version: str, flags: dict[Any, Any]) -> str:
    _, problems = catalogue(version).check(flags, "kimi")
    assert len(problems) == 1, [str(p) for p in problems]
    return str(problems[0])


WITHOUT = [
    ("0.5.24", "allowed: 0.5.21, 0.5.22, 0.5.23, …; read it from the released package: opsctl "
     "catalog add 0.5.24"),
    ("0.5.9.post1", "allowed: 0.5.8.post1, 0.5.9, 0.5.10, …; read it from"),
    ("0.4.6", "allowed: 0.5.2, 0.5.3, 0.5.3.post1, …; read it from"),
    ("latest", "allowed: 0.5.21, 0.5.22, 0.5.23, …; see opsctl catalog list"),
]  # fmt: skip


@pytest.mark.parametrize(("version", "said"), WITHOUT)
def test_a_version_without_a_catalogue_is_told_how_to_make_one(version: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        catalogue(version)
    start = "key engine.version: no catalogue of flags for this version of SGLang (value: "
    assert str(caught.value).startswith(f"{start}{version}); {said}")


NAMES = [
    ("0.5.9", "hicache_ratio", "write hicache-ratio"),
    ("0.5.9", "--hicache-ratio", "write hicache-ratio"),
    ("0.5.9", "Hicache-Ratio", "write hicache-ratio"),
    ("0.5.9", "hicache-rat", "write hicache-ratio"),
    ("0.5.9", "tp", "write tp-size"),
    ("0.5.9", "mem-frac", "write mem-fraction-static"),
    ("0.5.9", "hicache-ratoi", "did you mean hicache-ratio?"),
    ("0.5.9", "reasoning_parser", "write reasoning-parser"),
    ("0.5.9", "enable-hicache", "0.5.23 does (value: 1); write enable-hierarchical-cache"),
    ("0.5.9", "attn-dp-size", "0.5.9 does not have this flag; 0.5.22, 0.5.23 do"),
    (
        "0.5.23",
        "enable-ep-moe",
        "0.5.23 does not have this name; 0.5.2 to 0.5.4 do (value: 1); write ep-size",
    ),
    (
        "0.5.23",
        "cuda-graph-max-bs",
        "0.5.2 to 0.5.19 do (value: 1); write cuda-graph-max-bs-decode",
    ),
    ("0.5.23", "no-dllm-fdfo", "write dllm-fdfo: false"),
    ("0.5.9", "hicаche-ratio", "did you mean hicache-ratio?"),  # a Cyrillic а
    ("0.5.9", "ratio", "SGLang 0.5.9 has no such flag (value: 1)"),
    ("0.5.9", "", "SGLang 0.5.9 has no such flag"),
    ("0.5.9", 8, "is not a name of a flag"),
]


@pytest.mark.parametrize(("version", "name", "said"), NAMES)
def test_a_wrong_name_is_answered_with_the_right_one(version: str, name: Any, said: str) -> None:
    assert said in refused(version, {name: 1})


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.1, "0.1"), (-0.5, "-0.5"), (1e16, "1e+16"), (-(10**16), "-10000000000000000")],
)
def test_a_negative_number_has_no_exponent(value: float, words: str) -> None:
    """With one, argparse takes an item of a list for an option."""
    known = catalogue("0.5.9")
    typed, problems = known.check({"bucket-e2e-request-latency": [value]})
    assert not problems
    assert known.argv(typed) == ["--bucket-e2e-request-latency", words]


PLACES = [
    ("model-path", "model.path"),
    ("model", "model.path"),
    ("served-model-name", "model.served_name"),
    ("host", "write it as host"),
    ("port", "write it as port"),
    ("api-key", "secrets.api-key"),
    ("admin-api-key", "secrets.admin-api-key"),
    ("config", "mangles"),
]


@pytest.mark.parametrize(("name", "said"), PLACES)
def test_what_has_a_place_of_its_own(name: str, said: str) -> None:
    text = refused("0.5.9", {name: "CANARY"})
    assert said in text
    assert "key" not in name or "CANARY" not in text


SECRETS = ["ssl-keyfile-password", "api-key", "apikey", "api_key", "hf-token", "password"]


@pytest.mark.parametrize("name", SECRETS)
def test_what_may_be_a_secret_is_never_shown(name: str) -> None:
    assert "CANARY" not in refused("0.5.23", {name: "CANARY"})


def test_a_watermark_key_is_a_secret_and_a_file_of_it_is_not() -> None:
    assert "CANARY" not in refused("0.5.23", {"watermark-config": {"key": "CANARY"}})
    assert catalogue("0.5.23").check({"watermark-config": "/etc/w.json"})[1] == []


VALUES = [
    ({"hicache-write-policy": "write_thru"}, "did you mean write_through?"),
    ({"hicache-ratio": "four"}, "must be a number"),
    ({"hicache-ratio": True}, "must be a number"),
    ({"hicache-ratio": float("inf")}, "must be a finite number"),
    ({"tp-size": 8.0}, "must be a whole number (value: 8.0); write 8"),
    ({"tp-size": None}, "has no value"),
    ({"trust-remote-code": "yes"}, "takes no value (value: 'yes'); allowed: true, false"),
    ({"kv-cache-dtype": False}, "quote it"),
    ({"revision": 1234567}, 'quote it: "1234567"'),
    ({"cuda-graph-bs": "1 2 4"}, "write it as a list: [1, 2, 4]"),
    ({"cuda-graph-bs": "1,2,4"}, "write it as a list: [1, 2, 4]"),
    ({"cuda-graph-bs": []}, "needs at least one value"),
    ({"chat-template": "a\0b"}, "NUL"),
    ({"chat-template": "\ud800"}, "surrogate"),
    ({"chat-template": "--"}, "two dashes"),
    ({"encoder-urls": ["-x"]}, "for an option"),
    ({"preferred-sampling-params": "{a}"}, "is not JSON"),
    ({"preferred-sampling-params": {1: 2}}, "quote the key"),
    ({"preferred-sampling-params": {"a": float("nan")}}, "NaN"),
    ({"preferred-sampling-params": "[" * 100_000}, "nested too deeply"),
    ({"tp-size": 8, "tensor-parallel-size": 8}, "sets the same as tp-size"),
]


@pytest.mark.parametrize(("flags", "said"), VALUES)
def test_a_wrong_value_is_refused(flags: dict[str, Any], said: str) -> None:
    text = refused("0.5.9", flags)
    assert said in text
    assert text.isprintable() and text.startswith("service kimi, key flags.")


@pytest.mark.parametrize("value", [4, 4.0, "4", "4.0", "4.00", "+4"])
def test_one_value_is_one_release(value: Any) -> None:
    typed, _ = catalogue("0.5.9").check({"hicache-ratio": value})
    assert catalogue("0.5.9").argv(typed) == ["--hicache-ratio=4.0"]


def test_json_is_one_value_whatever_its_order_and_blanks() -> None:
    texts = ['{"a":1,"b":[2]}', '{ "b": [2], "a": 1 }']
    both = [
        catalogue("0.5.9").check({"mm-process-config": t})[0]
        for t in [*texts, json.loads(texts[0])]
    ]
    assert [catalogue("0.5.9").argv(t) for t in both] == [
        ['--mm-process-config={"a":1,"b":[2]}']
    ] * 3


def test_names_are_canonical_over_versions() -> None:
    for version in versions():
        typed, _ = catalogue(version).check({"tensor-parallel-size": 8, "ep": 2})
        assert typed == {"ep-size": 2, "tp-size": 8}


def test_a_false_switch_is_left_out_and_a_false_pair_is_said() -> None:
    typed, _ = catalogue("0.5.23").check({"trust-remote-code": False, "dllm-fdfo": False})
    assert catalogue("0.5.23").argv(typed) == ["--no-dllm-fdfo"]


def test_deprecated_flags_are_allowed_with_a_note() -> None:
    known = catalogue("0.5.23")
    typed, problems = known.check({"enable-dp-attention": True, "dp-size": 2, "tp-size": 2})
    assert problems == []
    assert known.notes(typed) == [
        "enable-dp-attention is deprecated in SGLang 0.5.23; use --attn-dp-size <dp-size>"
    ]


def test_only_a_named_parser_is_one() -> None:
    known = catalogue("0.5.23")
    assert known.has_reasoning_parser({"reasoning-parser": "kimi_k2"})
    assert not known.has_reasoning_parser({"reasoning-parser": "auto"})
    assert not known.has_tool_parser({})


def test_a_default_is_the_versions_own() -> None:
    assert catalogue("0.5.9").get({}, "hicache-ratio") == 2.0
    assert catalogue("0.5.23").get({}, "hicache-ratio") is None
    assert catalogue("0.5.23").get({"hicache-ratio": 3.0}, "hicache-ratio") == 3.0
