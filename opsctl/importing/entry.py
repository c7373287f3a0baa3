"""Which program a process is: SGLang's server, by which way in, from which environment."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from opsctl.importing.marks import plain, theirs

_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
_WITH_VALUE = {"-W", "-X", "--check-hash-based-pycs"}
SERVER = ("sglang.launch_server", "sglang.srt.entrypoints.http_server")
_OTHERS = {
    "vllm": "vLLM, another engine",
    "ollama": "Ollama, another engine",
    "lmdeploy": "LMDeploy, another engine",
    "tgi": "TGI, another engine",
    "text-generation-launcher": "TGI, another engine",
    "llama-server": "llama.cpp, another engine",
    "trtllm-serve": "TensorRT-LLM, another engine",
    "tritonserver": "Triton, another engine",
    "ssh": "a command on another host: import that command alone, or what runs there (--host HOST)",
    "kubectl": "a command in a cluster: import the container's own command alone",
}
_NOT_SERVERS = {
    "sglang_router": "the router, not the engine: import the engines' own commands",
    "sglang.bench": "a benchmark of SGLang, not its server",
    "sglang.check_env": "a check of SGLang, not its server",
    "sglang.compile": "a compilation run of SGLang, not its server",
    "sglang.launch_router": "the router, not the engine: import the engines' own commands",
    "sglang.multimodal_gen": "SGLang's server for diffusion models, which opsctl does not run",
    "sglang.srt.disaggregation": "a part of a disaggregated deployment that is no engine",
    "vllm": "vLLM, another engine",
    "lmdeploy": "LMDeploy, another engine",
    "ktransformers": "KTransformers, another engine",
    "tensorrt_llm": "TensorRT-LLM, another engine",
}


@dataclass(frozen=True)
class Entry:
    """`args`: the engine's own. `root`: the environment that the program's path names, "" if it
    names none. `way`: how it was written. `switches`: Python's own options."""

    args: list[str]
    root: str
    way: str
    switches: tuple[str, ...] = ()


@dataclass(frozen=True)
class Other:
    """Not SGLang's server. `what`: what it is, "" if that cannot be said."""

    what: str


def entry(argv: Sequence[str]) -> Entry | Other:
    if not argv:
        return Other("")
    program = argv[0]
    base = PurePosixPath(program).name
    if _PYTHON.fullmatch(base):
        return _python(argv, program)
    if base == "sglang":
        return _sglang(list(argv[1:]), _root(program))
    if base in ("launch_server.py", "launch.py"):
        return _file(program, list(argv[1:]), "")
    if base in _OTHERS:
        return Other(_OTHERS[base])
    return Other("")


def _python(argv: Sequence[str], program: str) -> Entry | Other:
    switches: list[str] = []
    at = 1
    while at < len(argv) and argv[at].startswith("-") and argv[at] not in ("-m", "-c", "-"):
        word = argv[at]
        if word.startswith("-m") and len(word) > 2:
            return _module(word[2:], argv[at + 1 :], program, switches)
        switches.append(word)
        if word in _WITH_VALUE and at + 1 < len(argv):
            at += 1
            switches[-1] += f" {argv[at]}"
        at += 1
    if at >= len(argv):
        return Other("Python without a program")
    if argv[at] in ("-c", "-"):
        return Other("a program in Python's own text, which is not read")
    if argv[at] == "-m":
        name = argv[at + 1] if at + 1 < len(argv) else ""
        return _module(name, argv[at + 2 :], program, switches)
    root = _root(program)
    if PurePosixPath(argv[at]).name == "sglang":
        return _sglang(list(argv[at + 1 :]), root or _root(argv[at]), tuple(switches))
    return _file(argv[at], list(argv[at + 1 :]), root, tuple(switches))


def _module(name: str, args: Sequence[str], program: str, switches: Sequence[str]) -> Entry | Other:
    if name in SERVER:
        return Entry(list(args), _root(program), f"python -m {name}", tuple(switches))
    if name in ("sglang", "sglang.cli.main", "sglang.cli"):
        return _sglang(list(args), _root(program), tuple(switches))
    for start, what in _NOT_SERVERS.items():
        if name.startswith(start):
            return Other(what)
    return Other(f"the Python module {theirs(plain(name))}, which is not SGLang's server")


def _file(path: str, args: list[str], root: str, switches: tuple[str, ...] = ()) -> Entry | Other:
    parts = PurePosixPath(path).parts
    packaged = re.fullmatch(r"(/.+)/lib(?:64)?/python[0-9.]+/(?:site|dist)-packages/.*", path)
    if packaged and packaged[1] not in ("/usr", "/usr/local"):
        root = root or packaged[1]
    if parts[-1:] == ("launch_server.py",) and "sglang_router" not in parts:
        return Entry(args, root, plain(path), switches)
    if re.fullmatch(r"/etc/opsctl/[^/]+/releases/[^/]+/launch\.py", path):
        return Entry(args, root, path, switches)
    for start, what in _NOT_SERVERS.items():
        if any(part.startswith(start) for part in parts):
            return Other(what)
    return Other(f"{theirs(plain(path))}, a program that is not read")


def _sglang(args: list[str], root: str, switches: tuple[str, ...] = ()) -> Entry | Other:
    if args[:1] != ["serve"]:
        verb = theirs(plain(args[0])) if args else "nothing"
        return Other(f"sglang {verb}, not its server")
    args = args[1:]
    kept: list[str] = []
    while args:
        word = args.pop(0)
        name, equals, value = word.partition("=")
        if name != "--model-type":
            kept.append(word)
            continue
        chosen = value if equals else (args.pop(0) if args else "")
        if chosen not in ("llm", "auto"):
            kind = theirs(plain(chosen))
            return Other(f"SGLang's server for {kind} models, which opsctl does not run")
    if kept and not kept[0].startswith("-"):
        kept[0] = f"--model-path={kept[0]}"
    return Entry(kept, root, "sglang serve", switches)


def _root(program: str) -> str:
    """/opt/x of /opt/x/bin/python3; "" for a bare name, or a program of the system."""
    path = PurePosixPath(program)
    if not program.startswith("/") or path.parent.name != "bin" or "\0" in program:
        return ""
    root = str(path.parent.parent)
    return "" if root in ("/", "/usr", "/usr/local") else root
