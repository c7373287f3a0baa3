"""The description as a file of group_vars, and the secrets as a file for a vault."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from opsctl.importing.model import Imported
from opsctl.importing.secrets import template

_TEMPLATES = ("{{", "{%", "{#")
_HEAD = "# Written by `opsctl import`. Check it: opsctl config validate; then opsctl plan.\n"


class _Unsafe(str):
    """Text that Ansible must not take for a template."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Indents lists under their key, as yamllint wants them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


_Dumper.add_representer(
    _Unsafe, lambda dumper, text: dumper.represent_scalar("!unsafe", str(text), style='"')
)


def description(imported: Imported) -> str:
    """YAML that `opsctl config validate` and `opsctl render` take; "" if nothing was described."""
    if imported.service is None:
        return ""
    ours = {template(name) for name in imported.secrets}
    entry = {"sglang_services": {imported.name: _marked(imported.service, ours)}}
    text = yaml.dump(entry, Dumper=_Dumper, sort_keys=False, allow_unicode=False, width=96)
    return f"---\n{_HEAD}{text}"


def vault(imported: Imported) -> str:
    """YAML for `ansible-vault encrypt`: it holds the secrets themselves."""
    text = yaml.dump(
        {name: _marked(value, set()) for name, value in imported.secrets.items()},
        Dumper=_Dumper,
        sort_keys=True,
        allow_unicode=False,
    )
    return f"---\n{text}"


def _marked(value: Any, ours: set[str]) -> Any:
    if isinstance(value, str):
        other = value not in ours and any(sign in value for sign in _TEMPLATES)
        return _Unsafe(value) if other else value
    if isinstance(value, Mapping):
        return {key: _marked(part, ours) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_marked(part, ours) for part in value]
    return value
