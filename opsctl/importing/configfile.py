"""`--config FILE`: flags from a YAML file, which the engine puts before those of the command line.

As the releases from 0.5.3 to 0.5.23 are written (server_args_config_parser.py): only the two words
`--config FILE` count; true adds a switch, false leaves it out; a list's items follow their flag;
whatever else becomes text. A mapping becomes JSON in 0.5.23 alone: before, the engine makes text of
it that is no JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from opsctl import engine
from opsctl.engine import Catalogue, order
from opsctl.importing.compose import Loader
from opsctl.importing.files import given
from opsctl.importing.marks import theirs, whole
from opsctl.importing.model import Report

_READS_MAPPINGS = "0.5.23"


def merged(args: list[str], version: str, files: Mapping[str, str], report: Report) -> list[str]:
    """The arguments with the file's in place of the two words; the same ones if it was not given
    (flags.py then says what is missing). `version`: "" if it is not known yet."""
    if args.count("--config") != 1 or (at := args.index("--config")) + 1 >= len(args):
        return args
    path = args[at + 1]
    text = given(files, path) if whole(path) else None
    if text is None:
        return args
    try:
        found = yaml.load(text, Loader=Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        report.refuse(
            f"is no YAML: {theirs(' '.join(str(error).split()))}", key="flags.config", value=path
        )
        return args
    if not isinstance(found, dict | None):
        report.refuse("holds no mapping of flags", key="flags.config", value=path)
        return args
    known = engine.catalogue(version if version in engine.versions() else engine.versions()[-1])
    report.note(
        "changed", f"--config {theirs(path)}", "its flags stand in the description themselves"
    )
    return [*_arguments(found or {}, known, report), *args[:at], *args[at + 2 :]]


def _arguments(found: Mapping[Any, Any], known: Catalogue, report: Report) -> list[str]:
    switches = {flag.dest for flag in known.flags.values() if flag.kind == "switch"}
    args: list[str] = []
    for key, value in found.items():
        flag = f"--{key}"
        if value is True and str(key).replace("-", "_") in switches:
            args.append(flag)
        elif value is False and str(key).replace("-", "_") in switches:
            continue
        elif isinstance(value, list):
            args += [flag, *map(str, value)] if value else []
        elif isinstance(value, dict):
            args += [flag, json.dumps(value)]
            if order.age(known.version) < order.age(_READS_MAPPINGS):
                report.refuse(
                    f"{key}: SGLang {known.version} makes no JSON of a mapping in its file",
                    key="flags.config",
                    hint=f"write it as --{key} '{{…}}' on the command line",
                )
        else:
            args += [flag, str(value).lower() if isinstance(value, bool) else str(value)]
    return args
