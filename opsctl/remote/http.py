"""httpx to a host's own ports through its SSH connection.

Where the host forbids TCP forwarding, the same requests go through the ground floor's `probe`.
Keys travel in headers only; nothing here logs.
"""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterable, Iterator
from typing import Any

import httpcore
import httpx

from opsctl.remote import onhost
from opsctl.remote.host import Host, Tunnels

TIMEOUT = httpx.Timeout(30.0, connect=10.0)
_REACHABLE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


def client(
    host: Host, address: str, port: int, *, api_key: str = "", timeout: httpx.Timeout = TIMEOUT
) -> httpx.Client:
    """A client whose base address is the service on that host; one per thread.

    Raises nothing; its requests raise httpx's errors, and Unreachable if SSH itself is lost.
    """
    address = _REACHABLE.get(address, address)
    shown = f"[{address}]" if ":" in address else address
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    return httpx.Client(
        base_url=f"http://{shown}:{port}",
        headers=headers,
        timeout=timeout,
        transport=Transport(host),
        trust_env=False,  # a proxy of the operator's machine has no place here
    )


class Transport(httpx.BaseTransport):
    """Tunnels; changes to the probe for good when the host says that it forbids forwarding."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._pool: httpcore.ConnectionPool | None = None
        if isinstance(host, Tunnels):
            self._pool = httpcore.ConnectionPool(network_backend=_Backend(host), retries=0)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self._pool is not None:
            try:
                return _through(self._pool, request)
            except PermissionError:
                self._pool.close()
                self._pool = None
        return _probed(self._host, request)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()


# ---------------------------------------------------------------- the tunnel
class _Stream(httpcore.NetworkStream):
    """A channel as httpcore wants it."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._channel.settimeout(timeout)
        try:
            return bytes(self._channel.recv(max_bytes))
        except TimeoutError as error:
            raise httpcore.ReadTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._channel.settimeout(timeout)
        try:
            self._channel.sendall(buffer)
        except TimeoutError as error:
            raise httpcore.WriteTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    def close(self) -> None:
        self._channel.close()

    def get_extra_info(self, info: str) -> Any:
        # httpcore asks whether an idle connection may be used again
        if info != "is_readable":
            return None
        if isinstance(self._channel, socket.socket):
            return True  # not known: better a new connection than a dead one
        return bool(self._channel.closed or self._channel.eof_received)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, host: Tunnels) -> None:
        self._host = host

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        try:
            return _Stream(self._host.tunnel(host, port, timeout or 10.0))
        except PermissionError:
            raise
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error


class _Body(httpx.SyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._stream
        except _FAULTS as error:
            raise _as_httpx(error) from error

    def close(self) -> None:
        self._stream.close()


_FAULTS = (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError)


def _through(pool: httpcore.ConnectionPool, request: httpx.Request) -> httpx.Response:
    inner = httpcore.Request(
        method=request.method,
        url=httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        ),
        headers=request.headers.raw,
        content=request.stream,
        extensions=request.extensions,
    )
    try:
        answer = pool.handle_request(inner)
    except _FAULTS as error:
        raise _as_httpx(error) from error
    return httpx.Response(
        status_code=answer.status,
        headers=answer.headers,
        stream=_Body(answer.stream),
        extensions=answer.extensions,
    )


def _as_httpx(error: Exception) -> httpx.TransportError:
    """The exceptions of both libraries have the same names."""
    kind = getattr(httpx, type(error).__name__, httpx.TransportError)
    return kind(str(error))


# ---------------------------------------------------------------- the probe
def _probed(host: Host, request: httpx.Request) -> httpx.Response:
    request.read()
    limits = request.extensions.get("timeout") or {}
    seconds = float(limits.get("read") or 30.0)
    answer = onhost.call(host, "probe", stdin=probe_json(request, seconds), timeout=seconds + 30)
    return probe_response(answer, request)


def probe_json(request: httpx.Request, seconds: float) -> dict[str, Any]:
    """The request as the `probe` verb reads it from stdin."""
    return {
        "host": request.url.host,
        "port": request.url.port or 80,
        "method": request.method,
        "path": request.url.raw_path.decode("ascii"),
        "headers": [
            [key, value]
            for key, value in request.headers.multi_items()
            if key.lower() not in ("host", "content-length", "connection", "accept-encoding")
        ],
        "b64": base64.b64encode(request.content).decode() if request.content else "",
        "timeout": seconds,
    }


def probe_response(answer: dict[str, Any], request: httpx.Request) -> httpx.Response:
    """The `probe` verb's answer: {"status", "headers", "b64", "error"}; status 0: no answer."""
    status = int(answer.get("status") or 0)
    if status == 0:
        text = str(answer.get("error") or "no answer")
        kind = httpx.ReadTimeout if "within" in text else httpx.ConnectError
        raise kind(text, request=request)
    return httpx.Response(
        status,
        headers=[(str(key), str(value)) for key, value in answer.get("headers") or ()],
        content=base64.b64decode(answer.get("b64") or ""),
        request=request,
    )
