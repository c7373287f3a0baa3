"""What a fetch tells of its faults: while it waits, when it ends, when another is at work."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from opsctl.ansible import model
from opsctl.ansible.target import fetch, fetched, listing, mirrored
from opsctl.ansible.target import model as target_model
from opsctl.ansible.target.model import main as role
from opsctl.ansible.target.progress import Progress
from opsctl.ansible.target.web import Again, Wrong
from tests.unit.ansible import model_source as src
from tests.unit.ansible.model_source import hub

SHARD = "model-00002-of-00004.safetensors"


def failed(path: Path, source: dict[str, Any]) -> dict[str, Any]:
    """A fetch in this process that is refused; what its watchers read at the end."""
    shown = path.parent / "progress.json"
    path.parent.mkdir(exist_ok=True)
    job = {"path": str(path), "source": source, "token": None, "wait": 0.002}
    assert fetch.main(job, str(shown)) == fetch.REFUSED, shown.read_text()
    answer: dict[str, Any] = json.loads(shown.read_text())
    assert answer["state"] == "failed"
    return answer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "models" / "Tiny"


class Watched(Progress):
    """Keeps what a watcher reads after each fault."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.shown: list[str] = []

    def fault(self, text: str) -> None:
        super().fault(text)
        self.shown.append(self._now["fault"])


def test_what_is_waited_for_is_told_while_it_is(path: Path) -> None:
    """The source answers again at its fourth request: until then its fault is the last word."""
    stock = src.Stock(src.small_model(), faults={"config.json": ["500"] * 3})
    path.parent.mkdir()
    progress = Watched(path.parent / "progress.json")
    with src.served(stock) as address:
        job = {"path": str(path), "source": hub(address), "token": None, "wait": 0.0}
        fetch._fetch(job, progress)
    assert len(progress.shown) == 3 and all("HTTP 500" in text for text in progress.shown)
    assert progress._now["fault"] == "" and progress._now["noted"] >= 3


@pytest.mark.parametrize(
    ("fault", "times", "again"), [("404", 1, False), ("500", 30, True), ("corrupt", 9, False)]
)
def test_only_what_a_repeat_may_cure_asks_for_one(
    path: Path, fault: str, times: int, again: bool
) -> None:
    stock = src.Stock(src.small_model(), faults={SHARD: [fault] * times})
    with src.served(stock) as address:
        end = failed(path, hub(address))
    said = model.next_step(end, "opsctl-fetch-1.service", "h1")
    assert ("run it again" in said, "no repeat helps" in said) == (again, not again)
    assert "opsctl-fetch-1.service on h1" in said


def test_a_source_that_nobody_serves_is_asked_for_a_while_and_told(path: Path) -> None:
    end = failed(path, hub("http://127.0.0.1:9"))
    assert "did not answer, 10 times" in end["message"] and end["again"]
    assert end["noted"] == 10 and "Connection refused" in end["fault"]


