"""What comes along, or is lost, when people copy a command from a page, a log or a list of
processes."""

from __future__ import annotations

import json
import re

from opsctl.importing.model import Report
from opsctl.importing.shell.words import Lit, Word

_COMMAND = (
    r"(?=\(?(?:[A-Z_]+=|\.?/|(?:sudo|python|sglang|docker|podman|nohup|exec|export|cd|bash)\b))"
)
_PROMPT = re.compile(
    r"^(?:\([\w.-]+\) )?(?:(?:[\w.-]+@[\w.-]+:|\[[\w.-]+@[\w.-]+[ :])[^\n$#]{0,80}[$#][ \t]+"
    + _COMMAND
    + r"|\$[ \t]+(?=\S))",
    re.MULTILINE,
)
_FENCE = re.compile(r"[ \t]*(```|~~~)[^\n]*")


def pasted(text: str, report: Report) -> str:
    """Without what comes along when people copy: prompts, fences of Markdown, odd blanks. Only a
    text that begins or ends with one has any: within quotes such a line is somebody's value."""
    found = text.replace("\r\n", "\n").replace("\u00a0", " ").replace("\ufeff", "")
    lines = found.rstrip().split("\n")
    while lines and not lines[0].strip():
        lines.pop(0)
    kept = list(lines)
    if kept and _FENCE.fullmatch(kept[0]):
        kept.pop(0)
    if kept and _FENCE.fullmatch(kept[-1]):
        kept.pop()
    if kept and _PROMPT.match(kept[0]):
        kept = [_PROMPT.sub("", line) for line in kept]
    if kept == lines:
        return found
    report.note("dropped", "prompts and fences", "they were copied along; no part of a command")
    return "\n".join(kept) + "\n"


def mended(words: list[Word], text: str, report: Report) -> list[Word]:
    """JSON without its quotes, as ps prints an argument: a shell would take it apart, and the
    process that was printed had it whole."""
    found: list[Word] = []
    at = 0
    while at < len(words):
        first = words[at].parts[0] if words[at].parts else None
        head = re.match(r"(--[\w-]+=)?(?=[\[{])", first.text) if isinstance(first, Lit) else None
        end = None
        if head is not None and isinstance(first, Lit) and not first.quoted:
            end = _json_end(words, at, text, words[at].start + len(head[0]))
        if end is None or head is None:
            found.append(words[at])
            at += 1
            continue
        raw = text[words[at].start + len(head[0]) : words[end].end]
        if '"' in raw:
            report.note(
                "changed",
                raw,
                "JSON without quotes around it, as a list of processes "
                "shows it, was taken whole: a shell would take it apart",
            )
        found.append(Word((Lit(head[0] + raw, True),), words[at].start, words[end].end))
        at = end + 1
    return found


def _json_end(words: list[Word], at: int, text: str, start: int) -> int | None:
    for end in range(at, min(at + 60, len(words))):
        raw = text[start : words[end].end]
        if not raw.endswith(("}", "]")):
            continue
        try:
            if isinstance(json.loads(raw), dict | list):
                return end
        except (ValueError, RecursionError):
            continue
    return None
