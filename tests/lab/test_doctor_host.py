"""`doctor` on a real host where faults are planted for real; each is taken away again.

A lab host has some of its own (no time server, what the machine's control groups are): only what a
plant adds is judged. Settings of the kernel that the machine shares are left alone: their faults
are planted as texts (tests/unit/doctor).
"""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from opsctl.engine.compatibility import needs
from opsctl.remote.start import sudo_refuses
from tests.lab import guarding

pytestmark = pytest.mark.lab

GOOD = guarding.release(word="doctor")
MODEL = "/srv/models/m"
UNIT = "/etc/systemd/system/sglang-kimi.service"
PID = "$(systemctl show -P MainPID sglang-kimi)"
# Everything but what a login (PAM writes /run/motd.dynamic) and the journal write by themselves.
OTHERS = ("/proc", "/sys", "/run", "/tmp", "/var/log/journal", "/var/log/wtmp", "/var/log/lastlog")
TREE = (
    f"find / -xdev \\( {' -o '.join(f'-path {path}' for path in OTHERS)} \\) -prune -o "
    "-printf '%p %y %m %u %s %T@ %C@ %l\\n'; "
    "find /dev/shm /var/lib/opsctl /run/systemd/system /run/opsctl -printf '%p %m %s %T@\\n' "
    "2>/dev/null || true"
)


