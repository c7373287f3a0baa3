"""docs/doctor.md, made from what doctor can find: python -m opsctl.views.doctorpage [--check]

With --check nothing is written, and the exit code is 1 if the page differs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from opsctl.onhost.doctor.examine import FAULTS
from opsctl.onhost.doctor.fault import Fault
from opsctl.paths import share
from opsctl.views.doctor import FAULTS as REACHING
from opsctl.views.doctorodd import READ

PAGE = "docs/doctor.md"
HEAD = """\
# What `opsctl doctor` finds

`opsctl doctor [--limit HOST] [-o text|json|jsonl|yaml]` looks at each host once: one connection, \
one read, nothing changed. It tells failures first, then warnings, then what could not be told, \
then how many checks passed; what several hosts have in common once, with their names. `-o json` \
is flat: one entry a check and host, with `id`, `status` (`pass`, `warn`, `fail`, `unknown`), \
`detail`, `cause`, `hint`, `fault` and `service`.

| exit code | |
|---|---|
| 0 | no check fails; there may be warnings |
| 1 | a check fails |
| 2 | a host was reached and could not be examined (sudo refused, no Python); or wrong usage |
| 4 | a host could not be reached |

Where several hold, the first of 4, 2, 1 counts. A service is judged as it is described; one that \
only stands on the host, as its release is. An idle card lowers its PCIe link: its generation is \
judged under load only, its lanes always.

Made by `python -m opsctl.views.doctorpage` from what the checks can find; a test plants every row.

*Blocks*: it would keep a release from starting, so staging tells it in the plan and a rollout \
refuses before it touches what serves now.
"""
RIGHTS = """
## What is not looked at

Bandwidth between cards, and to disks: that takes load, and doctor changes nothing. The contents \
of weight files: only their names, sizes and headers. AMD's drivers and errors: their cards, \
memory, partitions and sensors only. InfiniBand and other networks. Whether firmware is current.
"""


def page() -> str:
    return "\n".join([*_lines(), *_odd()]) + RIGHTS


def _odd() -> Iterator[str]:
    yield "## Odd outputs, and how they are read"
    yield ""
    yield "Hosts really answered so; a test reads each of them as it was given."
    yield ""
    yield "| from | what is odd | read as |"
    yield "|---|---|---|"
    for one in READ.values():
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in one) + " |"
    yield ""


def _lines() -> Iterator[str]:
    yield HEAD
    faults = [*REACHING.values(), *FAULTS.values()]
    for check in dict.fromkeys(fault.check for fault in faults):
        yield f"## {check}"
        yield ""
        yield "| finds | | why it matters | what mends it |"
        yield "|---|---|---|---|"
        yield from (_row(fault) for fault in faults if fault.check == check)
        yield ""


def _row(fault: Fault) -> str:
    level = f"{fault.status}, blocks" if fault.blocks else fault.status
    cells = (f"{fault.what} (`{fault.id}`)", level, _plain(fault.cause), _plain(fault.mend))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _plain(text: str) -> str:
    """Where a finding fills in a value, its name stands in capitals."""
    return re.sub(r"\{(\w+)\}", lambda match: match[1].upper(), text)


def main() -> int:
    path = Path(share()) / PAGE
    same = path.is_file() and path.read_text("utf-8") == page()
    if "--check" in sys.argv[1:]:
        sys.stderr.write("" if same else f"{PAGE} differs from what doctor finds\n")
        return 0 if same else 1
    path.write_text(page(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
