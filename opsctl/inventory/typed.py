"""sudo's password as the operator has typed it for this command (`opsctl -K`).

It goes to Ansible, which reads the inventory, as a file of its settings, and comes back with the
addresses; so what an inventory says of its own goes before it, as with `ansible-playbook -K`.
"""

from __future__ import annotations

from pathlib import Path

FILE = "ANSIBLE_BECOME_PASSWORD_FILE"
_typed: list[str] = []


def keep(password: str) -> None:
    _typed[:] = [password]


def given() -> bool:
    return bool(_typed)


def environment(folder: Path) -> dict[str, str]:
    """Of the process that reads; `folder` is in memory, and readable by its owner alone."""
    if not _typed:
        return {}
    file = folder / "become"
    file.touch(mode=0o600)
    file.write_text(_typed[0], encoding="utf-8")
    return {FILE: str(file)}
