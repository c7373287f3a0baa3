"""NVIDIA's repository, or a mirror, on a host: its key judged, its manager chosen."""

from __future__ import annotations

import base64
import platform
import re
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
SCHEMES = ("http://", "https://", "file:///")  # that apt and dnf both fetch from


def here() -> Tuple[Dict[str, Any], Manager]:
    """This host's layout and package manager. Raises Refused for a distribution by its name."""
    text = (read(Path("/etc/os-release")) or b"").decode("utf-8", "replace")
    known = layout(text, platform.machine())
    return known, Apt() if known["manager"] == "apt" else Dnf()


def url_of(asked: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    url = str(asked.get("url") or known["url"])
    return url if url.endswith("/") else url + "/"


def wrong(asked: Mapping[str, Any]) -> Tuple[str, str]:
    """(part, why) of what its variable alone tells, with the key's file; ("", "") if it is right.
    Asked on the controller, before any host is, and on the host.

    `asked`: {"url", "key": "", a file or an address, "b64": the key if the controller has it,
    "fingerprint"}.
    """
    url, key, told = (str(asked.get(part) or "") for part in ("url", "key", "fingerprint"))
    if url and not re.match("(https?://[^/]|file:///)", url):
        return "url", f"must be an address that begins with {', '.join(SCHEMES)}: {url!r} is none"
    if not key:
        what = url or "NVIDIA's repository"
        why = f"is not given: the file, on the controller, of the key that signs {what} "
        return "key", why + "(NVIDIA's lies beside its packages), or its address with fingerprint"
    wanted = _plain(told)
    if wanted and not re.fullmatch("[0-9A-F]{40}", wanted):
        return "fingerprint", f"must be the key's 40 hex digits, quoted: {told!r} is not"
    if not (asked.get("b64") or wanted):
        why = f"{key} is an address: give the key's fingerprint, too, or a file on the controller"
        return "key", why
    why = _judged(base64.b64decode(asked["b64"]), wanted, key) if asked.get("b64") else ""
    return ("key", why) if why else ("", "")


def key_of(asked: Mapping[str, Any], url: str) -> bytes:
    """The key that signs what stands at `url`; `asked` as in `wrong`, and the name of its
    `variable`.

    A key that comes over the network is only taken by its fingerprint, and only fetched if the
    host does not hold it yet. Raises Refused.
    """
    variable = str(asked.get("variable") or "nvidia_driver_repository")
    part, why = wrong({**asked, "url": asked.get("url") or url})
    if why:
        raise Refused(f"{variable}.{part} {why}")
    if asked.get("b64"):
        return base64.b64decode(asked["b64"])
    wanted = _plain(str(asked["fingerprint"]))
    for place in (*KEYRINGS, RPM_KEY):
        content = read(Path(place))
        if content and wanted in fingerprints(content):
            return content
    import urllib.request  # slow to import, and needed once in a host's life

    try:
        with urllib.request.urlopen(str(asked["key"]), timeout=20) as answer:
            fetched: bytes = answer.read(1 << 20)
    except OSError as error:
        raise Refused(f"the key {asked['key']} cannot be fetched from the host: {error}") from None
    why = _judged(fetched, wanted, str(asked["key"]))
    if why:
        raise Refused(f"{variable}.key {why}")
    return fetched


def _plain(fingerprint: str) -> str:
    return fingerprint.replace(" ", "").upper()


def _judged(content: bytes, wanted: str, told: str) -> str:
    """Why a key is not the one that is meant; "" if it is."""
    try:
        found = fingerprints(content)
    except ValueError as error:
        return f"{told} {error}"
    if not wanted or wanted in found:
        return ""
    return f"{told} has fingerprint {', '.join(found)}, the description asks for {wanted}"
