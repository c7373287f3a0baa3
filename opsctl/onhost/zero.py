"""Release 0: the unit that stood there before opsctl, with its drop-ins."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from opsctl.onhost import files, theirs
from opsctl.onhost.doctor.fault import Problem
from opsctl.onhost.store import ZERO, Refused, Store
from opsctl.onhost.systemd import Systemd, UnitState

_COMMAND = re.compile(rb"^[ \t]*ExecStart[ \t]*=[ \t]*\S", re.M)
LONGEST_SOAK = 10.0  # seconds; it had served before
_KEY = re.compile(r"--(?:admin-)?api-key\b")
_OF_THE_NAME = re.compile(r"%[inNpjJ]")  # specifiers of systemd.unit(5)


def masked(state: UnitState) -> bool:
    return state.load == "masked" or state.properties.get("UnitFileState") == "masked"


def unmasking(unit: str, own: Optional[Store] = None) -> str:
    """What to type. A mask in the folder of our units stands where the unit file would: it was put
    in its place by hand, and without it nothing is left there to start."""
    gone = own is not None and os.path.islink(str(own.unit_path))
    more = f", then opsctl deploy {own.service}" if own is not None and gone else ""
    return f"systemctl unmask {unit}{more}"


def _demand_free(unit: str, state: UnitState, own: Optional[Store] = None) -> None:
    """Raises Refused if no unit of ours may stand there: somebody masked it, and does not want it
    to start (one that runs may not have been reloaded since); or the name is only a link to
    another unit, which would run on beside ours."""
    if state.alias_of:
        raise Refused(
            f"{unit} is only another name of {state.alias_of}",
            hint=f"take the name away: rm /etc/systemd/system/{unit}; systemctl daemon-reload; "
            f"and write takes_over: {state.alias_of} into the description",
        )
    if masked(state):
        raise Refused(f"{unit} is masked", hint=unmasking(unit, own))


def standing_unit(store: Store, state: UnitState) -> Optional[bytes]:
    """The unit of other hands: in our place, or wherever systemd has found it (a package).

    Raises Refused: see `_demand_free`.
    """
    _demand_free(store.unit, state, store)
    for path in staying(store, state):
        if _COMMAND.search(files.read(Path(path)) or b""):
            raise Refused(
                f"{path} sets ExecStart=, and would decide what {store.unit} starts",
                hint="take it away, or write its command into the unit itself; then plan again",
            )
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
    asked: Mapping[str, Any],
    same: bool = False,
) -> bool:
    """What stands there and is not ours is kept before anything else is done. Answers whether a
    unit of other hands stands there; one of ours that was edited is copied to the run's folder.
    `asked`: the manifest of the release that comes. If nothing stands in our place, the text of
    the unit that it `takes_over` is kept. `same`: the old unit's engine is what it would start."""
    standing = store.standing()
    if standing not in ("", "foreign") and not store.zero_edited():
        return standing == ZERO
    state = systemd.show(store.unit)
    content = standing_unit(store, state)
    soak = min(LONGEST_SOAK, float((asked.get("gates") or {}).get("soak", LONGEST_SOAK)))
    if content is None:
        other = str(asked.get("takes_over") or "")
        if other:
            _keep_other(store, systemd, other, soak)
        return bool(other)
    if store.marked(content):
        files.write(store.run(run) / "unit.before", content, 0o600)
        note("the unit was edited by hand; a copy is kept in the run's folder", [])
        return False
    told = manifest(store, content, state, soak)
    if same and told["address"] is None:  # a variable held it
        told["address"] = asked.get("address")
    store.save_zero(content, told)
    return True


def refusal(store: Store, systemd: Systemd, takes_over: str = "") -> List[str]:
    """Why what stands there could not be kept; empty if it can."""
    try:
        if store.standing() in ("", "foreign"):
            content = standing_unit(store, systemd.show(store.unit))
            if content is None and takes_over:
                _other(systemd, takes_over)
    except Refused as error:
        text = f"{error}; {error.hint}" if error.hint else str(error)
        return [Problem(text, error.hint)]
    return []


def _keep_other(store: Store, systemd: Systemd, other: str, soak: float) -> None:
    """Its text becomes release 0 under the service's own name, so that all that looks after a
    service looks after it too, should it come back."""
    state = systemd.show(other)
    content, dropins = _other(systemd, other, state)
    told = manifest(store, content, state, soak)
    store.save_zero(content, {**told, "moved_from": other}, dropins)


