"""What repeats the schema is made from it."""

from __future__ import annotations

import yaml

from opsctl.paths import share
from opsctl.spec.generate import differing, generated, rows


def test_files_are_as_the_schema_makes_them() -> None:
    assert differing(share()) == [], "run: python -m opsctl.spec.generate"


def test_every_key_has_its_words() -> None:
    for row in rows():
        assert row.text.endswith(".") and row.kind, row


def test_every_key_is_in_each_file() -> None:
    for path, text in generated().items():
        for row in rows():
            assert row.key.rpartition(".")[2] in text, (path, row.key)


def test_the_menu_is_yaml_once_it_is_uncommented() -> None:
    menu = generated()["docs/reference/menu.yml"]
    start = menu.index("# sglang_services:")
    lines = [line[2:] for line in menu[start:].splitlines()]
    parsed = yaml.safe_load("\n".join(line for line in lines if ": " in line or line.endswith(":")))
    assert parsed["sglang_services"]["NAME"]["port"] == 30000
