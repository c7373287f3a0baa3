"""A model from a mirror host or a peer: rsync does the transfer, its end is checked here.

A file that a kill left torn is gone on with by rsync's own comparison. rsync never asks: keys and
known hosts of root on this host must let it in. All stays in one folder until every hash is right.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Tuple

from opsctl.ansible.target import fetched, listing
from opsctl.ansible.target.placing import demand_space, hashed_file
from opsctl.ansible.target.progress import Progress
from opsctl.ansible.target.web import Again, Wrong

_SIZE = re.compile(r"Total transferred file size: ([\d,]+)")
# Socket, connection, stream and time limit: those of rsync's exit codes that pass, and ssh's own.
_PASSING = (10, 12, 20, 30, 35, 255)
# What no repeat cures, and what does.
_NEVER = (
    (
        r"Host key verification failed",
        "root of this host must know that one: log in to it from here once, as root, and compare "
        "its key's fingerprint",
    ),
    (r"Permission denied", "a key of root's on this host must be let in there"),
    (r"Could not resolve hostname .*(?:not known|No address)", "correct the name in model.source"),
)


def mirror(
    source: Dict[str, Any], home: Path, part: Path, progress: Progress
) -> Tuple[Path, List[Dict[str, Any]], Dict[str, str]]:
    """The folder, its files and their hashes. Raises Wrong, Again."""
    landing = part / fetched.STATE / "rsync"
    landing.mkdir(exist_ok=True)
    command, ends = _command(source), ["--", source["rsync"].rstrip("/") + "/", str(landing)]
    foretold = _SIZE.search(_run([*command, "--dry-run", "--stats", *ends]))
    size = int(foretold[1].replace(",", "")) if foretold else 0
    demand_space(home, size, [p for p in landing.rglob("*") if p.is_file()])
    progress.set(state="rsync", of=size)
    _run([*command, *ends])
    files = listing.local(landing, source)
    progress.set(state="hashing", fault="", of=sum(f["size"] for f in files), of_files=len(files))
    keep = source.get("page_cache") == "keep"
    return landing, files, {f["path"]: _checked(landing, f, keep, progress) for f in files}


def _checked(landing: Path, file: Dict[str, Any], keep: bool, progress: Progress) -> str:
    """Its hash. What is wrong is removed, so that the next run brings it anew."""
    found = hashed_file(landing / file["path"], file["hash"], file["size"], keep)
    if file["hash"] not in (None, found):
        os.unlink(str(landing / file["path"]))
        raise Wrong(f"{file['path']} has the hash {found} instead of {file['hash']}")
    progress.found(file["size"])
    progress.done()
    return found


def _command(source: Dict[str, Any]) -> List[str]:
    command = ["rsync", "--recursive", "--copy-links", "--times", "--inplace", "--partial"]
    command += ["--delete", "--chmod=D0755,F0644", "--timeout=60", f"--exclude=/{fetched.STATE}"]
    command += [f"--exclude={pattern}" for pattern in source.get("exclude") or ()]
    if source.get("limit"):
        command.append(f"--bwlimit={max(int(source['limit']) // 1024, 1)}")
    return [*command, "--rsh=ssh -o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=15"]


def _run(command: List[str]) -> str:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except FileNotFoundError:
        raise Wrong("rsync is not installed on the host") from None
    said = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        end = " | ".join(said.strip().splitlines()[-5:])
        text = f"{command[-2]}: rsync ended with {done.returncode}: {end}"
        hint = next((how for form, how in _NEVER if re.search(form, said)), "")
        passing = done.returncode in _PASSING and not hint
        raise Again(text) if passing else Wrong(text, hint)
    return said
