"""Brings one file: asks for what is missing, believes no header that does not fit, checks the hash.

Whatever a server does, a file is put in place only with the size and the hash of the listing.
"""

from __future__ import annotations

import http.client
import random
import re
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from opsctl.ansible.target.partial import CHUNK, Partial
from opsctl.ansible.target.web import Again, GaveUp, Web, Wrong

PATIENCE = 10  # faults in a row without a byte more than ever before
LONGEST_WAIT = 60.0  # seconds between two of them
ROUNDS = 3  # a whole file of a wrong hash is fetched so often
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class Stopped(Exception):
    """Another file has failed for good."""


class Pace:
    """Shares a limit of bytes a second among all connections; 0 is none."""

    def __init__(self, limit: int, sleep: Callable[[float], None] = time.sleep) -> None:
        self._limit, self._sleep = limit, sleep
        self._lock = threading.Lock()
        self._free = time.monotonic()

    def take(self, size: int) -> None:
        if not self._limit:
            return
        with self._lock:
            now = time.monotonic()
            self._free = max(self._free, now) + size / self._limit
            wait = self._free - now
        if wait > 0:
            self._sleep(wait)


class Download:
    """One file after another, of several threads. `told` is given notes, `fault` what is waited
    for, `counted` bytes."""

    def __init__(
        self,
        web: Web,
        pace: Pace,
        told: Callable[[str], None],
        fault: Callable[[str], None],
        counted: Callable[[int], None],
        stop: threading.Event,
        base_wait: float = 1.0,
    ) -> None:
        self._web, self._pace, self._told, self._counted = web, pace, told, counted
        self._fault = fault
        self._stop, self._base_wait = stop, base_wait

    def fill(self, partial: Partial, file: Dict[str, Any]) -> str:
        """Its hash, when all of it is there and right. Raises Wrong, Stopped, OSError."""
        for _ in range(ROUNDS):
            self._whole(partial, file)
            digest = partial.digest()
            if file["hash"] in (None, digest):
                return digest
            self._told(f"{file['path']}: hash {digest} instead of {file['hash']}: fetched anew")
            self._restart(partial)
        raise Wrong(f"{file['path']}: {ROUNDS} times another hash than {file['hash']}")

    def _whole(self, partial: Partial, file: Dict[str, Any]) -> None:
        faults, best = 0, partial.have
        while True:
            try:
                if (file["size"] is not None and partial.have == file["size"]) or self._stream(
                    partial, file
                ):
                    return
            except Again as fault:
                faults, best = (1, partial.have) if partial.have > best else (faults + 1, best)
                if faults > PATIENCE:
                    raise GaveUp(f"{file['path']}: {faults} faults in a row: {fault}") from None
                self._fault(f"{file['path']}: {fault}")
                self._wait(faults, fault.wait)

    def _wait(self, faults: int, asked: float) -> None:
        span = min(self._base_wait * 2 ** (faults - 1), LONGEST_WAIT)
        if self._stop.wait(max(asked, span * random.uniform(0.5, 1.0))):
            raise Stopped

    def _stream(self, partial: Partial, file: Dict[str, Any]) -> bool:
        """One request. True if the body ended where it should. Raises Again."""
        with self._opened(partial, file) as answer:
            length = _number(answer.headers.get("Content-Length"))
            end = file["size"] if file["size"] is not None else _end(partial.have, length)
            while end is None or partial.have < end:
                if self._stop.is_set():
                    raise Stopped
                most = CHUNK if end is None else min(CHUNK, end - partial.have)
                try:
                    chunk = answer.read(most)
                except (OSError, http.client.HTTPException) as error:
                    raise Again(f"connection lost ({type(error).__name__})") from None
                if not chunk:
                    break
                self._pace.take(len(chunk))
                partial.write(chunk)
                self._counted(len(chunk))
        if end is not None and partial.have < end:
            raise Again(f"the body ended at {partial.have:,} of {end:,} bytes")
        return True

    def _opened(self, partial: Partial, file: Dict[str, Any]) -> Any:
        """An answer whose first byte is the one that is missing."""
        if "file" in file:
            answer = _Local(file["file"])
            answer.seek(partial.have)
            return answer
        headers = {"Range": f"bytes={partial.have}-"} if partial.have else {}
        if partial.have and partial.etag:
            headers["If-Range"] = partial.etag
        try:
            answer = self._web.open(file["url"], headers)
        except Again as fault:
            if "HTTP 416" in str(fault):
                self._restart(partial)
            raise
        try:
            self._judge(answer, partial, file)
        except BaseException:
            answer.close()
            raise
        return answer

    def _judge(self, answer: Any, partial: Partial, file: Dict[str, Any]) -> None:
        etag = answer.headers.get("ETag") or ""
        etag = "" if etag.startswith("W/") else etag
        if answer.status == 206:
            fault = range_fault(answer.headers.get("Content-Range"), partial.have, file["size"])
            if not partial.have or (partial.etag and etag and etag != partial.etag):
                fault = fault or "the file has changed on the server"
            if fault:
                self._restart(partial)
                raise Again(fault)
            return
        if answer.status != 200:
            raise Again(f"HTTP {answer.status}")
        length = _number(answer.headers.get("Content-Length"))
        if None not in (length, file["size"]) and length != file["size"]:
            raise Again(f"the server has {length:,} bytes, the listing says {file['size']:,}")
        if partial.have:
            self._told(f"{file['path']}: the server sends it from its beginning")
        self._restart(partial, etag)

    def _restart(self, partial: Partial, etag: str = "") -> None:
        self._counted(-partial.have)
        partial.restart(etag)


def range_fault(told: Optional[str], start: int, size: Optional[int]) -> str:
    """Why a 206 is not what was asked for; "" if it is."""
    match = _RANGE.fullmatch(told or "")
    if match is None:
        return f"Content-Range {told!r} cannot be read"
    total = None if match[3] == "*" else int(match[3])
    if int(match[1]) != start or (total is not None and size is not None and total != size):
        return f"Content-Range {told!r} is not from byte {start:,} of {size}"
    return ""


def _number(text: Optional[str]) -> Optional[int]:
    return int(text) if text and text.isdigit() else None


def _end(have: int, length: Optional[int]) -> Optional[int]:
    return None if length is None else have + length


class _Local:
    """A file of the host, read as an answer is."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("rb")  # noqa: SIM115 (closed by the with of who asked)
        self.headers: Dict[str, str] = {}

    def seek(self, at: int) -> None:
        self._file.seek(at)

    def read(self, most: int) -> bytes:
        return self._file.read(most)

    def __enter__(self) -> _Local:
        return self

    def __exit__(self, *_: Any) -> None:
        self._file.close()
