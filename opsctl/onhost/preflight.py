"""What must be true before the release that serves now is touched."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from opsctl.onhost import hostfacts, listeners, occupied, storage, zero
from opsctl.onhost.doctor.fault import mends
from opsctl.onhost.store import ZERO, Refused, Store
from opsctl.onhost.systemd import Systemd

LEAST_FREE = 4 << 20  # bytes; a run writes far less


class Outside:
    """Questions to the host that are neither files of ours nor systemd's."""

    def user_exists(self, name: str) -> bool:
        try:
            pwd.getpwnam(name)
        except KeyError:
            return False
        return True

    def group_exists(self, name: str) -> bool:
        """Our units name a group as they name the user."""
        try:
            grp.getgrnam(name)
        except KeyError:
            return False
        return True

    def unwritable(self, folder: Path) -> List[str]:
        """Why nothing can be written where `folder` is, or will be."""
        while not folder.exists():
            folder = folder.parent
        disk = os.statvfs(str(folder))
        if disk.f_flag & os.ST_RDONLY:
            return [_problem(f"the disk of {folder} is read-only", "disk-readonly")]
        if disk.f_bavail * disk.f_frsize < LEAST_FREE:
            text = f"less than {LEAST_FREE >> 20} MiB are free on the disk of {folder}"
            return [_problem(text, "disk-full", path=folder)]
        return []

    def exists(self, path: str) -> bool:
        return not self.absent([path])

    def absent(self, paths: Sequence[str]) -> List[str]:
        """Those that are not there. Of one that does not answer that is not known, and `in_the_way`
        tells it as what it is."""
        silent = storage.silent(paths)
        return [path for path in paths if path not in silent and not Path(path).exists()]

    def in_the_way(
        self,
        systemd: Systemd,
        manifest: Mapping[str, Any],
        but: str = "",
        after: Sequence[str] = (),
    ) -> List[str]:
        """What would keep a start from its port or its GPUs: found out now, and not after a load
        of many minutes. `but`: a unit that is about to be stopped; `after`: units that will run
        another release by then, which takes other things."""
        from opsctl.onhost.doctor import examine  # it asks this module too

        found = examine.preconditions(manifest, systemd)
        other = str(manifest.get("takes_over") or "") if but else ""  # is stopped as well
        taken = self.port_holder(manifest.get("address") or {}, but, other, *after)
        if taken:
            port = manifest["address"]["port"]
            found.append(_problem(f"port {port} is held by {taken}", "port-taken", port=port))
        if shutil.which("nvidia-smi"):
            owners = {
                pid: state.name
                for state in systemd.show_all(["sglang-*.service", *([other] if other else [])])
                for pid in hostfacts.cgroup_pids(state.cgroup)
            }
            held = hostfacts.gpu_processes(hostfacts.gpus())
            own = f"sglang-{manifest.get('service')}.service"
            found += occupied.problems(manifest, held, owners, {own, other, *after}, _holder)
        return found

    def not_back(self, must: Mapping[str, Any], store: Store, systemd: Systemd) -> List[str]:
        """What of the host is not as a parked run demands it."""
        from opsctl.onhost import returned

        return returned.problems(must, store.places, systemd)

    def port_holder(self, address: Mapping[str, Any], *but: str) -> str:
        """Who listens where the engine is to listen, "" if nobody does, or only units of `but`.
        After a SIGKILL an orphan of the engine may hold it; the new engine would find out after
        the whole load."""
        for inode, at in listeners.of_host().items():
            if not listeners.taken(address, at):
                continue
            pid = listeners.owner(inode)
            group = hostfacts.read(f"/proc/{pid}/cgroup") if pid else ""
            users_own = "/user@" in group  # a user's own systemd may have units of our names
            if any(f"/{unit}" in group for unit in but if unit and not users_own):
                continue
            return _holder(int(pid)) if pid else "another process"
        return ""


def _holder(pid: int) -> str:
    """Of an engine's rank, which its server ends with, the server is told."""
    from opsctl.onhost import owners, running

    above = pid
    while above > 1:
        if running.is_server(hostfacts.read(f"/proc/{above}/cmdline").split("\0")[:-1]):
            return owners.told(above, True)
        above = owners.parent(above)
    return owners.told(pid, False)


