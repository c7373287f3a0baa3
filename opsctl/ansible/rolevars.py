"""The operator's own values of the roles' variables, judged before anything is touched.

Ansible would judge each by the role's argument spec too, but with one task more for each role and
host; here it is done once for all hosts, and a role that is used elsewhere is still judged.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from opsctl.ansible.reading import read_variables
from opsctl.errors import Problem
from opsctl.paths import share

ROLES = ("host", "nvidia_driver", "cuda", "host_tuning", "engine", "model", "service")
_DESCRIBED = ("sglang_services", "sglang_overrides")  # judged by opsctl.spec; they hold secrets


def wrong(names: Iterable[str], hostvars: Any, loader: Any) -> list[Problem]:
    """Every variable that a role would refuse. Raises SpecError for what cannot be read."""
    specs = options(loader)
    found = read_variables(names, specs, hostvars, loader)
    return [
        Problem(message, host=name, key=key)
        for name, values in found.items()
        for key, value in values.items()
        for message in judged(key, value, specs[key])
    ]


def judged(key: str, value: Any, spec: dict[str, Any]) -> list[str]:
    """Ansible's own words on one value."""
    answer = ArgumentSpecValidator({key: spec}).validate({key: value})
    return [str(message) for message in answer.error_messages]


def options(loader: Any) -> dict[str, dict[str, Any]]:
    """The argument spec of each variable of every role."""
    specs: dict[str, dict[str, Any]] = {}
    for role in ROLES:
        file = share() / "roles" / role / "meta" / "argument_specs.yml"
        specs |= loader.load_from_file(str(file), unsafe=True)["argument_specs"]["main"]["options"]
    return {key: spec for key, spec in specs.items() if key not in _DESCRIBED}
