"""Every example through the importer: the table of docs/imports.md.

    python -m tests.unit.importing.imports_table > docs/imports.md

`commands.txt` and `units.txt` are what people typed and wrote, from public reports, personal
details replaced; `public.txt` is more of it, each with its source. A head line says the name, and
the version of SGLang where the report tells one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from opsctl import engine
from opsctl.importing import Asked, Imported, from_text
from opsctl.importing.text import kind_of

HERE = Path(__file__).parent / "examples"
# What an operator answers where a text leaves something open: the example is tried again with it.
ANSWERS = {
    **dict.fromkeys(("MODEL", "model", "MODEL_PATH"), "/srv/models/m"),
    **dict.fromkeys(("TP", "TP_SIZE", "EP_SIZE", "CONC"), "8"),
    **dict.fromkeys(("PORT", "SERVER_PORT"), "30000"),
    **dict.fromkeys(("MASTER_IP",), "192.0.2.1"),
    **dict.fromkeys(("DIST_PORT",), "5000"),
    "MAX_PREFILL_TOKENS": "16384",
    "EVAL_CONTEXT_ARGS": "",
    "NUM_HIDDEN_LAYERS": "4",
    "FIRST_K_DENSE_REPLACE": "1",
    "TOKEN": "hf_an_example_token",
    "HOME": "/srv/home",
    "LOG_PATH": "/var/log/x",
}


@dataclass(frozen=True)
class Example:
    name: str
    version: str
    text: str


@dataclass(frozen=True)
class Outcome:
    """`version`: the one that it was read by; `how`: said (by the report), named (by the text
    itself), or newest (of those that take every flag). `answered`: with the answers above."""

    example: Example
    version: str
    how: str
    imported: Imported
    answered: Imported | None = None


def examples(name: str) -> list[Example]:
    found = []
    for block in (HERE / name).read_text().split("#### ")[1:]:
        head, _, text = block.partition("\n")
        title, _, version = head.partition(" | ")
        found.append(Example(title.strip(), version.strip(), text))
    return found


def outcome(example: Example) -> Outcome:
    said = example.version if example.version in engine.versions() else ""
    first = _read(example, said)
    version, how = said, "said"
    if not said and first.versions:
        version, how = first.versions[-1], "newest"
        first = _read(example, version)
    elif not said:
        how = "named" if first.service else ""
        version = first.service["engine"]["version"] if first.service else ""
    answered = None
    if first.service is None:
        again = _read(example, version, ANSWERS, "/srv/work")
        answered = again if again.service is not None else None
    return Outcome(example, version, how, first, answered)


def _read(
    example: Example, version: str, variables: dict[str, str] | None = None, cwd: str = ""
) -> Imported:
    asked = Asked(version=version, variables=variables or {}, cwd=cwd)
    return from_text([("", example.text)], "auto", asked)


def row(one: Outcome) -> str:
    kind = kind_of([("", one.example.text)])
    version = f"{one.version} ({one.how})" if one.version else "–"
    return f"| {_cell(one.example.name)} | {kind} | {version} | {_cell(_said(one))} |"


def _said(one: Outcome) -> str:
    if one.imported.service is not None:
        counts = Counter(note.kind for note in one.imported.notes)
        told = ", ".join(f"{counts[k]} {k}" for k in ("moved", "changed", "lost", "dropped")
                         if counts[k])  # fmt: skip
        risks = f"; {len(one.imported.risks)} risks" if one.imported.risks else ""
        return f"**imported, equivalent**{f' ({told}{risks})' if told or risks else ''}"
    reasons = list(dict.fromkeys(_reason(problem) for problem in one.imported.problems))
    more = f" and {len(reasons) - 3} more" if len(reasons) > 3 else ""
    text = "; ".join(reasons[:3]) + more
    return f"refused: {text}" + (". **Imported once these are answered**" if one.answered else "")


def _reason(problem: object) -> str:
    text = str(problem).partition("; allowed:")[0]
    return text if len(text) < 190 else text[:187] + "…"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("\0", "")


TITLES = {
    "commands.txt": "Launch commands",
    "units.txt": "Units",
    "public.txt": "More from public material",
}


def document() -> str:
    parts = [HEAD]
    for name, title in TITLES.items():
        found = [outcome(example) for example in examples(name)]
        imported = sum(one.imported.service is not None for one in found)
        answered = sum(one.answered is not None for one in found)
        refused = len(found) - imported - answered
        parts.append(
            f"\n## {title}\n\n{len(found)} examples: {imported} imported and equivalent, "
            f"{answered} more once what they leave open is answered, {refused} refused."
            "\n\n| example | read as | SGLang | outcome |\n|---|---|---|---|\n"
        )
        parts.append("".join(f"{row(one)}\n" for one in found))
    return "".join(parts)


HEAD = """# What people run, imported

Written by `python -m tests.unit.importing.imports_table` from tests/unit/importing/examples; a test
fails where it differs. Each example is read by `opsctl import`, described, rendered, and the
rendered command line is held against the imported one, option by option and variable by variable:
"equivalent" means that the parser of that version of SGLang makes the same of both, but for what
the report tells as changed. What cannot be described is refused with the reason.

The version is what the report said, what the text itself names (an image, an environment), or the
newest that takes every flag of it, which is what `opsctl import` proposes where nothing says one.
Old reports (before 0.5.2) have no catalogue of their own. Answers are what `--var`, `--cwd` and
`--models` are for.
"""

if __name__ == "__main__":
    print(document(), end="")
