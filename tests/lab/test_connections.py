"""Ways to a host: each is an inventory host of its own, and all of them are h1; h2 is the bastion.

docs/connections.md tells what is handled and what is refused; this is where it was seen.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from opsctl.errors import OpsctlError
from opsctl.paths import share
from opsctl.remote import connect
from opsctl.remote.target import resolve
from tests.conftest import LabHost, ssh_config
from tests.lab.apt_repository import Repository

pytestmark = pytest.mark.lab

PASSWORD = "canary-Passw0rd"
WRONG = "canary-Wr0ng"
USERS = (
    "inner",
    "carol",
    "mallory",
    "dave",
    "tina",
    "noisy",
    "homeless",
    "nologin",
    "false",
    "slow",
)
USERS += ("single", "walter", "plain", "lost")
SUDOERS = f"""\
Defaults use_pty
Defaults lecture=always
Defaults secure_path="/usr/sbin:/usr/bin:/sbin:/bin"
Defaults !setenv
Defaults:tina requiretty
carol,mallory ALL=(root) ALL
{",".join(sorted(set(USERS) - {"carol", "mallory", "dave"}))} ALL=(root) NOPASSWD: ALL
"""
SSHD = """\
Banner /etc/issue.net
Subsystem sftp /nowhere/sftp-server
PasswordAuthentication no
KbdInteractiveAuthentication no
AllowUsers root deploy inner@{bastion} {others}
AllowTcpForwarding no
Match User single
    MaxSessions 1
Match User walter
    AuthenticationMethods password
    PasswordAuthentication yes
"""
OLD = """\
#!/usr/bin/python3
import sys
program = sys.argv[sys.argv.index("-c") + 1]
sys.argv = ["-c", *sys.argv[sys.argv.index("-c") + 2:]]
sys.version_info, sys.executable = (3, 6, 8), "/opt/old/python3"
exec(program)
"""
NOISE = """\
echo 'Welcome! {"error": {"message": "not a document"}}'
echo 'sudo: opsctl-go is not what you think' >&2
head -c 200000 /dev/zero | tr '\\0' 'x'; printf 'no end of line'
"""
OPSCTL = (sys.executable, "-c", "from opsctl.cli.main import main; main()")
SERVICE = {"kimi": {"model": {"path": "/srv/models/none"}, "engine": {"version": "0.5.9"}}}


@dataclass
class Ways:
    """An inventory in which every way to h1 has a name."""

    target: LabHost
    bastion: LabHost
    folder: Path

    @property
    def inventory(self) -> Path:
        return self.folder / "inventory"

    def opsctl(self, *words: str, **environ: str) -> Any:
        return self._ended(["setsid", *OPSCTL, *words], self.folder, environ)

    def play(self, *words: str, **environ: str) -> Any:
        tool = str(Path(sys.executable).with_name("ansible-playbook"))
        command = [tool, "-i", str(self.inventory), *words]
        return self._ended(command, share() / "playbooks", environ)

    @property
    def environ(self) -> dict[str, str]:
        known = {
            "OPSCTL_INVENTORY": str(self.inventory),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "ANSIBLE_VAULT_PASSWORD_FILE": str(self.folder / "vault"),
            "ANSIBLE_NOCOLOR": "1",
        }
        return {**os.environ, **known}

    def _ended(self, command: list[str], cwd: Path, environ: dict[str, str]) -> Any:
        done = subprocess.run(
            command, cwd=cwd, env={**self.environ, **environ}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        said = done.stdout + done.stderr
        assert PASSWORD not in said and WRONG not in said and "Traceback" not in said, said
        return done

    def variables(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load((self.folder / "ways.yml").read_text())[name]
        return found

    def logins(self, on: LabHost, user: str) -> int:
        grep = f"journalctl -b -t sshd --no-pager | grep -c 'Accepted .* for {user} '"
        return int(on.sh(grep, check=False).stdout)


def ways(target: LabHost, bastion: LabHost, config: Path) -> dict[str, dict[str, Any]]:
    """What the inventory says of each; ansible_host is h1's address unless said."""
    lost = f"ssh -F {config} -W %h:%p 10.77.0.99"
    jump = f"-o ProxyJump={bastion.address}"
    user: dict[str, dict[str, Any]] = {
        "jumped": {"user": "inner", "args": jump, "become_password": PASSWORD},
        "twice": {"user": "inner", "args": f"-J {bastion.address},deploy@127.0.0.1"},
        "command": {"user": "inner", "args": f'-o ProxyCommand="ssh -F {config} -W %h:%p h2"'},
        "direct": {"user": "inner"},
        "no_bastion": {"user": "inner", "args": "-J 10.77.0.99 -o ConnectTimeout=2"},
        "no_command": {"user": "inner", "args": f'-o ProxyCommand="{lost}"'},
        "strange_bastion": {"user": "inner", "args": "-J 10.77.0.98"},
        "closed_bastion": {"user": "inner", "args": f"-J lost@{bastion.address}"},
        "vaulted": {"user": "carol", "become_password": PASSWORD},
        "old_name": {"user": "carol", "become_pass": PASSWORD},
        "unasked": {"user": "deploy", "become_password": PASSWORD},
        "no_password": {"user": "carol"},
        "wrong": {"user": "mallory", "become_password": WRONG},
        "no_sudoer": {"user": "dave"},
        "tty": {"user": "tina"},
        "becomes_bob": {"user": "deploy", "become_user": "bob"},
        "becomes_none": {"user": "deploy", "become": False},
        "no_sudo": {"user": "plain", "become_exe": "/nowhere/sudo"},
        "noisy": {"user": "noisy"},
        "homeless": {"user": "homeless"},
        "nologin": {"user": "nologin"},
        "shell_false": {"user": "false"},
        "slow": {"user": "slow", "args": "-o ServerAliveInterval=1 -o ServerAliveCountMax=2"},
        "single": {"user": "single"},
        "by_password": {"user": "walter", "password": PASSWORD},
        "by_no_key": {"user": "walter"},
        "by_six": {"user": "plain", "host": "fd77::11"},
        "by_key": {"user": "plain", "private_key_file": str(config.with_name("id_ed25519"))},
        "other_python": {"user": "plain", "python_interpreter": "/usr/bin/env python3.11"},
        "old_python": {"user": "plain", "python_interpreter": "/opt/old/python3"},
        "no_python": {"user": "plain", "python_interpreter": "/nowhere/python3"},
        "bare": {"user": "root", "host": bastion.address},
    }
    for said in user.values():
        said["ssh_common_args"] = f"-F {config} {said.pop('args', '')}".strip()
    return {
        name: {"ansible_host": target.address}
        | {f"ansible_{key}": value for key, value in said.items()}
        for name, said in user.items()
    }


