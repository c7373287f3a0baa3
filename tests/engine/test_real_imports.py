"""The engine's own parser judges imports, of both versions: what was imported and what is rendered
are the same to it, but for what the report tells as changed; what the importer cannot read as
arguments, it refuses too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opsctl import spec
from opsctl.engine import catalogue
from opsctl.engine.refused import Refused
from opsctl.importing import Asked, Imported, from_process, from_text
from opsctl.importing.arguments import walk
from opsctl.importing.entry import Entry, entry
from opsctl.importing.marks import whole
from opsctl.importing.model import Report
from opsctl.importing.secrets import Vault
from opsctl.importing.text import kind_of, launch
from opsctl.importing.unit.words import command
from opsctl.importing.values import as_json, read
from opsctl.release import render
from tests.engine.test_real_parser import Judge
from tests.property.importing_cases import argv, services, typed
from tests.unit.importing.imports_table import ANSWERS, TITLES, Example, examples

pytestmark = [pytest.mark.cpu_engine, pytest.mark.timeout(1800)]

VERSIONS = ("0.5.9", "0.5.23")
EVERY = [example for name in TITLES for example in examples(name)]
# These are written in places of their own; where they differ, the report says so.
PLACES = {"model_path", "served_model_name", "host", "port", "api_key", "admin_api_key"}


@pytest.fixture(scope="module")
def judges(cpu_engine: Callable[[str], Path]) -> Iterator[Callable[[str], Judge]]:
    started: list[Judge] = []

    @cache
    def of(version: str) -> Judge:
        started.append(Judge(cpu_engine(version)))
        return started[-1]

    yield of
    for judge in started:
        judge.close()


def arguments(example: Example, asked: Asked) -> list[str] | None:
    """The engine's own, as the example has them; None if it starts none."""
    texts = [("", example.text)]
    found = launch(texts, example.text, kind_of(texts), asked, Report())
    way = entry(found.argv) if found is not None else None
    return way.args if isinstance(way, Entry) else None


def rendered(imported: Imported) -> list[str]:
    assert imported.service is not None
    long = {name: f"{value}-long-enough" for name, value in imported.secrets.items()}
    entry_of: Any = Vault("", long).reveal(imported.service)
    checked, problems = spec.check({imported.name: entry_of}, {})
    assert not problems
    release = render(imported.name, checked[imported.name], zipapp=b"")
    way = entry(command(release.files[f"sglang-{imported.name}.service"].content.decode()))
    assert isinstance(way, Entry)
    return way.args


def same(judge: Judge, before: list[str], imported: Imported) -> None:
    was, now = judge.ask(before), judge.ask(rendered(imported))
    assert "error" not in was, was
    assert "error" not in now, now
    told = {n.what.partition(":")[0].replace("-", "_") for n in imported.notes
            if n.kind in ("changed", "moved")} | PLACES  # fmt: skip
    differ = {k for k in was["values"] if plain(was["values"][k]) != plain(now["values"].get(k))}
    assert differ <= told, {k: (was["values"][k], now["values"].get(k)) for k in differ - told}
    path = was["values"]["served_model_name"] or was["values"]["model_path"]
    assert (now["values"]["served_model_name"] or now["values"]["model_path"]) == path


def plain(value: Any) -> Any:
    """Text that the engine reads as JSON later, as what it says."""
    return (as_json(value) or value) if isinstance(value, str) else value


@pytest.mark.parametrize("version", VERSIONS)
def test_every_example(version: str, judges: Callable[[str], Judge]) -> None:
    judge, known = judges(version), catalogue(version)
    seen = {"equal": 0, "refused": 0, "open": 0}
    for example in EVERY:
        asked = Asked(version=version, variables=ANSWERS, cwd="/srv/work")
        args = arguments(example, asked)
        if args is None or not all(whole(word) for word in args) or "--config" in args:
            seen["open"] += 1
            continue
        imported = from_text([("", example.text)], "auto", asked)
        if imported.service is not None:
            same(judge, args, imported)
            seen["equal"] += 1
            continue
        given, strays = walk(known, args)
        if strays or not all(map(_taken, given)):
            assert "error" in judge.ask(args), example.name
            seen["refused"] += 1
        else:
            assert "error" not in judge.ask(args), example.name
            seen["open"] += 1
    assert seen["equal"] > 60, seen
    assert seen["refused"] > 10, seen


def _taken(given: Any) -> bool:
    try:
        read(given)
    except Refused:
        return False
    return given.flag.kind != "refused"


@pytest.mark.parametrize("version", VERSIONS)
def test_generated_commands(version: str, judges: Callable[[str], Judge]) -> None:
    """Aliases, abbreviations, "=" and spaces, doubles: read as the engine reads them."""
    judge = judges(version)
    seen = {"described": 0}

    @settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
    @given(services().filter(lambda one: one["engine"]["version"] == version), st.data())
    def run(service: dict[str, Any], data: st.DataObject) -> None:
        args = data.draw(typed(version, argv(service)))
        words = ["/usr/bin/python3", "-m", "sglang.launch_server", *args]
        imported = from_process(words, {}, asked=Asked(version=version, name="x"))
        if imported.service is not None:
            same(judge, args, imported)
            seen["described"] += 1

    run()
    assert seen["described"] > 200, seen
