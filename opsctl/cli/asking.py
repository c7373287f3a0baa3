"""`-K`: sudo's password from the operator's own terminal."""

from __future__ import annotations

import getpass
import warnings

from opsctl.errors import Refused
from opsctl.inventory import typed


def ask_become_password() -> None:
    """Asks once, though -K may stand before the verb and after it. Raises Refused where there is
    no terminal, and for an empty answer."""
    if typed.given():
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error", getpass.GetPassWarning)  # it would be shown
        try:
            password = getpass.getpass("sudo password: ")
        except (getpass.GetPassWarning, EOFError, OSError):
            raise Refused(
                "-K asks for sudo's password, and there is no terminal to ask on",
                hint="set ansible_become_password (in a vault), or name a file in "
                f"{typed.FILE}, which only you may read",
            ) from None
    if not password:
        raise Refused("no password was given", hint="leave -K out where sudo asks for none")
    typed.keep(password)
