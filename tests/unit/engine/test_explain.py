"""Explanations: every one of a flag that there is, none that is the engine's own text."""

from __future__ import annotations

import json

import pytest

from opsctl.engine import catalogue, versions
from opsctl.engine.explain import history, nearest, texts
from opsctl.engine.explain.answer import answer
from opsctl.errors import SpecError


def test_every_explained_flag_exists_in_some_release() -> None:
    known = {name for version in versions() for name in catalogue(version).flags}
    assert set(texts()) <= known
    assert len(texts()) > 280


def test_flags_of_the_reference_deployment_are_explained() -> None:
    flags = (
        "tp-size mem-fraction-static speculative-algorithm speculative-draft-model-path "
        "speculative-num-steps speculative-eagle-topk speculative-num-draft-tokens "
        "enable-hierarchical-cache hicache-ratio hicache-write-policy hicache-io-backend "
        "reasoning-parser tool-call-parser model-path served-model-name host port api-key"
    )
    assert set(flags.split()) <= set(texts())


def test_texts_are_whole_sentences() -> None:
    for name, one in texts().items():
        for part in (one.text, one.gpu, one.host):
            assert not part or part.endswith((".", ".)", "]")), (name, part)
            assert part == part.strip() and "  " not in part


def test_history_of_a_default_and_of_choices() -> None:
    spans = history("hicache-mem-layout")
    assert [(s.first, s.last) for s in spans][-1] == ("0.5.14", "0.5.23")
    assert spans[0].flag is not None and spans[0].flag.default == "layer_first"
    assert spans[-1].flag is not None and spans[-1].flag.default == "page_first"
    assert next(s.new for s in spans if s.new) == ("page_first_direct",)
    gone = history("disable-hicache-numa-detect")
    assert [(s.first, s.last, s.flag is not None) for s in gone] == [
        ("0.5.2", "0.5.7", False),
        ("0.5.8", "0.5.9", True),
        ("0.5.10", "0.5.23", False),
    ]
    assert history("no-such-flag") == []


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("hicache-ratio", "hicache-ratio"),
        ("--hicache_ratio", "hicache-ratio"),
        ("--hicache-ratio=4", "hicache-ratio"),
        ("tensor-parallel-size", "tp-size"),
        ("cuda-graph-bs", "cuda-graph-bs"),
    ],
)
def test_names(written: str, name: str) -> None:
    assert nearest(written) == name


@pytest.mark.parametrize(
    ("written", "version", "words"),
    [
        ("hicache-rat", "", ("hicache-ratio",)),
        ("mem-fraction", "", ("mem-fraction-static",)),
        ("hicahe-size", "", ("hicache-size",)),
        ("cuda-graph-bs", "0.5.23", ("0.5.2 to 0.5.19", "cuda-graph-bs-decode")),
        ("attn-dp-size", "0.5.9", ("0.5.9 does not have", "0.5.23")),
    ],
)
def test_wrong_names_lead_to_right_ones(written: str, version: str, words: tuple[str]) -> None:
    with pytest.raises(SpecError) as raised:
        nearest(written, version)
    assert all(word in str(raised.value) for word in words), str(raised.value)


def test_an_answer_has_rules_advisories_and_place() -> None:
    known = answer("hicache-io-backend", "0.5.9")
    assert known.text is not None and "flags.hicache-io-backend" in known.written
    assert "page-first-direct-needs-direct" in {rule.id for rule in known.rules}
    assert any("fa3" in entry.id for entry in known.advisories)
    assert "model.path" in answer("model-path").written
    assert "secrets.api-key" in answer("api-key").written
    assert "fa3-decode-with-kernel" not in {r.id for r in answer("hicache-io-backend").rules}


def test_every_flag_of_every_release_has_an_answer() -> None:
    """Also those that we have not explained, and as JSON."""
    for name in {name for version in versions() for name in catalogue(version).flags}:
        found = answer(name).as_json()
        assert json.loads(json.dumps(found))["history"]
        assert found["text"] or found["memory"] is None