@pytest.fixture(scope="module")
def host(lab_host: Any) -> Any:
    """A service that runs, deployed by a guard; a model folder as publishers make them."""
    guarding.prepare(lab_host)
    guarding.call(lab_host, "stage", stdin=GOOD)
    guarding.begin(lab_host, "r1", "swap", GOOD["digest"])
    assert guarding.result(lab_host, "r1")["outcome"] == "confirmed"
    guarding.call(lab_host, "unlock", "kimi", "--run", "r1")
    index = json.dumps({"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}})
    lab_host.put(f"{MODEL}/model.safetensors.index.json", index.encode())
    lab_host.put(f"{MODEL}/config.json", b"{}")
    for name in ("m-1", "m-2"):
        lab_host.put(f"{MODEL}/{name}.safetensors", guarding.WEIGHTS)
    return lab_host


def described(**changes: Any) -> dict[str, Any]:
    manifest = json.loads(
        base64.b64decode(next(f["b64"] for f in GOOD["files"] if f["path"] == "release.json"))
    )
    return {**manifest, "user": "games", "model": {"path": MODEL}, **changes}


def found(host: Any, **changes: Any) -> dict[str, str]:
    """Fault → detail."""
    answer = guarding.call(host, "doctor", stdin={"manifests": [described(**changes)]})
    return {c["fault"]: c["detail"] for c in answer["checks"] if c["fault"]}


@pytest.fixture(scope="module")
def usual(host: Any) -> set[str]:
    """What a lab host has by itself; none of it is what the tests plant."""
    own = set(found(host))
    assert own <= {"clock-free", "cgroup-v1", "limits-container", "memlock", "nofile"}, own
    return own


@contextmanager
def planted(host: Any, do: str, undo: str) -> Iterator[None]:
    host.sh(do)
    try:
        yield
    finally:
        host.sh(undo)


STRAY = "systemd-run --quiet --unit=stray --service-type=exec"
SHUT = (
    "mkdir -p /opt/s/bin /opt/s/lib/python3.11/site-packages/{sglang,sglang-0.5.9.dist-info}; "
    "cd /opt/s; ln -s /usr/bin/python3 bin/python; chmod 700 /opt/s; "
    "touch lib/python3.11/site-packages/sglang/launch_server.py",
    "rm -r /opt/s",
)
# Whoever reads below such a mount waits for an answer that never comes, as of a dead NFS server.
SILENT = f"""cat > /root/silent.py << 'END'
import ctypes, os, time
pipe = os.pipe()[1]
options = f"fd={{pipe}},pgrp={{os.getpgrp()}},minproto=5,maxproto=5,direct"
if ctypes.CDLL(None).mount(b"nas:/models", b"{MODEL}", b"autofs", 0, options.encode()):
    raise SystemExit("not mounted")
time.sleep(600)
END
{STRAY} python3 /root/silent.py; until mountpoint -q {MODEL}; do sleep 0.1; done"""
JOURNALD, AGAIN = "/etc/systemd/journald.conf.d", "systemctl restart systemd-journald; sleep 0.5"
# Folders of services that systemd starts for a question over D-Bus, such as timedated.
PRIVATE = "ls -d /tmp/systemd-private-* /var/tmp/systemd-private-* 2>/dev/null; true"
PLANTS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("journal-volatile", "mv /var/log/journal /var/log/aside", "mv /var/log/aside /var/log/journal",
     {}),
    ("shm-small", "mount -t tmpfs -o size=64m none /dev/shm", "umount /dev/shm", {}),
    ("shm-full",
     "mount -t tmpfs -o size=1g none /dev/shm && fallocate -l 1000m /dev/shm/left",
     "umount /dev/shm", {}),
    ("disk-low", "mount -t tmpfs -o size=64m none /var/log && mkdir -p /var/log/journal/"
     "$(cat /etc/machine-id)", "umount -l /var/log", {}),
    ("disk-full", "mount -t tmpfs -o size=64k none /var/lib/opsctl && "
     "head -c 60k /dev/zero > /var/lib/opsctl/x", "umount /var/lib/opsctl", {}),
    ("disk-readonly",
     "mount --bind /etc/opsctl /etc/opsctl && mount -o remount,bind,ro /etc/opsctl",
     "umount /etc/opsctl", {}),
    ("tmp-noexec", "mount -t tmpfs -o noexec none /tmp", "umount /tmp", {}),
    ("port-taken", f"{STRAY} python3 -m http.server --bind 127.0.0.1 31999 && sleep 1",
     "systemctl stop stray", {"address": {"host": "127.0.0.1", "port": 31999}}),
    ("orphan-idle", f"{STRAY} bash -c 'exec -a sglang::scheduler_TP0 sleep 300'",
     "systemctl stop stray", {}),
    ("orphan", f"{STRAY} bash -c 'exec -a sglang::scheduler_TP0 python3 -m http.server --bind "
     "127.0.0.1 31999' && sleep 1",
     "systemctl stop stray", {"address": {"host": "127.0.0.1", "port": 31999}}),
    ("user-missing", "true", "true", {"user": "nobody-of-that-name"}),
    ("user-missing", "cp -p /etc/group /root/g; sed -i /^games:/d /etc/group",
     "cp -p /root/g /etc/group", {}),
    ("model-missing", f"mv {MODEL} {MODEL}.aside", f"mv {MODEL}.aside {MODEL}", {}),
    ("model-incomplete", f"mv {MODEL}/m-2.safetensors /srv/m-2",
     f"mv /srv/m-2 {MODEL}/m-2.safetensors", {}),
    ("model-odd", f"mv {MODEL}/config.json /srv/c", f"mv /srv/c {MODEL}/config.json", {}),
    ("model-foreign", f"mv {MODEL}/m-2.safetensors /srv/m-2; "
     f"echo 'version https://git-lfs.github.com/spec/v1' > {MODEL}/m-2.safetensors",
     f"mv /srv/m-2 {MODEL}/m-2.safetensors", {}),
    ("model-short", "true", "true", {"model": {"path": MODEL, "size": 1 << 40}}),
    ("model-unreadable", f"chmod 700 {MODEL}", f"chmod 755 {MODEL}", {}),
    ("model-unreadable", "chmod 700 /srv", "chmod 755 /srv", {}),
    ("engine-unreadable", *SHUT, {"engine": {"version": "0.5.9", "root": "/opt/s"}}),
    ("shm-mode", "chmod 755 /dev/shm", "chmod 1777 /dev/shm", {}),
    ("tmp-mode", "chmod 755 /tmp", "chmod 1777 /tmp", {}),
    ("user-ordinary", "useradd -u 1500 person", "userdel person", {"user": "person"}),
    ("unit-masked", f"mv {UNIT} /root/u; ln -s /dev/null {UNIT}; systemctl daemon-reload",
     f"mv /root/u {UNIT}; systemctl daemon-reload", {}),
    ("unit-gone", f"mv {UNIT} /root/u; systemctl daemon-reload",
     f"mv /root/u {UNIT}; systemctl daemon-reload", {}),
    ("unit-disabled", "systemctl disable --quiet sglang-kimi",
     "systemctl enable --quiet sglang-kimi", {}),
    ("unit-dropin", f"mkdir {UNIT}.d; printf '[Service]\\nEnvironment=A=b\\n' > {UNIT}.d/o.conf; "
     "systemctl daemon-reload", f"rm -r {UNIT}.d; systemctl daemon-reload", {}),
    ("unit-ended", f"mv {guarding.ENGINE} /root/e; systemctl restart sglang-kimi; sleep 1",
     f"mv /root/e {guarding.ENGINE}; systemctl restart sglang-kimi; sleep 1", {}),
    # a second engine of somebody's, a root disk without room, a mount that went away
    ("orphan-idle", f"{STRAY} --uid=games bash -c 'exec -a sglang.launch_server sleep 300'",
     "systemctl stop stray", {}),
    ("model-odd", f"mount -t tmpfs none {MODEL}", f"umount {MODEL}", {}),
    ("mount-hangs", SILENT, f"umount -l {MODEL}; systemctl stop stray", {}),
    ("engine-missing", "true", "true", {"engine": {"version": "0.5.9", "root": "/opt/none"}}),
    ("engine-python", "mkdir -p /opt/torn/bin; ln -s /usr/bin/python3.99 /opt/torn/bin/python",
     "rm -r /opt/torn", {"engine": {"version": "0.5.9", "root": "/opt/torn"}}),
    ("engine-version",
     "mkdir -p /opt/o/bin /opt/o/lib/python3.11/site-packages/{sglang,sglang-0.5.8.dist-info}; "
     "cd /opt/o; ln -s /usr/bin/python3 bin/python; "
     "touch lib/python3.11/site-packages/sglang/launch_server.py",
     "rm -r /opt/o", {"engine": {"version": "0.5.9", "root": "/opt/o"}}),
    ("unit-stale", f"cp -p {UNIT} /root/u; touch {UNIT}",
     f"cp -p /root/u {UNIT}; systemctl daemon-reload", {}),
    ("unit-edited", f"cp -p {UNIT} /root/u; echo '# mine' >> {UNIT}; systemctl daemon-reload",
     f"cp -p /root/u {UNIT}; systemctl daemon-reload", {}),
    ("secret-mode", f"mkdir -m 700 /etc/opsctl/kimi/releases/{GOOD['digest']}/secrets; echo x > "
     f"/etc/opsctl/kimi/releases/{GOOD['digest']}/secrets/api-key",
     f"rm -r /etc/opsctl/kimi/releases/{GOOD['digest']}/secrets", {}),
    ("swap-pending",
     "echo '{\"run\": \"gone\", \"op\": \"swap\"}' > /var/lib/opsctl/kimi/pending.json",
     "rm /var/lib/opsctl/kimi/pending.json", {}),
    ("deadman-left", "systemd-run --quiet --unit=opsctl-deadman-kimi --on-active=600 true",
     "systemctl stop opsctl-deadman-kimi.timer", {}),
    ("recover-off", "systemctl disable --quiet opsctl-recover.service",
     "systemctl enable --quiet opsctl-recover.service", {}),
]  # fmt: skip


def test_a_unit_that_cannot_start_is_no_mere_edit(host: Any, usual: set[str]) -> None:
    broken = f"cp -p {UNIT} /root/u; sed -i 's/^ExecStart=/ExecStrat=/' {UNIT}"
    back = f"cp -p /root/u {UNIT}; systemctl daemon-reload"
    for reload, more in (("", {"unit-stale"}), ("; systemctl daemon-reload", set())):
        with planted(host, broken + reload, back):
            assert set(found(host)) - usual == {"unit-edited", "unit-broken", *more}


def test_looking_changes_nothing(host: Any, usual: set[str]) -> None:
    host.sh("systemctl stop systemd-timedated; sleep 0.5")
    before = set(host.sh(TREE, timeout=120).stdout.splitlines())
    private = host.sh(PRIVATE).stdout
    found(host)
    assert set(host.sh(TREE, timeout=120).stdout.splitlines()) ^ before == set()
    assert host.sh(PRIVATE).stdout == private
    assert len(before) > 5000


@pytest.mark.parametrize("storage", ["volatile", "none"])
def test_the_command_of_a_journal_that_is_not_kept_keeps_it(
    host: Any, usual: set[str], storage: str
) -> None:
    said = f"[Journal]\\nStorage={storage}\\n"
    do = f"mkdir -p {JOURNALD}; printf '{said}' > {JOURNALD}/x.conf; {AGAIN}"
    with planted(host, do, f"rm -r {JOURNALD}; {AGAIN}; journalctl --flush"):
        (told,) = [
            c for c in guarding.call(host, "doctor", stdin={"manifests": [described()]})["checks"]
            if c["fault"] == "journal-storage"
        ]  # fmt: skip
        assert f"Storage={storage} in {JOURNALD}/x.conf" in told["detail"]
        host.sh(told["hint"].partition(" (or ")[0])
        host.sh("logger -t kept after the mend; journalctl --sync")
        assert "after the mend" in host.sh("journalctl -D /var/log/journal -t kept").stdout
        assert set(found(host)) == usual


@pytest.mark.parametrize(("fault", "do", "undo", "changes"), PLANTS, ids=[p[0] for p in PLANTS])
def test_planted_for_real(
    host: Any, usual: set[str], fault: str, do: str, undo: str, changes: dict[str, Any]
) -> None:
    with planted(host, do, undo):
        assert set(found(host, **changes)) - usual == {fault}


NVIDIA_SMI = "/usr/local/bin/nvidia-smi"
LOST = "echo 'Unable to determine the device handle for GPU0000:21:00.0: Unknown Error'; exit 255"


@pytest.mark.parametrize("on_bus", [False, True])
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("kill -SEGV $$", {"driver-smi-broken": "nvidia-smi was ended by SIGSEGV"}),
        ("exit 0", {"driver-smi-broken": "nvidia-smi ended with 0 and said nothing"}),
        ("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18",
         {"driver-mismatch": "Failed to initialize NVML: Driver/library version mismatch"}),
        (LOST, {"gpu-lost": "0000:21:00.0"}),
    ],
)  # fmt: skip
def test_one_fault_where_nvidia_smi_tells_of_no_card(
    host: Any, answer: str, told: dict[str, str], on_bus: bool
) -> None:
    """Whether the bus can be seen, or not, as in a container."""
    do = f"printf '#!/bin/sh\\n%s\\n' {shlex.quote(answer)} > {NVIDIA_SMI}; chmod 755 {NVIDIA_SMI}"
    undo = f"rm {NVIDIA_SMI}"
    if on_bus:
        do += "; for n in 0 1 2 3; do d=/root/pci/0000:${n}1:00.0; mkdir -p $d; "
        do += "echo 0x10de > $d/vendor; echo 0x030200 > $d/class; done; mkdir -p /root/drv/nvidia; "
        do += "echo 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Sun' "
        do += "> /root/drv/nvidia/version; mount --bind /root/pci /sys/bus/pci/devices; "
        do += "mount --bind /root/drv /proc/driver"
        undo += "; umount /proc/driver /sys/bus/pci/devices; rm -r /root/pci /root/drv"
    with planted(host, do, undo):
        seen = found(host, needs=needs("0.5.9"), ranks=["TP0", "TP1"], gpus=None)
    assert {one for one in seen if one.startswith(("driver", "gpu"))} == set(told)
    (fault,) = told
    assert told[fault] in seen[fault]
    if fault == "gpu-lost":
        where = "GPU 2 (0000:21:00.0)" if on_bus else "the GPU at 0000:21:00.0"
        assert seen[fault] == f"{where} is lost"


