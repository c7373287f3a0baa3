"""The role `engine`: one environment per engine version, made beside and put in place at once.

A virtual environment names its own folder in its scripts, so it cannot be moved: it is built where
it stays, in ROOT's parent under `.builds/`, and ROOT is a link that a rename puts in place. The
stamp, written last, tells a whole build from a torn one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from pathlib import Path
from typing import Any, Dict, List, Optional

from opsctl.ansible.target.converge import Host, Refused, run
from opsctl.onhost.files import flock, link, read_json, write_json

STAMP = ".opsctl.json"
_VERSION = (
    "import importlib.metadata as m, importlib.util as u\n"
    "print(m.version('sglang') if u.find_spec('sglang') else '')"
)


def main(args: Dict[str, Any]) -> Dict[str, Any]:
    """`args`: root, version, install (null, or {"python", "digest", "requirements", "wheels",
    "index"}), wheels_wanted {name: bytes}, do ("look" or "build"), check.

    "look" answers `state`: "ready", "build" and, of the wheels that are wanted, those `missing`.
    """
    host = Host(check=args["check"])
    try:
        if args["do"] == "build":
            _build(host, args)
            return host.result(state="ready")
        state = _state(args)
        if state == "build":
            want = _described(args["version"], args["install"]["digest"])
            host.changed(args["root"], _built(args["root"]), want)
        return host.result(state=state, missing=_missing(args) if state == "build" else [])
    except Refused as problem:
        return host.result(problems=[str(problem)])


def _state(args: Dict[str, Any]) -> str:
    root, version, install = args["root"], args["version"], args["install"]
    if install is None:
        _demand(root, version)
        return "ready"
    if not os.path.lexists(root):
        return "build"
    if not os.path.islink(root):
        raise Refused(
            f"{root} is there but was not made by opsctl: leave engine.install unset to use it as "
            "it is, or name another engine.root"
        )
    if (read_json(Path(root) / STAMP) or {}).get("digest") == install["digest"]:
        _demand(root, version)
        return "ready"
    users = _in_use(root)
    if users:
        raise Refused(
            f"the requirements of {root} have changed, and process {users[0]} runs from it: name "
            "another engine.root, so that both stand side by side"
        )
    return "build"


def _demand(root: str, version: str) -> None:
    found = installed(root)
    if found is None:
        raise Refused(
            f"{root}/bin/python is missing: put the environment there, or describe engine.install"
        )
    if not is_version(found, version):
        what = f"holds SGLang {found}" if found else "holds no SGLang"
        raise Refused(f"{root} {what}, the description asks for {version}")


def is_version(found: Optional[str], version: str) -> bool:
    """Exactly this version; a build's own mark (0.5.9+cu130) counts only if it is asked for."""
    return found is not None and version in (found, found.partition("+")[0])


def installed(root: str) -> Optional[str]:
    """The exact version of SGLang that an environment imports; "" if none, None if no Python."""
    python = os.path.join(root, "bin", "python")
    if not os.path.exists(python):
        return None
    try:
        return run([python, "-c", _VERSION]).strip()
    except Refused as problem:
        if "PackageNotFoundError" in str(problem):
            return ""
        raise


def _in_use(root: str) -> List[int]:
    """Processes whose program was named through this root."""
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit():
                words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
                if words[0].startswith(os.fsencode(root) + b"/"):
                    found.append(int(entry))
    return found


def _folder(args: Dict[str, Any]) -> Path:
    root = Path(args["root"])
    return root.parent / ".builds" / f"{root.name}-{args['install']['digest'][:12]}"


def _wheels(args: Dict[str, Any]) -> Path:
    """Where the controller's wheels are sent to; gone again when the environment stands."""
    return Path(args["root"]).parent / ".wheels"


def _missing(args: Dict[str, Any]) -> List[str]:
    """Wheels that must still be sent: not there, or of another size."""
    folder = _wheels(args)
    found = {p.name: p.stat().st_size for p in folder.glob("*")} if folder.is_dir() else {}
    return sorted(n for n, size in args["wheels_wanted"].items() if found.get(n) != size)


def _build(host: Host, args: Dict[str, Any]) -> None:
    folder = _folder(args)
    folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with flock(folder.parent / ".lock", patience=5.0):
        if read_json(folder / STAMP) is None:
            shutil.rmtree(str(folder), ignore_errors=True)
            _install(folder, args["install"])
            found = installed(str(folder))
            if not is_version(found, args["version"]):
                raise Refused(
                    f"the requirements install SGLang {found or '(none)'}, the description asks "
                    f"for {args['version']}"
                )
            write_json(folder / STAMP, {"digest": args["install"]["digest"], "version": found})
        before, want = _built(args["root"]), _described(args["version"], args["install"]["digest"])
        link(Path(args["root"]), f".builds/{folder.name}")
        if args["wheels_wanted"]:
            shutil.rmtree(str(_wheels(args)), ignore_errors=True)
    host.changed(args["root"], before, want)


def _install(folder: Path, install: Dict[str, Any]) -> None:
    """pip takes every package by its hash only. An index may carry a password: not in argv."""
    try:
        run([install["python"], "-m", "venv", str(folder)])
    except Refused as problem:
        raise Refused(f"{problem}\n(on Debian the package python3-venv is needed)") from None
    requirements = folder / "requirements.txt"
    requirements.write_text(install["requirements"], encoding="utf-8")
    if hashlib.sha256(requirements.read_bytes()).hexdigest() != install["digest"]:
        raise Refused("the requirements were damaged on the way")
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--no-input", "--quiet"]
    pip += ["--disable-pip-version-check", "--require-hashes", "-r", str(requirements)]
    if install["wheels"]:
        pip += ["--no-index", "--find-links", install["wheels"]]
    run(pip, {"PIP_INDEX_URL": install["index"]} if install["index"] else None)


def _described(version: str, digest: str) -> str:
    return f"SGLang {version}, requirements {digest[:12]}\n"


def _built(root: str) -> str:
    """What stands at `root` now, "" if nothing that was made here."""
    stamp = read_json(Path(root) / STAMP)
    return _described(stamp["version"], stamp["digest"]) if stamp else ""
