"""Why a repository was not accepted: apt's own words (2.4 to 3.0), told with what to do."""

from __future__ import annotations

import re
from typing import List

_DOWN = re.compile(
    r"(Could not connect to|Cannot initiate the connection|Could not resolve|Temporary failure"
    r"|Connection (?:timed out|refused|failed)|Unable to connect|Could not handshake)[^\n]*"
)
_MISSING = re.compile(r"404 +Not Found|does not have a Release file|403 +Forbidden|File not found")
_NO_KEY = re.compile(r"NO_PUBKEY ([0-9A-F]{16,40})|Missing key ([0-9A-F]{16,40})")
_EXPIRED_KEY = re.compile(r"(?:EXPKEYSIG|KEYEXPIRED) (\w+)|[Kk]ey (\w+)[^\n]*expired|EXPSIG (\w+)")
_STALE = re.compile(r"Release file for \S+ is (expired|not valid yet)[^\n]*")
_UNSIGNED = re.compile(r"is not signed|Clearsigned file isn't valid|NODATA")
_BAD = re.compile(r"BADSIG (\w+)|(?:At least one invalid|bad) signature", re.IGNORECASE)
_DAMAGED = re.compile(r"Hash Sum mismatch|unexpected size|Mirror sync in progress")


def trouble(text: str, url: str, given: List[str]) -> str:
    """One line of cause and one of what to do; "" if apt's answer has none that is known.

    `given`: fingerprints of the key that the repository is judged by.
    """
    key = f"the key given is {', '.join(given) or 'unknown'}"
    rules = (
        (_NO_KEY, f"{url} is signed by another key ({{}}); {key}: give the repository's own "
         "signing key as nvidia_driver_repository.key"),
        (_EXPIRED_KEY, f"the signing key of {url} has expired ({{}}); {key}: get the key anew from "
         "whoever runs the repository"),
        (_STALE, f"the index of {url} is {{}}: the mirror has not been renewed, or the host's "
         "clock is wrong (timedatectl)"),
        (_BAD, f"the signature of {url} is wrong ({{}}): the mirror is damaged or was changed"),
        (_UNSIGNED, f"{url} is not signed: a mirror must carry InRelease, or Release.gpg, of the "
         "repository that it mirrors"),
        (_DAMAGED, f"{url} does not agree with its own index ({{}}): a mirror in the middle of its "
         "synchronisation; try again later"),
        (_DOWN, f"{url} does not answer ({{}}): look from the host with: curl -I {url}"),
        (_MISSING, f"there is no repository, or no such file, at {url} ({{}}): look with: "
         f"curl -I {url}InRelease"),
    )  # fmt: skip
    for pattern, told in rules:
        found = pattern.search(text)
        if found:
            return told.format(
                next((g for g in found.groups() if g), None) or found.group().strip()
            )
    return ""
