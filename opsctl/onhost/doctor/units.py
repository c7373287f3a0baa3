"""`doctor` on a service's unit: whether it fails, can start at all, and is its release's. Pure."""

from __future__ import annotations

from typing import Any, Mapping

from opsctl.onhost import gates
from opsctl.onhost.doctor.fault import FAIL, WARN, Fault, Found, table
from opsctl.onhost.model import waits
from opsctl.onhost.store import ZERO

YOUNG = 3600.0  # seconds; a load takes up to so long, and what fails after it starts all over
# What systemd's own exit codes mean (systemd.exec(5)): the unit's command was never reached.
EXITS = {"200": "CHDIR", "203": "EXEC", "216": "GROUP", "217": "USER", "226": "NAMESPACE",
         "238": "STATE_DIRECTORY", "239": "CACHE_DIRECTORY", "243": "CREDENTIALS"}  # fmt: skip
BACK = "systemctl daemon-reload, then opsctl restart {service}"
ANEW = "opsctl deploy {service} (an engine that still runs is restarted by it)"

FAULTS = table(
    Fault("unit-failed", "unit", FAIL, "a failed unit",
          "the engine ended, and systemd does not start it again",
          "opsctl logs {service}; mend what it says, then opsctl start {service}"),
    Fault("unit-ended", "unit", FAIL, "a unit that has ended, and is to be started again",
          "nothing is served until the engine has loaded once more", "opsctl logs {service}"),
    Fault("unit-looping", "unit", FAIL, "a unit that ends again and again",
          "systemd starts the engine anew each time, and nothing is served",
          "opsctl logs {service}; mend what it says, then opsctl restart {service}"),
    Fault("unit-restarted", "unit", WARN, "a unit that systemd had to start again",
          "the engine ended within the last hour", "opsctl logs {service}"),
    Fault("unit-masked", "unit", FAIL, "a masked unit",
          "systemd starts it for nobody; the mask stands in the place of the unit file",
          f"systemctl unmask {{unit}}; then {ANEW}", True),
    Fault("unit-gone", "unit", FAIL, "a confirmed release without its unit file",
          "systemd knows no such unit: nothing starts it again", ANEW),
    Fault("unit-broken", "unit", FAIL, "a unit that systemd cannot start",
          "what is written in it, or in a drop-in, is wrong: the next start fails",
          "systemd-analyze verify {unit}; for the release's own: opsctl deploy {service}"),
    Fault("unit-disabled", "unit", WARN, "a unit that no boot starts",
          "after a reboot the service stays down", "systemctl enable {unit}"),
    Fault("unit-edited", "unit", WARN, "a unit that was edited by hand",
          "it is no release of opsctl's any more", "opsctl deploy {service}"),
    Fault("unit-dropin", "unit", WARN, "a unit that drop-ins change",
          "what runs is not what is described, and no digest tells it",
          f"systemctl cat {{unit}}; take the drop-ins away, {BACK}"),
    Fault("unit-stale", "unit", WARN, "a unit file that systemd has not read again",
          "the next restart still runs the old one", "systemctl daemon-reload"),
)  # fmt: skip
BY_HAND = {"gone": "unit-gone", "edited": "unit-edited", "dropins": "unit-dropin",
           "stale": "unit-stale"}  # fmt: skip


def judge(service: Mapping[str, Any], found: Found) -> None:
    _state(service["service"], service["unit"], found)
    _loaded(service, found)


def _state(name: str, unit: Mapping[str, Any], found: Found) -> None:
    show = unit["show"]
    restarts, age = int(show.get("NRestarts") or 0), unit.get("age")
    young = unit["up"] and age is not None and age < YOUNG
    if unit["active"] == "failed":
        found.fault("unit-failed", f"{unit['name']} has failed ({_ended(unit)})", name)
    elif waits(unit["sub"]) and not restarts:
        text = f"{unit['name']} has ended ({_ended(unit)}); systemd starts it again, the first time"
        found.fault("unit-ended", text, name)
    elif waits(unit["sub"]) or (young and restarts > 1):
        often = f"{restarts} time{'s' if restarts > 1 else ''}"
        text = f"{unit['name']} ends and is started again ({_ended(unit)}), {often} so far"
        found.fault("unit-looping", text, name)
    elif young and restarts:
        found.fault("unit-restarted", f"{unit['name']} was started again after it had ended", name)


def _ended(unit: Mapping[str, Any]) -> str:
    """How its command ended, in systemd's words: "exit-code, status 203/EXEC"."""
    status = str(unit["show"].get("ExecMainStatus") or "0")
    named = f"{status}/{EXITS[status]}" if status in EXITS else status
    return str(unit["result"]) + (f", status {named}" if status != "0" else "")


def _loaded(service: Mapping[str, Any], found: Found) -> None:
    """Of a service that is described or confirmed: others' units are their own business."""
    name, unit, release = service["service"], service["unit"], service["release"]
    show, load = unit["show"], unit["load"]
    confirmed = release.get("confirmed") not in (None, ZERO)
    ours = release.get("edited") or release.get("running") not in (None, ZERO)
    if load == "masked" or show.get("UnitFileState") == "masked":
        if service["described"] or confirmed:
            found.fault("unit-masked", f"{unit['name']} is masked", name, unit=unit["name"])
        return
    if not (ours or confirmed):
        return
    said = list(unit.get("verify") or [])
    if load in ("bad-setting", "error") or said:
        why = said[0] if said else load
        text = f"systemd cannot start {unit['name']}: {why}"
        found.fault("unit-broken", text, name, unit=unit["name"])
    hands = gates.by_hand(release, show) if release.get("running") != ZERO or ours else {}
    for kind, words in hands.items():
        found.fault(BY_HAND[kind], f"{unit['name']}: {words}", name, unit=unit["name"])
    wanted = (service["manifest"] or {}).get("was_enabled", True) and not service["pending"]
    state = show.get("UnitFileState", "")
    if ours and wanted and unit["up"] and state in ("disabled", "enabled-runtime", "linked"):
        found.fault("unit-disabled", f"{unit['name']} is {state}", name, unit=unit["name"])
