"""The ground floor on Python 3.9, the oldest that hosts have (RHEL 9).

Every file is read as 3.9's grammar at any time. Where a python3.9 is found (on PATH, or among
pyenv's), the zipapp itself runs in it: all its modules, its verbs, and its reading of every real
log, with the same result as here.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from opsctl.onhost import bundle

TOP = Path(__file__).resolve().parents[3]
LOGS = TOP / "tests" / "unit" / "onhost_read" / "logs"
ON_HOSTS = [
    *sorted((TOP / "opsctl" / "onhost").rglob("*.py")),
    *sorted((TOP / "opsctl" / "ansible" / "target").rglob("*.py")),
    TOP / "opsctl" / "release" / "launch.py",
]
# Reads logs with everything between a journal and a gate; the answer is text, to be compared.
READ = """
import importlib, json, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import opsctl.onhost
for found in pkgutil.iter_modules(opsctl.onhost.__path__):
    if found.name != "__main__":
        importlib.import_module("opsctl.onhost." + found.name)
from opsctl.onhost.journal import Reading
from opsctl.onhost.model import Record
from opsctl.onhost.rankgate import ranks
from opsctl.onhost.records import split
said = {}
for name in sys.argv[2:]:
    reading = Reading("inv")
    with open(name, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file.read().split("\\n")):
            for part in split(line):
                reading.feed(Record(number, part, 7, "python"))
    check = ranks({"ranks": ["TP0", "TP1"], "flags": {}, "expect": None}, reading.facts)
    said[name] = [repr(reading.facts), repr(check)]
print(json.dumps(said))
"""


def oldest() -> str:
    """A python3.9, "" if there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    folders = [*map(str, sorted(pyenv.glob("3.9*/bin"))), os.environ.get("PATH", "")]
    return shutil.which("python3.9", path=os.pathsep.join(folders)) or ""


@pytest.fixture(scope="module")
def python39() -> str:
    found = oldest()
    if not found:
        pytest.skip("no python3.9 on PATH or among pyenv's: only its grammar was tried")
    return found


@pytest.fixture(scope="module")
def zipapp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("zipapp") / "onhost.pyz"
    path.write_bytes(bundle.build())
    return path


def run(*argv: object, input: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(a) for a in argv], input=input, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("path", ON_HOSTS, ids=lambda path: path.name)
def test_is_written_in_the_grammar_of_3_9(path: Path) -> None:
    ast.parse(path.read_text(), str(path), feature_version=(3, 9))


def test_reads_every_log_as_here(python39: str, zipapp: Path) -> None:
    logs = sorted(LOGS.glob("*.log"))
    here, there = (run(p, "-I", "-c", READ, zipapp, *logs) for p in (sys.executable, python39))
    assert there.returncode == 0, there.stderr
    assert json.loads(there.stdout) == json.loads(here.stdout)
    assert len(logs) > 3 and here.stdout.count("TP1 missing") == len(logs)


@pytest.mark.parametrize(
    ("verb", "stdin", "said"),
    [
        (["probe"], '{"host": "127.0.0.1", "port": 9, "method": "GET", "path": "/"}', "error"),
        (["launch", "no-such"], '{"run": "r-1", "service": "no-such", "op": "swap"}', "error"),
        (["follow", "no-such", "r-1"], "", "there is no run r-1"),
        (["stage", "--check"], "no JSON", "no JSON document"),
    ],
)
def test_verbs_answer(python39: str, zipapp: Path, verb: list[str], stdin: str, said: str) -> None:
    done = run(python39, "-I", zipapp, *verb, input=stdin)
    assert said in done.stdout, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    json.loads(done.stdout)
