"""Any output of journalctl → journal records: short, short-iso, short-full, with-unit, verbose,
cat, json (also pretty, sse, seq), export; and plain log files of the engine.

The engine's own stamp "[2026-03-01 23:45:08 TP0] " is found wherever in a line it stands, so that
host names, unit names and container prefixes before it do not matter.
"""

from __future__ import annotations

import json
import re
from calendar import timegm
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from opsctl.onhost.model import Record
from opsctl.onhost.records import message, split

# What a served request logs, thousands of times: of no use here, but for the prefill lines.
_NOISE = ("Decode batch", "GET /", "POST /")
_STAMP = re.compile(r"\[(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?[^\]]*\]")
_SYSLOG = re.compile(
    r"^(?:\w{3} \d\d \d\d:\d\d:\d\d(?:\.\d+)?"  # short, short-precise
    r"|(?:\w{3} )?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:[+-]\d\d:?\d\d| [A-Z+-][\w:+-]*)?"
    r"|\d{9,}\.\d+"  # short-unix
    r"|\[ *[\d.]+(?: *<[^>]*>)? *\])"  # short-monotonic, short-delta
    r" \S+ (?P<tag>[^\s\[:]+)(?:\[(?P<pid>\d+)\])?: ?(?P<text>.*)$"
)


@dataclass(frozen=True, slots=True)
class Found:
    """A record, and the start and unit that journald says it is of; "" where it does not."""

    record: Record
    invocation: str = ""
    unit: str = ""


def found(text: str) -> Iterator[Found]:
    """The records of a text, in order."""
    head = text.lstrip("\ufeff \t\r\n")
    if head.startswith(("{", "data: {", "\x1e{")):
        return _json(text)
    if head.startswith("__CURSOR="):
        return _export(text)
    return _lines(text)


# -- json and export ------------------------------------------------------------------------------


def _json(text: str) -> Iterator[Found]:
    decoder, position = json.JSONDecoder(), 0
    while (position := text.find("{", position)) >= 0:
        try:
            fields, end = decoder.raw_decode(text, position)
        except ValueError:  # cut off, or no JSON at all: on with the next line
            position = text.find("\n", position)
            if position < 0:
                return
            continue
        position = end
        if isinstance(fields, dict):
            yield from _fields(fields)


def _export(text: str) -> Iterator[Found]:
    """KEY=VALUE lines, an empty line between records. A value with control characters stands as
    KEY, newline, eight bytes of length, the value: bytes that are no text make the length
    unreadable, so the value is taken to end where the next field begins."""
    for block in re.split(r"\n\n(?=__CURSOR=)", text.strip("\n")):
        yield from _fields(dict(_export_fields(block)))


_FIELD = re.compile(r"^([A-Z_][A-Z0-9_]*)(=|\n)", re.MULTILINE)


def _export_fields(block: str) -> Iterator[tuple[str, str]]:
    position = 0
    while (match := _FIELD.match(block, position)) is not None:
        begin = match.end() + (8 if match[2] == "\n" else 0)
        if match[2] == "=":
            end = block.find("\n", begin)
        else:
            following = re.compile(r"\n(?=[A-Z_][A-Z0-9_]*(?:=|\n))").search(block, begin)
            end = following.start() if following else -1
        end = len(block) if end < 0 else end
        yield match[1], block[begin:end]
        position = end + 1


def _fields(fields: Mapping[str, Any]) -> Iterator[Found]:
    text = message(fields.get("MESSAGE"))
    if any(noise in text[:200] for noise in _NOISE):
        return
    pid = _number(fields.get("_PID"))
    source = "" if pid == 1 else str(fields.get("SYSLOG_IDENTIFIER") or fields.get("_COMM") or "")
    invocation = str(fields.get("_SYSTEMD_INVOCATION_ID") or fields.get("INVOCATION_ID") or "")
    unit = str(fields.get("UNIT") if pid == 1 else fields.get("_SYSTEMD_UNIT") or "")
    time = _number(fields.get("__REALTIME_TIMESTAMP"))
    for line in split(text):
        yield Found(Record(time or stamp(line), line, pid, source), invocation, unit)


def _number(value: Any) -> int:
    text = str(value or "")
    return int(text) if text.isdigit() else 0


# -- lines ----------------------------------------------------------------------------------------


def _lines(text: str) -> Iterator[Found]:
    time = pid = 0
    for whole in re.split(r"\r?\n", text):
        if any(noise in whole[:300] for noise in _NOISE):
            continue
        line = whole.strip() if whole.startswith("    MESSAGE=") else whole
        line = line.removeprefix("MESSAGE=")
        match = _SYSLOG.match(line)
        tag = ""
        if match is not None:
            tag, line = match["tag"], match["text"]
            pid = int(match["pid"] or 0)
        for part in split(line):
            own = _STAMP.search(part[:400])
            if own is not None:
                part, time = part[own.start() :], stamp(own[0])
            source = "" if tag == "systemd" else tag or "python"
            yield Found(Record(time, part, pid, source))


def stamp(line: str) -> int:
    """The engine's stamp in microseconds, as if it were UTC: only differences count. 0: none."""
    match = _STAMP.search(line[:400])
    if match is None:
        return 0
    fraction = int((match[7] or "0").ljust(6, "0"))
    return _seconds(*(int(match[n]) for n in range(1, 7))) * 1_000_000 + fraction


@lru_cache(1024)
def _seconds(*parts: int) -> int:
    try:
        return timegm((*parts, 0, 0, 0))
    except ValueError:  # day 0, or month 13: no time at all
        return 0
