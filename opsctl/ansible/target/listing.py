"""What a source holds: every file with its size and hash, as far as the source tells them.

A file is {"path", "size" or None, "hash": "sha256:HEX", "git:HEX" or None, "url" or "file"}.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional
from urllib.parse import quote, urlencode, urljoin

from opsctl.ansible.target.fetched import STAMP, STATE
from opsctl.ansible.target.web import Again, Web, Wrong, told
from opsctl.onhost.files import read_json

MANIFEST = "SHA256SUMS"
_SUM = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")
File = Dict[str, Any]


def files(source: Dict[str, Any], web: Web) -> List[File]:
    """Sorted, the largest first: what takes longest begins first. Raises Wrong, Again."""
    known = {"hub": _hub, "s3": _s3, "url": _url, "folder": _folder}
    found = next(read(source, web) for key, read in known.items() if source.get(key))
    kept = [f for f in found if not left_out(f["path"], source.get("exclude") or ())]
    for file in kept:
        _refuse_path(file["path"])
    if len({f["path"] for f in kept}) < len(kept):
        raise Wrong("the source names a file twice")
    if not kept:
        raise Wrong("the source holds no files")
    return sorted(kept, key=lambda f: (-(f["size"] or 0), f["path"]))


def left_out(path: str, patterns: Any) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def _refuse_path(path: str) -> None:
    parts = path.split("/")
    if not path or any(p in ("", ".", "..", STATE, STAMP) for p in parts) or "\0" in path:
        raise Wrong(f"the source names a file {path!r}, which cannot be put into a folder")


def _hub(source: Dict[str, Any], web: Web) -> List[File]:
    """The tree of one commit. A large file's `lfs.oid` is its sha256; a small one's `oid` is git's
    own hash of it (sha1 over a header and the content)."""
    base = source["endpoint"].rstrip("/")
    repo, commit = quote(source["hub"]), source["revision"]
    page: Optional[str] = f"{base}/api/models/{repo}/tree/{commit}?recursive=true"
    found: List[File] = []
    while page:
        content, headers = web.read(page)
        for entry in _json(content, page, list):
            if entry.get("type") != "file":
                continue
            lfs, path = entry.get("lfs"), str(entry["path"])
            hashed = f"sha256:{lfs['oid']}" if lfs else f"git:{entry['oid']}"
            size = int((lfs or entry)["size"])
            url = f"{base}/{repo}/resolve/{commit}/{quote(path)}"
            found.append({"path": path, "size": size, "hash": hashed, "url": url})
        page = _next(headers, page)
    return found


def _next(headers: Any, page: str) -> Optional[str]:
    match = re.search(r'<([^>]+)>;\s*rel="next"', headers.get("Link") or "")
    return urljoin(page, match[1]) if match else None


def _json(content: bytes, url: str, kind: type) -> Any:
    try:
        value = json.loads(content.decode("utf-8"))
    except ValueError:
        raise Again(f"{told(url)} is not JSON") from None
    if not isinstance(value, kind):
        raise Wrong(f"{told(url)} is not what a hub answers")
    return value


def _url(source: Dict[str, Any], web: Web) -> List[File]:
    """A manifest, and files beside it: lines of sha256sum, or JSON with an address for each."""
    base = source["url"].rstrip("/") + "/"
    at = urljoin(base, source.get("manifest") or MANIFEST)
    content, _ = web.read(at)
    _pinned(content, source, told(at))
    found = [{"url": base + quote(f["path"]), **f} for f in manifest(content, told(at))]
    for file in found:
        if file["size"] is None:
            file["size"] = _asked_size(file["url"], web)
    return found


def _asked_size(url: str, web: Web) -> Optional[int]:
    """A signed address may refuse HEAD; then the size is told by the file itself."""
    try:
        with web.open(url, method="HEAD") as answer:
            length = answer.headers.get("Content-Length", "")
            return int(length) if length.isdigit() else None
    except (Wrong, Again):
        return None


def _pinned(content: bytes, source: Dict[str, Any], name: str) -> None:
    want, have = source.get("manifest_sha256"), hashlib.sha256(content).hexdigest()
    if want and want != have:
        raise Wrong(f"{name} has the sha256 {have}, model.source.manifest_sha256 asks for {want}")


def manifest(content: bytes, name: str) -> List[File]:
    """Raises Wrong with the line that is neither."""
    text = content.decode("utf-8", "replace")
    if text.lstrip().startswith("{"):
        try:
            return [_described(f) for f in json.loads(text)["files"]]
        except (ValueError, KeyError, TypeError) as error:
            raise Wrong(f"{name}: not a manifest ({type(error).__name__}: {error})") from None
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        match = _SUM.fullmatch(line.rstrip())
        if match is None and line.strip():
            raise Wrong(f"{name}, line {number} is not a line of sha256sum")
        if match:
            path = match[2][2:] if match[2].startswith("./") else match[2]
            found.append({"path": path, "size": None, "hash": f"sha256:{match[1].lower()}"})
    return found


def _described(file: Dict[str, Any]) -> File:
    size, hashed = file.get("size"), file.get("sha256")
    found: File = {"path": str(file["path"]), "size": None if size is None else int(size)}
    found["hash"] = f"sha256:{hashed.lower()}" if hashed else None
    return {**found, "url": str(file["url"])} if file.get("url") else found


def _s3(source: Dict[str, Any], web: Web) -> List[File]:
    """ListObjectsV2 under the prefix; hashes from the manifest that stands there, if one does."""
    bucket, _, prefix = source["s3"].strip("/").partition("/")
    base = f"{source['endpoint'].rstrip('/')}/{quote(bucket)}"
    prefix = prefix and prefix + "/"
    found: Dict[str, File] = {}
    for key, size in _objects(base, prefix, web):
        if not key.endswith("/"):
            path = key[len(prefix) :]
            found[path] = {"path": path, "size": size, "hash": None, "url": f"{base}/{quote(key)}"}
    at = source.get("manifest") or MANIFEST
    if at in found:
        content, _ = web.read(found[at]["url"])
        _pinned(content, source, at)
        for file in manifest(content, at):
            if file["path"] not in found:
                raise Wrong(f"{at} names {file['path']}, which the bucket does not hold")
            found[file["path"]]["hash"] = file["hash"]
    elif source.get("manifest_sha256"):
        raise Wrong(f"the bucket holds no {at}")
    return list(found.values())


def _objects(base: str, prefix: str, web: Web) -> Iterator[Any]:
    more: Dict[str, str] = {}
    while True:
        query = urlencode({"list-type": "2", "prefix": prefix, **more}, quote_via=quote)
        content, _ = web.read(f"{base}?{query}")
        try:
            tree = ElementTree.fromstring(content)
        except ElementTree.ParseError:
            raise Wrong(f"{told(base)} does not answer as an object store does") from None
        space = tree.tag.partition("}")[0] + "}" if tree.tag.startswith("{") else ""
        for entry in tree.iter(f"{space}Contents"):
            yield entry.findtext(f"{space}Key") or "", int(entry.findtext(f"{space}Size") or 0)
        token = tree.findtext(f"{space}NextContinuationToken")
        if not token:
            return
        more = {"continuation-token": token}


def _folder(source: Dict[str, Any], web: Web) -> List[File]:
    return local(Path(source["folder"]), source)


def local(folder: Path, source: Dict[str, Any]) -> List[File]:
    """Every file under a folder of the host, with the hashes of its manifest."""
    if not folder.is_dir():
        raise Wrong(f"{folder}: no such folder on the host")
    found: Dict[str, File] = {}
    for above, below, names in os.walk(str(folder)):
        below[:] = [name for name in below if name != STATE]
        for name in names:
            file = Path(above, name)
            path = file.relative_to(folder).as_posix()
            if path != STAMP:
                size = file.stat().st_size
                found[path] = {"path": path, "size": size, "hash": None, "file": str(file)}
    at = source.get("manifest") or MANIFEST
    if at in found:
        content = (folder / at).read_bytes()
        _pinned(content, source, at)
        for listed in manifest(content, at):
            if listed["path"] not in found:
                raise Wrong(f"{at} names {listed['path']}, which {folder} does not hold")
            found[listed["path"]]["hash"] = listed["hash"]
    elif source.get("manifest_sha256"):
        raise Wrong(f"{folder} holds no {at}")
    else:  # a model that opsctl has fetched there is checked by what was checked there
        stamped = (read_json(folder / STAMP) or {}).get("files", {})
        for entry in found.values():
            entry["hash"] = stamped.get(entry["path"], {}).get("hash")
    return list(found.values())
