"""The fetch of one model: a program of its own on the host, so that no lost connection ends it.

It may be killed at any moment and run again: it goes on. Exit 0: the model stands; 3: asking again
changes nothing; anything else: run it again.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
import traceback
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from opsctl.ansible.target import fetched, listing, signing
from opsctl.ansible.target.download import PATIENCE, Download, Pace, Stopped
from opsctl.ansible.target.mirrored import mirror
from opsctl.ansible.target.partial import Partial, boot_id
from opsctl.ansible.target.placing import (
    demand_space,
    kept_before,
    put_in_place,
    record,
    take_over,
    total,
)
from opsctl.ansible.target.progress import Progress
from opsctl.ansible.target.web import Again, GaveUp, Web, Wrong, bearer
from opsctl.onhost.files import Busy, flock, link

REFUSED = 3


def main(job: Dict[str, Any], progress_file: str) -> int:
    """`job`: path, source, token or null; `wait`: seconds after a first fault (1 if left out)."""
    os.umask(0o022)  # engines read as another user
    progress = Progress(Path(progress_file))
    try:
        with progress.written():
            _fetch(job, progress)
            progress.set(state="done")
        return 0
    except (Wrong, Busy, OSError) as problem:
        passes = isinstance(problem, (GaveUp, Busy))
        hint = getattr(problem, "hint", "")
        progress.set(state="failed", message=str(problem), hint=hint, again=passes)
        print(problem, flush=True)
        return REFUSED
    except Exception as problem:  # else the unit would begin anew for ever, and nobody be told
        message = f"{type(problem).__name__}: {problem}"
        progress.set(state="failed", message=message, again=False)
        traceback.print_exc()
        return REFUSED


def _fetch(job: Dict[str, Any], progress: Progress) -> None:
    path, source = job["path"], job["source"]
    home = fetched.home(path)
    home.mkdir(mode=0o755, parents=True, exist_ok=True)
    with flock(home / f".{Path(path).name}.lock"):
        _bring_in(path, source, job, home, progress)
        for left in fetched.parts(path):  # of a revision that is not asked for any more
            progress.note(f"{left.name}: given up, removed")
            shutil.rmtree(str(left))


def _bring_in(
    path: str, source: Dict[str, Any], job: Dict[str, Any], home: Path, progress: Progress
) -> None:
    if _finished_before(path, source, home):
        return
    part = fetched.part(path, source)
    state = part / fetched.STATE
    state.mkdir(mode=0o755, parents=True, exist_ok=True)
    base = float(job.get("wait", 1.0))
    if source.get("rsync"):
        folder, files, kept = _patient(lambda: mirror(source, home, part, progress), progress, base)
        _tell_bare(files, progress)
        put_in_place(path, source, folder, files, kept)
        return
    web = Web(_sign(source, job.get("token")))
    files = _patient(lambda: listing.files(source, web), progress, base)
    _tell_bare(files, progress)
    kept = kept_before(part, files)
    known = all(f["size"] is not None for f in files)
    progress.set(
        state="fetching", of_files=len(files), of=total(files) if known else None, fault=""
    )
    take_over(path, part, files, kept, progress)
    missing = [f for f in files if f["path"] not in kept]
    demand_space(home, total(missing), list(state.glob("*.partial")))
    _bring(files, kept, part, web, job, progress)
    put_in_place(path, source, part, files, kept)


def _tell_bare(files: List[Dict[str, Any]], progress: Progress) -> None:
    bare = [f["path"] for f in files if not f["hash"]]
    if bare:
        progress.note(
            f"{len(bare)} of {len(files)} files have no hash at the source ({bare[0]}): only their "
            "size is checked"
        )


def _sign(source: Dict[str, Any], token: Optional[str]) -> Any:
    if source.get("s3"):
        pair = signing.split(token)
        return pair and signing.signer(*pair, source.get("region") or "us-east-1")
    return bearer(token)


def _patient(ask: Callable[[], Any], progress: Progress, base: float) -> Any:
    """Faults that pass are waited for, ever longer. Raises Wrong."""
    for fault in range(PATIENCE):
        try:
            return ask()
        except Again as problem:
            progress.fault(str(problem))
            last = problem
            time.sleep(max(problem.wait, min(base * 2**fault, 60.0)))
    raise GaveUp(f"the source did not answer, {PATIENCE} times: {last}")


def _finished_before(path: str, source: Dict[str, Any], home: Path) -> bool:
    """A fetch that was killed between its last two renames; or a revision that was here before."""
    want = fetched.identity(source)
    for folder in reversed(fetched.revisions(path)):
        if fetched.stamp(str(folder)).get("id") == want and not fetched.damaged(str(folder)):
            link(Path(path), f".fetched/{folder.name}")
            return True
    return False


def _bring(
    files: List[Dict[str, Any]],
    kept: Dict[str, str],
    part: Path,
    web: Web,
    job: Dict[str, Any],
    progress: Progress,
) -> None:
    source, stop, lock, boot = job["source"], threading.Event(), threading.Lock(), boot_id()

    pace = Pace(int(source.get("limit") or 0))
    told = (progress.note, progress.fault, progress.counted)
    download = Download(web, pace, *told, stop, job.get("wait", 1.0))

    def one(file: Dict[str, Any]) -> None:
        if stop.is_set():
            raise Stopped
        partial = Partial(part / fetched.STATE, file, boot)
        try:
            if partial.resumed:
                progress.note(f"{file['path']}: goes on at {partial.resumed:,} bytes")
            progress.found(partial.resumed)
            digest = download.fill(partial, file)
            partial.finish(part / file["path"], source.get("page_cache") == "keep")
        finally:
            partial.close()
        with lock:
            record(part, file, digest)
            kept[file["path"]] = digest
        progress.done()

    for file in files:
        if file["path"] in kept:
            progress.found((part / file["path"]).stat().st_size)
            progress.done()
    with ThreadPoolExecutor(int(source.get("connections") or 4)) as pool:
        jobs = [pool.submit(one, f) for f in files if f["path"] not in kept]
        wait(jobs, return_when=FIRST_EXCEPTION)
        stop.set()
    failed = [e for e in (j.exception() for j in jobs) if e and not isinstance(e, Stopped)]
    if failed:
        raise failed[0]
