"""NVIDIA's repository, or a mirror, on a host: its key judged, its manager chosen."""

from __future__ import annotations

import base64
import platform
from pathlib import Path
from typing import Any, Dict, Mapping, Tuple, Union

from opsctl.ansible.target.apt import KEYRINGS, Apt
from opsctl.ansible.target.converge import Refused
from opsctl.ansible.target.distro import layout
from opsctl.ansible.target.dnf import KEY as RPM_KEY
from opsctl.ansible.target.dnf import Dnf
from opsctl.ansible.target.openpgp import fingerprints
from opsctl.onhost.files import read

Manager = Union[Apt, Dnf]


def here() -> Tuple[Dict[str, Any], Manager]:
    """This host's layout and package manager. Raises Refused for a distribution by its name."""
    text = (read(Path("/etc/os-release")) or b"").decode("utf-8", "replace")
    known = layout(text, platform.machine())
    return known, Apt() if known["manager"] == "apt" else Dnf()


def url_of(asked: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    url = str(asked.get("url") or known["url"])
    return url if url.endswith("/") else url + "/"


def key_of(asked: Mapping[str, Any], url: str) -> bytes:
    """`asked`: {"key": "" or an address, "b64": the key if the controller has it, "fingerprint"}.

    A key that comes over the network is only taken by its fingerprint, and only fetched if the
    host does not hold it yet. Raises Refused.
    """
    wanted = str(asked.get("fingerprint") or "").replace(" ", "").upper()
    if asked.get("b64"):
        return _judged(base64.b64decode(asked["b64"]), wanted, str(asked["key"]))
    if not asked.get("key"):
        raise Refused(
            f"nvidia_driver_repository.key is not given: the file, on the controller, of the key "
            f"that signs {url} (NVIDIA's lies beside its packages), or its address with fingerprint"
        )
    if not wanted:
        raise Refused(
            f"nvidia_driver_repository.key {asked['key']} is an address: give the key's "
            "fingerprint, too, or a file on the controller"
        )
    for place in (*KEYRINGS, RPM_KEY):
        content = read(Path(place))
        if content and wanted in fingerprints(content):
            return content
    import urllib.request  # slow to import, and needed once in a host's life

    try:
        with urllib.request.urlopen(str(asked["key"]), timeout=20) as answer:
            return _judged(answer.read(1 << 20), wanted, str(asked["key"]))
    except OSError as error:
        raise Refused(f"the key {asked['key']} cannot be fetched from the host: {error}") from None


def _judged(content: bytes, wanted: str, told: str) -> bytes:
    try:
        found = fingerprints(content)
    except ValueError as error:
        raise Refused(f"nvidia_driver_repository.key {told} {error}") from None
    if wanted and wanted not in found:
        raise Refused(
            f"nvidia_driver_repository.key {told} has fingerprint {', '.join(found)}, the "
            f"description asks for {wanted}"
        )
    return content
