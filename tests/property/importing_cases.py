"""Descriptions, and the many ways in which a shell, systemd or docker may be told of them."""

from __future__ import annotations

import json
import shlex
from functools import cache
from typing import Any

import yaml
from hypothesis import strategies as st

from opsctl.engine import Flag, catalogue
from opsctl.engine.catalogue import ELSEWHERE, SECRET
from opsctl.importing.containerpaths import ALSO_PATHS
from opsctl.importing.secrets import by_form, tells
from opsctl.release import quoting

VERSIONS = ("0.5.2", "0.5.9", "0.5.12.post1", "0.5.23")
HOSTILE = (
    *("'", '"', "\\", "$", "`", "%", ";", "&", "|", "<", ">", "(", ")", "{", "}", "[", "]", "#"),
    *("*", "?", "~", "!", "=", " ", "\t", "\n", "$(x)", "${A}", "%i", "{{ x }}", "\\n", "é", "中"),
)
WORD = st.text("abcXYZ019_-./:,@+", min_size=1, max_size=10)
TEXT = st.lists(st.one_of(WORD, st.sampled_from(HOSTILE)), min_size=1, max_size=5).map("".join)
JSON = st.dictionaries(
    WORD, st.one_of(st.integers(-9, 999), st.booleans(), TEXT, st.none()), max_size=3
)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-4, 10**6),
    "size": st.integers(0, 10**6),
    "float": st.floats(0.001, 99, allow_nan=False).map(lambda f: round(f, 4)),
    "text": TEXT,
    "nullable": TEXT,
    "json": JSON,
    "json_text": JSON.map(json.dumps),
    "json_list": st.lists(JSON, max_size=2),
    "lora": WORD.map(lambda w: f"/lora/{w.strip('/')}"),
    "graph_config": st.just({"decode": {"max_bs": 8}}),
}
HALF = {"num_sms": 20}
NAMED: dict[str, st.SearchStrategy[Any]] = {  # JSON that has to be something of its own
    "deepep-config": st.just(json.dumps({"normal_dispatch": HALF, "normal_combine": HALF})),
    "disaggregation-ib-device": st.sampled_from(["mlx5_0", "mlx5_0,mlx5_1", '{"0": "mlx5_0"}']),
    "limit-mm-data-per-request": st.just({"image": 2}),
}
PORT = st.integers(1, 65535)
GPUS = st.lists(st.integers(0, 7), min_size=1, max_size=4, unique=True)
ENV = st.dictionaries(st.sampled_from(["A", "B_2", "SGLANG_X", "NCCL_DEBUG"]), TEXT, max_size=3)
WAY = st.integers(0, 3)
TENTH = st.integers(0, 9)
# Values that shape other things than the command line, or that a description bounds.
LEFT = {"base-gpu-id", "gpu-id-step", "device", "enable-dp-attention", *ELSEWHERE, *SECRET}


@cache
def free(version: str) -> list[str]:
    flags = catalogue(version).flags
    sizes = ("size", "nnodes", "node-rank", "ratio", "fraction")
    return sorted(
        name
        for name, flag in flags.items()
        if name not in LEFT
        and not name.endswith(sizes)
        and flag.kind not in ("void", "refused")
        and not (flag.kind in ("text", "nullable", "lora") and _path(name))
    )


def _path(name: str) -> bool:
    """Paths are made absolute, or refused: that is not what is tried here."""
    endings = ("path", "paths", "dir", "folder", "file", "certfile", "certs", "template", "map")
    return name.endswith(endings) or name in ALSO_PATHS


@cache
def valued(version: str, name: str) -> st.SearchStrategy[Any]:
    """Made once: a strategy costs more to make than to draw from."""
    return value(catalogue(version).flags[name])


@cache
def some(version: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(free(version)), max_size=5, unique=True)


@cache
def one_of(*choices: str) -> st.SearchStrategy[str]:
    return st.sampled_from(choices)


def value(flag: Flag) -> st.SearchStrategy[Any]:
    if flag.choices:
        one: st.SearchStrategy[Any] = st.sampled_from(flag.choices)
    elif flag.kind in ("switch", "onoff"):
        return st.just(True) if flag.kind == "switch" else st.booleans()
    else:
        one = NAMED.get(flag.name, KINDS[flag.kind])
    return st.lists(one, min_size=1, max_size=3) if flag.many else one


