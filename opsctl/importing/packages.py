"""Packages of the engine in a command: which version they name, and what installs them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

# "sglang[all]==0.5.9", "sglang@0.5.9", "git+https://…/sglang.git@v0.5.9", "…/sglang-0.5.9-py3-…"
_PINNED = re.compile(
    r"(?<![\w-])sglang(?:\.git)?(?:\[[^\]]*\])?\s*(?:={1,3}|@|-)\s*v?[0-9][0-9A-Za-z.+]*"
)
_ENGINE = re.compile(r"(?<![\w-])sglang(?![\w-])|(?<![\w-])sglang-[0-9]")
_INSTALLERS = {"uv", "pipx", "conda", "mamba", "micromamba", "poetry"}
_VERBS = {"install", "add"}


def pinned(words: Iterable[str]) -> list[str]:
    """What names one version of the engine's package in them, without what stands around it: an
    address may hold a key."""
    return [found[0] for found in map(_PINNED.search, words) if found]


def installs(argv: Sequence[str]) -> bool:
    """Whether a command puts the engine into an environment, and does no more."""
    words = [PurePosixPath(argv[0]).name, *argv[1:]] if argv else []
    if len(words) > 2 and words[0].startswith("python") and words[1] == "-m":
        words = words[2:]
    named = bool(words) and (words[0] in _INSTALLERS or bool(re.match(r"pip[0-9.]*$", words[0])))
    verbs = [word for word in words[1:3] if not word.startswith("-")]
    return named and bool(_VERBS & {*verbs}) and any(_ENGINE.search(word) for word in words[2:])
