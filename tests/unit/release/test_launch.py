"""The launcher: secrets reach the engine, and no output of it or of its children.

LAUNCH_PYTHON may name another interpreter for it, such as the oldest that it is written for.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsctl.release import launch

ENGINE = Path(__file__).with_name("canary_engine.py")
PEM = "-----BEGIN KEY-----\nAbCdEfGhIjKl\nxyz=\n-----END KEY-----\n"
SECRETS = {
    "api-key": "sk-canary-0123456789",
    "admin-api-key": "adm'in\\\"$%-canary",
    "env.PEM": PEM,
}


def start(tmp_path: Path, end: str) -> subprocess.Popen[bytes]:
    package = tmp_path / "site" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "launch_server.py").write_bytes(ENGINE.read_bytes())
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    for name, value in SECRETS.items():
        (credentials / name).write_bytes(value.encode())
    release = tmp_path / "release"
    release.mkdir()
    (release / "launch.py").write_bytes(Path(launch.__file__).read_bytes())
    return subprocess.Popen(
        [os.environ.get("LAUNCH_PYTHON", sys.executable), release / "launch.py", "--tp-size=8"],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(tmp_path / "site"),
            "PYTHONUNBUFFERED": "1",
            "CREDENTIALS_DIRECTORY": str(credentials),
            "CANARY_END": end,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def output(one: subprocess.Popen[bytes]) -> tuple[str, str]:
    out, err = one.communicate(timeout=60)
    return out.decode(), err.decode()


def test_secrets_reach_the_engine_and_no_output(tmp_path: Path) -> None:
    one = start(tmp_path, "7")
    out, err = output(one)
    assert one.returncode == 7, err
    assert f"main __main__ {one.pid} launch.py\nflags --tp-size=8\n" in out
    digests = [hashlib.sha256(value.encode()).hexdigest()[:8] for value in SECRETS.values()]
    assert f"digests {' '.join(digests)}\n" in out
    for text in (out, err):
        assert "canary-0" not in text and "$%-canary" not in text
        assert "AbCdEfGhIjKl" not in text and "xyz=" not in text
    assert "***!\n" in err
    assert "raw ***\n" in out and "no newline *** bar\r" in out
    for depth in range(3):
        assert f"TP{depth}] server_args=ServerArgs(api_key='***')\n" in err
    assert out.count("child ***\n") == 3
    assert "RuntimeError: a crash tells ***\n" in err


def test_the_last_line_of_a_killed_engine_is_not_lost(tmp_path: Path) -> None:
    one = start(tmp_path, "killed")
    out, _ = output(one)
    assert one.returncode == -signal.SIGKILL
    assert out.endswith("last words\n")


def test_a_stop_signal_reaches_the_engine_itself(tmp_path: Path) -> None:
    one = start(tmp_path, "drain")
    assert one.stdout is not None
    while one.stdout.readline() != b"ready\n":  # at once: it sleeps from here on
        assert one.poll() is None
    one.send_signal(signal.SIGTERM)
    out, _ = output(one)
    assert (one.returncode, out) == (0, "drained\n")


def test_a_journal_that_is_gone_does_not_end_the_engine(tmp_path: Path) -> None:
    one = start(tmp_path, "5")
    assert one.stdout is not None and one.stderr is not None
    one.stdout.close()
    one.stderr.close()
    assert one.wait(timeout=60) == 5


def masked(pieces: list[bytes], words: list[bytes]) -> tuple[bytes, bytes]:
    read, write = os.pipe()
    stream = launch.Masked(write, words)
    for piece in pieces:
        assert stream.write(piece) == len(piece)
    os.close(write)
    with os.fdopen(read, "rb") as out:
        return out.read(), stream.held


WORDS = [b"secret-one", b"cretin", b"one\nline"]


@given(st.lists(st.sampled_from([b"sec", b"ret", b"-o", b"ne", b"\n", b"line", b"in", b"x", b"s"])))
def test_however_it_is_cut_the_text_is_masked_and_nothing_else_is_lost(pieces: list[bytes]) -> None:
    out, held = masked(pieces, WORDS)
    assert not any(word in out for word in WORDS)
    whole, whole_held = masked([b"".join(pieces)], WORDS)
    assert (out, held) == (whole, whole_held)
    assert not held or any(word.startswith(held) and word != held for word in WORDS)


@pytest.mark.parametrize("value", ["a'b\"c\\d\n\té", "käse-und-brot", "x" * 300])
def test_the_usual_spellings_are_masked(value: str) -> None:
    import json
    from urllib.parse import quote

    words = launch.spellings({"env.X": value})
    for spelled in (value, repr(value), json.dumps(value), quote(value, safe=""), str([value])):
        out, held = masked([f"<{spelled}>\n".encode()], words)
        assert value.encode() not in out and b"***" in out and held == b""
