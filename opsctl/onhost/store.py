"""Where everything stands on the host, and the only writer of it.

Permission modes: what holds secrets is 0600 in 0700; all else is for everybody to read.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

from opsctl.onhost import files

ZERO = "0"  # the digest of what stood there before opsctl
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_DIGEST = re.compile(r"[0-9a-f]{64}|0")
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MARK = re.compile(r"^X-OpsctlRelease=([0-9a-f]{64})\s*$", re.MULTILINE)


class Refused(Exception):
    """A request that cannot be done as asked. `code` is the exit code of the verb."""

    def __init__(self, message: str, hint: str = "", code: int = 1) -> None:
        super().__init__(message)
        self.message, self.hint, self.code = message, hint, code


def _checked(pattern: "re.Pattern[str]", what: str, value: str) -> str:
    """Names become paths and unit names: nothing that could climb out of its folder."""
    if not pattern.fullmatch(value) or ".." in value:
        raise Refused(f"{what} {value!r} is not allowed; allowed: {pattern.pattern}")
    return value


@dataclass(frozen=True)
class Places:
    """The paths of the host. `root` is another folder only in tests."""

    root: Path = Path("/")

    @property
    def etc(self) -> Path:
        return self.root / "etc/opsctl"

    @property
    def var(self) -> Path:
        return self.root / "var/lib/opsctl"

    @property
    def cache(self) -> Path:
        return self.root / "var/cache/opsctl"

    @property
    def units(self) -> Path:
        return self.root / "etc/systemd/system"


class Store:
    """The files of one service."""

    def __init__(self, service: str, places: Places = Places()) -> None:
        self.service = _checked(_NAME, "service", service)
        self.places = places
        self.unit = f"sglang-{service}.service"
        self.unit_path = places.units / self.unit
        self.dropin_folder = places.units / f"{self.unit}.d"
        self.etc = places.etc / service
        self.releases = self.etc / "releases"
        self.var = places.var / service

    # -- releases

    def release(self, digest: str) -> Path:
        return self.releases / _checked(_DIGEST, "release", digest)

    def manifest(self, digest: str) -> Optional[Dict[str, Any]]:
        return files.read_json(self.release(digest) / "release.json")

    def release_unit(self, digest: str) -> Optional[bytes]:
        return files.read(self.release(digest) / self.unit)

    def staged(self) -> List[str]:
        """Digests that are there, the newest first."""
        if not self.releases.is_dir():
            return []
        found = [p for p in self.releases.iterdir() if _DIGEST.fullmatch(p.name) and p.is_dir()]
        return [p.name for p in sorted(found, key=lambda p: -p.stat().st_mtime)]

    # -- what stands in systemd's folder

    def standing(self) -> str:
        """Digest of the release whose unit stands in place, byte for byte.

        "" if no unit file is there, "0" for the saved one of other hands, else "foreign".
        """
        content = files.read(self.unit_path)
        if content is None:
            return ""
        digest = self.marked(content) or ZERO
        if self.release_unit(digest) != content:
            return "foreign"
        if digest != ZERO and self._zero_dropins_in_place():
            return "foreign"
        return digest

    @staticmethod
    def marked(content: bytes) -> str:
        """The digest that a unit names itself, "" for one of other hands."""
        found = _MARK.search(content.decode("utf-8", "replace"))
        return found[1] if found else ""

    def dropins(self) -> List[str]:
        if not self.dropin_folder.is_dir():
            return []
        return sorted(p.name for p in self.dropin_folder.iterdir() if p.suffix == ".conf")

    def _zero_dropins(self) -> Dict[str, bytes]:
        folder = self.release(ZERO) / "dropins"
        if not folder.is_dir():
            return {}
        return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}

    def _zero_dropins_in_place(self) -> bool:
        saved = self._zero_dropins()
        return any(files.read(self.dropin_folder / name) == text for name, text in saved.items())

    def zero_edited(self) -> bool:
        """Whether release 0 is kept, and what stands in place is of other hands again and differs
        from it, in its text or its drop-ins."""
        content, kept = files.read(self.unit_path), self.release_unit(ZERO)
        if content is None or kept is None or self.marked(content):
            return False
        dropins = {name: files.read(self.dropin_folder / name) for name in self.dropins()}
        return content != kept or dropins != self._zero_dropins()

    def save_zero(
        self, content: bytes, manifest: Dict[str, Any], dropins: Optional[Dict[str, bytes]] = None
    ) -> None:
        """Keep a unit of other hands, with its drop-ins (those in our place, unless given), as
        release 0. One rename, all or nothing.

        A later unit of other hands replaces an earlier one: it is what would be restored.
        """
        if dropins is None:
            dropins = {n: (self.dropin_folder / n).read_bytes() for n in self.dropins()}
        final = self.release(ZERO)
        new = self.releases / f".new-0.{os.getpid()}"
        shutil.rmtree(new, ignore_errors=True)
        (new / "dropins").mkdir(parents=True, mode=0o700)
        os.chmod(new, 0o700)  # a unit written by hand may well hold a key
        files.write(new / self.unit, content, 0o600)
        for name, text in dropins.items():
            files.write(new / "dropins" / name, text, 0o600)
        files.write_json(new / "release.json", manifest)
        replace_folder(new, final)

    def install(self, digest: str) -> None:
        """Put a release's unit in place: the commit point. Running it again changes nothing.

        Raises OSError; Refused if the release is not there.
        """
        content = self.release_unit(digest)
        if content is None:
            raise Refused(f"release {digest[:12]} of {self.service} has no unit on this host")
        if digest == ZERO:
            for name, text in self._zero_dropins().items():
                self.dropin_folder.mkdir(exist_ok=True)
                files.write(self.dropin_folder / name, text)
        if files.read(self.unit_path) != content:
            files.write(self.unit_path, content, 0o644)
        if digest != ZERO:
            for name, text in self._zero_dropins().items():
                if files.read(self.dropin_folder / name) == text:
                    files.remove(self.dropin_folder / name)

    # -- the state of the service

    def confirmed(self) -> str:
        """Digest of the last release whose gates passed; "" if none did."""
        text = (files.read(self.var / "confirmed") or b"").decode("ascii", "replace").strip()
        return text if _DIGEST.fullmatch(text) else ""

    def write_confirmed(self, digest: str) -> None:
        files.write(self.var / "confirmed", digest.encode() + b"\n")

    def confirm(self, digest: str, before: str) -> None:
        """Make `digest` the confirmed release. `before`: what to go back to, if none was confirmed.
        Running it again, after a crash anywhere in it, changes nothing."""
        former = self.confirmed()
        if former != digest:
            if (former or before) not in ("", digest):
                self.link("previous", former or before)
            self.write_confirmed(digest)
        self.link("current", digest)

    def previous(self) -> str:
        """Digest that was confirmed before the confirmed one; "" if there is none."""
        path = self.etc / "previous"
        name = os.path.basename(os.readlink(str(path))) if os.path.islink(str(path)) else ""
        return name if _DIGEST.fullmatch(name) and self.release_unit(name) is not None else ""

    # A release that took a running process over: what its unit says applies from the next start on.

    def taken(self) -> Optional[Dict[str, Any]]:
        """{"digest", "invocation", "later"} if the confirmed release has taken a process over, and
        no start of its own unit was confirmed since."""
        found = files.read_json(self.var / "taken.json")
        return found if found and found.get("digest") == self.confirmed() else None

    def unproven(self) -> bool:
        return self.taken() is not None

    def write_taken(self, digest: str, invocation: str, later: List[str]) -> None:
        told = {"digest": digest, "invocation": invocation, "later": later}
        files.write_json(self.var / "taken.json", told)

    def remove_taken(self) -> None:
        files.remove(self.var / "taken.json")

    # A service that was stopped for work on the host, and shall run again (see parking.py).

    def parked(self) -> Optional[Dict[str, Any]]:
        """{"run", "reason", "since"}; one that cannot be read is still parked."""
        path = self.var / "parked.json"
        return (files.read_json(path) or {}) if path.exists() else None

    def write_parked(self, parked: Dict[str, Any]) -> None:
        files.write_json(self.var / "parked.json", parked)

    def remove_parked(self) -> None:
        files.remove(self.var / "parked.json")

    def link(self, name: str, digest: str) -> None:
        files.link(self.etc / name, f"releases/{_checked(_DIGEST, 'release', digest)}")

    def pending(self) -> Optional[Dict[str, Any]]:
        return files.read_json(self.var / "pending.json")

    def pending_is_there(self) -> bool:
        return (self.var / "pending.json").exists()

    def write_pending(self, pending: Dict[str, Any]) -> None:
        files.write_json(self.var / "pending.json", pending)

    def remove_pending(self) -> None:
        files.remove(self.var / "pending.json")

    def write_start(self, invocation: str, facts: Dict[str, Any]) -> None:
        if invocation:
            self.var.joinpath("starts").mkdir(exist_ok=True)
            files.write_json(self.var / "starts" / f"{invocation}.json", facts)

    def starts(self) -> List[Dict[str, Any]]:
        """Recorded starts, the newest first."""
        folder = self.var / "starts"
        paths = sorted(folder.glob("*.json"), key=lambda p: -p.stat().st_mtime)
        return [value for value in (files.read_json(p) for p in paths) if value is not None]

    def audit(self, entry: Dict[str, Any]) -> None:
        files.append_json(self.var / "history.jsonl", entry)

    # -- runs

    def run(self, run: str) -> Path:
        return self.var / "runs" / _checked(_RUN, "run", run)

    def run_document(self, run: str) -> Dict[str, Any]:
        found = files.read_json(self.run(run) / "run.json")
        if found is None:
            raise Refused(f"there is no run {run} of {self.service} on this host")
        return found

    def result(self, run: str) -> Optional[Dict[str, Any]]:
        return files.read_json(self.run(run) / "result.json")

    def write_result(self, run: str, result: Dict[str, Any]) -> None:
        files.write_json(self.run(run) / "result.json", result)

    def events(self, run: str) -> List[Dict[str, Any]]:
        return files.json_lines(files.read(self.run(run) / "events.jsonl") or b"")

    def emit(self, run: str, event: Dict[str, Any]) -> None:
        files.append_json(self.run(run) / "events.jsonl", event)

    def runs(self) -> List[str]:
        """Runs that are on record, the newest first."""
        folder = self.var / "runs"
        if not folder.is_dir():
            return []
        found = [p for p in folder.iterdir() if (p / "run.json").is_file()]
        return [p.name for p in sorted(found, key=lambda p: -(p / "run.json").stat().st_mtime)]

    # -- the heartbeat

    def beat(self, run: str) -> None:
        """Time since boot, not of the clock on the wall: setting the clock must kill no guard.
        Written over in place: on a full disk a file that was emptied first would stay empty."""
        files.overwrite(
            self.run(run) / "heartbeat", b"%15.1f\n" % time.clock_gettime(time.CLOCK_BOOTTIME)
        )

    def heartbeat_age(self, run: str) -> float:
        """Seconds since the guard last lived; infinite if it never did in this boot."""
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        try:
            last = float(files.read(self.run(run) / "heartbeat") or b"")
        except ValueError:
            return float("inf")
        return max(0.0, now - last) if last <= now + 1 else float("inf")


def replace_folder(new: Path, final: Path) -> None:
    """Put the finished folder `new` where `final` is. A folder cannot replace a full one, so the
    old one steps aside first; `tidy` clears what a power cut leaves of it."""
    for folder, _, _ in os.walk(str(new)):
        files.sync_folder(Path(folder))
    if final.is_dir():
        aside = final.with_name(f".old-{final.name}.{os.getpid()}")
        os.rename(str(final), str(aside))
        os.rename(str(new), str(final))
        shutil.rmtree(aside, ignore_errors=True)
    else:
        os.rename(str(new), str(final))
    files.sync_folder(final.parent)


def services(places: Places) -> Iterator[str]:
    """Every service that has files of ours on this host."""
    names = set()
    for folder in (places.etc, places.var):
        if folder.is_dir():
            names |= {p.name for p in folder.iterdir() if p.is_dir() and _NAME.fullmatch(p.name)}
    yield from sorted(names)
