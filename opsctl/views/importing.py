"""What an import tells: its report for people, and as one document for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from opsctl.importing.model import KINDS, Imported, Note, Risk
from opsctl.remote.sanitise import text as harmless
from opsctl.views.fold import Hanging

if TYPE_CHECKING:
    from rich.console import RenderableType


def document(imported: Imported) -> dict[str, Any]:
    """Without the secrets' values. `services` is empty where `problems` are not."""
    services = {} if imported.service is None else {imported.name: imported.service}
    return {
        "schema_version": 1,
        "ok": imported.service is not None,
        "services": services,
        "secrets": sorted(imported.secrets),
        "notes": [asdict(note) for note in imported.notes],
        "risks": [asdict(risk) for risk in imported.risks],
        "problems": [vars(problem) for problem in imported.problems],
        "versions": list(imported.versions),
    }


def report(imported: Imported) -> RenderableType:
    """What was carried and what was not, in groups; then the risks of the unit that was."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    if imported.service is not None:
        count = len(imported.service.get("flags", {}))
        flags = "1 flag" if count == 1 else f"{count} flags"
        parts.append(Text(f"{imported.name}: {flags}; it renders to an equivalent command", "bold"))
    for kind, heading in KINDS.items():
        if group := [note for note in imported.notes if note.kind == kind]:
            parts += [Text(heading, "bold"), *(_note(note) for note in group)]
    if imported.risks:
        parts.append(Text("risks of the unit that was", "bold"))
        parts += [_risk(risk) for risk in imported.risks]
    return Group(*parts)


def _note(note: Note) -> RenderableType:
    return Hanging(f"  {harmless(note.what)}: {harmless(note.why)}")


def _risk(risk: Risk) -> RenderableType:
    return Hanging(f"  {harmless(risk.setting)}: {risk.risk}. opsctl: {risk.instead}.")