def check(store: Store, systemd: Systemd, outside: Outside, digest: str) -> None:
    """Raises Refused with everything that is wrong with a release on this host."""
    if wrong := problems(store, systemd, outside, digest):
        raise Refused(f"release {digest[:12]}: " + "; ".join(wrong), "; ".join(mends(wrong)))


def problems(store: Store, systemd: Systemd, outside: Outside, digest: str) -> List[str]:
    """What would keep a release that is on this host from starting."""
    manifest: Dict[str, Any] = store.manifest(digest) or {}
    found = _files(store, digest) + surroundings(store, systemd, outside, manifest)
    return found or systemd.verify(store.release(digest) / store.unit)


def foretold(
    store: Store,
    systemd: Systemd,
    outside: Outside,
    manifest: Mapping[str, Any],
    unit: bytes,
    after: Sequence[str] = (),
) -> List[str]:
    """What `check` and the guard would refuse of a release that is only being staged, so that a
    plan tells it, and a fleet is not left half done. `unit`: its unit file's text; `after`: units
    that are deployed before it."""
    problems = zero.refusal(store, systemd, str(manifest.get("takes_over") or ""))
    problems += surroundings(store, systemd, outside, manifest, after)
    if problems:
        return problems
    with tempfile.TemporaryDirectory(prefix="opsctl-") as folder:
        path = Path(folder) / store.unit
        path.write_bytes(unit)
        return systemd.verify(path)


def surroundings(
    store: Store,
    systemd: Systemd,
    outside: Outside,
    manifest: Mapping[str, Any],
    after: Sequence[str] = (),
) -> List[str]:
    """What on the host would keep a release from starting; asked when it is staged, and again
    before the old release is touched."""
    problems: List[str] = []
    written = [store.places.var, store.places.etc, store.places.units]
    # The unit's CacheDirectory=: where it cannot be made, the unit does not start.
    written += [store.places.cache] if manifest and manifest.get("digest") != ZERO else []
    for folder in written:
        problems += outside.unwritable(folder)
    if manifest.get("digest") == ZERO:
        return problems + zero.missing(store, outside.exists, outside.user_exists)
    if not manifest:
        return problems
    user = manifest.get("user") or ""
    if user and not outside.user_exists(user):
        # systemd-analyze does not notice it
        problems.append(_problem(f"there is no user {user}", "user-missing"))
    elif user and not outside.group_exists(user):
        problems.append(_problem(f"there is no group {user}", "user-missing"))
    wanted = dict(_wanted_paths(manifest))
    for path in outside.absent(list(wanted)):
        problems.append(_problem(f"{path} is not there", wanted[path], path=path))
    return problems + outside.in_the_way(systemd, manifest, but=store.unit, after=after)


def _files(store: Store, digest: str) -> List[str]:
    folder = store.release(digest)
    unit, manifest = store.release_unit(digest), store.manifest(digest)
    if unit is None or manifest is None:
        return [f"{folder} holds no whole release; stage it again"]
    problems = []
    if digest != ZERO and store.marked(unit) != digest:
        problems.append(f"its unit names release {store.marked(unit)[:12] or 'none'}")
    secrets = folder / "secrets"
    for path in sorted(secrets.iterdir()) if secrets.is_dir() else []:
        info = path.stat()
        if stat.S_IMODE(info.st_mode) != 0o600:
            problems.append(f"{path.name} in {secrets} has mode {stat.S_IMODE(info.st_mode):04o}")
    key: Optional[str] = manifest.get("api_key_file")
    if key and not (folder / key).is_file():
        problems.append(f"{folder / key} is not there")
    return problems


def _wanted_paths(manifest: Mapping[str, Any]) -> List[Tuple[str, str]]:
    """With what doctor calls it when one is absent."""
    model: Mapping[str, Any] = manifest.get("model") or {}
    engine: Mapping[str, Any] = manifest.get("engine") or {}
    found = [(model.get(key), "model-missing") for key in ("path", "draft_path")]
    found.append((engine.get("root"), "engine-missing"))
    return [(path, fault) for path, fault in found if path]


def _problem(text: str, fault: str, **fill: object) -> str:
    from opsctl.onhost.doctor import examine  # it asks this module too

    return examine.problem(text, fault, **fill)
