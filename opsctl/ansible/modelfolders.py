"""Folders of models that are given by hand, judged and read as those of descriptions are (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from opsctl.errors import Problem, SpecError
from opsctl.spec.models import Model, Source


def wrong(folders: Sequence[Mapping[str, Any]]) -> str:
    """The first thing that the role `model` refuses, in words; "" if all is right."""
    return next(_wrong(folders), "")


def read(folders: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """As the role's program takes them. Raises SpecError."""
    if said := wrong(folders):
        raise SpecError([Problem(said, key="model_folders")])
    return [{**folder, "source": _source(folder.get("source"))} for folder in folders]


def told(source: Source | None) -> dict[str, Any] | None:
    """A source without its token: the task reads that from the description itself."""
    if source is None:
        return None
    return source.model_dump(mode="json", exclude={"token"}, exclude_none=True)


def _source(written: Any) -> dict[str, Any] | None:
    return told(Source.model_validate(written)) if written else None


def _wrong(folders: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for place, folder in enumerate(folders or (), start=1):
        said = {key: folder.get(key) for key in ("path", "source") if folder.get(key) is not None}
        try:
            Model.model_validate(said)
        except ValidationError as error:
            one = error.errors(include_url=False, include_input=False)[0]
            key = ".".join(str(part) for part in one["loc"])
            why = str(one.get("ctx", {}).get("error") or one["msg"])
            yield f"entry {place}, {folder.get('path', 'without path')}: {key}: {why}"
