"""What `stage` writes, with which modes, and what it refuses to write."""

from __future__ import annotations

import base64
import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from opsctl.onhost import logins, preflight, unitfacts
from opsctl.onhost.preflight import Outside, check
from opsctl.onhost.stage import stage
from opsctl.onhost.store import Places, Refused, Store
from opsctl.onhost.systemd import UnitState

A, B = "a" * 64, "b" * 64


class Systemd:
    def __init__(self, places: Places, active: str = "inactive") -> None:
        self.places, self.active = places, active
        self.verified: list[str] = []

    def show(self, unit: str) -> UnitState:
        return UnitState(name=unit, load="loaded", active=self.active)

    def verify(self, path: Path) -> list[str]:
        self.verified.append(path.read_text())
        return [f"{path.name}:4: Unknown key name"] if "Wrong" in path.read_text() else []

    def enable(self, unit: str) -> None:
        wants = self.places.units / "multi-user.target.wants"
        wants.mkdir(exist_ok=True)
        (wants / unit).symlink_to(self.places.units / unit)


def bundle(digest: str = A, **more: tuple[int, bytes]) -> dict[str, Any]:
    unit = f"[Unit]\nX-OpsctlRelease={digest}\n[Service]\nExecStart=/bin/x --tp-size 8\n"
    files = {
        "sglang-kimi.service": (0o644, unit.encode()),
        "release.json": (0o644, json.dumps({"digest": digest}).encode()),
        "onhost.pyz": (0o644, b"zip"),
        "secrets/api-key": (0o600, b"canary-key"),
        **more,
    }
    entries = [
        {"path": path, "mode": mode, "b64": base64.b64encode(content).decode()}
        for path, (mode, content) in files.items()
    ]
    return {"service": "kimi", "digest": digest, "files": entries}


@pytest.fixture
def places(tmp_path: Path) -> Places:
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    return Places(tmp_path)


def put(places: Places, document: dict[str, Any], check: bool = False) -> dict[str, Any]:
    return stage(places, Systemd(places), document, check)  # type: ignore[arg-type]


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_files_have_their_modes_whatever_the_umask(places: Places) -> None:
    old = os.umask(0o077)
    try:
        put(places, bundle())
    finally:
        os.umask(old)
    folder = Store("kimi", places).release(A)
    assert mode(folder) == 0o755
    assert mode(folder / "sglang-kimi.service") == 0o644
    assert (mode(folder / "secrets"), mode(folder / "secrets/api-key")) == (0o700, 0o600)


def test_a_second_time_changes_nothing_and_check_says_the_same(places: Places) -> None:
    told = put(places, bundle(), check=True)
    assert told["changed"] and not places.etc.exists() and not places.var.exists()
    assert put(places, bundle()) == told
    assert put(places, bundle(), check=True)["changed"] is False
    before = {p: p.stat().st_mtime_ns for p in places.root.rglob("*")}
    assert put(places, bundle())["changed"] is False
    assert {p: p.stat().st_mtime_ns for p in places.root.rglob("*")} == before


def test_only_what_the_digest_leaves_out_is_rewritten_in_place(places: Places) -> None:
    put(places, bundle())
    unit = Store("kimi", places).release(A) / "sglang-kimi.service"
    before = unit.stat().st_ino
    assert put(places, bundle(**{"release.json": (0o644, b'{"gates": 1}')}))["changed"]
    assert Store("kimi", places).manifest(A) == {"gates": 1}
    assert unit.stat().st_ino == before


@pytest.mark.parametrize("spoil", ["content", "mode", "folder mode", "stranger", "link"])
def test_a_release_that_was_tampered_with_is_made_anew(places: Places, spoil: str) -> None:
    put(places, bundle())
    folder = Store("kimi", places).release(A)
    secret = folder / "secrets/api-key"
    if spoil == "content":
        secret.write_bytes(b"other")
    elif spoil == "mode":
        secret.chmod(0o644)
    elif spoil == "folder mode":
        secret.parent.chmod(0o755)
    elif spoil == "stranger":
        (folder / "launch.py").write_bytes(b"evil")
    else:
        secret.unlink()
        secret.symlink_to("/etc/hostname")
    assert put(places, bundle())["changed"]
    assert secret.read_bytes() == b"canary-key" and not secret.is_symlink()
    assert (mode(secret), mode(secret.parent)) == (0o600, 0o700)
    assert not (folder / "launch.py").exists()


