"""Puts a release's files on the host, and the boot unit with them. Restarts nothing."""

from __future__ import annotations

import base64
import difflib
import json
import os
import re
import shutil
import stat
import sys
import time
from pathlib import PurePosixPath
from typing import Any, Dict, List, Mapping, Optional, Tuple

from opsctl.onhost import bundle, files, locks, logins, preflight, records, unitfacts
from opsctl.onhost.doctor.fault import mends
from opsctl.onhost.preflight import Outside
from opsctl.onhost.store import ZERO, Places, Refused, Store, replace_folder
from opsctl.onhost.systemd import Systemd

KEPT = 5  # releases that are neither confirmed, previous, pending, standing nor 0
SECRETS = "secrets"
REWRITTEN = ("release.json", "onhost.pyz")  # not part of the digest: change without a restart
RECOVER = "opsctl-recover.service"

# Our own units hold no secret; those of other hands do, in Environment= lines.
_VARIABLE = re.compile(r"\b([A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD)=)[^\s\"']+")

_RECOVER_UNIT = """\
[Unit]
Description=opsctl: settle a deployment that was interrupted by a power cut or a reboot

[Service]
Type=oneshot
ExecStart={python} -I {var}/onhost.pyz recover
TimeoutStartSec=300

[Install]
WantedBy=multi-user.target
"""

File = Tuple[int, bytes]


def stage(
    places: Places, systemd: Systemd, document: Mapping[str, Any], check: bool = False
) -> Dict[str, Any]:
    """Answers {"changed", "diff", "digest", "restart", "problems", "hints", "warnings"}; `check`
    changes nothing.

    `restart`: whether the unit that stands in place is of another release. `problems`: what on
    this host would keep the release from starting, if a deployment would start it; `hints`: the
    commands that put it right, where one is known; `warnings`: what threatens it as it runs. The
    document's `after` names the services that are deployed before this one, its `by` (run, owner,
    reason) whose staging it is, where no lock is held. Raises Refused.
    """
    store, digest, wanted = _read(places, document)
    standing = files.read(store.unit_path) or b""
    plan = _plan(store, digest, wanted)
    own = _own_files(places)
    changed = plan != "same" or bool(own)
    if changed and not check:
        _write(store, digest, wanted, plan)
        _write_own(places, systemd, own)
        _prune(store, digest)
    restart = store.standing() != digest
    serves = not restart and store.confirmed() == digest
    starts = not serves or systemd.show(store.unit).active != "active"
    if plan != "same" and not check and not starts:  # a start has a line of its own
        _audit(store, digest, wanted, document.get("by"))
    problems = _problems(store, systemd, document, wanted) if starts else []
    return {
        "changed": changed,
        "diff": diff(store, digest, standing, wanted[store.unit][1]),
        "digest": digest,
        "restart": restart,
        "problems": problems,
        "hints": mends(problems),
        "warnings": _warnings(wanted, starts),
    }


def _warnings(wanted: Mapping[str, File], starts: bool) -> List[str]:
    """A start is told of a driver by `problems`; what serves on would not come up again."""
    manifest = json.loads(wanted["release.json"][1])
    user = str(manifest.get("user") or "")
    found = [logins.warning(user)] if user else []
    if manifest.get("needs") and not starts and (waiting := unitfacts.waiting()):
        found.append(
            f"another driver waits for the next boot ({waiting}): what runs serves on, and a start "
            "before that boot may fail; reboot when the host is drained"
        )
    return [one for one in found if one]


def _audit(
    store: Store, digest: str, wanted: Mapping[str, File], by: Optional[Mapping[str, Any]]
) -> None:
    """What changes without a restart (least memory, an override) is a change all the same. `by`:
    whose it is; if nobody says so, it is done under a lock, and its owner's."""
    manifest = json.loads(wanted["release.json"][1].decode())
    known = by or locks.read(store) or {}
    override = (manifest.get("expect") or {}).get("override")
    entry = {key: known.get(key) for key in ("run", "owner", "reason")}
    if override and override not in (entry["reason"] or ""):
        told = f"forecast overridden: {override}"
        entry["reason"] = f"{entry['reason']}; {told}" if entry["reason"] else told
    entry.update({"op": "stage", "outcome": "staged", "release": digest})
    least = (manifest.get("memory") or {}).get("min_available")
    store.audit({"time": time.time(), **entry, "min_available": least})


def _problems(
    store: Store, systemd: Systemd, document: Mapping[str, Any], wanted: Mapping[str, File]
) -> List[str]:
    manifest = json.loads(wanted["release.json"][1].decode())
    after = [f"sglang-{name}.service" for name in document.get("after") or []]
    return preflight.foretold(store, systemd, Outside(), manifest, wanted[store.unit][1], after)


