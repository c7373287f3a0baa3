"""Releases on disk and on the wire."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path

import pytest

from opsctl.errors import OpsctlError
from opsctl.release import Release, render
from opsctl.release.bundle import bundle
from opsctl.release.write import write
from opsctl.spec.models import Service

KEY = "sk-canary-0123456789"


def release(secret: bool = True, name: str = "kimi") -> Release:
    found = {"api-key": KEY} if secret else {}
    service = Service(model={"path": "/srv/m"}, engine={"version": "0.5.9"}, secrets=found)
    return render(name, service, zipapp=b"PK")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_bundle_holds_every_file_and_is_json() -> None:
    one = release()
    document = json.loads(json.dumps(bundle(one)))
    assert (document["service"], document["digest"]) == ("kimi", one.digest)
    paths = [file["path"] for file in document["files"]]
    assert paths == sorted(one.files)
    for file in document["files"]:
        assert base64.b64decode(file["b64"], validate=True) == one.files[file["path"]].content
        assert file["mode"] == one.files[file["path"]].mode


def test_files_by_host_with_their_modes(tmp_path: Path) -> None:
    one, two = release(), release(name="tiny")
    folders = write({"h1": [one, two], "h2": [one]}, tmp_path / "out")
    assert folders == [tmp_path / "out" / p for p in ("h1/kimi", "h1/tiny", "h2/kimi")]
    for name, file in one.files.items():
        path = folders[0] / name
        assert (path.read_bytes(), mode(path)) == (file.content, file.mode)
    assert mode(folders[0] / "secrets") == 0o700


def test_a_second_time_rewrites_and_removes_what_is_gone(tmp_path: Path) -> None:
    write({"h1": [release()]}, tmp_path)
    write({"h1": [release(secret=False)]}, tmp_path)
    left = {str(p.relative_to(tmp_path / "h1/kimi")) for p in (tmp_path / "h1/kimi").rglob("*")}
    assert left == {"sglang-kimi.service", "release.json", "onhost.pyz", "secrets"}


@pytest.mark.parametrize("path", ["h2/kimi/notes.txt", "h2/kimi/release.yml", "h2/kimi/a/b"])
def test_files_of_other_hands_are_kept_and_nothing_is_written(tmp_path: Path, path: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text("mine")
    with pytest.raises(OpsctlError, match=path.removeprefix("h2/kimi/")):
        write({"h1": [release()], "h2": [release()]}, tmp_path)
    assert (tmp_path / path).read_text() == "mine"
    assert not (tmp_path / "h1").exists()


def test_a_file_of_other_hands_beside_a_release_is_refused(tmp_path: Path) -> None:
    write({"h1": [release()]}, tmp_path)
    (tmp_path / "h1/kimi/mine.txt").write_text("mine")
    with pytest.raises(OpsctlError, match=r"mine\.txt"):
        write({"h1": [release()]}, tmp_path)


def test_secrets_do_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out/h1").mkdir(parents=True)
    (tmp_path / "out/h1/kimi").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OpsctlError, match="symbolic link"):
        write({"h1": [release()]}, tmp_path / "out")
    assert list((tmp_path / "elsewhere").iterdir()) == []
