"""Every gate but soak on what is running now. Changes nothing."""

from __future__ import annotations

from typing import Any, Dict, List

from opsctl.onhost import gates, hostfacts, report
from opsctl.onhost.collect import standing
from opsctl.onhost.gating import Sight
from opsctl.onhost.heart import Heart
from opsctl.onhost.model import Check
from opsctl.onhost.starts import facts, from_json
from opsctl.onhost.store import ZERO, Refused, Store
from opsctl.onhost.systemd import Systemd


def verify(store: Store, systemd: Systemd) -> Dict[str, Any]:
    """{"service", "release", "checks", "report"}. Raises Refused if there is no such service.

    Of a service that does not run, only `unit` is asked; of a unit of ours also `drift`.
    """
    state = systemd.show(store.unit)
    release = standing(store, state)
    digest = str(release["running"] or "")
    if not digest and state.load != "loaded" and not state.up:
        raise Refused(f"there is no service {store.service} on this host", hint="opsctl deploy")
    manifest: Dict[str, Any] = store.manifest(digest or ZERO) or {}
    sight = Sight(store, systemd, Heart(lambda: None))
    sight.patient = False
    sight.begin(manifest, "")
    sight.use(facts(store, state))
    found: List[Check] = []
    for name in gates.ORDER:
        check = sight.gate(name) if name != "soak" else None
        if check is not None:
            found.append(check)
        if name == "unit" and (digest != ZERO or release["edited"]):
            found.append(gates.drift(release, state.properties))
        if name == "unit" and state.active != "active":
            break
    lines: List[str] = []
    if state.active != "active":
        lines = [f"{store.unit} is {state.active}: nothing is served, and nothing is pinned"]
    elif manifest.get("model") and "flags" in manifest:
        lines = report.lines(manifest, from_json(sight.facts()), hostfacts.meminfo(), found)
    return {
        "service": store.service,
        "release": digest or None,
        "checks": [check.as_json() for check in found],
        "report": lines,
    }
