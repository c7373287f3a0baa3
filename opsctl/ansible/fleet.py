"""The hosts of a playbook: all of the inventory, or an error where Ansible would do nothing.

Of an inventory without hosts ansible-playbook says "skipping: no hosts matched" and ends with 0; a
misspelt -i is only warned of, unless an ansible.cfg says otherwise. Asked by the field `hosts` of
each playbook's first play: no task, and the same wherever the playbook is started.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible import constants, context
from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from opsctl.inventory.reader import NO_HOSTS

ASKED = "OPSCTL_INVENTORY"  # of opsctl alone: ansible-playbook reads ANSIBLE_INVENTORY


class LookupModule(LookupBase):  # type: ignore[misc]
    """Takes no terms; answers the pattern of all hosts. --limit chooses among them later."""

    def run(self, terms: Any, variables: Any = None, **kwargs: Any) -> list[str]:
        if context.CLIARGS.get("syntax"):  # it reads no inventory
            return ["all"]
        known = variables or {}
        hosts = (known.get("groups") or {}).get("all") or ()
        said = wrong(_given(known), hosts, os.environ)
        if said:
            raise AnsibleLookupError(said)
        return ["all"]


def wrong(given: Sequence[str], hosts: Sequence[str], environment: Mapping[str, str]) -> str:
    """What is wrong with the inventory, and what to type; "" if nothing is.

    `given`: sources that somebody has named; hosts in a row ("h1,h2") are one, too."""
    gone = [one for one in given if "," not in one and not Path(one).expanduser().exists()]
    if hosts and not gone:
        return ""
    if gone:
        said = f"the inventory {', '.join(gone)} is not there"
    elif given:
        said = f"the inventory {', '.join(given)} {NO_HOSTS}"
    else:
        said = f"no inventory is given, and Ansible's own {NO_HOSTS}"
    return f"{said}: nothing was done\nnext: {_next(given, gone, environment)}"


def _next(given: Sequence[str], gone: Sequence[str], environment: Mapping[str, str]) -> str:
    asked = environment.get(ASKED, "")
    if asked and str(Path(asked).expanduser().absolute()) not in given:
        return (
            f'the same with -i "${ASKED}" ({asked}): opsctl reads that variable, '
            "ansible-playbook does not"
        )
    if given and not gone:
        return f"ansible-inventory -i {given[0]} --graph shows what Ansible reads there"
    return f"the same with -i INVENTORY (ansible-playbook does not read {ASKED})"


def _given(variables: Mapping[str, Any]) -> list[str]:
    """The inventory's sources; none if it is only where Ansible looks unasked."""
    sources = [str(one) for one in variables.get("ansible_inventory_sources") or ()]
    usual = constants.config.get_config_value_and_origin("DEFAULT_HOST_LIST")
    unasked = usual[1] == "default" and sources == [str(one) for one in usual[0]]
    return [] if unasked else sources
