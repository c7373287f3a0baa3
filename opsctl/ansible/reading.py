"""The one reader of descriptions: templated, vault-decrypted values out of Ansible's variables.

`ansible-inventory` neither templates nor decrypts, and variables handed to a task are raw too; so
this runs inside ansible-playbook, where Ansible's own precedence, templates and vaults apply. No
host is contacted. Every problem of every host is collected, so that one run tells them all.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from ansible import constants, context
from ansible.errors import AnsibleError
from ansible.template import Templar

from opsctl.errors import Problem, Problems, SpecError

# Stands for a secret that cannot be read: the rest of the description can be judged all the same.
UNREAD = "(not read)"
DESCRIPTIONS = ("sglang_services", "sglang_overrides")

# What a connection is built from. Facts such as ansible_ssh_host_key_* are not part of it.
_CONNECTION = re.compile(
    r"ansible_(host|port|user|password|connection|python_interpreter|private_key_file|timeout"
    r"|become(_\w+)?|sudo_\w+|private_key|ssh_(?!host_key)\w+)"
)

# Settings of ansible.cfg, the environment or the command line that variables do not show.
_SETTINGS = {
    "remote_user": "ansible_user",
    "port": "ansible_port",
    "private_key_file": "ansible_ssh_private_key_file",
    "ssh_args": "ansible_ssh_args",
    "ssh_common_args": "ansible_ssh_common_args",
    "ssh_extra_args": "ansible_ssh_extra_args",
}


@dataclass
class Values:
    """Turns one host's raw variables into plain Python values, remembering where each was written.

    `origins` maps a dotted key to "file:line" for every leaf.
    """

    host: str
    templar: Any
    problems: Problems
    origins: dict[str, str] = field(default_factory=dict)

    def plain(self, value: Any, key: str, file: str = "") -> Any:
        file = origin(value) or file
        if isinstance(value, Mapping):
            return {
                str(name): self.plain(part, f"{key}.{name}", origin(name) or file)
                for name, part in value.items()
            }
        if _is_list(value):
            return [self.plain(part, f"{key}.{n}", file) for n, part in enumerate(value)]
        return self._leaf(value, key, file)

    def _leaf(self, value: Any, key: str, file: str) -> Any:
        if file:
            self.origins[key] = file
        try:
            done = self.templar.template(value)
            if hasattr(done, "__ENCRYPTED__"):  # ansible-core 2.18: a vault value is not a str
                done = done.data
        except AnsibleError as error:
            self.problems.add(Problem(_first_line(error), file=file, host=self.host, key=key))
            return UNREAD if ".secrets." in key else None
        return self._native(done, key, file)

    def _native(self, value: Any, key: str, file: str) -> Any:
        """Ansible's tagged and lazy kinds become the plain kinds that JSON knows."""
        if isinstance(value, Mapping):
            return {str(n): self._native(part, f"{key}.{n}", file) for n, part in value.items()}
        if _is_list(value):
            return [self._native(part, f"{key}.{n}", file) for n, part in enumerate(value)]
        if value is None or isinstance(value, bool):
            return value
        for kind in (int, float):
            if isinstance(value, kind):
                return kind(value)
        if isinstance(value, str):
            return str.__str__(value) if type(value) is str else "".join(value)
        if isinstance(value, date):  # YAML reads an unquoted 2026-03-01 as a date
            return value.isoformat()
        message = f"a value of type {type(value).__name__} cannot be used"
        self.problems.add(Problem(message, file=file, host=self.host, key=key))
        return None


def _is_list(value: Any) -> bool:
    encrypted = hasattr(value, "__ENCRYPTED__")
    return isinstance(value, Sequence) and not isinstance(value, str | bytes) and not encrypted


def _first_line(error: Exception) -> str:
    """Ansible's message without its excerpt of the file: lines near it may hold secrets."""
    text = str(error).strip().splitlines()
    return text[0].strip() if text else type(error).__name__


def origin(value: Any) -> str:
    """ "file:line" where a value was written, "" if Ansible does not know."""
    place = getattr(value, "ansible_pos", None)  # ansible-core 2.18
    if place and place[0]:
        return f"{place[0]}:{place[1]}"
    try:
        from ansible._internal._datatag._tags import Origin
    except ImportError:
        return ""
    tag = Origin.get_tag(value)
    if tag is None or not tag.path:
        return ""
    return f"{tag.path}:{tag.line_num}" if tag.line_num else str(tag.path)