@st.composite
def services(draw: st.DrawFn) -> dict[str, Any]:
    """One entry of sglang_services that the catalogue takes, in the form that an import gives."""
    version = draw(one_of(*VERSIONS))
    known = catalogue(version)
    wanted = {name: draw(valued(version, name)) for name in draw(some(version))}
    flags, _ = known.check(wanted)
    dests: dict[str, str] = {}
    for name in flags:
        dests.setdefault(known.flags[name].dest, name)
    service: dict[str, Any] = {
        "model": {"path": f"/srv/models/{draw(WORD).strip('/.') or 'm'}"},
        "engine": {"version": version},
        "host": draw(one_of("127.0.0.1", "0.0.0.0", "::1")),
        "port": draw(PORT),
    }
    if any(part in service["model"]["path"] for part in ("..", "//", "/.", "./")):
        service["model"]["path"] = "/srv/models/m"
    if draw(st.booleans()):
        service["model"]["served_name"] = draw(TEXT)
    if draw(st.booleans()):
        service["gpus"] = draw(GPUS)
    if flags:
        service["flags"] = {n: flags[n] for n in dests.values()}
    env = draw(ENV)
    env = {n: text for n, text in env.items() if not (by_form(text) or tells(text))}  # would move
    if env:
        service["env"] = env
    return service


def argv(service: dict[str, Any]) -> list[str]:
    known = catalogue(service["engine"]["version"])
    ours = {"model-path": service["model"]["path"], "host": service["host"],
            "port": service["port"]}  # fmt: skip
    if "served_name" in service["model"]:
        ours["served-model-name"] = service["model"]["served_name"]
    return [*known.argv(ours), *known.argv(service.get("flags", {}))]


@st.composite
def typed(draw: st.DrawFn, version: str, words: list[str]) -> list[str]:
    """The same arguments as somebody else may have typed them."""
    known = catalogue(version)
    out: list[str] = []
    for word in words:
        name, equals, text = word.partition("=")
        canonical = known.canonical(name[2:]) if name.startswith("--") else None
        if canonical is None or name[2:].startswith("no-"):
            out.append(word)
            continue
        flag = known.flags[canonical]
        spelled = f"--{draw(one_of(*flag.names, *_shorter(version, canonical)))}"
        splits = equals and not text.startswith("-") and flag.nargs != "?" and draw(st.booleans())
        again = not flag.many and equals and draw(TENTH) == 0
        out += [word] if again else []
        out += [spelled, text] if splits else [spelled + equals + text]
    return out


@cache
def _shorter(version: str, canonical: str) -> tuple[str, ...]:
    """The shortest unambiguous abbreviation, if it is one."""
    known = catalogue(version)
    names = [n for f in known.flags.values() for n in f.names] + ["help"]
    names += [f"no-{f.name}" for f in known.flags.values() if f.kind == "onoff"]
    for end in range(2, len(canonical)):
        if sum(n.startswith(canonical[:end]) for n in names) == 1 and canonical[:end] not in names:
            return (canonical[:end],)
    return ()


@st.composite
def quoted(draw: st.DrawFn, word: str) -> str:
    """One word in one of the ways that bash takes it exactly."""
    way = draw(WAY)
    if way == 0 and word:
        return shlex.quote(word)
    if way == 1:
        inner = word.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
        return '"' + inner.replace("`", "\\`") + '"'
    if way == 2:
        inner = word.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
        return f"$'{inner}'"
    half = len(word) // 2
    return shlex.quote(word[:half]) + shlex.quote(word[half:])


@st.composite
def commands(draw: st.DrawFn, service: dict[str, Any]) -> str:
    """A script that starts this service."""
    version = service["engine"]["version"]
    words = draw(typed(version, argv(service)))
    env = dict(service.get("env", {}))
    if "gpus" in service:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, service["gpus"]))
    program = draw(st.sampled_from([
        f"/opt/sglang/{version}/bin/python -m sglang.launch_server",
        f"/opt/sglang/{version}/bin/python3 -u -m sglang.launch_server",
        f"/opt/sglang/{version}/bin/sglang serve",
    ]))  # fmt: skip
    gap = draw(st.sampled_from([" ", "  ", " \\\n  ", " \\\n", "\t"]))
    parts = [program, *(draw(quoted(word)) for word in words)]
    head, lines = "", ["#!/bin/bash", "set -euo pipefail", "# a comment \\"]
    for name, text in env.items():
        where = draw(st.integers(0, 2))
        spelled = draw(quoted(text))
        if where == 0:
            head += f"{name}={spelled} "
        elif where == 1:
            lines.append(f"export {name}={spelled}")
        else:
            lines += [f"V_{name}={spelled}", f'export {name}="$V_{name}"']
    if draw(st.booleans()):
        lines += ["ARGS=(", *(f"  {part}  # one" for part in parts[1:]), ")"]
        parts = [program, '"${ARGS[@]}"']
    line = gap.join(parts)
    line = draw(st.sampled_from([
        "{}", "exec {}", "nohup {} > log 2>&1 &", "{} 2>&1 | tee log", "cd /srv && {}",
        "env {}", "sudo -E {}", "numactl --cpunodebind=0 {}", "time {}",
    ])).format("\0").replace("\0", line)  # fmt: skip
    if draw(st.integers(0, 4)) == 0:
        line = f"bash -c {shlex.quote(line)}" if '"${ARGS' not in line else line
    return "\n".join([*lines, f"{head}{line}" if not line.startswith("cd ") else
                      line.replace("&& ", f"&& {head}", 1)]) + "\n"  # fmt: skip


