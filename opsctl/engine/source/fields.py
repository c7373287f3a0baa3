"""Declared fields of a record as the keywords that the engine derives for its parser from them.

field: A[Optional[int], Arg(help="…", choices=[…])] = None
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from opsctl.engine.source.package import Class, Unreadable
from opsctl.engine.source.values import Scope, lineage, of_class

_SCALARS = ("str", "int", "float")
_KEPT = ("choices", "nargs", "const", "required", "fallback")


def fields(owner: Class) -> Iterator[tuple[list[str], dict[str, ast.expr]]]:
    """Each option's names and keywords. Raises Unreadable."""
    scope = Scope(owner.module)
    for node in _declared(owner).values():
        said = _annotated(node.annotation)
        if said is not None and not _truth(scope, said[1].get("no_cli")):
            yield _option(scope, node, *said)


def _declared(owner: Class) -> dict[str, ast.AnnAssign]:
    """The fields by name. Of one that is declared twice, the last: 0.5.15 has such."""
    return {
        node.target.id: node
        for one in reversed(list(lineage(owner)))
        for node in one.node.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def default_of(homes: list[Class], name: str) -> Any:
    """The default that a field is declared with, in any of the classes. Raises Unreadable."""
    for home in homes:
        if home.attribute(name) is not None:
            return of_class(home, name)
    raise Unreadable(homes[0].module.name, ast.Name(name), "no class declares this field")


def _annotated(node: ast.expr) -> tuple[ast.expr, dict[str, ast.expr]] | None:
    """The type, and what Arg says of it; None where the field makes no option."""
    if not (isinstance(node, ast.Subscript) and ast.unparse(node.value) in ("A", "Annotated")):
        return None
    assert isinstance(node.slice, ast.Tuple)
    kind, *said = node.slice.elts
    for one in said:
        if not isinstance(one, ast.Call):
            return kind, {"help": one}
        if ast.unparse(one.func) == "Arg":
            return kind, {str(k.arg): k.value for k in one.keywords}
    return None


def _truth(scope: Scope, node: ast.expr | None) -> bool:
    return node is not None and bool(scope.value(node))


def _option(
    scope: Scope, node: ast.AnnAssign, kind: ast.expr, arg: dict[str, ast.expr]
) -> tuple[list[str], dict[str, ast.expr]]:
    assert isinstance(node.target, ast.Name)
    field = node.target.id
    name = scope.value(arg["cli_name"]) if "cli_name" in arg else f"--{field.replace('_', '-')}"
    aliases = scope.value(arg["aliases"]) if "aliases" in arg else []
    said: dict[str, ast.expr] = {"dest": ast.Constant(field)}
    if "help" in arg:
        said["help"] = arg["help"]
    if node.value is not None:
        said["default"] = node.value
    if "action" in arg:
        said |= {"action": arg["action"], **_keywords(arg.get("action_kwargs"))}
    else:
        said |= _typed(kind, arg)
    said |= {k: v for k, v in arg.items() if k in _KEPT}
    if node.value is None:
        said.setdefault("required", ast.Constant(True))
    return [name, *(aliases or [])], said


def _keywords(node: ast.expr | None) -> dict[str, ast.expr]:
    if not isinstance(node, ast.Dict):
        return {}
    return {str(k.value): v for k, v in zip(node.keys, node.values, strict=True)
            if isinstance(k, ast.Constant)}  # fmt: skip


def _typed(kind: ast.expr, arg: dict[str, ast.expr]) -> dict[str, ast.expr]:
    inner = _unwrapped(kind)
    if "type_parser" in arg:
        return {"type": arg["type_parser"]}
    if isinstance(inner, ast.Subscript):
        outer = ast.unparse(inner.value).rpartition(".")[2]
        if outer == "Literal":
            values = inner.slice.elts if isinstance(inner.slice, ast.Tuple) else [inner.slice]
            first = values[0]
            named = type(first.value).__name__ if isinstance(first, ast.Constant) else "str"
            return {"choices": ast.List(values), "type": _scalar(ast.Name(named))}
        if outer in ("List", "list"):
            return {"nargs": ast.Constant("+"), "type": _scalar(inner.slice)}
    if ast.unparse(inner) == "bool":
        return {"action": ast.Constant("store_true")}
    return {"type": _scalar(inner)}


def _scalar(node: ast.expr) -> ast.expr:
    return ast.Name(named if (named := ast.unparse(node)) in _SCALARS else "str")


def _unwrapped(kind: ast.expr) -> ast.expr:
    """X of Optional[X], X | None, Union[X, None]."""
    if isinstance(kind, ast.BinOp) and isinstance(kind.op, ast.BitOr):
        parts = [p for p in (kind.left, kind.right) if ast.unparse(p) != "None"]
        return parts[0] if len(parts) == 1 else kind
    if isinstance(kind, ast.Subscript):
        outer = ast.unparse(kind.value).rpartition(".")[2]
        if outer == "Optional":
            return kind.slice
        if outer == "Union" and isinstance(kind.slice, ast.Tuple):
            parts = [p for p in kind.slice.elts if ast.unparse(p) != "None"]
            return parts[0] if len(parts) == 1 else kind
    return kind
