"""Puts a release on a host, with its expectation: for the CLI and for Ansible alike.

Restarts nothing. The secrets travel through the connection's stdin only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opsctl import forecast
from opsctl.errors import DoesNotFit
from opsctl.release.bundle import bundle
from opsctl.release.diff import verdict
from opsctl.release.facts import draft_of
from opsctl.release.model import Release
from opsctl.release.render import render
from opsctl.remote import onhost
from opsctl.remote.host import Host
from opsctl.spec.models import Service

_GIB = 1 << 30


@dataclass(frozen=True)
class Staged:
    """`changed`: whether files differ (or would, with check). `diff`: for people, secrets masked.
    `verdict`: "restart: …" or "no restart: …", against what runs there now. `warning`: a forecast
    that was overridden."""

    host: str
    service: str
    digest: str
    changed: bool
    diff: str
    verdict: str
    release: Release
    warning: str = ""


def stage(
    host: Host, name: str, service: Service, *, check: bool = False, override: str = ""
) -> Staged:
    """Forecast, render, send. `override`: the reason to stage what the forecast says does not fit.

    Raises SpecError, DoesNotFit, Unreachable, or the host's own OpsctlError.
    """
    release, standing, warning = prepare(host, name, service, override=override)
    answer = send(host, release, check=check)
    return Staged(
        host.name,
        name,
        release.digest,
        bool(answer.get("changed")),
        str(answer.get("diff") or ""),
        verdict(standing, release.manifest),
        release,
        warning,
    )


def prepare(
    host: Host, name: str, service: Service, *, override: str = ""
) -> tuple[Release, Mapping[str, Any] | None, str]:
    """The release for this host, the manifest that runs there now, and a warning. Sends nothing."""
    bare = render(name, service)  # a bad description is refused before the host is asked anything
    standing = _standing(host, name)
    facts = facts_of(host, name, service)
    found = forecast.expectation(bare.manifest, facts, service.memory.calibration)
    expect = settled(found, standing, bare)
    release = bare if expect is None else render(name, service, expect=expect)
    problem = unfit(release.manifest)
    if problem and not override:
        raise DoesNotFit(
            problem,
            host=host.name,
            step=name,
            hint="lower hicache-ratio or mem-fraction-static, or override it with a reason",
        )
    warning = f"{problem}; overridden: {override}" if problem else ""
    return release, standing, warning


def facts_of(host: Host, name: str, service: Service) -> dict[str, Any]:
    draft = draft_of(service.flags)
    arguments = ["--model", service.model.path, *(["--draft", draft] if draft else [])]
    return onhost.call(host, "facts", *arguments, "--service", name, timeout=120)


def send(host: Host, release: Release, *, check: bool = False) -> dict[str, Any]:
    """`stage` on the host: {"changed", "diff", "digest", "restart"}."""
    arguments = ["--check"] if check else []
    return onhost.call(host, "stage", *arguments, stdin=bundle(release), timeout=120)


def _standing(host: Host, name: str) -> Mapping[str, Any] | None:
    answer = onhost.call(host, "collect", "--service", name, timeout=120)
    for state in answer.get("services", ()):
        if state.get("service") == name:
            manifest: Mapping[str, Any] | None = state.get("manifest") or None
            return manifest
    return None


# ---------------------------------------------------------------- pure
def settled(
    new: Mapping[str, Any] | None, standing: Mapping[str, Any] | None, release: Release
) -> Mapping[str, Any] | None:
    """The expectation to write: the standing one, where it says the same of the same release.

    What is free on a host differs from minute to minute, and a recorded start sharpens the
    figures; without this a second deployment of the same description would always find something
    to change.
    """
    old: Mapping[str, Any] | None = (standing or {}).get("expect")
    if new is None or not old or (standing or {}).get("digest") != release.digest:
        return new
    return old if forecast.still_holds(old, new) else new


def unfit(manifest: Mapping[str, Any]) -> str:
    """Why the release does not fit its host; "" if it does, or if nothing is known. Bytes → GiB."""
    left = (manifest.get("expect") or {}).get("available_after")
    need = (manifest.get("memory") or {}).get("min_available")
    if left is None or need is None or left >= need:
        return ""
    return (
        f"the forecast leaves {left / _GIB:.1f} GiB of host memory available, and "
        f"{need / _GIB:.1f} GiB are demanded (memory.min_available)"
    )
