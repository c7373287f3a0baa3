"""httpx over a tunnel that is a plain socket here, and over the probe."""

from __future__ import annotations

import base64
import http.server
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from opsctl.remote import http as remote_http
from opsctl.remote.fake import Call, FakeHost


class Site(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/slow":
            threading.Event().wait(2)
        body = f"{self.path} {self.headers.get('Authorization', '')}".encode()
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in (body[:3], body[3:]):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        self.wfile.write(b"0\r\n\r\n")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(201)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        return


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *args: Any) -> None:
        """A client that has hung up, as the test of timeouts does."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with Server(("127.0.0.1", 0), Site) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


class Tunnelling(FakeHost):
    def tunnel(self, address: str, port: int, timeout: float) -> Any:
        return socket.create_connection((address, port), timeout)


class Forbidding(FakeHost):
    tries = 0

    def tunnel(self, address: str, port: int, timeout: float) -> Any:
        self.tries += 1
        raise PermissionError(f"{self.name} forbids TCP forwarding")


def test_through_the_tunnel(port: int) -> None:
    with remote_http.client(Tunnelling("h1"), "0.0.0.0", port, api_key="k3y") as client:
        assert client.get("/health").text == "/health Bearer k3y"
        assert client.post("/v1/x", json={"a": 1}).json() == {"a": 1}
        with client.stream("GET", "/metrics") as answer:
            assert b"".join(answer.iter_bytes()) == b"/metrics Bearer k3y"
        assert "k3y" not in repr(client.headers)


def test_timeouts_and_refusals_are_those_of_httpx(port: int) -> None:
    limits = httpx.Timeout(0.2)
    with (
        remote_http.client(Tunnelling("h1"), "127.0.0.1", port, timeout=limits) as client,
        pytest.raises(httpx.ReadTimeout),
    ):
        client.get("/slow")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = taken.getsockname()[1]
        with (
            remote_http.client(Tunnelling("h1"), "127.0.0.1", nobody) as client,
            pytest.raises(httpx.ConnectError),
        ):
            client.get("/")


def test_the_probe_where_forwarding_is_forbidden() -> None:
    def probe(call: Call) -> dict[str, Any]:
        asked = call.json
        assert (asked["host"], asked["port"], asked["path"]) == ("127.0.0.1", 30000, "/v1/x?a=1")
        assert ["authorization", "Bearer k3y"] in asked["headers"]
        assert all("k3y" not in word for word in call.args)
        body = base64.b64encode(base64.b64decode(asked["b64"]).upper()).decode()
        return {"status": 200, "headers": [["x-n", "1"]], "b64": body}

    host = Forbidding("h1", {"probe": probe})
    with remote_http.client(host, "127.0.0.1", 30000, api_key="k3y") as client:
        for _ in range(2):
            answer = client.post("/v1/x?a=1", content=b"abc")
            assert (answer.status_code, answer.text, answer.headers["x-n"]) == (200, "ABC", "1")
    assert host.tries == 1


@pytest.mark.parametrize(
    ("error", "kind"),
    [("Connection refused", httpx.ConnectError), ("no answer within 5 s", httpx.ReadTimeout)],
)
def test_a_probe_without_an_answer(error: str, kind: type[Exception]) -> None:
    host = FakeHost("h1", {"probe": {"status": 0, "error": error}})
    with remote_http.client(host, "127.0.0.1", 1) as client, pytest.raises(kind, match=error):
        client.get("/")