@pytest.mark.parametrize(
    "path", ["../x", "/etc/x", "secrets/../../x", "a/b", ".hidden", "secrets/a/b", "./x", "x/"]
)
def test_a_path_that_leads_elsewhere_is_refused(places: Places, path: str) -> None:
    with pytest.raises(Refused, match=r"not allowed|with mode"):
        put(places, bundle(**{path: (0o600, b"x")}))
    assert not places.etc.exists()


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (bundle(**{"secrets/key": (0o644, b"x")}), "with mode 0644"),
        (bundle(x=(0o4755, b"x")), "with mode 4755"),
        ({**bundle(), "digest": B}, "does not name release bbbbbbbbbbbb"),
        ({**bundle(), "digest": "0"}, "cannot be staged"),
        ({**bundle(), "digest": "../x"}, "is not allowed"),
        ({**bundle(), "service": "../x"}, "is not allowed"),
        ({**bundle(), "files": []}, "the bundle lacks"),
    ],
)
def test_a_bundle_that_is_wrong_is_refused(
    places: Places, document: dict[str, Any], words: str
) -> None:
    with pytest.raises(Refused, match=words):
        put(places, document)
    assert not places.etc.exists()


def test_the_diff_shows_what_changes_and_no_secret(places: Places) -> None:
    standing = (
        "[Service]\nEnvironment=HF_TOKEN=canary-token\n"
        "ExecStart=/bin/x --api-key canary-key --tp-size 4\n"
    )
    (places.units / "sglang-kimi.service").write_text(standing)
    answer = put(places, bundle())
    assert "+ExecStart=/bin/x --tp-size 8" in answer["diff"]
    assert "-ExecStart=/bin/x --api-key *** --tp-size 4" in answer["diff"]
    assert "canary" not in json.dumps(answer)
    assert answer["restart"] is True


