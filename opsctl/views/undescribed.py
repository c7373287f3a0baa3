"""Services that stand on a host and in no description: whoever renames or drops one in the
inventory must still see it, since it goes on holding its GPUs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

CHECK = "described"


def marked(host: str, answer: Mapping[str, Any], described: Collection[str]) -> dict[str, Any]:
    """The host's answer of `collect`; each service that is not `described` fails one check more.

    A unit of other hands fails nothing, since opsctl was never told to look after it: its check
    is inconclusive.
    """
    services = [
        service
        if service["service"] in described
        else {**service, "checks": [*(service.get("checks") or ()), _check(host, service)]}
        for service in answer.get("services") or ()
    ]
    return {**answer, "services": services}


def of_other_hands(service: Mapping[str, Any]) -> bool:
    """Whether its unit was never written by opsctl; one of ours that was edited was."""
    release = service.get("release") or {}
    return release.get("running") == "0" and not release.get("edited")


def by_hand(service: Mapping[str, Any]) -> str:
    """What takes such a unit off its host, command by command: its files are not ours to delete.
    Files of ours are named, too; and the unit of another name that it was kept from."""
    unit, folder = service["unit"], f"/etc/systemd/system/{service['unit']}.d"
    zero = (service.get("release") or {}).get("zero")
    told = f"systemctl disable --now {unit}; "
    if zero is None:
        return f"{told}`systemctl cat {unit}` shows its files; none of them is opsctl's"
    dropins = any(path.startswith(f"{folder}/") for path in service.get("dropins") or ())
    told += f"rm /etc/systemd/system/{unit}; " + (f"rm -r {folder}; " if dropins else "")
    told += f"systemctl daemon-reload; rm -r /etc/opsctl/{service['service']} (its releases, and "
    told += "release 0, the copy of that unit)"
    if other := zero.get("moved_from"):
        told += f"; {other}, which it came from, is still there: systemctl enable --now {other}"
    return told


def verdict(service: Mapping[str, Any]) -> str:
    """The status of its check; "" for a service that is described."""
    checks = service.get("checks") or ()
    return next((str(check["status"]) for check in checks if check["id"] == CHECK), "")


def _check(host: str, service: Mapping[str, Any]) -> dict[str, Any]:
    if of_other_hands(service):
        return {"id": CHECK, "status": "inconclusive", "detail": "not by opsctl", "evidence": []}
    remedy = f"opsctl remove {service['service']} --limit {host}"
    detail = f"not described in the inventory: `{remedy}`"
    return {"id": CHECK, "status": "fail", "detail": detail, "evidence": []}
