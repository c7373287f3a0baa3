"""Files that a text speaks of, as they were given beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# The one file of variables that was given without saying which it is.
ANY = "*"


def given(files: Mapping[str, str], path: str, *, variables: bool = False) -> str | None:
    """Its content: by its path, by its name, or, of a file of variables, the only one there is."""
    name = path.rstrip("/").rsplit("/", 1)[-1]
    for key in (path, name, ANY) if variables else (path, name):
        if key in files:
            return files[key]
    return None


def for_each(files: Mapping[str, str], paths: Sequence[str]) -> Mapping[str, str]:
    """The files with which each of these files of variables is looked up: the one that was given
    without saying which it is stands for the only one that no other stands for, else for none."""
    named = [text for path in paths if (text := given(files, path)) is not None]
    nameless = files.get(ANY)
    if len(paths) - len(named) == 1 and all(text is not nameless for text in named):
        return files
    return {path: text for path, text in files.items() if path != ANY}


def which(files: Mapping[str, str], path: str) -> str:
    """What to type for a file of variables that was not given. `files`: all that were."""
    if ANY in files:
        return f"say of which file --env-file is the copy: --file {path}=COPY"
    return f"give it: --file {path}=COPY"
