"""Where the inventory and Ansible's settings are, if the operator does not say."""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from pathlib import Path

from opsctl.errors import Refused


def find(given: Path | None, environ: Mapping[str, str] = os.environ) -> Path:
    """The path of the inventory: as given, $OPSCTL_INVENTORY, ansible.cfg's, ./inventory.

    Raises Refused, which says where the path came from.
    """
    path, source = _candidate(given, environ)
    if path.exists():
        return path.absolute()
    raise Refused(
        f"there is no inventory at {path} ({source})",
        hint="name one with -i PATH, or set OPSCTL_INVENTORY",
    )


def _candidate(given: Path | None, environ: Mapping[str, str]) -> tuple[Path, str]:
    if given is not None:
        return given, "given with -i"
    for variable in ("OPSCTL_INVENTORY", "ANSIBLE_INVENTORY"):
        if environ.get(variable):
            return Path(environ[variable]).expanduser(), f"from ${variable}"
    config = ansible_cfg(environ)
    if config is not None and (value := setting(config, "inventory")):
        return config.parent / Path(value).expanduser(), f"from {config}"
    return Path("inventory"), "the default"


def ansible_cfg(environ: Mapping[str, str]) -> Path | None:
    """The settings file that Ansible itself would take, in its own order."""
    named = environ.get("ANSIBLE_CONFIG")
    if named:
        path = Path(named).expanduser()
        path = path / "ansible.cfg" if path.is_dir() else path
        return path.absolute() if path.is_file() else None
    places = (
        Path("ansible.cfg"),
        Path("~/.ansible.cfg").expanduser(),
        Path("/etc/ansible/ansible.cfg"),
    )
    return next((p.absolute() for p in places if p.is_file()), None)


def setting(config: Path, key: str) -> str:
    """A value of [defaults]; "" if it is not set or the file cannot be read as settings."""
    parser = configparser.ConfigParser(
        interpolation=None, strict=False, inline_comment_prefixes=(";",)
    )
    try:
        parser.read(config, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):
        return ""  # Ansible will say what is wrong with it, better than we could
    return parser.get("defaults", key, fallback="").strip()
