"""The digest that names a release: the same for the same running engine, another for any other.

What it covers: the unit (rendered with a placeholder where the digest itself goes), the launcher,
the engine's version, and a mark of each secret. The manifest and the zipapp are left out: gates,
expectations and opsctl itself may change without a restart.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from functools import lru_cache

PLACEHOLDER = "0" * 64


def digest(unit: str, launcher: bytes, engine_version: str, marks: Mapping[str, str]) -> str:
    """64 hex digits. `unit` is the text with PLACEHOLDER; `marks` come from secret_mark()."""
    canonical = json.dumps(
        {
            "schema": 1,
            "unit": unit,
            "launcher": hashlib.sha256(launcher).hexdigest(),
            "engine": engine_version,
            "secrets": dict(marks),
        },
        sort_keys=True,
    )
    return hashlib.sha256(canonical.encode()).hexdigest()


@lru_cache(maxsize=1024)
def secret_mark(service: str, name: str, value: str) -> str:
    """16 hex digits that change with the secret, and help nobody to find it.

    An HMAC keyed by scrypt(secret): everything else that the digest covers is readable by every
    user of the host, so a plain hash would let them try keys by the billion. scrypt makes each
    try cost 16 MiB and some 70 ms. The salt keeps equal secrets of two services apart.
    """
    salt = f"opsctl/{service}/{name}".encode()
    key = hashlib.scrypt(value.encode(), salt=salt, n=1 << 14, r=8, p=1, dklen=32)
    return hmac.new(key, b"opsctl secret mark 1", hashlib.sha256).hexdigest()[:16]