def test_sudo_itself_tells_of_rules_that_it_cannot_read(host: Any) -> None:
    """As it says it before "a password is required", which is not what is wrong."""
    rules = "/etc/sudoers.d/bob"
    do = f"useradd bob; printf 'bob ALL=(ALL) NOPASSWD: ALL\\nsyntax err ((\\n' > {rules}"
    with planted(host, do, f"rm {rules}; userdel bob"):
        said = host.sh("runuser -u bob -- sudo -n true 2>&1; true").stdout
    refused = sudo_refuses("h1", "bob", "sudo", 1, said, False)
    assert rules in refused.message and "syntax error" in refused.message, said
    assert "visudo -c" in (refused.hint or "")


def test_neighbours_that_are_no_engine(host: Any, usual: set[str]) -> None:
    """A router before an engine on loopback, a benchmark, somebody who reads its log."""
    at = {"address": {"host": "127.0.0.1", "port": 31999}}
    router = f"{STRAY} python3 -m http.server --bind {host.address} 31999"
    others = (
        "systemd-run --quiet --unit=stray2 bash -c 'touch /tmp/sglang.log; sleep 300 & "
        "(exec -a sglang.bench_serving sleep 300) & (exec -a sglang_router sleep 300) & "
        "exec tail -f /tmp/sglang.log'"
    )
    with planted(host, f"{router}; {others}; sleep 1", "systemctl stop stray stray2"):
        assert set(found(host, **at)) - usual == set()


