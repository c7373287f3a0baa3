"""Who a host must be, from the text of known_hosts files (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT).

Pure functions. opsctl never adds a key: it accepts what OpenSSH has already accepted.
"""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    KNOWN = "known"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    REVOKED = "revoked"


@dataclass(frozen=True)
class Entry:
    """One line. `marker`: "", "@revoked" or "@cert-authority"."""

    marker: str
    patterns: tuple[str, ...]
    kind: str
    blob: bytes
    where: str  # FILE:LINE

    def matches(self, name: str) -> bool:
        name = name.lower()
        if any(p.startswith("!") and _matches(p[1:], name) for p in self.patterns):
            return False
        return any(not p.startswith("!") and _matches(p, name) for p in self.patterns)


def _matches(pattern: str, name: str) -> bool:
    if pattern.startswith("|1|"):
        return _hash_matches(pattern, name)
    # Only * and ? are wild here; brackets stand for themselves in "[host]:port".
    return fnmatch.fnmatchcase(name, pattern.lower().replace("[", "[[]"))


def _hash_matches(pattern: str, name: str) -> bool:
    try:
        salt, digest = (base64.b64decode(part) for part in pattern.split("|")[2:4])
    except ValueError:
        return False
    return hmac.compare_digest(hmac.new(salt, name.encode(), hashlib.sha1).digest(), digest)


def blob(word: str) -> bytes:
    """A public key as files hold it. Raises ValueError (binascii.Error is one)."""
    return base64.b64decode(word, validate=True)


def read(text: str, file: str = "") -> list[Entry]:
    """The entries of one file; lines that are no entries are passed over, as OpenSSH does."""
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        marker = words.pop(0) if words[0].startswith("@") else ""
        if len(words) < 3:
            continue
        try:
            key = blob(words[2])
        except ValueError:
            continue
        where = f"{file}:{number}"
        entries.append(Entry(marker, tuple(words[0].split(",")), words[1], key, where))
    return entries


@dataclass(frozen=True)
class Known:
    """What the files say about one host. `names`: how it may stand there, the exact one first;
    a host on another port may also stand there without its port, but only to be accepted."""

    keys: tuple[Entry, ...]
    fallback: tuple[Entry, ...]
    revoked: tuple[Entry, ...]
    authorities: tuple[Entry, ...]

    @property
    def kinds(self) -> frozenset[str]:
        """The key types that are worth asking the host for."""
        return frozenset(entry.kind for entry in self.keys or self.fallback)

    def judge(self, blob: bytes) -> tuple[Verdict, str]:
        """The verdict on the key that the host has shown, and the line that decided."""
        for entry in self.revoked:
            if entry.blob == blob:
                return Verdict.REVOKED, entry.where
        for entry in (*self.keys, *self.fallback):
            if entry.blob == blob:
                return Verdict.KNOWN, entry.where
        if self.keys:
            return Verdict.CHANGED, self.keys[0].where
        return Verdict.UNKNOWN, ""


def known(entries: Iterable[Entry], names: Sequence[str]) -> Known:
    """Raises nothing; `names` as Target.key_names has them."""
    entries = list(entries)
    exact = [entry for entry in entries if entry.matches(names[0])]
    others = [
        entry
        for entry in entries
        if entry not in exact and any(entry.matches(name) for name in names[1:])
    ]
    both = [*exact, *others]
    return Known(
        keys=tuple(entry for entry in exact if not entry.marker),
        fallback=tuple(entry for entry in others if not entry.marker),
        revoked=tuple(entry for entry in both if entry.marker == "@revoked"),
        authorities=tuple(entry for entry in both if entry.marker == "@cert-authority"),
    )


def fingerprint(blob: bytes) -> str:
    """As `ssh-keygen -l` shows it."""
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    return f"SHA256:{digest}"
