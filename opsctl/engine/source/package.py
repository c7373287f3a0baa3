"""A Python package as text: its modules, and what each name in one of them stands for."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any


class Unreadable(ValueError):
    """The source holds something that this reader does not understand. Never a guess instead."""

    def __init__(self, module: str, node: ast.AST, why: str) -> None:
        shown = ast.unparse(node).split("\n", 1)[0][:120]
        place = f"{module}, line {getattr(node, 'lineno', '?')}"
        super().__init__(f"{place}: cannot read {shown!r}: {why}")


@dataclass
class Module:
    """One module. `names`: what its top level binds, the last binding of each name; but a class
    stays what it is where its name is bound anew, to a record made of it."""

    name: str
    package: Package
    folder: bool = False  # an __init__.py
    names: dict[str, ast.AST] = field(default_factory=dict)
    stars: list[ast.ImportFrom] = field(default_factory=list)  # from … import *
    changed: dict[str, list[ast.stmt]] = field(default_factory=dict)  # X.append(…), perhaps in `if`
    unsure: set[str] = field(default_factory=set)  # changed or bound as only a run would tell
    values: dict[str, Any] = field(default_factory=dict)  # those worked out already

    def source(self, node: ast.ImportFrom) -> Module | None:
        """The module that an import takes from; None if it is of another package."""
        parts = self.name.split(".") if self.folder else self.name.split(".")[:-1]
        above = parts[: len(parts) - node.level + 1] if node.level else []
        return self.package.module(".".join([*above, *([node.module] if node.module else [])]))


@dataclass(frozen=True)
class Class:
    """A class statement and the module whose names it uses."""

    module: Module
    node: ast.ClassDef

    def bases(self) -> set[str]:
        return {ast.unparse(base).rpartition(".")[2] for base in self.node.bases}

    def attribute(self, name: str) -> ast.expr | None:
        found = None
        for target, value in assigned(self.node.body):
            if target == name and value is not None:
                found = value
        return found


class Package:
    """`text` answers the source of a file of the package ("sglang/version.py"), None if it has
    no such file."""

    def __init__(self, text: Callable[[str], str | None]) -> None:
        self._text = text
        self._modules: dict[str, Module | None] = {}

    def module(self, name: str) -> Module | None:
        """None for a module of another package, or none at all. Raises SyntaxError."""
        if name not in self._modules:
            self._modules[name] = self._load(name)
        return self._modules[name]

    def _load(self, name: str) -> Module | None:
        path = name.replace(".", "/")
        folder = (text := self._text(f"{path}.py")) is None
        if text is None:
            text = self._text(f"{path}/__init__.py")
        if text is None:
            return None
        found = Module(name, self, folder)
        body = ast.parse(text).body
        for bound, node in _bindings(body):
            if bound == "*":
                assert isinstance(node, ast.ImportFrom)
                found.stars.append(node)
            elif not isinstance(found.names.get(bound), ast.ClassDef):
                found.names[bound] = node
        for node in body:
            for bound in _changed(node):
                found.changed.setdefault(bound, []).append(node)
        found.unsure = set(_either(body))
        return found


def _changed(node: ast.stmt) -> Iterator[str]:
    """Names whose value a statement of the top level changes in place."""
    if isinstance(node, ast.If):
        for inner in (*node.body, *node.orelse):
            yield from _changed(inner)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        called = node.value.func
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            yield called.value.id


def _either(body: list[ast.stmt]) -> Iterator[str]:
    """Names that have one value or another, as an `if` of the top level decides, or X += …."""
    seen = [name for name, _ in _bindings(body)]
    for node in body:
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            other = [name for name, _ in _bindings(node.orelse)]
            yield from other
            yield from (name for name, _ in _bindings(node.body) if seen.count(name) > 1)


def assigned(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr | None]]:
    """Plain names that statements assign, with what; None: annotated only."""
    for node in body:
        if isinstance(node, ast.Assign):
            yield from ((t.id, node.value) for t in node.targets if isinstance(t, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node.value


def _bindings(body: list[ast.stmt]) -> Iterator[tuple[str, ast.AST]]:
    """Of an `if` or `try` the first branch counts: the others are for other machines."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name, node) for alias in node.names)
        elif isinstance(node, ast.If | ast.Try):
            yield from _bindings(node.body)
        else:
            yield from ((name, value) for name, value in assigned([node]) if value is not None)
