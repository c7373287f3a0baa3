"""Expressions that are made of other expressions only: displays, operators, comprehensions."""

from __future__ import annotations

import ast
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from opsctl.engine.source.package import Unreadable

# What a table that is read for its keys holds as values (classes, functions of other packages).
OPAQUE = object()
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.BitOr: operator.or_,
}


class Displays(ABC):
    """The methods are named after the nodes of ast, and found by that name."""

    @abstractmethod
    def value(self, node: ast.expr) -> Any: ...

    @abstractmethod
    def refused(self, node: ast.AST, why: str) -> Unreadable: ...

    @abstractmethod
    def items(self, value: Any) -> Iterable[Any]:
        """What a loop over the value sees."""

    @abstractmethod
    def inner(self, names: dict[str, Any]) -> Displays:
        """The same with more names."""

    def _constant(self, node: ast.Constant) -> Any:
        return node.value

    def _list(self, node: ast.List) -> Any:
        return [item for part in node.elts for item in self._spread(part)]

    def _tuple(self, node: ast.Tuple) -> Any:
        return tuple(item for part in node.elts for item in self._spread(part))

    def _set(self, node: ast.Set) -> Any:
        return {item for part in node.elts for item in self._spread(part)}

    def _spread(self, node: ast.expr) -> list[Any]:
        if isinstance(node, ast.Starred):
            return list(self.items(self.value(node.value)))
        return [self.value(node)]

    def _dict(self, node: ast.Dict) -> Any:
        found: dict[Any, Any] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            if key is None:
                found |= self.value(item)
            else:
                try:
                    found[self.value(key)] = self.value(item)
                except Unreadable:
                    found[self.value(key)] = OPAQUE
        return found

    def _joinedstr(self, node: ast.JoinedStr) -> Any:
        return "".join(
            str(self.value(part.value if isinstance(part, ast.FormattedValue) else part))
            for part in node.values
        )

    def _binop(self, node: ast.BinOp) -> Any:
        if type(node.op) not in _BINARY:
            raise self.refused(node, "no such operator was foreseen")
        return _BINARY[type(node.op)](self.value(node.left), self.value(node.right))

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        value = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return not value
        if isinstance(node.op, ast.USub):
            return -value
        raise self.refused(node, "no such operator was foreseen")

    def _subscript(self, node: ast.Subscript) -> Any:
        return self.value(node.value)[self.value(node.slice)]

    def _compare(self, node: ast.Compare) -> Any:
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.Is | ast.IsNot):
            same = self.value(node.left) is self.value(node.comparators[0])
            return same == isinstance(node.ops[0], ast.Is)
        raise self.refused(node, "no such comparison was foreseen")

    def _listcomp(self, node: ast.ListComp) -> Any:
        (loop,) = node.generators
        if not isinstance(loop.target, ast.Name) or loop.ifs:
            raise self.refused(node, "no such loop was foreseen")
        found = []
        for item in self.items(self.value(loop.iter)):
            found.append(self.inner({loop.target.id: item}).value(node.elt))
        return found
