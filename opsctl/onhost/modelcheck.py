"""Are the files of a model all there? Names and sizes; nothing is hashed.

As SGLang's loader looks for them: *.safetensors where there are some, and of those what their index
names, or all if it is not there; else *.bin, else *.pt. No other index is read by it.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, Dict, List, Mapping, Tuple

# Ending → the index of such files; the first of which there are some is loaded.
KINDS = {
    ".safetensors": "model.safetensors.index.json",
    ".bin": "pytorch_model.bin.index.json",
    ".pt": "",
    ".gguf": "",
}
SAFE = ".safetensors"
NATIVE = "params.json"  # in the place of config.json, where a model is in Mistral's own format
MOST = 10_000  # files that one number promises
# Ways to load that look for weight files by their names, as is done here. The rest take none of the
# folder (dummy, remote), or others than those (sharded_state, gguf, mistral).
BY_NAME = {"auto", "safetensors", "fastsafetensors", "instanttensor", "layered", "flash_rl",
           "bitsandbytes", "runai_streamer"}  # fmt: skip
# Flags that name a configuration in the place of the folder's own.
DECRYPTED = {"model": "decrypted-config-file", "draft": "decrypted-draft-config-file"}
_NUMBERED = re.compile(r"(.*-)(\d+)(-of-(\d+)\.\w+)")


def loading(flags: Mapping[str, Any], what: str) -> Dict[str, Any]:
    """What the flags say of how the "model" or the "draft" is loaded: {"load_format", "own_config":
    whether the folder's own configuration is read}."""
    told = flags.get("load-format")
    if what == "draft":
        told = flags.get("speculative-draft-load-format") or told
    return {"load_format": str(told or "auto"), "own_config": not flags.get(DECRYPTED[what])}


def look(
    path: str, least: Any, load_format: str = "auto", own_config: bool = True
) -> Tuple[int, List[str]]:
    """Bytes of the weight files, and what is wrong with the folder. A model may be one file."""
    if os.path.isfile(path):
        return os.stat(path).st_size, _too_small(os.stat(path).st_size, least)
    if not os.path.isdir(path):
        return 0, ["no such folder on the host"]
    model = seen(path, least)
    return model["bytes"], [text for _, text in faults(model, load_format, own_config)]


def seen(path: str, least: Any, of_index: bool = False) -> Dict[str, Any]:
    """What `faults` judges, of a folder; only the beginnings of the files (modelfiles.heads) tell
    what is foreign or cut off. `of_index`: its size is held against the one that the index names
    too; some indexes name that of the model before it was quantised."""
    there = os.path.isdir(path)
    files, odd = wanted(path) if there else ([], "")
    sizes = {name: _bytes(path, name) for name in files}
    return {
        "bytes": sum(sizes.values()),
        "config": config(path) if there else "",
        "odd": odd,
        "missing": [name for name in files if not sizes[name]],
        "foreign": [],
        "cut": [],
        "short": _short(sizes, least, _index_size(path) if there and of_index else 0),
    }


def faults(model: Mapping[str, Any], load_format: str, own_config: bool) -> List[Tuple[str, str]]:
    """Faults of doctor's in a model that is there, with what is said of each (pure). Of the weights
    the gravest only: where files are missing or damaged, their sum tells nothing more."""
    found = [("model-odd", model["config"])] if model["config"] and own_config else []
    if load_format not in BY_NAME:
        return found
    absent = model["missing"]
    if model["odd"]:
        found.append(("model-odd", model["odd"]))
    elif absent:
        text = f"{absent[0]} is missing or empty"
        if len(absent) > 1:
            text = f"{len(absent)} weight files missing or empty, {absent[0]} first"
        found.append(("model-incomplete", text))
    elif model["foreign"] or model["cut"]:
        damaged = (("model-foreign", model["foreign"]), ("model-cut", model["cut"]))
        found += [(fault, _few(files)) for fault, files in damaged if files]
    elif model["short"]:
        found.append(("model-short", model["short"]))
    return found


def _few(texts: List[str]) -> str:
    more = len(texts) - 3
    return ", ".join(texts[:3]) + (f", and {more} more" if more > 0 else "")


def config(path: str) -> str:
    """Why the engine cannot tell what the model is, "" if it can."""
    native = not os.path.lexists(os.path.join(path, "config.json")) and os.path.exists(
        os.path.join(path, NATIVE)
    )
    return _json(path, NATIVE if native else "config.json")[1]


def wanted(path: str) -> Tuple[List[str], str]:
    """The weight files that the engine looks for, whether they are there or not; and why it cannot
    tell which, "" if it can. Without an index, the numbers of those that are there promise more."""
    names = _names(path)
    kind = _kind(names)
    index = KINDS[kind]
    if index in names:
        named, problem = _indexed(path, index)
        if named or kind == SAFE:
            return named, problem
    present = [name for name in names if name.endswith(kind)]
    return sorted([*present, *promised(present)]), "" if present else "no weight files"


def unindexed(path: str) -> str:
    """The index that belongs to several files and is not there, "" if none is missed: the engine
    loads whatever lies beside them, and a second form of the weights too."""
    names = _names(path)
    several = [name for name in names if name.endswith(SAFE) and _NUMBERED.fullmatch(name)]
    return KINDS[SAFE] if len(several) > 1 and KINDS[SAFE] not in names else ""


def promised(names: List[str]) -> List[str]:
    """Files that others speak of: model-00002-of-00003 where only 1 and 3 are there."""
    sets: Dict[Tuple[str, str, int], Dict[int, int]] = {}
    for name in names:
        found = _NUMBERED.fullmatch(name)
        if found and int(found[4]) <= MOST:
            key = (found[1], found[3], int(found[4]))
            sets.setdefault(key, {})[int(found[2])] = len(found[2])
    absent = []
    for (head, tail, total), there in sets.items():
        first, width = (0 if 0 in there else 1), max(there.values())
        numbers = [n for n in range(first, first + total) if n not in there]
        absent += [f"{head}{n:0{width}d}{tail}" for n in numbers]
    return absent


def _short(sizes: Mapping[str, int], least: Any, indexed: int) -> str:
    """What the weight files lack together, "" if nothing; sizes in bytes, 0 for unknown."""
    total = sum(sizes.values())
    for who, size in (("model.size asks for", least), ("the model's index names", indexed)):
        if size and total < size:
            least_name = min(sizes, key=lambda name: sizes[name], default="no file")
            told = f"weight files are {total:,} bytes together, {who} {size:,}"
            return f"{told}; the smallest is {least_name} ({sizes.get(least_name, 0):,})"
    return ""


def _too_small(total: int, least: Any) -> List[str]:
    if least and total < least:
        return [f"weight files are {total:,} bytes together, model.size asks for {least:,}"]
    return []


def _kind(names: List[str]) -> str:
    """What is loaded; where no weights are there, what an index speaks of."""
    present = [kind for kind in KINDS if any(name.endswith(kind) for name in names)]
    spoken = [kind for kind, index in KINDS.items() if index in names]
    return [*present, *spoken, SAFE][0]


def _index_size(path: str) -> int:
    index, _ = _json(path, KINDS[_kind(_names(path))] or KINDS[SAFE])
    try:
        return int(index["metadata"]["total_size"])
    except (ValueError, KeyError, TypeError):
        return 0


def _indexed(path: str, name: str) -> Tuple[List[str], str]:
    index, problem = _json(path, name)
    places = index.get("weight_map")
    if problem or not isinstance(places, dict) or not places:
        return [], problem or f"{name} has no weight_map"
    return sorted({str(place) for place in places.values()}), ""


def _json(path: str, name: str) -> Tuple[Dict[str, Any], str]:
    """An object, and why there is none."""
    try:
        with open(os.path.join(path, name), encoding="utf-8") as file:
            value = json.load(file)
    except FileNotFoundError:
        return {}, f"{name} is missing"
    except (OSError, ValueError) as error:
        return {}, f"{name} cannot be read: {error}"
    return (value, "") if isinstance(value, dict) else ({}, f"{name} is not a JSON object")


def _names(path: str) -> List[str]:
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def _bytes(path: str, name: str) -> int:
    try:
        return os.stat(os.path.join(path, name)).st_size
    except OSError:
        return 0
