"""Where the YAML of an inventory is wrong: Ansible's words name neither file nor line.

Asked only after Ansible has refused an inventory; what is allowed stays Ansible's decision.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from opsctl.errors import Problem

SUFFIXES = (".yml", ".yaml")


def mistakes(path: Path) -> list[Problem]:
    """Broken YAML and duplicate keys in the files of an inventory, and in the group_vars and
    host_vars beside it. Values are never quoted: they may be secrets."""
    return [problem for file in _files(path) for problem in _of(file)]


def in_file(file: Path, text: str) -> list[Problem]:
    """The same for one file's text, with or without Ansible."""
    return list(_in_text(file, text))


def _files(path: Path) -> list[Path]:
    roots = [path] if path.is_dir() else [path.parent / "group_vars", path.parent / "host_vars"]
    found = {file for root in roots for file in root.rglob("*") if file.suffix in SUFFIXES}
    if path.suffix in SUFFIXES:
        found.add(path)
    return sorted(file for file in found if file.is_file())


def _of(file: Path) -> Iterator[Problem]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return  # Ansible's own words have to do
    yield from _in_text(file, text)


def _in_text(file: Path, text: str) -> Iterator[Problem]:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{file}:{mark.line + 1}" if mark else str(file)
        yield Problem(f"this is not YAML: {error.problem}", file=place)
    except (ValueError, yaml.YAMLError):
        return  # Ansible's own words have to do
    else:
        if root is not None:
            yield from _twice(root, file, "", set())


def _twice(node: yaml.Node, file: Path, name: str, seen: set[int]) -> Iterator[Problem]:
    if id(node) in seen:  # an alias of what was looked at where it stands
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for n, part in enumerate(node.value):
            yield from _twice(part, file, f"{name}.{n}", seen)
    elif isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            full = f"{name}.{key.value}".lstrip(".")
            line = key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in lines:
                    message = f"this key stands twice, in line {lines[key.value]} as well"
                    yield Problem(message, file=f"{file}:{line}", key=full)
                lines.setdefault(key.value, line)
            yield from _twice(value, file, full, seen)
