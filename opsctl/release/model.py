"""A release as a value: the files of one folder under /etc/opsctl/SERVICE/releases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SECRETS = "secrets/"  # files below it are secret: 0600 in a 0700 folder, and shown nowhere


@dataclass(frozen=True)
class File:
    """One file. The content is left out of repr(), since it may be a secret."""

    mode: int
    content: bytes = field(repr=False)


@dataclass(frozen=True)
class Release:
    service: str
    digest: str
    files: Mapping[str, File]
    manifest: Mapping[str, Any]

    @property
    def unit(self) -> str:
        """The unit's text."""
        return self.files[self.manifest["unit"]].content.decode()


def folder_of(service: str, digest: str) -> str:
    """Where a release's files stand on the host."""
    return f"/etc/opsctl/{service}/releases/{digest}"