@pytest.fixture(scope="module")
def fleet(lab_hosts: list[LabHost], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    target, bastion = lab_hosts
    folder = tmp_path_factory.mktemp("ways")
    (folder / "vault").write_text("open sesame\n")
    config = _keys(folder, target)
    _prepare(target, bastion)
    found = ways(target, bastion, config)
    (folder / "ways.yml").write_text(yaml.safe_dump(found))
    _inventory(folder, found)
    yield Ways(target, bastion, folder)


def _keys(folder: Path, target: LabHost) -> Path:
    """An SSH configuration that knows h1 by its IPv6 address too, and a bastion that is not."""
    lab = Path(ssh_config())
    known, config = folder / "known_hosts", folder / "config"
    lines = (lab.with_name("known_hosts")).read_text()
    first, second = (line.split(" ", 1)[1] for line in lines.splitlines()[:2])
    known.write_text(f"{lines}fd77::11 {first}\n10.77.0.99 {first}\n127.0.0.1 {second}\n")
    text = lab.read_text().replace(str(lab.with_name("known_hosts")), str(known))
    config.write_text(text.replace("BatchMode yes", "BatchMode no"))  # which asks no password
    for name in ("id_ed25519", "id_ed25519.pub"):
        (folder / name).write_bytes(lab.with_name(name).read_bytes())
        (folder / name).chmod(0o600)
    return config


def _prepare(target: LabHost, bastion: LabHost) -> None:
    net = os.environ.get("LAB_NAME", "lab") + "br0"
    subprocess.run(["ip", "addr", "replace", "fd77::1/64", "dev", net, "nodad"], check=True)
    target.put("/etc/sudoers.d/ways", SUDOERS.encode(), "440")
    target.put("/opt/old/python3", OLD.encode(), "755")
    target.put("/etc/issue.net", b"AUTHORIZED USE ONLY\n{}\n")
    target.sh(
        "ip addr add fd77::11/64 dev eth0 nodad && mount -t tmpfs -o noexec tmpfs /tmp && "
        f"for user in {' '.join(USERS)}; do useradd -m -s /bin/bash $user; "
        f"echo $user:{PASSWORD}; done | chpasswd && "
        f"for user in {' '.join(USERS)}; do cp -r /root/.ssh /home/$user/; "
        "chown -R $user: /home/$user/.ssh; done && "
        "usermod -s /usr/sbin/nologin nologin && usermod -s /bin/false false && "
        "mkdir /etc/ways && install -m 644 /root/.ssh/authorized_keys /etc/ways/keys && "
        "rm -r /home/homeless && "
        "chmod 555 /home/plain && "
        "printf 'session optional pam_exec.so quiet /etc/ways/slow\\n' >>/etc/pam.d/sshd"
    )
    target.put("/etc/ways/slow", b'#!/bin/sh\n[ "$PAM_USER" != slow ] || sleep 5\n', "755")
    target.put("/home/noisy/.bashrc", NOISE.encode())
    others = " ".join(sorted(set(USERS) - {"inner"}))
    sshd = "AuthorizedKeysFile .ssh/authorized_keys /etc/ways/keys\n" + SSHD
    text = sshd.format(bastion=bastion.address, others=others)
    target.sh("sed -i '/^Subsystem/d; /^Banner/d' /etc/ssh/sshd_config")
    target.put("/etc/ssh/sshd_config.d/00-ways.conf", text.encode())
    target.sh("systemctl restart ssh")
    bastion.sh(
        "useradd -m lost && cp -r /root/.ssh /home/lost/ && chown -R lost: /home/lost/.ssh && "
        "printf 'Match User lost\\n    AllowTcpForwarding no\\n' "
        ">/etc/ssh/sshd_config.d/99-ways.conf && systemctl restart ssh"
    )


def _inventory(folder: Path, found: dict[str, dict[str, Any]]) -> None:
    """The passwords stand in vaults: one as a value, the others in a file that is one."""
    inventory = folder / "inventory"
    (inventory / "group_vars" / "all").mkdir(parents=True)
    (inventory / "host_vars").mkdir()
    vault = str(Path(sys.executable).with_name("ansible-vault"))
    environ = {**os.environ, "ANSIBLE_VAULT_PASSWORD_FILE": str(folder / "vault")}

    def sealed(input: str, *words: str) -> str:
        return subprocess.run(
            [vault, *words], input=input, env=environ, check=True, capture_output=True, text=True
        ).stdout

    kept = {"vault_right": PASSWORD, "vault_wrong": WRONG}
    (inventory / "group_vars" / "all" / "vault.yml").write_text(
        sealed(yaml.safe_dump(kept), "encrypt", "--output", "-")
    )
    (inventory / "host_vars" / "vaulted.yml").write_text(
        sealed(PASSWORD, "encrypt_string", "--stdin-name", "ansible_become_password")
    )
    names = {PASSWORD: "{{ vault_right }}", WRONG: "{{ vault_wrong }}"}
    hosts = {
        name: {
            key: names.get(value, value)
            for key, value in said.items()
            if (name, key) != ("vaulted", "ansible_become_password")
        }
        for name, said in found.items()
    }
    (inventory / "hosts.yml").write_text(
        yaml.safe_dump({"all": {"hosts": hosts, "vars": {"sglang_services": SERVICE}}})
    )


# What doctor finds of each way, with a word of what it says and of what it says to do.
FOUND: dict[str, tuple[str, str, str]] = {
    "direct": ("ssh-login", "refuses the login of inner", "ssh-copy-id|inner@"),
    "no_bastion": ("ssh-jump", "10.77.0.99 port 22", "root@10.77.0.99"),
    "no_command": ("ssh-jump", "10.77.0.99", "inner@"),
    "strange_bastion": ("ssh-jump", "10.77.0.98 port 22", "root@10.77.0.98"),
    "closed_bastion": ("ssh-jump", "the jump host {bastion} will not", "AllowTcpForwarding"),
    "no_password": ("sudo-refused", "sudo: a password is required", "ansible_become_password"),
    "wrong": ("sudo-refused", "sudo refuses ansible_become_password of mallory", "once"),
    "no_sudoer": ("sudo-refused", "sudo is refused for dave", "dave ALL=(root) NOPASSWD: ALL"),
    "tty": ("sudo-refused", "tty", "Defaults:tina !requiretty"),
    "becomes_bob": ("ssh-setting", "ansible_become_user", "ansible_become_user: root"),
    "becomes_none": ("ssh-setting", "ansible_become: is off, and deploy is not root", ": true"),
    "no_sudo": ("sudo-refused", "/nowhere/sudo is not on the host", "ansible_user: root"),
    "nologin": ("ssh-shell", "This account is currently not available", "getent passwd nologin"),
    "shell_false": ("ssh-shell", "ended with 1 without a word", "usermod -s"),
    "by_no_key": ("ssh-login", "refuses the login of walter", "ssh"),
    "old_python": ("python-old", "/opt/old/python3 is Python 3.6.8", "ansible_python_interpreter"),
    "no_python": ("python-missing", "/nowhere/python3", "ansible_python_interpreter"),
}
GOOD = (
    "jumped",
    "twice",
    "command",
    "vaulted",
    "old_name",
    "unasked",
    "noisy",
    "homeless",
    "slow",
    "single",
)
GOOD += ("by_password", "by_six", "by_key", "other_python")


def test_doctor_names_what_is_wrong_with_each_way_and_what_mends_it(fleet: Ways) -> None:
    before = fleet.logins(fleet.bastion, "root")
    done = fleet.opsctl("doctor", "-o", "json", "--limit", ",".join([*FOUND, *GOOD]))
    assert done.returncode == 4, done.stderr
    checks: dict[str, list[dict[str, Any]]] = {}
    for check in json.loads(done.stdout)["checks"]:
        checks.setdefault(check["host"], []).append(check)
    for name in GOOD:
        assert [c["status"] for c in checks[name] if c["id"] == "ssh"] == ["pass"], checks[name]
    for name, (fault, detail, hint) in FOUND.items():
        (only,) = checks[name]
        assert only["fault"] == fault, only
        assert detail.format(bastion=fleet.bastion.address) in only["detail"], only
        assert any(word in only["hint"] for word in hint.split("|")), only
    # One login on the bastion for each host behind it; `twice` and `command` make no more.
    assert fleet.logins(fleet.bastion, "root") - before == 4
    tried = "journalctl -b -t sudo --no-pager | grep -c 'mallory : 1 incorrect password attempt'"
    assert fleet.target.sh(tried).stdout == "1\n"


def test_a_wrong_password_is_not_tried_again_by_whatever_command(fleet: Ways) -> None:
    tried = "journalctl -b -t sudo --no-pager | grep -c 'mallory : 1 incorrect password attempt'"
    before = int(fleet.target.sh(tried, check=False).stdout)
    host = connect(resolve("wrong", fleet.variables("wrong")))
    try:
        for _ in range(2):
            with pytest.raises(OpsctlError, match="sudo refuses ansible_become_password"):
                host.run(["id"])
        assert host.run(["id", "-un"], sudo=False).out == "mallory\n"
        with pytest.raises(OpsctlError, match="sudo refuses ansible_become_password"):
            list(host.stream(["id"], idle=5))
    finally:
        host.close()
    assert int(fleet.target.sh(tried).stdout) == before + 1


def test_one_session_a_connection_is_enough(fleet: Ways) -> None:
    """With MaxSessions 1, what goes on at once takes a connection each; what comes after, none."""
    before = fleet.logins(fleet.target, "single")
    host = connect(resolve("single", fleet.variables("single")))
    try:
        for _ in range(3):
            assert host.run(["id", "-un"]).out == "root\n"
        assert fleet.logins(fleet.target, "single") == before + 1
        lines = host.stream(["sh", "-c", "echo here; exec sleep 60"], idle=30)
        assert next(lines) == "here"
        for _ in range(3):
            assert host.run(["echo", "beside"]).out == "beside\n"
        assert fleet.logins(fleet.target, "single") == before + 2
        lines.close()  # type: ignore[attr-defined]
    finally:
        host.close()


def test_sudo_that_asks_something_else_is_not_given_the_password(fleet: Ways) -> None:
    program = "#!/bin/sh\nprintf 'Verification code: ' >&2\nread code\necho $code >/run/code\n"
    fleet.target.put("/opt/old/sudo", program.encode(), "755")
    asks = fleet.variables("vaulted") | {"ansible_become_exe": "/opt/old/sudo"}
    host = connect(resolve("asks", asks))
    try:
        with pytest.raises(OpsctlError, match=r"something else .*: Verification code:") as caught:
            host.run(["id"], timeout=3, stdin=b"input\n")
    finally:
        host.close()
    assert "passprompt_override" in caught.value.hint
    assert "input" not in fleet.target.sh("cat /run/code", check=False).stdout


def typed(fleet: Ways, *words: str) -> tuple[int, str]:
    """The command on a terminal of its own, where the password is typed when it is asked for."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*OPSCTL, *words], stdin=slave, stdout=slave, stderr=slave, cwd=fleet.folder,
        env=fleet.environ, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(slave)
    said = b""
    while True:
        try:
            said += (part := os.read(master, 65536))
        except OSError:  # the terminal's last user has gone
            break
        if part.endswith(b"sudo password: "):
            os.write(master, f"{PASSWORD}\n".encode())
    os.close(master)
    return process.wait(10), said.decode()


def test_the_password_is_asked_for_on_the_terminal(fleet: Ways, tmp_path: Path) -> None:
    """-K; and without a terminal it says what else there is."""
    words = ("--limit", "no_password", "hosts")
    refused = fleet.opsctl(*words, "-K")
    assert refused.returncode == 2 and "ANSIBLE_BECOME_PASSWORD_FILE" in refused.stderr
    code, said = typed(fleet, *words, "-K")
    assert code == 0 and "sudo password: " in said and PASSWORD not in said, said
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    file.chmod(0o600)
    # Over opsctl's own connections, within a playbook.
    done = fleet.play("rollback.yml", *words[:2], ANSIBLE_BECOME_PASSWORD_FILE=str(file))
    assert "kimi" in done.stdout and "sudo" not in done.stdout, done.stdout


# ---------------------------------------------------------------- Ansible's own connection
PLAYED = {
    "no_bastion": "root@10.77.0.99",
    "no_password": "set ansible_become_password",
    "wrong": "Incorrect sudo password",
    "tty": "Defaults:tina !requiretty",
    "nologin": "This account is currently not available",
    "old_python": "is Python 3.6.8",
    "no_python": "ansible_python_interpreter names /nowhere/python3",
}
SURVEYED = ("jumped", "twice", "noisy", "slow", "single", "by_password", "by_six", "other_python")


def test_playbooks_go_the_same_ways_and_say_the_same(fleet: Ways) -> None:
    done = fleet.play("deploy.yml", "--limit", "becomes_bob,becomes_none")
    assert done.returncode != 0 and "ok=0" in done.stdout
    assert "ansible_become_user: is not supported" in done.stdout
    assert "ansible_become: is off, and deploy is not root" in done.stdout
    done = fleet.play("deploy.yml", "--check", "--limit", ",".join([*PLAYED, *SURVEYED]))
    lines = done.stdout.splitlines()
    for name, word in PLAYED.items():
        (told,) = re.findall(rf"^fatal: \[{name}\]: .*\n(?:    .*\n)*", done.stdout, re.MULTILINE)
        assert word in told, told
    for name in SURVEYED:
        assert f"ok: [{name}]" in lines, done.stdout


# ---------------------------------------------------------------- Python
BARE = """\
set -e
mkdir /opt/hidden && mv /usr/bin/python3 /usr/bin/python3.* /opt/hidden/
rm -f /var/lib/dpkg/info/python3.prerm
dpkg --force-all --remove python3
"""


@pytest.fixture
def repository(tmp_path: Path, fleet: Ways) -> Iterator[Repository]:
    """It has the python3 that h2 has now."""
    found = Repository(tmp_path / "served")
    found.top.mkdir()
    version = fleet.bastion.sh("dpkg-query -W -f '${Version}' python3").stdout
    back = "#!/bin/sh\nmv /opt/hidden/* /usr/bin/\n"
    found.package("debian", "python3", version, {}, postinst=back, **{"Multi-Arch": "allowed"})
    found.index("debian", None)
    found.serve()
    yield found
    found.stop()


def test_python_is_installed_where_there_is_none(fleet: Ways, repository: Repository) -> None:
    host, ask = fleet.bastion, ("--limit", "bare")
    host.sh(BARE)
    (found,) = json.loads(fleet.opsctl("doctor", *ask, "-o", "json").stdout)["checks"]
    assert found["fault"] == "python-missing" and "apt-get install python3" in found["hint"]
    done = fleet.play("deploy.yml", *ask)
    assert "python3 could not be installed: E: " in done.stdout, done.stdout
    source = f"deb [trusted=yes] {repository.url('debian')} ./\n"
    host.put("/etc/apt/sources.list.d/lab.list", source.encode())
    done = fleet.play("deploy.yml", *ask)
    assert "changed: [bare]" in done.stdout, done.stdout
    # The roles after it see what they would have seen: this host has no GPU.
    assert "nvidia-smi shows none on this host" in done.stdout, done.stdout
    assert host.sh("python3 -V").stdout.startswith("Python 3.")
