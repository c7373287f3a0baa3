"""The operator's own values of the roles' variables, judged before anything is touched.

Ansible would judge each by the role's argument spec too, but with one task more for each role and
host; here it is done once for all hosts, and a role that is used elsewhere is still judged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from opsctl.ansible import fitting, modelfolders, rolevalues
from opsctl.ansible.nvidia_driver import refuse_repository
from opsctl.ansible.reading import origin, read_variables
from opsctl.ansible.rolespec import DESCRIBED, judged, options
from opsctl.errors import Problem, SpecError

REPOSITORIES = ("nvidia_driver_repository", "cuda_repository")


@dataclass(frozen=True)
class Judged:
    """`asks`: by host, of variables that are right, what must fit the host's engines
    (opsctl.ansible.fitting)."""

    problems: list[Problem]
    asks: dict[str, dict[str, Any]]


def judge(names: Iterable[str], hostvars: Any, loader: Any) -> Judged:
    """Every variable that a role would refuse, or that none reads. Raises SpecError for what cannot
    be read."""
    specs = options(loader)
    names = list(names)
    found = read_variables(names, specs, hostvars, loader)
    problems, asks = list(strangers(names, hostvars, [*specs, *DESCRIBED])), {}
    for name, values in found.items():
        said = list(_wrong(values, specs))
        problems += [
            Problem(message, host=name, key=key, value=value) for key, message, value in said
        ]
        bad = {key for key, _, _ in said}
        right = {key: value for key, value in values.items() if key not in bad}
        asks[name] = fitting.asked(right, hostvars.raw_get(name).get("inventory_dir"))
    return Judged(problems, {name: said for name, said in asks.items() if said})


def wrong(names: Iterable[str], hostvars: Any, loader: Any) -> list[Problem]:
    return judge(names, hostvars, loader).problems


def as_far(names: Iterable[str], hostvars: Any, loader: Any) -> Judged:
    """The same as `judge`, with what cannot be read among the problems."""
    try:
        return judge(names, hostvars, loader)
    except SpecError as error:
        return Judged(list(error.problems), {})


def _wrong(
    values: Mapping[str, Any], specs: Mapping[str, dict[str, Any]]
) -> Iterator[tuple[str, str, str]]:
    """(key, message, value to show) of one host's variables; a value is judged for its form only
    where Ansible takes it, and what variables say together only where each is right."""
    bad: set[str] = set()
    for key, value in values.items():
        said = dict.fromkeys(judged(key, value, specs[key]), "") or _of_form(key, value)
        for message, shown in said.items():
            bad.add(key)
            yield key, message, shown
    if not bad:
        for key, message in rolevalues.contradictions(values):
            yield key, message, repr(values[key])
    if not bad & {*REPOSITORIES, "cuda_toolkits", "nvidia_driver_branch"}:
        yield from _repositories(values)


def _of_form(key: str, value: Any) -> dict[str, str]:
    """Message → the values that are meant, where it does not name them itself."""
    if key == "model_folders":
        return {said: ""} if (said := modelfolders.wrong(value)) else {}
    return {
        message: "" if isinstance(ones[0], dict) else ", ".join(map(repr, ones))
        for message, ones in rolevalues.wrong(key, value).items()
    }


def _repositories(values: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """What a host would refuse of them, as far as it can be told here: the key's file is read. One
    that nothing is asked of yet may lack its key."""
    asked = rolevalues.repositories(values)
    for variable in dict.fromkeys([*asked, *(one for one in REPOSITORIES if values.get(one))]):
        given = dict(values.get(variable) or {})
        try:
            refuse_repository(given, variable)
        except SpecError as error:
            for problem in error.problems:
                if variable in asked or given.get(problem.key.rpartition(".")[2]):
                    yield problem.key, problem.message, problem.value


def strangers(names: Iterable[str], hostvars: Any, known: Collection[str]) -> Iterator[Problem]:
    """Variables that are misspelt ones of the roles', or that deploy.yml fills in itself."""
    judge: Callable[[str], tuple[str, str] | None] = cache(
        lambda name: rolevalues.dropped(name) or rolevalues.stranger(name, known)
    )
    for host in names:
        for name in hostvars.raw_get(host):
            said = judge(str(name))
            if said is not None:
                yield Problem(said[0], file=origin(name), host=host, key=str(name), hint=said[1])
