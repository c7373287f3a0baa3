"""What to say of a name that the engine does not have: the right name, or the right version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from opsctl.errors import Problem


def explain(
    name: str,
    version: str,
    known: Mapping[str, str],
    onoff: Sequence[str],
    elsewhere: str,
    count: int,
) -> Problem:
    """Why `name` is refused. (Only the words; its place is put in by the caller.)

    `known`: every exact name of this version → its canonical name; `onoff`: canonical names that
    have a --no- form; `elsewhere`: the other versions that have the name, `count` of them.
    """
    bare = name.lstrip("-")
    if bare != name and bare in known:
        return Problem("leading dashes are not written", hint=f"write {known[bare]}")
    spelled = bare.lower().replace("_", "-").strip()
    if spelled in known:
        return Problem("is not spelled as the engine spells it", hint=f"write {known[spelled]}")
    if spelled.startswith("no-") and spelled[3:] in onoff:
        return Problem("is the negative form of a flag", hint=f"write {spelled[3:]}: false")
    if elsewhere:
        message = f"SGLang {version} does not have this flag; {elsewhere} "
        message += "do" if count > 1 else "does"
        return Problem(message, hint=_near(spelled, known, 0.8))
    if spelled and (longer := sorted({known[n] for n in known if n.startswith(spelled)})):
        return Problem(
            f"abbreviations are refused: SGLang {version} has no flag of exactly this name",
            hint="write " + " or ".join(longer[:5]),
        )
    return Problem(f"SGLang {version} has no such flag", hint=_near(spelled, known, 0.7))


def _near(name: str, known: Mapping[str, str], cutoff: float) -> str:
    found = get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"did you mean {known[found[0]]}?" if found else ""
