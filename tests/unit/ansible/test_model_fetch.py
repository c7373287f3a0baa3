"""The fetch of a model against a real server that speaks a hub's interface, with its faults."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from opsctl.ansible.described import needs
from opsctl.ansible.program import fetch_program
from opsctl.ansible.target import fetch, fetched, listing, mirrored, placing, signing
from opsctl.ansible.target.download import Pace, range_fault
from opsctl.ansible.target.model import main as role
from opsctl.ansible.target.model import needed, unused
from opsctl.ansible.target.progress import Progress
from opsctl.ansible.target.web import Wrong, told
from opsctl.spec import load
from tests.unit.ansible import model_source as src
from tests.unit.ansible.model_source import hub

FIRST, SHARD = "model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors"


def run(
    path: Path, source: dict[str, Any], token: str | None = None, code: int = 0
) -> dict[str, Any]:
    """One fetch in this process; what its watchers read at the end."""
    shown = path.parent / "progress.json"
    path.parent.mkdir(exist_ok=True)
    job = {"path": str(path), "source": source, "token": token, "wait": 0.002}
    assert fetch.main(job, str(shown)) == code, shown.read_text()
    answer: dict[str, Any] = json.loads(shown.read_text())
    return answer


def whole(path: Path, files: dict[str, bytes]) -> None:
    """Exactly these files, and nothing that a fetch needs on its way."""
    found = {
        p.relative_to(path).as_posix(): p.read_bytes()
        for p in path.rglob("*")
        if p.is_file() and p.name != fetched.STAMP
    }
    assert found.keys() == files.keys()
    assert all(found[name] == body for name, body in files.items())
    assert path.is_symlink() and not list(path.parent.glob(".fetched/*.part"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "models" / "Tiny"


def test_from_a_hub_and_the_second_run_asks_nothing(path: Path) -> None:
    stock = src.Stock(src.small_model(), token=src.TOKEN)
    with src.served(stock) as address:
        end = run(path, hub(address), src.TOKEN)
        assert (end["state"], end["files"], end["of_files"]) == ("done", 7, 7)
        assert end["bytes"] == end["of"] == sum(map(len, stock.files.values()))
        hits = len(stock.authorized)
        run(path, hub(address), src.TOKEN)
        assert len(stock.authorized) == hits
    whole(path, stock.files)
    assert (path / "config.json").stat().st_mode & 0o777 == 0o644
    # The server that a hub hands a large file over to gets no token.
    assert {a for p, a in stock.authorized if p.startswith("/lfs/")} == {""}
    stamp = json.loads((path / fetched.STAMP).read_text())
    body = stock.files[SHARD]
    want = {"hash": f"sha256:{hashlib.sha256(body).hexdigest()}", "size": len(body)}
    assert stamp["files"][SHARD] == want | {"checked": True}
    assert src.TOKEN not in json.dumps(stamp)


@pytest.mark.parametrize(
    ("faults", "said"),
    [
        (["cut"], "connection lost|the body ended"),
        (["cut", "cut", "cut"], "the body ended|connection lost"),
        (["500", "503", "429"], "HTTP 500"),
        (["cut", "wrong-range"], "Content-Range"),
        (["etag", "etag"], "from its beginning"),
        (["short", "short"], "the server has 1,500,000 bytes, the listing says 3,000,000"),
        (["corrupt"], "hash sha256:.* instead of"),
        (["cut", "corrupt"], "hash sha256:.* instead of"),
        (["cut", "no-range"], "from its beginning"),
        (["cut", "416"], "HTTP 416"),
    ],
)
def test_a_fault_is_told_and_the_file_is_right_in_the_end(
    path: Path, faults: list[str], said: str
) -> None:
    stock = src.Stock(src.small_model(), faults={SHARD: list(faults)})
    with src.served(stock) as address:
        end = run(path, hub(address))
    whole(path, stock.files)
    assert not stock.faults[SHARD]
    notes = "\n".join(end["notes"])
    assert re.search(said, notes), notes
    assert "CANARY" not in notes


@pytest.mark.parametrize(
    ("fault", "times", "said"),
    [
        ("404", 1, "HTTP 404"),
        ("500", 30, "11 faults in a row"),
        ("corrupt", 9, "3 times another hash"),
    ],
)
def test_what_does_not_pass_ends_it_and_nothing_is_put_in_place(
    path: Path, fault: str, times: int, said: str
) -> None:
    stock = src.Stock(src.small_model(), faults={SHARD: [fault] * times})
    with src.served(stock) as address:
        source = hub(address, connections=1)  # in order: the first shard is whole before SHARD
        end = run(path, source, code=fetch.REFUSED)
        assert said in end["message"] and end["state"] == "failed"
        assert not os.path.lexists(path)
        assert list(path.parent.glob(f".fetched/*.part/{FIRST}"))
        stock.faults.clear()
        run(path, source)
    whole(path, stock.files)
    # What was whole before the failure was not asked for again.
    assert sum(1 for p, _ in stock.hits if p == "config.json") <= 1
    assert sum(1 for p, _ in stock.hits if p == FIRST) == 1


def test_a_token_that_is_missing_is_named(path: Path) -> None:
    with src.served(src.Stock(src.small_model(), token=src.TOKEN)) as address:
        end = run(path, hub(address), code=fetch.REFUSED)
    assert "HTTP 401: model.source.token is missing" in end["message"]


def test_killed_at_random_moments_it_always_goes_on(path: Path) -> None:
    """A short version of the drill: SIGKILL of the real program, five times."""
    path.parent.mkdir()
    program, shown = path.parent / "fetch.py", path.parent / "progress.json"
    program.write_text(fetch_program())
    stock = src.Stock(src.small_model(size=6_000_000), rate=2_000_000)
    spans, kills = random.Random(4), 0
    with src.served(stock) as address:
        job = {"path": str(path), "source": hub(address), "token": None, "wait": 0.002}
        (path.parent / "job.json").write_text(json.dumps(job))
        while True:
            before = stock.sent
            began = subprocess.Popen([sys.executable, "-I", str(program)])
            if kills == 5:
                assert began.wait(60) == 0
                break
            # However busy the machine: one of four files has got its first chunk of 256 KiB.
            while stock.sent < before + 1_200_000 and began.poll() is None:
                time.sleep(0.01)
            time.sleep(spans.uniform(0.0, 0.3))
            assert began.poll() is None, "it was done before it could be killed"
            began.send_signal(signal.SIGKILL)
            began.wait()
            kills += 1
            assert not os.path.lexists(path)
    whole(path, stock.files)
    assert json.loads(shown.read_text())["state"] == "done"
    ranged = [r for p, r in stock.hits if r]
    assert ranged, "nothing was gone on with"


def test_after_a_power_cut_only_what_was_synced_is_trusted(path: Path) -> None:
    stock = src.Stock(src.small_model(), faults={SHARD: ["cut", "404"]})
    source = None
    with src.served(stock) as address:
        source = hub(address)
        run(path, source, code=fetch.REFUSED)
        state = fetched.part(str(path), source) / fetched.STATE
        (record,) = [r for r in state.glob("*.json") if SHARD in r.read_text()]
        said = json.loads(record.read_text())
        torn = record.with_suffix(".partial")
        assert torn.stat().st_size == 1_500_000
        torn.write_bytes(bytes(1_500_000))  # what a lost page cache may leave: holes
        record.write_text(json.dumps(said | {"boot": "another", "synced": 0}))
        end = run(path, source)
    whole(path, stock.files)
    assert not any("goes on" in note and SHARD in note for note in end["notes"])


def test_from_a_folder_with_a_manifest_on_a_plain_server(path: Path) -> None:
    stock = src.Stock(src.small_model(), faults={SHARD: ["cut", "cut"]})
    with src.served(stock) as address:
        pin = hashlib.sha256(stock.manifest()).hexdigest()
        run(path, {"url": f"{address}/plain", "manifest_sha256": pin})
        whole(path, stock.files)
        other = {"url": f"{address}/plain", "manifest_sha256": "0" * 64}
        end = run(path.with_name("Other"), other, code=fetch.REFUSED)
    assert f"has the sha256 {pin}" in end["message"]


def test_from_an_object_store_signed(path: Path) -> None:
    stock = src.Stock(src.small_model())
    source = {"s3": "bucket/models/tiny", "exclude": ["sub/*"]}
    with src.served(stock) as address:
        run(path, source | {"endpoint": address}, "KEYID:SECRET-CANARY")
    want = {p: b for p, b in stock.files.items() if not p.startswith("sub/")}
    whole(path, want | {"SHA256SUMS": stock.manifest()})
    assert all(a.startswith("AWS4-HMAC-SHA256 Credential=KEYID/") for _, a in stock.authorized)
    assert not any("SECRET-CANARY" in a for _, a in stock.authorized)


def test_the_signature_is_the_published_example() -> None:
    """From the store's own documentation of signature version 4: GET object with a range."""
    headers = signing.sign(
        "GET",
        "https://examplebucket.s3.amazonaws.com/test.txt",
        {"Range": "bytes=0-9"},
        "AKIAIOSFODNN7EXAMPLE",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "us-east-1",
        datetime(2013, 5, 24, tzinfo=timezone.utc),  # noqa: UP017
    )
    want = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    assert headers["Authorization"].endswith(f"Signature={want}")


