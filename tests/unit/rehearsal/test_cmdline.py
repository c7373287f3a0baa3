"""The stand-in takes what the engine's parser takes, and refuses like it."""

from __future__ import annotations

import pytest

from opsctl.rehearsal import cmdline
from opsctl.rehearsal.ranks import ranks


def test_values_are_typed_and_defaults_are_the_engines() -> None:
    flags = cmdline.parse("0.5.9", ["--model-path", "/m", "--hicache-ratio=4", "--tp-size", "8"])
    assert flags["hicache-ratio"] == 4.0
    assert flags["tp-size"] == 8
    assert flags["port"] == 30000
    assert flags["trust-remote-code"] is False
    assert cmdline.parse("0.5.23", ["--model-path", "/m"])["hicache-ratio"] is None


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--model-path", "/m", "--nonsense"], "unrecognized arguments: --nonsense"),
        (["--model-path", "/m", "--tp-size", "eight"], "invalid int value: 'eight'"),
        (["--model-path", "/m", "--hicache-write-policy", "x"], "invalid choice: 'x'"),
        ([], "the following arguments are required: --model-path"),
    ],
)
def test_refusals_are_argparses_own(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        cmdline.parse("0.5.9", argv)
    assert end.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "prefixes"),
    [
        ({}, [""]),
        ({"tp-size": 2}, [" TP0", " TP1"]),
        ({"tp-size": 2, "ep-size": 2}, [" TP0 EP0", " TP1 EP1"]),
        ({"pp-size": 2}, [" PP0", " PP1"]),
        ({"tp-size": 2, "dp-size": 2, "enable-dp-attention": True}, [" DP0 TP0", " DP1 TP1"]),
    ],
)
def test_log_prefixes(flags: dict[str, object], prefixes: list[str]) -> None:
    assert [rank.prefix for rank in ranks(flags)] == prefixes
