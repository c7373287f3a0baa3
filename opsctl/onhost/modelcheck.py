"""Are the files of a model all there? Sizes only; nothing is hashed."""

from __future__ import annotations

import json
import os
from typing import Any, List, Tuple

INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")


def look(path: str, least: Any) -> Tuple[int, List[str]]:
    """Bytes of the weight files, and what is wrong with the folder."""
    if not os.path.isdir(path):
        return 0, ["no such folder on the host"]
    problems = _json_problems(path, "config.json")
    named = _named_files(path, problems)
    absent = [name for name in named if not _bytes(path, name)]
    if absent:
        shown = ", ".join(absent[:5]) + (" …" if len(absent) > 5 else "")
        problems.append(f"{len(absent)} of {len(named)} weight files missing or empty: {shown}")
    files = named or sorted(n for n in os.listdir(path) if n.endswith(WEIGHTS))
    if not files:
        problems.append("no weight files")
    total = sum(_bytes(path, name) for name in files)
    if least and total < least:
        problems.append(f"weight files are {total:,} bytes together, model.size asks for {least:,}")
    return total, problems


def missing(path: str) -> List[str]:
    """The weight files that the model's own index names, and that are not there or empty."""
    return [name for name in _named_files(path, []) if not _bytes(path, name)]


def short(path: str, least: Any, of_index: bool) -> str:
    """What the weight files lack together, "" if nothing. `of_index`: measured by the size that
    the index names too; some indexes name that of the model before it was quantised."""
    files = _named_files(path, [])
    files = files or [n for n in sorted(os.listdir(path)) if n.endswith(WEIGHTS)]
    sizes = {name: _bytes(path, name) for name in files}
    total, indexed = sum(sizes.values()), _index_size(path) if of_index else 0
    for who, size in (("model.size asks for", least), ("the model's index names", indexed)):
        if size and total < size:
            least_name = min(sizes, key=lambda name: sizes[name], default="no file")
            told = f"weight files are {total:,} bytes together, {who} {size:,}"
            return f"{told}; the smallest is {least_name} ({sizes.get(least_name, 0):,})"
    return ""


def _index_size(path: str) -> int:
    for name in INDEXES:
        try:
            with open(os.path.join(path, name), encoding="utf-8") as file:
                return int(json.load(file)["metadata"]["total_size"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return 0


def _named_files(path: str, problems: List[str]) -> List[str]:
    """The files that the index names; [] if there is none (a model of one file)."""
    for name in INDEXES:
        if not os.path.exists(os.path.join(path, name)):
            continue
        wrong = _json_problems(path, name)
        problems += wrong
        if wrong:
            return []
        with open(os.path.join(path, name), encoding="utf-8") as file:
            index = json.load(file)
        places = index.get("weight_map")
        if not isinstance(places, dict) or not places:
            problems.append(f"{name} has no weight_map")
            return []
        return sorted({str(place) for place in places.values()})
    return []


def _json_problems(path: str, name: str) -> List[str]:
    try:
        with open(os.path.join(path, name), encoding="utf-8") as file:
            value = json.load(file)
    except FileNotFoundError:
        return [f"{name} is missing"]
    except (OSError, ValueError) as error:
        return [f"{name} cannot be read: {error}"]
    return [] if isinstance(value, dict) else [f"{name} is not a JSON object"]


def _bytes(path: str, name: str) -> int:
    try:
        return os.stat(os.path.join(path, name)).st_size
    except OSError:
        return 0
