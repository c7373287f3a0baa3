"""Service → release: the only renderer, for Ansible and for `opsctl render` alike. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from opsctl import engine
from opsctl.engine.refused import Refused
from opsctl.engine.values import typed as typed_value
from opsctl.errors import Problem, Problems, SpecError
from opsctl.onhost import bundle as onhost_bundle
from opsctl.release import secrets
from opsctl.release.digest import PLACEHOLDER, digest, secret_mark
from opsctl.release.facts import limit_of
from opsctl.release.manifest import manifest
from opsctl.release.model import File, Release
from opsctl.release.unit import unit_text
from opsctl.spec.models import Service

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+]{0,40}")


def render(
    name: str,
    service: Service,
    *,
    expect: Mapping[str, Any] | None = None,
    zipapp: bytes | None = None,
) -> Release:
    """The release of a service. `zipapp` is the ground floor; built from this package if None.

    Raises SpecError with every problem: an unknown flag, a value that systemd cannot hand over,
    a secret that could not stay secret.
    """
    if wrong := [*_names(name, service)]:
        raise SpecError(wrong)
    found = secrets.values(service.secrets)
    wrong = secrets.check(found, name)
    try:
        typed, arguments, ranks = _command(name, service)
    except SpecError as error:
        raise SpecError([*wrong, *error.problems]) from None
    if wrong:
        raise SpecError(wrong)

    def unit(digest_text: str) -> str:
        limit = limit_of(service, expect)
        return unit_text(name, service, arguments, sorted(found), typed, digest_text, limit)

    launcher = _launcher() if found else b""
    marks = {secret: secret_mark(name, secret, value) for secret, value in found.items()}
    named = digest(unit(PLACEHOLDER), launcher, service.engine.version, marks)
    about = manifest(name, service, typed, named, ranks, expect, marks)
    public = {about["unit"]: unit(named), "release.json": json.dumps(about, indent=1) + "\n"}
    if leaked := secrets.leaks(found, public.values(), name):
        raise SpecError(leaked)
    files = {file: File(0o644, text.encode()) for file, text in public.items()}
    files["onhost.pyz"] = File(0o644, onhost_bundle.build() if zipapp is None else zipapp)
    if found:
        files |= {"launch.py": File(0o644, launcher), **secrets.files(found)}
    return Release(name, named, files, about)


def problems(name: str, service: Service) -> list[Problem]:
    """All for which `render` refuses the service."""
    try:
        render(name, service, zipapp=b"")
    except SpecError as error:
        return list(error.problems)
    return []


def _names(name: str, service: Service) -> Iterator[Problem]:
    """Names that become paths and unit names."""
    version, root = service.engine.version, service.engine.root or ""
    if not _NAME.fullmatch(name) or ".." in name:
        yield Problem(
            "the service's name cannot name a unit and a folder",
            service=name,
            allowed="a-z, 0-9, and . _ - within; up to 64 characters",
        )
    if not _VERSION.fullmatch(version):
        yield Problem("is no version", service=name, key="engine.version", value=repr(version))
    if ":" in root:
        yield Problem(
            "a folder on PATH cannot hold a :", service=name, key="engine.root", value=root
        )


def _command(name: str, service: Service) -> tuple[dict[str, Any], list[str], list[str]]:
    """The typed flags (without our own four), all arguments in a fixed order, the ranks."""
    catalogue = engine.catalogue(service.engine.version)
    typed, problems = catalogue.check(service.flags, name)
    if problems:
        raise SpecError(problems)
    try:
        ranks = catalogue.ranks(typed)
    except ValueError as error:
        raise SpecError([Problem(str(error), service=name, key="flags")]) from None
    return typed, [*catalogue.argv(_ours(name, service, catalogue)), *catalogue.argv(typed)], ranks


def _ours(name: str, service: Service, catalogue: engine.Catalogue) -> dict[str, Any]:
    """The flags that the description writes in a place of their own, typed."""
    places = {
        "model-path": ("model.path", service.model.path),
        "served-model-name": ("model.served_name", service.model.served_name),
        "host": ("host", service.host),
        "port": ("port", service.port),
    }
    problems, found = Problems(), {}
    for flag, (key, value) in places.items():
        if value is None:
            continue
        try:
            found[flag] = typed_value(catalogue.flags[flag], value)
        except Refused as refused:
            problems.add(
                Problem(
                    refused.message,
                    service=name,
                    key=key,
                    value=ascii(value),
                    allowed=refused.allowed,
                    hint=refused.hint,
                )
            )
    problems.raise_if_any()
    return found


@lru_cache
def _launcher() -> bytes:
    return Path(__file__).with_name("launch.py").read_bytes()
