"""docs/advisories.md, made from the data: python -m opsctl.engine.advisories.page [--check]

With --check nothing is written, and the exit code is 1 if the page differs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from opsctl.engine.advisories.facts import KNOWN
from opsctl.engine.advisories.read import SEVERITIES, Entry, entries
from opsctl.paths import share

PAGE = "docs/advisories.md"
MEANING = {
    "critical": "it does not start, takes the host down, or answers wrongly",
    "warn": "it costs speed, capacity, or a restart some day",
    "info": "good to know; nothing is wrong",
}
KEYS = {
    "id": "stable; what other programs refer to",
    "severity": "`critical`, `warn` or `info`, as above",
    "versions": "ranges of releases, one of which must hold; post releases in their right order. A "
    "range without an end still holds in the newest release that this toolkit knows, and is taken "
    "to hold in later ones",
    "when": "the condition, below",
    "unknown": "`speak`: also where a fact is missing that would decide; otherwise it is silent",
    "symptom": "what people see",
    "text": "what goes wrong, and why",
    "advice": "what to type",
    "reference": "public reports, or files of released packages, relative to the package",
    "evidence": "how it is known, and how well",
    "speaks": "cases in which it must speak: the first in full, others as changes of it",
    "silent": "cases in which it must not, as changes of the first of `speaks`; `unset` takes away",
}
HEAD = """\
# Advisories

What is known to go wrong with a combination of release, flags, model and hardware. `opsctl \
forecast`, `opsctl plan` and `opsctl verify` show those that hold for a service; they change no \
exit code.

Made by `python -m opsctl.engine.advisories.page` from `opsctl/engine/advisories/data/`: change \
that. Each entry there carries its own cases, and the tests run every case on every release.
"""


def page() -> str:
    found = entries()
    lines = [HEAD, "| severity | what it means | entries |", "|---|---|---|"]
    for name in SEVERITIES:
        count = sum(1 for entry in found if entry.severity == name)
        lines.append(f"| {name} | {MEANING[name]} | {count} |")
    for theme in dict.fromkeys(entry.theme for entry in found):
        lines += ["", f"## {theme.replace('-', ' ').capitalize()}"]
        for entry in found:
            if entry.theme == theme:
                lines += ["", *_entry(entry)]
    return "\n".join([*lines, "", *_language()]) + "\n"


def _entry(entry: Entry) -> Iterator[str]:
    yield f"### {entry.id}"
    yield ""
    yield f"**{entry.severity}**, {_spans(entry)}, when {_condition(entry.when)}"
    yield ""
    yield f"* What is seen: {entry.symptom}"
    yield f"* What it is: {entry.text}"
    yield f"* What to do: {entry.advice}"
    yield f"* How it is known: {entry.evidence} {', '.join(map(_reference, entry.reference))}."


def _spans(entry: Entry) -> str:
    return " and ".join(span(text) for text in entry.versions)


def span(text: str) -> str:
    """ ">=0.5.3,<=0.5.16" → "0.5.3 to 0.5.16"."""
    bounds = dict(re.findall(r"(>=|<=|==)([^,\s]+)", text))
    if "==" in bounds:
        return f"{bounds['==']} alone"
    if ">=" in bounds and "<=" in bounds:
        return f"{bounds['>=']} to {bounds['<=']}"
    return f"from {bounds['>=']} on" if ">=" in bounds else f"up to {bounds['<=']}"


def _condition(when: Sequence[str | Sequence[str]]) -> str:
    parts = [one if isinstance(one, str) else list(one) for one in when]
    return " and ".join(
        f"`{part}`" if isinstance(part, str) else f"({' or '.join(f'`{p}`' for p in part)})"
        for part in parts
    )


def _reference(text: str) -> str:
    found = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull)/(\d+)", text)
    return f"[{found[1]}#{found[2]}]({text})" if found else f"`{text}`"


def _language() -> Iterable[str]:
    yield "## How an entry is written"
    yield ""
    yield "| key | meaning |"
    yield "|---|---|"
    yield from (f"| `{key}` | {meaning} |" for key, meaning in KEYS.items())
    yield ""
    yield (
        "`when` is a list. All entries must hold; of an entry that is a list itself, one. Each is "
        "`GROUP.NAME OPERATOR [VALUE]`, with the operators `set`, `unset`, `=`, `!=`, `<`, `<=`, "
        "`>`, `>=`, `in` and `not in` (values between `|`), `has` and `lacks` (of lists), `like` "
        "(a pattern of `*` and `?`, case ignored). `flags.NAME` is what is written, or the "
        "release's own default where a value is compared; `env.NAME` is the unit's environment. "
        "What else can be asked:"
    )
    yield ""
    yield "| fact | what |"
    yield "|---|---|"
    for group, names in KNOWN.items():
        yield from (f"| `{group}.{name}` | {what} |" for name, what in names.items())


def main() -> int:
    path = Path(share()) / PAGE
    same = path.is_file() and path.read_text("utf-8") == page()
    if "--check" in sys.argv[1:]:
        sys.stderr.write("" if same else f"{PAGE} differs from the data\n")
        return 0 if same else 1
    path.write_text(page(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
