"""Where the files that ship with opsctl are: a checkout, or an installed wheel."""

from __future__ import annotations

from pathlib import Path


def share() -> Path:
    """The folder that holds playbooks/, roles/, templates/, inventory/ and tests/postdeploy/.

    In a wheel they stand in opsctl/_share; in a checkout they are the repository's own top level.
    """
    package = Path(__file__).resolve().parent
    packaged = package / "_share"
    return packaged if packaged.is_dir() else package.parent
