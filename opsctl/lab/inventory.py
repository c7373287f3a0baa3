"""The inventory of a lab: its hosts, and the reference deployment for them to run."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from opsctl.lab import shell
from opsctl.rehearsal import wheel

HOSTS = """\
# Written by `opsctl lab up`; `opsctl lab down` takes it away.
kimi:
  hosts:
{hosts}  vars:
    ansible_user: root
    ansible_ssh_private_key_file: {lab}/ssh/id_ed25519
    ansible_ssh_common_args: -F {lab}/ssh/config
    ansible_python_interpreter: /usr/bin/python3
"""
SERVICES = """\
# The reference deployment, on lab hosts. Change hicache-ratio to 4.0 and deploy again.
# The times are short because the stand-in engine's clock is: 200 of its seconds take one.
sglang_services:
  kimi:
    model: {{path: /srv/models/Kimi-K2.5, served_name: kimi-k2.5, size: 540GB}}
    engine:
      version: "{version}"
      install:
        requirements: {wheels}/requirements-{version}.txt
        mirror: {wheels}
    port: 30000
    flags:
      tp-size: 8
      mem-fraction-static: 0.88
      trust-remote-code: true
      reasoning-parser: kimi_k2
      tool-call-parser: kimi_k2
      speculative-algorithm: EAGLE3
      speculative-draft-model-path: /srv/models/kimi-k2.5-eagle3
      speculative-eagle-topk: 1
      speculative-num-steps: 3
      speculative-num-draft-tokens: 4
      enable-hierarchical-cache: true
      hicache-ratio: 2.0
      hicache-write-policy: write_through
      hicache-io-backend: kernel
      enable-metrics: true
    env: {{SGLANG_ENABLE_SPEC_V2: "1"}}
    memory: {{min_available: 32GiB, swap: forbid}}
    gates: {{soak: 2s, poll: 0.2s, request_timeout: 10s}}
    timing: {{drain: 10s, stall: 8s, cap: 60s}}
"""


def write(lab: Path, hosts: Sequence[str], version: str) -> Path:
    """Write `lab`/inventory and the mirror that it names; a description that is there stays."""
    folder, wheels = lab / "inventory", lab / "wheels"
    wheel.build(version, wheels)
    services = folder / "group_vars" / "kimi.yml"
    services.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(
        f"    {h}: {{ansible_host: {shell.network()}.{10 + int(h[1:])}}}\n" for h in hosts
    )
    (folder / "hosts.yml").write_text(HOSTS.format(hosts=lines, lab=lab))
    if not services.exists():
        services.write_text(SERVICES.format(version=version, wheels=wheels))
    return folder


def forget(lab: Path) -> None:
    for name in ("inventory", "wheels"):
        shutil.rmtree(lab / name, ignore_errors=True)
