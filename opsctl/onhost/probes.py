"""Questions to a running engine over HTTP: bounded in time and size, the key from its file.

The requests are values, so that tests and the controller can look at them; `send` alone does I/O.
The gates ask for an answer, not for sense: a tiny random model answers garbage and passes.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, Optional

if TYPE_CHECKING:  # http.client is imported by those who send: it costs every reader 10 ms
    import http.client

LIMIT = 4 << 20  # bytes of an answer; the largest real one is /metrics with about 100 KB


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    body: Optional[Mapping[str, Any]] = None


@dataclass(frozen=True)
class Answer:
    """`status` 0: no answer, and `error` says why. `body` is cut at LIMIT."""

    status: int
    body: bytes = b""
    seconds: float = 0.0
    error: str = ""

    def json(self) -> Any:
        """The body as JSON; None if it is none."""
        try:
            return json.loads(self.body.decode("utf-8", "replace"))
        except ValueError:
            return None

    def text(self) -> str:
        return self.body.decode("utf-8", "replace")


# -- requests -----------------------------------------------------------------------------------

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Name of the city."}},
            "required": ["city"],
        },
    },
}
# New and old name: 0.5.23 knows the first alone.
LOAD = ("/v1/loads", "/get_load")


def health() -> Request:
    return Request("GET", "/health")


def metrics() -> Request:
    return Request("GET", "/metrics")


def generation(model: str, max_tokens: int = 16) -> Request:
    """Greedy and past the end-of-sequence token, so that any working model gives tokens."""
    body = {
        "model": model,
        "prompt": "The capital of France is",
        "max_tokens": min(max_tokens, 16),
        "temperature": 0,
        "ignore_eos": True,
    }
    return Request("POST", "/v1/completions", body)


def reasoning(model: str, max_tokens: int) -> Request:
    return _chat(model, "What is 17 + 25? Answer with the number.", max_tokens)


def tools(model: str, max_tokens: int) -> Request:
    """tool_choice stays "auto": "required" would be forced by a grammar, not read by the parser."""
    text = "What is the weather in Paris right now? Use the tool get_weather."
    return _chat(model, text, max_tokens, tools=[TOOL], tool_choice="auto")


def _chat(model: str, text: str, max_tokens: int, **more: Any) -> Request:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": max_tokens,
        "temperature": 0,
        **more,
    }
    return Request("POST", "/v1/chat/completions", body)


# -- the rim ------------------------------------------------------------------------------------


def send(
    address: Mapping[str, Any], request: Request, timeout: float, key_file: Optional[str] = None
) -> Answer:
    """Send one request and wait at most `timeout` seconds for the whole answer.

    `address` is the manifest's {"host", "port"}. Nothing is raised: what goes wrong is in `error`.
    """
    import http.client

    began = time.monotonic()
    connection = http.client.HTTPConnection(
        _reachable(str(address["host"])), int(address["port"]), timeout=timeout
    )
    status, body, error = 0, b"", ""
    try:
        headers = {"Accept": "*/*", "Connection": "close", **_authorization(key_file)}
        payload = None
        if request.body is not None:
            headers["Content-Type"] = "application/json"
            payload = json.dumps(request.body).encode()
        connection.request(request.method, request.path, body=payload, headers=headers)
        with _cut_off(connection, began + timeout):
            response = connection.getresponse()
            body = _body(response)
        status = response.status
    except (OSError, http.client.HTTPException, ValueError) as problem:
        error = str(problem) or type(problem).__name__
        if isinstance(problem, socket.timeout) or time.monotonic() >= began + timeout:
            error = f"no whole answer within {timeout:g} s"
    finally:
        connection.close()
    return Answer(status, body, time.monotonic() - began, error)


def get(
    address: Mapping[str, Any], path: str, timeout: float, key_file: Optional[str] = None
) -> Answer:
    return send(address, Request("GET", path), timeout, key_file)


def post_json(
    address: Mapping[str, Any],
    path: str,
    body: Mapping[str, Any],
    timeout: float,
    key_file: Optional[str] = None,
) -> Answer:
    return send(address, Request("POST", path, body), timeout, key_file)


def first_of(paths: "tuple[str, ...]", ask: Callable[[str], Answer]) -> Answer:
    """The answer of the first path that this version knows (404 elsewhere)."""
    answer = Answer(0, error="no path was asked")
    for path in paths:
        answer = ask(path)
        if answer.status != 404:
            break
    return answer


def _reachable(host: str) -> str:
    """An address to connect to, for one to listen on."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)


def _authorization(key_file: Optional[str]) -> Dict[str, str]:
    """OSError if the file cannot be read; its message names the file, never the key."""
    if not key_file:
        return {}
    with open(key_file, encoding="utf-8") as file:
        key = file.read().strip()
    if not key.isprintable() or not key.isascii():
        raise ValueError(f"the key in {key_file} holds characters that no HTTP header can carry")
    return {"Authorization": f"Bearer {key}"}


@contextmanager
def _cut_off(connection: http.client.HTTPConnection, until: float) -> Iterator[None]:
    """Shuts the connection down at a time: the socket's own timeout counts anew at each byte, so
    that a server which drips, headers or body, would never end. Raises socket.timeout then."""
    peer = connection.sock
    over = threading.Event()

    def shut() -> None:
        over.set()
        with suppress(OSError):
            peer.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(max(0.0, until - time.monotonic()), shut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    if over.is_set():  # a connection that was cut reads like one that ended
        raise socket.timeout


def _body(response: http.client.HTTPResponse) -> bytes:
    """The body, cut at LIMIT. IncompleteRead if it ends before its announced length."""
    import http.client

    parts: List[bytes] = []
    size = 0
    while size < LIMIT:
        part = response.read1(min(65536, LIMIT - size))
        if not part:
            break
        parts.append(part)
        size += len(part)
    if size < LIMIT and response.length:  # read1 takes an early end for the end
        raise http.client.IncompleteRead(b"", response.length)
    return b"".join(parts)
