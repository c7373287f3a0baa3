"""The files of catalogues: what stands in them, where added ones are, what is written anew."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from opsctl.engine import catalogue, store, versions
from opsctl.engine.adding import added
from opsctl.engine.source import Package
from opsctl.errors import OpsctlError, Refused

CACHES = (store.where, store.broken, store.table, store.names, catalogue)


def forget() -> None:
    for one in CACHES:
        one.cache_clear()


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An operator's own data folder, empty."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    forget()
    yield tmp_path / "opsctl" / "catalogue"
    forget()


def package(*calls: str) -> Package:
    body = "".join(f"        parser.add_argument({call})\n" for call in calls)
    text = f"class ServerArgs:\n    @staticmethod\n    def add_cli_args(parser):\n{body}"
    return Package(lambda path: text if path == "sglang/srt/server_args.py" else None)


def keep(found: dict[Path, str]) -> None:
    for path, text in found.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    forget()


def test_an_added_version_holds_for_every_look_up(data: Path) -> None:
    found = added("0.5.99", package('"--tp-size", type=int, default=1', '"--brand-new"'))
    assert (found.flags, found.before, found.new) == (2, "0.5.23", ("brand-new",))
    assert [*found.files] == [data / "0.5.99.json"]
    keep(dict(found.files))
    assert versions()[-1] == "0.5.99"
    assert catalogue("0.5.99").check({"brand-new": "x"}) == ({"brand-new": "x"}, [])
    _, (problem,) = catalogue("0.5.23").check({"brand-new": "x"})
    assert "0.5.99 does" in str(problem)
    assert added("0.5.99", package('"--tp-size", type=int, default=1', '"--brand-new"')).files == {}


def test_an_added_file_is_whole(data: Path) -> None:
    """opsctl's own files may be corrected by an update: nobody else's may change with them."""
    (text,) = added("0.5.99", package('"--tp-size", type=int')).files.values()
    assert json.loads(text) == {"version": "0.5.99", "flags": {"tp-size": {"kind": "int"}}}
    assert text.count("\n") == 3  # a line a flag, and two around them


def test_canonical_names_are_those_of_the_versions_that_are(data: Path) -> None:
    option = '"--tensor-parallel-size", "--tp-size", type=int, dest="tp_size"'
    (text,) = added("0.5.99", package(option)).files.values()
    assert [*json.loads(text)["flags"]] == ["tp-size"]


def test_a_package_that_differs_from_opsctls_own_catalogue_is_refused(data: Path) -> None:
    with pytest.raises(Refused, match="differs in 332 flags") as caught:
        added("0.5.9", package('"--patched"'))
    assert "0.5.9+mine" in caught.value.hint
    assert not data.exists()
    keep(dict(added("0.5.9+mine", package('"--patched"')).files))
    assert versions()[versions().index("0.5.9") + 1] == "0.5.9+mine"


def test_opsctls_own_counts_more_than_an_added_one(data: Path) -> None:
    keep({data / "0.5.9.json": '{"version": "0.5.9", "flags": {"old": {"kind": "int"}}}\n'})
    assert "hicache-ratio" in catalogue("0.5.9").flags


@pytest.mark.parametrize("text", ["", "{", "[]", '{"flags": []}', '{"version": "0.5.99"}'])
def test_a_file_that_is_cut_short_is_named(data: Path, text: str) -> None:
    keep({data / "0.5.99.json": text})
    with pytest.raises(OpsctlError, match=r"0\.5\.99\.json cannot be read") as caught:
        catalogue("0.5.99")
    assert "opsctl catalog add 0.5.99" in str(caught.value)
    assert "--force" not in str(caught.value)
    assert catalogue("0.5.23").flags  # the others are as they were
    assert "0.5.99" not in versions() and [*store.broken()] == ["0.5.99"]
    keep(dict(added("0.5.99", package('"--tp-size", type=int')).files))  # as it is told
    assert list(catalogue("0.5.99").flags) == ["tp-size"] and not store.broken()


def test_files_that_are_no_catalogues_are_passed_over(data: Path) -> None:
    keep({data / "notes.txt": "", data / ".0.5.99.json.new": "", data / "old.json": "{"})
    assert len(versions()) == 38


@pytest.mark.parametrize("unset", ["", "relative/path"])
def test_where_added_ones_are(unset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", unset)
    monkeypatch.setenv("HOME", "/home/ada")
    assert store.added() == Path("/home/ada/.local/share/opsctl/catalogue")


def test_own_files_hold_only_what_differs(data: Path) -> None:
    for version in versions():
        text = store.own().joinpath(f"{version}.json").read_text("utf-8")
        like = json.loads(text).get("like")
        base = store.table(like) if like else None
        assert text == store.text(version, store.table(version), like, base)
    size = sum(len(p.read_bytes()) for p in store.own().iterdir())
    whole = sum(len(store.text(v, store.table(v))) for v in versions())
    assert size < whole / 7


def test_a_new_own_file_is_written_against_the_nearest(data: Path) -> None:
    table = {**store.table("0.5.23"), "brand-new": {"kind": "int"}}
    texts = store.own_texts("0.5.24", table)
    assert [*texts] == ["0.5.24"]
    assert json.loads(texts["0.5.24"]) == {
        "version": "0.5.24", "like": "0.5.23", "flags": {"brand-new": {"kind": "int"}},
    }  # fmt: skip


def test_a_corrected_own_file_leaves_those_that_build_on_it_as_they_were(data: Path) -> None:
    """0.5.9's file says what differs from 0.5.10's."""
    table = {**store.table("0.5.10"), "tp-size": {"kind": "text"}}
    texts = store.own_texts("0.5.10", table)
    assert sorted(texts) == ["0.5.10", "0.5.9"]
    nine = json.loads(texts["0.5.9"])
    assert nine["like"] == "0.5.10"
    assert nine["flags"]["tp-size"] == store.table("0.5.9")["tp-size"]


def test_what_cannot_be_read_says_so(data: Path) -> None:
    with pytest.raises(OpsctlError, match=r"the options of SGLang 0\.5\.99 cannot be read"):
        added("0.5.99", package('"--a", choices=unheard_of'))
    with pytest.raises(OpsctlError, match="cannot be read"):
        added("0.5.99", Package(lambda path: "class ServerArgs(:"))
    with pytest.raises(OpsctlError, match="parse_new"):
        added("0.5.99", package('"--a", type=parse_new'))
