"""The stand-in as a process: its ranks, its port, its answers, its drain, its death."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from opsctl.rehearsal.scenario import packaged

CLOCK = 0.0005  # seconds of wall a second: a start of 700 s takes about 0.4 s
REFERENCE = [
    *("--model-path=/nonexistent", "--served-model-name=kimi-k2.5", "--tp-size=8"),
    *("--mem-fraction-static=0.88", "--enable-hierarchical-cache", "--hicache-ratio=4.0"),
    *("--reasoning-parser=kimi_k2", "--tool-call-parser=kimi_k2", "--enable-metrics"),
]
SMALL = ["--model-path=/nonexistent", "--enable-metrics"]
PROGRAM = """
import sys
from pathlib import Path
from opsctl.rehearsal import holdings, launch, scenario
scenario.INSTALLED = Path(sys.argv[1])
launch.main(sys.argv[3:], version=sys.argv[2])
"""


class Engine:
    def __init__(
        self, folder: Path, name: str, *flags: str, clock: float = CLOCK, edit: str = ""
    ) -> None:
        file = folder / "scenario.toml"
        version = "0.5.23" if name.startswith("small") else "0.5.9"
        text = packaged()[name].read_text()
        if edit:  # "name = value" in place of what the file has for that name
            text = re.sub(rf"^{edit.split()[0]} = .*$", edit, text, flags=re.M)
        file.write_text(f"clock = {clock}\n" + text.replace("\nclock = ", "\n#clock = "))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.log = folder / "log"
        own = SMALL if version == "0.5.23" else REFERENCE
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-c", PROGRAM, str(file), version),
                    *(*own, f"--port={self.port}", *flags),
                ],
                stderr=out,
            )
        self.web = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=10)

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    def says(self, words: str, seconds: float = 10) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if words in self.log.read_text():
                return True
            time.sleep(0.02)
        return False

    def ready(self) -> Engine:
        assert self.says("The server is fired up and ready to roll!"), self.log.read_text()
        return self

    def children(self) -> dict[int, str]:
        pid = self.process.pid
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return {int(c): title(int(c)) for c in found}

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.kill()
        return self.process.wait(10)


def title(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    started = Engine(tmp_path, "reference")
    yield started
    started.end()


def test_it_says_first_that_no_model_is_loaded(engine: Engine) -> None:
    engine.ready()
    assert "REHEARSAL: no model is loaded" in engine.lines()[0]


def test_each_rank_is_a_process_named_like_the_engines(engine: Engine) -> None:
    engine.ready()
    children = engine.children()
    assert sorted(children.values()) == [
        "sglang::detokenizer",
        *(f"sglang::scheduler_TP{n}" for n in range(8)),
    ]
    comms = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in children}
    assert comms == {"sglang::schedul", "sglang::detoken"}


def test_the_port_is_closed_until_all_ranks_are_ready(tmp_path: Path) -> None:
    engine = Engine(tmp_path, "reference", clock=0.002)
    try:
        assert engine.says("Load weight begin")
        with pytest.raises(httpx.ConnectError):
            engine.web.get("/health")
        engine.ready()
        assert engine.web.get("/health").status_code == 200
    finally:
        engine.end()


def test_health_is_503_while_it_warms_up(tmp_path: Path) -> None:
    engine = Engine(tmp_path, "small-0.5.23", edit="warmup = 4000.0")
    try:
        assert engine.says("Uvicorn running")
        assert engine.web.get("/health").status_code == 503
        assert engine.web.get("/v1/models").status_code == 200
    finally:
        engine.end()


def test_endpoints_of_the_older_version(engine: Engine) -> None:
    web = engine.ready().web
    codes = {
        path: web.get(path).status_code
        for path in (
            *("/health", "/health_generate", "/model_info", "/get_model_info", "/server_info"),
            *("/get_server_info", "/get_load", "/v1/loads", "/v1/models", "/metrics", "/nonsense"),
        )
    }
    assert codes.pop("/nonsense") == 404
    assert set(codes.values()) == {200}
    assert web.get("/health").content == b""
    assert web.get("/server_info").json()["hicache_ratio"] == 4.0
    assert web.get("/server_info").json()["max_total_num_tokens"] == 159277
    assert 'sglang:cached_tokens_total{cache_source="host"' in web.get("/metrics").text
    refused = web.post("/v1/chat/completions", json={"messages": "x"})
    assert (refused.status_code, refused.json()["object"]) == (400, "error")


def test_the_newer_version_differs_where_the_real_one_does(tmp_path: Path) -> None:
    engine = Engine(tmp_path, "small-0.5.23")
    try:
        web = engine.ready().web
        assert web.get("/get_load").status_code == 404
        assert web.get("/v1/loads").json()["loads"][0]["max_total_num_tokens"] == 4096
        engine.process.send_signal(signal.SIGTERM)
        assert engine.process.wait(10) == 0
        assert any("Finished server process" in line for line in engine.lines())
    finally:
        engine.end()


def test_a_key_is_demanded_and_printed_as_the_engine_does(tmp_path: Path) -> None:
    engine = Engine(tmp_path, "reference", "--api-key=canary")
    try:
        web = engine.ready().web
        assert web.get("/v1/models").status_code == 401
        assert web.get("/v1/models", headers={"Authorization": "Bearer canary"}).is_success
        assert web.get("/health").status_code == 200
        assert any("api_key='canary'" in line for line in engine.lines())
    finally:
        engine.end()


def test_a_stream_arrives_in_events(engine: Engine) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    with engine.ready().web.stream("POST", "/v1/chat/completions", json=body) as answer:
        events = [line for line in answer.iter_lines() if line]
    assert events[-1] == "data: [DONE]"
    assert len(events) > 10


def test_a_request_in_flight_finishes_before_it_stops(tmp_path: Path) -> None:
    engine = Engine(tmp_path, "reference")
    try:
        engine.ready()
        # 60 tokens a second of the scenario: 60,000 tokens take 1000 s of it, half a second here.
        body = {"messages": [{"role": "user", "content": "hi"}]}
        body |= {"max_tokens": 60000, "ignore_eos": True}
        got: list[httpx.Response] = []
        asking = threading.Thread(
            target=lambda: got.append(engine.web.post("/v1/chat/completions", json=body))
        )
        asking.start()
        assert engine.says("#running-req: 0, #queue-req: 0")
        time.sleep(0.1)
        engine.process.send_signal(signal.SIGTERM)
        code = engine.process.wait(10)
        asking.join(10)
        assert got[0].json()["usage"]["completion_tokens"] == 60000
        assert code == -signal.SIGKILL  # as 0.5.9 ends, orderly or not
        log = engine.log.read_text()
        assert "SIGTERM received." in log
        assert "Remaining number of requests 1." in log
        assert "Remaining number of requests 0." in log
    finally:
        engine.end()


def test_a_client_that_leaves_holds_up_nothing(engine: Engine) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 10**7}
    with pytest.raises(httpx.ReadTimeout):
        engine.ready().web.post(
            "/v1/chat/completions", json={**body, "ignore_eos": True}, timeout=0.5
        )
    engine.web.close()
    time.sleep(0.5)
    engine.process.send_signal(signal.SIGTERM)
    engine.process.wait(5)


@pytest.mark.parametrize("name", ["host-memory-refused", "crash-at-graphs"])
def test_a_crash_kills_the_whole_tree(tmp_path: Path, name: str) -> None:
    engine = Engine(tmp_path, name)
    assert engine.says("Load weight end")
    children = engine.children()
    assert engine.process.wait(10) == -signal.SIGKILL
    assert "Received sigquit from a child process." in engine.log.read_text()
    time.sleep(0.2)
    assert not [pid for pid in children if alive(pid)]


def alive(pid: int) -> bool:
    """A zombie, which only waits for its parent's parent to look, is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_hang_moves_nothing(tmp_path: Path) -> None:
    engine = Engine(tmp_path, "hang-in-loading")
    try:
        assert engine.says("40% Completed")
        time.sleep(0.5)
        before = engine.log.read_text(), cpu(engine)
        time.sleep(0.5)
        assert (engine.log.read_text(), cpu(engine)) == before
    finally:
        engine.end()


