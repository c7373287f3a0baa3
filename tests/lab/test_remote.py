"""The transport against real sshd: who is trusted, what is bounded, what is left behind."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from opsctl.errors import OpsctlError, Unreachable
from opsctl.remote import connect, fanout, onhost
from opsctl.remote import http as remote_http
from opsctl.remote.host import Host, Silent, TooMuch
from opsctl.remote.target import resolve
from tests.conftest import LabHost, ssh_config

pytestmark = pytest.mark.lab

PASSWORD = "canary-Passw0rd"
SLEEP = 4242


@contextmanager
def opened(lab: LabHost, *options: str, **variables: Any) -> Iterator[Host]:
    words = " ".join(f"-o {option}" for option in options)
    host = connect(
        resolve(
            lab.name,
            {
                "ansible_host": lab.address,
                "ansible_ssh_common_args": f"{words} -F {ssh_config()}",
                **variables,
            },
        )
    )
    try:
        yield host
    finally:
        host.close()


def sshd(lab: LabHost, setting: str) -> None:
    """A setting before the lab's. A restart returns when sshd listens, a reload sooner; on a fast
    machine the tests restart it more often than its start limit allows."""
    restart = "systemctl reset-failed ssh && systemctl restart ssh"
    lab.sh(f"echo '{setting}' >/etc/ssh/sshd_config.d/00-test.conf && {restart}")


def known_hosts() -> Path:
    return Path(ssh_config()).with_name("known_hosts")


# ---------------------------------------------------------------- who is trusted
def test_the_right_key_also_hashed_and_under_an_alias(lab_host: LabHost, tmp_path: Path) -> None:
    hashed = tmp_path / "known_hosts"
    kind, key = known_hosts().read_text().split("\n")[0].split()[1:3]
    hashed.write_text(f"{lab_host.address} {kind} {key}\nrack7 {kind} {key}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(hashed)], check=True, capture_output=True)
    assert lab_host.address not in hashed.read_text()
    for more in ((), ("HostKeyAlias=rack7",)):
        with opened(lab_host, f"UserKnownHostsFile={hashed}", *more) as host:
            assert host.run(["id", "-u"]).out == "0\n"


@pytest.mark.parametrize("strictness", ["yes", "no", "accept-new"])
@pytest.mark.parametrize("what", ["unknown", "other", "revoked"])
def test_any_other_key_is_refused_and_never_added(
    lab_hosts: list[LabHost], tmp_path: Path, what: str, strictness: str
) -> None:
    lab, file = lab_hosts[0], tmp_path / "known_hosts"
    mine, other = (line.split()[1:3] for line in known_hosts().read_text().splitlines()[:2])
    text = {
        "unknown": "",
        "other": f"{lab.address} {' '.join(other)}\n",
        "revoked": f"{lab.address} {' '.join(mine)}\n@revoked * {' '.join(mine)}\n",
    }[what]
    file.write_text(text)
    options = (f"UserKnownHostsFile={file}", f"StrictHostKeyChecking={strictness}")
    with opened(lab, *options) as host, pytest.raises(Unreachable) as caught:
        host.run(["id"])
    assert (caught.value.step, caught.value.host, caught.value.exit_code) == ("host key", "h1", 4)
    assert "root@" in caught.value.hint
    assert file.read_text() == text


def test_the_kind_of_key_that_is_known_is_asked_for(lab_host: LabHost, tmp_path: Path) -> None:
    """sshd would rather show its ed25519 key, of which known_hosts says nothing here."""
    lab_host.sh("ssh-keygen -q -t rsa -b 2048 -N '' -f /etc/ssh/rsa </dev/null")
    sshd(lab_host, "HostKey /etc/ssh/rsa")
    file = tmp_path / "known_hosts"
    key = lab_host.sh("cut -d' ' -f1,2 /etc/ssh/rsa.pub").stdout
    file.write_text(f"{lab_host.address} {key}")
    with opened(lab_host, f"UserKnownHostsFile={file}") as host:
        assert host.run(["id", "-u"]).out == "0\n"
    sshd(lab_host, "")


def test_a_key_with_a_passphrase_is_taken_from_the_agent(
    lab_host: LabHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, socket = tmp_path / "key", tmp_path / "agent"
    quiet: dict[str, Any] = {"check": True, "capture_output": True}
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], **quiet)
    public = key.with_suffix(".pub").read_text().strip()
    lab_host.sh(f"echo '{public}' >>/root/.ssh/authorized_keys")
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL)
    try:
        assert eventually(socket.exists, 5)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        subprocess.run(["ssh-add", "-q", str(key)], **quiet)
        subprocess.run(["ssh-keygen", "-q", "-p", "-N", "secret", "-f", str(key)], **quiet)
        options = (
            f"-F none -o IdentitiesOnly=yes -o IdentityFile={key} "
            f"-o UserKnownHostsFile={known_hosts()}"
        )
        variables = {"ansible_user": "root", "ansible_ssh_common_args": options}
        with opened(lab_host, **variables) as host:
            assert host.run(["id", "-u"]).out == "0\n"
        monkeypatch.delenv("SSH_AUTH_SOCK")
        with (
            opened(lab_host, **variables) as host,
            pytest.raises(Unreachable, match=r"needs a passphrase \(ssh-add"),
        ):
            host.run(["id"])
    finally:
        agent.terminate()
        agent.wait(5)


def test_a_refused_login_and_a_closed_port_say_so(lab_host: LabHost, tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    config = f"-F none -o UserKnownHostsFile={known_hosts()} -o IdentitiesOnly=yes"
    with (
        opened(lab_host, ansible_ssh_common_args=f"{config} -o IdentityFile={key}") as host,
        pytest.raises(Unreachable, match="refuses the login of") as caught,
    ):
        host.run(["id"])
    assert caught.value.step == "login"
    alias = f"HostKeyAlias={lab_host.address}"
    with (
        opened(lab_host, "Port=2", alias) as host,
        pytest.raises(Unreachable, match=r"port 2: .*refused"),
    ):
        host.run(["id"])


# ---------------------------------------------------------------- who we become
def test_sudo_without_a_password(lab_host: LabHost) -> None:
    with opened(lab_host, ansible_user="deploy") as host:
        assert host.run(["id", "-un"]).out == "root\n"
        assert host.run(["id", "-un"], sudo=False).out == "deploy\n"
        assert host.run(["cat"], stdin=b"to the end").out == "to the end"
        # Asked for or not, the password never reaches the command.
    with opened(lab_host, ansible_user="deploy", ansible_become_password=PASSWORD) as host:
        assert host.run(["cat"], stdin=b"to the end").out == "to the end"


def test_sudo_with_a_password(lab_host: LabHost) -> None:
    lab_host.sh(
        "useradd -m carol && echo carol:'" + PASSWORD + "' | chpasswd && "
        "echo 'carol ALL=(ALL) ALL' >/etc/sudoers.d/carol && "
        "cp -r /root/.ssh /home/carol/ && chown -R carol: /home/carol/.ssh"
    )
    with opened(lab_host, ansible_user="carol", ansible_become_password=PASSWORD) as host:
        answer = host.run(["sh", "-c", "id -un; cat; echo said >&2"], stdin=b"input")
        assert (answer.out, answer.err) == ("root\ninput", "said\n")
        seen = host.run(["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"]).out
        assert "opsctl-ask" in seen  # this very sudo
        assert PASSWORD not in seen
        with closing(host.stream(["journalctl", "-n", "1"], idle=5)) as lines:  # type: ignore[type-var]
            assert list(lines)
    with (
        opened(lab_host, ansible_user="carol", ansible_become_password="wrong") as host,
        pytest.raises(OpsctlError, match="refuses ansible_become_password"),
    ):
        host.run(["id"])
    with (
        opened(lab_host, ansible_user="carol") as host,
        pytest.raises(OpsctlError, match="carol: sudo: a password is required") as caught,
    ):
        host.run(["id"])
    assert "ansible_become_password" in caught.value.hint
    assert PASSWORD not in lab_host.sh("journalctl -b --no-pager").stdout


# ---------------------------------------------------------------- how we get there
@pytest.mark.parametrize("how", ["ProxyJump={h1}", "'ProxyCommand=ssh -F {config} -W %h:%p h1'"])
def test_through_another_host(lab_hosts: list[LabHost], how: str) -> None:
    first, second = lab_hosts
    option = how.format(h1=first.address, config=ssh_config())
    with opened(second, option) as host:
        assert host.run(["hostname"]).out == "h2\n"
        came_from = host.run(["sh", "-c", "echo $SSH_CONNECTION"]).out.split()[0]
    assert came_from == first.address


def test_one_connection_for_many_commands_at_once(lab_host: LabHost) -> None:
    sshd(lab_host, "MaxSessions 10")
    with opened(lab_host) as host:
        command = ["sh", "-c", "sleep 0.1; echo $SSH_CONNECTION"]
        names = [str(number) for number in range(24)]
        found = fanout.each(names, lambda _: host.run(command).out, timeout=60, workers=24)
    assert all(outcome.ok for outcome in found), found
    assert len({outcome.value for outcome in found}) == 1


def test_http_through_the_tunnel_and_without_one(lab_host: LabHost) -> None:
    lab_host.sh(
        "mkdir -p /srv/site && echo good >/srv/site/health && cd /srv/site && "
        "systemd-run -q --unit=site -p WorkingDirectory=/srv/site "
        "python3 -m http.server 30000 --bind 127.0.0.1; "
        "for i in $(seq 100); do curl -so/dev/null 127.0.0.1:30000 && break; sleep 0.05; done"
    )

    def asked(host: Host) -> None:
        with remote_http.client(host, "0.0.0.0", 30000, api_key="k3y") as client:
            assert client.get("/health").text == "good\n"
            assert client.get("/none").status_code == 404
        with (
            remote_http.client(host, "127.0.0.1", 30001) as client,
            pytest.raises(httpx.ConnectError),
        ):
            client.get("/health")

    with opened(lab_host) as host:
        asked(host)
    sshd(lab_host, "AllowTcpForwarding no")
    try:
        with opened(lab_host) as host:
            with pytest.raises(PermissionError):
                host.tunnel("127.0.0.1", 30000, 5)  # type: ignore[attr-defined]
            asked(host)
    finally:
        sshd(lab_host, "")


# ---------------------------------------------------------------- what is bounded
def test_output_is_bounded_and_harmless(lab_host: LabHost) -> None:
    with opened(lab_host) as host:
        began = time.monotonic()
        with pytest.raises(TooMuch, match="`yes` sent more than 32 MiB"):
            host.run(["yes"], timeout=120)
        with pytest.raises(TooMuch, match="in one line"):
            list(host.stream(["cat", "/dev/zero"], idle=30))
        assert time.monotonic() - began < 60
        answer = host.run(["sh", "-c", "head -c 100000 /dev/urandom; printf '\\033[2Jx'"])
        assert not any(ord(c) < 32 and c not in "\t\n" for c in answer.out)
        assert answer.out.endswith("␛[2Jx")
        noise = "yes x | head -n 500000 >&2; echo end >&2; echo out"
        flood = host.run(["sh", "-c", noise])
        assert flood.truncated and flood.err.endswith("end\n") and flood.out == "out\n"
    assert gone(lab_host, "yes")


def test_closing_in_the_midst_of_a_flood_leaves_the_connection_whole(lab_host: LabHost) -> None:
    with opened(lab_host) as host:
        assert host.run(["true"]).rc == 0
        transport = host._line().transport
        for _ in range(60):
            with pytest.raises(TooMuch):
                list(host.stream(["cat", "/dev/zero"], idle=30))
        assert host._line().transport is transport
        assert host.run(["echo", "still"]).out == "still\n"


def test_silence_is_bounded(lab_host: LabHost) -> None:
    with opened(lab_host) as host:
        with pytest.raises(Silent, match=r"did not end within 0.5 s"):
            host.run(["sleep", "5"], timeout=0.5)
        with pytest.raises(Silent, match="said nothing for 1 s"):
            list(host.stream(["sleep", "60"], idle=1))


def gone(lab: LabHost, pattern: str, within: float = 5.0) -> bool:
    return eventually(lambda: lab.sh(f"pgrep -fx '{pattern}'", check=False).returncode, within)


def eventually(check: Callable[[], Any], within: float) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if check():
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("user", ["root", "deploy"])
def test_closing_a_stream_ends_its_process(lab_host: LabHost, user: str) -> None:
    with opened(lab_host, ansible_user=user) as host:
        for command in (
            ["journalctl", "-f", "-n", "1"],
            ["sh", "-c", f"echo x; exec sleep {SLEEP}"],
        ):
            pattern = "journalctl -f -n 1" if command[0] == "journalctl" else f"sleep {SLEEP}"
            lines = host.stream(command, idle=10)
            assert next(lines)
            assert lab_host.sh(f"pgrep -fx '{pattern}'").stdout
            lines.close()  # type: ignore[attr-defined]
            assert gone(lab_host, pattern)
        # the connection goes on
        assert host.run(["echo", "still"]).out == "still\n"


# ---------------------------------------------------------------- when a host goes away
@pytest.mark.parametrize(("drill", "undo"), [("cut", "mend"), ("freeze", "thaw")])
def test_a_host_that_is_gone_is_noticed_within_the_limit(
    lab_hosts: list[LabHost], drill: str, undo: str
) -> None:
    lab = lab_hosts[1]
    with opened(lab, "ServerAliveInterval=1", "ServerAliveCountMax=3") as host:
        assert host.run(["true"]).rc == 0
        threading.Timer(0.5, lambda: lab.lab(drill)).start()
        began = time.monotonic()
        try:
            with pytest.raises(Unreachable, match="no sign of life for 3 s") as caught:
                host.run(["sleep", "60"], timeout=60)
            # 0.5 s until the drill; interval × count, one interval more, and the looks at the clock
            assert time.monotonic() - began < 0.5 + 4 + 3
            assert (caught.value.host, caught.value.step) == ("h2", "sleep 60")
        finally:
            lab.lab(undo)
        assert host.run(["echo", "again"]).out == "again\n"


def test_a_host_that_does_not_answer_at_all(lab_hosts: list[LabHost]) -> None:
    lab = lab_hosts[1]
    lab.lab("cut", "drop")
    try:
        with (
            opened(lab, "ConnectTimeout=2") as host,
            pytest.raises(Unreachable, match="no answer within 2 s") as caught,
        ):
            began = time.monotonic()
            host.run(["true"])
        assert time.monotonic() - began < 4
        assert caught.value.step == "connect"
    finally:
        lab.lab("mend")


# ---------------------------------------------------------------- the ground floor
def test_the_ground_floor_leaves_nothing(lab_host: LabHost) -> None:
    listing = "find / -xdev -newer /run/mark -type f -not -path '/var/log/*' -not -path '/proc/*'"
    with opened(lab_host, ansible_user="deploy") as host:
        host.run(["true"])
        lab_host.sh("touch /run/mark; sleep 0.05")
        answer = onhost.call(host, "collect")
        assert answer["host"] == "h1"
        left = lab_host.sh(listing).stdout.split()
    assert not [path for path in left if not path.startswith(("/var/lib/systemd/", "/run/"))], left


def test_a_host_without_python_says_so(lab_host: LabHost) -> None:
    with (
        opened(lab_host, ansible_python_interpreter="/opt/none/python3") as host,
        pytest.raises(onhost.NoPython, match="/opt/none/python3") as caught,
    ):
        onhost.call(host, "collect")
    assert "ansible_python_interpreter" in caught.value.hint
