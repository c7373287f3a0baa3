"""The values that an inventory is read into."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opsctl.errors import Problem
    from opsctl.spec.models import Service


@dataclass(frozen=True)
class BookEntry:
    """One host: `connection` holds its ansible_* variables, templated; `unread`: what of its
    values could not be."""

    name: str
    connection: dict[str, Any]
    groups: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    unread: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class Book:
    """Names and addresses: enough for all verbs that do not need a description."""

    path: Path
    hosts: dict[str, BookEntry] = field(default_factory=dict)


@dataclass(frozen=True)
class HostEntry:
    name: str
    connection: dict[str, Any]
    groups: tuple[str, ...] = ()
    services: dict[str, Service] = field(default_factory=dict)


@dataclass(frozen=True)
class Inventory:
    """Whole descriptions. Holds secrets (as pydantic's SecretStr): never written anywhere."""

    path: Path
    hosts: dict[str, HostEntry] = field(default_factory=dict)
