"""EnvironmentFile=, by systemd's own rules: neither a shell's nor docker's."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read(text: str) -> tuple[dict[str, str], list[str]]:
    """The variables; and the names that systemd ignores because they are none."""
    found: dict[str, str] = {}
    wrong: list[str] = []
    at = 0
    text = text.replace("\r\n", "\n")
    while at < len(text):
        if text[at] in " \t\n":
            at += 1
        elif text[at] in "#;":
            at = _line_end(text, at)
        else:
            end = text.find("=", at)
            stop = text.find("\n", at)
            if end < 0 or 0 <= stop < end:
                at = _line_end(text, at)
                continue
            name = text[at:end].strip()
            value, at = _value(text, end + 1)
            if _NAME.fullmatch(name.removeprefix("export ").strip()) and " " not in name:
                found[name] = value
            else:
                wrong.append(name)
    return found, wrong


def _line_end(text: str, at: int) -> int:
    """Past the line; a backslash continues even a comment."""
    while True:
        end = text.find("\n", at)
        if end < 0:
            return len(text)
        if text[end - 1 : end] != "\\":
            return end + 1
        at = end + 1


def _value(text: str, at: int) -> tuple[str, int]:
    held, kept = "", 0  # blanks after `kept` characters count only if more follows
    while at < len(text) and text[at] in " \t":
        at += 1
    while at < len(text) and text[at] != "\n":
        char = text[at]
        at += 1
        if char == "\\" and at < len(text):
            if text[at] != "\n":
                held += text[at]
                kept = len(held)
            at += 1
        elif char in "'\"":
            piece, at = _quoted(text, at, char)
            held += piece
            kept = len(held)
        else:
            held += char
            kept = len(held) if char not in " \t" else kept
    return held[:kept], at + 1


def _quoted(text: str, at: int, quote: str) -> tuple[str, int]:
    held = ""
    while at < len(text) and text[at] != quote:
        if text[at] == "\\" and quote == '"' and at + 1 < len(text):
            following = text[at + 1]
            held += (
                ""
                if following == "\n"
                else following
                if following in '"\\`$'
                else ("\\" + following)
            )
            at += 2
            continue
        held += text[at]
        at += 1
    return held, at + 1