def test_an_error_of_the_fetch_itself_ends_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its unit would run it again every two seconds, for ever."""
    monkeypatch.setattr(listing, "files", lambda *_: [{"path": "config.json"}])
    end = failed(path, hub("http://127.0.0.1:9"))
    assert "KeyError" in end["message"] and not end["again"]


@pytest.mark.parametrize(
    ("said", "code", "kind", "hint"),
    [
        ("Host key verification failed.", 255, Wrong, "log in to it from here once, as root"),
        ("root@h2: Permission denied (publickey).", 255, Wrong, "a key of root's"),
        (
            "ssh: Could not resolve hostname h9: Name or service not known",
            255,
            Wrong,
            "correct the name",
        ),
        (
            "ssh: Could not resolve hostname h9: Temporary failure in name resolution",
            255,
            Again,
            "",
        ),
        ("ssh: connect to host h2 port 22: Connection refused", 255, Again, ""),
        ('rsync: [sender] link_stat "/srv/x" failed: No such file or directory', 23, Wrong, ""),
    ],
)
def test_what_rsync_says_is_sorted(
    tmp_path: Path, said: str, code: int, kind: type[Exception], hint: str
) -> None:
    command = ["sh", "-c", f"echo '{said}'; exit {code}", "root@h2:/srv/x/", str(tmp_path)]
    with pytest.raises(kind, match=re.escape(said[:30])) as raised:
        mirrored._run(command)
    assert hint in getattr(raised.value, "hint", "")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "5.2 GB of 10.0 GB (52 %), 3 of 10 files, 100.0 MB/s, 1 min left"),
        ({"of": None}, "5.2 GB, 3 of 10 files, 100.0 MB/s"),
        ({"of": 0, "bytes": 0, "rate": 0}, "0 bytes, 3 of 10 files, 0 bytes/s"),
        ({"of": 5200, "bytes": 2600, "rate": 0}, "2.6 kB of 5.2 kB (50 %), 3 of 10 files, 0 byt"),
        ({"of_files": None, "fault": "no route"}, "fetching; tried again: no route"),
        ({"of": None, "fault": "HTTP 500"}, "5.2 GB, 3 of 10 files, 100.0 MB/s; tried again: HTT"),
    ],
)
def test_how_far_it_is_in_one_line(more: dict[str, Any], said: str) -> None:
    told = {"state": "fetching", "bytes": 5_200_000_000, "of": 10_000_000_000, "rate": 1e8}
    assert model.line({**told, "files": 3, "of_files": 10, **more}).startswith(said)


def test_every_note_is_shown_once_though_few_are_kept(path: Path) -> None:
    path.parent.mkdir()
    progress, shown, told = Progress(path.parent / "progress.json"), list[str](), 0
    for step in (40, 40, 40):
        for _ in range(step):
            progress.note(str(progress._now["noted"]))
        shown += model.unseen(progress._now, told)
        told = progress._now["noted"]
    assert shown == [str(n) for n in range(120)]
    anew = {"noted": 2, "notes": ["a", "b"]}
    assert model.unseen(anew, 120) == ["a", "b"] and model.unseen(anew, 2) == []


def test_the_unit_and_its_progress_are_read() -> None:
    shown = "ActiveState=activating\nNRestarts=3\n"
    assert model.current(shown) == ({"ActiveState": "activating", "NRestarts": "3"}, {})
    assert model.current(shown + '{"noted": 1}')[1] == {"noted": 1}


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Commands that the role ran; systemd says that the fetch is at work."""
    ran: list[list[str]] = []

    def say(command: list[str], **_: Any) -> str:
        ran.append(command[:2])
        return "activating\n"

    monkeypatch.setattr(target_model, "RUN", tmp_path / "run")
    monkeypatch.setattr(target_model, "run", say)
    return ran


def _begin(path: Path, source: dict[str, Any], token: str | None = None) -> dict[str, Any]:
    folder = {"path": str(path), "source": source, "what": "model"}
    return role({"do": "begin", "folder": folder, "token": token, "program": "", "check": False})


def _at_work(path: Path, source: dict[str, Any], **progress: Any) -> None:
    place = target_model.RUN / fetched.unit_of(str(path)).removesuffix(".service")
    place.mkdir(parents=True)
    job = {"path": str(path), "source": source, "token": None}
    (place / "job.json").write_text(json.dumps(job))
    (place / "progress.json").write_text(json.dumps(progress))


def test_another_revision_at_work_is_told_with_its_fault_and_what_ends_it(
    path: Path, begun: list[list[str]]
) -> None:
    _at_work(path, hub("http://h", revision="f" * 40), fault="http://h: HTTP 503")
    (said,) = _begin(path, hub("http://h"))["problems"]
    unit = fetched.unit_of(str(path))
    assert "http://h: HTTP 503" in said and f"systemctl stop {unit}" in said
    assert "wait for it" not in said and ["systemctl", "stop"] not in begun


def test_the_same_files_from_a_corrected_place_are_fetched_from_there(
    path: Path, begun: list[list[str]]
) -> None:
    _at_work(path, hub("http://wrong"))
    assert not _begin(path, hub("http://wrong"))["problems"]
    assert begun == [["systemctl", "show"]]
    begun.clear()
    assert not _begin(path, hub("http://right"))["problems"]
    assert begun == [["systemctl", "show"], ["systemctl", "stop"], ["systemd-run", "--quiet"]]
    begun.clear()
    assert not _begin(path, hub("http://right"), "token-1")["problems"]
    assert ["systemctl", "stop"] in begun
