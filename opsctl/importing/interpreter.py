"""Options of Python itself, which opsctl's unit does not give: which variable does the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opsctl.importing.marks import theirs
from opsctl.importing.model import Report

_UNBUFFERED = "opsctl's unit has PYTHONUNBUFFERED=1"
_VARIABLES = {
    "-O": "PYTHONOPTIMIZE=1",
    "-OO": "PYTHONOPTIMIZE=2",
    "-B": "PYTHONDONTWRITEBYTECODE=1",
    "-s": "PYTHONNOUSERSITE=1",
    "-P": "PYTHONSAFEPATH=1",
    "-v": "PYTHONVERBOSE=1",
    "-d": "PYTHONDEBUG=1",
    "-X dev": "PYTHONDEVMODE=1",
    "-X faulthandler": "PYTHONFAULTHANDLER=1",
    "-X importtime": "PYTHONPROFILEIMPORTTIME=1",
    "-X tracemalloc": "PYTHONTRACEMALLOC=1",
    "-X utf8": "PYTHONUTF8=1",
    "-X utf8=0": "PYTHONUTF8=0",
    "-X perf": "PYTHONPERFSUPPORT=1",
}


def interpreter(switches: Sequence[str], report: Report) -> None:
    """Tells each."""
    for switch in _each(switches):
        name, _, value = _VARIABLES.get(switch, "").partition("=")
        if switch.startswith("-W "):
            name, value = "PYTHONWARNINGS", switch[3:]
        if switch == "-u":
            report.note("dropped", "python -u", _UNBUFFERED)
        elif name:
            why = (
                f'opsctl\'s unit does not give it; env: {{{name}: "{theirs(value)}"}} does the same'
            )
            report.note("lost", f"python {theirs(switch)}", why)
        else:
            report.note(
                "lost", f"python {theirs(switch)}", "opsctl's unit does not give it to Python"
            )


def _each(switches: Sequence[str]) -> Iterator[str]:
    """One by one, as if each had been given by itself: "-uO" is two, "-Xdev" one."""
    for word in switches:
        letters = word[1:]
        while letters and not word.startswith("--"):
            if letters[0] in "XW":
                yield f"-{letters[0]} {letters[1:].strip()}"
                break
            size = 2 if letters.startswith("OO") else 1
            yield f"-{letters[:size]}"
            letters = letters[size:]
        if word.startswith("--"):
            yield word