def _other(
    systemd: Systemd, other: str, known: Optional[UnitState] = None
) -> Tuple[bytes, Dict[str, bytes]]:
    """Text and drop-ins of a unit of another name. Raises Refused if there is none, if it is not
    an engine's, or if the text means another thing under another name."""
    state = known or systemd.show(other)
    if state.alias_of:
        raise Refused(
            f"{other} is only another name of {state.alias_of}",
            hint=f"write takes_over: {state.alias_of}",
        )
    _demand_free(other, state)
    fragment = state.properties.get("FragmentPath", "")
    content = files.read(Path(fragment)) if fragment and not fragment.startswith("/run/") else None
    if content is None and state.up:
        raise Refused(f"{other} has no file that could be kept", hint="stop it by hand first")
    if content is None:
        raise Refused(
            f"takes_over: there is no unit {other} on this host",
            hint="opsctl import --host HOST names the units of engines; without one leave "
            "takes_over out",
        )
    _demand_engine(other, state, content)
    own = [Path(path) for path in state.dropins if f"/{other}.d/" in path]
    dropins = {path.name: path.read_bytes() for path in own}
    named = _OF_THE_NAME.search(b"\n".join([content, *dropins.values()]).decode("utf-8", "replace"))
    if named:
        raise Refused(
            f"{other} says {named[0]}, which stands for its own name: release 0 would differ",
            hint=f"write out what it stands for in {other}, or stop and disable it by hand",
        )
    return content, dropins


def _demand_engine(other: str, state: UnitState, content: bytes) -> None:
    """A deployment stops and disables the unit that it takes over, and starts an engine instead.
    Raises Refused of any that is not an engine's alone."""
    texts = [content, *(files.read(Path(path)) or b"" for path in state.dropins)]
    if why := theirs.problem(state, [text.decode("utf-8", "replace") for text in texts]):
        raise Refused(
            f"takes_over: {other} is not an engine's unit: {why}",
            hint="name the unit that runs the engine (opsctl import --host HOST finds it), or "
            "leave takes_over out",
        )


def staying(store: Store, state: UnitState) -> List[str]:
    """Drop-ins of the unit that no deployment sets aside, since they are in other folders than
    ours (a package's, `systemctl set-property`): they change our unit as they did the old one."""
    ours = str(store.dropin_folder)
    return [
        path
        for path in state.dropins
        if f"/{store.unit}.d/" in path and os.path.dirname(path) != ours
    ]


def set_aside(store: Store, state: UnitState) -> Dict[str, Any]:
    """Of a unit of other hands in our place, what a deployment leaves out: drop-ins that go to
    release 0 with it, and the program that it has before the engine (`theirs.front`)."""
    return {"aside": store.dropins(), "front": theirs.front(_standing_texts(state))}


def missing(
    store: Store, exists: Callable[[str], bool], user_exists: Callable[[str], bool]
) -> List[str]:
    """What release 0 needs for its start, and is not there: its files of variables, program,
    folder and user were never ours to keep. Empty if it is not to be started."""
    if not (store.manifest(ZERO) or {}).get("was_active", True):
        return []
    found = theirs.missing(_texts(store), exists, user_exists)
    return [f"release 0, the unit that stood there before opsctl: {one}" for one in found]


def missing_now(
    state: UnitState, exists: Callable[[str], bool], user_exists: Callable[[str], bool]
) -> List[str]:
    """The same of a unit of other hands as it stands, which a deployment would keep to fall back
    on: it may run, and could not be started again."""
    return theirs.missing(_standing_texts(state), exists, user_exists)


def _standing_texts(state: UnitState) -> List[str]:
    paths = [state.properties.get("FragmentPath", ""), *state.dropins]
    return [(files.read(Path(path)) or b"").decode("utf-8", "replace") for path in paths if path]


def _texts(store: Store) -> List[str]:
    """Release 0's unit and drop-ins, in the order in which they count; empty without one."""
    unit, folder = store.release_unit(ZERO), store.release(ZERO) / "dropins"
    if unit is None:
        return []
    paths = sorted(folder.glob("*.conf")) if folder.is_dir() else []
    texts = [unit, *(files.read(path) or b"" for path in paths)]
    return [text.decode("utf-8", "replace") for text in texts]


def keys_shown(store: Store) -> bool:
    """Whether release 0 puts keys into the command line (a variable's value ends there, too)."""
    return any(_KEY.search(command) for command in theirs.commands(_texts(store)))


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


def manifest(store: Store, content: bytes, state: UnitState, soak: float) -> Dict[str, Any]:
    """What is needed to put it back. Its gates are `unit`, and `health` if the unit tells where it
    listens: nothing else is known of it. `soak`: seconds, as the release that comes has it."""
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
        "gates": {"generation": False, "reasoning": False, "tools": False, "soak": soak},
        "memory": {},
    }


def address(unit: str) -> Optional[Dict[str, Any]]:
    """Where an SGLang command line in a unit listens; None if it is none.

    The engine's own defaults are 127.0.0.1 and 30000 (0.5.2 to 0.5.23).
    """
    if "sglang" not in unit:
        return None
    host = re.findall(r"--host[= \\\n]+([^\s\\\"']+)", unit)
    port = re.findall(r"--port[= \\\n]+([^\s\\\"']+)", unit)
    if not port and "launch_server" not in unit:
        return None
    if not all(number.isdigit() for number in port) or any("$" in name for name in host):
        return None  # a variable's: what a wrong port answers must not judge a restore
    return {"host": host[-1] if host else "127.0.0.1", "port": int(port[-1]) if port else 30000}