PORT = {"digest": A, "address": {"port": 30000}}


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger listens on the port; the unit of glm does on 30001."""

    def holder(self: Outside, address: dict[str, Any], *but: str) -> str:
        who = {30000: "PID 7 (nginx)", 30001: "PID 8 (python3) of sglang-glm.service"}
        found = who.get(address.get("port", 0), "")
        return "" if any(unit and found.endswith(unit) for unit in but) else found

    monkeypatch.setattr(preflight.Outside, "port_holder", holder)


# what stands there, is confirmed, and how its unit is → whether a deployment would start it
@pytest.mark.parametrize(
    ("stands", "confirmed", "active", "starts"),
    [
        (False, False, "inactive", True),
        (True, True, "active", False),
        (True, True, "inactive", True),  # it is staged already, and down
        (True, True, "failed", True),
        (True, True, "activating", True),
        (True, False, "active", True),  # its gates never passed
    ],
)
@pytest.mark.usefixtures("busy")
def test_what_a_start_would_be_refused_for_is_told_whenever_one_comes(
    places: Places, stands: bool, confirmed: bool, active: str, starts: bool
) -> None:
    document = bundle(**{"release.json": (0o644, json.dumps(PORT).encode())})
    systemd: Any = Systemd(places, active)
    stage(places, systemd, document)
    store = Store("kimi", places)
    if stands:
        store.install(A)
    if confirmed:
        store.write_confirmed(A)
    words = "port 30000 is held by PID 7 (nginx)"
    told = stage(places, systemd, document, True)
    assert told["problems"] == ([words] if starts else [])
    mend = "ss -ltnp 'sport = :30000'; stop what listens there"
    assert told["hints"] == ([mend] if starts else [])
    with pytest.raises(
        Refused, match=r"release a{12}: port 30000 is held by PID 7 \(nginx\)$"
    ) as refused:
        check(store, systemd, Outside(), A)  # the guard says the same
    assert refused.value.hint == mend


@pytest.mark.usefixtures("busy")
def test_who_is_deployed_before_it_is_in_nobodys_way(places: Places) -> None:
    port = {"digest": A, "address": {"port": 30001}}
    document = bundle(**{"release.json": (0o644, json.dumps(port).encode())})
    systemd: Any = Systemd(places)
    held = ["port 30001 is held by PID 8 (python3) of sglang-glm.service"]
    assert stage(places, systemd, document, True)["problems"] == held
    assert stage(places, systemd, {**document, "after": ["glm"]}, True)["problems"] == []


def test_a_user_that_logind_takes_the_memory_of_is_told(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "ordinary", lambda user: 1001 if user == "llm" else None)
    for user, count in (("llm", 1), ("sglang", 0)):
        manifest = json.dumps({"digest": A, "user": user}).encode()
        told = put(places, bundle(**{"release.json": (0o644, manifest)}), check=True)["warnings"]
        assert len(told) == count and all("enable-linger llm" in text for text in told)


@pytest.mark.parametrize(
    ("needs", "active", "on_disk", "told"),
    [
        ({"driver": "550.54.14"}, "active", "580.95.05", True),
        ({"driver": "550.54.14"}, "active", "580.65.06", False),
        ({"driver": "550.54.14"}, "active", "", False),  # no modinfo, or no such module
        ({"driver": "550.54.14"}, "inactive", "580.95.05", False),  # its start is refused, or well
        ({}, "active", "580.95.05", False),  # an engine on the CPU
    ],
)
def test_a_driver_that_waits_for_a_boot_is_told_of_what_serves_on(
    needs: dict[str, str],
    active: str,
    on_disk: str,
    told: bool,
    places: Places,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preflight, "foretold", lambda *_: [])
    monkeypatch.setattr(unitfacts, "driver", lambda: "580.65.06")
    monkeypatch.setattr(unitfacts, "ask", lambda *_: {"out": f"{on_disk}\n"})
    manifest = json.dumps({"digest": A, "needs": needs}).encode()
    document = bundle(**{"release.json": (0o644, manifest)})
    put(places, document)
    store = Store("kimi", places)
    store.unit_path.write_bytes(base64.b64decode(document["files"][0]["b64"]))
    store.write_confirmed(A)
    systemd: Any = Systemd(places, active)
    found = stage(places, systemd, document, True)["warnings"]
    words = (
        "another driver waits for the next boot (the kernel has 580.65.06, on disk is 580.95.05)"
    )
    assert [words in text for text in found] == ([True] if told else [])


def test_the_unit_is_judged_before_it_is_on_the_disk(places: Places) -> None:
    systemd: Any = Systemd(places)
    assert stage(places, systemd, bundle(), True)["problems"] == []
    assert [text.splitlines()[1] for text in systemd.verified] == [f"X-OpsctlRelease={A}"]
    text = f"[Unit]\nX-OpsctlRelease={A}\n[Service]\nWrong=1\n"
    told = stage(places, systemd, bundle(**{"sglang-kimi.service": (0o644, text.encode())}), True)
    assert told["problems"] == ["sglang-kimi.service:4: Unknown key name"]
    assert not places.etc.exists()


def test_what_could_not_be_kept_is_told_too(places: Places) -> None:
    class Masked(Systemd):
        def show(self, unit: str) -> UnitState:
            return UnitState(name=unit, load="masked")

    masked: Any = Masked(places)
    words = "sglang-kimi.service is masked; systemctl unmask sglang-kimi.service"
    told = stage(places, masked, bundle(), True)
    assert told["problems"] == [words]
    assert told["hints"] == ["systemctl unmask sglang-kimi.service"]
    places.units.mkdir(parents=True, exist_ok=True)
    (places.units / "sglang-kimi.service").symlink_to("/dev/null")
    told = stage(places, masked, bundle(), True)  # the mask took the unit file's place
    assert told["hints"] == ["systemctl unmask sglang-kimi.service, then opsctl deploy kimi"]


@pytest.mark.parametrize(
    ("model", "user", "words", "hint"),
    [
        ("shut", "nobody", "nobody may not read", "chmod a+rX -R {model}, or chown it"),
        ("gone", "nobody", "is not there", "or copy it to {model}"),
        ("open", "no-such-user", "there is no user no-such-user", "deploy.yml; its role host"),
    ],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="another user's rights are judged")
def test_what_doctor_would_type_is_told(
    places: Places, tmp_path: Path, model: str, user: str, words: str, hint: str
) -> None:
    folder = tmp_path / model
    if model != "gone":
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
        folder.chmod(0o700 if model == "shut" else 0o755)
    manifest = {"digest": A, "user": user, "model": {"path": str(folder)}}
    document = bundle(**{"release.json": (0o644, json.dumps(manifest).encode())})
    systemd: Any = Systemd(places)
    told = stage(places, systemd, document, True)
    assert words in "; ".join(told["problems"])
    assert hint.format(model=folder) in "; ".join(told["hints"])


def test_a_cache_that_cannot_be_made_is_told(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the unit's CacheDirectory=: without it systemd does not start the unit."""

    def unwritable(_: Any, folder: Path) -> list[str]:
        return [f"{folder} is read-only"] if folder == places.cache else []

    monkeypatch.setattr(Outside, "unwritable", unwritable)
    release = {"release.json": (0o644, json.dumps({"digest": A}).encode())}
    systemd: Any = Systemd(places)
    told = stage(places, systemd, bundle(**release), True)
    assert told["problems"] == [f"{places.cache} is read-only"]