def _read(places: Places, document: Mapping[str, Any]) -> Tuple[Store, str, Dict[str, File]]:
    """The bundle, checked: nothing that it says may lead out of the release's folder."""
    store, digest = Store(str(document.get("service")), places), str(document.get("digest"))
    store.release(digest)
    if digest == ZERO:
        raise Refused("release 0 is what stood there before opsctl: it cannot be staged")
    wanted: Dict[str, File] = {}
    for entry in document.get("files") or []:
        path, mode = str(entry["path"]), int(entry["mode"])
        parts = PurePosixPath(path).parts
        nested = len(parts) == 2 and parts[0] == SECRETS
        if str(PurePosixPath(path)) != path or ".." in parts or not (len(parts) == 1 or nested):
            raise Refused(f"the bundle holds a path that is not allowed: {path!r}")
        if path.startswith((".", "/")) or mode & ~0o777 or (nested and mode != 0o600):
            raise Refused(f"the bundle holds {path!r} with mode {mode:04o}")
        wanted[path] = (mode, base64.b64decode(entry["b64"], validate=True))
    missing = {store.unit, *REWRITTEN} - set(wanted)
    if missing:
        raise Refused(f"the bundle lacks {', '.join(sorted(missing))}")
    if store.marked(wanted[store.unit][1]) != digest:
        raise Refused(f"the unit in the bundle does not name release {digest[:12]}")
    return store, digest, wanted


def _plan(store: Store, digest: str, wanted: Mapping[str, File]) -> str:
    """ "same", "rewrite" (only what the digest leaves out differs), or "new"."""
    there = _there(store, digest)
    if there == wanted:
        return "same"
    fixed = {path: file for path, file in wanted.items() if path not in REWRITTEN}
    kept = {path: file for path, file in there.items() if path not in REWRITTEN}
    return "rewrite" if fixed == kept else "new"


def _there(store: Store, digest: str) -> Dict[str, File]:
    """What stands in the release's folder. A file of a wrong owner counts as one of mode 0."""
    folder = store.release(digest)
    found: Dict[str, File] = {}
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        if path.is_dir():
            if stat.S_IMODE(path.stat().st_mode) != _folder_mode(path.name):
                found[f"{path.relative_to(folder)}/"] = (0, b"")
            continue
        info = path.lstat()
        regular = stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid()
        mode = stat.S_IMODE(info.st_mode) if regular else 0
        found[str(path.relative_to(folder))] = (mode, path.read_bytes() if regular else b"")
    return found


def _folder_mode(name: str) -> int:
    return 0o700 if name == SECRETS else 0o755


def _write(store: Store, digest: str, wanted: Mapping[str, File], plan: str) -> None:
    for folder in (store.places.etc, store.etc, store.releases, store.places.var, store.var):
        folder.mkdir(parents=True, exist_ok=True)
        os.chmod(folder, 0o755)
    if plan == "rewrite":
        for path in REWRITTEN:
            mode, content = wanted[path]
            if files.read(store.release(digest) / path) != content:
                files.write(store.release(digest) / path, content, mode)
    elif plan == "new":
        new = store.releases / f".new-{digest}.{os.getpid()}"
        _make(new)
        for path, (mode, content) in wanted.items():
            if not (new / path).parent.is_dir():
                _make((new / path).parent)
            files.write(new / path, content, mode)
        replace_folder(new, store.release(digest))


def _make(folder: Any) -> None:
    """Never open for a moment, whatever the umask."""
    folder.mkdir(mode=0o700)
    os.chmod(folder, _folder_mode(folder.name))


# -- what is the same for all services


def _own_files(places: Places) -> Dict[str, bytes]:
    """Files of the boot unit that are not as they should be."""
    unit = _RECOVER_UNIT.format(var=places.var, python=sys.executable or "/usr/bin/python3")
    wanted = {
        str(places.var / "onhost.pyz"): bundle.build(),
        str(places.units / RECOVER): unit.encode(),
    }
    wants = places.units / "multi-user.target.wants" / RECOVER
    changed = {path: content for path, content in wanted.items() if _differs(path, content)}
    if not changed and not wants.is_symlink():
        changed[str(places.units / RECOVER)] = unit.encode()
    return changed


def _differs(path: str, content: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read() != content
    except OSError:
        return True


def renew(places: Places, systemd: Systemd) -> None:
    """The boot unit, and the program that it runs."""
    _write_own(places, systemd, _own_files(places))


def _write_own(places: Places, systemd: Systemd, own: Mapping[str, bytes]) -> None:
    places.var.mkdir(parents=True, exist_ok=True)
    for path, content in own.items():
        files.write(places.root / path, content)
    if str(places.units / RECOVER) in own:
        systemd.enable(RECOVER)


def _prune(store: Store, digest: str) -> None:
    """Old releases go, but none that anything could still want back."""
    pending = store.pending() or {}
    kept = {digest, ZERO, store.confirmed(), store.previous(), store.standing()}
    kept |= {str(pending.get("target")), str(pending.get("fallback"))}
    for old in [d for d in store.staged() if d not in kept][KEPT:]:
        shutil.rmtree(store.release(old), ignore_errors=True)
    for left in store.releases.glob(".*-*"):  # of a staging that a power cut ended
        if time.time() - left.stat().st_mtime > 3600:
            shutil.rmtree(left, ignore_errors=True)


def diff(store: Store, digest: str, standing: bytes, wanted: bytes) -> str:
    """Between the unit that stands in place and the new one, every secret masked."""
    if standing == wanted:
        return ""
    old, new = (_lines(content) for content in (standing, wanted))
    name = store.standing() or "nothing"
    lines = difflib.unified_diff(
        old, new, f"{store.unit} ({name[:12]})", f"{store.unit} ({digest[:12]})", lineterm=""
    )
    return "\n".join(lines)


def _lines(content: bytes) -> List[str]:
    text = content.decode("utf-8", "replace")
    return [_VARIABLE.sub(r"\1***", records.harmless(line)) for line in text.splitlines()]