def read_hosts(names: Iterable[str], hostvars: Any, loader: Any) -> dict[str, dict[str, Any]]:
    """Descriptions by host name. Raises SpecError with every value that cannot be read."""
    found, unread = read_as_far(names, hostvars, loader)
    if unread:
        raise SpecError(unread)
    return found


def read_as_far(
    names: Iterable[str], hostvars: Any, loader: Any
) -> tuple[dict[str, dict[str, Any]], list[Problem]]:
    """Descriptions by host name, and every value that cannot be read: it is None there, or
    UNREAD for a secret."""
    problems = Problems()
    found = {name: _read_host(name, hostvars, loader, problems) for name in names}
    return found, problems.found


def read_variables(
    names: Iterable[str], wanted: Collection[str], hostvars: Any, loader: Any
) -> dict[str, dict[str, Any]]:
    """By host, those of the `wanted` variables that the inventory sets. Raises SpecError."""
    problems = Problems()
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        raw = dict(hostvars.raw_get(name), hostvars=hostvars)
        values = Values(name, _templar(loader, raw), problems)
        found[name] = {key: values.plain(raw[key], key) for key in wanted if key in raw}
    problems.raise_if_any()
    return found


def _read_host(name: str, hostvars: Any, loader: Any, problems: Problems) -> dict[str, Any]:
    raw = dict(hostvars.raw_get(name), hostvars=hostvars)
    values = Values(name, _templar(loader, raw), problems)
    wanted = {key: raw[key] for key in DESCRIPTIONS if key in raw}
    document: dict[str, Any] = {key: values.plain(value, key) for key, value in wanted.items()}
    connection = {
        key: values.plain(value, key)
        for key, value in raw.items()
        if _CONNECTION.fullmatch(str(key)) and value is not None
    }
    _refuse_ports(connection, values)
    origins = {key: place for key, place in values.origins.items() if key.startswith("sglang_")}
    try:
        set_elsewhere = settings(connection)
    except AnsibleError as error:
        problems.add(Problem(_first_line(error), host=name))
        set_elsewhere = {}
    return {
        "vars": set_elsewhere | connection,
        "sglang_services": document.get("sglang_services") or {},
        "sglang_overrides": document.get("sglang_overrides") or {},
        "groups": sorted(str(group) for group in raw.get("group_names", ())),
        "origins": origins,
    }


def _refuse_ports(connection: dict[str, Any], values: Values) -> None:
    """Takes out what is no port: Ansible would end the reading of all hosts, naming the first."""
    for key in ("ansible_port", "ansible_ssh_port"):
        value = connection.get(key)
        if value in (None, ""):
            continue
        text = str(value).strip()
        if isinstance(value, bool) or not text.isdecimal() or not 0 < int(text) < 65536:
            del connection[key]
            place = values.origins.get(key, "")
            values.problems.add(
                Problem(
                    "is no port",
                    file=place,
                    host=values.host,
                    key=key,
                    value=repr(value),
                    allowed="1 to 65535",
                )
            )


def _templar(loader: Any, variables: dict[str, Any]) -> Any:
    """On ansible-core 2.18 a template gives text; from 2.19 it gives the value itself.

    The newer way is used on both, so that one description means the same everywhere.
    """
    templar = Templar(loader=loader, variables=variables)
    try:
        from ansible.template import AnsibleNativeEnvironment
    except ImportError:
        return templar
    return templar.copy_with_new_env(environment_class=AnsibleNativeEnvironment)


def settings(variables: dict[str, Any]) -> dict[str, Any]:
    """Connection settings that ansible.cfg, the environment or the command line give."""
    found: dict[str, Any] = {}
    for option, variable in _SETTINGS.items():
        value, source = constants.config.get_config_value_and_origin(
            option, plugin_type="connection", plugin_name="ssh", variables=variables
        )[:2]
        chosen = context.CLIARGS.get(option) or (value if source != "default" else None)
        if chosen not in (None, ""):
            found[variable] = chosen if isinstance(chosen, int) else str(chosen)
    if context.CLIARGS.get("become"):
        found["ansible_become"] = True
    return found


def asked(play_context: Any) -> dict[str, str]:
    """Passwords that Ansible was given beside the inventory: -k, -K, or a file of its settings.
    What the inventory says goes before them, as in Ansible (remote.target)."""
    given = {
        "ansible_become_password_asked": play_context.become_pass,
        "ansible_password_asked": play_context.password,
    }
    return {name: str(value) for name, value in given.items() if value}
