"""The kinds of values in a description: how they are written, and what is refused, in words.

Each `Kind` in an annotation is the name that the generated reference shows for it.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field, TypeAdapter

# The service's name becomes a unit, a folder and a link.
SERVICE_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,46}[a-z0-9])?")

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h)?")
_UNIT = {"ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, None: 1.0}
_SIZE = re.compile(r"\d+(\.\d+)?\s*([kmgtpe]i?)?b?", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(\.\d+)?")
_BYTES: TypeAdapter[ByteSize] = TypeAdapter(ByteSize)
LEAST = 1 << 20  # bytes; no size of a description is below, but 0
FEW = "less than 1 MiB is never meant"
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_ENV = re.compile(r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|(ACCESS|SECRET)_KEY)$")
# Tokens of a text, not of a login: what stands for each, and the unit in which things are counted.
_TEXT_TOKEN = re.compile(
    r"(^|_)(PER(_KI)?|BOS|EOS|PAD|UNK|MASK|SEP|CLS|IM|IMAGE|VIDEO|AUDIO|DRAFT|NEXT|FIRST|NEW|TO|REGISTER"
    r"|SPECIAL|STOP|THINK|LAST)_?TOKEN$"
)
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+]{0,40}")


@dataclass(frozen=True)
class Kind:
    text: str


def seconds(value: object) -> float:
    """A span of time in seconds, from a number or from text such as "90s", "15min", "2h"."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("a span of time is a number of seconds, or text such as 90s, 15min, 2h")
    if not isinstance(value, str):
        return float(value)
    match = _SPAN.fullmatch(value.strip())
    if match is None:
        raise ValueError("a span of time is a number of seconds, or text such as 90s, 15min, 2h")
    return float(match[1]) * _UNIT[match[2]]


def _size(value: object) -> object:
    """Only shapes that pydantic reads as it should: it takes "1e3" and a bare true, too."""
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if whole or (isinstance(value, str) and _SIZE.fullmatch(value.strip())):
        return _large(value)
    raise ValueError("a size is a number of bytes, or text such as 32GiB (2^30) or 40GB (10^9)")


def _large(value: object) -> object:
    """The value, unless it is of a few bytes: 32 for 32GiB would silently demand nothing."""
    if int(_BYTES.validate_python(value)) >= LEAST or not re.search("[1-9]", text := str(value)):
        return value
    bare = _NUMBER.fullmatch(text.strip())
    hint = f"did you mean {bare[0]}GiB?" if bare else "write for example 32GiB"
    raise ValueError(f"{'a number alone is bytes, and ' if bare else ''}{FEW}; {hint}")


def folder(value: str) -> str:
    """An absolute path on the host, as the unit will name it."""
    if not value.startswith("/"):
        raise ValueError("must be an absolute path on the host")
    if ".." in value.split("/"):
        raise ValueError("must not hold ..")
    return value


def _root(value: str) -> str:
    if ":" in value:
        raise ValueError("stands on PATH, so it cannot hold a :")
    return folder(value).rstrip("/") or "/"


def _version(value: str) -> str:
    if not _VERSION.fullmatch(value):
        raise ValueError("must be an exact version, for example 0.5.9")
    return value


def _address(value: str) -> str:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        if not _HOST_NAME.fullmatch(value):
            raise ValueError("must be an IP address or a host name") from None
    return value


def _user(value: str) -> str:
    if not _USER.fullmatch(value):
        raise ValueError("is not a user name: a to z, 0 to 9, _ and -, at most 32")
    if value == "root":
        raise ValueError("must be a system user of its own, not root")
    return value


def env_name(value: str) -> str:
    if not _ENV_NAME.fullmatch(value):
        raise ValueError("is not a name of a variable: letters, digits and _")
    return value


def secret_name(name: str) -> bool:
    """Whether it reads like the name of a secret; it need be no name that a variable can have."""
    upper = name.upper()
    return _SECRET_ENV.search(upper) is not None and not text_token(upper)


def text_token(upper: str) -> bool:
    """Whether a name in capitals is that of a token of a text, which everybody may know."""
    return _TEXT_TOKEN.search(upper) is not None


def public_env_name(value: str) -> str:
    """A name whose value may stand in the unit, which every user of the host can read."""
    if secret_name(env_name(value)):
        raise ValueError("reads like a secret; write it in secrets.env, so that it stays out of "
                         "the unit")  # fmt: skip
    return value


def gpus(value: tuple[int, ...]) -> tuple[int, ...]:
    if not value:
        raise ValueError("must name at least one GPU; leave it out for all")
    if any(index < 0 for index in value):
        raise ValueError("counts GPUs from 0")
    if len(set(value)) < len(value):
        raise ValueError("names a GPU twice")
    return value


_SPANS = Kind("time: seconds, 90s, 15min, 2h")
Seconds = Annotated[float, BeforeValidator(seconds), Field(ge=0), _SPANS]
Size = Annotated[ByteSize, BeforeValidator(_size), Kind("size: bytes, 32GiB (2^30), 40GB (10^9)")]
Folder = Annotated[str, AfterValidator(folder), Kind("absolute path on the host")]
Root = Annotated[str, AfterValidator(_root), Kind("absolute path on the host")]
Version = Annotated[str, AfterValidator(_version), Kind("version")]
Address = Annotated[str, AfterValidator(_address), Kind("IP address or host name")]
User = Annotated[str, AfterValidator(_user), Kind("user name")]


def _unit(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9:_.-]{1,240}\.service", value):
        raise ValueError(
            f"{value!r} is no service of systemd: letters, digits, : _ . - and then .service; an "
            "instance of a template (NAME@….service) cannot be taken over under another name"
        )
    return value


UnitName = Annotated[str, AfterValidator(_unit), Kind("name of a unit")]
Gpus = Annotated[tuple[int, ...], AfterValidator(gpus), Kind("list of numbers from 0")]
EnvName = Annotated[str, AfterValidator(public_env_name)]
SecretEnvName = Annotated[str, AfterValidator(env_name)]


def _commit(value: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{40}", value):
        raise ValueError(
            "must be a commit, 40 hex digits: a branch or tag may mean other files tomorrow"
        )
    return value


def _sha256(value: str) -> str:
    if not re.fullmatch(r"[0-9a-fA-F]{64}", value):
        raise ValueError("must be a sha256, 64 hex digits")
    return value.lower()


def _hub_name(value: str) -> str:
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", value, re.ASCII) or ".." in value:
        raise ValueError("must be ORGANIZATION/NAME as the hub names it")
    return value


def _http(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an address that begins with https:// or http://")
    if parts.username or parts.password or parts.query:
        raise ValueError("must hold no user, password or query; a secret is written in token")
    return value


def _rsync(value: str) -> str:
    if not re.fullmatch(r"([\w.-]+@)?[\w.:\[\]-]+:/[^\0\n]*|rsync://[\w.:-]+/[^\0\n]+", value):
        raise ValueError("must be USER@HOST:/FOLDER or rsync://HOST/MODULE")
    return value


Commit = Annotated[str, AfterValidator(_commit), Kind("commit: 40 hex digits")]
Sha256 = Annotated[str, AfterValidator(_sha256), Kind("sha256: 64 hex digits")]
HubName = Annotated[str, AfterValidator(_hub_name), Kind("ORGANIZATION/NAME")]
HttpAddress = Annotated[str, AfterValidator(_http), Kind("http or https address")]
RsyncPlace = Annotated[str, AfterValidator(_rsync), Kind("rsync address")]
Patterns = Annotated[tuple[str, ...], Kind("list of patterns")]
