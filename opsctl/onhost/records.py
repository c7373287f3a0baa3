"""Journal records: how to ask for them, and how to read the answer.

Sources: journald's export format, tried on Debian 12 (systemd 252). MESSAGE is a string, an array
of byte values (any carriage return, ESC or bad UTF-8), or null (above 4 KiB without --all). One
record may hold a progress bar's every state, joined by carriage returns, with a log line glued to
its end: the engine's bars do not end in a newline from 0.5.10 on.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, Iterable, Iterator, List

from .model import Record

# server_args= is 10 to 19 KB; journald itself splits at 48 KiB.
LONGEST = 65536

FIELDS = "MESSAGE,_PID,SYSLOG_IDENTIFIER,_COMM,_TRANSPORT"

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]P^_X].*?(?:\x07|\x1b\\|$)"  # OSC, DCS, PM, APC, SOS: titles, links, clipboards
    r"|\x1b[ -/]*[0-~]?",  # the rest
    re.DOTALL,
)
# C0 but tab, DEL, C1, the line and paragraph separators, and the marks that turn text around.
_CONTROL = re.compile(
    r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
_PREFIX = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
# Every version prints its arguments, the API keys among them. The launcher redacts them already;
# a unit that somebody else wrote does not.
_SECRET = re.compile(
    r"(?i)((?:api[_-]?key|token|password|secret)['\"]?\s*[=:]\s*)"
    r"('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
)
_SECRET_FLAG = re.compile(r"(?i)(--(?:admin-)?api-key[= ])\S+")
_BEARER = re.compile(r"(?i)(bearer\s+)[^\s'\",]+")


def journalctl_argv(
    unit: str,
    invocation: str = "",
    *,
    follow: bool = False,
    lines: int = 0,
    since: str = "",
) -> List[str]:
    """The journalctl command for one start of a unit, or for all its starts if no invocation.

    Both matches are needed: the engine's lines carry _SYSTEMD_INVOCATION_ID, systemd's own ("Main
    process exited", "Failed with result") only INVOCATION_ID. --all, or long lines come as null.
    `lines` is the number of last lines (0: all); `since` is anything that journalctl takes.
    """
    argv = ["journalctl", "-o", "json", "--all", "--no-pager", "--quiet"]
    argv.append(f"--output-fields={FIELDS}")
    if lines:
        argv.append(f"--lines={lines}")
    if since:
        argv.append(f"--since={since}")
    if follow:
        argv.append("--follow")
        if not lines:
            argv.append("--no-tail")
    if invocation:
        argv += [f"_SYSTEMD_INVOCATION_ID={invocation}", "+", f"INVOCATION_ID={invocation}"]
    else:
        argv.append(f"--unit={unit}")
    return argv


def parse_export(text_lines: Iterable[str]) -> Iterator[Record]:
    """Records from the lines of `journalctl -o json --all`; lines that are no JSON are skipped.

    One journal record gives several where a bar and log lines were glued together.
    """
    for line in text_lines:
        line = line.strip()
        if not line.startswith("{"):
            continue
        try:
            fields = json.loads(line)
        except ValueError:  # the last line of a journalctl that was cut off
            continue
        if isinstance(fields, dict):
            yield from _records(fields)


def _records(fields: Dict[str, Any]) -> Iterator[Record]:
    pid = _number(fields.get("_PID"))
    source = _first(fields.get("SYSLOG_IDENTIFIER")) or _first(fields.get("_COMM"))
    if pid == 1 or source == "systemd":
        source = ""
    time = _number(fields.get("__REALTIME_TIMESTAMP"))
    for text in split(message(fields.get("MESSAGE"))):
        yield Record(time=time, text=text, pid=pid, source=source)


def message(value: Any) -> str:
    """The text of a MESSAGE field, whichever of its forms it has."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        if all(isinstance(item, int) for item in value):
            return bytes(item & 0xFF for item in value).decode("utf-8", "replace")
        return "\n".join(message(item) for item in value)  # the field was given more than once
    return ""


def split(text: str) -> List[str]:
    """The lines that one journal message stands for, harmless to show.

    Of a progress bar only the last state is kept. A log line that is glued to a bar's end begins
    at its "[date" and stands by itself.
    """
    kept: List[str] = []
    bar = ""
    for part in re.split(r"[\r\n]+", text[:LONGEST]):
        cut = _PREFIX.search(part) if "\r" in text else None
        head, line = (part[: cut.start()], part[cut.start() :]) if cut else (part, "")
        if "\r" not in text:
            kept.append(harmless(part))
        elif head.strip():
            bar = harmless(head)
        if line:
            kept += [bar, harmless(line)]
            bar = ""
    kept.append(bar)
    return [line for line in kept if line.strip()] or ([] if text else [""])


def harmless(text: str) -> str:
    """Text that a terminal shows as it is: no escape sequence, no control character, no secret."""
    text = _ESCAPES.sub("", text)
    text = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
    text = _SECRET.sub(r"\1'***'", text)
    text = _SECRET_FLAG.sub(r"\1***", text)
    return _BEARER.sub(r"\1***", text).rstrip()


def _number(value: Any) -> int:
    try:
        return int(_first(value) or 0)
    except ValueError:
        return 0


def _first(value: Any) -> str:
    """A field that was sent more than once is a list; bytes are a list of integers."""
    if isinstance(value, list) and value and isinstance(value[0], str):
        return value[0]
    return message(value) if value is not None and not isinstance(value, int) else str(value or "")
