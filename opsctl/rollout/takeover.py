"""Whether a process of other hands is already what a release would start. Pure.

Then its unit file can be exchanged under it: nobody loses a request, and no model is loaded twice.
Arguments are compared as the engine's own parser reads them, variables as far as they change what
the engine does; secrets are compared and never told.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from opsctl import engine
from opsctl.engine import Catalogue
from opsctl.importing.arguments import walk
from opsctl.importing.entry import Entry, Other, entry
from opsctl.importing.environment import OURS, expected, variables
from opsctl.importing.equivalent import namespace
from opsctl.importing.model import Launch, Report
from opsctl.importing.secretnames import by_name
from opsctl.importing.secrets import Vault, by_form
from opsctl.importing.unit.words import command, environment
from opsctl.release.model import SECRETS, Release
from opsctl.rollout.model import Takeover

_UNLIMITED = -1
_LIMITS = {"nofile": ("LimitNOFILE", 1048576), "memlock": ("LimitMEMLOCK", _UNLIMITED)}


def compare(process: Mapping[str, Any] | None, release: Release) -> Takeover | None:
    """`process`: the main process of the unit of other hands that runs in the service's place, as
    the host tells it; None if there is none."""
    if not process:
        return None
    differs = tuple(_differs(process, release))
    later = tuple(_later(process, release.manifest))
    return Takeover(str(process.get("invocation") or ""), differs, later)


def _differs(process: Mapping[str, Any], release: Release) -> Iterator[str]:
    way = entry(process["argv"])
    if isinstance(way, Other):
        program = posixpath.basename(str((process["argv"] or ["?"])[0]))
        yield f"the unit's main process is {program}, and not the engine"
        return
    manifest = release.manifest
    yield from _engine(process, manifest)
    known = engine.catalogue(manifest["engine"]["version"])
    hidden = {*_secrets(release).values(), *_keys(way, known)}
    yield from _arguments(way, process, release, known, hidden)
    yield from _variables(process, release, hidden)


def _keys(way: Entry, known: Catalogue) -> set[str]:
    """Secrets on the command line that runs; the shell or unit may have had them in a variable."""
    given, _ = walk(known, way.args)
    return {value for one in given if by_name(one.flag.name) for value in one.values if value}


def _engine(process: Mapping[str, Any], manifest: Mapping[str, Any]) -> Iterator[str]:
    """Metadata that is newer than the process tells of another engine than the one that runs."""
    found, wanted = process.get("engine") or {}, manifest["engine"]
    version = str(found.get("version") or "unknown").partition("+")[0]
    if version != wanted["version"]:
        yield f"engine {version} → {wanted['version']}"
    if found.get("root") and _plain(found["root"]) != _plain(wanted["root"]):
        yield f"engine root {found['root']} → {wanted['root']}"
    installed, started = found.get("installed"), process.get("started")
    if installed and started and installed > started:
        yield "the engine was installed anew since the process began"


def _plain(path: str) -> str:
    return posixpath.normpath(path)


def _arguments(
    way: Entry,
    process: Mapping[str, Any],
    release: Release,
    known: Catalogue,
    hidden: Collection[str],
) -> Iterator[str]:
    ours = entry(command(release.unit))
    assert isinstance(ours, Entry)  # opsctl rendered it
    keys = {name: secret for name, secret in _secrets(release).items() if name.endswith("api-key")}
    try:
        now = _whole(namespace(known, way.args))
    except ValueError as error:
        yield f"the process has arguments that SGLang {known.version} does not take: {error}"
        return
    then = _whole(namespace(known, [*ours.args, *(f"--{n}={v}" for n, v in keys.items())]))
    cwd = str(process.get("cwd") or "/")
    by_dest = {flag.dest: flag for flag in known.flags.values()}
    for dest in sorted({*now, *then}):
        flag = by_dest[dest]
        before, after = now.get(dest, flag.default), then.get(dest, flag.default)
        if before == after or _same_path(cwd, before, after):
            continue
        yield _told(flag.name, before, after, hidden)


def _whole(values: dict[str, Any]) -> dict[str, Any]:
    """With what the engine itself puts in the place of names that are not given."""
    path = values.get("model_path")
    return {"served_model_name": path, "tokenizer_path": path, **values}


def _same_path(cwd: str, before: Any, after: Any) -> bool:
    if not (isinstance(before, str) and isinstance(after, str) and after.startswith("/")):
        return False
    return _plain(posixpath.join(cwd, before)) == _plain(after)


def _variables(
    process: Mapping[str, Any], release: Release, hidden: Collection[str]
) -> Iterator[str]:
    """What systemd, a login or our own unit sets by itself is no difference; what the owner's
    description sets, is one, whatever its name."""
    environ: Mapping[str, str] = process["environ"]
    vault = Vault("")
    launch = Launch(list(process["argv"]), dict(environ), said=set())
    matters = expected(variables(launch, vault, Report()), vault)
    secrets = _secrets(release)
    own = {n.removeprefix("env."): v for n, v in secrets.items() if n.startswith("env.")}
    wanted = {**environment(release.unit), **own}
    said = {*release.manifest["env"], *own}
    for name in sorted({*matters, *wanted}):
        if name in OURS and name not in said:
            continue
        before, after = matters.get(name, environ.get(name)), wanted.get(name)
        if before != after:
            yield f"env {_told(name, before, after, hidden)}"


def _secrets(release: Release) -> dict[str, str]:
    return {
        path.removeprefix(SECRETS): file.content.decode()
        for path, file in release.files.items()
        if path.startswith(SECRETS)
    }


def _told(name: str, before: Any, after: Any, hidden: Collection[str]) -> str:
    """A secret is named, and never shown; what only looks like one neither."""
    texts = [_shown(before), _shown(after)]
    if by_name(name) or any(by_form(t) or any(s in t for s in hidden) for t in texts):
        happened = "added" if before is None else "removed" if after is None else "changed"
        return f"{name} {happened} (secret)"
    return f"{name} {texts[0]} → {texts[1]}"


def _shown(value: Any) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)


def _later(process: Mapping[str, Any], manifest: Mapping[str, Any]) -> Iterator[str]:
    """What a start alone can change: told in the plan, and by status until there was one."""
    if process.get("user") and process["user"] != manifest["user"]:
        yield f"user {process['user']} → {manifest['user']}"
    limits = process.get("limits") or {}
    for name, (setting, wanted) in _LIMITS.items():
        if limits.get(name) not in (None, wanted):
            yield f"{setting} {_limit(limits[name])} → {_limit(wanted)}"
    yield "sandboxing of the new unit"
    home, environ = f"/var/cache/opsctl/{manifest['service']}", process["environ"]
    if environ.get("HOME") != home and "HOME" not in manifest["env"]:
        yield f"HOME {environ.get('HOME') or 'unset'} → {home}: kernels are compiled anew there"
    if manifest.get("secrets"):
        yield "secrets leave the command line and the unit"
    yield from _of_the_unit(process.get("unit") or {})


def _of_the_unit(unit: Mapping[str, Any]) -> Iterator[str]:
    enabled = str(unit.get("enabled") or "enabled")
    if not enabled.startswith("enabled"):
        yield f"it starts at boot, which the old unit did not ({enabled})"
    if unit.get("stale"):
        yield "the old unit was edited after this start: release 0 is the edited text"
    if unit.get("link"):
        yield f"the old unit is a link to {unit['link']}: release 0 is its text, not the link"
    if aside := unit.get("aside"):
        yield f"drop-ins go, set aside with release 0: {', '.join(aside)}"
    if front := unit.get("front"):
        yield f"{front} no longer stands before the engine: what it binds or sets ends"
    if staying := unit.get("staying"):
        yield f"drop-ins that stay and change the new unit, too: {', '.join(staying)}"


def _limit(value: int) -> str:
    return "infinity" if value == _UNLIMITED else str(value)
