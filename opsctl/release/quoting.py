"""Values → unit text, such that systemd hands over exactly that value, or a refusal.

systemd reads each setting by its own rules (systemd.syntax(7), systemd.service(5), and tried on
systemd 252); hence one function a kind of setting. What a setting cannot carry is refused here
with the reason: systemd itself would only warn in the journal and go on without the value.

The text is ASCII wherever the setting knows escapes, so look-alike letters, direction marks and
invisible characters stand out in a unit and in its diff.
"""

from __future__ import annotations

import re

# Linux's MAX_ARG_STRLEN (32 pages of 4 KiB): one argument or variable, its final NUL included.
ARG_MAX_BYTES = 128 << 10
# systemd's LONG_LINE_MAX: one logical line of a unit, continuation lines included.
LINE_MAX_BYTES = 1 << 20
PATH_MAX_BYTES = 4096
NAME_MAX_BYTES = 255

_PLAIN = re.compile(r"[A-Za-z0-9_./:,=@+-]+")
_NAMED = {"\n": r"\n", "\t": r"\t", "\r": r"\r", '"': r"\"", "\\": r"\\"}
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# systemd's own strict rule for user names, less the upper case that useradd refuses.
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,30}")


class Unquotable(ValueError):
    """No unit text hands this value over as it is; the message says why."""


def argument(value: str) -> str:
    """One argument of ExecStart=, exact in the process's argv."""
    _utf8(value, ARG_MAX_BYTES)
    return _quoted(value.replace("$", "$$"))


def executable(path: str) -> str:
    """The program of ExecStart=. A `$` is refused: systemd expands it in argv[0] only."""
    _absolute(path)
    if "$" in path:
        raise Unquotable("a program's path cannot hold a $")
    return _quoted(path)


def environment(name: str, value: str) -> str:
    """NAME=VALUE for Environment=, exact in the process's environment."""
    if not _ENV_NAME.fullmatch(name):
        raise Unquotable("a variable's name is made of letters, digits and _")
    _utf8(f"{name}={value}", ARG_MAX_BYTES)
    return _quoted(f"{name}={value}")


def path(value: str) -> str:
    """A path of RequiresMountsFor=, where only a backslash before a character is an escape."""
    _absolute(value)
    return '"' + re.sub(r'(["\\])', r"\\\1", value).replace("%", "%%") + '"'


def credential(name: str, source: str) -> str:
    """NAME:PATH of LoadCredential=. systemd unquotes neither, so both must be plain."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,255}", name) or name in (".", ".."):
        raise Unquotable("a credential's name is made of letters, digits, _ . and -")
    _absolute(source)
    if not _PLAIN.fullmatch(source):
        raise Unquotable("a credential's path is made of letters, digits and _ . / - : , = @ +")
    return f"{name}:{source}"


def user(name: str) -> str:
    """A user or group for User= and Group=."""
    if not _USER.fullmatch(name):
        raise Unquotable("a user's name is up to 31 of a-z, 0-9, _ and -, a letter or _ first")
    return name


def text(value: str) -> str:
    """Free text for Description=, which knows specifiers but neither quotes nor escapes."""
    _utf8(value, LINE_MAX_BYTES)
    if bad := _control(value):
        raise Unquotable(f"a description cannot hold the control character {bad}")
    if value != value.strip() or value.endswith("\\"):
        raise Unquotable("a description cannot begin or end with a blank, or end with a backslash")
    return value.replace("%", "%%")


def whole(unit: str) -> str:
    """The unit itself; refused if it holds a line which systemd would not read to its end."""
    for line in unit.replace("\\\n", " ").split("\n"):
        if len(line.encode()) >= LINE_MAX_BYTES:
            raise Unquotable(f"the line {line[:40]}… is longer than systemd reads (1 MiB)")
    return unit


def _quoted(value: str) -> str:
    """Double-quoted text with C escapes; plain text stays bare. `$` is the caller's matter."""
    if _PLAIN.fullmatch(value):
        return value
    return '"' + "".join(_escape(char) for char in value).replace("%", "%%") + '"'


def _escape(char: str) -> str:
    if char in _NAMED:
        return _NAMED[char]
    code = ord(char)
    if 0x20 <= code < 0x7F:
        return char
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _utf8(value: str, limit: int) -> None:
    if "\0" in value:
        raise Unquotable("it holds a NUL character, which no argument or variable can")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise Unquotable("it is not valid Unicode (a lone surrogate)") from error
    if size >= limit:
        raise Unquotable(f"it is {size} bytes long; less than {limit} is allowed")


def _control(value: str) -> str:
    """The first control character, shown harmlessly; "" if there is none."""
    return next((f"U+{ord(c):04X}" for c in value if c < " " or c == "\x7f"), "")


def _absolute(value: str) -> None:
    _utf8(value, PATH_MAX_BYTES)
    if not value.startswith("/"):
        raise Unquotable("a path must be absolute")
    if bad := _control(value):
        raise Unquotable(f"a path in a unit cannot hold the control character {bad}")
    for part in value.split("/"):
        if part in (".", ".."):
            raise Unquotable("a path must not hold . or .. as a part")
        if len(part.encode()) > NAME_MAX_BYTES:
            raise Unquotable(f"a part of a path is at most {NAME_MAX_BYTES} bytes long")
