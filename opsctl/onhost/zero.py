"""Release 0: the unit that stood there before opsctl, with its drop-ins."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from opsctl.onhost import files
from opsctl.onhost.store import ZERO, Refused, Store
from opsctl.onhost.systemd import Systemd, UnitState


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


def keep(store: Store, systemd: Systemd, run: str, note: Callable[[str, List[str]], None]) -> bool:
    """What stands there and is not ours is kept before anything else is done. Answers whether a
    unit of other hands stands there; one of ours that was edited is copied to the run's folder."""
    standing = store.standing()
    if standing not in ("", "foreign"):
        return standing == ZERO
    state = systemd.show(store.unit)
    content = standing_unit(store, state)
    if content is None:
        return False
    if store.marked(content):
        files.write(store.run(run) / "unit.before", content, 0o600)
        note("the unit was edited by hand; a copy is kept in the run's folder", [])
        return False
    store.save_zero(content, manifest(store, content, state))
    return True


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
