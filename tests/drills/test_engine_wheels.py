"""SGLang's real Python dependencies out of a local mirror into a host that reaches nothing else.

The mirror is made on this machine, from its own index; the host has the lab's bridge and no route.
What the role says and how long it takes stands in docs/drills.md.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.drill, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[2]
PYTHON = "/usr/bin/python3.11"  # the lab hosts' own: wheels are chosen for it
BOOK = """\
- hosts: all
  gather_facts: false
  become: true
  roles:
    - role: engine
      vars:
        engine_environments: "{{ wanted }}"
"""


def mirror(version: str) -> Path:
    """Wheels of everything that ran this release on a CPU, of the release, and of uv. A folder that
    is there already (OPSCTL_WHEELS/VERSION) is used."""
    kept = os.environ.get("OPSCTL_WHEELS")
    folder = Path(kept or Path.home() / ".cache/opsctl/wheels") / version
    listed = ROOT / "tools" / "cpu_engine" / f"requirements-{version}.txt"
    stamp = folder / ".complete"
    if not stamp.exists():
        folder.mkdir(parents=True, exist_ok=True)
        fetch = [PYTHON, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
        subprocess.run([*fetch, "-r", str(listed), f"sglang=={version}", "uv"], check=True)
        stamp.touch()
    return folder


def requirements(folder: Path, file: Path, *, uv: bool) -> None:
    """Every wheel of the mirror, pinned by its hash."""
    lines = []
    for wheel in sorted(folder.glob("*.whl")):
        name, version = wheel.name.split("-")[:2]
        if name != "uv" or uv:
            digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
            lines.append(f"{name.replace('_', '-')}=={version} \\\n    --hash=sha256:{digest}\n")
    file.write_text("".join(lines))


def play(inventory: Path, book: Path, wanted: list[dict[str, Any]], *more: str) -> Any:
    tool = str(Path(sys.executable).with_name("ansible-playbook"))
    told = json.dumps({"wanted": wanted})
    share = {
        "ANSIBLE_ROLES_PATH": str(ROOT / "roles"),
        "ANSIBLE_ACTION_PLUGINS": str(ROOT / "playbooks" / "action_plugins"),
        "ANSIBLE_NOCOLOR": "1",
    }
    return subprocess.run(
        [tool, "-i", str(inventory), str(book), "-e", told, *more],
        env={**os.environ, **share},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def inventory(lab_host: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inventory")
    file = folder / "hosts.yml"
    file.write_text(yaml.safe_dump({"all": {"hosts": {lab_host.name: lab_host.login}}}))
    return file


ROWS = [
    "| SGLang | by | packages | wheels | role, first run | second run | on the disk |",
    "|---|---|---|---|---|---|---|",
]


@pytest.mark.parametrize(
    ("version", "uv"), [("0.5.9", False), ("0.5.9", True), ("0.5.23", False), ("0.5.23", True)]
)
def test_installed_offline_with_hashes(
    lab_host: Any, inventory: Path, tmp_path: Path, version: str, uv: bool
) -> None:
    lab_host.sh('ip route del default 2>/dev/null; test -z "$(ip route show default)"')
    folder = mirror(version)
    file = tmp_path / "requirements.txt"
    requirements(folder, file, uv=uv)
    root = f"/opt/sglang/{version}-{'uv' if uv else 'pip'}"
    install = {"requirements": str(file), "mirror": str(folder), "resolve": False}
    wanted = [{"version": version, "root": root, "cuda": False, "install": install}]
    book = tmp_path / "book.yml"
    book.write_text(BOOK)

    # One wheel of another hash: nothing is put in place.
    right = file.read_text()
    file.write_text(re.sub(r"(numpy==\S+ \\\n    --hash=sha256:)\w{4}", r"\g<1>0000", right))
    assert file.read_text() != right
    refused = play(inventory, book, wanted)
    assert refused.returncode != 0, refused.stdout
    assert re.search("DO NOT MATCH THE HASHES|[Hh]ash mismatch", refused.stdout), refused.stdout
    assert lab_host.sh(f"ls {root}", check=False).returncode != 0

    file.write_text(right)
    begun = time.monotonic()
    first = play(inventory, book, wanted)
    took = time.monotonic() - begun
    assert first.returncode == 0, first.stdout + first.stderr
    assert "changed=1" in first.stdout
    begun = time.monotonic()
    second = play(inventory, book, wanted, "--diff")
    again = time.monotonic() - begun
    assert second.returncode == 0 and "changed=0" in second.stdout, second.stdout

    ask = (
        "import importlib.metadata as m, json, torch, transformers, numpy\n"
        "print(json.dumps({'sglang': m.version('sglang'), 'torch': torch.__version__,"
        " 'sum': float(torch.ones(3).sum()), 'all': [[d.name, d.version]"
        " for d in m.distributions()]}))"
    )
    answer = json.loads(lab_host.sh(f'{root}/bin/python -c "{ask}"', timeout=300).stdout)
    assert answer["sglang"] == version and answer["sum"] == 3.0
    there = {(re.sub(r"[-_.]+", "-", n).lower(), v) for n, v in answer["all"]}
    for wheel in folder.glob("*.whl"):
        name, number = wheel.name.split("-")[:2]
        if name != "uv" or uv:
            assert (re.sub(r"[-_.]+", "-", name).lower(), number) in there, wheel.name
    size = int(lab_host.sh(f"du -sm $(readlink -f {root})").stdout.split()[0])
    wheels = sum(p.stat().st_size for p in folder.glob("*.whl")) / 1e6
    ROWS.append(
        f"| {version} | {'uv of the mirror' if uv else 'pip'} | {right.count('==')} | "
        f"{wheels:.0f} MB | {took:.0f} s | {again:.1f} s, changed=0 | {size} MiB |"
    )


def test_write_the_table() -> None:
    assert len(ROWS) == 6
    mark, path = "engine-wheels", ROOT / "docs" / "drills.md"
    text = path.read_text()
    start, end = f"<!-- {mark}: generated -->\n", f"<!-- /{mark} -->\n"
    title = (
        "## SGLang's dependencies out of a mirror\n\nWritten by `make drills`: a lab host without "
        "a default route, torch for the CPU. The first run sends the wheels over SSH, checks every "
        "hash, installs and compiles to bytecode; before it, a run with one wrong hash was refused "
        "and put nothing in place.\n\n"
    )
    block = f"{start}{title}" + "\n".join(ROWS) + f"\n{end}"
    before, _, rest = text.partition(start)
    if rest:
        block_after = rest.partition(end)[2]
        path.write_text(before + block + block_after)
    else:
        path.write_text(text.rstrip() + "\n\n" + block)
