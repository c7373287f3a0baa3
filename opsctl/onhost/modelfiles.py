"""A model's folder: its texts, its files, the tensors in them, where it lies, what of it is cached.

Headers are read once: the answer is kept in /var/cache/opsctl until a file changes.
"""

from __future__ import annotations

import hashlib
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from opsctl.onhost import files, pagecache, safetensors, storage

TEXTS = ("config.json", "hf_quant_config.json", "generation_config.json")
LARGEST = 1 << 20  # bytes of one such text
MOST_FILES = 2000
INDEX = "model.safetensors.index.json"
LARGEST_INDEX = 256 << 20
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".ckpt")
CACHE = Path("var/cache/opsctl")


def folder(path: Path, root: Path = Path("/")) -> Dict[str, Any]:
    """One model of the answer of `facts`: {"path", "exists", "texts": {name: text},
    "files": [{"name", "bytes"}], "tensors", "tensors_reason", "weights_bytes", "cached",
    "storage"}. `cached`: share of the weights in the page cache, None if it cannot be told."""
    listed = listing(path)
    texts = {}
    for name in TEXTS:
        file = path / name
        if file.is_file() and file.stat().st_size <= LARGEST:
            texts[name] = file.read_text(encoding="utf-8", errors="replace")
    tensors, reason = _tensors(path, listed, root)
    loaded = _loaded(path, listed)
    return {
        "path": str(path),
        "exists": path.is_dir(),
        "texts": texts,
        "files": [{"name": name, "bytes": size} for name, size, _ in listed],
        "tensors": tensors,
        "tensors_reason": reason,
        "weights_bytes": sum(size for _, size in loaded),
        "cached": pagecache.share(loaded),
        "storage": storage.of(path) if path.is_dir() else None,
    }


def unread(path: str, why: str) -> Dict[str, Any]:
    """The same of a folder that cannot be read: with `silent`, which says why."""
    nothing: Dict[str, Any] = {"texts": {}, "files": [], "tensors": None, "tensors_reason": why}
    return {"path": path, "exists": False, "silent": why, **nothing, "weights_bytes": 0,
            "cached": None, "storage": None}  # fmt: skip


def listing(path: Path) -> List[Tuple[str, int, int]]:
    """(name, bytes, mtime in ns) of the files in the folder, by name."""
    found: List[Tuple[str, int, int]] = []
    with suppress(OSError):
        for entry in sorted(path.iterdir()):
            with suppress(OSError):
                if entry.is_file() and len(found) < MOST_FILES:
                    stat = entry.stat()
                    found.append((entry.name, stat.st_size, stat.st_mtime_ns))
    return found


def weights(path: Path) -> List[Tuple[Path, int]]:
    """The weight files that the engine loads from a folder, with their sizes."""
    return _loaded(path, listing(path))


def _loaded(path: Path, listed: List[Tuple[str, int, int]]) -> List[Tuple[Path, int]]:
    """Safetensors where there are some, and of them those that the index names: a folder may hold
    its weights in a second form that is never read."""
    safe = [name for name, _, _ in listed if name.endswith(".safetensors")]
    wanted = set(indexed(path / INDEX, safe)[0])
    if not safe:
        wanted = {name for name, _, _ in listed if name.endswith(WEIGHTS)}
    return [(path / name, size) for name, size, _ in listed if name in wanted]


class Heads(NamedTuple):
    """What the beginnings of weight files tell, in words. `cut`: shorter than their own headers
    say; `foreign`: no weights at all; `told`: whether it could be told of every file."""

    cut: List[str]
    foreign: List[str]
    told: bool


def heads(path: Path, root: Path = Path("/")) -> Heads:
    """Of the files that the engine loads; empty ones are for `modelcheck`. Changes nothing."""
    listed = listing(path)
    known = files.read_json(_kept(path, root)) or {}
    if known.get("tensors") and known.get("key") == _key(path, listed):
        return Heads([], [], True)
    cut: List[str] = []
    foreign: List[str] = []
    told, until = True, time.monotonic() + safetensors.LONGEST
    for file, size in _loaded(path, listed):
        if size == 0 or time.monotonic() > until:
            told = False
            continue
        try:
            told = _opens(file) and told
        except safetensors.CutOff as error:
            cut.append(str(error))
        except safetensors.Foreign as error:
            foreign.append(str(error))
        except safetensors.Damaged:
            told = False
    return Heads(cut, foreign, told)


def _opens(file: Path) -> bool:
    """Whether its header tells that it is whole. Raises Damaged."""
    if file.suffix == ".safetensors":
        safetensors.header_of(file)
        return True
    if safetensors.pointer(file):
        raise safetensors.Foreign(f"{file.name} is {safetensors.instead(file)}")
    return False


def _kept(path: Path, root: Path) -> Path:
    return root / CACHE / f"tensors-{hashlib.sha256(str(path).encode()).hexdigest()[:16]}.json"


def _tensors(
    path: Path, listed: List[Tuple[str, int, int]], root: Path
) -> Tuple[Optional[Dict[str, Any]], str]:
    """The tensors, or None with the reason."""
    names = [name for name, _, _ in listed if name.endswith(".safetensors")]
    if not names:
        others = sorted({Path(name).suffix for name, _, _ in listed if name.endswith(WEIGHTS)})
        kinds = ", ".join(others)
        return None, f"{kinds} files tell no shapes" if others else "there are no weight files"
    wanted, absent = indexed(path / INDEX, names)
    if absent:
        return None, f"{absent[0]} is named by the index and is not there"
    key = _key(path, listed)
    kept = _kept(path, root)
    known = files.read_json(kept)
    if known is not None and known.get("key") == key:
        return known.get("tensors"), str(known.get("reason") or "")
    try:
        tensors, reason = safetensors.read(path / name for name in wanted), ""
    except safetensors.Damaged as error:
        tensors, reason = None, str(error)
    with suppress(OSError):  # what is learned is worth no failure
        kept.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(kept, {"key": key, "tensors": tensors, "reason": reason})
    return tensors, reason


def indexed(index: Path, names: List[str]) -> Tuple[List[str], List[str]]:
    """The safetensors files that the index names, and those of them that are not there.

    A folder may hold the weights a second time in another form (consolidated.safetensors): the
    engine loads what the index names. Without an index: all.
    """
    text = b""
    with suppress(OSError):
        if index.stat().st_size <= LARGEST_INDEX:
            text = index.read_bytes()
    found = {name.decode("utf-8", "replace") for name in set(_FILE.findall(text))}
    if not found:
        return names, []
    return [name for name in names if name in found], sorted(found - set(names))


_FILE = re.compile(rb':\s*"([^"\\]+\.safetensors)"')


def _key(path: Path, listed: List[Tuple[str, int, int]]) -> str:
    marks = [
        (n, size, time) for n, size, time in listed if n.endswith(".safetensors") or n == INDEX
    ]
    return hashlib.sha256(repr((str(path), marks)).encode()).hexdigest()
