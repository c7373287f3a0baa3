"""Where a value was written: the reader's "file:line" for every leaf, asked by the merged key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DEFAULT = "default"
UNKNOWN = "set; Ansible does not say where"


@dataclass(frozen=True)
class Origins:
    """Of one host. `places`: "sglang_services.kimi.flags.tp-size" → "file:line", and so on."""

    places: Mapping[str, str]
    changes: Mapping[str, Any]  # the host's sglang_overrides

    def of(self, service: str, key: str = "") -> str:
        """ "file:line" of `key` (dotted), or of what stands nearest to it: good for a message."""
        path = f"{service}.{key}" if key else service
        root = self._root(path)
        path, least = f"{root}.{path}", f"{root}.{service}"
        while path.startswith(least):
            if place := self._exactly(path):
                return place
            path = path.rpartition(".")[0]
        return ""

    def exactly(self, service: str, *keys: str) -> str:
        """ "file:line" of the first of these names of one value that was written; else ""."""
        paths = [f"{service}.{key}" for key in keys]
        places = (self._exactly(f"{self._root(path)}.{path}") for path in paths)
        return next((place for place in places if place), "")

    def _exactly(self, path: str) -> str:
        """Of the value itself, or of its first part."""
        below = (place for known, place in self.places.items() if known.startswith(f"{path}."))
        return self.places.get(path) or next(below, "")

    def _root(self, path: str) -> str:
        return "sglang_overrides" if self._changed(path) else "sglang_services"

    def _changed(self, path: str) -> bool:
        """Whether the overrides have this very key, or a value above it."""
        level: Any = self.changes
        rest = path
        while isinstance(level, Mapping):
            # Names hold dots (flags do not, services may): take the longest that is there.
            key = max(
                (k for k in level if rest == k or rest.startswith(f"{k}.")), key=len, default=""
            )
            if not key:
                return False
            level, rest = level[key], rest[len(key) + 1 :]
            if not rest:
                return True
        return True
