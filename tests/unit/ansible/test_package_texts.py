"""What apt, dpkg, dnf and rpm say, read; keys, by their fingerprints.

Texts of dpkg and apt 2.6 are from a Debian 12 host, those of apt 3.0 from reports of Debian 13,
those of dnf from dnf 4.14; NVIDIA's repository is not among what they came from.
"""

from __future__ import annotations

import base64
from typing import Any

import pytest

from opsctl.ansible.target import apt, apttrouble, dnf
from opsctl.ansible.target.converge import Refused
from opsctl.ansible.target.cuda import release
from opsctl.ansible.target.openpgp import fingerprints, is_armoured
from opsctl.ansible.target.repository import key_of

URL = "http://mirror.lab/debian12/"
KEY = b"""\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawywfxYJKwYBBAHaRw8BAQdA07VdAyrAiHIzNb5p6PJBhTLuF+esxhFrBH75
qe9TFL60FUxhYiA8bGFiQGxhYi5pbnZhbGlkPoiQBBMWCAA4FiEEqpG40lgB8/BM
HuZnDiNyU2QW5VwFAmsMsH8CGwMFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AACgkQ
DiNyU2QW5Vw1ywD7BB5r7Rj09MtGk3qDSB2pYXy98i1CoBQ5M3IU8G2hGSsA/3BG
tggjuQ4AF6zxFdHrr6P4tXaFCekRwzLIUh/Gj84A
=+s+Z
-----END PGP PUBLIC KEY BLOCK-----
"""
FINGERPRINT = "AA91B8D25801F3F04C1EE6670E2372536416E55C"

AUDIT = """\
The following packages are only half configured, probably due to problems
configuring them the first time.  The configuration should be retried using
dpkg --configure <package> or the configure menu option in dselect:
 nvidia-kernel-open-dkms of the lab

The following packages have been unpacked but not yet configured.
They must be configured using dpkg --configure or the configure
menu option in dselect for them to work:
 nvidia-open          of the lab
 nvidia-open-590      of the lab

"""
MADISON = """\
nvidia-open | 590.44.01-1 | http://mirror.lab/debian12  Packages
nvidia-open | 580.95.05-1 | http://mirror.lab/debian12  Packages
nvidia-open | 580.95.05-1 | http://other.lab/debian12  Packages
nvidia-open-580 | 580.95.05-1 | http://mirror.lab/debian12  Packages
"""
STATUSES = "ii \tlibc6\t2.36-9\nrc \tnvidia-driver\t535.1-1\nhi \tlibcuda1\t580.95.05-1\n"
STATUSES += "un \tnvidia-open\t\n iHR\n"
SIMULATED = """\
Remv nvidia-open-580 [580.65.06-1]
Inst nvidia-open [580.65.06-1] (590.44.01-1 Lab:lab [amd64])
Conf nvidia-open (590.44.01-1 Lab:lab [amd64])
Remv libfoo:i386 [1] []
"""


def test_what_dpkg_and_apt_say() -> None:
    named = ["nvidia-kernel-open-dkms", "nvidia-open", "nvidia-open-590"]
    assert apt.audit(AUDIT) == named
    assert apt.audit("") == []
    assert apt.madison(MADISON, "nvidia-open") == ["590.44.01-1", "580.95.05-1"]
    assert apt.madison("N: Unable to locate package x\n", "x") == []
    assert apt.statuses(STATUSES) == {"libc6": "2.36-9", "libcuda1": "580.95.05-1"}
    assert apt.removals(SIMULATED) == ["nvidia-open-580", "libfoo:i386"]


SQV = "Err:1 http://mirror.lab/debian12  InRelease\n  Sub-process /usr/bin/sqv returned an error "
SQV += "code (1), error message is: Missing key 78FEEC0FD3A58EBED8BA1740892EB6CAA920B3CB, which is "
SQV += "needed to verify signature.\nError: The repository 'http://mirror.lab/debian12  InRelease' "
SQV += "is not signed.\n"
GPGV = "W: GPG error: http://mirror.lab/debian12  InRelease: The following signatures couldn't be "
GPGV += "verified because the public key is not available: NO_PUBKEY A4B469963BF863CC\n"
GPGV += "E: The repository 'http://mirror.lab/debian12  InRelease' is not signed.\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SQV, "another key (78FEEC0FD3A58EBED8BA1740892EB6CAA920B3CB); the key given is AB12"),
        (GPGV, "another key (A4B469963BF863CC); the key given is AB12"),
        ("E: ... The following signatures were invalid: EXPKEYSIG 0F2 Lab\n", "expired (0F2)"),
        ("E: Release file for http://m/ is expired (invalid since 1d 2h).\n", "timedatectl"),
        ("E: Release file for http://m/ is not valid yet (invalid for 1h)\n", "timedatectl"),
        ("E: The repository 'http://m/  Release' is not signed.\n", "must carry InRelease"),
        ("The following signatures were invalid: BADSIG 0F2 Lab\n", "damaged or was changed"),
        ("  Could not connect to m:80 (10.0.0.1). - connect (111: Connection refused)", "curl -I"),
        ("  Temporary failure resolving 'mirror.lab'\n", "does not answer"),
        ("E: The repository 'http://m/  Release' does not have a Release file.", "InRelease"),
        ("  404  Not Found [IP: 10.77.0.1 80]\n", "no such file"),
        ("E: Failed to fetch http://m/Packages  File has unexpected size (3 != 4).", "try again"),
        ("Reading package lists...\n", ""),
    ],
)
def test_why_apt_refuses_a_repository(text: str, words: str) -> None:
    told = apttrouble.trouble(text, URL, ["AB12"])
    assert words in told and bool(told) == bool(words)
    assert not told or URL in told


