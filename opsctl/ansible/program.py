"""Runs a program of opsctl.ansible.target on a host: its text goes through stdin into Python."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opsctl.errors import OpsctlError
from opsctl.onhost.bundle import OLD
from opsctl.remote.host import Host
from opsctl.remote.onhost import no_python, python

# What each program imports, in the order of the imports; each module is put under its full name
# before the next one runs.
_CONVERGE = (
    *(f"opsctl.onhost.{name}" for name in ("files", "model", "systemd", "logins")),
    "opsctl.ansible.target.converge",
)
_GPUS = tuple(f"opsctl.onhost.{name}" for name in ("asking", "hostfacts", "gpubus", "gpus"))
_MODEL = ("opsctl.onhost.modelcheck", "opsctl.ansible.target.fetched")
# The fetch of a model is a file on the host, since it outlives the connection.
_FETCH = (
    "opsctl.onhost.files",
    *(
        f"opsctl.ansible.target.{name}"
        for name in (
            *("fetched", "web", "signing", "listing", "partial", "download", "progress"),
            *("placing", "mirrored", "fetch"),
        )
    ),
)
_PACKAGES = tuple(
    f"opsctl.ansible.target.{name}"
    for name in (
        *("distro", "openpgp", "apttrouble", "apt", "dnf", "repository"),
        *("driverplan", "driverfacts", "driverpackages"),
    )
)
_BUILDS = "opsctl.ansible.target.builds"
_PARTS = tuple(
    f"opsctl.ansible.target.{name}"
    for name in ("host", "nvidia_driver", "cuda", "host_tuning", "engine", "model")
)
_BELOW = {
    "host": _CONVERGE,
    "engine": (*_CONVERGE, _BUILDS),
    "model": (*_CONVERGE, *_MODEL),
    "nvidia_driver": (*_CONVERGE, *_PACKAGES),
    "cuda": (*_CONVERGE, *_GPUS, *_PACKAGES),
    "host_tuning": _CONVERGE,
    "survey": (*_CONVERGE, *_GPUS, *_MODEL, *_PACKAGES, _BUILDS, *_PARTS),
}

_BOOT = f"""\
import json, sys, types
{OLD}sent = json.load(sys.stdin)
for name, text in sent["modules"]:
    module = sys.modules[name] = types.ModuleType(name)
    above, _, leaf = name.rpartition(".")
    setattr(sys.modules.setdefault(above, types.ModuleType(above)), leaf, module)
    exec(compile(text, name, "exec"), module.__dict__)
print("\\n=opsctl-result=" + json.dumps(module.main(sent["args"])))
"""
# Before the result, since a host may print at login. Plain text, which every connection leaves
# as it is, and which no JSON holds, since that escapes the ends of lines.
_MARK = "\n=opsctl-result="

_ALONE = """\
import json, os, sys, types
here = os.path.dirname(os.path.abspath(__file__))
for name, text in json.loads({modules!r}):
    module = sys.modules[name] = types.ModuleType(name)
    above, _, leaf = name.rpartition(".")
    setattr(sys.modules.setdefault(above, types.ModuleType(above)), leaf, module)
    exec(compile(text, name, "exec"), module.__dict__)
with open(os.path.join(here, "job.json"), encoding="utf-8") as file:
    job = json.load(file)
sys.exit(module.main(job, os.path.join(here, "progress.json")))
"""


def fetch_program() -> str:
    """The fetch of a model as one file; it reads job.json and writes progress.json beside it."""
    return _ALONE.format(modules=json.dumps([(name, _text(name)) for name in _FETCH]))


def run(host: Host, program: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """The program's result. Raises OpsctlError if it did not come to an end."""
    names = (*_BELOW[program], f"opsctl.ansible.target.{program}")
    sent = {"modules": [(name, _text(name)) for name in names], "args": args}
    answer = host.run([*python(host), "-c", _BOOT], stdin=json.dumps(sent).encode(), timeout=7200)
    _, mark, result = answer.out.rpartition(_MARK)
    if answer.rc != 0 or not mark:
        said = (answer.err or answer.out).strip().splitlines()
        last = said[-1] if said else f"it ended with {answer.rc}"
        raise no_python(host.name, program, answer.rc, last) or OpsctlError(
            f"the check of {program} did not run on the host: {last}",
            host=host.name,
            step=program,
            log=said[-15:],
        )
    found: dict[str, Any] = json.loads(result)
    return found


def _text(name: str) -> str:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")
