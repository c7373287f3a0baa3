"""A description in a file of its own: its forms, and what is said of files that are none."""

from pathlib import Path

import pytest

from opsctl.errors import NothingSelected, OpsctlError, Refused, SpecError
from opsctl.inventory.single import single, unresolved

ENTRY = "{model: {path: /srv/m}, engine: {version: '0.5.9'}, flags: {tp-size: 8}}"


def write(folder: Path, text: str, name: str = "kimi.yml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (ENTRY, "kimi"),
        (f"glm: {ENTRY}", "glm"),
        (f"sglang_services:\n  glm: {ENTRY}\nother: 1", "glm"),
        (f"---\nsglang_services: {{glm: {ENTRY}}}", "glm"),
    ],
)
def test_each_form(tmp_path: Path, text: str, name: str) -> None:
    found = single(write(tmp_path, text))
    assert (found.name, found.entry["flags"]) == (name, {"tp-size": 8})


def test_a_file_whose_name_cannot_name_a_service(tmp_path: Path) -> None:
    assert single(write(tmp_path, ENTRY, "My Model.yml")).name == "service"


def test_overrides_of_the_same_file_count(tmp_path: Path) -> None:
    text = f"sglang_services: {{a: {ENTRY}}}\nsglang_overrides: {{a: {{flags: {{tp-size: 4}}}}}}"
    assert single(write(tmp_path, text)).entry["flags"] == {"tp-size": 4}


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ("{aa: {flags: {tp-size: 4}}}", "this host has no such service"),
        ("[a]", "must be a mapping of services by name"),
        ("text", "must be a mapping of services by name"),
        ("{a: 4}", "must be a mapping (sglang_overrides)"),
    ],
)
def test_overrides_that_change_nothing_are_told(tmp_path: Path, overrides: str, words: str) -> None:
    """As `config validate` tells them."""
    path = write(tmp_path, f"sglang_services: {{a: {ENTRY}}}\nsglang_overrides: {overrides}")
    with pytest.raises(SpecError) as error:
        single(path)
    assert words in str(error.value) and str(path) in str(error.value)


@pytest.mark.parametrize("overrides", ["", "{}", "{a: {}}"])
def test_empty_overrides_change_nothing(tmp_path: Path, overrides: str) -> None:
    path = write(tmp_path, f"sglang_services: {{a: {ENTRY}}}\nsglang_overrides: {overrides}")
    assert single(path).entry["flags"] == {"tp-size": 8}


def test_a_service_that_overrides_delete_is_none(tmp_path: Path) -> None:
    text = f"sglang_services: {{a: {ENTRY}, b: {ENTRY}}}\nsglang_overrides: {{a: null}}"
    assert single(write(tmp_path, text)).name == "b"
    text = f"sglang_services: {{a: {ENTRY}}}\nsglang_overrides: {{a: null}}"
    with pytest.raises(SpecError, match="holds no description"):
        single(write(tmp_path, text))


def test_a_service_of_overrides_alone_is_one(tmp_path: Path) -> None:
    text = f"sglang_services: {{a: {ENTRY}}}\nsglang_overrides: {{b: {ENTRY}}}"
    path = write(tmp_path, text)
    assert single(path, "b").name == "b"
    with pytest.raises(NothingSelected, match="2 services: a, b"):
        single(path)


def test_several_services_must_be_chosen_from(tmp_path: Path) -> None:
    path = write(tmp_path, f"sglang_services: {{b: {ENTRY}, a: {ENTRY}}}")
    with pytest.raises(NothingSelected, match="2 services: a, b") as error:
        single(path)
    assert "--service b" in error.value.hint
    assert single(path, "a").name == "a"
    with pytest.raises(NothingSelected, match="no service c; it has a, b"):
        single(path, "c")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1", "this is not YAML"),
        ("", "holds no description"),
        ("- 1", "holds no description"),
        ("port: 1", "holds no description"),
        ("sglang_services: {}", "holds no description"),
        ("model: {path: /a}\nmodel: {path: /b}", "stands twice"),
        ("a: !include x.yml", "not YAML"),
    ],
)
def test_what_is_no_description(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        single(write(tmp_path, text))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="there is no file"):
        single(tmp_path / "none.yml")
    with pytest.raises(OpsctlError, match="cannot read"):
        single(tmp_path)
    binary = tmp_path / "x.yml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(OpsctlError, match="UTF-8"):
        single(binary)


def test_templates_and_vaults_are_named_but_not_in_secrets(tmp_path: Path) -> None:
    text = (
        "model: {path: /srv/m}\nengine: {version: '0.5.9'}\n"
        "secrets: {api-key: !vault abc, admin-api-key: '{{ key }}'}\n"
        "flags: {hicache-ratio: '{{ ratio }}', tool-call-parser: !vault abc}\n"
    )
    written = single(write(tmp_path, text))
    found = unresolved(written.name, written.entry, written.file)
    assert [(p.key, p.message) for p in found] == [
        ("flags.hicache-ratio", "is a template"),
        ("flags.tool-call-parser", "is encrypted"),
    ]
    assert "--set hicache-ratio=VALUE" in found[0].hint
