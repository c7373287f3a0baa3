"""What may become release 0, and what is refused, by the states that real systemd tells."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from opsctl.onhost import collect, factsverb, zero
from opsctl.onhost.store import Places, Refused, Store
from opsctl.onhost.systemd import UnitState, parse_show

UNIT = "sglang-kimi.service"
TEXT = b"[Service]\nExecStart=/opt/v/bin/python -m sglang.launch_server --port 31000\n"
# systemctl show of Debian 12, shortened
ALIAS = "Id=llm.service\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled\n"
MASKED = f"Id={UNIT}\nLoadState=loaded\nActiveState=active\nUnitFileState=masked\n"
LOADED = f"Id={UNIT}\nLoadState=loaded\nActiveState=active\nUnitFileState=disabled\n"


class Shows:
    """systemd that answers with one text to whatever is asked."""

    def __init__(self, text: str) -> None:
        self.text = text

    def show(self, unit: str) -> UnitState:
        return parse_show(self.text)[0].named(unit)

    def show_all(self, units: Any) -> list[UnitState]:
        return parse_show("\n".join([self.text, *("Id=" + unit + "\n" for unit in units[1:])]))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store("kimi", Places(tmp_path))
    found.unit_path.parent.mkdir(parents=True)
    found.unit_path.write_bytes(TEXT)
    found.releases.mkdir(parents=True)
    return found


def kept(store: Store, text: str, asked: dict[str, Any] | None = None, same: bool = False) -> Any:
    systemd: Any = Shows(text)
    return zero.keep(store, systemd, "r1", lambda *_: None, asked or {}, same)


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        (TEXT, ["/opt/v/bin/python of ExecStart= is not there"]),
        (b"[Service]\nExecStart=/bin/sh -c true\n", []),
        (b"[Unit]\nX-OpsctlRelease=" + b"a" * 64 + b"\n" + TEXT, []),  # ours, edited: not kept
    ],
)
def test_what_a_unit_of_other_hands_lacks_is_seen_while_it_runs(
    store: Store, text: bytes, missing: list[str]
) -> None:
    store.unit_path.write_bytes(text)
    (state,) = parse_show(f"{LOADED}FragmentPath={store.unit_path}\n")
    told = collect.standing(store, state)
    assert (told["running"], told["missing"], told["zero"]) == ("0", missing, None)


@pytest.mark.parametrize(
    ("told", "words", "hint"),
    [
        (ALIAS, "sglang-kimi.service is only another name of llm.service",
         "takes_over: llm.service"),
        (MASKED, "sglang-kimi.service is masked", "systemctl unmask sglang-kimi.service"),
    ],
)  # fmt: skip
def test_where_no_unit_of_ours_may_stand(store: Store, told: str, words: str, hint: str) -> None:
    systemd: Any = Shows(told)
    with pytest.raises(Refused) as refused:
        kept(store, told)
    assert str(refused.value) == words and hint in refused.value.hint
    assert [words in text for text in zero.refusal(store, systemd)] == [True]  # the plan tells it
    assert not store.release("0").exists()


def test_a_dropin_elsewhere_that_sets_the_command_is_refused(store: Store, tmp_path: Path) -> None:
    path = tmp_path / f"usr/{UNIT}.d/10-vendor.conf"
    path.parent.mkdir(parents=True)
    told = f"{LOADED}DropInPaths={path} {store.dropin_folder}/20-mine.conf\n"
    path.write_text("[Service]\nExecStart=\nExecStart=/opt/other\n")
    with pytest.raises(Refused, match=r"10-vendor.conf sets ExecStart="):
        kept(store, told)
    path.write_text("[Service]\nLimitNOFILE=5000\n# ExecStart=/x\n")
    assert zero.staying(store, parse_show(told)[0]) == [str(path)]
    assert kept(store, told)


@pytest.mark.parametrize(
    ("gates", "soak"), [({"soak": 1.0}, 1.0), ({"soak": 30.0}, 10.0), ({}, 10)]
)
def test_release_0_is_watched_no_longer_than_what_replaced_it(
    store: Store, gates: dict[str, Any], soak: float
) -> None:
    kept(store, LOADED, {"gates": gates})
    manifest = store.manifest("0") or {}
    assert manifest["gates"]["soak"] == soak and manifest["was_enabled"] is False


@pytest.mark.parametrize(
    ("line", "address"),
    [
        ("--port ${PORT}", None),
        ("--port 31000 --host $HOST", None),
        ("--port=31000 --host 0.0.0.0", {"host": "0.0.0.0", "port": 31000}),
    ],
)
def test_an_address_that_a_variable_holds_is_not_known(line: str, address: Any) -> None:
    assert zero.address(f"ExecStart=python -m sglang.launch_server {line}\n") == address


def test_a_name_that_is_an_alias_is_answered_under_that_name() -> None:
    systemd: Any = Shows(ALIAS)
    ((state, guard),) = collect.states(systemd, ["kimi"])
    assert (state.name, state.alias_of, state.active) == (UNIT, "llm.service", "active")
    assert guard.name == "opsctl-guard-kimi.service" and not guard.alias_of


@pytest.mark.parametrize(
    ("same", "wanted"), [(True, {"host": "0.0.0.0", "port": 9}), (False, None)]
)
def test_of_the_same_engine_the_release_knows_where_it_listens(
    store: Store, same: bool, wanted: Any
) -> None:
    store.unit_path.write_bytes(TEXT.replace(b"31000", b"${PORT}"))
    kept(store, LOADED, {"address": {"host": "0.0.0.0", "port": 9}}, same)
    assert (store.manifest("0") or {})["address"] == wanted


def test_what_was_put_back_and_edited_since_is_kept_anew(store: Store) -> None:
    (state,) = parse_show(LOADED)

    def edited() -> bool:
        told = collect.standing(store, state)["zero"]
        assert told is not None and told["edited"] is store.zero_edited()
        return store.zero_edited()

    store.dropin_folder.mkdir()
    dropin = store.dropin_folder / "10-a.conf"
    dropin.write_bytes(b"[Service]\nNice=1\n")
    assert not store.zero_edited() and kept(store, LOADED)
    assert not edited()
    for path, text in ((store.unit_path, TEXT + b"# now\n"), (dropin, b"[Service]\nNice=2\n")):
        path.write_bytes(text)
        assert edited()
        assert kept(store, LOADED) and not edited()
    assert store.release_unit("0") == TEXT + b"# now\n"
    ours = b"[Unit]\nX-OpsctlRelease=" + b"a" * 64 + b"\n"
    store.unit_path.write_bytes(ours + TEXT)
    assert not edited()


@pytest.mark.parametrize(
    ("shown", "written", "zero", "wanted"),
    [
        ("", 200.0, False, True),  # edited, and read again by systemd
        ("", 50.0, False, False),
        ("NeedDaemonReload=yes\n", 50.0, False, True),
        ("", 200.0, True, False),  # put back, byte for byte
    ],
)
def test_a_unit_that_was_edited_after_the_start(
    store: Store, shown: str, written: float, zero: bool, wanted: bool
) -> None:
    text = f"{LOADED}{shown}FragmentPath={store.unit_path}\n"
    if zero:
        kept(store, LOADED)
    os.utime(store.unit_path, (written, written))
    (state,) = parse_show(text)
    assert factsverb._edited(store, state, 100.0) is wanted
