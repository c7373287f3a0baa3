"""What is made from the schema: python -m opsctl.spec.generate [--check]

roles/service/meta/argument_specs.yml   what Ansible shows and checks of the role's variables
docs/reference/menu.yml                 the menu: every key, its default and its meaning
docs/reference/description.md           the reference

With --check nothing is written, and the exit code is 1 if a file differs.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ByteSize, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from opsctl.paths import share
from opsctl.spec.kinds import Kind
from opsctl.spec.models import Service
from opsctl.spec.words import model_in

MADE = "Made by python -m opsctl.spec.generate from opsctl/spec/models.py: change that."
SERVICES = (
    "Services of the host by name; each becomes the unit sglang-NAME.service. "
    "Their keys are in docs/reference/description.md; opsctl config validate checks them."
)
OVERRIDES = (
    "What one host has differently: merged deep over sglang_services, null deletes a key "
    "or takes a service off the host."
)
OVERRIDE = (
    "The reason to stage a release although the forecast says that its host has too little "
    'memory; "" refuses it.'
)


@dataclass(frozen=True)
class Row:
    """One key of the description; `section` is the model that it stands in ("" at the top).

    `default` as written in YAML; "" if the key must be given (where its section is given).
    """

    key: str
    kind: str
    default: str
    text: str
    section: str


def rows(model: type[BaseModel] = Service, above: str = "") -> Iterator[Row]:
    """Every leaf key, in the schema's order."""
    for name, field in model.model_fields.items():
        key = above + (field.alias or name)
        inner = model_in(field.annotation)
        if inner is not None:
            yield from rows(inner, f"{key}.")
        else:
            yield Row(key, kind(field), default(field), field.description or "", above.rstrip("."))


def kind(field: FieldInfo) -> str:
    named = [part.text for part in field.metadata if isinstance(part, Kind)]
    return named[0] if named else _kind(field.annotation)


def _kind(annotation: Any) -> str:
    if get_origin(annotation) is Annotated:
        named = [part.text for part in get_args(annotation)[1:] if isinstance(part, Kind)]
        return named[0] if named else _kind(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return _kind(next(a for a in get_args(annotation) if a is not type(None)))
    if get_origin(annotation) is Literal:
        return " or ".join(map(str, get_args(annotation)))
    if get_origin(annotation) is dict:
        return f"mapping of {_kind(get_args(annotation)[1])}"
    names = {str: "text", int: "whole number", bool: "true or false", SecretStr: "secret text"}
    return "values" if annotation is Any else names[annotation]


def default(field: FieldInfo) -> str:
    """As it is written in YAML; "" if the key must be given."""
    if field.is_required():
        return ""
    value = field.default
    if value is PydanticUndefined:
        return "{}"
    if isinstance(value, ByteSize):
        return value.human_readable().replace(".0", "")
    if isinstance(value, float):
        return f"{value:g}s"
    if value == ():
        return "[]"
    return {None: "null", True: "true", False: "false"}.get(value, str(value))


def argument_specs() -> str:
    keys = [f"{r.key} ({r.kind}{'' if r.default else ', required'}). {r.text}" for r in rows()]
    options = {
        "sglang_services": {"type": "dict", "required": False, "description": [SERVICES, *keys]},
        "sglang_overrides": {"type": "dict", "required": False, "description": [OVERRIDES]},
        "service_override": {"type": "str", "default": "", "description": [OVERRIDE]},
    }
    main = {
        "short_description": "Stage the release of each service; never restarts anything.",
        "options": options,
    }
    specs = {"argument_specs": {"main": main}}
    return f"---\n# {MADE}\n" + yaml.dump(specs, Dumper=_Lists, sort_keys=False, width=80)


class _Lists(yaml.SafeDumper):
    """Lists indented under their key, as yamllint wants them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def menu() -> str:
    """To copy from. All of it is a comment: a description says only what differs."""
    lines = ["---", f"# {MADE}", "#", *_wrapped(SERVICES), "#", "# sglang_services:", "#   NAME:"]
    shown: list[str] = []
    for row in rows():
        *sections, leaf = row.key.split(".")
        for depth, section in enumerate(sections):
            if shown[depth : depth + 1] != [section]:
                lines.append(f"#     {'  ' * depth}{section}:")
        shown = sections
        pad = "  " * len(sections)
        lines += _wrapped(f"{row.text} ({row.kind})", f"#     {pad}# ")
        lines.append(f"#     {pad}{leaf}: {row.default or '…  # required'}")
    lines += ["#", *_wrapped(OVERRIDES), "#", "# sglang_overrides: {}"]
    return "\n".join(lines) + "\n"


def _wrapped(text: str, start: str = "# ") -> list[str]:
    return textwrap.wrap(text, 96, initial_indent=start, subsequent_indent=start)


def reference() -> str:
    lines = [
        "# The description of a service",
        "",
        f"<!-- {MADE} -->",
        "",
        f"`sglang_services`: {SERVICES}",
        "",
        f"`sglang_overrides`: {OVERRIDES}",
        "",
        "Unknown keys are refused. A flag's value is one value: an override replaces it whole.",
        "A required key is required where its section is given.",
    ]
    for section in dict.fromkeys(row.section for row in rows()):
        title = f"`{section}`" if section else "The service itself"
        lines += ["", f"## {title}", "", "| key | what | default | meaning |", "|---|---|---|---|"]
        for row in (r for r in rows() if r.section == section):
            lines.append(f"| `{row.key}` | {row.kind} | {_cell(row.default)} | {row.text} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return {"": "required", "null": "unset"}.get(text, f"`{text}`")


def generated() -> dict[str, str]:
    """Path under the repository → what must stand there."""
    return {
        "roles/service/meta/argument_specs.yml": argument_specs(),
        "docs/reference/menu.yml": menu(),
        "docs/reference/description.md": reference(),
    }


def differing(root: Path) -> list[str]:
    def same(path: str, text: str) -> bool:
        file = root / path
        return file.is_file() and file.read_text("utf-8") == text

    return [path for path, text in generated().items() if not same(path, text)]


def main() -> int:
    root = share()
    wrong = differing(root)
    if "--check" in sys.argv[1:]:
        sys.stderr.writelines(f"{path} differs from the schema\n" for path in wrong)
        return 1 if wrong else 0
    for path in wrong:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(generated()[path], "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
