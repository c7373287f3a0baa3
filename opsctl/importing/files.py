"""Files that a text speaks of, as they were given beside it."""

from __future__ import annotations

from collections.abc import Mapping

# The one file of variables that was given without saying which it is.
ANY = "*"


def given(files: Mapping[str, str], path: str, *, variables: bool = False) -> str | None:
    """Its content: by its path, by its name, or, of a file of variables, the only one there is."""
    name = path.rstrip("/").rsplit("/", 1)[-1]
    for key in (path, name, ANY) if variables else (path, name):
        if key in files:
            return files[key]
    return None
