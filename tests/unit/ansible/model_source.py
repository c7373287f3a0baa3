"""A model hub, an object store and a plain server in one, with faults: for tests of the fetch.

Of the hub's interface it speaks what a fetch asks: the tree of a commit (in pages), and files with
ranges, large ones by a redirect to another address, as a hub does.
"""

from __future__ import annotations

import hashlib
import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = 100_000  # from here on a file is kept by its sha256
TOKEN = "hub-CANARY-token-7f3a9"
Faults = tuple[str, ...]


def hub(address: str, **more: Any) -> dict[str, Any]:
    """The description of a source that is this hub."""
    return {"hub": "org/tiny", "revision": COMMIT, "endpoint": address, **more}


@dataclass
class Stock:
    """What is served, and what goes wrong. `faults`: by a file's path, one a request, in order."""

    files: dict[str, bytes]
    faults: dict[str, list[str]] = field(default_factory=dict)
    token: str = ""
    rate: int = 0  # bytes a second of each answer; 0: as fast as it goes
    page: int = 3  # entries of a page of the tree
    hits: list[tuple[str, str]] = field(default_factory=list)  # path, Range
    authorized: list[tuple[str, str]] = field(default_factory=list)  # path, Authorization
    edition: int = 0  # part of every ETag
    sent: int = 0  # bytes of all answers

    def manifest(self) -> bytes:
        rows = (f"{hashlib.sha256(b).hexdigest()}  {p}\n" for p, b in self.files.items())
        return "".join(rows).encode()


def content(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def small_model(shards: int = 4, size: int = 3_000_000) -> dict[str, bytes]:
    names = [f"model-{n:05}-of-{shards:05}.safetensors" for n in range(1, shards + 1)]
    index = {"weight_map": {f"layer.{n}": name for n, name in enumerate(names)}}
    files = {"config.json": b'{"model_type": "llama"}', "sub/notes.txt": b"notes\n"}
    files["model.safetensors.index.json"] = json.dumps(index).encode()
    return files | {name: content(size, n) for n, name in enumerate(names)}


@contextmanager
def served(stock: Stock, address: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Its address while it is served."""
    handler = type("Handler", (_Handler,), {"stock": stock})
    server = _Server((address, port), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://{address}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stock: Stock

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        path, stock = unquote(parts.path), self.stock
        authorization = self.headers.get("Authorization", "")
        stock.authorized.append((path, authorization))
        if path.startswith("/lfs/"):
            self._file(path[len("/lfs/") :])
        elif stock.token and authorization != f"Bearer {stock.token}":
            self._small(401, b"no")
        elif path == f"/api/models/org/tiny/tree/{COMMIT}":
            self._tree(parse_qs(parts.query))
        elif path.startswith(f"/org/tiny/resolve/{COMMIT}/"):
            self._resolve(path.split(f"/resolve/{COMMIT}/", 1)[1])
        elif path == "/bucket" and "list-type=2" in parts.query:
            self._bucket(parse_qs(parts.query))
        elif path.startswith(("/plain/", "/bucket/models/tiny/")):
            name = path.removeprefix("/plain/").removeprefix("/bucket/models/tiny/")
            if name == "SHA256SUMS":
                self._small(200, stock.manifest())
            else:
                self._file(name)
        else:
            self._small(404, b"no such thing")

    def _small(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self._paced(body)

    def _tree(self, query: dict[str, list[str]]) -> None:
        rows = [_row(path, body) for path, body in self.stock.files.items()]
        rows.insert(0, {"type": "directory", "oid": "0" * 40, "size": 0, "path": "sub"})
        start = int(query.get("cursor", ["0"])[0])
        end = start + self.stock.page
        more = f'<{self.path.split("?")[0]}?recursive=true&cursor={end}>; rel="next"'
        headers = {"Link": more} if end < len(rows) else {}
        self._small(200, json.dumps(rows[start:end]).encode(), **headers)

    def _resolve(self, path: str) -> None:
        if len(self.stock.files.get(path, b"")) >= LARGE:
            # Another name of this machine: a fetch must take it for another server.
            port = self.server.server_port  # type: ignore[attr-defined]
            host = self.headers["Host"].split(":")[0]
            other = "localhost" if host == "127.0.0.1" else host
            moved = f"http://{other}:{port}/lfs/{path}?signature=CANARY-signed"
            self._small(302, b"", Location=moved)
        else:
            self._file(path)

    def _bucket(self, query: dict[str, list[str]]) -> None:
        prefix = query["prefix"][0]
        there = self.stock.files | {"SHA256SUMS": self.stock.manifest()}
        keys = sorted(p for p in there if (prefix + p).startswith(prefix))
        start = int(query.get("continuation-token", ["0"])[0])
        end = start + self.stock.page
        rows = "".join(
            f"<Contents><Key>{prefix}{k}</Key><Size>{len(there[k])}</Size></Contents>"
            for k in keys[start:end]
        )
        more = f"<NextContinuationToken>{end}</NextContinuationToken>" if end < len(keys) else ""
        text = '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        self._small(200, f"{text}{rows}{more}</ListBucketResult>".encode())

    def _file(self, path: str) -> None:
        stock = self.stock
        asked = self.headers.get("Range", "")
        stock.hits.append((path, asked))
        body = stock.files.get(path)
        if body is None:
            self._small(404, b"")
            return
        waiting = stock.faults.get(path) if self.command == "GET" else None
        fault = waiting.pop(0) if waiting else ""
        if fault == "etag":
            stock.edition += 1
        etag = f'"{hashlib.md5(body).hexdigest()}-{stock.edition}"'
        if fault in ("500", "503", "429", "404", "416"):
            self._small(int(fault), b"", **{"Retry-After": "0"} if fault == "503" else {})
            return
        if self.headers.get("If-Range", etag) != etag or fault == "no-range":
            asked = ""
        start = int(asked[len("bytes=") : -1]) if asked else 0
        self._send(body, start, bool(asked), etag, fault)

    def _send(self, body: bytes, start: int, ranged: bool, etag: str, fault: str) -> None:
        rest = body[start:]
        self.send_response(206 if ranged else 200)
        self.send_header("ETag", etag)
        if ranged:
            shown = start + 7 if fault == "wrong-range" else start
            self.send_header("Content-Range", f"bytes {shown}-{len(body) - 1}/{len(body)}")
        length = len(rest) // 2 if fault == "short" else len(rest)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault == "corrupt" and rest:
            rest = rest[:-1] + bytes([rest[-1] ^ 1])
        if fault in ("cut", "etag", "short"):
            rest = rest[: len(rest) // 2]
        self._paced(rest)
        if fault in ("cut", "etag"):
            self.close_connection = True
            self.wfile.flush()
            self.connection.close()

    def _paced(self, body: bytes) -> None:
        step = max(self.stock.rate // 20, 1) if self.stock.rate else len(body) or 1
        try:
            for at in range(0, len(body), step):
                self.wfile.write(body[at : at + step])
                self.stock.sent += len(body[at : at + step])
                if self.stock.rate:
                    time.sleep(step / self.stock.rate)
        except OSError:
            self.close_connection = True


def _row(path: str, body: bytes) -> dict[str, Any]:
    oid = hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()
    row: dict[str, Any] = {"type": "file", "oid": oid, "size": len(body), "path": path}
    if len(body) >= LARGE:
        sha = hashlib.sha256(body).hexdigest()
        row["lfs"] = {"oid": sha, "size": len(body), "pointerSize": 134}
        row["oid"] = hashlib.sha1(b"a pointer").hexdigest()
    return row
