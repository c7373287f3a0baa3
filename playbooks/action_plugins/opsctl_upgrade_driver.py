"""Shim: the code is opsctl.ansible.upgrade_driver."""

from __future__ import annotations

import sys

try:
    from opsctl.ansible.upgrade_driver import ActionModule
except ImportError as error:
    from ansible.errors import AnsibleError

    raise AnsibleError(
        f"opsctl cannot be imported by {sys.executable}, which runs ansible-playbook ({error}): "
        "install opsctl into that environment, or run ansible-playbook from opsctl's"
    ) from None

__all__ = ["ActionModule"]