def test_from_a_folder_of_the_host_without_hashes_is_told(path: Path, tmp_path: Path) -> None:
    files = src.small_model()
    for name, body in files.items():
        (tmp_path / "share" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "share" / name).write_bytes(body)
    end = run(path, {"folder": str(tmp_path / "share")})
    whole(path, files)
    assert any("7 of 7 files have no hash at the source" in note for note in end["notes"])


def test_another_revision_lands_beside_and_takes_what_is_the_same(path: Path) -> None:
    first = src.Stock(src.small_model())
    with src.served(first) as address:
        run(path, hub(address))
    second = src.Stock(first.files | {SHARD: src.content(3_000_000, 99)})
    with src.served(second) as address:
        source = hub(address, exclude=["*.nothing"])  # another request: another revision
        assert needed(str(path), source)
        end = run(path, source)
    whole(path, second.files)
    fetched_large = {p for p, _ in second.hits if p.endswith(".safetensors")}
    assert fetched_large == {SHARD}
    assert sum("taken from" in note for note in end["notes"]) >= 3
    (old,) = unused(str(path))
    assert (old / SHARD).read_bytes() == first.files[SHARD]
    answer = role(
        {"folders": [{"path": str(path), "source": source}], "do": "tidy", "check": False}
    )
    assert answer["changed"] and not old.exists()
    whole(path, second.files)


