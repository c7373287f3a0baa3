"""Whatever is imported: an answer, never an exception, and never a shell. What is described
renders to what was imported, and imports to the same description again."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opsctl import spec
from opsctl.engine import Catalogue, catalogue
from opsctl.errors import Problem, SpecError
from opsctl.importing import KINDS, Asked, Imported, from_text
from opsctl.importing.secrets import Vault
from opsctl.importing.values import as_json
from opsctl.importing.written import description
from opsctl.release import render
from tests.property.importing_cases import (
    GARBAGE,
    PIECES,
    SECRET_WORD,
    commands,
    containers,
    services,
    units,
)

FEW = int(os.environ.get("OPSCTL_EXAMPLES", "600"))  # of each; a drill runs many more
SEEN: Counter[str] = Counter()
FORBIDDEN = ("system", "popen", "fork", "forkpty", "posix_spawn", "posix_spawnp", "execv", "execve",
             "execvp", "execvpe", "spawnv", "spawnve")  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def no_shell() -> Iterator[None]:
    """Every way to another process ends the test."""

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("an import started a process")

    with pytest.MonkeyPatch.context() as patch:
        for name in FORBIDDEN:
            patch.setattr(os, name, refused)
        patch.setattr(subprocess, "Popen", refused)
        yield
    if "OPSCTL_COUNTS" in os.environ:
        Path(os.environ["OPSCTL_COUNTS"]).write_text(json.dumps(SEEN))


def described(imported: Imported) -> dict[str, Any]:
    """With the secrets in their places."""
    assert imported.service is not None, [str(p) for p in imported.problems]
    found: dict[str, Any] = Vault("", dict(imported.secrets)).reveal(imported.service)
    return found


def again(imported: Imported) -> Imported:
    """What its own rendering imports to."""
    entry = described(imported)
    checked, problems = spec.check({imported.name: entry}, {})
    assert not problems, problems
    release = render(imported.name, checked[imported.name], zipapp=b"")
    folder = f"/etc/opsctl/{imported.name}/releases/{release.digest}"
    files = {f"{folder}/{path}": file.content.decode() for path, file in release.files.items()
             if path.startswith("secrets/")}  # fmt: skip
    unit = f"sglang-{imported.name}.service"
    path = f"/etc/systemd/system/{unit}"
    text = release.files[unit].content.decode()
    asked = Asked(files=files, version=entry["engine"]["version"], own=True)
    return from_text([(path, text)], "unit", asked)


def refusals(service: dict[str, Any]) -> Sequence[Problem]:
    """What opsctl itself has against this description."""
    checked, problems = spec.check({"x": service}, {})
    if problems:
        return problems
    try:
        render("x", checked["x"], zipapp=b"")
    except SpecError as error:
        return error.problems
    return []


def hold(service: dict[str, Any], command: str) -> bool:
    """Answers whether it was described: what opsctl refuses to render is refused here too."""
    first = from_text([("", command)], "auto", Asked(name="x"))
    SEEN["texts"] += 1
    if any(problem.message.endswith("is a placeholder") for problem in first.problems):
        return False
    if first.service is None:  # what is described was rendered, so it is not refused
        problems = refusals(service)
        assert problems, [str(problem) for problem in first.problems]
        told = "\n".join(str(problem) for problem in first.problems)
        if "the engine's parser drops a value of two dashes" in told:
            # It ends the import before flags are held against each other.
            assert '"--"' in json.dumps(service), command
        else:
            assert all(problem.message in told for problem in problems), command
        return False
    assert normal(described(first)) == normal(service), command
    second = again(first)
    assert normal(described(second)) == normal(described(first)), command
    assert sorted(second.secrets.values()) == sorted(first.secrets.values())
    SEEN["fixed points"] += 1
    return True


def normal(service: dict[str, Any]) -> dict[str, Any]:
    """Order of flags and variables is no part of it, nor how JSON is written."""
    known = catalogue(service["engine"]["version"])
    service = {**service, "flags": known.check(jsonable(known, service.get("flags", {})))[0]}
    return {k: dict(sorted(v.items())) if isinstance(v, dict) else v for k, v in service.items()}


def jsonable(known: Catalogue, flags: dict[str, Any]) -> dict[str, Any]:
    text = {name for name in flags if known.flags[name].kind == "json_text"}
    return {n: (as_json(v) or v) if n in text and isinstance(v, str) else v for n, v in
            flags.items()}  # fmt: skip


def case(way: Any) -> st.SearchStrategy[tuple[dict[str, Any], str]]:
    return services().flatmap(lambda one: st.tuples(st.just(one), way(one)))


ANY = settings(max_examples=FEW, deadline=None, suppress_health_check=list(HealthCheck))
FEWER = settings(ANY, max_examples=max(FEW // 3, 200))


@ANY
@given(case(commands))
def test_commands(told: tuple[dict[str, Any], str]) -> None:
    hold(*told)


@ANY
@given(case(units))
def test_units(told: tuple[dict[str, Any], str]) -> None:
    hold(*told)


@ANY
@given(case(containers))
def test_containers(told: tuple[dict[str, Any], str]) -> None:
    service, text = told
    path = service["model"]["path"]
    hold({**service, "model": {"served_name": path, **service["model"]}}, text)


@FEWER
@given(GARBAGE, st.sampled_from(KINDS))
def test_garbage(text: str, kind: str) -> None:
    SEEN["garbage"] += 1
    imported = from_text([("", text)], kind, Asked(version="0.5.9"))
    assert imported.service is not None or imported.problems
    assert all(str(problem) for problem in imported.problems)
    if imported.service is not None:
        assert normal(described(again(imported))) == normal(described(imported))


@FEWER
@given(st.lists(st.one_of(PIECES, st.text(max_size=4)), max_size=20), SECRET_WORD, st.data())
def test_no_secret_is_told(pieces: list[str], secret: str, data: st.DataObject) -> None:
    """Wherever a key stands in a command, in however broken a way."""
    spelled = data.draw(
        st.sampled_from([
            f"--api-key {secret}", f"--api-key={secret}", f"--api-ke '{secret}'",
            f"HF_TOKEN={secret} ", f"-e HF_TOKEN={secret} ", f"export X_PASSWORD={secret}\n",
            f"--admin-api-key \"{secret}\"", f"Environment=HF_TOKEN={secret}\n",
            f"--model-path redis://u:{secret}@h ", f"--api-key {secret}x --api-key {secret}",
            f"--served-model-name {secret} --api-key {secret}", f"SLACK_WEBHOOK={secret} ",
            f"--api-key {secret} --chat-template x-{secret}", f"H='Auth: Bearer {secret}' ",
            f"ExecStartPre=/x --token {secret}\n", f"--api-key a{secret} {secret}",
            f"API_KEYS={secret} ", f"MemoryMax=--token a{secret} {secret}\n",
            f"--tp '--api-key a{secret} {secret}'", f"> 'log --api-key a{secret} {secret}'",
            f"--hicache-storage-backend-extra-config '{{\"tokens\": [\"{secret}\"]}}'",
            f"--json-model-override-args '{{\"secretKey\": \"{secret}\"",
        ])
    )  # fmt: skip
    at = data.draw(st.integers(0, len(pieces)))
    words = ["python -m sglang.launch_server --model-path /srv/m ", *pieces]
    text = " ".join([*words[: at + 1], spelled, *words[at + 1 :]])
    imported = from_text([("", text)], "auto", Asked(version="0.5.9"))
    SEEN["with a secret"] += 1
    told = f"{imported!r}{imported.notes}{[str(p) for p in imported.problems]}{imported.service}"
    assert secret not in told and secret not in description(imported)
    said = [text for note in imported.notes for text in (note.what, note.why)]
    said += [part for problem in imported.problems for part in vars(problem).values()]
    assert not any(sign in text for text in said for sign in "\x0e\x0f"), said
