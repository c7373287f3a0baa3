"""Asking an engine: bounded in time and size, and the key goes nowhere but its header."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from opsctl.onhost import probes
from opsctl.onhost.probes import Answer, Request


class Engine(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path == "/health":
            self._say(200, b"")
        elif self.path == "/headers":
            self._say(200, json.dumps(dict(self.headers)).encode())
        elif self.path == "/get_load":
            self._say(200, b"[]")
        elif self.path == "/huge":
            self.send_response(200)
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b"x" * 65536)
            except OSError:
                pass
        else:
            self._say(404, b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._say(200, json.dumps({"path": self.path, "got": json.loads(body)}).encode())


@pytest.fixture(scope="module")
def address() -> Iterator[dict]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {"host": "0.0.0.0", "port": server.server_port}
    server.shutdown()
    server.server_close()


@contextmanager
def raw(speak: Callable[[socket.socket], None]) -> Iterator[dict]:
    """A server that says anything at all."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        peer, _ = listening.accept()
        with peer:
            try:
                peer.recv(65536)
                speak(peer)
            except OSError:
                pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield {"host": "127.0.0.1", "port": listening.getsockname()[1]}
    listening.close()
    thread.join(5)


def test_a_healthy_engine_answers_with_nothing(address: dict) -> None:
    answer = probes.send(address, probes.health(), 5)
    assert (answer.status, answer.body, answer.error) == (200, b"", "")
    assert answer.json() is None


def test_post_sends_json(address: dict) -> None:
    answer = probes.post_json(address, "/v1/completions", {"a": "ü"}, 5)
    assert answer.json() == {"path": "/v1/completions", "got": {"a": "ü"}}


def test_the_key_is_read_from_its_file(address: dict, tmp_path: Path) -> None:
    key = tmp_path / "api-key"
    key.write_text("CANARY\n")
    headers = probes.get(address, "/headers", 5, str(key)).json()
    assert headers["Authorization"] == "Bearer CANARY"
    assert "Authorization" not in probes.get(address, "/headers", 5).json()


@pytest.mark.parametrize("content", ["CANARY\r\nX: y", "CANARY\x00", "CANARYü"])
def test_a_key_that_no_header_can_carry_is_not_told(
    address: dict, tmp_path: Path, content: str
) -> None:
    key = tmp_path / "api-key"
    key.write_text(content)
    answer = probes.get(address, "/headers", 5, str(key))
    assert answer.status == 0
    assert "CANARY" not in answer.error and str(key) in answer.error


def test_a_key_file_that_is_missing_is_named(address: dict) -> None:
    answer = probes.get(address, "/health", 5, "/nonexistent/api-key")
    assert answer.status == 0 and "/nonexistent/api-key" in answer.error


def test_a_closed_port_is_an_answer_not_an_exception() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    answer = probes.get({"host": "127.0.0.1", "port": port}, "/health", 5)
    assert answer.status == 0 and "refused" in answer.error.lower()


def test_an_endless_answer_is_cut(address: dict) -> None:
    answer = probes.get(address, "/huge", 20)
    assert answer.status == 200 and len(answer.body) == probes.LIMIT


def slow_start(peer: socket.socket) -> None:
    time.sleep(3)


def drip(peer: socket.socket) -> None:
    """Every byte comes within the socket's own timeout; the whole never does."""
    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(30):
        peer.sendall(b"x")
        time.sleep(0.1)


def drip_headers(peer: socket.socket) -> None:
    peer.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
    for _ in range(30):
        peer.sendall(b"x")
        time.sleep(0.1)


def drip_without_a_length(peer: socket.socket) -> None:
    """The end of the connection is the end of the body: a cut must not look like one."""
    peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(30):
        peer.sendall(b"x")
        time.sleep(0.1)


@pytest.mark.parametrize("speak", [slow_start, drip, drip_headers, drip_without_a_length])
def test_the_time_limit_is_for_the_whole_answer(speak: Callable[[socket.socket], None]) -> None:
    with raw(speak) as address:
        began = time.monotonic()
        answer = probes.get(address, "/health", 0.5)
        assert time.monotonic() - began < 2
    assert answer.status == 0 and "no whole answer within" in answer.error


@pytest.mark.parametrize(
    "said", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort"]
)
def test_an_engine_that_dies_or_talks_nonsense(said: bytes) -> None:
    with raw(lambda peer: peer.sendall(said)) as address:
        answer = probes.get(address, "/health", 2)
    assert answer.status == 0 and answer.error


def test_the_first_path_that_the_version_knows(address: dict) -> None:
    asked = []

    def ask(path: str) -> Answer:
        asked.append(path)
        return probes.get(address, path, 5)

    assert probes.first_of(probes.LOAD, ask).body == b"[]"
    assert asked == ["/v1/loads", "/get_load"]


@pytest.mark.parametrize(
    "request_, path",
    [
        (probes.generation("kimi-k2.5", 512), "/v1/completions"),
        (probes.reasoning("kimi-k2.5", 512), "/v1/chat/completions"),
        (probes.tools("kimi-k2.5", 512), "/v1/chat/completions"),
    ],
)
def test_requests_are_greedy_and_bounded(request_: Request, path: str) -> None:
    assert request_.path == path
    body = dict(request_.body or {})
    assert body["model"] == "kimi-k2.5" and body["temperature"] == 0
    assert 0 < body["max_tokens"] <= 512
    json.dumps(body)


def test_the_tool_call_is_left_to_the_parser() -> None:
    body = dict(probes.tools("m", 512).body or {})
    assert body["tool_choice"] == "auto"
    assert [tool["function"]["name"] for tool in body["tools"]] == ["get_weather"]
