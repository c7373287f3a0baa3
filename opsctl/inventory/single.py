"""One service's description from a file of its own: no host, no Ansible.

The file is one entry of `sglang_services` (bare, or under its name), or a whole document with
`sglang_services` and perhaps `sglang_overrides`, such as a file of group_vars. YAML or JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from opsctl.errors import NothingSelected, Problem, Refused, SpecError
from opsctl.inventory.mistakes import in_file
from opsctl.spec.kinds import SERVICE_NAME
from opsctl.spec.load import misplaced
from opsctl.spec.merge import merge

# A bare entry has no name of its own: its file's, if that can name a service, else this.
UNNAMED = "service"
LARGEST = 4 << 20  # bytes; a description has some thousand


class Encrypted(str):
    """Stands for a value that only Ansible can decrypt."""

    __slots__ = ()


class _Loader(yaml.SafeLoader):
    pass


def _encrypted(loader: yaml.SafeLoader, node: yaml.Node) -> Encrypted:
    return Encrypted("(encrypted)")


def _verbatim(loader: yaml.SafeLoader, node: yaml.Node) -> Any:
    """!unsafe: text that Ansible must not take for a template."""
    return loader.construct_scalar(node) if isinstance(node, yaml.ScalarNode) else None


_Loader.add_constructor("!vault", _encrypted)
_Loader.add_constructor("!vault-encrypted", _encrypted)
_Loader.add_constructor("!unsafe", _verbatim)


@dataclass(frozen=True)
class Written:
    """A service as it is written: nothing checked yet. `entry` is what stands in
    `sglang_services`, with what `sglang_overrides` of the same file changes."""

    name: str
    entry: dict[str, Any]
    file: Path


def single(path: Path, name: str | None = None) -> Written:
    """The service of this file; `name` says which, where it has several.

    Raises Refused (no such file), SpecError (no YAML, no description), NothingSelected.
    """
    services = _services(_document(path), path)
    if name is None and len(services) > 1:
        raise NothingSelected(
            f"{path} has {len(services)} services: {', '.join(sorted(map(str, services)))}",
            hint=f"opsctl forecast {path} --service {next(iter(services))}",
        )
    chosen = name if name is not None else next(iter(services))
    if chosen not in services:
        raise NothingSelected(
            f"{path} has no service {chosen}; it has {', '.join(sorted(map(str, services)))}",
            hint=f"opsctl forecast {path} --service {next(iter(services))}",
        )
    entry = services[chosen]
    if not isinstance(entry, Mapping):
        raise SpecError([Problem("must be a mapping", file=str(path), service=str(chosen))])
    return Written(str(chosen), dict(entry), path)


def unresolved(name: str, entry: Mapping[str, Any], file: Path) -> list[Problem]:
    """Values that only Ansible can tell: templates and what is encrypted. Secrets may be either:
    no forecast depends on them."""
    return [
        Problem(
            "is encrypted" if isinstance(value, Encrypted) else "is a template",
            file=str(file),
            service=name,
            key=key,
            hint=f"only Ansible can tell it: say it with --set {key.removeprefix('flags.')}=VALUE, "
            "or ask with the inventory's service name and --limit HOST",
        )
        for key, value in _texts({k: v for k, v in entry.items() if k != "secrets"}, "")
        if isinstance(value, Encrypted) or "{{" in value or "{%" in value
    ]


def _texts(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _texts(part, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list):
        for n, part in enumerate(value):
            yield from _texts(part, f"{key}.{n}")
    elif isinstance(value, str):
        yield key, value


def _document(path: Path) -> Any:
    try:
        if path.stat().st_size > LARGEST:
            raise Refused(f"{path} is larger than any description: {LARGEST >> 20} MiB")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Refused(
            f"there is no file {path}",
            hint="give a file with one entry of sglang_services, or a service of the inventory",
        ) from None
    except UnicodeDecodeError:
        raise Refused(f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise Refused(f"cannot read {path}: {error.strerror or error}") from error
    if found := in_file(path, text):
        raise SpecError(found)
    try:
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError) as error:
        raise SpecError([Problem(f"this is not YAML: {error}", file=str(path))]) from None


def _services(document: Any, path: Path) -> dict[str, Any]:
    """{name: entry}, with what the file's overrides change."""
    if isinstance(document, Mapping):
        services: Any = document.get("sglang_services") or {}
        overrides = document.get("sglang_overrides") or {}
        if isinstance(services, Mapping) and (changed := _changed(services, overrides, path)):
            return changed
        if "model" in document or "engine" in document:
            return {path.stem if SERVICE_NAME.fullmatch(path.stem) else UNNAMED: document}
        if document and all(_like_entry(part) for part in document.values()):
            return dict(document)
    raise SpecError(
        [
            Problem(
                "holds no description of a service",
                file=str(path),
                allowed="one entry of sglang_services: a mapping with model, engine and flags",
                hint="docs/reference/description.md has the keys",
            )
        ]
    )


def _changed(services: Mapping[str, Any], overrides: Any, path: Path) -> dict[str, Any]:
    """Raises SpecError as the inventory's own check does. A service that is no mapping is told when
    it is asked for."""
    shapes = {name: part if isinstance(part, Mapping) else {} for name, part in services.items()}
    if found := misplaced(shapes, overrides):
        raise SpecError([replace(problem, file=str(path)) for problem in found])
    return merge(services, overrides)


def _like_entry(part: Any) -> bool:
    return isinstance(part, Mapping) and ("model" in part or "engine" in part)
