"""What is told of a text that says another thing than it seems to: commands that are cut off,
prefixes that are not carried, models that are no folders."""

from __future__ import annotations

from typing import Any

import pytest

from opsctl.importing import Asked, from_text

PYTHON = "/opt/sglang/0.5.9/bin/python -m sglang.launch_server"


def take(text: str, path: str = "", **asked: Any) -> Any:
    return from_text([(path, text)], asked=Asked(version="0.5.9", **asked))


def told(imported: Any) -> str:
    notes = [f"{note.what}: {note.why}" for note in imported.notes]
    return "\n".join([*notes, *map(str, imported.problems)])


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("{} \\\n --model-path /srv/m \\\n  # ranks\n --tp 2 \\\n --port 1\n", 4, "--tp"),
        ("{} \\\n --model-path /srv/m # m \\\n --tp 2\n", 3, "--tp"),
        ("{} \\\n --model-path /srv/m \\ \n --tp 2\n", 3, "--tp"),
        ("{} --model-path /srv/m\n\n --tp 2\n", 3, "--tp"),
    ],
)
def test_a_command_that_is_cut_off(text: str, line: int, word: str) -> None:
    found = take(text.format(PYTHON))
    assert found.service is None
    assert f"line {line} begins with {word}, and the command ended in the line before" in told(
        found
    )
    assert "also runs" not in told(found)


@pytest.mark.parametrize("url", ["s3://bucket/model", "gs://bucket/model", "S3://b/m/x"])
def test_a_remote_model_is_named_as_one(url: str) -> None:
    found = take(f"{PYTHON} --model-path {url}")
    assert found.service is None and "is a remote model" in told(found)
    assert take(f"{PYTHON} --model-path {url}", model="/srv/m").service["model"] == {
        "path": "/srv/m",
        "served_name": url,
    }


def test_a_key_in_the_address_of_a_model_stays_out() -> None:
    text = f"{PYTHON} --model-path s3://AKIDCANARY:canarykey99@bucket/model"
    assert "canary" not in f"{take(text)!r}".lower()
    found = take(text, model="/srv/m")
    assert found.service["model"] == {"path": "/srv/m"}
    assert "canary" not in f"{found!r}".lower() and "holds a secret" in told(found)


@pytest.mark.parametrize("path", ["/etc/systemd/system/sgl@.service", "/tmp/copy.service"])
def test_a_specifier_in_a_shell_is_named(path: str) -> None:
    unit = f"[Service]\nExecStart=/bin/bash -c '{PYTHON} --model-path /srv/m --port %i'\n"
    assert "%i is a specifier of systemd" in told(take(unit, path))
    instance = take(unit, "/etc/systemd/system/sgl@30007.service")
    assert instance.service["port"] == 30007


def test_an_environment_of_conda_is_not_carried_unsaid() -> None:
    text = "conda activate {}\npython -m sglang.launch_server --model-path /srv/m\n"
    assert "conda activate sg: the text does not tell the folder" in told(take(text.format("sg")))
    assert take(text.format("/opt/sg")).service["engine"]["root"] == "/opt/sg"


def test_the_words_of_a_unit_that_is_not_opsctls() -> None:
    unit = f"[Service]\nExecStart={PYTHON} --model-path /srv/m\nExecReload=/bin/kill -HUP 1\n"
    assert "opsctl deploy brings a new release" in told(take(unit, "/x/a.service"))
