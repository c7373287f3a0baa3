"""known_hosts as sshd(8) has it; keys and hashed lines made by ssh-keygen."""

from __future__ import annotations

import pytest

from opsctl.remote import known_hosts
from opsctl.remote.known_hosts import Verdict

A = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPCZ5G+rDdpL4y44EtFm6c9Le5an1ZUdkmBV3J4U1EcU"
B = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFIXbxFvSgjwF14Nto+nRtQhGw2PMavZyKrhoHtzK1Gq"
HASHED = f"""\
|1|HZzudypgoBssomXetZNpAXHM4qY=|f6iLO6h4IinwP9fCgGxa7sIDQ1c= {A}
|1|NvjDUWNQk/H/Ltj89aoPuA7hSkw=|Fkw74eIgP4YyrU1auaIr5sCeqsk= {B}
"""
OTHER_PORT = ("[192.0.2.12]:2222", "192.0.2.12")


def blob(key: str) -> bytes:
    return known_hosts.blob(key.split()[1])


def verdict(text: str, names: tuple[str, ...], shown: str) -> Verdict:
    return known_hosts.known(known_hosts.read(text), names).judge(blob(shown))[0]


@pytest.mark.parametrize(
    ("text", "names", "shown", "expected"),
    [
        (f"gpu1,192.0.2.11 {A}", ("192.0.2.11",), A, Verdict.KNOWN),
        (f"gpu1,192.0.2.11 {A}", ("192.0.2.11",), B, Verdict.CHANGED),
        (f"GPU1 {A}", ("gpu1",), A, Verdict.KNOWN),
        (f"gpu1 {A}", ("gpu2",), A, Verdict.UNKNOWN),
        ("", ("gpu2",), A, Verdict.UNKNOWN),
        # hashed, with and without a port
        (HASHED, ("192.0.2.11",), A, Verdict.KNOWN),
        (HASHED, ("192.0.2.11",), B, Verdict.CHANGED),
        (HASHED, OTHER_PORT, B, Verdict.KNOWN),
        (HASHED, ("192.0.2.13",), A, Verdict.UNKNOWN),
        # a host on another port may stand there without its port, to be accepted only
        (f"192.0.2.12 {A}", OTHER_PORT, A, Verdict.KNOWN),
        (f"192.0.2.12 {A}", OTHER_PORT, B, Verdict.UNKNOWN),
        (f"[192.0.2.12]:2222 {B}\n192.0.2.12 {A}", OTHER_PORT, B, Verdict.KNOWN),
        # patterns
        (f"*.example.org,!bad.example.org {A}", ("a.example.org",), A, Verdict.KNOWN),
        (f"*.example.org,!bad.example.org {A}", ("bad.example.org",), A, Verdict.UNKNOWN),
        (f"[*.example.org]:2222 {A}", ("[a.example.org]:2222", "a.example.org"), A, Verdict.KNOWN),
        (f"10.0.0.? {A}", ("10.0.0.5",), A, Verdict.KNOWN),
        (f"10.0.0.? {A}", ("10.0.0.55",), A, Verdict.UNKNOWN),
        # several keys; a revoked one stays revoked whatever else is said of it
        (f"gpu1 {B}\ngpu1 {A}", ("gpu1",), A, Verdict.KNOWN),
        (f"gpu1 {A}\n@revoked gpu1 {A}", ("gpu1",), A, Verdict.REVOKED),
        (f"gpu1 {A}\n@revoked * {A}", ("gpu1",), A, Verdict.REVOKED),
        (f"gpu1 {A}\n@revoked gpu1 {B}", ("gpu1",), A, Verdict.KNOWN),
        # an authority's key is not the host's
        (f"@cert-authority * {A}", ("gpu1",), A, Verdict.UNKNOWN),
        # lines that are no entries
        (f"# gpu1 {A}\n\ngpu1 ssh-ed25519\ngpu1 ssh-ed25519 !!\n", ("gpu1",), A, Verdict.UNKNOWN),
    ],
)  # fmt: skip
def test_verdicts(text: str, names: tuple[str, ...], shown: str, expected: Verdict) -> None:
    assert verdict(text, names, shown) is expected


def test_the_line_that_decided_and_the_kinds_to_ask_for() -> None:
    entries = known_hosts.read(f"# a comment\ngpu1 {A}\n", "/home/ops/.ssh/known_hosts")
    found = known_hosts.known(entries, ("gpu1",))
    assert found.judge(blob(B)) == (Verdict.CHANGED, "/home/ops/.ssh/known_hosts:2")
    assert found.kinds == {"ssh-ed25519"}


def test_fingerprint_as_ssh_keygen_shows_it() -> None:
    shown = "SHA256:pBx31zZgBI7m0jtqa1iPGWn5/uBa0s2tPGQAyvutZ5I"
    assert known_hosts.fingerprint(blob(A)) == shown
