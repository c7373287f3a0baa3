"""Whether a description renders to the command that was imported: held against it every time.

Equivalent: read by the catalogue as the engine's parser reads it, the rendered unit's command line
gives every option the value that the imported one gave it, or the value that the report says it
was changed to; and so for every variable. What opsctl's unit sets itself may join.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from opsctl import spec
from opsctl.engine import Catalogue
from opsctl.errors import SpecError
from opsctl.importing.arguments import last, walk
from opsctl.importing.entry import Other, entry
from opsctl.importing.environment import OURS, Variables, expected
from opsctl.importing.model import Report
from opsctl.importing.places import Places
from opsctl.importing.secrets import Vault, template
from opsctl.importing.unit.words import command, environment
from opsctl.importing.values import UNSET, read
from opsctl.release import render
from opsctl.spec.together import later

# Stands for a secret that cannot stay as it is; the report says that a new one is needed.
_STAND_IN = "a-stand-in-for-a-new-secret-"


def differences(
    name: str,
    service: Mapping[str, Any],
    vault: Vault,
    known: Catalogue,
    args: list[str],
    placed: Places,
    around: Variables,
    report: Report,
) -> list[str]:
    """What is different, or why it does not render at all. Empty: equivalent. `args`: the imported
    command's; `placed.told`: options that the report says are changed. What would start and then
    fail is told."""
    new = {t: f"{_STAND_IN}{i}" for i, t in enumerate(sorted(vault.weak))}
    filled = Vault(vault.service, {n: new.get(template(n), v) for n, v in vault.values.items()})
    services, problems = spec.check({name: filled.reveal(dict(service))}, {})
    if problems:
        return [vault.hide(str(problem)) for problem in problems]
    for problem in later(name, services[name]):
        report.note("told", problem.key, problem.message)
    try:
        release = render(name, services[name], zipapp=b"")
    except SpecError as error:
        return [vault.hide(str(problem)) for problem in error.problems]
    unit = release.files[f"sglang-{name}.service"].content.decode()
    secrets = {
        path.removeprefix("secrets/"): file.content.decode()
        for path, file in release.files.items()
        if path.startswith("secrets/")
    }
    wanted = {**placed.values}
    for key in {"api-key", "admin-api-key"} & set(wanted):
        wanted[key] = filled.reveal(service["secrets"][key])
    told = {*placed.told, *("api-key", "admin-api-key")}
    strange = _untold(known, args, wanted, told)
    return [
        *strange,
        *_arguments(unit, secrets, wanted, known),
        *_variables(unit, secrets, expected(around, filled)),
    ]


def _untold(
    known: Catalogue, args: list[str], wanted: Mapping[str, Any], told: set[str]
) -> list[str]:
    """Options that were changed, and nobody says so."""
    try:
        before = namespace(known, args)
    except ValueError as error:
        return [f"the imported command would be refused: {error}"]
    after = {known.flags[n].dest: v for n, v in wanted.items()}
    free = {known.flags[n].dest for n in told if n in known.flags}
    return [
        f"{dest} was changed on the way; please report it"
        for dest in sorted({*before, *after} - free)
        if before.get(dest, _usual(dest)) != after.get(dest, _usual(dest))
    ]


def _usual(dest: str) -> Any:
    """The engine's own defaults of what a description always writes (0.5.2 to 0.5.23)."""
    return {"host": "127.0.0.1", "port": 30000}.get(dest)


def namespace(known: Catalogue, args: list[str]) -> dict[str, Any]:
    """Every option's value by its place in the parser's answer. Raises ValueError: not all of it
    is taken."""
    given, strays = walk(known, args)
    if strays:
        raise ValueError(f"{strays[0].written} is not taken")
    found = {one.flag.dest: read(one) for one in last(given)[0]}
    return {dest: value for dest, value in found.items() if value is not UNSET}


def _arguments(
    unit: str, secrets: Mapping[str, str], wanted: Mapping[str, Any], known: Catalogue
) -> list[str]:
    way = entry(command(unit))
    if isinstance(way, Other):
        return ["the rendered unit starts no server of SGLang; please report it"]
    keys = [f"--{n}={secrets[n]}" for n in ("api-key", "admin-api-key") if n in secrets]
    try:
        got = namespace(known, [*way.args, *keys])
    except ValueError as error:
        return [f"the rendered command would be refused: {error}"]
    want = {known.flags[n].dest: (n, v) for n, v in wanted.items()}
    found = []
    for dest in sorted({*got, *want}):
        name, value = want.get(dest, (dest, None))
        there = got.get(dest)
        if there != value and not (value is None and there == _usual(dest)):
            found.append(f"{name} would not be rendered as it was; please report it")
    return found


def _variables(unit: str, secrets: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    got = environment(unit)
    got |= {re.sub(r"^env\.", "", n): v for n, v in secrets.items() if n.startswith("env.")}
    return [
        f"the variable {name} would not be rendered as it was; please report it"
        for name in sorted({*got, *wanted})
        if got.get(name) != wanted.get(name) and not (name in OURS and name not in wanted)
    ]