def test_what_was_given_up_half_way_is_removed_when_another_revision_stands(path: Path) -> None:
    stock = src.Stock(src.small_model(), faults={SHARD: ["404"]})
    with src.served(stock) as address:
        run(path, hub(address, exclude=["nothing"]), code=fetch.REFUSED)
        assert fetched.parts(str(path))
        run(path, hub(address))
    whole(path, stock.files)


def test_a_file_that_was_lost_is_brought_again(path: Path) -> None:
    stock = src.Stock(src.small_model())
    with src.served(stock) as address:
        run(path, hub(address))
        assert not needed(str(path), hub(address))
        (path / SHARD).unlink()
        assert needed(str(path), hub(address))
        stock.hits.clear()
        run(path, hub(address))
    whole(path, stock.files)
    assert {p for p, _ in stock.hits if p.endswith(".safetensors")} == {SHARD}


def test_what_others_put_there_is_never_replaced(path: Path) -> None:
    path.mkdir(parents=True)
    folder = {"path": str(path), "what": "model", "source": hub("http://127.0.0.1:1")}
    answer = role({"folders": [folder], "check": True})
    assert "was not fetched by opsctl" in answer["problems"][0]
    assert answer["fetch"] == []


def test_a_revision_that_is_served_is_not_exchanged(path: Path) -> None:
    stock = src.Stock(src.small_model())
    with src.served(stock) as address:
        run(path, hub(address))
        serving = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(60)", "--model-path", str(path)]
        )
        try:
            time.sleep(0.2)
            folder = {"path": str(path), "what": "model", "source": hub(address, exclude=["x"])}
            answer = role({"folders": [folder], "check": True})
            same = role({"folders": [{**folder, "source": hub(address)}], "check": True})
        finally:
            serving.kill()
            serving.wait()
    assert f"process {serving.pid} serves the present one" in answer["problems"][0]
    assert not same["problems"] and not same["changed"]


def test_two_fetches_of_one_model_exclude_each_other(path: Path) -> None:
    stock = src.Stock(src.small_model(), rate=4_000_000)
    with src.served(stock) as address:
        first = threading.Thread(target=run, args=(path, hub(address)))
        first.start()
        time.sleep(0.3)
        job = {"path": str(path), "source": hub(address), "token": None}
        assert fetch.main(job, str(path.parent / "second.json")) == fetch.REFUSED
        first.join()
    assert "is held by another process" in (path.parent / "second.json").read_text()
    whole(path, stock.files)


