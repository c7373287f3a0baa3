"""Starts the engine with its secrets, which stand in no unit and no argv, and masks its output.

This file is copied into the release. It needs nothing but Python 3.9. multiprocessing runs it
again in every child that it spawns (as "__mp_main__", before the child's own work), so children
mask too. The masking happens inside each write: there is no pipe and no other process that could
lose the last lines of a crash, and systemd's main process stays the engine itself.
"""

import io
import json
import os
import re
import runpy
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

FLAGS = ("api-key", "admin-api-key")
MASK = b"***"
SHORTEST = 8  # lines of a secret below this are too common in other text to be masked alone


def read_secrets(folder: str) -> dict[str, str]:
    return {path.name: path.read_bytes().decode() for path in sorted(Path(folder).iterdir())}


def spellings(secrets: dict[str, str]) -> list[bytes]:
    """Every way in which logs may spell the secrets, the longest first."""
    found: set[str] = set()
    for value in secrets.values():
        found |= {value, repr(value)[1:-1], json.dumps(value)[1:-1], quote(value, safe="")}
        found |= {line for line in value.splitlines() if len(line) >= SHORTEST}
    return sorted(
        (s.encode("utf-8", "backslashreplace") for s in found if s), key=len, reverse=True
    )


class Masked(io.RawIOBase):
    """A file descriptor that writes everything but the secrets, at once.

    A secret may come in pieces: the end of a piece that could be the beginning of a secret, and
    nothing more, is held until the next piece. A journal that is gone does not end the engine.
    """

    def __init__(self, fd: int, words: list[bytes]) -> None:
        self.fd, self.held, self.lock = fd, b"", threading.RLock()
        self.pattern = re.compile(b"|".join(map(re.escape, words)))
        self.beginnings = {word[:n] for word in words for n in range(1, len(word))}
        self.longest = max(map(len, words)) - 1
        os.register_at_fork(after_in_child=lambda: setattr(self, "lock", threading.RLock()))

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.fd

    def write(self, data: Any) -> int:
        with self.lock:
            text = self.held + bytes(data)
            last = max((match.end() for match in self.pattern.finditer(text)), default=0)
            sizes = range(min(self.longest, len(text) - last), 0, -1)
            keep = len(text) - next((n for n in sizes if text[-n:] in self.beginnings), 0)
            self.held, ready = text[keep:], self.pattern.sub(MASK, text[:keep])
            try:
                while ready:
                    ready = ready[os.write(self.fd, ready) :]
            except ConnectionError:
                pass
        return len(data)


def mask_output(secrets: dict[str, str]) -> None:
    for name, fd in (("stdout", 1), ("stderr", 2)):
        raw: Any = Masked(fd, spellings(secrets))
        stream = io.TextIOWrapper(raw, "utf-8", "backslashreplace", line_buffering=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


if __name__ in ("__main__", "__mp_main__"):
    SECRETS = read_secrets(os.environ["CREDENTIALS_DIRECTORY"])
    mask_output(SECRETS)
if __name__ == "__main__":
    sys.path.pop(0)  # this folder, which holds no modules
    os.environ.update({n[4:]: value for n, value in SECRETS.items() if n.startswith("env.")})
    sys.argv += [f"--{name}={SECRETS[name]}" for name in FLAGS if name in SECRETS]
    runpy.run_module("sglang.launch_server", run_name="__main__")
