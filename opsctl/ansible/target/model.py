"""The role `model`: are the files of a model all there? Fetches them if the description says where.

The fetch itself is a transient unit: a connection that is lost, or an Ansible that is killed, does
not end it, and the next run of the role follows it.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, List

from opsctl.ansible.target import fetched
from opsctl.ansible.target.converge import Host, Refused, run
from opsctl.onhost.files import read_json, write, write_json
from opsctl.onhost.modelcheck import look

RUN = Path("/run/opsctl/fetch")  # gone with a reboot, and with it the token
_UNIT = {
    # Killed by whatever: it goes on by itself. What asking again cannot change ends it.
    "Restart": "on-failure",
    "RestartPreventExitStatus": "3",
    "RestartSec": "2s",
    "StartLimitIntervalSec": "0",
    "Nice": "10",
    "IOSchedulingClass": "best-effort",
    "IOSchedulingPriority": "7",
    "NoNewPrivileges": "yes",
    "PrivateTmp": "yes",
}


def main(args: Dict[str, Any]) -> Dict[str, Any]:
    """`args`: folders [{"path", "size" or null, "what", "source" or left out, "load_format" and
    "own_config" as of modelcheck.loading, or left out}], and `do`: "look" (the default), "begin"
    with `folder`, `token` and `program`, or "tidy"; `remove_old`.

    "look" answers `fetch`: paths that are to be fetched, `old`: revisions that nothing uses, and
    `warnings`: damage of what a process serves all the same.
    """
    host = Host(check=args.get("check", True))
    try:
        if args.get("do") == "begin":
            return host.result(unit=_begin(args["folder"], args.get("token"), args["program"]))
        if args.get("do") == "tidy":
            return _tidy(host, args["folders"])
    except Refused as problem:
        return host.result(problems=[str(problem)])
    return _look(host, args["folders"], bool(args.get("remove_old")))


def _look(host: Host, folders: List[Dict[str, Any]], remove_old: bool) -> Dict[str, Any]:
    problems: List[str] = []
    warnings: List[str] = []
    sizes, fetch = {}, []
    for folder in folders:
        path, source = folder["path"], folder.get("source")
        how = {key: folder[key] for key in ("load_format", "own_config") if key in folder}
        size, wrong = look(path, folder.get("size"), **how)
        sizes[path] = size
        try:
            if source and needed(path, source):
                fetch.append(path)
                host.changed(path, _stands(fetched.stamp(path)), _wanted(source))
                continue
        except Refused as problem:
            problems.append(f"{folder['what']} {path}: {problem}")
            continue
        said = [f"{folder['what']} {path}: {text}" for text in wrong]
        runs = fetched.serving(path) if said else []
        if runs:  # staging refuses whatever would have to start with it
            warnings += [f"{text}; process {runs[0]} serves on, no start would" for text in said]
        else:
            problems += said
    old = [str(p) for f in folders if f.get("source") for p in unused(f["path"])]
    for path in old if remove_old else []:
        host.changed(path, "a revision that nothing uses\n", "")
    found = host.result(bytes=sizes, fetch=fetch, old=old, warnings=warnings)
    return {**found, "problems": problems}


def needed(path: str, source: Dict[str, Any]) -> bool:
    """Whether a fetch must run. Raises Refused where that would touch what it may not."""
    want, stamp = fetched.identity(source), fetched.stamp(path)
    if os.path.lexists(path) and not os.path.islink(path):
        raise Refused(
            "is there but was not fetched by opsctl: leave model.source unset to use it as it is, "
            "or name another model.path"
        )
    if stamp.get("id") == want:
        return bool(fetched.damaged(path))
    runs = fetched.serving(path) if stamp else []
    if runs:
        raise Refused(
            f"another revision is described, and process {runs[0]} serves the present one: name "
            "another model.path, so that both stand side by side"
        )
    return True


def _stands(stamp: Dict[str, Any]) -> str:
    return f"{_told(stamp.get('source', {}))} ({stamp['id']})\n" if stamp else ""


def _wanted(source: Dict[str, Any]) -> str:
    return f"{_told(source)} ({fetched.identity(source)})\n"


def _told(source: Dict[str, Any]) -> str:
    kinds = ("hub", "url", "s3", "peer", "rsync", "folder")
    kind = next((k for k in kinds if source.get(k)), "")
    return f"{kind} {source.get(kind, '')} {source.get('revision') or ''}".strip()


def unused(path: str) -> List[Path]:
    """Finished revisions that no link, release or process uses."""
    present = os.path.realpath(path)
    others = [folder for folder in fetched.revisions(path) if str(folder) != present]
    return [folder for folder in others if not fetched.users(folder)]


def _tidy(host: Host, folders: List[Dict[str, Any]]) -> Dict[str, Any]:
    for path in [f["path"] for f in folders if f.get("source")]:
        for old in unused(path):
            if host.changed(str(old), "a revision that nothing uses\n", ""):
                shutil.rmtree(str(old))
    return host.result()


def _begin(folder: Dict[str, Any], token: Any, program: str) -> Dict[str, str]:
    """Launch the fetch, or find it running. The job's file holds the token: 0600, in memory."""
    path, source = folder["path"], folder["source"]
    unit = fetched.unit_of(path)
    place = RUN / unit[: -len(".service")]
    found = {"name": unit, "progress": str(place / "progress.json")}
    job = {"path": path, "source": source, "token": token}
    if run(["systemctl", "show", "-P", "ActiveState", unit]).strip() in ("active", "activating"):
        present = read_json(place / "job.json") or {}
        if fetched.identity(present.get("source") or {}) != fetched.identity(source):
            raise Refused(_other(path, unit, read_json(place / "progress.json") or {}))
        if present == job:
            return found
        run(["systemctl", "stop", unit])  # the same files by another way: it goes on from here
    shutil.rmtree(str(place), ignore_errors=True)
    place.mkdir(mode=0o700, parents=True)
    write_json(place / "job.json", job, 0o600)
    write(place / "fetch.py", program.encode(), 0o600)
    properties = [word for key, value in _UNIT.items() for word in ("-p", f"{key}={value}")]
    command = ["systemd-run", "--quiet", "--collect", "--no-block", f"--unit={unit}"]
    command += [f"--description=opsctl fetches {path}", *properties, "--"]
    run([*command, sys.executable, "-I", str(place / "fetch.py")])
    return found


def _other(path: str, unit: str, progress: Dict[str, Any]) -> str:
    fault = progress.get("fault")
    how = f"in vain ({fault}): end" if fault else "wait for it, or end"
    return (
        f"{path}: another revision is being fetched by {unit}, {how} it on the host: "
        f"systemctl stop {unit}"
    )
