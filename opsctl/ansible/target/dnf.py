"""Packages by dnf, for RHEL 9 and its like (run by tests/drills/test_dnf_host.py)."""

from __future__ import annotations

import fnmatch
import os
import re
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from opsctl.ansible.target.apt import QUIET, _end, _put_back, _try
from opsctl.ansible.target.converge import Host, Refused, run
from opsctl.ansible.target.openpgp import fingerprints
from opsctl.onhost.files import read, write

REPO = "/etc/yum.repos.d/opsctl-nvidia.repo"
KEY = "/etc/pki/rpm-gpg/RPM-GPG-KEY-opsctl-nvidia"
_DNF = ["dnf", "-q", "-y"]
_DOWN = re.compile(r"Curl error \((?:6|7|28|35|52|56)\): [^\n]*|Could(?:n't| not) connect[^\n]*")
_MISSING = re.compile(r"Status code: 40[34][^\n]*")
_DAMAGED = re.compile(r"Inconsistent server data[^\n(]*|checksum doesn't match[^\n]*")
_KEY = re.compile(r"(GPG check FAILED|Public key for \S+ is not installed|Signature[^\n]*)[^\n]*")


def repo(url: str) -> str:
    """Packages are judged by the key, which dnf takes up with the first of them; NVIDIA does not
    sign the index of its RPM repositories."""
    return (
        "[opsctl-nvidia]\nname=NVIDIA, by the role nvidia_driver\n"
        f"baseurl={url}\nenabled=1\ngpgcheck=1\nrepo_gpgcheck=0\ngpgkey=file://{KEY}\n"
        "skip_if_unavailable=0\n"
    )


def statuses(text: str) -> Dict[str, str]:
    """{package: version-release} from rpm's two columns."""
    rows = (line.split("\t") for line in text.splitlines())
    return {row[0]: row[1] for row in rows if len(row) == 2}


def locked(text: str) -> List[str]:
    """Names in `dnf versionlock list`: nvidia-open-3:580.95.05-1.el9.*"""
    return re.findall(r"^(\S+?)-\d+:[^\s:]+$", text, re.MULTILINE)


def queried(text: str) -> List[str]:
    """Versions that `dnf repoquery` shows, among whatever else it says."""
    return re.findall(r"^opsctl (\S+)$", text, re.MULTILINE)


def removals(text: str) -> List[str]:
    """What a transaction of dnf's would take away: the table after "Removing:"."""
    table = re.search(r"^Removing[^\n]*:\n((?: +[^\n]*\n)+)", text, re.MULTILINE)
    return re.findall(r"^ +(\S+) ", table.group(1), re.MULTILINE) if table else []


def trouble(text: str, url: str, given: Sequence[str]) -> str:
    """One line of cause and what to do; "" if dnf's answer has none that is known."""
    rules = (
        (_KEY, f"packages of {url} are signed by another key than {', '.join(given) or KEY} "
         "({}): give the repository's own as nvidia_driver_repository.key"),
        (_DAMAGED, f"{url} does not agree with its own index ({{}}): a mirror in the middle of "
         "its synchronisation; try again later"),
        (_DOWN, f"{url} does not answer ({{}}): look from the host with: curl -I {url}"),
        (_MISSING, f"there is no repository at {url} ({{}}): look with: "
         f"curl -I {url}repodata/repomd.xml"),
    )  # fmt: skip
    for pattern, told in rules:
        found = pattern.search(text)
        if found:
            return told.format(found.group().strip())
    return ""


