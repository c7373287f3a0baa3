"""The flags of one exact version of SGLang: which there are, what they take, how they are written.

Exact names only: the engine's own parser takes any unambiguous abbreviation, so that a typo may
pass there today and mean something else in the next version.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from opsctl.engine import order, store
from opsctl.engine import ranks as _ranks
from opsctl.engine.flag import Flag, from_data
from opsctl.engine.names import explain
from opsctl.engine.refused import Refused
from opsctl.engine.renames import having, successor
from opsctl.engine.values import text, typed
from opsctl.errors import Problem, SpecError

# Flags that the description writes in a place of their own: canonical name → how.
ELSEWHERE = {
    "model-path": "write it as model.path of the service",
    "served-model-name": "write it as model.served_name of the service",
    "host": "write it as host of the service",
    "port": "write it as port of the service",
    "api-key": "write it as secrets.api-key of the service, so that it stays out of the unit",
    "admin-api-key": "write it as secrets.admin-api-key of the service, so that it stays out of "
    "the unit",
    "config": "write its flags here: the engine mangles values of a configuration file",
}
# A command line can be read by every user of the host.
SECRET = {
    "ssl-keyfile-password": "use a key file without a password, readable by the service's user",
    "watermark-config": "keep it in a file on the host and write the file's path: it holds a key",
}
# A value is never shown back if its flag's name, right or wrong, has one of these words.
_SECRET_WORDS = {"key", "apikey", "token", "secret", "password", "passwd", "watermark"}


class Catalogue:
    """All flags of `version`. Made by `catalogue`."""

    def __init__(self, version: str, flags: Mapping[str, Flag]) -> None:
        self.version = version
        self.flags = dict(flags)
        self._names = {n: flag.name for flag in flags.values() for n in flag.names}
        self._onoff = [flag.name for flag in flags.values() if flag.kind == "onoff"]

    def check(
        self, flags: Mapping[Any, Any], service: str = ""
    ) -> tuple[dict[str, Any], list[Problem]]:
        """Typed values by canonical name, sorted, and everything that is wrong.

        A switch that is false is left out. With problems, the values are those that were right.
        """
        found: dict[str, Any] = {}
        problems: list[Problem] = []
        written: dict[str, str] = {}  # dest → the name that set it
        for name, value in flags.items():
            problem = self._refuse_name(name, value)
            if problem is None:
                flag = self.flags[self._names[name]]
                if (first := written.setdefault(flag.dest, name)) != name:
                    problem = Problem(f"sets the same as {first}", hint="keep one of the two")
                else:
                    problem = self._take(flag, value, found)
            if problem is not None:
                problems.append(_placed(problem, name, value, service))
        return dict(sorted(found.items())), problems

    def argv(self, flags: Mapping[str, Any]) -> list[str]:
        """The arguments for typed values (as from `check`), in order of the names.

        One value is joined by "=", which alone is safe for a value that begins with a dash; a
        list has to follow its flag, since argparse takes no more than one value after "=".
        """
        out: list[str] = []
        for name, value in sorted(flags.items()):
            flag = self.flags[name]
            if flag.many:
                out += [f"--{name}", *(text(flag, item) for item in value)]
            elif value is True:
                out.append(f"--{name}")
            elif value is not False:
                out.append(f"--{name}={text(flag, value)}")
            elif flag.kind == "onoff":
                out.append(f"--no-{name}")
        return out

    def ranks(self, flags: Mapping[str, Any]) -> list[str]:
        """Labels of the ranks expected on this host. Raises ValueError: sizes do not divide."""
        return _ranks.ranks(flags)

    def notes(self, flags: Mapping[str, Any]) -> list[str]:
        """What is allowed and yet worth saying: deprecated flags that are used."""
        out = []
        for flag in (self.flags[name] for name in sorted(flags)):
            if flag.kind == "void":
                out.append(f"{flag.name} has no effect in SGLang {self.version}: remove it")
            elif flag.deprecated is not None:
                instead = f"; use {flag.deprecated}" if flag.deprecated else ""
                out.append(f"{flag.name} is deprecated in SGLang {self.version}{instead}")
        return out

    def get(self, flags: Mapping[str, Any], name: str) -> Any:
        """The value of `name` in typed `flags`, or the parser's default; None if it has none, or
        this version has no such flag."""
        if name in flags:
            return flags[name]
        flag = self.flags.get(name)
        return flag.default if flag else None

    def canonical(self, name: str) -> str | None:
        """The canonical name of a flag by any of its exact names."""
        return self._names.get(name)

    def has_reasoning_parser(self, flags: Mapping[str, Any]) -> bool:
        """Whether a reasoning parser is named. "auto" is not: the engine may find none."""
        return str(flags.get("reasoning-parser", "auto")) != "auto"

    def has_tool_parser(self, flags: Mapping[str, Any]) -> bool:
        """Whether a tool-call parser is named. "auto" is not: the engine may find none."""
        return str(flags.get("tool-call-parser", "auto")) != "auto"

    def _refuse_name(self, name: Any, value: Any) -> Problem | None:
        if not isinstance(name, str):
            return Problem("is not a name of a flag", hint="quote it")
        if name not in self._names:
            return self._unknown(name)
        canonical = self._names[name]
        if canonical in ELSEWHERE:
            return Problem("is not written among the flags", hint=ELSEWHERE[canonical])
        inline = isinstance(value, Mapping) or "{" in str(value)
        if canonical in SECRET and (canonical != "watermark-config" or inline):
            return Problem("would stand readable in the unit", hint=SECRET[canonical])
        return None

    def _unknown(self, name: str) -> Problem:
        elsewhere = having(name)
        there = order.said(elsewhere, versions())
        if elsewhere and (now := successor(name, self.version)) is not None:
            do = "do" if len(elsewhere) > 1 else "does"
            return Problem(
                f"SGLang {self.version} does not have this name; {there} {do}", hint=f"write {now}"
            )
        return explain(name, self.version, self._names, self._onoff, there, len(elsewhere))

    def _take(self, flag: Flag, value: Any, found: dict[str, Any]) -> Problem | None:
        try:
            one = typed(flag, value)
        except Refused as refused:
            return Problem(refused.message, allowed=refused.allowed, hint=refused.hint)
        if one is not False or flag.kind == "onoff":
            found[flag.name] = one
        return None


def versions() -> list[str]:
    """The versions that there is a catalogue of, oldest first."""
    return list(store.where())


@cache
def catalogue(version: str) -> Catalogue:
    """The catalogue of exactly `version`. Raises SpecError: there is none, or its file cannot be
    read, and what makes one."""
    known = versions()
    if version not in known:
        command = f"read it from the released package: opsctl catalog add {version}"
        wrong = store.broken().get(version, "no catalogue of flags for this version of SGLang")
        raise SpecError(
            [
                Problem(
                    wrong,
                    key="engine.version",
                    value=str(version),
                    allowed=", ".join(order.nearest(version, known)) + ", …",
                    hint=command if order.is_version(version) else "see opsctl catalog list",
                )
            ]
        )
    table = store.table(version)
    return Catalogue(version, {n: from_data(n, e, version) for n, e in table.items()})


def _placed(problem: Problem, name: Any, value: Any, service: str) -> Problem:
    words = set(str(name).lower().replace("_", "-").split("-"))
    shown = "" if words & _SECRET_WORDS else repr(value)
    if len(shown) > 200:
        shown = shown[:200] + "…"
    return Problem(
        message=problem.message,
        service=service,
        key=f"flags.{name}",
        value=shown,
        allowed=problem.allowed,
        hint=problem.hint,
    )