@st.composite
def units(draw: st.DrawFn, service: dict[str, Any]) -> str:
    """A hand-made unit that starts this service, as systemd.syntax(7) allows it to be written."""
    version = service["engine"]["version"]
    words = draw(typed(version, argv(service)))
    env = dict(service.get("env", {}))
    if "gpus" in service:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, service["gpus"]))
    lines = ["[Unit]", "Description=x", "; a comment", "[Service]", "User=sglang"]
    lines += [f"Environment={quoting.environment(name, text)}" for name, text in env.items()]
    old = draw(st.booleans())
    lines += ["ExecStart=/bin/false", "ExecStart="] if old else []
    program = f"ExecStart=/opt/sglang/{version}/bin/python -m sglang.launch_server"
    gap = draw(st.sampled_from([" ", "  ", " \\\n  ", " \\\n# a comment\n  "]))
    lines.append(gap.join([program, *(draw(unit_word(word)) for word in words)]))
    return "\n".join(lines) + "\n"


@st.composite
def unit_word(draw: st.DrawFn, word: str) -> str:
    plain = quoting.argument(word)
    if draw(st.booleans()) or not word or "\n" in word or "\t" in word:
        return plain if plain else '""'
    inner = word.replace("\\", "\\\\").replace("'", "\\'").replace("%", "%%")
    return f"'{inner.replace('$', '$$')}'"


@st.composite
def containers(draw: st.DrawFn, service: dict[str, Any]) -> str:
    """docker run with the model's folder mounted, or the same as a compose file."""
    version = service["engine"]["version"]
    mounted = {**service, "model": {**service["model"]}}
    mounted["model"]["path"] = service["model"]["path"].replace("/srv/models/", "/models/")
    mounted["model"].setdefault("served_name", service["model"]["path"])
    mounted |= {"host": "0.0.0.0", "port": 30000}
    command = ["python3", "-m", "sglang.launch_server", *argv(mounted)]
    env = dict(service.get("env", {}))
    gpus = ",".join(map(str, service.get("gpus", ())))
    image, address = f"lmsysorg/sglang:v{version}-cu129", service["host"]
    published = f"{f'[{address}]' if ':' in address else address}:{service['port']}:30000"
    if draw(st.booleans()):
        options = ["--rm", "-it", "-v", "/srv/models:/models:ro", "-p", published, "--ipc=host"]
        options += ["--gpus", f'"device={gpus}"' if gpus else "all", "--shm-size", "32g"]
        options += [part for name, text in env.items() for part in ("-e", f"{name}={text}")]
        return " ".join(shlex.quote(w) for w in ["docker", "run", *options, image, *command])
    devices = {"driver": "nvidia", "capabilities": ["gpu"]}
    devices |= {"device_ids": gpus.split(",")} if gpus else {"count": "all"}
    made = {
        "image": image,
        "command": [word.replace("$", "$$") for word in command],
        "environment": {name: text.replace("$", "$$") for name, text in env.items()},
        "volumes": ["/srv/models:/models"],
        "ports": [published],
        "deploy": {"resources": {"reservations": {"devices": [devices]}}},
    }
    return yaml.safe_dump({"services": {"engine": made}})


SECRET_WORD = st.text("abcdefghijkmnpqrstuvwxyzABCDEFGHJK23456789", min_size=12, max_size=24)
PIECES = st.sampled_from(
    [
        "python -m sglang.launch_server",
        "--model-path",
        "/srv/m",
        "--tp",
        "8",
        "--tp=",
        "$A",
        "${A:-",
        "}",
        "'",
        '"',
        "\\",
        "\n",
        " ",
        "#",
        ";",
        "&&",
        "||",
        "|",
        "&",
        ">",
        "<<EOF",
        "$(",
        ")",
        "(",
        "`",
        "A=",
        "A=(",
        "export ",
        "[Service]\n",
        "ExecStart=",
        "Environment=",
        "services:\n",
        "  x:\n",
        "    image: lmsysorg/sglang:v0.5.9\n",
        "    command: ",
        "docker run ",
        "-v",
        "/a:/b",
        "-e",
        "A=b",
        "--gpus",
        "device=1,2",
        "sudo ",
        "env ",
        "bash -c ",
        "source ",
        "if ",
        "done",
        "{",
        "[",
        "]",
        "*",
        "~",
        "%",
        "%%",
        "$$",
        "$'",
        "\\x41",
        "\\u0000",
        "---",
        "- ",
        ": ",
        "&a ",
        "*a ",
        "<<: *a\n",
        "\t",
        "--api-key",
        "--config",
        "x.yaml",
        "sglang serve ",
        "--json-model-override-args",
        '{"a": ',
        "1}",
        "\ud800",
        "\x00",
        "\u2028",
        "é",
        "--",
        "-",
        "=",
        "@-",
        "%i",
        "[Container]\n",
        "Exec=",
        "Image=a\n",
    ]
)
GARBAGE = st.lists(st.one_of(PIECES, st.text(max_size=4)), max_size=40).map("".join)
