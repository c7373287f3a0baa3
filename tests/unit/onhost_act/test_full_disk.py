"""A disk without space is told with the path, and with what to do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from opsctl.onhost import __main__ as onhost
from opsctl.onhost import systemd
from opsctl.onhost.store import Places


def test_a_lock_that_finds_no_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(descriptor: int) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(onhost, "Store", lambda name: store_at(name, tmp_path))
    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(systemd.Systemd, "show", lambda *_: systemd.UnitState(name="u"))
    words = ("--owner", "ann", "--reason", "restart", "--run", "r-1")
    assert onhost.main(["lock", "kimi", *words]) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    folder = tmp_path / "var/lib/opsctl/kimi"
    assert error["message"].startswith(f"No space left on device: {folder}/")
    assert f"make room on the host (df -h {folder}; df -i {folder})" in error["hint"]
    assert not [name for name in folder.iterdir() if name.suffix == ".json"]


def store_at(name: str, root: Path) -> Any:
    from opsctl.onhost.store import Store

    return Store(name, Places(root))
