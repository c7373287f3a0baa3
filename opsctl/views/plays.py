"""Commands with a playbook in them, as they can be typed where the user is.

The texts that name one are written where nobody knows of any user: on a host, in the rollout.
There it is `ansible-playbook playbooks/NAME.yml`; in a wheel that folder is deep in the package, a
checkout may be elsewhere, and ansible-playbook does not find opsctl's inventory by itself.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from opsctl.errors import OpsctlError
from opsctl.paths import share

_PLAY = re.compile(r"ansible-playbook (?:playbooks/)?([a-z_]+\.yml)")


def typeable(text: str, inventory: Path | None = None) -> str:
    """`inventory`: as it was given to opsctl; None: wherever opsctl itself finds it."""
    return _PLAY.sub(lambda found: _command(found, inventory), text)


def _command(found: re.Match[str], inventory: Path | None) -> str:
    play = share() / "playbooks" / found[1]
    if not play.exists():
        return found[0]
    known = _inventory(inventory)
    words = ["ansible-playbook", *(["-i", from_here(known)] if known else []), from_here(play)]
    return shlex.join(words)


def _inventory(given: Path | None) -> Path | None:
    from opsctl.inventory import find

    try:
        return find(given)
    except OpsctlError:
        return None


def from_here(path: Path) -> str:
    """Below the working folder a short path, else the whole one."""
    here, whole = Path.cwd(), path.absolute()
    return str(whole.relative_to(here) if whole.is_relative_to(here) else whole)
