"""The playbooks on real hosts, with the stand-in engine: deploy, again, change, verify, go back.

The tests build on each other, as an operator's day does. h1 is reached as root; h2 through h1 only,
as a user whose sudo asks for a password. Both play the reference deployment.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from opsctl.lab import inventory as lab_inventory
from opsctl.lab import rehearse
from opsctl.paths import share
from opsctl.rehearsal import wheel

pytestmark = pytest.mark.lab

CANARY = "CANARY-7f3a9"
SUDO = "CANARY-sudo-5c1e"
TOP = share()
# The reference deployment's own figures, as the stand-in's scenario logs them.
MEASURED = {"gpu_free_before": "94.05GiB", "gpu_free_after": "21.71GiB"}


@dataclass
class Fleet:
    """Two hosts, and the inventory that describes them."""

    hosts: dict[str, Any]
    inventory: Path
    # A forecast's cap may widen the unit's start limit, and a render without hosts knows none.
    cap: str | None = "60s"

    def play(self, name: str, *more: str, cwd: Path = TOP / "playbooks") -> str:
        """A playbook that must end well; its output."""
        done = self.tried(name, *more, cwd=cwd)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def tried(
        self, name: str, *more: str, cwd: Path = TOP / "playbooks"
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [_tool("ansible-playbook"), "-i", str(self.inventory), name, *more],
            cwd=cwd,
            env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert not any(secret in done.stdout + done.stderr for secret in (CANARY, SUDO))
        return done

    def describe(self, **flags: Any) -> None:
        """Change flags of the group's description."""
        file = self.inventory / "group_vars" / "kimi.yml"
        said = yaml.safe_load(file.read_text())
        kimi = said["sglang_services"]["kimi"]
        kimi["flags"] |= flags
        kimi["secrets"] = {"api-key": CANARY}
        kimi["memory"]["calibration"] = MEASURED
        if self.cap:
            kimi["timing"]["cap"] = self.cap
        file.write_text(yaml.safe_dump(said))

    def invocations(self) -> dict[str, str]:
        """Which start is running, by host: it changes with every restart."""
        ask = "systemctl show -P InvocationID sglang-kimi.service"
        return {name: host.sh(ask).stdout.strip() for name, host in self.hosts.items()}

    def units(self) -> dict[str, str]:
        ask = "cat /etc/systemd/system/sglang-kimi.service 2>/dev/null || true"
        return {name: host.sh(ask).stdout for name, host in self.hosts.items()}