def cpu(engine: Engine) -> list[str]:
    """User and system ticks of all its processes."""
    pids = [engine.process.pid, *engine.children()]
    return [
        f"{pid} {Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[11:13]}"
        for pid in pids
    ]


def test_health_goes_on_while_generation_hangs(tmp_path: Path) -> None:
    engine = Engine(tmp_path, "health-200-but-generation-hangs")
    try:
        web = engine.ready().web
        assert web.get("/health").status_code == 200
        with pytest.raises(httpx.ReadTimeout):
            body = {"messages": [{"role": "user", "content": "hi"}]}
            web.post("/v1/chat/completions", json=body, timeout=1)
        assert web.get("/health").status_code == 200
    finally:
        engine.end()


def test_a_lost_rank_is_seen_in_health(engine: Engine) -> None:
    engine.ready()
    victim = next(pid for pid, name in engine.children().items() if name.endswith("TP3"))
    os.kill(victim, signal.SIGKILL)
    while alive(victim):
        time.sleep(0.02)
    assert engine.web.get("/health").status_code == 503


def test_a_taken_port_ends_it(tmp_path: Path) -> None:
    engine = Engine(tmp_path, "small-0.5.23", "--host=203.0.113.7")
    assert engine.process.wait(10) == -signal.SIGKILL
    assert "error while attempting to bind on address" in engine.log.read_text()


def test_a_scenario_of_another_version_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('base = "reference"\nname = "x"\n')
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(file), "0.5.23", "--model-path=/m"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "scenario x has the lines of 0.5.9, not of 0.5.23" in done.stderr
