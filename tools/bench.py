"""Time `opsctl status` and a second `deploy.yml` on 1 and 10 lab hosts, as ratios.

The peer is `ansible all -m command -a true` on the same hosts, run in turn with them, so that a
noisy machine disturbs all three alike. Whole processes are timed; minimum, median and maximum of
`--runs` rounds are printed, and the ratio of the medians. Run: python tools/bench.py
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
# Ansible keeps SSH masters for 60 s; the peer may use them, as it does at its users'.
ENV = {**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}


def timed(argv: list[str]) -> float:
    """Wall seconds of one whole process; a failing process ends the benchmark."""
    start = time.monotonic()
    done = subprocess.run(argv, cwd=TOP, env=ENV, capture_output=True, text=True)
    taken = time.monotonic() - start
    if done.returncode != 0:
        said = (done.stdout + done.stderr)[-3000:]
        sys.exit(f"{' '.join(argv)}: exit {done.returncode}\n{said}")
    return taken


def bench(hosts: int, runs: int) -> None:
    subprocess.run(["opsctl", "lab", "down"], cwd=TOP, env=ENV, check=True)
    up = subprocess.run(
        ["opsctl", "lab", "up", str(hosts)], cwd=TOP, env=ENV, check=True, stdout=subprocess.PIPE
    )
    inventory = up.stdout.decode().strip()
    first = timed(["ansible-playbook", "-i", inventory, "playbooks/deploy.yml"])
    print(f"\n{hosts} host(s): first deploy.yml {first:.1f} s", flush=True)
    commands = {
        "ansible -m command": ["ansible", "all", "-i", inventory, "-m", "command", "-a", "true"],
        "opsctl status": ["opsctl", "status", "-i", inventory],
        "second deploy.yml": ["ansible-playbook", "-i", inventory, "playbooks/deploy.yml"],
    }
    for argv in commands.values():  # warm caches, masters and the page cache alike
        timed(argv)
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, argv in commands.items():
            seconds[name].append(timed(argv))
    peer = statistics.median(seconds["ansible -m command"])
    for name, values in seconds.items():
        middle = statistics.median(values)
        print(
            f"  {name:20s} {min(values):6.2f} {middle:6.2f} {max(values):6.2f} s"
            f"   ratio {middle / peer:5.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 10])
    args = parser.parse_args()
    print("minimum, median, maximum of whole processes; ratio of medians to the peer")
    try:
        for hosts in args.hosts:
            bench(hosts, args.runs)
    finally:
        subprocess.run(["opsctl", "lab", "down"], cwd=TOP, env=ENV, check=False)


if __name__ == "__main__":
    main()
