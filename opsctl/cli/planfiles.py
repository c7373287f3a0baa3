"""Plan files on this machine: written for their owner alone, read with care."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsctl.cli.frame import Settings
from opsctl.errors import OpsctlError, Refused, StalePlan

if TYPE_CHECKING:
    from opsctl.rollout.planfile import Asked
    from opsctl.rollout.planned import Planned


def meant(services: Sequence[str] | None) -> Path | None:
    """The plan file that deploy's arguments name; None if they name services. A file has a slash in
    its name, ends in .json, or is there. Raises Refused for a file among other names."""
    files = [
        name for name in services or () if "/" in name or name.endswith(".json") or _is_file(name)
    ]
    if not files:
        return None
    if services is None or len(services) > 1:
        raise Refused(
            f"{files[0]} is a plan file, and a plan says itself what is deployed",
            hint=f"opsctl deploy {files[0]}",
        )
    return Path(files[0])


def _is_file(name: str) -> bool:
    return bool(name) and Path(name).is_file()


def asked(settings: Settings, services: Sequence[str], override: str, canary: str) -> Asked:
    from opsctl import inventory
    from opsctl.rollout.planfile import Asked

    where = str(inventory.find(settings.inventory))
    return Asked(tuple(services), settings.hosts, canary, override, where)


def of(found: Planned, question: Asked) -> dict[str, Any]:
    """The document of this plan, of this moment."""
    from opsctl.rollout.planfile import document
    from opsctl.rollout.run import whoami

    return document(found, question, created=time.time(), by=whoami())


def writable(path: Path) -> None:
    """Raises Refused where no plan could be written, which is known before any host is asked."""
    folder = path.parent
    if not folder.is_dir():
        raise Refused(f"{path}: there is no folder {folder}", hint=f"mkdir -p {folder}")
    if path.is_dir():
        raise Refused(f"{path} is a folder", hint=f"{path / 'plan.json'}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Refused(f"{path}: nothing can be written in the folder {folder}")
    if path.exists() and not _is_plan(path):
        raise Refused(
            f"{path} is there and is no plan file: nothing was written", hint="name a new file"
        )


def write(path: Path, plan: dict[str, Any]) -> None:
    """Mode 0600, all or nothing; over an older plan, and over nothing else. Raises Refused where
    it cannot be, OpsctlError."""
    writable(path)
    content = json.dumps(plan, indent=1, ensure_ascii=True) + "\n"
    new = ""
    try:
        handle, new = tempfile.mkstemp(prefix=".opsctl-plan-", dir=path.parent)  # mode 0600
        with os.fdopen(handle, "w") as file:
            file.write(content)
        Path(new).replace(path)
    except OSError as error:
        if new:
            Path(new).unlink(missing_ok=True)
        raise OpsctlError(f"cannot write {path}: {error.strerror or error}") from error


def _is_plan(path: Path) -> bool:
    """Whether an earlier `plan --out` wrote it, whatever its age."""
    try:
        read(path, float("inf"))
    except OpsctlError:
        return False
    return True


def read(path: Path, longest: float) -> dict[str, Any]:
    """The plan. Raises Refused for what is no plan file, StalePlan if it is older than `longest`
    seconds."""
    from opsctl.rollout.planfile import AHEAD, LARGEST, age, parsed
    from opsctl.views.figures import span

    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise Refused(
            f"there is no file {path}", hint="opsctl plan --out FILE writes a plan"
        ) from None
    except OSError as error:
        raise Refused(f"cannot read {path}: {error.strerror or error}") from error
    if len(content) > LARGEST:
        raise Refused(f"{path} is no plan file: it is larger than {LARGEST >> 20} MiB")
    plan = parsed(content, str(path))
    old = age(plan, time.time())
    if old > longest:
        raise StalePlan(
            f"{path} was made {span(old)} ago, and a plan is good for {span(longest)}",
            hint="plan again, or give --max-age",
        )
    if old < -AHEAD:
        raise StalePlan(
            f"{path} was made {span(-old)} in the future, by the clock of this machine",
            hint="set the clocks, and plan again",
        )
    return plan


def judge(path: Path, plan: dict[str, Any], now: dict[str, Any]) -> None:
    """Raises StalePlan, telling everything that has changed since."""
    from opsctl.rollout.planfile import stale

    if changed := stale(plan, now):
        lines = [f"{path} does not hold any more; since it was made", *changed]
        raise StalePlan("\n".join(lines), hint=again(path, plan))


def again(path: Path, plan: dict[str, Any]) -> str:
    """The command that makes the plan anew."""
    from opsctl.rollout.planfile import asked_of

    asked = asked_of(plan)
    options = {
        "--limit": ",".join(asked.limit),
        "--canary": asked.canary,
        "--override-forecast": asked.override,
        "--out": str(path),
    }
    words = [word for name, value in options.items() if value for word in (name, value)]
    return shlex.join(["opsctl", "plan", *asked.services, *words])
