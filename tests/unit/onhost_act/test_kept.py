"""A release as the host keeps it, for whoever is about to go back to it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opsctl.onhost import files
from opsctl.onhost.kept import kept
from opsctl.onhost.store import ZERO, Places, Refused, Store

A, B = "a" * 64, "b" * 64
GOOD: Any = SimpleNamespace(
    exists=lambda path: True,
    absent=lambda paths: [],
    user_exists=lambda name: True,
    group_exists=lambda name: True,
    unwritable=lambda folder: [],
    in_the_way=lambda *a, **k: [],
)
MANAGER: Any = SimpleNamespace(verify=lambda path: [])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """B stands in place; A is the one before, and 0 what other hands wrote, with a key in it."""
    found = Store("kimi", Places(tmp_path))
    for digest, ratio in ((A, 2), (B, 4)):
        text = f"[Unit]\nX-OpsctlRelease={digest}\n[Service]\nExecStart=/x --ratio {ratio}\n"
        files.write(found.release(digest) / found.unit, text.encode())
        manifest = {"digest": digest, "model": {"path": "/srv/m"}}
        files.write(found.release(digest) / "release.json", json.dumps(manifest).encode())
    found.save_zero(
        b"[Service]\nEnvironment=HF_TOKEN=s3cret\nExecStart=/y --api-key s3cret\n",
        {"digest": ZERO, "was_active": False},
    )
    found.places.units.mkdir(parents=True)
    found.install(B)
    return found


@pytest.fixture(autouse=True)
def folders(tmp_path: Path) -> None:
    for digest in (A, B, ZERO):
        (tmp_path / "etc/opsctl/kimi/releases" / digest).mkdir(parents=True)


def test_it_tells_what_of_the_unit_changes_and_nothing_of_what_stands(store: Store) -> None:
    told = kept(store, MANAGER, A, GOOD)
    assert (told["digest"], told["manifest"]["digest"], told["problems"]) == (A, A, [])
    changed = [line for line in told["diff"].splitlines() if line[:1] in "+-"]
    assert changed[2:] == [
        f"-X-OpsctlRelease={B}",
        f"+X-OpsctlRelease={A}",
        "-ExecStart=/x --ratio 4",
        "+ExecStart=/x --ratio 2",
    ]
    assert kept(store, MANAGER, B, GOOD)["diff"] == ""


def test_keys_of_other_hands_are_masked(store: Store) -> None:
    diff = kept(store, MANAGER, ZERO, GOOD)["diff"]
    assert "+Environment=HF_TOKEN=***" in diff and "s3cret" not in diff


def test_what_would_keep_it_from_starting(store: Store) -> None:
    gone: Any = SimpleNamespace(**{**vars(GOOD), "absent": lambda paths: paths})
    assert kept(store, MANAGER, A, gone)["problems"] == ["/srv/m is not there"]
    manifest = {"digest": A, "user": "llm"}
    files.write(store.release(A) / "release.json", json.dumps(manifest).encode())
    nobody: Any = SimpleNamespace(**{**vars(GOOD), "group_exists": lambda name: False})
    (told,) = kept(store, MANAGER, A, nobody)["problems"]
    assert told == "there is no group llm" and "role host" in getattr(told, "mend", "")


def test_a_release_that_is_not_there(store: Store) -> None:
    with pytest.raises(Refused, match="release cccccccccccc of kimi is not on this host"):
        kept(store, MANAGER, "c" * 64, GOOD)
