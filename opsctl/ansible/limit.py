"""What `--limit` names, judged before anything is touched: Ansible warns of a name that it does not
know, and goes on without it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ansible import context
from ansible.inventory.manager import split_host_pattern

from opsctl.errors import NothingSelected

_SLICE = re.compile(r"\[-?\d*:?-?\d*\]$")  # of a group: gpu[0:2]


def refuse_limit(task_vars: Mapping[str, Any]) -> None:
    """Raises NothingSelected for a limit without a name (`--limit "$HOST"` without a HOST would
    change the whole fleet), and for names that the inventory does not have."""
    limit = context.CLIARGS.get("subset")
    if limit is None:
        return
    if not str(limit).strip(" ,:"):
        raise NothingSelected(
            f"--limit {limit!r} names no host", hint="leave --limit out for all hosts"
        )
    hosts = [str(name) for name in task_vars["hostvars"]]
    names = {*hosts, *map(str, task_vars.get("groups") or ()), "all"}
    unknown = [part for part in parts(str(limit)) if not known(part, names)]
    if unknown:
        near = get_close_matches(unknown[0], sorted(names), n=1)
        raise NothingSelected(
            f"--limit {limit}: no host or group of the inventory is called {', '.join(unknown)}; "
            "nothing was touched",
            hint=f"did you mean {near[0]}?" if near else f"there is: {', '.join(sorted(hosts))}",
        )


def parts(limit: str) -> Iterator[str]:
    """Names and patterns, without what joins or excludes them; those of a file for @FILE."""
    for part in split_host_pattern(limit):
        if part.startswith("@"):
            for line in Path(part[1:]).expanduser().read_text().splitlines():
                yield from parts(line)
        elif bare := part.lstrip("!&").strip():
            yield bare


def known(part: str, names: Collection[str]) -> bool:
    """Whether any host or group is meant by it."""
    if part.startswith("~"):
        return any(re.match(part[1:], name) for name in names)
    plain = _SLICE.sub("", part)
    return any(fnmatchcase(name, part) or fnmatchcase(name, plain) for name in names)
