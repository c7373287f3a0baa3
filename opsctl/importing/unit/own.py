"""One of opsctl's own units: its description exists, so there is nothing to import; and where that
is lost, the secrets of it, which stand in files and on no command line."""

from __future__ import annotations

from collections.abc import Mapping

from opsctl.errors import Problem
from opsctl.importing.model import Report
from opsctl.importing.unit.read import Unit


def told(unit: Unit) -> Problem:
    """What to say of it; `--own` describes it all the same."""
    service = unit.name.removeprefix("sglang-").removesuffix(".service")
    service = service or unit.last("Description", section="Unit").partition(": ")[2]
    of = f" of the service {service}" if service else ""
    return Problem(
        f"this unit is opsctl's own: release {unit.release[:12]}{of}; there is nothing to import",
        hint=f"opsctl config show {service or 'SERVICE'} shows its description; if that is lost, "
        "--own makes one of the unit",
    )


def secrets(
    unit: Unit, files: Mapping[str, str], report: Report
) -> tuple[dict[str, str], list[str]]:
    """(variables, keys as arguments). One that cannot be read is refused: a service that is
    described without its key would be open to everybody."""
    env: dict[str, str] = {}
    keys: list[str] = []
    for line in unit.all("LoadCredential") if unit.release else ():
        name, _, path = line.partition(":")
        text = files.get(path)
        if text is None:
            report.refuse(
                f"the secret {name} is in {path}, which was not given",
                hint=f"give it: --file {path}=COPY",
            )
        elif name.startswith("env."):
            env[name.removeprefix("env.")] = text
        else:
            keys.append(f"--{name}={text}")
    return env, keys
