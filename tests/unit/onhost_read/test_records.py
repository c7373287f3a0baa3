"""What `journalctl -o json --all` really gives: strings, bytes, nulls, bars, escapes."""

import json

import pytest

from opsctl.onhost.records import harmless, journalctl_argv, message, parse_export, split


def line(**fields: object) -> str:
    return json.dumps({"__REALTIME_TIMESTAMP": "1772408708000000", "_PID": "77", **fields})


def test_a_record_has_time_pid_source_and_text() -> None:
    [record] = parse_export([line(MESSAGE="hello", SYSLOG_IDENTIFIER="python")])
    assert record.time == 1772408708000000
    assert (record.pid, record.source, record.text) == (77, "python", "hello")


def test_systemds_own_lines_have_no_source() -> None:
    [record] = parse_export([line(MESSAGE="Started x.", _PID="1", SYSLOG_IDENTIFIER="systemd")])
    assert record.source == ""


@pytest.mark.parametrize(
    "value, text",
    [
        ("plain", "plain"),
        ([104, 105], "hi"),
        ([255, 104], "\ufffdh"),
        (None, ""),
        (["one", "two"], "one\ntwo"),
        ([[104], "x"], "h\nx"),
    ],
)
def test_every_form_of_message(value: object, text: str) -> None:
    assert message(value) == text


@pytest.mark.parametrize("bad", ["", "-- Boot 1 --", '{"MESSAGE": "cut o', "[1, 2]", "null", "{}"])
def test_lines_that_are_no_record_do_not_stop_the_reading(bad: str) -> None:
    good = line(MESSAGE="after")
    assert [r.text for r in parse_export([bad, good]) if r.text] == ["after"]


def test_null_and_unknown_fields_are_a_record_without_text() -> None:
    [record] = parse_export([line(MESSAGE=None, FANCY=[1, {"a": 2}])])
    assert record.text == ""


BAR = "\rLoading shards:   0% Completed | 0/9\rLoading shards:  11% Completed | 1/9"
LOG = "[2026-03-01 23:45:08 TP0] Load weight end. elapsed=1.00 s"


@pytest.mark.parametrize(
    "text, lines",
    [
        (BAR, ["Loading shards:  11% Completed | 1/9"]),
        (BAR + LOG, ["Loading shards:  11% Completed | 1/9", LOG]),
        (BAR + "\r" + LOG, ["Loading shards:  11% Completed | 1/9", LOG]),
        (LOG + "\r\n", [LOG]),
        (LOG + BAR, [LOG, "Loading shards:  11% Completed | 1/9"]),
        ("two\nlines", ["two", "lines"]),
        ("", [""]),
        (" \r ", []),
    ],
)
def test_bars_keep_their_last_state_and_glued_lines_stand_alone(
    text: str, lines: list[str]
) -> None:
    """The engine's bars end in no newline from 0.5.10 on, so the next line is glued to them."""
    assert split(text) == lines


@pytest.mark.parametrize(
    "text, shown",
    [
        ("\x1b[1;33mwarn\x1b[0m", "warn"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]52;c;ZXZpbA==\x1b\\x", "x"),
        ("a\x1b[2J\x1b[Hb", "ab"),
        ("bell\x07", "bell\ufffd"),
        ("\x9b31mred", "\ufffd31mred"),
        ("abc\u202egnp.exe", "abc\ufffdgnp.exe"),
        ("tab\tstays", "tab\tstays"),
        ("lone \x1b", "lone"),
    ],
)
def test_nothing_reaches_a_terminal_but_text(text: str, shown: str) -> None:
    assert harmless(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "server_args=ServerArgs(model_path='/m', api_key='CANARY', x=1)",
        "server_args={'api_key': 'CANARY', 'admin_api_key': 'CANARY'}",
        "ServerArgs(admin_api_key=\"CANARY it's\", api_key='CAN\\'ARY CANARY')",
        "python -m sglang.launch_server --api-key CANARY --port 1",
        "python -m sglang.launch_server --admin-api-key=CANARY",
        "Authorization: Bearer CANARY",
    ],
)
def test_keys_that_the_engine_prints_are_masked(text: str) -> None:
    assert "CANARY" not in harmless(text)
    assert "***" in harmless(text)


def test_a_missing_key_is_no_secret() -> None:
    assert "api_key=None" in harmless("ServerArgs(api_key=None, tokenizer_path='/m')")
    assert "tokenizer_path='/m'" in harmless("ServerArgs(api_key=None, tokenizer_path='/m')")


def test_both_matches_of_an_invocation_are_asked_for() -> None:
    argv = journalctl_argv("sglang-kimi.service", "abc", follow=True)
    assert argv[-3:] == ["_SYSTEMD_INVOCATION_ID=abc", "+", "INVOCATION_ID=abc"]
    assert "--all" in argv and "--follow" in argv and "--no-tail" in argv
    assert not any(part.startswith("--unit") for part in argv)


def test_all_starts_of_a_unit() -> None:
    argv = journalctl_argv("sglang-kimi.service", lines=50)
    assert argv[-1] == "--unit=sglang-kimi.service"
    assert "--lines=50" in argv


def test_each_start_begins_with_the_first_word_of_systemd_about_it() -> None:
    """Records of jobs carry no invocation; those of one start carry the same."""
    from opsctl.onhost.startlines import starts_in

    said = [
        '{"__REALTIME_TIMESTAMP": "100", "INVOCATION_ID": "a"}',
        '{"__REALTIME_TIMESTAMP": "150"}',
        '{"__REALTIME_TIMESTAMP": "200", "INVOCATION_ID": "a"}',
        '{"__REALTIME_TIMESTAMP": "300", "INVOCATION_ID": "b"}',
    ]
    assert starts_in(said) == [100, 300]
