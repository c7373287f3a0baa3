"""The options that the engine's parser gets: from calls that add them, and from declared fields.

An option is a plain mapping with the keys of argparse: "names", "dest", "type" (the name of what
reads it; "bool" for a switch), "choices", "default", "nargs", "const", "action", "required".
What is unset is left out, and so is a switch's default of False; its default of None, which the
engine tells from False, is kept. Besides, where the source says so:

  "deprecated": true, "new_flag": what to use instead, "refused": true if the parser ends at it
  "fallback": what an unset value becomes if nothing else decides
  "json": true for text that the engine reads as JSON
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from opsctl.engine.source.fields import default_of, fields
from opsctl.engine.source.package import Class, Package, Unreadable
from opsctl.engine.source.values import Function, Scope, lineage, of_name

ARGUMENTS = "sglang.srt.server_args"
Option = dict[str, Any]

_ACTIONS = {"BooleanOptionalAction": "boolean_optional"}
_TYPES = {
    **dict.fromkeys(("store", "LoRAPathAction", "DeprecatedAliasStoreAction"), "str"),
    **dict.fromkeys(("store_true", "DeprecatedStoreTrueAction"), "bool"),
}
# "Use --new instead", "set `--new` to 'x'", "(Deprecated: use --new=auto)", "alias for --new"
_INSTEAD = re.compile(
    r"\b(?:use|set|alias for)\b[^.;]*?(--[a-z0-9][\w{},-]*(?:=[\w{},-]+)?)(?:`? to '(\w+)')?", re.I
)
_JSON = re.compile(r"^json config for|in json (?:string )?format|string with json content", re.I)


def read(package: Package) -> list[Option]:
    """All options in the order of the parser. Raises Unreadable, SyntaxError."""
    module = package.module(ARGUMENTS)
    if module is None:
        raise Unreadable(ARGUMENTS, ast.Name(ARGUMENTS), "there is no such module")
    owner = of_name(module, "ServerArgs")
    adds = next((f for f in owner.node.body if getattr(f, "name", "") == "add_cli_args"), None)
    if adds is None:
        raise Unreadable(module.name, owner.node, "has no add_cli_args")
    homes = of_name(module, "_INPUT_NAMESPACES") if "_INPUT_NAMESPACES" in module.names else [owner]
    known = {"_declared_default": lambda name: default_of(homes, name)}
    return list(_added(Scope(module, known), homes, adds.args.args[0].arg, adds.body))


def _added(scope: Scope, homes: list[Class], parser: str, body: list[ast.stmt]) -> Iterator[Option]:
    for statement in scope.run(body):
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call):
            raise scope.refused(statement, "no such statement was foreseen")
        called = ast.unparse(call.func)
        if called == f"{parser}.add_argument":
            names = [scope.value(a) for a in call.args]
            yield option(scope, names, {str(k.arg): k.value for k in call.keywords})
        elif called.rpartition(".")[2] == "add_cli_args_from_dataclass":
            for home in homes:
                for names, said in fields(home):
                    yield option(Scope(home.module), names, said)
        elif any(ast.unparse(a) == parser for a in call.args):
            yield from _elsewhere(scope, homes, parser, call)
        else:
            scope.value(call)  # a list of choices grows


def _elsewhere(scope: Scope, homes: list[Class], parser: str, call: ast.Call) -> Iterator[Option]:
    """The parser is handed to another function, which adds more."""
    function = scope.value(call.func)
    if not isinstance(function, Function):
        raise scope.refused(call, "this function is not known")
    taken = [a.arg for a in function.node.args.args]
    named = dict(zip(taken, call.args, strict=False))
    theirs = next(name for name, given in named.items() if ast.unparse(given) == parser)
    yield from _added(Scope(function.module), homes, theirs, function.node.body)


def option(scope: Scope, names: list[str], said: Mapping[str, ast.expr]) -> Option:
    """One option of what a call says. `said`: argparse's keywords, not yet worked out."""
    action = _dotted(said["action"]) if "action" in said else "store"
    found: Option = {
        "names": names,
        "dest": scope.value(said["dest"]) if "dest" in said else _dest(names),
        "action": _ACTIONS.get(action, action),
    }
    if action == "DeprecatedStoreConstAction":  # takes no value, unless it says how many
        found["type"] = "str" if "nargs" in said else "bool"
    elif action in _TYPES:
        found["type"] = _dotted(said["type"]) if "type" in said else _TYPES[action]
        if found["type"] == "bool":
            found["const"] = True
    for key in ("choices", "default", "nargs", "const", "required", "new_flag", "fallback"):
        value = _plain(scope.value(said[key])) if key in said else None
        if value is not None and (value is not False or key in ("default", "fallback")):
            found[key] = value
    if found.get("type") == "bool":
        _switch(found, said)
    told = _text(scope, said, "help")
    if found.get("type") == "str" and (found.get("default") == "{}" or _JSON.search(told)):
        found["json"] = True
    refusal = _text(scope, said, "error_message")
    found |= _retired(names, action, told, refusal, found)
    return found | ({"refused": True} if refusal or _ends(scope, said.get("action")) else {})


def _ends(scope: Scope, action: ast.expr | None) -> bool:
    """Whether the parser ends at an action of the package whatever it is given: one class of one
    name did so in some releases, and only warns in others."""
    owner = None if action is None or isinstance(action, ast.Constant) else _class(scope, action)
    for one in lineage(owner) if owner else ():
        call = next((f for f in one.node.body if getattr(f, "name", "") == "__call__"), None)
        if isinstance(call, ast.FunctionDef):
            return any(isinstance(node, ast.Raise) or _exits(node) for node in call.body)
    return False


def _class(scope: Scope, node: ast.expr) -> Class | None:
    try:
        found = scope.value(node)
    except Unreadable:
        return None  # argparse's own: it takes what it is given
    return found if isinstance(found, Class) else None


def _exits(node: ast.stmt) -> bool:
    """parser.error(…), parser.exit(…)"""
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and _dotted(call.func) in ("error", "exit")


def _switch(found: Option, said: Mapping[str, ast.expr]) -> None:
    """A switch is off if it says nothing; one whose default is None has a third state."""
    if found.get("default") is False:
        del found["default"]
    elif "default" in said or found["action"] == "DeprecatedStoreConstAction":
        found.setdefault("default", None)


def _text(scope: Scope, said: Mapping[str, ast.expr], key: str) -> str:
    try:
        return str(scope.value(said[key])) if key in said else ""
    except Unreadable:
        return ""  # a help made of other values: nothing but constants tells what is read here


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    return ast.unparse(node).rpartition(".")[2]


def _dest(names: list[str]) -> str:
    first = next((n for n in names if n.startswith("--")), names[0])
    return first.lstrip("-").replace("-", "_")


def _plain(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return sorted(value)
    return list(value) if isinstance(value, tuple) else value


def _retired(
    names: list[str], action: str, told: str, refusal: str, found: Option
) -> dict[str, Any]:
    """What the source says of an option that is on its way out: that it is, and what to use.

    A help may name other things that are deprecated, or the old flag that this one replaces.
    """
    own = "|".join(map(re.escape, names))
    if not action.startswith("Deprecated") and not re.search(
        rf"^\W*deprecated\b|(?:{own}) is deprecated", told, re.I
    ):
        return {}
    more: dict[str, Any] = {"deprecated": True}
    if "new_flag" not in found:
        pointed = [
            f"{flag}={value}" if value else flag
            for flag, value in _INSTEAD.findall(refusal or told)
            if flag.partition("=")[0] not in names
        ]
        more |= {"new_flag": pointed[0]} if pointed else {}
    return more
