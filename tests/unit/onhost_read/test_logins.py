"""Whose shared memory logind takes, and that all who prepare or deploy an engine say so."""

from __future__ import annotations

import pwd
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opsctl.ansible.target import converge
from opsctl.ansible.target.converge import Host
from opsctl.onhost import logins, systemd

UIDS = {"llm": 1001, "sglang": 998, "root": 0}


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """`says`: what logind answers; None if nobody does."""
    said: dict[str, Any] = {"says": "b true\n", "linger": tmp_path, "groupless": ()}

    def known(name: str) -> Any:
        return SimpleNamespace(pw_name=name, pw_uid=UIDS[name], pw_gid=UIDS[name])

    def by_uid(uid: int) -> Any:
        return known({u: n for n, u in UIDS.items()}[uid])

    def call(command: list[str], seconds: float) -> tuple[int, str, str]:
        if said["says"] is None:
            raise systemd.CallFailed("no such file")
        return 0, said["says"], ""

    monkeypatch.setattr(converge, "_has_group", lambda name: name not in said["groupless"])
    monkeypatch.setattr(pwd, "getpwnam", known)
    monkeypatch.setattr(pwd, "getpwuid", by_uid)
    monkeypatch.setattr(systemd, "call", call)
    monkeypatch.setattr(logins, "LINGER", tmp_path)
    return said


@pytest.mark.parametrize(
    ("user", "uid"),
    [("llm", 1001), ("1001", 1001), ("sglang", None), ("root", None), ("nobody-there", None)],
)
def test_ordinary_users(user: str, uid: int | None) -> None:
    assert logins.ordinary(user) == uid


@pytest.mark.parametrize(
    ("says", "uid"), [("b true\n", 1001), ("b false\n", None), ("", 1001), (None, 1001)]
)
def test_what_logind_is_told(host: dict[str, Any], says: str | None, uid: int | None) -> None:
    host["says"] = says
    assert logins.ordinary("llm") == uid


def test_who_lingers_is_spared(host: dict[str, Any]) -> None:
    (host["linger"] / "llm").touch()
    assert logins.warning("llm") == ""


def test_the_preparation_warns_and_goes_on() -> None:
    prepared = Host(check=False)
    assert prepared.system_user("llm") is False
    assert prepared.warnings == [logins.warning("llm")]
    assert "user llm has UID 1001" in prepared.warnings[0]
    assert "loginctl enable-linger llm" in prepared.warnings[0]
    spared = Host(check=False)
    assert spared.system_user("sglang") is False and spared.warnings == []


@pytest.mark.parametrize(("taken", "number"), [(False, ["--gid", "998"]), (True, [])])
def test_the_preparation_makes_a_group_that_is_missing(
    host: dict[str, Any], monkeypatch: pytest.MonkeyPatch, taken: bool, number: list[str]
) -> None:
    """Units name it beside the user, and end with 216/GROUP without it."""

    def by_number(gid: int) -> Any:
        if not taken:
            raise KeyError(gid)
        return SimpleNamespace(gr_name="users")

    ran: list[list[str]] = []
    monkeypatch.setattr(converge, "run", ran.append)
    monkeypatch.setattr(converge.grp, "getgrgid", by_number)
    host["groupless"] = ("sglang",)
    looked = Host(check=True)
    assert looked.system_user("sglang") is False and looked.diff and not ran
    Host(check=False).system_user("sglang")
    assert ran == [["groupadd", "--system", *number, "--", "sglang"]]
