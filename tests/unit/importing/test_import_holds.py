"""The importer describes nothing that does not render to what was imported: each fault that is put
in on purpose is found by it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from opsctl.engine import Catalogue
from opsctl.importing import Asked, equivalent, from_text, places
from opsctl.release import File

TEXT = """A=b HF_TOKEN=hf_abcdefgh1234 /opt/sglang/0.5.9/bin/python -m sglang.launch_server \\
  --model-path /srv/models/m --tp 8 --host 0.0.0.0 --served-model-name k --port 1234 \\
  --mem-fraction-static 0.9 --api-key a-secret-key"""


def problems() -> str:
    found = from_text([("", TEXT)], asked=Asked(version="0.5.9", name="k"))
    assert (found.service is None) == bool(found.problems)
    return "\n".join(str(problem) for problem in found.problems)


def test_nothing_is_wrong() -> None:
    assert problems() == ""


RENDERED = [
    ("--tp-size=8", "--tp-size=4", "tp-size would not be rendered"),
    ("--mem-fraction-static=0.9", "", "mem-fraction-static would not"),
    ("--mem-fraction-static=0.9", "--mem-fraction-static=0.91", "mem-fraction-static would not"),
    ("--port=1234", "--port=1235", "port would not"),
    ("--host=0.0.0.0", "--host=127.0.0.1", "host would not"),
    ("--served-model-name=k", "--served-model-name=j", "served-model-name would not"),
    ("--tp-size=8", "--tp-size=8 --trust-remote-code", "trust_remote_code would not"),
    ("--tp-size=8", "--no-such-flag", "the rendered command would be refused"),
    ("A=b", "A=c", "the variable A would not"),
    ("Environment=A=b", "Environment=C=b", "the variable A would not"),
    ("launch.py", "other.py", "starts no server of SGLang"),
]


@pytest.mark.parametrize(("old", "new", "why"), RENDERED)
def test_a_fault_of_the_rendering(
    old: str, new: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = equivalent.render

    def wrong(name: str, *args: Any, **named: Any) -> Any:
        release = right(name, *args, **named)
        unit = f"sglang-{name}.service"
        text = release.files[unit].content.decode()
        assert old in text
        changed = text.replace(old, new)
        return replace(release, files={**release.files, unit: File(0o644, changed.encode())})

    monkeypatch.setattr(equivalent, "render", wrong)
    assert why in problems()


def test_a_secret_that_changes_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    right = equivalent.render

    def wrong(name: str, *args: Any, **named: Any) -> Any:
        release = right(name, *args, **named)
        swapped = {"secrets/api-key": File(0o600, b"another-key")}
        return replace(release, files={**release.files, **swapped})

    monkeypatch.setattr(equivalent, "render", wrong)
    assert "api-key would not be rendered" in problems()
    assert "a-secret-key" not in problems()


def test_a_value_that_is_changed_and_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    right = places.places

    def wrong(found: dict[str, Any], known: Catalogue, *rest: Any) -> Any:
        placed = right(found, known, *rest)
        placed.values["tp-size"] = 4
        return placed

    monkeypatch.setattr("opsctl.importing.describe.places", wrong)
    assert "tensor_parallel_size was changed on the way" in problems()
