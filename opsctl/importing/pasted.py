"""What comes along, or is lost, when people copy a command from a page, a log or a list of
processes."""

from __future__ import annotations

import json
import re
from itertools import pairwise

from opsctl.importing.model import Report
from opsctl.importing.shell import Unreadable, commands
from opsctl.importing.shell.words import Lit, Word

_COMMAND = (
    r"(?=\(?(?:[A-Z_]+=|\.?/|(?:sudo|python|sglang|docker|podman|nohup|exec|export|cd|bash)\b|#))"
)
_PROMPT = re.compile(
    r"^(?:\([\w.-]+\) )?(?:(?:[\w.-]+@[\w.-]+:|\[[\w.-]+@[\w.-]+[ :])[^\n$#]{0,80}[$#][ \t]+"
    + _COMMAND
    + r"|\$[ \t]+(?=\S))",
    re.MULTILINE,
)
_SHOWN = re.compile(r"\$|[\w.-]+@[\w.-]+:\S{0,80}[$#]")  # a prompt of one word
_FENCE = re.compile(r"[ \t]*(```|~~~)[^\n]*")
_ROOT = re.compile(r"^#[ \t]+" + _COMMAND)
# What comes along from pages, and nobody sees.
_UNSEEN = re.compile("[\ufeff\u200b\u200c\u200d\u2060\u00ad]")
_BLANK = re.compile("[\u00a0\u2007\u202f]")
_DOUBLE, _SINGLE = "\u201c\u201d\u201e\u201f", "\u2018\u2019\u201a\u201b"
_DASHES = re.compile(
    "[-\u2010-\u2015\u2212]*[\u2010-\u2015\u2212][-\u2010-\u2015\u2212]*(?=[A-Za-z]|\\s)"
)


def pasted(text: str, report: Report) -> str:
    """Without what comes along when people copy: prompts, fences of Markdown, odd blanks, the
    quotes and dashes of a typesetter. Only a text that begins or ends with a prompt or a fence has
    any: within quotes such a line is somebody's value."""
    found = _BLANK.sub(" ", _UNSEEN.sub("", text.replace("\r\n", "\n")))
    lines = found.rstrip().split("\n")
    while lines and not lines[0].strip():
        lines.pop(0)
    kept = list(lines)
    if kept and _FENCE.fullmatch(kept[0]):
        kept.pop(0)
    if kept and _FENCE.fullmatch(kept[-1]):
        kept.pop()
    heads = [line for before, line in pairwise(["", *kept]) if not before.endswith("\\")]
    first = next((line for line in heads if line.strip() and not line.startswith("#")), "")
    if _PROMPT.match(first):
        kept = [_PROMPT.sub("", line) for line in kept]
    elif not first and sum(_ROOT.match(line) is not None for line in kept) == 1:
        kept = [line[1:].lstrip() if _ROOT.match(line) else line for line in kept]
    if kept != lines:
        found = "\n".join(kept) + "\n"
    bare = _unprompted(found)
    if kept != lines or bare != found:
        report.note("dropped", "prompts and fences", "they were copied along; no part of a command")
    return _typed(bare, report)


def _unprompted(text: str) -> str:
    """Without the prompts before some of its commands: there they stand where a shell reads the
    name of a program, and so in nobody's quotes."""
    try:
        firsts = [simple.words[0] for simple in commands(text) if simple.words]
    except Unreadable:
        return text
    for word in sorted(firsts, key=lambda word: -word.start):
        if _SHOWN.fullmatch(text, word.start, word.end):
            text = text[: word.start] + " " * (word.end - word.start) + text[word.end :]
    return text


def _typed(text: str, report: Report) -> str:
    """With the quotes and dashes that a keyboard has, outside of quotes: there they may be meant.
    Single ones only if they come in pairs, since they stand for an apostrophe, too."""
    pairs = sum(text.count(one) for one in _SINGLE) % 2 == 0
    found, quote, at, changed = "", "", 0, set()
    while at < len(text):
        char, start = text[at], at == 0 or text[at - 1].isspace()
        if not quote and start and char == "#":
            end = (text.find("\n", at) + 1) or len(text)
            found, at = found + text[at:end], end
            continue
        if not quote and start and (dashes := _DASHES.match(text, at)):
            word = re.compile("[A-Za-z]+").match(text, dashes.end())
            found += "-" if word and len(word[0]) == 1 else "--"
            changed.add(dashes[0])
            at = dashes.end()
            continue
        typed = '"' if char in _DOUBLE else "'" if char in _SINGLE and pairs else ""
        if char == "\\" and quote != "'":
            found, at = found + text[at : at + 2], at + 2
            continue
        if typed and (quote in ("", f"{typed}~") or (typed, quote) == ('"', "'~")):
            changed.add(char)
            if quote != "'~" or typed == "'":
                quote = "" if quote else f"{typed}~"
            char = typed
        elif char in "'\"" and quote in ("", char):
            quote = "" if quote else char
        found, at = found + char, at + 1
    if changed:
        signs = " ".join(sorted(changed))
        why = "a page made them of a keyboard's own, which were taken: they are text to a shell"
        report.note("changed", f"typographic signs {signs}", why)
    return found


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
