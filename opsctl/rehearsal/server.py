"""The stand-in engine's HTTP side: every endpoint that a deployer calls, for both versions."""

from __future__ import annotations

import json
import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opsctl.rehearsal import answers, info, metrics, plain
from opsctl.rehearsal.answers import BadRequest
from opsctl.rehearsal.state import STARTING, UNHEALTHY, UP, State

log = logging.getLogger("sglang.http_server")


class Handler(BaseHTTPRequestHandler):
    """Routes by method and path; each route writes its answer whole or streams it."""

    protocol_version = "HTTP/1.1"
    server_version = "uvicorn"
    state: State

    def version_string(self) -> str:
        return self.server_version

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the access line is written in uvicorn's own words."""

    def do_GET(self) -> None:
        self._route("GET")

    def do_POST(self) -> None:
        self._route("POST")

    def _route(self, method: str) -> None:
        path = self.path.partition("?")[0]
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        flags = self.state.serving.flags
        key, admin = flags.get("api-key"), flags.get("admin-api-key")
        if not info.auth(path, key, admin, self.headers.get("Authorization") or ""):
            return self._json({"error": "Unauthorized"}, 401)
        handle = ROUTES.get((method, path))
        if handle is None:
            known = any(p == path for _, p in ROUTES)
            return self._json(
                {"detail": "Method Not Allowed" if known else "Not Found"}, 405 if known else 404
            )
        try:
            handle(self, json.loads(body) if body else {})
        except BadRequest as refused:
            self._json(answers.error(str(refused), refused.kind), 400)
        except json.JSONDecodeError as error:
            self._json(answers.error(f"JSON decode error: {error}", "Bad Request"), 400)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        return None

    # -- writing

    def _access(self, status: int) -> None:
        client = f"{self.client_address[0]}:{self.client_address[1]}"
        phrase = HTTPStatus(status).phrase
        log.info(f'INFO:     {client} - "{self.command} {self.path} HTTP/1.1" {status} {phrase}')

    def _send(self, data: bytes, status: int, kind: str) -> None:
        self._access(status)
        self.send_response_only(status)
        if kind:
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _json(self, told: Any, status: int = 200) -> None:
        data = json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode()
        self._send(data, status, "application/json")

    def _events(self, pieces: Iterable[Mapping[str, Any]]) -> None:
        self._access(200)
        self.send_response_only(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            self._chunk(
                b"data: " + json.dumps(piece, separators=(",", ":"), ensure_ascii=False).encode()
            )
        self._chunk(b"data: [DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, data: bytes) -> None:
        data += b"\n\n"
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    # -- generating

    def _answer(
        self,
        body: Mapping[str, Any],
        answer: answers.Reply,
        whole: Callable[[str], dict[str, Any]],
        pieces: Callable[[str], Iterable[Mapping[str, Any]]] | None = None,
    ) -> None:
        """Take the time that the answer needs, hang where the engine would, then write it.

        A hanging engine keeps its request even when the client has left, so that it never drains.
        """
        state = self.state
        rid = state.begin(answer.prompt_tokens)
        try:
            while state.answers_nothing or not state.alive():
                time.sleep(0.1)
            if not body.get("stream"):
                self._take(state.pace * answer.completion_tokens)
                self._json(whole(rid))
            else:
                self._events(self._paced(pieces(rid) if pieces else [whole(rid)]))
        except BaseException:
            state.drop(rid)
            raise
        state.end(rid, answer)

    def _take(self, seconds: float) -> None:
        """Wait; a client that leaves meanwhile aborts its request. Raises ConnectionResetError."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            heard, _, _ = select.select([self.connection], [], [], min(left, 0.2))
            if heard:
                if not self.connection.recv(1, socket.MSG_PEEK):
                    raise ConnectionResetError
                time.sleep(min(left, 0.2))

    def _paced(self, pieces: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        for piece in pieces:
            yield piece
            time.sleep(self.state.pace)

    def chat(self, body: dict[str, Any]) -> None:
        told = self.state.serving
        answer = answers.reply(body, told)
        self._answer(
            body,
            answer,
            lambda rid: answers.chat(answer, told, rid, int(time.time())),
            lambda rid: (
                answers.chunk(delta, finish, told, rid, int(time.time()))
                for delta, finish in answers.deltas(answer)
            ),
        )

    def completions(self, body: dict[str, Any]) -> None:
        told, endless = self.state.serving, bool(body.get("ignore_eos"))
        most = int(body.get("max_tokens") or 16)
        answer = plain.reply(body.get("prompt", ""), most, told, endless=endless)
        self._answer(
            body, answer, lambda rid: plain.completion(answer, told, rid, int(time.time()))
        )

    def generate(self, body: dict[str, Any]) -> None:
        told, sampling = self.state.serving, body.get("sampling_params") or {}
        asked = body.get("input_ids") or body.get("text") or ""
        most, endless = int(sampling.get("max_new_tokens") or 128), sampling.get("ignore_eos")
        answer = plain.reply(asked, most, told, endless=bool(endless))
        begun = time.monotonic()
        self._answer(
            body,
            answer,
            lambda rid: plain.generated(answer, told, rid, time.monotonic() - begun),
        )

    # -- looking

    def health(self, _: dict[str, Any]) -> None:
        state = self.state
        if state.stopping:
            log.info("Health check request received during shutdown. Returning 503.")
            return self._send(b"", 503, "")
        if state.status == STARTING:
            return self._send(b"", 503, "")
        begun = time.monotonic()
        while time.monotonic() < begun + state.patience:
            time.sleep(state.look)
            if state.alive():
                state.status = UP
                state.tell({"new": 1, "cached": 0, "usage": 0.0, "running": 0})
                return self._send(b"", 200, "")
        log.error(
            "Health check failed. Server couldn't get a response from detokenizer for last "
            "20 seconds."
        )
        state.status = UNHEALTHY
        return self._send(b"", 503, "")

    def models(self, _: dict[str, Any]) -> None:
        self._json(info.models(self.state.serving, self.state.created))

    def model_info(self, _: dict[str, Any]) -> None:
        self._deprecated("/get_model_info", "/model_info")
        self._json(info.model_info(self.state.serving))

    def server_info(self, _: dict[str, Any]) -> None:
        self._deprecated("/get_server_info", "/server_info")
        self._json(info.server_info(self.state.serving, self.state.gpu))

    def get_load(self, _: dict[str, Any]) -> None:
        if self.state.serving.new:
            return self._json({"detail": "Not Found"}, 404)
        self._deprecated("/get_load", "/v1/loads")
        return self._json(info.old_load(len(self.state.running), time.monotonic()))

    def loads(self, _: dict[str, Any]) -> None:
        serving = self.state.serving
        running = len(self.state.running)
        self._json(info.new_loads(serving, self.state.gpu, running, time.time()))

    def metrics(self, _: dict[str, Any]) -> None:
        state = self.state
        if not state.serving.flags.get("enable-metrics"):
            return self._json({"detail": "Not Found"}, 404)
        with state.lock:
            text = metrics.render(state.counts, state.serving, state.gpu, len(state.running))
        return self._send(text.encode(), 200, "text/plain; version=0.0.4; charset=utf-8")

    def flush(self, _: dict[str, Any]) -> None:
        log.info("Cache flushed successfully!")
        self._send(
            b"Cache flushed.\nPlease check backend logs for more details. (When there are running "
            b"or waiting requests, the operation will not be performed.)\n",
            200,
            "text/plain; charset=utf-8",
        )

    def _deprecated(self, old: str, new: str) -> None:
        if self.path.partition("?")[0] == old:
            log.warning(
                f"Endpoint '{old}' is deprecated and will be removed in a future version. "
                f"Please use '{new}' instead."
            )


ROUTES: dict[tuple[str, str], Callable[[Handler, dict[str, Any]], None]] = {
    ("GET", "/health"): Handler.health,
    ("GET", "/health_generate"): Handler.health,
    ("GET", "/v1/models"): Handler.models,
    ("GET", "/model_info"): Handler.model_info,
    ("GET", "/get_model_info"): Handler.model_info,
    ("GET", "/server_info"): Handler.server_info,
    ("GET", "/get_server_info"): Handler.server_info,
    ("GET", "/get_load"): Handler.get_load,
    ("GET", "/v1/loads"): Handler.loads,
    ("GET", "/metrics"): Handler.metrics,
    ("GET", "/metrics/"): Handler.metrics,
    ("GET", "/flush_cache"): Handler.flush,
    ("POST", "/flush_cache"): Handler.flush,
    ("POST", "/v1/chat/completions"): Handler.chat,
    ("POST", "/v1/completions"): Handler.completions,
    ("POST", "/generate"): Handler.generate,
}


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def serve(host: str, port: int, state: State) -> Server:
    """Bind and answer in the background. Raises OSError if the port is taken."""
    handler = type("BoundHandler", (Handler,), {"state": state})
    server = Server((host, port), handler)
    threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
    return server
