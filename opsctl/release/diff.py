"""What differs between two releases: as a diff for people, and as reasons for a restart. Pure.

Secrets are named, never shown.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from opsctl.onhost.expect import GiB, gib
from opsctl.release import expectations
from opsctl.release.model import SECRETS

_MISSING = object()


def diff(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> str:
    """A unified diff of two releases' files by name; "" if they are the same.

    Of a secret it only says that it was added, removed or changed, of a binary its hash.
    """
    parts = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        if name.startswith(SECRETS):
            parts.append(f"secret {name.removeprefix(SECRETS)}: {_happened(before, after)}\n")
        elif _is_binary(before) or _is_binary(after):
            parts.append(f"{name}: {_hash(before)} → {_hash(after)}\n")
        else:
            parts.extend(_text_diff(name, before, after))
    return "".join(parts)


def restart_reasons(
    old: Mapping[str, Any] | None,
    new: Mapping[str, Any],
    old_unit: str = "",
    new_unit: str = "",
) -> list[str]:
    """Why going from one manifest to another restarts the engine; [] if it does not.

    The units' texts are needed only to tell what else changed (the template of another opsctl).
    """
    if old is None:
        return ["first release"]
    if "engine" not in old:  # release 0, of which only the unit is known
        return ["takes over the unit that stood here before opsctl"]
    if old["digest"] == new["digest"]:
        return []
    reasons = list(_restarting(old, new))
    if not reasons and old_unit and new_unit:
        reasons = [f"unit: {line}" for line in _changed_lines(old_unit, new_unit)]
    return reasons or ["the unit's text, or the launcher, is of another version of opsctl"]


def verdict(
    old: Mapping[str, Any] | None, new: Mapping[str, Any], old_unit: str = "", new_unit: str = ""
) -> str:
    """One line for a plan: "restart: …", "no restart: …"."""
    if reasons := restart_reasons(old, new, old_unit, new_unit):
        return "restart: " + ", ".join(reasons)
    assert old is not None  # without an old one there is a reason
    quiet = quiet_reasons(old, new)
    return "no restart: " + (", ".join(quiet) if quiet else "nothing but comments or order differs")


def quiet_reasons(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs between two manifests of the same digest, and needs no restart."""
    return list(_quiet(old, new))


def _restarting(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Everything in a manifest that the unit's text, the launcher or the secrets depend on."""
    yield from _compare("engine ", old["engine"], new["engine"])
    yield from _compare("model ", old["model"], new["model"])
    yield from _compare("", old["address"], new["address"])
    yield from _compare("", old["flags"], new["flags"])
    yield from _compare("env ", old["env"], new["env"])
    yield from _compare("", {"gpus": old["gpus"]}, {"gpus": new["gpus"]})
    yield from _compare("", {"user": old["user"]}, {"user": new["user"]})
    yield from _compare("memory ", _only(old["memory"], "swap"), _only(new["memory"], "swap"))
    yield from _compare(
        "timing ", _only(old["timing"], "drain", "cap"), _only(new["timing"], "drain", "cap")
    )
    yield from _compare("start ", _limit(old), _limit(new))
    before, after = old.get("secrets", {}), new.get("secrets", {})
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield f"secret {name} {_happened(before.get(name), after.get(name))}"


def _limit(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Of a start that is forecast to take longer than usual: its unit's start limit spans it."""
    start = (manifest.get("expect") or {}).get("start") or {}
    limit = start.get("limit")
    return {} if limit is None else {"limit": f"{limit:.0f} s"}


def _quiet(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """What the digest leaves out: the host reads it anew without a restart."""
    yield from _compare("gates ", old["gates"], new["gates"])
    yield from _compare("memory ", _sized(old["memory"]), _sized(new["memory"]))
    yield from _compare("timing ", old["timing"], new["timing"])
    yield from _taking_over(old.get("takes_over"), new.get("takes_over"))
    if told := expectations.changed(old["expect"], new["expect"]):
        yield told


def _taking_over(before: Any, after: Any) -> Iterator[str]:
    """A release of ours stands there: a unit is taken over by a service's first deployment only."""
    if after and before != after:
        yield f"takes_over {after} does nothing: the service is deployed, nothing is left to take"
    elif before != after:
        yield f"takes_over {before} → unset"


def _compare(prefix: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key, _MISSING), new.get(key, _MISSING)
        if before != after:
            yield f"{prefix}{key} {_shown(before)} → {_shown(after)}"


def _sized(memory: Mapping[str, Any]) -> dict[str, Any]:
    """With bytes as sizes; exact bytes where two decimals of a GiB would hide them."""
    least = memory.get("min_available")
    if not isinstance(least, int) or least * 100 % GiB:
        return dict(memory)
    return {**memory, "min_available": gib(least)}


def _shown(value: Any) -> str:
    if value is _MISSING or value is None:
        return "unset"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)


def _only(values: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: values.get(key) for key in keys}


def _happened(before: Any, after: Any) -> str:
    if before is None:
        return "added"
    return "removed" if after is None else "changed"


def _is_binary(content: bytes | None) -> bool:
    if content is None:
        return False
    try:
        content.decode()
    except UnicodeDecodeError:
        return True
    return b"\0" in content


def _hash(content: bytes | None) -> str:
    return "none" if content is None else hashlib.sha256(content).hexdigest()[:12]


def _text_diff(name: str, before: bytes | None, after: bytes | None) -> Iterator[str]:
    lines = difflib.unified_diff(
        (before or b"").decode().splitlines(),
        (after or b"").decode().splitlines(),
        "/dev/null" if before is None else f"a/{name}",
        "/dev/null" if after is None else f"b/{name}",
        lineterm="",
    )
    return (f"{line}\n" for line in lines)


def _changed_lines(old: str, new: str) -> list[str]:
    """Lines of the new unit that are not in the old one, and the other way round."""
    before, after = old.splitlines(), new.splitlines()
    gone = [f"-{line.strip()}" for line in before if line not in after]
    come = [f"+{line.strip()}" for line in after if line not in before]
    return [line for line in gone + come if "/releases/" not in line and "X-Opsctl" not in line]
