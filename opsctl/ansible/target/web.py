"""HTTP as a fetch needs it: ranges, redirects that take no credential along, errors sorted by
whether asking again may help. Addresses are told without their query, which may be a signature."""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from typing import Any, Callable, Dict, Optional
from urllib.parse import urlsplit

TIMEOUT = 60.0  # seconds without a byte
# Said by servers that are overloaded, starting or behind something that is.
_AGAIN = (408, 425, 429)


class Wrong(Exception):
    """Asking again changes nothing; the text tells an operator why, and `hint` what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class GaveUp(Wrong):
    """A fault that passes, and that has not passed in all the time it was given."""


class Again(Exception):
    """A fault that passes. `wait`: seconds that the server asks for, 0 if it does not say."""

    def __init__(self, message: str, wait: float = 0.0) -> None:
        super().__init__(message)
        self.wait = wait


def told(url: str) -> str:
    """An address without user, password and query."""
    parts = urlsplit(url)
    place = parts.hostname or ""
    return f"{parts.scheme}://{place}{f':{parts.port}' if parts.port else ''}{parts.path}"


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Optional[urllib.request.Request]:
        """A hub hands its large files over to another server: that one gets no token."""
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None and _place(req.full_url) != _place(newurl):
            following.headers.pop("Authorization", None)
        return following


def _place(url: str) -> Any:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


_OPENER = urllib.request.build_opener(_Redirects())

Sign = Callable[[str, str], Dict[str, str]]  # method, address -> headers


class Web:
    """`sign` gives the headers that authorize a request; it is asked for each one anew."""

    def __init__(self, sign: Optional[Sign] = None, timeout: float = TIMEOUT) -> None:
        self._sign = sign
        self._timeout = timeout

    def open(self, url: str, headers: Optional[Dict[str, str]] = None, method: str = "GET") -> Any:
        """The answer, to be read and closed. Raises Wrong, Again."""
        if urlsplit(url).scheme not in ("http", "https"):
            raise Wrong(f"{told(url)}: only http and https are fetched")
        sent = {"Accept-Encoding": "identity", "User-Agent": "opsctl", **(headers or {})}
        sent.update(self._sign(method, url) if self._sign else {})
        request = urllib.request.Request(url, headers=sent, method=method)
        try:
            return _OPENER.open(request, timeout=self._timeout)
        except urllib.error.HTTPError as error:
            with error:
                raise _answered(error, url) from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise Wrong(f"{told(url)}: {error.reason.verify_message}") from None
            raise Again(f"{told(url)}: {error.reason}") from None
        except (OSError, http.client.HTTPException) as error:
            raise Again(f"{told(url)}: {type(error).__name__} {error}") from None

    def read(self, url: str, most: int = 64 << 20) -> Any:
        """(bytes, headers) of a small document."""
        with self.open(url) as answer:
            try:
                content = answer.read(most + 1)
            except (OSError, http.client.HTTPException) as error:
                raise Again(f"{told(url)}: {type(error).__name__}") from None
        if len(content) > most:
            raise Wrong(f"{told(url)} is longer than {most} bytes")
        return content, answer.headers


def _answered(error: urllib.error.HTTPError, url: str) -> Exception:
    text = f"{told(url)}: HTTP {error.code}"
    if error.code >= 500 or error.code in _AGAIN:
        after = error.headers.get("Retry-After", "")
        return Again(text, float(after) if after.isdigit() else 0.0)
    if error.code == 416:
        return Again(text)
    if error.code in (401, 403):
        return Wrong(f"{text}: model.source.token is missing, wrong, or has no access")
    if error.code in (404, 410):
        return Wrong(f"{text}: model.source names what is not there")
    return Wrong(text)


def bearer(token: Optional[str]) -> Optional[Sign]:
    if not token:
        return None
    return lambda method, url: {"Authorization": f"Bearer {token}"}
