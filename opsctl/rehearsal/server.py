"""The stand-in engine's HTTP side: every endpoint that a deployer calls, for both versions."""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opsctl.rehearsal import answers, info, metrics
from opsctl.rehearsal.answers import BadRequest, Serving

log = logging.getLogger("sglang.http_server")

STARTING, UP, UNHEALTHY = "starting", "up", "unhealthy"


@dataclass
class State:
    """What the handlers share. `alive`: whether every rank still runs; `tell`: to rank 0's log."""

    serving: Serving
    gpu: Mapping[str, Any]
    pace: float  # wall seconds a token
    look: float  # wall seconds of the engine's one-second look in /health
    patience: float  # wall seconds until /health gives up
    alive: Callable[[], bool]
    tell: Callable[[dict[str, Any]], None]
    created: int = field(default_factory=lambda: int(time.time()))
    status: str = STARTING
    stopping: bool = False
    running: dict[str, float] = field(default_factory=dict)
    counts: metrics.Counts = field(default_factory=metrics.Counts)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, prompt_tokens: int) -> str:
        rid = uuid.uuid4().hex
        with self.lock:
            self.running[rid] = time.monotonic()
            running = len(self.running)
        self.tell({"new": prompt_tokens, "cached": 0, "usage": 0.0, "running": running - 1})
        return rid

    def end(self, rid: str, answer: answers.Reply) -> None:
        with self.lock:
            self.counts.add(answer, time.monotonic() - self.running.pop(rid))

    def drop(self, rid: str) -> None:
        with self.lock:
            self.running.pop(rid, None)

    @property
    def answers_nothing(self) -> bool:
        return self.serving.fault == "health-200-but-generation-hangs" and self.status == UP


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

    def _generate(self, body: Mapping[str, Any], make: Callable[[], answers.Reply]) -> str:
        """Take the time that the answer needs; hang where the engine would. The request's id."""
        answer = make()
        rid = self.state.begin(answer.prompt_tokens)
        try:
            while self.state.answers_nothing or not self.state.alive():
                time.sleep(0.1)
            if not body.get("stream"):
                time.sleep(self.state.pace * answer.completion_tokens)
        except BaseException:
            self.state.drop(rid)
            raise
        return rid

    def _paced(self, pieces: Iterable[Mapping[str, Any]], rid: str) -> Iterator[Mapping[str, Any]]:
        for piece in pieces:
            yield piece
            time.sleep(self.state.pace)

    def chat(self, body: dict[str, Any]) -> None:
        state = self.state
        answer = answers.reply(body, state.serving)
        rid = self._generate(body, lambda: answer)
        try:
            if body.get("stream"):
                self._events(
                    self._paced(
                        (
                            answers.chunk(delta, finish, state.serving, rid, int(time.time()))
                            for delta, finish in answers.deltas(answer)
                        ),
                        rid,
                    )
                )
            else:
                self._json(answers.chat(answer, state.serving, rid, int(time.time())))
        finally:
            state.end(rid, answer)

    def completions(self, body: dict[str, Any]) -> None:
        state = self.state
        answer = answers.text_reply(
            body.get("prompt", ""),
            int(body.get("max_tokens") or 16),
            state.serving,
            endless=bool(body.get("ignore_eos")),
        )
        rid = self._generate(body, lambda: answer)
        try:
            told = answers.completion(answer, state.serving, rid, int(time.time()))
            if body.get("stream"):
                self._events([told])
            else:
                self._json(told)
        finally:
            state.end(rid, answer)

    def generate(self, body: dict[str, Any]) -> None:
        state, sampling = self.state, body.get("sampling_params") or {}
        answer = answers.text_reply(
            body.get("input_ids") or body.get("text") or "",
            int(sampling.get("max_new_tokens") or 128),
            state.serving,
            endless=bool(sampling.get("ignore_eos")),
        )
        begun = time.monotonic()
        rid = self._generate(body, lambda: answer)
        try:
            told = answers.generated(answer, state.serving, rid, time.monotonic() - begun)
            if body.get("stream"):
                self._events([told])
            else:
                self._json(told)
        finally:
            state.end(rid, answer)

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
