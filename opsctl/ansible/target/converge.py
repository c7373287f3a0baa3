"""Brings files, folders and users to a stated form, or tells what it would do."""

from __future__ import annotations

import grp
import os
import pwd
import stat
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from opsctl.onhost import logins
from opsctl.onhost.files import read, write


class Refused(Exception):
    """The host is in a state that must not be changed by itself; the text tells an operator why."""


class Host:
    """Collects what changed. With `check` nothing is written."""

    def __init__(self, check: bool) -> None:
        os.umask(0o022)  # engines run as another user: a strict umask of root's would lock them out
        self.check = check
        self.diff: List[Dict[str, str]] = []
        self.warnings: List[str] = []

    def changed(self, what: str, before: str, after: str) -> bool:
        """Note a change; True if it is really to be made."""
        self.diff.append(
            {"before_header": what, "after_header": what, "before": before, "after": after}
        )
        return not self.check

    def result(self, **more: Any) -> Dict[str, Any]:
        return {"changed": bool(self.diff), "diff": self.diff, "problems": [], **more}

    def folder(self, path: str, mode: int) -> bool:
        """A folder of root's, with exactly this mode. True if that was a change."""
        want = f"folder root:root {mode:04o}\n"
        have = _state(path)
        if have == want:
            return False
        if have and not have.startswith("folder"):
            raise Refused(f"{path} is not a folder ({have.strip()})")
        if self.changed(path, have, want):
            os.makedirs(path, exist_ok=True)
            os.chown(path, 0, 0)
            os.chmod(path, mode)
        return True

    def file(self, path: str, content: str, mode: int = 0o644) -> bool:
        """A file with this content. True if that was a change."""
        have = (read(Path(path)) or b"").decode("utf-8", "replace")
        state = _state(path)
        if have == content and state == f"file root:root {mode:04o}\n":
            return False
        if self.changed(path, state and have, content):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write(Path(path), content.encode(), mode)
            os.chown(path, 0, 0)
        return True

    def system_user(self, name: str) -> bool:
        """A user without login below UID 1000, with a group of its own. True if it was made. One
        that is there stays as it is: an engine may run under it, which no preparation may end. A
        group of its name, which units ask for, is made where there is none."""
        if not _has_user(name):
            if self.changed(f"user {name}", "", f"system user {name}, no login\n"):
                nologin = "/usr/sbin/nologin"
                command = ["useradd", "--system", "--no-create-home", "--home-dir", "/nonexistent"]
                group = ["--gid", name] if _has_group(name) else ["--user-group"]
                run([*command, *group, "--shell", nologin, "--", name])
            return True
        if not _has_group(name) and self.changed(f"group {name}", "", "system group\n"):
            run(["groupadd", "--system", *_number(name), "--", name])
        if danger := logins.warning(name):
            self.warnings.append(danger)
        return False


def _has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _number(name: str) -> List[str]:
    """The number that the user has for its own group already, if no other group has it."""
    number = pwd.getpwnam(name).pw_gid
    try:
        grp.getgrgid(number)
    except KeyError:
        return ["--gid", str(number)]
    return []


def _has_group(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True


def _state(path: str) -> str:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return ""
    kinds = ((stat.S_ISDIR, "folder"), (stat.S_ISREG, "file"), (stat.S_ISLNK, "link"))
    kind = next((word for test, word in kinds if test(found.st_mode)), "other")
    owner = "root:root" if (found.st_uid, found.st_gid) == (0, 0) else ""
    owner = owner or f"{found.st_uid}:{found.st_gid}"
    return f"{kind} {owner} {stat.S_IMODE(found.st_mode):04o}\n"


def run(command: Sequence[str], env: Optional[Dict[str, str]] = None) -> str:
    """Stdout of a program. Raises Refused with the end of what it said."""
    try:
        done = subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C.UTF-8", **(env or {})},
        )
    except FileNotFoundError:
        raise Refused(f"{command[0]} is not installed on the host") from None
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        end = "\n".join(text.strip().splitlines()[-12:])
        raise Refused(f"{' '.join(command)} ended with {done.returncode}:\n{end}")
    return text