DNF_DOWN = (
    "Errors during downloading metadata for repository 'opsctl-nvidia':\n  - Curl error (7): "
)
DNF_DOWN += "Couldn't connect to server for http://m/repodata/repomd.xml [Failed to connect]\n"
DNF_404 = "  - Status code: 404 for http://m/repodata/repomd.xml (IP: 127.0.0.1)\n"
DNF_KEY = "Public key for nvidia-open-580.65.06-1.el9.noarch.rpm is not installed. Failing package"
DNF_SIZE = (
    "[MIRROR] n.rpm: Interrupted by header callback: Inconsistent server data, reported file "
)
DNF_SIZE += "Content-Length: 5624, repository metadata states file length: 5617 (please report)\n"
TRANSACTION = """\
Installing:
 nvidia-open          noarch    3:580.95.05-1.el9    opsctl-nvidia    5.5 k
Removing dependent packages:
 other                noarch    1-1.el9              @System          0

Transaction Summary
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (DNF_DOWN, "does not answer (Curl error (7)"),
        (DNF_404, "there is no repository at"),
        (DNF_KEY, "signed by another key than AB12"),
        (DNF_SIZE, "does not agree with its own index"),
        ("Error: Unable to find a match: x\n", ""),
    ],
)
def test_why_dnf_refuses_a_repository(text: str, words: str) -> None:
    told = dnf.trouble(text, URL, ["AB12"])
    assert words in told and bool(told) == bool(words)


def test_what_dnf_and_rpm_say() -> None:
    assert dnf.removals(TRANSACTION) == ["other"]
    assert dnf.removals("Nothing to do.\n") == []
    assert dnf.queried("Last metadata expiration check: 0\nopsctl 580.95.05-1.el9\n") == [
        "580.95.05-1.el9"
    ]
    listed = "Last metadata expiration check: 0:56:33 ago on Mon 23 Nov 2020 10:10:52 AM EST.\n"
    listed += "tcsh-0:6.20.00-9.fc31.*\nkmod-nvidia-open-dkms-3:580.95.05-1.el9.*\n"
    assert dnf.locked(listed) == ["tcsh", "kmod-nvidia-open-dkms"]
    assert dnf.statuses("a\t1-1\nodd\n") == {"a": "1-1"}


def test_a_keys_fingerprint_is_what_gpg_says() -> None:
    plain = base64.b64decode(KEY.split(b"\n\n")[1].split(b"\n=")[0])
    assert fingerprints(KEY) == fingerprints(plain) == [FINGERPRINT]
    assert is_armoured(KEY) and not is_armoured(plain)
    assert fingerprints(KEY + KEY) == [FINGERPRINT] * 2


@pytest.mark.parametrize("content", [b"", b"<html>404</html>", KEY[:150], b"\x98", b"\xc6\xff\xff"])
def test_what_is_no_key_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"damaged|no OpenPGP"):
        fingerprints(content)


def test_the_operators_key_is_judged_by_its_fingerprint() -> None:
    asked: dict[str, Any] = {"key": "good.asc", "b64": base64.b64encode(KEY).decode()}
    assert key_of(asked, URL) == KEY
    spaced = " ".join(FINGERPRINT[n : n + 4] for n in range(0, 40, 4)).lower()
    assert key_of(asked | {"fingerprint": spaced}, URL) == KEY
    for wrong, words in (
        (asked | {"fingerprint": "AB" * 20}, f"has fingerprint {FINGERPRINT}"),
        (asked | {"b64": base64.b64encode(b"<html>").decode()}, "good.asc holds no OpenPGP"),
        ({"key": ""}, "is not given"),
        ({"key": "http://m/k.asc"}, "is an address: give the key's fingerprint"),
    ):
        with pytest.raises(Refused, match=words):
            key_of(wrong, URL)


def test_the_release_that_nvcc_tells() -> None:
    assert (
        release("Cuda compilation tools, release 13.0, V13.0.88\nBuild cuda_13.0.r13\n") == "13.0"
    )
    assert release("nvcc: not found") == "(none)"