def test_too_little_space_is_told_before_anything_is_fetched(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "LEAST_LEFT", 1 << 60)
    stock = src.Stock(src.small_model())
    with src.served(stock) as address:
        end = run(path, hub(address), code=fetch.REFUSED)
    assert "12,000,184 are still to come" in end["message"].replace(
        f"{sum(map(len, stock.files.values())):,}", "12,000,184"
    )
    assert "too few" in end["message"] and not stock.hits


def test_a_limit_is_kept() -> None:
    waits: list[float] = []
    pace = Pace(1_000_000, waits.append)
    for _ in range(10):
        pace.take(500_000)
    assert 4.5 < waits[-1] <= 5.0


def test_a_limit_of_the_description_is_kept_by_the_whole_fetch(path: Path) -> None:
    """4 MB of all connections together at 4 MB/s: a second, where there is no other limit."""
    model = {"path": str(path), "source": hub("http://mirror:1", limit="4MB")}
    tiny = {"model": model, "engine": {"version": "0.5.9"}}
    services = load({"hosts": {"h1": {"sglang_services": {"tiny": tiny}}}}, "h1")
    source = needs(services, Path("/inv"))["folders"][0]["source"]
    stock = src.Stock(src.small_model(4, 1_000_000))
    with src.served(stock) as address:
        began = time.monotonic()
        run(path, source | {"endpoint": address})
        assert time.monotonic() - began > 0.8
    whole(path, stock.files)
    assert [w for w in mirrored._command(source) if "bwlimit" in w] == ["--bwlimit=3906"]  # KiB


@pytest.mark.parametrize(("asked", "dropped"), [({}, 7), ({"page_cache": "keep"}, 0)])
def test_the_page_cache_is_let_go_of_unless_the_description_keeps_it(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: Any, dropped: int
) -> None:
    advised: list[str] = []

    def advise(file: int, *_: int) -> None:
        advised.append(str(Path(f"/proc/self/fd/{file}").readlink()))

    monkeypatch.setattr(os, "posix_fadvise", advise)
    stock = src.Stock(src.small_model(4, 200_000))
    with src.served(stock) as address:
        run(path, hub(address, **asked))
    assert len(set(advised)) == dropped
    advised.clear()
    landed = tmp_path / "landed"
    landed.mkdir()
    for name, body in stock.files.items():
        (landed / name).parent.mkdir(exist_ok=True)
        (landed / name).write_bytes(body)

    def copied(command: list[str]) -> str:
        if "--dry-run" not in command:
            shutil.copytree(landed, command[-1], dirs_exist_ok=True)
        return ""

    monkeypatch.setattr(mirrored, "_run", copied)
    state = tmp_path / "part" / fetched.STATE
    state.mkdir(parents=True)
    progress = Progress(tmp_path / "progress.json")
    mirrored.mirror({"rsync": "h:/m", **asked}, tmp_path, state.parent, progress)
    assert len(set(advised)) == dropped


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a//b", "", ".opsctl-model.json", "a/.."])
def test_a_name_that_leads_out_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(Wrong):
        listing._refuse_path(name)


def test_manifests() -> None:
    text = f"{'a' * 64}  ./x.bin\n{'B' * 64} *sub/y z.bin\n\n"
    assert [(f["path"], f["hash"]) for f in listing.manifest(text.encode(), "m")] == [
        ("x.bin", f"sha256:{'a' * 64}"),
        ("sub/y z.bin", f"sha256:{'b' * 64}"),
    ]
    said = {"files": [{"path": "x", "size": 3, "sha256": "C" * 64, "url": "https://s/x?sig=1"}]}
    (file,) = listing.manifest(json.dumps(said).encode(), "m")
    assert (file["size"], file["hash"], file["url"]) == (
        3,
        f"sha256:{'c' * 64}",
        "https://s/x?sig=1",
    )
    with pytest.raises(Wrong, match="m, line 2 is not a line of sha256sum"):
        listing.manifest(f"{'a' * 64}  x\nnonsense\n".encode(), "m")


@pytest.mark.parametrize(
    ("header", "wrong"),
    [
        ("bytes 5-9/10", False),
        ("bytes 5-9/*", False),
        ("bytes 4-9/10", True),
        ("bytes 5-9/11", True),
        ("5-9", True),
        (None, True),
    ],
)
def test_ranges(header: str | None, wrong: bool) -> None:
    assert bool(range_fault(header, 5, 10)) is wrong


def test_an_address_is_told_without_its_secrets() -> None:
    assert told("https://u:p@host:8443/a/b?X-Amz-Signature=s") == "https://host:8443/a/b"
