"""AWS Signature Version 4 for GET and HEAD without a body, as object stores ask for it."""

from __future__ import annotations

import hashlib
import hmac
from datetime import datetime, timezone
from typing import Callable, Dict, Optional
from urllib.parse import quote, unquote, urlsplit

EMPTY = hashlib.sha256(b"").hexdigest()


def signer(
    key: str,
    secret: str,
    region: str,
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
) -> Callable[[str, str], Dict[str, str]]:
    """Headers that authorize a request; the range is not part of what is signed."""
    return lambda method, url: sign(method, url, {}, key, secret, region, now())


def sign(
    method: str,
    url: str,
    more: Dict[str, str],
    key: str,
    secret: str,
    region: str,
    at: datetime,
) -> Dict[str, str]:
    """`more`: further headers to sign."""
    parts = urlsplit(url)
    stamp = at.strftime("%Y%m%dT%H%M%SZ")
    told = {"x-amz-content-sha256": EMPTY, "x-amz-date": stamp}
    headers = {"host": parts.netloc, **{k.lower(): v for k, v in more.items()}, **told}
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    path = quote(unquote(parts.path) or "/", safe="/~")
    asked = "\n".join([method, path, _query(parts.query), lines, names, EMPTY])
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, _sha256(asked)])
    step = ("AWS4" + secret).encode()
    for word in (stamp[:8], region, "s3", "aws4_request"):
        step = hmac.new(step, word.encode(), hashlib.sha256).digest()
    signature = hmac.new(step, text.encode(), hashlib.sha256).hexdigest()
    credential = f"Credential={key}/{scope},SignedHeaders={names},Signature={signature}"
    return {**told, "Authorization": f"AWS4-HMAC-SHA256 {credential}"}


def _query(query: str) -> str:
    pairs = [part.partition("=") for part in query.split("&") if part]
    named = sorted((quote(unquote(k), safe="~"), quote(unquote(v), safe="~")) for k, _, v in pairs)
    return "&".join(f"{name}={value}" for name, value in named)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def split(token: Optional[str]) -> Optional[tuple[str, str]]:
    """ "KEY_ID:SECRET" → both; None without one."""
    key, _, secret = (token or "").partition(":")
    return (key, secret) if secret else None
