"""One of opsctl's own units: its description exists, so there is nothing to import."""

from __future__ import annotations

from opsctl.errors import Problem
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
