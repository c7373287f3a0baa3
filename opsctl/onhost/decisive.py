"""The lines that decided how a start failed: the engine's own, the cause first, then one line of
systemd's. Pure.

systemd tells that a process has ended, hardly ever why. So its word counts as a cause only where
causes.py knows it as one (the OOM killer, a command that could not be run); else one line of it
stands last. An engine that ends with words that no row of causes.py knows is quoted with its last
ones: they are better evidence than an exit status.
"""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Optional

from .causes import Cause
from .wording import parse_prefix

MOST = 8  # lines that a person reads
LAST_WORDS = 4
DECIDING = 30  # a weight of causes.py: from here on a line says something of the reason
# Of several lines of systemd about one end, the one that tells most stands for all.
_TELLS_MOST = ("unit_oom", "unit_error", "unit_exit", "unit_failed", "unit_limit")


class _Told(NamedTuple):
    weight: int
    order: int
    text: str
    systemd: bool


class Decisive:
    """Takes the lines of one start as they come; `lines` may be asked at any time."""

    def __init__(self) -> None:
        self._told: Dict[str, _Told] = {}  # by shape
        self._systemd: Dict[str, str] = {}  # kind of event → its first line
        self._words: List[str] = []  # the engine's last lines, of each shape the last

    def heard(self, text: str) -> None:
        """A line of the engine, whatever it says."""
        if text.strip():
            shape = _shape(text)
            kept = [word for word in self._words if _shape(word) != shape]
            self._words = [*kept, text][-LAST_WORDS:]

    @property
    def silent(self) -> bool:
        return not self._words

    def error(self, text: str, weight: int) -> None:
        """A line of the engine or the kernel that tells of a failure."""
        self._tell(text, weight, systemd=False)

    def systemd(self, kind: str, text: str, cause: Optional[Cause]) -> None:
        self._systemd.setdefault(kind, text)
        if cause is not None:
            self._tell(text, cause.weight, systemd=True)

    def _tell(self, text: str, weight: int, *, systemd: bool) -> None:
        """The same line of eight ranks is one line; figures and addresses in it may differ."""
        self._told.setdefault(_shape(text), _Told(weight, len(self._told), text, systemd))

    def lines(self, over: bool) -> List[str]:
        """`over`: the process has ended, so that its last lines are its last words."""
        found = sorted(self._told.values(), key=lambda told: (-told.weight, told.order))
        if over and all(told.weight < DECIDING for told in found):
            weak = [told.text for told in found]
            last = [word for word in self._words if word not in weak][-1:]
            words = last + [word for word in self._words if word not in last]
            words += [text for text in weak if text not in words]
        else:
            words = [told.text for told in found]
        words = words[:MOST]
        if any(told.systemd and told.text in words for told in found):
            return words
        end = next((self._systemd[kind] for kind in _TELLS_MOST if kind in self._systemd), None)
        return words if end is None else [*words[: MOST - 1], end]


def _shape(text: str) -> str:
    return re.sub(r"\d+", "#", parse_prefix(text).rest)