def test_old_releases_go_but_none_that_is_wanted_back(places: Places) -> None:
    store = Store("kimi", places)
    digests = [f"{n:064x}" for n in range(1, 13)]
    for n, digest in enumerate(digests):
        put(places, bundle(digest))
        os.utime(store.release(digest), (n, n))
        if n == 0:
            store.write_confirmed(digest)
        if n == 1:
            store.link("previous", digest)
        if n == 2:
            store.install(digest)
    assert set(store.staged()) == {*digests[:3], *digests[-6:]}


def test_what_is_staged_without_a_restart_stands_in_the_history(places: Places) -> None:
    store = Store("kimi", places)
    put(places, bundle())
    assert not (store.var / "history.jsonl").exists()  # its start will have a line
    store.install(A)
    store.write_confirmed(A)
    told = {"digest": A, "memory": {"min_available": 7}, "expect": {"override": "owner agreed"}}
    changed = bundle(**{"release.json": (0o644, json.dumps(told).encode())})
    stage(places, Systemd(places, "active"), changed, check=True)  # type: ignore[arg-type]
    assert not (store.var / "history.jsonl").exists()
    for _ in range(2):  # the second changes nothing
        stage(places, Systemd(places, "active"), changed)  # type: ignore[arg-type]
    (line,) = (store.var / "history.jsonl").read_text().splitlines()
    entry = json.loads(line)
    assert (entry["op"], entry["outcome"], entry["release"]) == ("stage", "staged", A)
    assert (entry["min_available"], entry["reason"]) == (7, "forecast overridden: owner agreed")


@pytest.mark.parametrize(
    ("by", "owner", "run"),
    [({"run": "r9", "owner": "bob@ci", "reason": "role"}, "bob@ci", "r9"),
     (None, "ann@desk", "r1")],
)  # fmt: skip
def test_whose_staging_it_was_stands_in_the_history(
    places: Places, by: dict[str, str] | None, owner: str, run: str
) -> None:
    """A role says so itself, also while somebody else holds the lock; a verb holds the lock."""
    store = Store("kimi", places)
    put(places, bundle())
    store.install(A)
    store.write_confirmed(A)
    lock = {"run": "r1", "owner": "ann@desk", "reason": "her own", "since": 1.0}
    (store.var / "lock.json").write_text(json.dumps(lock))
    changed = {**bundle(**{"release.json": (0o644, b'{"memory": {}}')}), "by": by}
    stage(places, Systemd(places, "active"), changed)  # type: ignore[arg-type]
    entry = json.loads((store.var / "history.jsonl").read_text())
    assert (entry["owner"], entry["run"]) == (owner, run)
