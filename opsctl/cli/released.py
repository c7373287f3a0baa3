"""A released package of SGLang: fetched with pip, a wheel, or a folder. Nothing of it is run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from opsctl.engine.source import Package
from opsctl.errors import OpsctlError, Refused

TIMEOUT = 900.0  # seconds: some 10 MB, perhaps from far away
# What newer releases are built for. pip is asked for its own platform first; flags are the same.
_BUILT_FOR = ("--python-version=3.11", "--platform=manylinux_2_34_x86_64")


@contextmanager
def opened(version: str, given: Path | None) -> Iterator[Package]:
    """The package of exactly this version, from `given` or, if that is None, fetched.

    Raises Refused (not there, of another version), OpsctlError (cannot be fetched).
    """
    if given is None:
        with (
            tempfile.TemporaryDirectory(prefix="opsctl-") as folder,
            _wheel(version, fetched(version, Path(folder))) as package,
        ):
            yield package
    elif given.is_dir():
        yield _folder(version, given)
    else:
        with _wheel(version, given) as package:
            yield package


def fetched(version: str, folder: Path) -> Path:
    """The wheel, as pip gets it: from the index that its own settings name. Raises OpsctlError."""
    pip = _pip(version)
    # Wheels only: to look into a source distribution pip would run its build.
    asked = ["--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--no-input"]
    told = ""
    for more in ((), _BUILT_FOR):
        argv = [
            *pip,
            "download",
            "--quiet",
            *asked,
            *more,
            f"--dest={folder}",
            f"sglang=={version}",
        ]
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _not_fetched(version, str(error)) from error
        if done.returncode == 0 and (wheels := list(folder.glob("*.whl"))):
            return wheels[0]
        told = told or done.stderr
    raise _not_fetched(version, told)


def _pip(version: str) -> list[str]:
    if find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if found := shutil.which("pip3") or shutil.which("pip"):
        return [found]
    raise OpsctlError("there is no pip to fetch the package with", hint=_by_hand(version))


def _not_fetched(version: str, told: str) -> OpsctlError:
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    # pip lists every version that the index has; the last few tell enough.
    errors = [
        re.sub(r"(\(from versions: ).*, ((?:[^,]+, ){2}[^,]+\))", r"\1…, \2", e) for e in errors
    ]
    return OpsctlError(
        f"pip could not fetch sglang {version}", log=errors[-3:], hint=_by_hand(version)
    )


def _by_hand(version: str) -> str:
    return (
        f"where an index is reached, pip download --no-deps sglang=={version}; "
        f"then opsctl catalog add {version} --from FILE.whl (or a folder where it is installed)"
    )


@contextmanager
def _wheel(version: str, path: Path) -> Iterator[Package]:
    try:
        with zipfile.ZipFile(path) as wheel:
            names = set(wheel.namelist())

            def text(name: str) -> str | None:
                return wheel.read(name).decode("utf-8") if name in names else None

            _judge(version, path, text, sorted(names))
            yield Package(text)
    except FileNotFoundError:
        raise Refused(f"there is no {path}", hint="give a wheel or a folder") from None
    except (OSError, zipfile.BadZipFile) as error:
        raise OpsctlError(f"{path} cannot be read as a wheel: {error}") from error


def _folder(version: str, path: Path) -> Package:
    """site-packages, an environment that has one, the package's own folder, or a checkout."""
    places = [path, path.parent, path / "python", *path.glob("lib/python3*/site-packages")]
    top = next((p for p in places if (p / "sglang" / "srt").is_dir()), None)
    if top is None:
        raise Refused(
            f"{path} holds no SGLang",
            hint="give a folder with sglang/ in it, or an environment such as /opt/sglang/VERSION",
        )

    def text(name: str) -> str | None:
        file = top / name
        try:
            return file.read_text(encoding="utf-8") if file.is_file() else None
        except OSError as error:
            raise OpsctlError(f"cannot read {file}: {error.strerror or error}") from error

    info = [p.relative_to(top).as_posix() for p in top.glob("sglang-*.dist-info/METADATA")]
    _judge(version, path, text, info)
    return Package(text)


def _judge(version: str, path: Path, text: Callable[[str], str | None], names: list[str]) -> None:
    """Raises Refused if the package says that it is of another version. A local label is ours:
    0.5.9+mine may be made of a 0.5.9."""
    metadata = next((n for n in names if re.fullmatch(r"sglang-[^/]*\.dist-info/METADATA", n)), "")
    found = re.search(r"^Version: (\S+)$", text(metadata) or "", re.M) if metadata else None
    for name in ("sglang/_version.py", "sglang/version.py"):
        found = found or re.search(r"""^__version__.*=\s*["'](\S+)["']""", text(name) or "", re.M)
    if found and found[1] != version and found[1] != version.partition("+")[0]:
        raise Refused(
            f"{path} is SGLang {found[1]}, not {version}",
            hint=f"opsctl catalog add {found[1]} --from {path}",
        )
