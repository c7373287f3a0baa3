"""What an earlier run, or another revision, has brought; room for the rest; the end of a fetch."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any, Dict, List, Optional

from opsctl.ansible.target import fetched
from opsctl.ansible.target.partial import CHUNK, hasher, named
from opsctl.ansible.target.progress import Progress
from opsctl.ansible.target.web import Wrong
from opsctl.onhost.files import append_json, json_lines, link, read, sync_folder, write_json

LEAST_LEFT = 1 << 30  # bytes of the disk that a fetch leaves, and a hundredth of what it brings


def kept_before(part: Path, files: List[Dict[str, Any]]) -> Dict[str, str]:
    """Files in their place that an earlier run has checked, with their hash. What is not of this
    listing is removed."""
    wanted = {f["path"]: f for f in files}
    kept: Dict[str, str] = {}
    for row in json_lines(read(part / fetched.STATE / "done.jsonl") or b""):
        file = wanted.get(row["path"])
        if file is None or row["asked"] != file["hash"]:
            continue
        with contextlib.suppress(OSError):
            found = os.stat(str(part / row["path"]))
            if (found.st_size, found.st_mtime_ns) == (row["size"], row["mtime"]):
                kept[row["path"]] = row["hash"]
    for above, below, names in os.walk(str(part)):
        below[:] = [name for name in below if name != fetched.STATE]
        for name in names:
            if Path(above, name).relative_to(part).as_posix() not in wanted:
                os.unlink(os.path.join(above, name))
    return kept


def record(part: Path, file: Dict[str, Any], digest: str) -> None:
    """Written when the file is in its place and both are on the disk."""
    target = part / file["path"]
    sync_folder(target.parent)
    found = target.stat()
    row = {"path": file["path"], "size": found.st_size, "mtime": found.st_mtime_ns}
    row.update({"asked": file["hash"], "hash": digest})
    append_json(part / fetched.STATE / "done.jsonl", row)


def take_over(
    path: str, part: Path, files: List[Dict[str, Any]], kept: Dict[str, str], progress: Progress
) -> None:
    """What another revision holds with the same hash is linked, and hashed here again: a changed
    revision of a model mostly changes a few of its files."""
    there: Dict[str, Path] = {}
    for folder in fetched.revisions(path):
        for name, told in fetched.stamp(str(folder)).get("files", {}).items():
            there.setdefault(told["hash"], folder / name)
    for file in files:
        source = there.get(file["hash"] or "")
        if source is None or file["path"] in kept or not source.is_file():
            continue
        target = part / file["path"]
        target.parent.mkdir(parents=True, exist_ok=True)
        if hashed_file(source, file["hash"], file["size"]) == file["hash"]:
            with contextlib.suppress(FileNotFoundError):
                target.unlink()
            os.link(str(source), str(target))
            kept[file["path"]] = file["hash"]
            record(part, file, file["hash"])
            progress.note(f"{file['path']}: taken from {source.parent.name}")


def hashed_file(
    path: Path, hashed: Optional[str], size: Optional[int], keep_cached: bool = False
) -> str:
    """Its hash; what was read is on the disk then, and let go of by the page cache."""
    total = hasher(hashed, size)
    with path.open("rb") as file:
        while True:
            chunk = file.read(CHUNK)
            if not chunk:
                os.fsync(file.fileno())  # rsync leaves that to the kernel
                if not keep_cached:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                return named(hashed, total.hexdigest())
            total.update(chunk)


def demand_space(home: Path, size: int, there: List[Path]) -> None:
    """Room for `size` bytes, of which the files `there` hold a part. Raises Wrong."""
    missing = max(size - sum(p.stat().st_blocks * 512 for p in there), 0)
    disk = os.statvfs(str(home))
    free = disk.f_bavail * disk.f_frsize
    need = missing + max(LEAST_LEFT, missing // 100) if missing else 0
    if free < need:
        raise Wrong(
            f"{home} has {free:,} bytes free; {missing:,} are still to come and "
            f"{need - missing:,} are to be left: {need - free:,} too few"
        )


def total(files: List[Dict[str, Any]]) -> int:
    return sum(f["size"] or 0 for f in files)


def put_in_place(
    path: str,
    source: Dict[str, Any],
    folder: Path,
    files: List[Dict[str, Any]],
    kept: Dict[str, str],
) -> None:
    """`folder` holds every file and nothing else: it becomes the revision, and `path` its link."""
    told = {f["path"]: {"hash": kept[f["path"]], "checked": bool(f["hash"])} for f in files}
    for name, file in told.items():
        file["size"] = (folder / name).stat().st_size
    stamp = {"id": fetched.identity(source), "files": told, "source": _public(source)}
    part = fetched.part(path, source)
    write_json(folder / fetched.STAMP, stamp)
    if folder == part:
        shutil.rmtree(str(part / fetched.STATE))
    stem = part.name[: -len(".part")]
    final, number = part.with_name(stem), 0
    while final.exists():
        number += 1
        final = part.with_name(f"{stem}.{number}")
    os.rename(str(folder), str(final))
    shutil.rmtree(str(part), ignore_errors=True)
    sync_folder(final.parent)
    link(Path(path), f".fetched/{final.name}")


def _public(source: Dict[str, Any]) -> Dict[str, Any]:
    """What the stamp tells of it; an address loses its query."""
    known = ("hub", "revision", "s3", "rsync", "folder", "manifest_sha256")
    return {key: source[key] for key in known if source.get(key)}
