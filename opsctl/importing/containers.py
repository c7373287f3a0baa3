"""A container's folders, ports and GPUs, as its settings say them → as the host has them."""

from __future__ import annotations

import csv
import posixpath
import re
from collections.abc import Mapping, Sequence

from opsctl.importing.marks import mark, unknown_parts, whole
from opsctl.importing.model import Mount, Report

Options = Mapping[str, Sequence[str]]


def mounts(values: Options, cwd: str) -> list[Mount]:
    """`cwd`: the folder that relative ones are in, "" if it is not known."""
    found = []
    for text in values.get("--volume", ()):
        parts = re.findall("(?:\0[^\0]*\0|[^:\0])+", text)
        if len(parts) >= 2:
            found.append(Mount(_source(parts[0], cwd), parts[1]))
    for text in values.get("--mount", ()):
        pairs = dict(part.partition("=")[::2] for part in text.split(","))
        target = next((pairs[k] for k in ("target", "destination", "dst") if k in pairs), "")
        source = next((pairs[k] for k in ("source", "src") if k in pairs), "")
        if target:
            bound = pairs.get("type") == "bind"
            found.append(Mount(_source(source, cwd) if bound else None, target))
    return found


def _source(text: str, cwd: str) -> str | None:
    """A folder of the host, perhaps with marks; None for a volume's name."""
    if text.startswith("."):
        return posixpath.normpath(posixpath.join(cwd, text)) if cwd else mark("folder", text)
    return text if text.startswith("/") or not whole(text) else None


def ports(values: Options, called: Mapping[str, str], report: Report) -> list[tuple[str, int, int]]:
    """(address, outside, inside) of each. `called`: what the text calls options."""
    key = called.get("--publish", "--publish")
    found: list[tuple[str, int, int]] = []
    for text in values.get("--publish", ()):
        if not whole(text):
            for message, hint in unknown_parts(text):
                report.refuse(message, key=key, hint=hint)
            continue
        found += _published(text.partition("/")[0], key, report)
    return found


def _published(text: str, key: str, report: Report) -> list[tuple[str, int, int]]:
    """ADDRESS:OUTSIDE:INSIDE, the latter two perhaps FIRST-LAST of as many."""
    number = "[0-9]+(?:-[0-9]+)?"
    match = re.fullmatch(rf"(?:(\[[0-9a-fA-F:]+\]|[^:\[\]]*):)?(?:({number})?:)?({number})", text)
    if match is None:
        report.refuse("is no port", key=key, value=text)
        return []
    address, outside, inside = match.groups()
    if address and re.fullmatch(number, address) and outside is None:
        address, outside = "", address
    if outside is None:
        report.note("told", f"{key} {text}", "docker chose a port of the host by itself: the "
                    "same one is taken here")  # fmt: skip
    within, without = _range(inside), _range(outside or inside)
    if len(within) != len(without) or len(within) > 1000:
        report.refuse("is no port, or range of as many", key=key, value=text)
        return []
    return [((address or "").strip("[]"), o, i) for o, i in zip(without, within, strict=True)]


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def chosen(
    values: Options, env: Mapping[str, str], called: Mapping[str, str], report: Report
) -> tuple[int, ...] | None:
    """Numbers of its GPUs; None: all, or not said."""
    text = next(reversed(values.get("--gpus", ())), "") or _devices(values)
    if not text and (visible := env.get("NVIDIA_VISIBLE_DEVICES", "all")) not in ("all", ""):
        text = f"device={visible}"
    return gpus(text, called.get("--gpus", "--gpus"), report)


def _devices(values: Options) -> str:
    """nvidia.com/gpu=0 as CDI names GPUs."""
    names = [v.partition("gpu=")[2] for v in values.get("--device", ()) if "nvidia.com/gpu=" in v]
    return "" if not names or "all" in names else f"device={','.join(names)}"


def gpus(text: str, key: str, report: Report) -> tuple[int, ...] | None:
    """'all', a count, or "device=4,5" (docker's own value is a line of CSV)."""
    if text in ("", "all"):
        return None
    parts = next(csv.reader([text.strip("'")]), [])
    pairs = dict(part.partition("=")[::2] for part in parts)
    listed = pairs.get("device") or pairs.get('"device')
    if listed is None:
        bare = next((p for p in parts if p.isdigit()), pairs.get("count", ""))
        if bare == "all":
            return None
        if not bare.isdigit() or not 0 < int(bare) <= 1024:
            report.refuse("does not say which GPUs", key=key, value=text)
            return None
        report.note(
            "changed",
            f"{key} {text}",
            "a number of GPUs becomes the first ones: check that these were meant",
        )
        return tuple(range(int(bare)))
    items = [i.strip('"') for i in ([listed] + [p for p in parts if p.strip('"').isdigit()])]
    items = [i for item in items for i in item.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,4}", item) for item in items):
        report.refuse(
            "names GPUs in another way than by number",
            key=key,
            value=text,
            hint="nvidia-smi -L shows their numbers",
        )
        return None
    return tuple(int(item) for item in items)
