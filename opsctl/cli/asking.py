"""`-K`: sudo's password from the operator's own terminal."""

from __future__ import annotations

import getpass
import os
import warnings

from opsctl.errors import Refused

FILE = "ANSIBLE_BECOME_PASSWORD_FILE"


def ask_become_password() -> None:
    """Hands it to Ansible, which reads the inventory, as a file of its settings: in memory, gone
    with this process, on no command line. Raises Refused where there is no terminal."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", getpass.GetPassWarning)  # it would be shown
        try:
            password = getpass.getpass("sudo password: ")
        except (getpass.GetPassWarning, EOFError, OSError):
            raise Refused(
                "-K asks for sudo's password, and there is no terminal to ask on",
                hint="set ansible_become_password (in a vault), or name a file in "
                f"{FILE}, which only you may read",
            ) from None
    if not password:
        raise Refused("no password was given", hint="leave -K out where sudo asks for none")
    memory = os.memfd_create("opsctl-become")
    os.fchmod(memory, 0o600)  # Ansible would run a file that may be executed
    os.write(memory, password.encode())
    os.environ[FILE] = f"/proc/{os.getpid()}/fd/{memory}"
