"""Shim: the code is opsctl.ansible.fleet."""

from __future__ import annotations

import sys

try:
    from opsctl.ansible.fleet import LookupModule
except ImportError as error:
    from ansible.errors import AnsibleError

    raise AnsibleError(
        f"opsctl cannot be imported by {sys.executable}, which runs ansible-playbook ({error}): "
        "install opsctl into that environment, or run ansible-playbook from opsctl's"
    ) from None

__all__ = ["LookupModule"]
