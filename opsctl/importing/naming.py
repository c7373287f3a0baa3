"""What a service shall be called, and which version of the engine a launch speaks of."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection

from opsctl.importing.entry import Entry
from opsctl.importing.marks import theirs
from opsctl.importing.model import Launch, Report
from opsctl.importing.secrets import by_form, holds
from opsctl.importing.versions import fitting, named, nearest, said
from opsctl.spec.kinds import SERVICE_NAME


def name_of(launch: Launch, way: Entry, hidden: Collection[str] = ()) -> str:
    """A name for the service: of the unit or container, else of the model. `hidden`: texts that
    may be secrets, of which no name is made."""
    candidates = [launch.name or ""]
    for flag in ("--served-model-name", "--model-path", "--model"):
        for at, word in enumerate(way.args):
            if word == flag and at + 1 < len(way.args):
                candidates.append(way.args[at + 1])
            elif word.startswith(f"{flag}="):
                candidates.append(word.partition("=")[2])
    for candidate in candidates:
        if by_form(candidate) or any(holds(candidate, secret) for secret in hidden):
            continue
        if "\0" not in candidate and (found := slug(candidate.rstrip("/").rsplit("/", 1)[-1])):
            return found
    return "service"


def slug(text: str) -> str:
    """A service's name from any text; "" if nothing is left of it."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    plain = re.sub(r"^sglang[-_.@]?(?=.)|\.(service|container)$", "", plain)
    plain = re.sub(r"\.\.+", ".", re.sub(r"[^a-z0-9._-]+", "-", plain))[:48].strip("._-")
    return plain if SERVICE_NAME.fullmatch(plain) else ""


def version_of(launch: Launch, way: Entry, asked: str, report: Report) -> str:
    """As the operator gave it, else as the host, the image or the environment says it; "" if none
    does. Where one of them says another, that is told."""
    said = _said_of(launch, way)
    version = asked or (said[0][0] if said else "")
    if said and not asked and not launch.version:
        report.note(
            "told",
            f"SGLang {version}",
            f"as {theirs(said[0][1])} says; if it is another, give --engine-version VERSION",
        )
    for other, text in said:
        if other != re.sub(r"\+.*", "", version):
            where = "the host" if text == launch.version else theirs(text)
            what = f"--engine-version {asked}" if asked else f"SGLang {version}"
            why = f"{where} says {other}: flags were read as {version} has them, and that is what "
            report.note("told", what, why + "the service will run")
    return version


def _said_of(launch: Launch, way: Entry) -> list[tuple[str, str]]:
    """(version, the text that says it), the surest first; PATH only where nothing else does."""
    image = launch.container.image if launch.container else ""
    texts = [launch.version, *reversed(launch.packages), image]  # what is installed last counts
    texts += [way.root, launch.root or "", launch.argv[0]]
    found = [named([text]) for text in texts if text and "\0" not in text]
    path = launch.env.get("PATH", "")
    some = [one for one in found if one is not None]
    last = named([path]) if not some and "\0" not in path else None
    return list({one[0]: one for one in reversed([*some, *([last] if last else [])])}.values())[
        ::-1
    ]


def asked_for(way: Entry, report: Report) -> tuple[str, ...]:
    """Asks for the version; answers those that take every argument."""
    candidates = fitting(way.args)
    if candidates:
        hint = f"give it: --engine-version {candidates[-1]}, "
        others = len(candidates) > 1
        hint += f"or another of {said(candidates)}, which take" if others else "which alone takes"
        hint += " every flag here"
    else:
        hint = "no version that opsctl knows takes every argument here; what follows is what the "
        hint += f"nearest, {nearest(way.args)}, refuses"
    report.refuse("does not say which version of SGLang it is", key="engine.version", hint=hint)
    return tuple(candidates)
