"""Makes a host's words harmless to a terminal and bounded in length.

What a host sends may draw on the operator's terminal (ESC sequences), reorder what is read
(bidi overrides), or be no text at all. Each such character is shown by a visible stand-in, never
dropped: a log line that looks odd must look odd.
"""

from __future__ import annotations

import re
from typing import Any

_LINE = 16 * 1024  # characters of one line that are shown
# C0 without tab and newline, DEL, C1; line and paragraph separators; lone surrogates; and all
# of Unicode's format characters (category Cf): bidi controls, zero-width and other invisible ones.
_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff0-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f]"
)


def _stand_in(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)  # the picture of the control character
    return "\u2421" if code == 0x7F else f"<U+{code:04X}>"


def text(value: str | bytes, *, line: int = _LINE) -> str:
    """The text without anything that acts on a terminal; lines cut after `line` characters."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", errors="replace")
    value = value.replace("\r\n", "\n")
    if _HARMFUL.search(value):
        value = _HARMFUL.sub(_stand_in, value)
    if len(value) <= line:
        return value
    return "\n".join(_cut(part, line) for part in value.split("\n"))


def _cut(part: str, line: int) -> str:
    return part if len(part) <= line else f"{part[:line]}… ({len(part)} characters)"


def tree(value: Any) -> Any:
    """The same for every string of a JSON document, where "\\u001b" hides what `text` removes."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, dict):
        return {text(str(key)): tree(part) for key, part in value.items()}
    if isinstance(value, list):
        return [tree(part) for part in value]
    return value
