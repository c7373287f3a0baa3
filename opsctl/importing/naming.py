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


def version_of(launch: Launch, way: Entry, report: Report) -> str:
    """As the image or the environment says it; "" if neither does."""
    texts = [launch.container.image] if launch.container else []
    texts += [way.root, launch.root or "", launch.argv[0], launch.env.get("PATH", "")]
    found = named(text for text in texts if "\0" not in text)
    if found is None:
        return ""
    report.note(
        "told",
        f"SGLang {found[0]}",
        f"as {theirs(found[1])} says; if it is another, give --engine-version VERSION",
    )
    return found[0]


def asked_for(way: Entry, report: Report) -> tuple[str, ...]:
    """Asks for the version; answers those that take every argument."""
    candidates = fitting(way.args)
    if candidates:
        hint = f"give it: --engine-version {candidates[-1]}, or another of {said(candidates)}, "
        hint += "which take every flag here"
    else:
        hint = "no version that opsctl knows takes every argument here; what follows is what the "
        hint += f"nearest, {nearest(way.args)}, refuses"
    report.refuse("does not say which version of SGLang it is", key="engine.version", hint=hint)
    return tuple(candidates)
