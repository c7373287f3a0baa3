"""Environments from real indexes over HTTP, by the real pip and uv: two indexes, hashes, a mirror
that goes away in the middle."""

from __future__ import annotations

import base64
import hashlib
import shutil
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opsctl.ansible import engine as action
from opsctl.ansible.target import engine
from opsctl.rehearsal import wheel
from opsctl.spec import load

TOOLS = ("pip", "uv")


def torch(folder: Path) -> Path:
    """A wheel of that name, of a build for CUDA 12.8, which no other index has."""
    info, name = "torch-2.9.1+cu128.dist-info", "torch-2.9.1+cu128-py3-none-any.whl"
    files = {
        "torch/__init__.py": b"__version__ = '2.9.1+cu128'\n",
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: torch\nVersion: 2.9.1+cu128\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\n"
        b"Tag: py3-none-any\n",
    }
    rows = []
    for path, body in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(body)}\n")
    files[f"{info}/RECORD"] = ("".join(rows) + f"{info}/RECORD,,\n").encode()
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / name, "w") as archive:
        for path, body in files.items():
            archive.writestr(path, body)
    return folder / name


class Mirror:
    """Two indexes; with `torn` every wheel ends in its middle, and the connection with it."""

    def __init__(self, folder: Path) -> None:
        self.torn, self.asked, made = False, [], wheel.build("0.5.9", folder / "wheels")
        wheels = {"sglang": made.path, "torch": torch(folder / "torch")}
        self.pages: dict[str, bytes] = {}
        for index, name in (("/simple", "sglang"), ("/whl/cu128", "torch")):
            file = wheels[name]
            link = f"{file.name.replace('+', '%2B')}"
            self.pages[f"{index}/{name}/"] = f'<a href="{link}">{file.name}</a>'.encode()
            self.pages[f"{index}/{name}/{link}"] = file.read_bytes()
        self.text = "".join(
            f"{name}=={file.name.split('-')[1]} --hash=sha256:"
            f"{hashlib.sha256(file.read_bytes()).hexdigest()}\n"
            for name, file in wheels.items()
        )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Mirror, str]]:
    mirror = Mirror(tmp_path_factory.mktemp("mirror"))

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            mirror.asked.append(self.path)
            body = mirror.pages.get(self.path.replace("+", "%2B"))
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            whole = not (mirror.torn and self.path.endswith(".whl"))
            if self.command == "HEAD":
                return
            self.wfile.write((body or b"") if whole else (body or b"")[: len(body or b"") // 2])

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield mirror, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def asked(
    tmp_path: Path, served: tuple[Mirror, str], monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """What the role asks the host for, from the description on."""
    mirror, address = served
    root, file = str(tmp_path / "sglang" / "0.5.9"), tmp_path / "requirements.txt"
    file.write_text(mirror.text)
    install = {"requirements": str(file), "index": f"{address}/simple/",
               "torch_index": f"{address}/whl/{{cuda}}/"}  # fmt: skip
    kimi = {"model": {"path": "/srv/m"}, "engine": {"version": "0.5.9", "root": root,
                                                     "install": install}}  # fmt: skip
    services = load({"hosts": {"h1": {"sglang_services": {"kimi": kimi}}}}, "h1")
    known = {"h1": SimpleNamespace(services=services)}
    monkeypatch.setattr(action, "described", lambda *_: known)
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    told = {"requirements": str(file), "mirror": None, "resolve": True}
    environment = {"version": "0.5.9", "root": root, "cuda": False, "install": told}
    args = action.look_args(environment, sys.executable) | {"do": "build", "check": False}
    task: Any = SimpleNamespace(task_vars={"inventory_hostname": "h1"}, _loader=None)
    filled = action.ActionModule._with_index(task, args["install"], root, "0.5.9")
    return args | {"install": filled}


@pytest.fixture(params=TOOLS)
def tool(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    found = shutil.which("uv")
    monkeypatch.setattr(
        engine.shutil, "which", lambda name: found if request.param == "uv" else None
    )
    return str(request.param)


def left(root: str) -> list[Path]:
    """Whatever an installation that was refused would leave behind."""
    folder = Path(root).parent
    return [p for p in (*folder.glob("*"), *folder.glob(".builds/[!.]*")) if p.name != ".builds"]


def test_a_mirror_that_goes_away_in_the_middle_leaves_nothing_and_is_tried_again(
    asked: dict[str, Any], served: tuple[Mirror, str], tool: str
) -> None:
    """Then torch comes from the index of the release's CUDA."""
    served[0].torn = True
    try:
        told = engine.main(asked)
    finally:
        served[0].torn = False
    assert told["problems"] and "sglang" in told["problems"][0], told
    assert left(asked["root"]) == []
    served[0].asked.clear()
    done = engine.main(asked)
    assert done["problems"] == [] and done["changed"], done
    assert engine.installed(asked["root"]) == "0.5.9+rehearsal"
    assert any(p.startswith("/whl/cu128/torch/") and p.endswith(".whl") for p in served[0].asked)
    assert engine.main(asked | {"do": "look"})["state"] == "ready"


@pytest.mark.parametrize("tool", TOOLS[1:], indirect=True)  # pip's: test_engine_program
def test_a_package_of_another_hash_is_refused_by_name(asked: dict[str, Any], tool: str) -> None:
    text = asked["install"]["requirements"]
    text = text.replace(text.rpartition("sha256:")[2], "0" * 64 + "\n")
    digest = hashlib.sha256(text.encode()).hexdigest()
    install = asked["install"] | {"requirements": text, "digest": digest}
    said = "\n".join(engine.main(asked | {"install": install})["problems"])
    assert "torch" in said and "Hash mismatch" in said, said
    assert left(asked["root"]) == []


@pytest.mark.parametrize(
    ("index", "torch_index", "trusted"),
    [
        ("https://m/simple", None, None),
        ("http://m:80/simple", None, "m:80"),
        ("https://m/s", "http://u:CANARY@t/whl", "t"),
        ("http://m/s", "http://t/whl", "m t"),
    ],
)
def test_an_index_without_tls_is_taken_since_hashes_decide(
    index: str, torch_index: Any, trusted: Any
) -> None:
    install = {"index": index, "torch_index": torch_index}
    assert engine.indexes(install, "PIP").get("PIP_TRUSTED_HOST") == trusted
    assert "PIP_TRUSTED_HOST" not in engine.indexes(install, "UV")
