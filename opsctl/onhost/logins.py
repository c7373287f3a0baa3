"""Whether logind takes a user's shared memory away, and with it the engine's.

When the last session of an ordinary user ends (an SSH login, cron), logind removes what the user
owns in /dev/shm, whoever made it. It spares system users, those who linger, and, where
RemoveIPC=no is said, everybody.
"""

from __future__ import annotations

import pwd
from pathlib import Path
from typing import Optional

from opsctl.onhost import systemd

# systemd's and Debian's border between system users and people (SYS_UID_MAX in login.defs).
FIRST_ORDINARY_UID = 1000
LINGER = Path("/var/lib/systemd/linger")
_ASK = ["busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1",
        "org.freedesktop.login1.Manager", "RemoveIPC"]  # fmt: skip


def ordinary(user: str) -> Optional[int]:
    """The UID of a user whose shared memory logind takes; None of all others, and of nobody."""
    try:
        known = pwd.getpwuid(int(user)) if user.isdigit() else pwd.getpwnam(user)
    except KeyError:
        return None
    if known.pw_uid < FIRST_ORDINARY_UID or (LINGER / known.pw_name).exists():
        return None
    return known.pw_uid if _removes() else None


def warning(user: str) -> str:
    """What threatens an engine of this user, and what mends it, without a restart; "" if nothing
    does."""
    uid = ordinary(user)
    if uid is None:
        return ""
    return (
        f"user {user} has UID {uid}: an ordinary user (UID {FIRST_ORDINARY_UID} and above) loses "
        "the engine's shared memory when its last session ends (RemoveIPC of logind), and the "
        f"engine fails; at once and without a restart: loginctl enable-linger {user}; for good, "
        "from the next start on: a system user in `user`"
    )


def _removes() -> bool:
    """As logind runs. Where nobody answers, as it does where nothing is configured."""
    try:
        _, out, _ = systemd.call(_ASK, 10)
    except systemd.CallFailed:
        return True
    return out.split() != ["b", "false"]
