"""Time `opsctl status` and a second `deploy.yml` on 1 and 10 lab hosts, as ratios.

The peer is `ansible all -m command -a true` on the same hosts, run in turn with them, so that a
noisy machine disturbs all three alike. Whole processes are timed; minimum, median and maximum of
`--runs` rounds are printed, the ratio of the medians, and the CPU time of the controller's side,
which other work on the machine disturbs least. Run: python tools/bench.py

Both Ansible commands find an SSH master that the round before has left, as at their users' (it is
kept for 60 s; one that is gone would be opened within the first command of the next round, so each
round begins with an untimed `ansible -m command`). opsctl opens its own connections each time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
ENV = {**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
PEER = "ansible -m command"


@dataclass(frozen=True)
class Taken:
    """Seconds of one whole process. `cpu`: user and system, with all processes that it awaited;
    what runs on the hosts is not among them."""

    wall: float
    cpu: float


def timed(argv: list[str]) -> Taken:
    """A failing process ends the benchmark."""
    before, start = os.times(), time.monotonic()
    done = subprocess.run(argv, cwd=TOP, env=ENV, capture_output=True, text=True)
    wall, after = time.monotonic() - start, os.times()
    if done.returncode != 0:
        said = (done.stdout + done.stderr)[-3000:]
        sys.exit(f"{' '.join(argv)}: exit {done.returncode}\n{said}")
    user = after.children_user - before.children_user
    return Taken(wall, user + after.children_system - before.children_system)


def commands(inventory: str) -> dict[str, list[str]]:
    return {
        PEER: ["ansible", "all", "-i", inventory, "-m", "command", "-a", "true"],
        "opsctl status": ["opsctl", "status", "-i", inventory],
        "second deploy.yml": ["ansible-playbook", "-i", inventory, "playbooks/deploy.yml"],
    }


def rounds(inventory: str, runs: int) -> dict[str, list[Taken]]:
    """One round more than is kept: it warms the caches of all alike."""
    taken: dict[str, list[Taken]] = {name: [] for name in commands(inventory)}
    for number in range(runs + 1):
        timed(commands(inventory)[PEER])
        for name, argv in commands(inventory).items():
            found = timed(argv)
            taken[name] += [found] if number else []
    return taken


def show(taken: dict[str, list[Taken]]) -> None:
    peer_wall = statistics.median(one.wall for one in taken[PEER])
    peer_cpu = statistics.median(one.cpu for one in taken[PEER])
    for name, values in taken.items():
        walls, cpus = [one.wall for one in values], [one.cpu for one in values]
        wall, cpu = statistics.median(walls), statistics.median(cpus)
        print(
            f"  {name:20s} {min(walls):6.2f} {wall:6.2f} {max(walls):6.2f} s"
            f"  ratio {wall / peer_wall:5.2f}"
            f"   CPU {min(cpus):6.2f} {cpu:6.2f} {max(cpus):6.2f} s  ratio {cpu / peer_cpu:5.2f}",
            flush=True,
        )


def bench(hosts: int, runs: int) -> None:
    """On a fresh lab."""
    subprocess.run(["opsctl", "lab", "down"], cwd=TOP, env=ENV, check=True)
    up = subprocess.run(
        ["opsctl", "lab", "up", str(hosts)], cwd=TOP, env=ENV, check=True, stdout=subprocess.PIPE
    )
    inventory = up.stdout.decode().strip()
    first = timed(["ansible-playbook", "-i", inventory, "playbooks/deploy.yml"])
    print(f"\n{hosts} host(s): first deploy.yml {first.wall:.1f} s", flush=True)
    show(rounds(inventory, runs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--inventory", help="hosts that are deployed already; no lab is touched")
    args = parser.parse_args()
    print(
        "minimum, median, maximum of whole processes, and of the controller's CPU time; "
        f"ratio of medians to {PEER}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"
    )
    if args.inventory:
        show(rounds(args.inventory, args.runs))
        return
    try:
        for hosts in args.hosts:
            bench(hosts, args.runs)
    finally:
        subprocess.run(["opsctl", "lab", "down"], cwd=TOP, env=ENV, check=False)


if __name__ == "__main__":
    main()