def test_limits_are_those_that_the_process_really_has(host: Any) -> None:
    """The unit asks for nothing: what its process got, hangs on the machine the lab runs on."""
    limits = host.sh(f"cat /proc/{PID}/limits").stdout
    locked = next(line.split()[3] for line in limits.splitlines() if "locked memory" in line)
    opened = next(line.split()[3] for line in limits.splitlines() if "open files" in line)
    told = found(host)
    memlock = bool({"memlock", "limits-container"} & set(told))
    assert memlock is (locked != "unlimited" and int(locked) < 64 << 30)
    assert ("nofile" in told) is (int(opened) < 65536)
    if "nofile" in told:
        assert opened in told["nofile"]


def test_a_lock_that_nobody_needs(host: Any, usual: set[str]) -> None:
    guarding.call(host, "lock", "kimi", "--owner", "me", "--reason", "r", "--run", "never")
    assert set(found(host)) - usual == {"lock-left"}
    guarding.call(host, "unlock", "kimi", "--run", "never")


def test_a_unit_that_failed_is_named(host: Any, usual: set[str]) -> None:
    host.sh("systemctl kill --signal=KILL sglang-kimi; sleep 1; systemctl stop sglang-kimi")
    host.sh(f"cp -p {UNIT} /root/u; sed -i 's/^Restart=.*/Restart=no/' {UNIT}; "
            "systemctl daemon-reload; systemctl start sglang-kimi; sleep 1; "
            "systemctl kill --signal=KILL sglang-kimi; sleep 1")  # fmt: skip
    told = found(host)
    assert set(told) - usual == {"unit-failed", "unit-edited"}
    assert "signal" in told["unit-failed"]


