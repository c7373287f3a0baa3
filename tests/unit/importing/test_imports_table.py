"""docs/imports.md is what the importer makes of every example, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.importing import imports_table

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "imports.md"


def test_the_table_is_the_product() -> None:
    assert DOCUMENT.read_text() == imports_table.document(), (
        "write it anew: python -m tests.unit.importing.imports_table > docs/imports.md"
    )


@pytest.mark.parametrize("name", imports_table.TITLES)
def test_none_is_refused_for_a_fault_of_ours(name: str) -> None:
    for example in imports_table.examples(name):
        one = imports_table.outcome(example)
        for problem in one.imported.problems:
            assert "please report it" not in str(problem), (example.name, str(problem))


def test_the_corpora_are_whole() -> None:
    assert len({example.name for example in imports_table.examples("commands.txt")}) == 59
    assert len({example.name for example in imports_table.examples("units.txt")}) == 14


def test_enough_of_other_peoples() -> None:
    names = [example.name for example in imports_table.examples("public.txt")]
    assert len(names) >= 60
    assert len(set(names)) == len(names)
