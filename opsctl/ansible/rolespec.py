"""The argument specs of the roles: what each variable may be, and what its value is.

Ansible judges variables by the specs and drops what it has made of them: a task gets the "no" of a
command line, which Python takes for true, and the true that YAML makes of an unquoted yes. So the
arguments of every task of ours are converted here, by the spec of the variable that fills each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from opsctl.errors import Problem, SpecError
from opsctl.paths import share

KINDS = {"bool": "yes or no", "dict": "a mapping (key: value)", "list": "a list", "str": "a text",
         "int": "a whole number"}  # fmt: skip
# Ansible's words on a value of the wrong kind: its name, the variable that holds it, and the kind.
_KIND = re.compile(
    r"argument '([^']+)' is of type .*?(?:found in '([^']+)'.*?)?unable to convert to (\w+)"
)
_UNKNOWN = re.compile(r"(\S+)\. Supported parameters include: (.*?)\.?$")
ROLES = ("host", "nvidia_driver", "cuda", "host_tuning", "engine", "model", "service")
DESCRIBED = ("sglang_services", "sglang_overrides")  # judged by opsctl.spec; they hold secrets
# Arguments of a role's task that are not called as their variable is, without the role's name.
_CALLED = {
    "host": {"nofile": "host_open_files"},
    "cuda": {
        "allow_repair": "nvidia_driver_allow_repair",
        "driver_branch": "nvidia_driver_branch",
    },
}


def arguments(role: str, given: Mapping[str, Any], loader: Any) -> dict[str, Any]:
    """What the task of a role was given, as the role's spec means it. Raises SpecError."""
    called = _CALLED.get(role, {})
    variables = {name: called.get(name, f"{role}_{name}") for name in given}
    found = converted({variables[name]: value for name, value in given.items()}, loader)
    return {name: found[variable] for name, variable in variables.items()}


def converted(values: Mapping[str, Any], loader: Any) -> dict[str, Any]:
    """Values of variables as their specs mean them: "no" is false where yes or no is asked for,
    true is "yes" where that is the choice, 580 is a text. Raises SpecError."""
    roles = [role for role in ROLES if any(key.startswith(f"{role}_") for key in values)]
    specs = options(loader, roles)
    found: dict[str, Any] = {}
    wrong: list[Problem] = []
    for key, value in values.items():
        if key not in specs:  # no variable's: the task itself knows what it is
            found[key] = value
            continue
        answer = _validated(key, value, specs[key])
        found[key] = answer.validated_parameters[key]
        if answer.error_messages:
            wrong += [Problem(said, key=key) for said in judged(key, value, specs[key])]
    if wrong:
        raise SpecError(wrong)
    return found


def _validated(key: str, value: Any, spec: dict[str, Any]) -> Any:
    return ArgumentSpecValidator({key: spec}).validate({key: value})


def judged(key: str, value: Any, spec: dict[str, Any]) -> list[str]:
    """What Ansible refuses of one value; of a wrong kind once, and in words of ours."""
    messages = [str(message) for message in _validated(key, value, spec).error_messages]
    kinds = [found for found in map(_KIND.match, messages) if found]
    if kinds:
        return list(dict.fromkeys(_of_kind(key, value, *found.groups()) for found in kinds))
    return [_UNKNOWN.sub(r"there is no \1: there is \2", message) for message in messages]


def _of_kind(key: str, value: Any, name: str, holder: str | None, kind: str) -> str:
    words = KINDS.get(kind, kind)
    if name != key:
        return f"{holder or key}.{name} must be {words}"
    plain = value is None or isinstance(value, str | int | float)
    return f"must be {words}" + (f": {value!r} is not" if plain else "")


def options(loader: Any, roles: Iterable[str] = ROLES) -> dict[str, dict[str, Any]]:
    """The argument spec of each variable of these roles."""
    specs: dict[str, dict[str, Any]] = {}
    for role in roles:
        file = share() / "roles" / role / "meta" / "argument_specs.yml"
        specs |= loader.load_from_file(str(file), unsafe=True)["argument_specs"]["main"]["options"]
    return {key: spec for key, spec in specs.items() if key not in DESCRIBED}
