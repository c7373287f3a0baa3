"""Parsers against the model that is served. Which parsers there are, the catalogue knows.

Sources: the formats of the models' own chat templates; parser/reasoning_parser.py and
function_call/function_call_parser.py. Told by the name of the model's folder, so only as a note.
"""

from __future__ import annotations

import re

from opsctl.engine.rules.rule import LATER, Theme
from opsctl.engine.rules.view import View

THEME = Theme("Parsers and models")
REASONING, CALLS = "reasoning-parser", "tool-call-parser"

# Pattern of a model's name → reasoning parsers, tool-call parsers that read what it writes. Of
# several that match, the first counts.
FAMILIES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    (r"kimi[-_.]?k2", ("kimi_k2",), ("kimi_k2",)),
    (r"deepseek[-_.]?v3\.2", ("deepseek-v3", "deepseek-r1"), ("deepseekv32", "deepseekv31")),
    (r"deepseek[-_.]?v3\.1", ("deepseek-v3",), ("deepseekv31",)),
    (r"deepseek[-_.]?r1", ("deepseek-r1",), ("deepseekv3",)),
    (r"deepseek[-_.]?v3", ("deepseek-v3",), ("deepseekv3",)),
    (r"glm[-_.]?4\.7|glm[-_.]?5", ("glm45",), ("glm47",)),
    (r"glm[-_.]?4\.[56]", ("glm45",), ("glm45", "glm")),
    (r"gpt[-_.]?oss", ("gpt-oss",), ("gpt-oss",)),
    (r"minimax[-_.]?m2", ("minimax", "minimax-append-think"), ("minimax-m2",)),
    (r"qwen3[-_.]?coder", (), ("qwen3_coder",)),
    (r"qwen3", ("qwen3", "qwen3-thinking", "deepseek-r1"), ("qwen", "qwen25", "qwen3_coder")),
    (r"llama[-_.]?4", (), ("pythonic", "llama4")),
    (r"llama[-_.]?3", (), ("llama3", "pythonic")),
)
_ANY = {"auto", "interns1"}


def families() -> dict[str, list[str]]:
    """Parsers that some pattern names → the patterns that do."""
    found: dict[str, list[str]] = {}
    for pattern, *both in FAMILIES:
        for name in (n for parsers in both for n in parsers):
            found.setdefault(name, []).append(pattern)
    return found


def _name(v: View) -> str:
    return str(v.facts.model.get("folder") or "").rstrip("/").rsplit("/", 1)[-1]


def _mismatch(v: View, flag: str, place: int) -> bool | None:
    written = v.facts.flags.get(flag)
    if written is None or written in _ANY:
        return None
    right = next((f for f in FAMILIES if re.search(f[0], _name(v), re.IGNORECASE)), None)
    if right is None or not right[place]:
        return None
    # A parser that no family here names may be a newer one that fits.
    return written not in right[place] and str(written) in families()


@THEME.rule(
    LATER, "reasoning-parser-of-another-model", REASONING,
    "the model's folder has the name of a family that this parser does not read",
    "reasoning-parser {reasoning-parser} reads another model's marks, so reasoning_content stays "
    "empty, or takes the answer",
)  # fmt: skip
def _(v: View) -> bool | None:
    return _mismatch(v, REASONING, 1)


@THEME.rule(
    LATER, "tool-call-parser-of-another-model", CALLS,
    "the model's folder has the name of a family that this parser does not read",
    "tool-call-parser {tool-call-parser} reads another model's marks, so tool calls stay in the "
    "text",
)  # fmt: skip
def _(v: View) -> bool | None:
    return _mismatch(v, CALLS, 2)
