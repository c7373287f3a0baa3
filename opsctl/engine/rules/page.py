"""docs/reference/rules.md, made from the rules: python -m opsctl.engine.rules.page [--check]

With --check nothing is written, and the exit code is 1 if the page differs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from opsctl.engine import store
from opsctl.engine.explain.texts import texts
from opsctl.engine.order import said
from opsctl.engine.rules import KINDS, RULES, THEMES, Rule
from opsctl.paths import share

PAGE = "docs/reference/rules.md"
HEAD = """\
# Flags together, and each by itself

Made by `python -m opsctl.engine.rules.page` from `opsctl/engine/rules/` and \
`opsctl/engine/explain/data/`: change those.

## What the engine makes of flags together

`opsctl config validate`, `render`, `plan` and `deploy` refuse what the engine would refuse, and \
tell what it would do otherwise than written. The forecast's notes add what the model and the \
cards decide. A rule that lacks a fact is silent. Of releases that opsctl has no catalogue of its \
own of, refusals are notes.
"""
EXPLAINED = """\
## Flags that are explained

`opsctl config explain FLAG [SERVICE…] [--version V] [-o json]` tells what a flag does, what it \
takes, its default and choices by release, what it costs in memory, its rules and its advisories. \
Of other flags it tells all but the first and the memory. In shells, `opsctl --install-completion` \
completes names and values.
"""


def page() -> str:
    lines = [HEAD, "| kind | what the engine does | rules |", "|---|---|---|"]
    for kind, meaning in KINDS.items():
        count = sum(1 for rule in RULES if rule.kind == kind)
        lines.append(f"| {kind} | {meaning} | {count} |")
    for theme in THEMES:
        lines += ["", f"### {theme.name}", "", "| rule | releases | when | what, and why |"]
        lines += ["|---|---|---|---|", *(_row(rule) for rule in theme.rules)]
    return "\n".join([*lines, "", EXPLAINED, *_explained()]) + "\n"


def _row(rule: Rule) -> str:
    why = re.sub(r"\{([\w-]+)\}", r"`\1`", rule.why)
    return f"| {rule.id} | {_releases(rule)} | {rule.when} | {rule.kind}: {why} |"


def _releases(rule: Rule) -> str:
    """Those in which it can hold: the flag that it is first of all about has to be there."""
    flag, known = rule.flags[0], list(store.where())
    there = [v for v in known if rule.span.holds(v) and (flag in store.table(v) or "*" in flag)]
    return said(there, known)


def _explained() -> Iterator[str]:
    yield "| about | flags |"
    yield "|---|---|"
    for theme in dict.fromkeys(one.theme for one in texts().values()):
        names = sorted(name for name, one in texts().items() if one.theme == theme)
        yield f"| {theme} | {', '.join(names)} |"


def main() -> int:
    path = Path(share()) / PAGE
    same = path.is_file() and path.read_text("utf-8") == page()
    if "--check" in sys.argv[1:]:
        sys.stderr.write("" if same else f"{PAGE} differs from the rules\n")
        return 0 if same else 1
    path.write_text(page(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
