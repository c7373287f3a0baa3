"""What an expression of the source stands for, worked out without running it.

Only what declarations of options are made of: constants, names over imports, attributes of
classes, members of enumerations, and a few harmless calls. All else raises Unreadable.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from opsctl.engine.source.displays import Displays
from opsctl.engine.source.package import Class, Module, Unreadable, assigned

# Names of other packages that defaults use.
OUTSIDE: dict[str, Any] = {"sys.maxsize": sys.maxsize, "argparse.SUPPRESS": None}
# Questions about the machine, as a host with NVIDIA cards answers them; and, since a launch has
# imported nothing yet, which modules are loaded.
MACHINE: dict[str, Any] = {"is_hip": False, "sys.modules.get": None}
_FIELDS = {"field", "dataclasses.field", "msgspec.field"}
_ENUMS = {"Enum", "IntEnum", "StrEnum", "Flag", "IntFlag"}
_BUILTIN: dict[str, Callable[..., Any]] = {
    **{f.__name__: f for f in (list, set, tuple, sorted, str, int, float, frozenset, dict)}
}
_HARMLESS = {"keys", "lower", "upper", "copy", "replace", "split", "add", "append", "extend"}


@dataclass(frozen=True)
class Instance:
    """What calling a class gave."""

    made_of: Class
    given: tuple[Any, ...]


@dataclass(frozen=True)
class Member:
    """A member of an enumeration."""

    name: str
    value: Any


@dataclass(frozen=True)
class Function:
    """A function of the package: straight lines, branches and a return."""

    module: Module
    node: ast.FunctionDef

    def __call__(self, *given: Any) -> Any:
        names = dict(zip((a.arg for a in self.node.args.args), given, strict=True))
        scope = Scope(self.module, names)
        for statement in scope.run(self.node.body):
            if isinstance(statement, ast.Return):
                return None if statement.value is None else scope.value(statement.value)
            raise scope.refused(statement, "no such statement was foreseen")
        return None


class Scope(Displays):
    """Names as one piece of code sees them."""

    def __init__(self, module: Module, names: dict[str, Any] | None = None) -> None:
        self.module = module
        self.names: dict[str, Any] = {} if names is None else names

    def value(self, node: ast.expr) -> Any:
        """Raises Unreadable."""
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise self.refused(node, "no such expression was foreseen")
        try:
            return method(node)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
            if isinstance(error, Unreadable):
                raise
            raise self.refused(node, str(error)) from error

    def run(self, body: list[ast.stmt]) -> Iterator[ast.stmt]:
        """Does assignments, imports and branches; hands over every other statement in order."""
        for node in body:
            if isinstance(node, ast.Assign | ast.AnnAssign):
                self.names |= {n: self.value(v) for n, v in assigned([node]) if v is not None}
            elif isinstance(node, ast.If):
                yield from self.run(node.body if self.value(node.test) else node.orelse)
            elif isinstance(node, ast.ImportFrom):
                self.names |= {
                    a.asname or a.name: imported(self.module, node, a) for a in node.names
                }
            elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                yield node

    def refused(self, node: ast.AST, why: str) -> Unreadable:
        return Unreadable(self.module.name, node, why)

    def items(self, value: Any) -> Iterable[Any]:
        found: Iterable[Any] = iterated(value)
        return found

    def inner(self, names: dict[str, Any]) -> Scope:
        return Scope(self.module, {**self.names, **names})

    def _name(self, node: ast.Name) -> Any:
        if node.id in self.names:
            return self.names[node.id]
        if node.id in self.module.names or self.module.stars:
            return of_name(self.module, node.id)
        if node.id in _BUILTIN:
            return _BUILTIN[node.id]
        raise self.refused(node, "nothing in this module has this name")

    def _attribute(self, node: ast.Attribute) -> Any:
        if (dotted := ast.unparse(node)) in OUTSIDE:
            return OUTSIDE[dotted]
        base = self.value(node.value)
        if isinstance(base, Module):
            return of_name(base, node.attr)
        if isinstance(base, Instance):
            base = base.made_of
        if isinstance(base, Class):
            return of_class(base, node.attr)
        if isinstance(base, Member) and node.attr in ("name", "value"):
            return getattr(base, node.attr)
        raise self.refused(node, f"{type(base).__name__} is not looked into")

    def _call(self, node: ast.Call) -> Any:
        named = ast.unparse(node.func)
        if named in MACHINE:
            return MACHINE[named]
        if isinstance(node.func, ast.Attribute) and node.func.attr in (*_HARMLESS, "get"):
            base = self.value(node.func.value)
            if isinstance(base, Instance) and node.func.attr == "get":
                return base.given[0]  # a variable of the environment, unset: its default
            if isinstance(base, str | list | set | dict | tuple):
                return getattr(base, node.func.attr)(*(self.value(a) for a in node.args))
        if named in _FIELDS:
            return self._of_field(node)
        function = self.value(node.func)
        given = tuple(self.value(a) for a in node.args)
        if isinstance(function, Class):
            return Instance(function, given)
        if isinstance(function, Function):
            return function(*given)
        if callable(function):
            return function(*(iterated(one) for one in given))
        raise self.refused(node, "this is not called")

    def _of_field(self, node: ast.Call) -> Any:
        """The default of a declared field."""
        said = {k.arg: k.value for k in node.keywords}
        if "default" in said:
            return self.value(said["default"])
        makes = said["default_factory"]
        return self.value(makes.body if isinstance(makes, ast.Lambda) else ast.Call(makes, [], []))


def of_name(module: Module, name: str) -> Any:
    """The value of a name at the top level of a module, worked out once. Raises Unreadable."""
    if name not in module.values:
        if name in module.unsure:
            raise Unreadable(module.name, ast.Name(name), "what it is only a run would tell")
        module.unsure.add(name)  # while it is worked out: it cannot be made of itself
        if name in module.names:
            module.values[name] = _of_binding(module, name, module.names[name])
        else:
            module.values[name] = _of_star(module, name)
        module.unsure.discard(name)
        _change(module, name)
    return module.values[name]


def _change(module: Module, name: str) -> None:
    """Do what the module does to the value after it has bound it."""
    scope = Scope(module)
    for statement in scope.run(module.changed.get(name, [])):
        if not isinstance(statement, ast.Expr):
            raise scope.refused(statement, "no such statement was foreseen")
        if f"{name}." in ast.unparse(statement):
            scope.value(statement.value)


def _of_star(module: Module, name: str) -> Any:
    for node in module.stars:
        source = module.source(node)
        if source is not None and (name in source.names or source.stars):
            return of_name(source, name)
    raise Unreadable(module.name, ast.Name(name), "nothing in this module has this name")


def _of_binding(module: Module, name: str, node: ast.AST) -> Any:
    if isinstance(node, ast.ClassDef):
        return Class(module, node)
    if isinstance(node, ast.FunctionDef):
        return Function(module, node)
    if isinstance(node, ast.ImportFrom | ast.Import):
        alias = next(a for a in node.names if (a.asname or a.name) == name)
        return imported(module, node, alias)
    assert isinstance(node, ast.expr)
    return Scope(module).value(node)


def imported(module: Module, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> Any:
    if isinstance(node, ast.Import):
        found = module.package.module(alias.name)
    else:
        found = module.source(node)
    if found is None:
        raise Unreadable(module.name, node, "this module is not part of the package")
    if isinstance(node, ast.Import):
        return found
    if alias.name not in found.names and (
        inner := module.package.module(f"{found.name}.{alias.name}")
    ):
        return inner
    return of_name(found, alias.name)


def of_class(owner: Class, name: str) -> Any:
    """An attribute of a class. Raises Unreadable."""
    for one in lineage(owner):
        if (node := one.attribute(name)) is not None:
            if _is_enum(one):
                return Member(name, Scope(one.module).value(node))
            return Scope(one.module, _Inside(one)).value(node)
    raise Unreadable(owner.module.name, owner.node, f"has no attribute {name}")


class _Inside(dict[str, Any]):
    """Inside a class statement its own names come before the module's."""

    def __init__(self, owner: Class) -> None:
        super().__init__()
        self._owner = owner

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._owner.attribute(name) is not None

    def __getitem__(self, name: str) -> Any:
        return of_class(self._owner, name)


def lineage(owner: Class) -> Iterator[Class]:
    """The class and those of the package that it derives from, in Python's order of look-up (for
    classes with one base)."""
    yield owner
    for base in owner.node.bases:
        try:
            found = Scope(owner.module).value(base)
        except Unreadable:
            continue  # of another package: it declares none of the engine's options
        if isinstance(found, Class):
            yield from lineage(found)


def iterated(value: Any) -> Any:
    """What a loop over the value sees: over an enumeration, its members."""
    if not isinstance(value, Class):
        return value
    if not _is_enum(value):
        raise Unreadable(value.module.name, value.node, "this class is not an enumeration")
    scope = Scope(value.module)
    return [Member(n, scope.value(v)) for n, v in assigned(value.node.body) if v is not None]


def _is_enum(owner: Class) -> bool:
    return bool(owner.bases() & _ENUMS)
