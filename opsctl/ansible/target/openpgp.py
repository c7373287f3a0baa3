"""Fingerprints of the keys in an OpenPGP file: a host may have gpgv but no gpg.

Only what a fingerprint needs is read (RFC 4880, 4.2, 5.5.2 and 12.2): packets are walked, primary
keys of version 4 hashed. Whether a signature is right is judged by apt and rpm, never here.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import Iterator, List, Tuple

_ARMOUR = re.compile(rb"-----BEGIN PGP PUBLIC KEY BLOCK-----\s*?\r?\n(.*?)-----END PGP", re.DOTALL)
_PUBLIC_KEY = 6


def fingerprints(content: bytes) -> List[str]:
    """40 hex digits a primary key, in capitals. Raises ValueError for what holds no key."""
    found = []
    try:
        for tag, body in _packets(_plain(content)):
            if tag == _PUBLIC_KEY and body[:1] == b"\x04":
                framed = b"\x99" + len(body).to_bytes(2, "big") + body
                found.append(hashlib.sha1(framed).hexdigest().upper())
    except (IndexError, OverflowError, binascii.Error):
        raise ValueError("is damaged") from None
    if not found:
        raise ValueError("holds no OpenPGP public key")
    return found


def is_armoured(content: bytes) -> bool:
    return _ARMOUR.search(content) is not None


def _plain(content: bytes) -> bytes:
    blocks = _ARMOUR.findall(content)
    if not blocks:
        return content
    return b"".join(_decoded(block) for block in blocks)


def _decoded(block: bytes) -> bytes:
    """After the headers, which an empty line ends; a line with = in front is a checksum."""
    lines = [line.strip() for line in block.splitlines()]
    lines = lines[lines.index(b"") + 1 :] if b"" in lines else lines
    return base64.b64decode(b"".join(line for line in lines if not line.startswith(b"=")))


def _packets(content: bytes) -> Iterator[Tuple[int, bytes]]:
    place = 0
    while place < len(content):
        head = content[place]
        if not head & 0x80:
            raise ValueError("holds no OpenPGP public key")
        new = bool(head & 0x40)
        tag = head & 0x3F if new else (head >> 2) & 0x0F
        size, start = _new_size(content, place + 1) if new else _old_size(content, place + 1, head)
        if start + size > len(content):
            raise IndexError
        yield tag, content[start : start + size]
        place = start + size


def _old_size(content: bytes, place: int, head: int) -> Tuple[int, int]:
    width = 1 << (head & 3)
    if width == 8:  # of unknown length: none is in a key
        raise IndexError
    return int.from_bytes(content[place : place + width], "big"), place + width


def _new_size(content: bytes, place: int) -> Tuple[int, int]:
    first = content[place]
    if first < 192:
        return first, place + 1
    if first < 224:
        return ((first - 192) << 8) + content[place + 1] + 192, place + 2
    if first < 255:  # in parts: none is in a key
        raise IndexError
    return int.from_bytes(content[place + 1 : place + 5], "big"), place + 5