class Dnf:
    """The same questions as `Apt` answers."""

    repair_command = "dnf -y check; rpm --verify --all"

    def damaged(self) -> List[str]:
        """Packages that stand there twice: a transaction that was cut off leaves both."""
        done, text = _try(["dnf", "-q", "check", "--duplicates"])
        return [] if done else re.findall(r"^(\S+) is a duplicate", text, re.MULTILINE)

    def repair(self) -> None:
        run([*_DNF, "remove", "--duplicates"], QUIET)

    def installed(self) -> Dict[str, str]:
        return statuses(run(["rpm", "-qa", "--qf", "%{NAME}\t%{VERSION}-%{RELEASE}\n"]))

    def repository(self, host: Host, url: str, key: bytes) -> bool:
        wanted = {KEY: key, REPO: repo(url).encode()}
        before = {path: read(Path(path)) for path in wanted}
        if before == wanted:
            return False
        host.changed(REPO, (before[REPO] or b"").decode("utf-8", "replace"), repo(url))
        if not host.check:
            for path, content in wanted.items():
                os.makedirs(os.path.dirname(path), exist_ok=True)
                write(Path(path), content)
            try:
                self.update(url, key)
            except Refused:
                _put_back(before)
                host.diff.pop()
                raise
        return True

    def update(self, url: str, key: bytes) -> None:
        only = ["--disablerepo=*", "--enablerepo=opsctl-nvidia", "--refresh", "makecache"]
        done, text = _try(["dnf", "-y", *only])  # with -q it keeps the cause to itself
        if not done:
            told = trouble(text, url, fingerprints(key))
            raise Refused(told or f"dnf makecache of {url} failed:\n{_end(text)}")

    def available(self, name: str) -> List[str]:
        if not os.path.exists(REPO):
            return []  # dnf would take an unknown repository for a fault
        ask = ["repoquery", "--repo=opsctl-nvidia", "--showduplicates", "--qf"]
        ask.insert(0, "--disableplugin=versionlock")  # it hides all but what is locked
        return queried(run(["dnf", "-q", *ask, "opsctl %{version}-%{release}", name]))[::-1]

    def stream(self, wanted: str) -> None:
        """NVIDIA's repository shows a branch's packages only when its module stream is enabled; a
        repository without modules shows them all. A stream that is missing leaves no version."""
        run([*_DNF, "module", "reset", "nvidia-driver"])
        _try([*_DNF, "module", "enable", f"nvidia-driver:{wanted}"])

    def pin(self, host: Host, upstream: str) -> None:
        """versionlock, after the installation, is the pin."""

    def unpin(self, before: Optional[bytes]) -> None:
        """Nothing was written by `pin`."""

    def pinned(self) -> Optional[bytes]:
        return None

    def install(
        self,
        wanted: Sequence[Tuple[str, str]],
        family: Sequence[str],
        url: str,
        fetch: bool = False,
    ) -> None:
        words = [f"{name}-{version}" if version else name for name, version in wanted]
        done, text = _try(["dnf", "install", "--assumeno", "--setopt=install_weak_deps=0", *words])
        foreign = [n for n in removals(text) if not any(fnmatch.fnmatch(n, f) for f in family)]
        if foreign:
            raise Refused(f"dnf would remove {', '.join(foreign)}; nothing was done")
        ask = ["dnf", "-y", "--setopt=install_weak_deps=0", "install"]
        for step in (["--downloadonly"],) if fetch else (["--downloadonly"], []):
            done, text = _try([*ask, *step, *words])
            if not done:
                told = trouble(text, url, []) or _end(text)
                raise Refused(f"dnf install {' '.join(words)} failed: {told}")

    def held(self) -> List[str]:
        return locked(_versionlock("list"))

    def hold(self, names: Sequence[str]) -> None:
        if names:
            _versionlock("add", *names)

    def unhold(self, names: Sequence[str]) -> None:
        if names:
            _versionlock("delete", *names)


def _versionlock(*words: str) -> str:
    """Raises Refused; in an operator's words if the plugin is not there."""
    done, text = _try(["dnf", "-q", "versionlock", *words])
    if "No such command" in text:
        raise Refused(
            "dnf cannot hold packages: dnf install python3-dnf-plugin-versionlock, or set "
            "nvidia_driver_hold to false"
        )
    if not done:
        raise Refused(f"dnf versionlock {' '.join(words)} failed:\n{_end(text)}")
    return text
