"""A release as the host keeps it: what it would start, what of the unit would change, and what
would keep it from starting. For whoever is about to go back to it. Changes nothing."""

from __future__ import annotations

from typing import Any, Dict

from opsctl.onhost import files, preflight, stage
from opsctl.onhost.doctor.fault import mends
from opsctl.onhost.store import Refused, Store
from opsctl.onhost.systemd import Systemd


def kept(store: Store, systemd: Systemd, digest: str, outside: preflight.Outside) -> Dict[str, Any]:
    """{"digest", "manifest", "diff", "problems", "hints"}, as `stage` tells them. Raises Refused if
    the release is not there."""
    unit, manifest = store.release_unit(digest), store.manifest(digest)
    if unit is None or manifest is None:
        raise Refused(
            f"release {digest[:12]} of {store.service} is not on this host any more",
            hint=f"opsctl deploy {store.service}",
        )
    wrong = preflight.problems(store, systemd, outside, digest)
    return {
        "digest": digest,
        "manifest": manifest,
        "diff": stage.diff(store, digest, files.read(store.unit_path) or b"", unit),
        "problems": wrong,
        "hints": mends(wrong),
    }
