"""Packages by apt: what it says, read; what it is asked, so that nothing is left half done."""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from opsctl.ansible.target.apttrouble import trouble
from opsctl.ansible.target.converge import Host, Refused, run
from opsctl.ansible.target.openpgp import fingerprints, is_armoured
from opsctl.onhost.files import read, remove, write

SOURCES = "/etc/apt/sources.list.d/opsctl-nvidia.sources"
KEYRINGS = ("/etc/apt/keyrings/opsctl-nvidia.asc", "/etc/apt/keyrings/opsctl-nvidia.gpg")
UPDATES = "/var/lib/dpkg/updates"
PREFERENCES = "/etc/apt/preferences.d/opsctl-nvidia"
# needrestart would restart every service that maps a replaced library, engines among them.
QUIET = {
    "DEBIAN_FRONTEND": "noninteractive",
    "NEEDRESTART_SUSPEND": "1",
    "NEEDRESTART_MODE": "l",
    "LC_ALL": "C.UTF-8",
}
_GET = ["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=120", "-o", "Acquire::Retries=1"]
_GET += ["-o", "Acquire::http::Timeout=20", "-o", "Acquire::https::Timeout=20"]
_ONLY_OURS = ["-o", f"Dir::Etc::sourcelist={SOURCES}", "-o", "Dir::Etc::sourceparts=-"]
_ONLY_OURS += ["-o", "APT::Get::List-Cleanup=0", "-o", "APT::Update::Error-Mode=any"]
_INSTALL = ["install", "--no-install-recommends", "--allow-change-held-packages"]
_INSTALL += ["-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"]


def audit(text: str) -> List[str]:
    """Packages that `dpkg --audit` names, each once: half installed, unpacked, not configured."""
    return list(dict.fromkeys(re.findall(r"^ (\S+)", text, re.MULTILINE)))


def statuses(text: str) -> Dict[str, str]:
    """{package: version} of those that are installed, from dpkg-query's three columns."""
    rows = (line.split("\t") for line in text.splitlines())
    return {row[1]: row[2] for row in rows if len(row) == 3 and row[0][1:2] == "i"}


def madison(text: str, name: str) -> List[str]:
    """Versions that `apt-cache madison` shows of this package, newest first as it has them."""
    rows = ([part.strip() for part in line.split("|")] for line in text.splitlines())
    found = [row[1] for row in rows if len(row) == 3 and row[0] == name]
    return list(dict.fromkeys(found))


def removals(text: str) -> List[str]:
    """What `apt-get -s install` would take away."""
    return re.findall(r"^Remv (\S+)", text, re.MULTILINE)


def sources(url: str, keyring: str) -> str:
    """NVIDIA's repositories are flat: no suite, no component."""
    return f"Types: deb\nURIs: {url}\nSuites: /\nSigned-By: {keyring}\n"


def preferences(upstream: str) -> str:
    """This version of every package that the driver is made of, whatever newer one there is.

    A version's pin touches only packages that have that version, so the pattern may be wide.
    1001 also goes back to it, which is how a downgrade that is allowed takes its libraries along.
    """
    head = "# The driver's version is pinned here: see the role nvidia_driver.\n"
    names = "*nvidia* libcuda* libnv*"
    return f"{head}Package: {names}\nPin: version {upstream}-*\nPin-Priority: 1001\n"


