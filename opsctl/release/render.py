"""Service → release: the only renderer, for Ansible and for `opsctl render` alike. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from opsctl import engine
from opsctl.errors import Problem, Problems, SpecError
from opsctl.onhost import bundle as onhost_bundle
from opsctl.release import secrets
from opsctl.release.digest import PLACEHOLDER, digest, secret_mark
from opsctl.release.manifest import manifest
from opsctl.release.model import File, Release
from opsctl.release.unit import unit_text
from opsctl.spec.models import Service

# What the description says elsewhere, and where.
RESERVED = {
    "model-path": "model.path",
    "served-model-name": "model.served_name",
    "host": "host",
    "port": "port",
    "api-key": "secrets.api-key",
    "admin-api-key": "secrets.admin-api-key",
}
# Flags whose value is a secret, and which the engine takes from argv only.
NEVER = {"ssl-keyfile-password": "use a key file without a passphrase, readable by the user only"}

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
    _check_names(name, service)
    typed, arguments, ranks = _command(name, service)
    found = secrets.values(service.secrets)
    if problems := secrets.check(found, name, service.env):
        raise SpecError(problems)

    def unit(digest_text: str) -> str:
        return unit_text(name, service, arguments, sorted(found), typed, digest_text)

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


def _check_names(name: str, service: Service) -> None:
    """Names that become paths and unit names."""
    problems = Problems()
    version, root = service.engine.version, service.engine.root or ""
    if not _NAME.fullmatch(name) or ".." in name:
        problems.add(
            Problem(
                "the service's name cannot name a unit and a folder",
                service=name,
                allowed="a-z, 0-9, and . _ - within; up to 64 characters",
            )
        )
    if not _VERSION.fullmatch(version):
        problems.add(
            Problem("is no version", service=name, key="engine.version", value=repr(version))
        )
    if ":" in root:
        problems.add(
            Problem("a folder on PATH cannot hold a :", service=name, key="engine.root", value=root)
        )
    for key in sorted(RESERVED.keys() & service.flags.keys()):
        problems.add(
            Problem(
                "is set elsewhere", service=name, key=f"flags.{key}", hint=f"use {RESERVED[key]}"
            )
        )
    for key in sorted(NEVER.keys() & service.flags.keys()):
        problems.add(
            Problem("would stand in argv", service=name, key=f"flags.{key}", hint=NEVER[key])
        )
    problems.raise_if_any()


def _command(name: str, service: Service) -> tuple[dict[str, Any], list[str], list[str]]:
    """The typed flags (without our own four), all arguments in a fixed order, the ranks."""
    catalogue = engine.catalogue(service.engine.version)
    ours: dict[str, Any] = {
        "model-path": service.model.path,
        "served-model-name": service.model.served_name,
        "host": service.host,
        "port": service.port,
    }
    ours = {key: value for key, value in ours.items() if value is not None}
    first, problems = catalogue.check(ours)
    typed, more = catalogue.check(service.flags)
    if problems or more:
        raise SpecError([_problem(problem, name) for problem in (*problems, *more)])
    typed = dict(sorted(typed.items()))
    arguments = [*catalogue.argv(first), *catalogue.argv(typed)]
    return typed, arguments, list(catalogue.ranks(typed))


def _problem(problem: Any, service: str) -> Problem:
    if isinstance(problem, Problem):
        return problem
    return Problem(str(problem), service=service)


@lru_cache
def _launcher() -> bytes:
    return Path(__file__).with_name("launch.py").read_bytes()
