"""The house stands as docs/architecture.md says: who may import whom, and what else is allowed."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "opsctl"

# Each room and those that it may stand on, as in the first table of docs/architecture.md. A room
# may also import what stands beside the rooms: errors and paths.
BELOW = {
    "onhost": (),
    "engine": (),
    "spec": ("engine",),
    "release": ("engine", "spec", "onhost"),
    "forecast": ("release", "engine", "spec", "onhost"),
    "importing": ("release", "engine", "spec"),
    "inventory": ("spec",),
    "remote": ("spec", "onhost"),
    "rollout": (
        "remote",
        "inventory",
        "importing",
        "forecast",
        "release",
        "engine",
        "spec",
        "onhost",
    ),
    "views": (
        "rollout",
        "remote",
        "inventory",
        "importing",
        "forecast",
        "release",
        "engine",
        "spec",
        "onhost",
    ),
    "rehearsal": ("engine",),
    "lab": ("rehearsal", "engine"),
}
BELOW["ansible"] = tuple(BELOW)
BELOW["cli"] = tuple(BELOW)
BESIDE = ("errors", "paths")
# These travel to hosts: nothing but the standard library, and nothing of ours that does not travel.
TRAVELS = ("onhost", "ansible/target")
# Pure in the middle: decisions here never touch a host, a process or a socket.
PURE = ("engine", "forecast", "importing", "release", "spec")
RIM = {"subprocess", "socket", "paramiko", "fabric", "httpx", "http", "asyncio", "threading"}
STANDARD_ONLY = (*TRAVELS, "engine", "rehearsal")


def imports(path: Path) -> set[str]:
    """Names of all modules that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                folder = path.parents[node.level - 1].relative_to(PACKAGE.parent)
                module = ".".join([*folder.parts, *([module] if module else [])])
            # `from opsctl import spec` takes a room, `from opsctl.spec import load` a part of one.
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


def ours(path: Path) -> set[str]:
    """Rooms, and files beside them, that a file imports."""
    return {name.split(".")[1] for name in imports(path) if name.startswith("opsctl.")}


def test_every_room_is_known() -> None:
    rooms = {path.parent.name for path in PACKAGE.glob("*/*.py")}
    assert rooms == set(BELOW)


def test_the_document_says_the_same() -> None:
    """The table of docs/architecture.md names each room; what it allows is checked below."""
    text = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    for room in BELOW:
        assert f"`{room}/`" in text


@pytest.mark.parametrize("room", BELOW)
def test_a_room_stands_only_on_those_below_it(room: str) -> None:
    allowed = {*BELOW[room], *BESIDE, room, "__version__"}
    if room == "onhost":
        allowed = {room}
    for path in (PACKAGE / room).rglob("*.py"):
        wrong = ours(path) - allowed
        assert not wrong, f"{path.relative_to(PACKAGE)} imports {', '.join(sorted(wrong))}"


@pytest.mark.parametrize("folder", STANDARD_ONLY)
def test_standard_library_only(folder: str) -> None:
    for path in (PACKAGE / folder).rglob("*.py"):
        top = {name.split(".")[0] for name in imports(path)} - {"opsctl"}
        assert top <= sys.stdlib_module_names, f"{path.relative_to(PACKAGE)}: {top}"


@pytest.mark.parametrize("folder", PURE)
def test_what_decides_touches_nothing(folder: str) -> None:
    for path in (PACKAGE / folder).rglob("*.py"):
        if path.name == "launch.py":  # the launcher is a file of the release, and runs on the host
            continue
        top = {name.split(".")[0] for name in imports(path)} & RIM
        assert not top, f"{path.relative_to(PACKAGE)} imports {', '.join(sorted(top))}"
