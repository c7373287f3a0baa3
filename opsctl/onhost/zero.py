"""Release 0: the unit that stood there before opsctl, with its drop-ins."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

from opsctl.onhost import files
from opsctl.onhost.store import ZERO, Refused, Store
from opsctl.onhost.systemd import Systemd, UnitState

_OF_THE_NAME = re.compile(r"%[inNpjJ]")  # specifiers of systemd.unit(5)


def standing_unit(store: Store, state: UnitState) -> Optional[bytes]:
    """The unit of other hands: in our place, or wherever systemd has found it (a package).

    Raises Refused if the unit is masked: then somebody does not want it to run.
    """
    if state.load == "masked":
        raise Refused(f"{store.unit} is masked", hint=f"systemctl unmask {store.unit}")
    content = files.read(store.unit_path)
    fragment = state.properties.get("FragmentPath", "")
    if content is None and fragment and not fragment.startswith("/run/"):
        content = files.read(Path(fragment))
    return content


def keep(
    store: Store,
    systemd: Systemd,
    run: str,
    note: Callable[[str, List[str]], None],
    takes_over: str = "",
) -> bool:
    """What stands there and is not ours is kept before anything else is done. Answers whether a
    unit of other hands stands there; one of ours that was edited is copied to the run's folder.
    `takes_over`: a unit of another name, whose text is kept if nothing stands in our place."""
    standing = store.standing()
    if standing not in ("", "foreign"):
        return standing == ZERO
    state = systemd.show(store.unit)
    content = standing_unit(store, state)
    if content is None:
        return bool(takes_over) and _keep_other(store, systemd, takes_over)
    if store.marked(content):
        files.write(store.run(run) / "unit.before", content, 0o600)
        note("the unit was edited by hand; a copy is kept in the run's folder", [])
        return False
    store.save_zero(content, manifest(store, content, state))
    return True


def refusal(store: Store, systemd: Systemd, takes_over: str = "") -> List[str]:
    """Why what stands there could not be kept; empty if it can."""
    try:
        if store.standing() in ("", "foreign"):
            content = standing_unit(store, systemd.show(store.unit))
            if content is None and takes_over:
                _other(systemd, takes_over)
    except Refused as error:
        return [f"{error}; {error.hint}" if error.hint else str(error)]
    return []


def _keep_other(store: Store, systemd: Systemd, other: str) -> bool:
    """Its text becomes release 0 under the service's own name, so that all that looks after a
    service looks after it too, should it come back."""
    state = systemd.show(other)
    found = _other(systemd, other, state)
    if found is None:
        return False
    content, dropins = found
    store.save_zero(content, {**manifest(store, content, state), "moved_from": other}, dropins)
    return True


def _other(
    systemd: Systemd, other: str, known: Optional[UnitState] = None
) -> Optional[Tuple[bytes, Dict[str, bytes]]]:
    """Text and drop-ins of a unit of another name; None where there is nothing to keep. Raises
    Refused if the text means another thing under another name."""
    state = known or systemd.show(other)
    if state.load == "masked":
        raise Refused(f"{other} is masked", hint=f"systemctl unmask {other}")
    fragment = state.properties.get("FragmentPath", "")
    content = files.read(Path(fragment)) if fragment and not fragment.startswith("/run/") else None
    if content is None and state.up:
        raise Refused(f"{other} has no file that could be kept", hint="stop it by hand first")
    if content is None:
        return None
    own = [Path(path) for path in state.dropins if f"/{other}.d/" in path]
    dropins = {path.name: path.read_bytes() for path in own}
    named = _OF_THE_NAME.search(b"\n".join([content, *dropins.values()]).decode("utf-8", "replace"))
    if named:
        raise Refused(
            f"{other} says {named[0]}, which stands for its own name: release 0 would differ",
            hint=f"write out what it stands for in {other}, or stop and disable it by hand",
        )
    return content, dropins


def moved_from(store: Store) -> str:
    """The unit of another name that release 0 was kept from; "" if it had the service's own."""
    return str((store.manifest(ZERO) or {}).get("moved_from") or "")


def retire(store: Store, systemd: Systemd) -> None:
    """Such a unit neither runs nor starts at a boot: its engine is the service's now. Its files
    are left alone. Safe to run again."""
    other = moved_from(store)
    if other and systemd.show(other).load == "loaded":
        systemd.stop(other)
        systemd.disable(other)
        systemd.reset_failed(other)  # engines of 0.5.9 kill themselves at the end of their drain


def manifest(store: Store, content: bytes, state: UnitState) -> Dict[str, Any]:
    """What is needed to put it back. Its gates are `unit`, and `health` if the unit tells where it
    listens: nothing else is known of it."""
    return {
        "schema_version": 1,
        "service": store.service,
        "unit": store.unit,
        "digest": ZERO,
        "address": address(content.decode("utf-8", "replace")),
        "was_active": state.active in ("active", "reloading") or state.sub == "auto-restart",
        "was_enabled": state.properties.get("UnitFileState", "").startswith("enabled"),
        "ranks": [],
        "expect": None,
        "gates": {"generation": False, "reasoning": False, "tools": False, "soak": 10.0},
        "memory": {},
    }


def address(unit: str) -> Optional[Dict[str, Any]]:
    """Where an SGLang command line in a unit listens; None if it is none.

    The engine's own defaults are 127.0.0.1 and 30000 (0.5.2 to 0.5.23).
    """
    if "sglang" not in unit:
        return None
    host = re.findall(r"--host[= \\\n]+([^\s\\\"']+)", unit)
    port = re.findall(r"--port[= \\\n]+(\d+)", unit)
    if not port and "launch_server" not in unit:
        return None
    return {"host": host[-1] if host else "127.0.0.1", "port": int(port[-1]) if port else 30000}
