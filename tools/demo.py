"""The demo: real hosts, the reference deployment, a higher ratio, a fault that restores itself.

Every command is one that an operator types, shown with its output as it comes. Each step's figures
are looked for in that output; one that is missing fails the demo.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from opsctl.errors import OpsctlError
from opsctl.lab import shell
from opsctl.paths import share

HOSTS = 2
BIN = Path(sys.executable).parent
# The next change after ratio 4.0 asks for graphs that do not fit; the engine's real words for it.
GRAPHS = """\
base = "reference"
name = "graphs-too-big"

[fault]
kind = "crash-at-graphs"
when = { cuda-graph-max-bs = 512 }
rank = "TP7"
message = "CUDA out of memory. Tried to allocate 448.00 MiB."
"""


@dataclass
class Show:
    """Runs the commands, shows them, and notes what was missing."""

    env: Mapping[str, str]
    missing: list[str] = field(default_factory=list)
    marks: list[tuple[str, float]] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)

    def chapter(self, title: str) -> None:
        self.marks.append((title, time.monotonic()))
        print(f"\n\033[1m== {title}\033[0m" if sys.stdout.isatty() else f"\n== {title}", flush=True)

    def run(self, *command: str, code: int = 0, wants: Sequence[str] = (), times: int = 1) -> None:
        """Run a command; it must end with `code`, and say each pattern at least `times`."""
        print(f"\n$ {' '.join(command)}", flush=True)
        lines = []
        with subprocess.Popen(
            command,
            env=dict(self.env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                print(f"  {line}", end="", flush=True)
        text = "".join(lines)
        if process.returncode != code:
            self.missing.append(f"{' '.join(command)} ended with {process.returncode}, not {code}")
        for pattern in wants:
            found = len(re.findall(pattern, text))
            if found < times:
                said = f"{' '.join(command)} said {pattern!r} {found} times"
                self.missing.append(f"{said}, not {times}")

    def close(self) -> int:
        ends = [at for _, at in self.marks[1:]] + [time.monotonic()]
        print()
        for (title, begun), ended in zip(self.marks, ends, strict=True):
            print(f"{ended - begun:6.1f} s  {title}")
        print(f"{time.monotonic() - self.begun:6.1f} s  in all, {HOSTS} hosts")
        for what in self.missing:
            print(f"MISSING: {what}", file=sys.stderr)
        print("demo: FAILED" if self.missing else "demo: every figure was there")
        return 1 if self.missing else 0


def main() -> int:
    if (shell.folder() / "hosts").is_dir():
        raise OpsctlError(
            f"a lab is up in {shell.folder()}", hint="opsctl lab down, or set LAB_DIR and LAB_NAME"
        )
    inventory = shell.folder() / "inventory"
    show = Show(
        {
            **os.environ,
            "PATH": f"{BIN}:{os.environ.get('PATH', '')}",
            "OPSCTL_INVENTORY": str(inventory),
            "ANSIBLE_INVENTORY": str(inventory),
            "ANSIBLE_CONFIG": str(share() / "playbooks" / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
        }
    )
    try:
        _story(show, inventory / "group_vars" / "kimi.yml")
    finally:
        show.chapter("Clean up")
        show.run("opsctl", "lab", "down")
    return show.close()


def _story(show: Show, description: Path) -> None:
    play = ("ansible-playbook", str(share() / "playbooks" / "deploy.yml"))
    show.chapter(f"Boot {HOSTS} hosts: systemd, journald, sshd; REHEARSAL engines, no GPU is here")
    show.run("opsctl", "lab", "up", str(HOSTS), wants=[str(description.parent.parent)])
    show.run("opsctl", "hosts", wants=["449", "RTX PRO 6000"])

    show.chapter("Deploy the reference deployment with a cache ratio of 2.0")
    show.run(*play, wants=["8 of 8 ranks", r"22\.39 GB", "confirmed"])
    show.run("opsctl", "status", wants=["confirmed", "8/8", r"159,277"])

    show.chapter("Raise the ratio to 4.0: the plan says what will happen before it does")
    edit(description, "hicache-ratio: 2.0", "hicache-ratio: 4.0")
    show.run("opsctl", "deploy", "--dry-run", wants=[r"hicache-ratio 2\.0 → 4\.0"])
    show.run(*play, wants=["8 of 8 ranks", r"44\.77 GB", "confirmed"])

    show.chapter("Verify: what the engine logged, what the host shows, what the model answers")
    show.run("opsctl", "verify", wants=VERIFIED, times=HOSTS)
    show.run("opsctl", "lab", "ssh", "h1", "free", "-h", wants=[r"449Gi\s+370Gi.*\s78Gi"])
    show.run(*play, wants=[r"h1 +: .*changed=0", r"h2 +: .*changed=0"])

    show.chapter("A change that crashes the engine: the host restores itself")
    scenario = shell.folder() / "graphs-too-big.toml"
    scenario.write_text(GRAPHS)
    show.run("opsctl", "lab", "scenario", "h1", str(scenario))
    edit(description, "hicache-ratio: 4.0", "hicache-ratio: 4.0\n      cuda-graph-max-bs: 512")
    show.run(*play, code=2, wants=["CUDA out of memory", "restored", r"8 of 8 ranks"])
    show.run("opsctl", "status", wants=[r"h1 .*confirmed", r"h2 .*confirmed", r"8 × 44\.77 GB"])
    show.run("opsctl", "verify", wants=VERIFIED, times=HOSTS)


VERIFIED = [
    *(
        r"8 of 8 ranks: .* host pools 44\.77 GB, as expected",
        r"159,277 tokens × 8 GPUs \(10\.42 GiB per GPU\)",
    ),
    *(r"44\.77 GB × 8 = 358 GB", r"370 GiB used of 449, 78 GiB available, no swap"),
    *(r"✓ +generation", r"✓ +reasoning", r"✓ +tools", r"kimi-k2\.5 generates"),
]


def edit(file: Path, old: str, new: str) -> None:
    """Change one line of the description as an owner would, and show it."""
    text = file.read_text()
    if text.count(old) != 1:
        raise OpsctlError(f"{file} does not have {old!r} once")
    file.write_text(text.replace(old, new))
    print(f"\n# {file.name}: {old.strip()} → {' '.join(new.split())}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OpsctlError as error:
        sys.exit(f"demo: {error.message}" + (f"; {error.hint}" if error.hint else ""))