class Apt:
    """`asked`: {"url", "key": bytes, "told": how the key was named} of the repository."""

    def damaged(self) -> List[str]:
        """dpkg that was killed leaves its journal, which no audit tells of."""
        journal = os.path.isdir(UPDATES) and any(n.isdigit() for n in os.listdir(UPDATES))
        return audit(run(["dpkg", "--audit"])) + (["(dpkg was interrupted)"] if journal else [])

    repair_command = "dpkg --configure -a"

    def repair(self) -> None:
        refused: Optional[Refused] = None
        try:
            run(["dpkg", "--configure", "-a", "--force-confdef", "--force-confold"], QUIET)
        except Refused as error:  # of one that was being unpacked, it may say so and end badly
            refused = error
        torn = audit(run(["dpkg", "--audit"]))  # in the middle of unpacking: only a new copy mends
        if refused and not torn:
            raise refused
        if torn:
            again = ["install", "--reinstall", "--allow-change-held-packages", *torn]
            run([*_GET, *again], QUIET)
        run([*_GET, "--fix-broken", "install"], QUIET)

    def installed(self) -> Dict[str, str]:
        query = "${db:Status-Abbrev}\t${Package}\t${Version}\n"
        return statuses(run(["dpkg-query", "-W", f"-f={query}"]))

    def repository(self, host: Host, url: str, key: bytes) -> bool:
        """True if it had to be written. Taken back if apt does not accept it."""
        keyring = KEYRINGS[0 if is_armoured(key) else 1]
        wanted = {keyring: key, SOURCES: sources(url, keyring).encode()}
        before = {path: read(Path(path)) for path in wanted}
        if before == wanted:
            return False
        told_before = len(host.diff)
        for path, content in wanted.items():
            if before[path] != content:
                told = f"key {', '.join(fingerprints(content))}\n" if path == keyring else ""
                old = (before[path] or b"").decode("utf-8", "replace") if not told else ""
                host.changed(path, old, told or content.decode())
        if not host.check:
            for path, content in wanted.items():
                os.makedirs(os.path.dirname(path), exist_ok=True)
                write(Path(path), content)
            try:
                self.update(url, key)
            except Refused:
                _put_back(before)
                del host.diff[told_before:]
                raise
        return True

    def update(self, url: str, key: bytes) -> None:
        """Only our repository's lists. Raises Refused in an operator's words."""
        done, text = _try([*_GET, *_ONLY_OURS, "update"])
        wrong = trouble(text, url, fingerprints(key))
        if not done or wrong:
            raise Refused(wrong or f"apt-get update of {url} failed:\n{_end(text)}")

    def available(self, name: str) -> List[str]:
        return madison(run(["apt-cache", "madison", "--", name]), name)

    def stream(self, wanted: str) -> None:
        """Debian's repositories have none."""

    def pin(self, host: Host, upstream: str) -> None:
        host.file(PREFERENCES, preferences(upstream))

    def unpin(self, before: Optional[bytes]) -> None:
        _put_back({PREFERENCES: before})

    def pinned(self) -> Optional[bytes]:
        return read(Path(PREFERENCES))

    def install(
        self,
        wanted: Sequence[Tuple[str, str]],
        family: Sequence[str],
        url: str,
        fetch: bool = False,
    ) -> None:
        """These versions; ("name", "") takes any. First judged, then fetched, then installed;
        with `fetch` no more than fetched."""
        words = [f"{name}={version}" if version else name for name, version in wanted]
        ask = [*_GET, *_INSTALL, "--allow-downgrades"]
        done, text = _try([*ask, "--simulate", *words])
        if not done:  # the distribution's own lists may be old, or not there yet
            _try([*_GET, "update"])
            done, text = _try([*ask, "--simulate", *words])
        if not done:
            raise Refused(f"apt cannot install {' '.join(words)} (nothing was done):\n{_end(text)}")
        foreign = [n for n in removals(text) if not any(fnmatch.fnmatch(n, f) for f in family)]
        if foreign:
            raise Refused(
                f"apt would remove {', '.join(foreign)} to install {' '.join(words)}; nothing was "
                f"done. Look with: apt-get --simulate install {' '.join(words)}"
            )
        done, text = _try([*ask, "--download-only", *words])
        if not done:
            told = trouble(text, url, []) or _end(text)
            raise Refused(f"packages could not be fetched; none was installed: {told}")
        if fetch:
            return
        done, text = _try([*ask, "--no-download", *words])
        if not done:
            raise Refused(
                f"apt-get install {' '.join(words)} failed half way:\n{_end(text, 30)}\n"
                f"when its cause is mended, finish with: {self.repair_command}"
            )

    def held(self) -> List[str]:
        return run(["apt-mark", "showhold"]).split()

    def hold(self, names: Sequence[str]) -> None:
        if names:
            run(["apt-mark", "hold", *names])

    def unhold(self, names: Sequence[str]) -> None:
        if names:
            run(["apt-mark", "unhold", *names])


def _put_back(before: Dict[str, Optional[bytes]]) -> None:
    for path, content in before.items():
        if content is None:
            remove(Path(path))
        else:
            write(Path(path), content)


def _try(command: Sequence[str]) -> Tuple[bool, str]:
    done = subprocess.run(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **QUIET},
        check=False,
    )
    return done.returncode == 0, done.stdout.decode("utf-8", "replace")


def _end(text: str, lines: int = 12) -> str:
    return "\n".join(text.strip().splitlines()[-lines:])
