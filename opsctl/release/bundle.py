"""Release → the JSON document that `onhost stage` reads from its stdin.

It holds the secrets, so it goes through pipes only, never into argv, a log or a file.
"""

from __future__ import annotations

import base64
from typing import Any

from opsctl.release.model import Release


def bundle(release: Release) -> dict[str, Any]:
    """{"service", "digest", "files": [{"path", "mode", "b64"}]}, ordered by path.

    Paths are relative to the release's folder; `mode` is the permission bits as an integer.
    """
    return {
        "service": release.service,
        "digest": release.digest,
        "files": [
            {"path": path, "mode": file.mode, "b64": base64.b64encode(file.content).decode()}
            for path, file in sorted(release.files.items())
        ],
    }
