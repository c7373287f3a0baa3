"""The tensors of a model, from the headers of its safetensors files only.

A file begins with the length of its header (8 bytes, little endian) and the header: a JSON object
of name → {"dtype", "shape", "data_offsets"}, and "__metadata__". No tensor is read.
"""

from __future__ import annotations

import json
import os
import struct
import time
from pathlib import Path
from typing import Any, Dict, Iterable, List, Tuple

LARGEST = 100 << 20  # bytes of one header: the format's own limit
MOST = 512 << 20  # bytes of all headers of a model; 210,000 tensors take 30 MB
POINTER = b"version https://git-lfs.github.com/spec/"  # what git-lfs leaves in the place of a file
LONGEST = 20.0  # seconds for all headers of a model, which a network may make slow


class Damaged(Exception):
    """A file is not what it should be; the text names it and says why."""


class CutOff(Damaged):
    """A file ends before its own header says."""


class Foreign(Damaged):
    """A file is something else altogether: no loader opens it."""


Group = Tuple[str, str, Tuple[int, ...]]


def read(paths: Iterable[Path]) -> Dict[str, Any]:
    """{"count", "bytes", "by": [{"name", "dtype", "shape", "layers", "count", "bytes"}]}.

    Raises Damaged. A sum over some of the files would be a wrong figure, so one bad file spoils
    the answer.
    """
    groups: Dict[Group, List[int]] = {}
    until, total = time.monotonic() + LONGEST, 0
    for path in paths:
        if time.monotonic() > until:
            raise Damaged(f"the headers could not be read within {LONGEST:.0f} s: {path.name}")
        size, header = header_of(path)
        total += size
        if total > MOST:
            raise Damaged(f"the headers are larger than {MOST >> 20} MiB: {path.name}")
        try:
            add(groups, header)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise Damaged(f"{path.name}: its header describes tensors in no known way") from None
    return told(groups)


def header_of(path: Path) -> Tuple[int, Dict[str, Any]]:
    """The length of a file's header and the header. Raises Damaged."""
    try:
        with open(path, "rb") as file:
            there = os.fstat(file.fileno()).st_size
            head = file.read(8)
            length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
            if not 2 <= length <= LARGEST:
                raise Foreign(f"{path.name} is {instead(path)}")
            if 8 + length > there:
                raise CutOff(f"{path.name} is cut off within its header")
            text = file.read(length)
    except OSError as error:
        raise Damaged(f"{path.name} cannot be read: {error.strerror}") from None
    try:
        header = json.loads(text.decode("utf-8"))
    except ValueError:
        raise Foreign(f"{path.name} is no safetensors file: its header is no JSON") from None
    if not isinstance(header, dict):
        raise Foreign(f"{path.name} is no safetensors file: its header is no JSON object")
    header.pop("__metadata__", None)
    try:
        end = max((int(entry["data_offsets"][1]) for entry in header.values()), default=0)
    except (KeyError, TypeError, ValueError, IndexError):
        raise Damaged(f"{path.name}: its header describes tensors in no known way") from None
    if 8 + length + end > there:
        raise CutOff(f"{path.name} is cut off: {there:,} of {8 + length + end:,} bytes are there")
    return length, header


def pointer(path: Path) -> bool:
    """Whether git-lfs has left a few lines in the place of the file."""
    try:
        with open(path, "rb") as file:
            return file.read(len(POINTER)) == POINTER
    except OSError:
        return False


def instead(path: Path) -> str:
    """What such a file is."""
    if pointer(path):
        return "a pointer of git-lfs, and not the file that it stands for"
    return "no safetensors file: its header has no sane length"


def add(groups: Dict[Group, List[int]], header: Dict[str, Any]) -> None:
    """Count the tensors of a header: group → [count, bytes, first layer, last layer]."""
    for name, entry in header.items():
        parts = name.split(".")
        numbers = [index for index, part in enumerate(parts) if part.isdigit()]
        layer = int(parts[numbers[0]]) if numbers else -1
        for index in numbers:
            parts[index] = "#"
        begin, end = entry["data_offsets"]
        group = (".".join(parts), str(entry["dtype"]), tuple(entry["shape"]))
        known = groups.get(group)
        if known is None:
            groups[group] = [1, end - begin, layer, layer]
        else:
            known[0] += 1
            known[1] += end - begin
            known[2] = min(known[2], layer)
            known[3] = max(known[3], layer)


def told(groups: Dict[Group, List[int]]) -> Dict[str, Any]:
    """The answer's "tensors". `layers`: least and most of the first number in the names."""
    by = [
        {
            "name": name,
            "dtype": dtype,
            "shape": list(shape),
            "layers": [first, last] if first >= 0 else None,
            "count": count,
            "bytes": size,
        }
        for (name, dtype, shape), (count, size, first, last) in sorted(groups.items())
    ]
    return {
        "count": sum(count for count, *_ in groups.values()),
        "bytes": sum(size for _, size, *_ in groups.values()),
        "by": by,
    }