def _tool(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def recap(output: str) -> dict[str, dict[str, int]]:
    """Ansible's closing lines, by host."""
    rows = re.findall(r"^(\w+) +: (ok=.*)$", output.partition("PLAY RECAP")[2], re.MULTILINE)
    return {
        host: {key: int(n) for key, n in re.findall(r"(\w+)=(\d+)", counts)}
        for host, counts in rows
    }


def told(output: str) -> list[str]:
    """What --diff shows, in order and without the hosts' lines."""
    return [line for line in output.splitlines() if re.match(r"(---|\+\+\+|@@|[+-])", line)]


def reached(hosts: list[Any]) -> dict[str, Any]:
    """The inventory's hosts: the first as root, the second over it, by a user with sudo."""
    said = {host.name: host.login for host in hosts}
    over = f" -o ProxyJump={hosts[0].address}"
    said[hosts[1].name] |= {
        "ansible_user": "carol",
        "ansible_become": True,
        "ansible_become_password": SUDO,
        "ansible_ssh_common_args": hosts[1].login["ansible_ssh_common_args"] + over,
    }
    hosts[1].sh(
        f"useradd -m -s /bin/bash carol && echo carol:{SUDO} | chpasswd && "
        "cp -r /root/.ssh /home/carol/ && chown -R carol: /home/carol/.ssh && "
        "echo 'carol ALL=(root) ALL' >/etc/sudoers.d/carol && "
        f"echo 'AllowUsers root carol@{hosts[0].address}' >/etc/ssh/sshd_config.d/jump.conf && "
        # Without sftp, which only the wheels of the role `engine` would take.
        "sed -i '/^Subsystem/d' /etc/ssh/sshd_config && systemctl restart ssh"
    )
    return {"kimi": {"hosts": said}}


@pytest.fixture(scope="module")
def fleet(lab_hosts: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    hosts = {host.name: host for host in lab_hosts}
    folder = tmp_path_factory.mktemp("inventory")
    wheel.build("0.5.9", folder.parent / "wheels")
    (folder / "hosts.yml").write_text(yaml.safe_dump(reached(lab_hosts)))
    (folder / "group_vars").mkdir()
    services = lab_inventory.SERVICES.format(version="0.5.9", wheels="../wheels")
    (folder / "group_vars" / "kimi.yml").write_text(services)
    for name in hosts:
        rehearse.prepare(name)
    found = Fleet(hosts, folder)
    found.describe()
    yield found


@pytest.fixture(scope="module")
def deployed(fleet: Fleet) -> Fleet:
    """Deployed once. What --check --diff said before is what the run then did."""
    foretold = fleet.play("deploy.yml", "--check", "--diff")
    assert not any(fleet.units().values())
    for host in fleet.hosts.values():
        assert host.sh("id sglang || ls /etc/opsctl /opt/sglang", check=False).returncode != 0
    done = fleet.play("deploy.yml", "--diff")
    assert sorted(told(foretold)) == sorted(told(done))
    assert {h: c["changed"] for h, c in recap(foretold).items()} == {
        h: c["changed"] for h, c in recap(done).items()
    }
    return fleet


def test_deployed_and_confirmed(deployed: Fleet) -> None:
    for host in deployed.hosts.values():
        assert host.sh("systemctl is-active sglang-kimi.service").stdout.strip() == "active"
        confirmed = host.sh("cat /var/lib/opsctl/kimi/confirmed").stdout.strip()
        assert f"X-OpsctlRelease={confirmed}" in deployed.units()[host.name]


def test_ansible_has_staged_what_opsctl_renders(deployed: Fleet, tmp_path: Path) -> None:
    """Byte for byte, with the modes; only the manifest has what a forecast was told by the host."""
    argv = [_tool("opsctl"), "render", "-i", str(deployed.inventory), "--out", str(tmp_path)]
    subprocess.run(argv, check=True, capture_output=True, timeout=60)
    for name, host in deployed.hosts.items():
        folder = tmp_path / name / "kimi"
        rendered = {p.relative_to(folder): p for p in folder.rglob("*") if p.is_file()}
        release = (
            "/etc/opsctl/kimi/releases/" + host.sh("cat /var/lib/opsctl/kimi/confirmed").stdout
        )
        ask = f"cd {release.strip()} && find . -type f -exec stat -c '%a %n' {{}} + && "
        said = host.sh(ask + "find . -type f -exec sha256sum {} +").stdout.splitlines()
        modes = {Path(n): m for m, n in (x.split(" ", 1) for x in said if x[3] == " ")}
        sums = {Path(n): h for h, n in (x.split(None, 1) for x in said if x[3] != " ")}
        assert set(modes) == set(sums) == set(rendered) and len(rendered) == 5
        for part, path in rendered.items():
            assert modes[part] == f"{path.stat().st_mode & 0o777:o}", part
            if part.name != "release.json":
                assert sums[part] == hashlib.sha256(path.read_bytes()).hexdigest(), part


def test_a_second_run_changes_and_restarts_nothing(deployed: Fleet) -> None:
    before = deployed.invocations()
    said = deployed.play("playbooks/deploy.yml", "--diff", cwd=TOP)
    assert {host: counts["changed"] for host, counts in recap(said).items()} == {"h1": 0, "h2": 0}
    assert told(said) == []
    assert deployed.invocations() == before


def test_a_start_at_ratio_2_foretells_ratio_4(deployed: Fleet) -> None:
    """What the first start left on record, and the exact forecast that comes of it."""
    host = deployed.hosts["h1"]
    told = host.sh("cat /var/lib/opsctl/kimi/starts/*.json").stdout
    record = json.loads(told)
    assert CANARY not in told
    assert record["flags"]["hicache-ratio"] == 2.0 and record["engine_version"] == "0.5.9"
    # the scenario's own memory of a rank; the pools are known to two decimals of a GB
    assert record["process"] == pytest.approx(3670016 * 1024, abs=5_000_000)
    assert record["model"]["bytes"] == 547_000_000_000 and record["cached"] < 0.1
    assert set(record["seconds"]) == {
        "launch", "dist", "weights", "kv", "graphs", "draft_weights", "draft_kv", "draft_graphs",
        "host_pools", "warmup", "total",
    }  # fmt: skip
    argv = [_tool("opsctl"), "forecast", "kimi", "-i", str(deployed.inventory), "--limit", "h1"]
    done = subprocess.run(
        [*argv, "--set", "hicache-ratio=4.0", "-o", "json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    (said,) = json.loads(done.stdout)["forecasts"]
    assert (said["gpu"]["tokens"], said["gpu"]["tokens_basis"]) == (159277, "measured")
    (pool,) = said["host"]["pools"]
    assert (pool["tokens"], round(pool["gb"], 2)) == (637109, 44.77)
    # as the scenario's host has it after such a start: 82,418,073 kB
    assert said["host"]["available_after_gib"] == pytest.approx(82418073 / 2**20, abs=0.1)
    assert said["start"]["seconds"] < 60  # 610 s of loading take 3 s in the rehearsal


def postdeploy(fleet: Fleet, host: str, *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
            str(TOP / "tests" / "postdeploy"), *words,
            f"--hosts=ansible://{host}",
            f"--ansible-inventory={fleet.inventory / 'hosts.yml'}",
        ],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )  # fmt: skip
    assert CANARY not in done.stdout and SUDO not in done.stdout
    return done


def test_postdeploy_checks_show_what_the_hosts_find(deployed: Fleet) -> None:
    done = postdeploy(deployed, "h1")
    assert done.returncode == 0, done.stdout
    # 13 for each service and one for each host. In the lab no process may be given more locked
    # memory than the host has, which the checks find out by themselves.
    assert re.search(r"\b13 passed, 1 skipped", done.stdout), done.stdout
    assert "may not raise limits" in done.stdout


def test_postdeploy_checks_where_sudo_wants_a_password(deployed: Fleet) -> None:
    done = postdeploy(deployed, "h2")
    assert done.returncode != 0 and "with --force-ansible" in done.stdout, done.stdout
    done = postdeploy(deployed, "h2", "--force-ansible", "-k", "services_are_found")
    assert done.returncode == 0, done.stdout


def test_verify(deployed: Fleet) -> None:
    said = deployed.play("verify.yml")
    for host in deployed.hosts:
        for gate in ("unit", "ranks", "generation", "reasoning", "tools", "memory"):
            assert f"{host} kimi: ✓ {gate}" in said
        assert f"{host} kimi: ! warn hicache-eagle-draft-not-restored: " in said


def test_check_tells_a_restart_and_why_and_touches_nothing(deployed: Fleet) -> None:
    before, units = deployed.invocations(), deployed.units()
    deployed.describe(**{"hicache-ratio": 4.0})
    said = deployed.play("deploy.yml", "--check", "--diff")
    assert "h1 kimi: restart: hicache-ratio 2.0 → 4.0" in said
    assert "hicache-ratio" in "\n".join(told(said))
    assert deployed.invocations() == before
    assert deployed.units() == units


def test_check_fails_for_what_the_deployment_would_be_refused_for(deployed: Fleet) -> None:
    """With what doctor would have one type; no role has anything to do on these hosts."""
    before, model = deployed.invocations(), "/srv/models/Kimi-K2.5"
    deployed.hosts["h2"].sh(f"chmod 700 {model}")
    checked, done = (deployed.tried("deploy.yml", *more) for more in (("--check",), ()))
    deployed.hosts["h2"].sh(f"chmod 755 {model}")
    for one in (checked, done):
        assert one.returncode == 2 and recap(one.stdout)["h2"]["failed"] == 1
        assert f"sglang may not read {model}" in one.stdout
        assert f"chmod a+rX -R {model}" in one.stdout
        assert "opsctl doctor --limit h2" in one.stdout
    assert deployed.invocations() == before


def test_a_limit_that_names_a_stranger_stops_all(deployed: Fleet) -> None:
    before = deployed.invocations()
    done = deployed.tried("deploy.yml", "--limit", "h1,h11")
    assert done.returncode == 2 and "is called h11; nothing was touched" in done.stdout
    assert "TASK [See what is not as described]" not in done.stdout
    assert deployed.invocations() == before


def test_an_unreachable_host_stops_all_before_any_restart(deployed: Fleet) -> None:
    before = deployed.invocations()
    deployed.hosts["h2"].lab("cut", "reject")
    try:
        done = deployed.tried("deploy.yml")
    finally:
        deployed.hosts["h2"].lab("mend")
    assert done.returncode != 0
    assert recap(done.stdout)["h2"]["unreachable"] == 1
    assert "nothing was restarted, since h2 failed or could not be reached" in done.stdout
    assert deployed.invocations() == before


def test_a_host_that_is_refused_stops_all_before_any_restart(deployed: Fleet) -> None:
    before = deployed.invocations()
    folder = deployed.inventory / "host_vars"
    folder.mkdir(exist_ok=True)
    (folder / "h2.yml").write_text("sglang_overrides: {kimi: {model: {path: /srv/models/none}}}\n")
    done = deployed.tried("deploy.yml")
    (folder / "h2.yml").unlink()
    assert done.returncode == 2
    assert "service kimi: model /srv/models/none: no such folder on the host" in done.stdout
    assert "TASK [Restart what has changed" not in done.stdout
    assert deployed.invocations() == before


def test_a_host_that_ansible_has_dropped_is_not_left_out_in_silence(
    deployed: Fleet, tmp_path: Path
) -> None:
    """A playbook of an operator's own, without max_fail_percentage."""
    before = deployed.invocations()
    book = tmp_path / "own.yml"
    book.write_text(
        "- {hosts: all, gather_facts: false, tasks: [{ansible.builtin.command: 'false', "
        "when: inventory_hostname == 'h2'}]}\n"
        "- {hosts: all, gather_facts: false, tasks: [{opsctl_rollout: {op: restart}, "
        "run_once: true}]}\n"
    )
    done = deployed.tried(str(book))
    assert "nothing was restarted, since h2 failed or could not be reached" in done.stdout
    assert deployed.invocations() == before


def test_an_undefined_variable_is_refused_before_anything_is_touched(deployed: Fleet) -> None:
    host_vars = deployed.inventory / "host_vars"
    host_vars.mkdir(exist_ok=True)
    (host_vars / "h2.yml").write_text(
        'sglang_overrides: {kimi: {flags: {hicache-ratio: "{{ ratoi }}"}}}\n'
    )
    done = deployed.tried("deploy.yml")
    (host_vars / "h2.yml").unlink()
    assert done.returncode == 2
    said = " ".join(done.stdout.replace("''", "'").split())  # YAML's form of it in 2.18
    assert "host h2, key sglang_overrides.kimi.flags.hicache-ratio: 'ratoi' is undefined" in said
    assert "TASK [host :" not in done.stdout


def test_who_interrupts_a_deployment_is_told_what_goes_on(deployed: Fleet, tmp_path: Path) -> None:
    """The guard at work brings its restart to its end; what was typed goes on from there."""
    command = [_tool("ansible-playbook"), "-i", str(deployed.inventory), "deploy.yml"]
    command += ["--limit", "h1", "-e", f"mine={CANARY}"]
    log = tmp_path / "play"
    with log.open("wb") as out:
        play = subprocess.Popen(command, cwd=TOP / "playbooks", stdout=out, stderr=out)
        watching = until(lambda: "h1 kimi: start" in log.read_text() or play.poll() is not None)
        play.send_signal(signal.SIGINT)
        assert watching and play.wait(60) == 99, log.read_text()
    until(lambda: "next: " in log.read_text())
    said = log.read_text()
    assert re.search(r"^h1 kimi: interrupted; now: \w+, and its guard confirms or", said, re.M), (
        said
    )
    again = shlex.join(["ansible-playbook", *command[1:-2]])
    assert f"next: opsctl watch kimi --limit h1; then again: {again} (and -e mine, " in said
    assert CANARY not in said
    watch = [_tool("opsctl"), "watch", "kimi", "--limit", "h1", "-i", str(deployed.inventory)]
    done = subprocess.run(watch, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "--hicache-ratio=4.0" in deployed.units()["h1"]
    deployed.play("rollback.yml", "--limit", "h1")


def until(true: Callable[[], bool]) -> bool:
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)
    return True


def test_a_change_is_rolled_out_and_back_again(deployed: Fleet) -> None:
    before, units = deployed.invocations(), deployed.units()
    said = deployed.play("deploy.yml", "--limit", "h2")
    assert "h2 kimi: restart: hicache-ratio 2.0 → 4.0" in said
    changed = deployed.invocations()
    assert changed["h1"] == before["h1"]
    assert changed["h2"] != before["h2"]
    assert "--hicache-ratio=4.0" in deployed.units()["h2"]
    deployed.play("rollback.yml", "--limit", "h2", "--check")
    assert deployed.invocations() == changed
    deployed.play("rollback.yml", "--limit", "h2")
    assert deployed.invocations()["h2"] not in (changed["h2"], before["h2"])
    assert deployed.units() == units


def test_no_secret_on_the_hosts_but_in_its_file(deployed: Fleet) -> None:
    """Not in the journal, nor in what any process was started with, nor in any other file."""
    word = f"[C]{CANARY[1:]}"  # as a pattern: the search itself must not be found
    started = f"cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ | tr '\\0' '\\n' | grep -ac '{word}'"
    for host in deployed.hosts.values():
        assert host.sh(f"journalctl -o cat --no-pager | grep -ac '{word}'; true").stdout == "0\n"
        assert host.sh(f"({started}) 2>/dev/null; true").stdout == "0\n"
        files = host.sh(f"grep -rl '{word}' /etc /var/lib /run /root /home; true").stdout
        found = files.splitlines()
        assert any(line.endswith("/secrets/api-key") for line in found)
        assert all("/secrets/" in line or "/credentials/" in line for line in found), files
