"""The inventory of a lab: its hosts, and the reference deployment for them to run."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from opsctl.errors import OpsctlError
from opsctl.lab import shell
from opsctl.rehearsal import wheel

HOSTS = """\
# Written by `opsctl lab up`; `opsctl lab down` takes it away.
{group}:
  hosts:
{hosts}  vars:
    ansible_user: root
    ansible_ssh_private_key_file: {lab}/ssh/id_ed25519
    ansible_ssh_common_args: -F {lab}/ssh/config
    ansible_python_interpreter: /usr/bin/python3
"""
SERVICES = """\
# The reference deployment, on lab hosts. Change hicache-ratio to 4.0 and deploy again. The stand-in
# engine has figures of real starts for 2.0, for 4.0 and without the tier; it makes no others up.
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
    memory:
      min_available: 32GiB
      swap: forbid
      # As logged at an earlier start on such a host: `avail mem` before and after the weights.
      calibration: {{gpu_free_before: 94.05GiB, gpu_free_after: 21.71GiB}}
    gates: {{soak: 2s, poll: 0.2s, request_timeout: 10s}}
    timing: {{drain: 10s, stall: 8s}}
"""


SMALL = """\
# A tiny model on one GPU, for the newer engine's wording, endpoints and shutdown.
sglang_services:
  tiny:
    model: {{path: /srv/models/tiny-llama}}
    engine:
      version: "{version}"
      install:
        requirements: {wheels}/requirements-{version}.txt
        mirror: {wheels}
    port: 30000
    flags: {{mem-fraction-static: 0.3, max-total-tokens: 4096, enable-metrics: true}}
    memory: {{min_available: 32GiB, swap: forbid}}
    gates: {{soak: 2s, poll: 0.2s, request_timeout: 10s}}
    timing: {{drain: 10s, stall: 8s}}
"""
# Engine version → the scenario that hosts play, its group and the description that fits it.
PLAYED = {"0.5.9": ("reference", "kimi", SERVICES), "0.5.23": ("small-0.5.23", "tiny", SMALL)}


def played(version: str) -> tuple[str, str, str]:
    """Raises OpsctlError for a version that no scenario has the lines of."""
    if version not in PLAYED:
        raise OpsctlError(
            f"no scenario has the lines of SGLang {version}",
            hint=f"there are: {', '.join(PLAYED)}",
        )
    return PLAYED[version]


def write(lab: Path, hosts: Sequence[str], version: str) -> Path:
    """Write `lab`/inventory and the mirror that it names; a description that is there stays."""
    _, group, services = played(version)
    folder, wheels = lab / "inventory", lab / "wheels"
    wheel.build(version, wheels)
    described = folder / "group_vars" / f"{group}.yml"
    described.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(
        f"    {h}: {{ansible_host: {shell.network()}.{10 + int(h[1:])}}}\n" for h in hosts
    )
    (folder / "hosts.yml").write_text(HOSTS.format(group=group, hosts=lines, lab=lab))
    if not described.exists():
        described.write_text(services.format(version=version, wheels=wheels))
    return folder


def forget(lab: Path) -> None:
    for name in ("inventory", "wheels"):
        shutil.rmtree(lab / name, ignore_errors=True)
