"""Files that somebody names to `opsctl forecast`, and that are not what they should be."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsctl.cli.foretelling import Files, _unused, folder
from opsctl.errors import Refused


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "no JSON: "), ('{"a"', "no JSON: "), ("[]", "no JSON object"), ("3", "no JSON object")],
)
@pytest.mark.parametrize("option", ["--model-config", "--draft-config"])
def test_what_is_no_json_is_told_by_its_own_name(tmp_path: Path, text, words, option) -> None:
    path = tmp_path / "draft.json"
    path.write_text(text)
    with pytest.raises(Refused, match=f"{option}: .*draft.json is {words}"):
        folder(path, option)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({}, "speculative-algorithm is not set"),
        ({"speculative-algorithm": "NGRAM"}, "NGRAM has no draft model"),
        ({"speculative-algorithm": "EAGLE3"}, ""),
    ],
)
def test_a_draft_that_nothing_asks_for_is_told(flags, words) -> None:
    said = _unused(flags, Files(draft=Path("draft.json")))
    assert (words in said[0]) if words else said == ()
    assert _unused(flags, Files()) == ()