def staged(host: Any, word: str, **changes: Any) -> list[str]:
    """The problems that a preflight of such a release tells."""
    other = guarding.release(word=word)
    entry = next(f for f in other["files"] if f["path"] == "release.json")
    manifest = {**json.loads(base64.b64decode(entry["b64"])), **changes}
    entry["b64"] = base64.b64encode(json.dumps(manifest).encode()).decode()
    problems: list[str] = guarding.call(host, "stage", "--check", stdin=other)["problems"]
    return problems


def test_preflight_refuses_by_the_same_judgement(host: Any) -> None:
    """A release whose model does not answer or lacks a file that its own index names, or whose user
    may not run its interpreter, is refused when it is staged."""
    model = {"path": MODEL, "served_name": "m", "draft_path": None}
    with planted(host, SILENT, f"umount -l {MODEL}; systemctl stop stray"):
        problems = staged(host, "silent", model=model)
        facts = guarding.call(host, "facts", "--model", MODEL, "--service", "kimi")
    assert f"{MODEL} does not answer" in facts["model"]["silent"]
    assert any(f"{MODEL} does not answer" in text for text in problems), problems
    with planted(host, f"mv {MODEL}/config.json /srv/c", f"mv /srv/c {MODEL}/config.json"):
        problems = staged(host, "odd", model=model)
    assert any("config.json is missing" in text for text in problems), problems
    host.sh(f"rm {MODEL}/m-2.safetensors")
    problems = staged(host, "torn", model=model)
    assert any("m-2.safetensors" in text for text in problems), problems
    engine = {"version": "0.5.9", "root": "/opt/s"}
    with planted(host, *SHUT):
        problems = staged(host, "shut", user="games", engine=engine)
    assert any("games may not run /opt/s/bin/python" in text for text in problems), problems
