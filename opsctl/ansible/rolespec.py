"""The argument specs of the roles: what each variable may be, and what its value is.

Ansible judges variables by the specs and drops what it has made of them: a task gets the "no" of a
command line, which Python takes for true, and the true that YAML makes of an unquoted yes. So the
arguments of every task of ours are converted here, by the spec of the variable that fills each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.parsing.convert_bool import BOOLEANS, BOOLEANS_FALSE, BOOLEANS_TRUE

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
    """Nothing is the empty text where that is the default: Ansible's versions differ in it."""
    given = "" if value is None and spec.get("default") == "" else _chosen(value, spec)
    return ArgumentSpecValidator({key: spec}).validate({key: given})


def _chosen(value: Any, spec: Mapping[str, Any]) -> Any:
    """Of choices that say yes or no in several words the first that means the same, quoted or
    not."""
    if not isinstance(value, str | int):
        return value
    for words in (BOOLEANS_TRUE, BOOLEANS_FALSE):
        if str(value).lower() in words:
            return next((c for c in spec.get("choices", ()) if c.lower() in words), value)
    return value


def judged(key: str, value: Any, spec: dict[str, Any]) -> list[str]:
    """What Ansible refuses of one value; of a wrong kind once, and in words of ours."""
    if said := _unmeant(value, spec):
        return [said]
    messages = [str(message) for message in _validated(key, value, spec).error_messages]
    if messages and "choices" in spec:
        return [_of_choice(value, [str(one) for one in spec["choices"]])]
    kinds = [found for found in map(_KIND.match, messages) if found]
    if kinds:
        return list(dict.fromkeys(_of_kind(key, value, *found.groups()) for found in kinds))
    return [_UNKNOWN.sub(r"there is no \1: there is \2", message) for message in messages]


def _unmeant(value: Any, spec: Mapping[str, Any]) -> str:
    """What Ansible would make something of that nobody means, or stumble over; "" for the rest."""
    kind, default = spec.get("type", "str"), spec.get("default")
    if value is None:
        leave = f" for its default, {json.dumps(default)}" if default not in ([], {}) else ""
        return "" if default in (None, "") else f"is given nothing: leave it out{leave}"
    if kind == "list" and (none := _entries(value, spec.get("elements"))):
        of = "mappings (key: value)" if spec.get("elements") == "dict" else "texts"
        return f"must be a list of {of}{_shown(none[0])}"
    wrong = {
        "dict": not isinstance(value, Mapping),
        "list": isinstance(value, str) and not value.strip(),
        "str": isinstance(value, Mapping | list),
    }
    return f"must be {KINDS[kind]}{_shown(value)}" if wrong.get(kind) else ""


def _entries(value: Any, elements: str | None) -> list[Any]:
    """Entries of a list that are not of its kind."""
    if elements == "dict":
        ones = value if isinstance(value, list) else [value]
        return [one for one in ones if not isinstance(one, Mapping)]
    ones = value if isinstance(value, list) else []
    return [one for one in ones if one is None or isinstance(one, Mapping | list)]


def _of_choice(value: Any, choices: Sequence[str]) -> str:
    """The empty choice is told as what it means, of several words of yes or no the first, and a
    word without quotes as what YAML has made of it."""
    named = [one for one in choices if one and _chosen(one, {"choices": choices}) == one]
    switch = all(one.lower() in BOOLEANS for one in named)
    allowed = "yes or no" if switch else f"one of {', '.join(named)}"
    empty = ', or "" to leave it alone' if "" in choices else ""
    read = ""
    if isinstance(value, bool):
        words = "on, yes or true" if value else "off, no or false"
        read = f" (what YAML makes of {words} without quotes)"
    return f"must be {allowed}{empty}{_shown(value)}{read}"


def _of_kind(key: str, value: Any, name: str, holder: str | None, kind: str) -> str:
    words = KINDS.get(kind, kind)
    if name != key:
        return f"{holder or key}.{name} must be {words}"
    return f"must be {words}{_shown(value)}"


def _shown(value: Any) -> str:
    """A list or mapping may hold a password somewhere, and is long."""
    plain = value is None or isinstance(value, str | int | float)
    return f": {value!r} is not" if plain else ""


def options(loader: Any, roles: Iterable[str] = ROLES) -> dict[str, dict[str, Any]]:
    """The argument spec of each variable of these roles."""
    specs: dict[str, dict[str, Any]] = {}
    for role in roles:
        file = share() / "roles" / role / "meta" / "argument_specs.yml"
        specs |= loader.load_from_file(str(file), unsafe=True)["argument_specs"]["main"]["options"]
    return {key: spec for key, spec in specs.items() if key not in DESCRIBED}
