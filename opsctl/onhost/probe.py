"""One HTTP request from the host itself, for hosts whose sshd forbids forwarding."""

from __future__ import annotations

import base64
import http.client
import socket
import time
from typing import Any, Dict, List, Mapping

LIMIT = 8 << 20  # bytes of an answer


def probe(request: Mapping[str, Any]) -> Dict[str, Any]:
    """{"host", "port", "method", "path", "headers": [[k, v]], "b64", "timeout"} →
    {"status", "headers", "b64", "error"}. Status 0: no answer, `error` says why.

    The key travels in `headers`, hence through stdin, never through argv.
    """
    seconds = float(request.get("timeout") or 30.0)
    until = time.monotonic() + seconds
    connection = http.client.HTTPConnection(
        str(request["host"]), int(request["port"]), timeout=seconds
    )
    try:
        headers = {str(key): str(value) for key, value in request.get("headers") or ()}
        body = base64.b64decode(request.get("b64") or "") or None
        connection.request(str(request["method"]), str(request["path"]), body, headers)
        response = connection.getresponse()
        parts: List[bytes] = []
        while sum(map(len, parts)) < LIMIT:
            left = until - time.monotonic()
            if left <= 0:
                raise socket.timeout
            if connection.sock is not None:
                connection.sock.settimeout(left)
            part = response.read1(65536)
            if not part:
                break
            parts.append(part)
        found = [list(pair) for pair in response.getheaders()]
        body_text = base64.b64encode(b"".join(parts)).decode()
        return {"status": response.status, "headers": found, "b64": body_text, "error": ""}
    except socket.timeout:
        return _none(f"no whole answer within {seconds:g} s")
    except (OSError, http.client.HTTPException, ValueError) as problem:
        return _none(str(problem) or type(problem).__name__)
    finally:
        connection.close()


def _none(error: str) -> Dict[str, Any]:
    return {"status": 0, "headers": [], "b64": "", "error": error}
