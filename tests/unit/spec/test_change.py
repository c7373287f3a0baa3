"""`--set`: what is written over a description, and what is refused."""

import pytest

from opsctl.errors import SpecError
from opsctl.spec import check
from opsctl.spec.change import changed, parsed

WRITTEN = {
    "model": {"path": "/srv/m"},
    "engine": {"version": "0.5.9"},
    "flags": {"tp-size": 8, "hicache-ratio": 4.0},
    "env": {"A": "1"},
}


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("hicache-ratio=3", ["flags", "hicache-ratio"], 3),
        ("--hicache-ratio=3", ["flags", "hicache-ratio"], 3),
        ("flags.hicache-ratio=3.5", ["flags", "hicache-ratio"], 3.5),
        ("enable-hierarchical-cache=true", ["flags", "enable-hierarchical-cache"], True),
        ("kv-cache-dtype=fp8_e4m3", ["flags", "kv-cache-dtype"], "fp8_e4m3"),
        ("memory.min_available=32GiB", ["memory", "min_available"], "32GiB"),
        ("env.SGLANG_X=1", ["env", "SGLANG_X"], "1"),
        ("env.URL=a=b", ["env", "URL"], "a=b"),
        ("engine.version=0.5.23", ["engine", "version"], "0.5.23"),
        ("model.served_name=123", ["model", "served_name"], "123"),
        ("port=30001", ["port"], 30001),
        ("gpus=[0, 1]", ["gpus"], [0, 1]),
        ("hicache-ratio=null", ["flags", "hicache-ratio"], None),
        ("memory.calibration.kv_tokens=5", ["memory", "calibration", "kv_tokens"], 5),
    ],
)
def test_a_key_and_its_value(text: str, path: list[str], value: object) -> None:
    assert parsed(text) == (path, value)


@pytest.mark.parametrize("text", ["hicache-ratio", "=3", "", "memory.=1", ".x=1", "a..b=1"])
def test_what_is_no_key_and_value(text: str) -> None:
    with pytest.raises(SpecError, match="is not KEY=VALUE"):
        changed(WRITTEN, [text])


def test_the_last_one_wins_and_null_deletes() -> None:
    after = changed(WRITTEN, ["hicache-ratio=3", "hicache-ratio=2", "env.A=null", "env.B=2"])
    assert after["flags"] == {"tp-size": 8, "hicache-ratio": 2}
    assert after["env"] == {"B": "2"}
    assert changed(after, ["hicache-ratio=null"])["flags"] == {"tp-size": 8}
    assert "env" not in changed(WRITTEN, ["env=null"])
    assert WRITTEN["flags"] == {"tp-size": 8, "hicache-ratio": 4.0}  # untouched


def test_deleting_what_is_not_there_changes_nothing() -> None:
    assert changed(WRITTEN, ["memory.swap=null", "page-size=null"]) == WRITTEN


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hicache-ratoi=3", "hicache-ratio"),
        ("memory.min_availble=1GiB", "min_available"),
        ("modle.path=/x", "modle.path"),
    ],
)
def test_a_wrong_name_gets_the_usual_message(text: str, words: str) -> None:
    _, found = check({"kimi": changed(WRITTEN, [text])}, {})
    assert found and words in " ".join(map(str, found))
