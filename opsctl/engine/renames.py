"""What became of a flag: where a version has it under another name, or says what to use instead.

The source of both is the engine itself: one option with several names, what its deprecated options
point to, and the few that one release took away and replaced without a word.
"""

from __future__ import annotations

import re

from opsctl.engine import store

# Gone in the release in which the other came, and the same value does the same.
_REPLACED = {
    "max-micro-batch-size": "pp-max-micro-batch-size",
    "oltp-traces-endpoint": "otlp-traces-endpoint",
    "nsa-decode": "nsa-decode-backend",
    "nsa-prefill": "nsa-prefill-backend",
    "kt-amx-method": "kt-method",
    "kt-amx-weight-path": "kt-weight-path",
    "enable-deepep-waterfill": "enable-waterfill",
    "optimistic-prefill-retries": "optimistic-prefill-attempts",
}


def having(name: str) -> list[str]:
    """The versions that have a flag of exactly this name, oldest first."""
    return [version for version in store.where() if name in store.names(version)]


def successor(name: str, version: str, _before: tuple[str, ...] = ()) -> str | None:
    """How `version` wants a flag of other versions to be written, as in a description: "tp-size",
    "moe-runner-backend: deepep". None if it has nothing for it, or nobody says what."""
    entries = store.table(version)
    here = {n: to for n, to in store.names(version).items() if entries[to]["kind"] != "refused"}
    for there in reversed(having(name)):
        entry = store.table(there)[store.names(there)[name]]
        for other in (store.names(there)[name], *entry.get("aliases", ())):
            if other in here:
                return here[other]
        pointed = str(entry.get("deprecated") or "").removeprefix("--")
        if pointed and pointed not in _before:
            flag, _, value = re.sub(r" .*", "", pointed).partition("=")
            if all(one in here for one in _spread(flag)):
                return _written(here.get(flag, flag), value, version)
            if further := successor(flag, version, (*_before, pointed)):
                return further
    other = _REPLACED.get(name, "")
    return here.get(other) or (successor(other, version) if other else None)


def _written(flag: str, value: str, version: str) -> str:
    """As a description has it; without a value that the version no longer takes."""
    choices = store.table(version).get(flag, {}).get("choices")
    return f"{flag}: {value}" if value and value in (choices or (value,)) else flag


def _spread(flag: str) -> list[str]:
    """cuda-graph-backend-{decode,prefill} is two flags."""
    match = re.fullmatch(r"(.*)\{(.*)\}(.*)", flag)
    return [match[1] + part + match[3] for part in match[2].split(",")] if match else [flag]
