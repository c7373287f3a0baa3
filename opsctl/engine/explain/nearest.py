"""Which flag is meant: any exact name of any release, else the names that come close."""

from __future__ import annotations

from difflib import get_close_matches

from opsctl.engine import store
from opsctl.engine.names import explain
from opsctl.engine.order import said
from opsctl.engine.renames import successor
from opsctl.errors import Problem, SpecError


def nearest(name: str, version: str = "") -> str:
    """The canonical name. Raises SpecError: no such flag, with the names that are meant and the
    releases that have it. `version`: only flags of this one."""
    bare = name.strip().lstrip("-").partition("=")[0].lower().replace("_", "-")
    known = list(store.where())
    there = [one for one in known if bare in store.names(one)]
    if there and version in ("", *there):
        return store.names(version or there[-1])[bare]
    if bare.startswith("no-") and not there:
        return nearest(bare.removeprefix("no-"), version)
    newest = version or known[-1]
    if there:
        raise SpecError([_gone(bare, newest, said(there, known), there)])
    problem = explain(bare, newest, store.names(newest), (), "", 0)
    raise SpecError([_with_more(problem, bare, newest)])


def _gone(name: str, version: str, elsewhere: str, there: list[str]) -> Problem:
    do = "do" if len(there) > 1 else "does"
    now = successor(name, version)
    instead = f"{now} is in its place" if now else "nothing that the engine names is in its place"
    return Problem(
        f"SGLang {version} does not have this flag; {elsewhere} {do}",
        key=name,
        hint=f"{instead}; as it was: opsctl config explain {name} --version {there[-1]}",
    )


def _with_more(problem: Problem, name: str, version: str) -> Problem:
    names = store.names(version)
    near = list(dict.fromkeys(names[n] for n in get_close_matches(name, list(names), 5, 0.6)))
    near += [n for n in sorted(set(names.values())) if name in n and n not in near][:5]
    hint = problem.hint or (f"near it: {', '.join(near)}" if near else "")
    if problem.hint and len(near) > 1:
        hint += f"; near it: {', '.join(near)}"
    return Problem(problem.message, key=name, hint=hint)
