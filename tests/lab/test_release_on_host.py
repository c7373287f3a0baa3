"""A whole release on a real host: systemd's own judgement, and a key that must show nowhere."""

from __future__ import annotations

import hashlib
import re
import shlex
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from opsctl.release import Release, render
from opsctl.release.model import folder_of
from opsctl.spec.models import Service

pytestmark = pytest.mark.lab

DATA = Path(__file__).parents[1] / "unit" / "release"
KEY, ADMIN = "sk-canary-0123456789", "adm'in\\\"$%-canary"
PEM = "-----BEGIN canary-----\nAbCdEfGhIjKl\n-----END canary-----\n"
PARTS = (KEY, "$%-canary", "AbCdEfGhIjKl", "BEGIN canary")  # none may show anywhere


@pytest.fixture(scope="module")
def host(lab_host: Any) -> Any:
    lab_host.sh("useradd --system --no-create-home sglang; mkdir -p /srv/models/tiny")
    lab_host.sh("python3 -m venv --without-pip /opt/sglang/0.5.9")
    return lab_host


def stage(host: Any, release: Release) -> str:
    folder = folder_of(release.service, release.digest)
    host.sh(f"install -d -m 700 {folder}/secrets")
    for path, file in release.files.items():
        host.put(f"{folder}/{path}", file.content, f"{file.mode:o}")
    unit = release.manifest["unit"]
    host.sh(f"cp {folder}/{unit} /etc/systemd/system/ && systemctl daemon-reload")
    return str(unit)


def reference() -> Service:
    return Service(**yaml.safe_load((DATA / "reference.yml").read_text())["kimi"])


def test_systemd_finds_no_fault_with_the_reference_unit(host: Any) -> None:
    unit = stage(host, render("kimi", reference(), zipapp=b""))
    path = f"/etc/systemd/system/{unit}"
    verify = host.sh(f"systemd-analyze verify --recursive-errors=no {path}", check=False)
    assert (verify.returncode, verify.stdout, verify.stderr) == (0, "", "")
    security = host.sh(f"systemd-analyze security --offline=true --threshold=50 {path}")
    score = re.search(r"Overall exposure level for \S+: ([0-9.]+)", security.stdout)
    assert score is not None and float(score[1]) < 5.0, security.stdout[-300:]


def test_systemd_takes_the_settings_as_meant(host: Any) -> None:
    unit = stage(host, render("kimi", reference(), zipapp=b""))
    meant = {
        "Type": "exec",
        "KillMode": "mixed",
        "TimeoutStopUSec": "2min 15s",
        "RestartUSec": "30s",
        "Restart": "on-failure",
        "OOMPolicy": "stop",
        "LimitMEMLOCK": "infinity",
        "LimitNOFILE": "1048576",
        "LimitCORE": "0",
        "MemorySwapMax": "0",
        "StartLimitIntervalUSec": "4h 31min 30s",
        "StartLimitBurst": "3",
        "LogRateLimitIntervalUSec": "0",
    }
    shown = host.sh(f"systemctl show {unit} -p {','.join(meant)}").stdout
    assert dict(line.split("=", 1) for line in shown.splitlines()) == meant


@pytest.fixture(scope="module")
def canary(host: Any) -> tuple[str, Release]:
    """A running service whose engine tells its keys in every way, itself and in its children."""
    site = "/opt/sglang/0.5.9/lib/python3*/site-packages"
    host.sh(f"mkdir $(echo {site})/sglang && touch $(echo {site})/sglang/launch_server.py")
    engine = (DATA / "canary_engine.py").read_text()
    host.sh(f"cat > $(echo {site})/sglang/launch_server.py", input=engine)
    host.sh("echo 'MemTotal: 471020339 kB' > /run/meminfo")
    host.sh("mount --bind /run/meminfo /proc/meminfo")
    service = Service(
        model={"path": "/srv/models/tiny"},
        engine={"version": "0.5.9"},
        env={"CANARY_END": "drain"},
        secrets={"api-key": KEY, "admin-api-key": ADMIN, "env": {"PEM": PEM}},
    )
    release = render("canary", service, zipapp=b"")
    unit = stage(host, release)
    host.sh(f"systemctl start {unit}")
    for _ in range(100):
        if "ready" in host.sh(f"journalctl -q -o cat -u {unit}").stdout.splitlines():
            break
        time.sleep(0.1)
    return unit, release


def test_the_keys_reach_the_engine_exactly_and_its_words_the_journal(
    host: Any, canary: tuple[str, Release]
) -> None:
    unit, _ = canary
    log = host.sh(f"journalctl -q -a -o cat -u {unit}").stdout
    digests = [hashlib.sha256(v.encode()).hexdigest()[:8] for v in (KEY, ADMIN, PEM)]
    assert f"digests {' '.join(digests)}\n" in log
    main = host.sh(f"systemctl show -p MainPID --value {unit}").stdout.strip()
    assert f"main __main__ {main} launch.py\n" in log
    for depth in range(3):
        assert f"TP{depth}] server_args=ServerArgs(api_key='***')\n" in log
    assert "RuntimeError: a crash tells ***\n" in log


def test_the_keys_show_nowhere_else(host: Any, canary: tuple[str, Release]) -> None:
    unit, _ = canary
    # fmt: off
    places = {
        "argv": "cat /proc/[0-9]*/cmdline | tr '\\0' ' '",
        "unit": f"systemctl cat {unit}",
        "show": f"systemctl show {unit}",
        "show by a user": f"su deploy -c 'systemctl show {unit}'",
        "journal": "journalctl -q -a -o export -n all",
        "journal as JSON": "journalctl -q -a -o json -n all",
        "environment of PID 1": "tr '\\0' ' ' </proc/1/environ",
    }
    # fmt: on
    for place, command in places.items():
        text = host.sh(command, check=False).stdout
        assert text, place
        for part in PARTS:
            assert part not in text, place


def test_no_file_but_the_secrets_holds_a_key(host: Any, canary: tuple[str, Release]) -> None:
    unit, release = canary
    options = " ".join(f"-e {shlex.quote(part)}" for part in PARTS)
    found = host.sh(
        f"grep -rlaF {options} /etc /home /opt /root /run /srv /tmp /usr/local /var", check=False
    ).stdout.split()
    names = ("admin-api-key", "api-key", "env.PEM")
    wanted = {f"{folder_of('canary', release.digest)}/secrets/{name}" for name in names}
    wanted |= {f"/run/credentials/{unit}/{name}" for name in names}
    assert set(found) == wanted


def test_secrets_are_for_the_service_alone(host: Any, canary: tuple[str, Release]) -> None:
    _, release = canary
    folder = folder_of("canary", release.digest)
    modes = host.sh(f"stat -c '%a %U %n' {folder}/secrets {folder}/secrets/*").stdout
    assert [line.rsplit("/", 1)[-1] for line in modes.splitlines() if line.startswith("600 root")]
    assert modes.startswith("700 root")
    assert host.sh(f"su deploy -c 'cat {folder}/secrets/api-key'", check=False).returncode != 0


def test_what_is_mounted_over_meminfo_shows_in_the_unit(
    host: Any, canary: tuple[str, Release]
) -> None:
    unit, _ = canary
    seen = host.sh(
        f"nsenter -t $(systemctl show -p MainPID --value {unit}) -m head -1 /proc/meminfo"
    ).stdout
    assert seen == "MemTotal: 471020339 kB\n"


def test_a_stop_drains_and_ends_well(host: Any, canary: tuple[str, Release]) -> None:
    unit, _ = canary
    host.sh(f"systemctl stop {unit}")
    assert host.sh(f"journalctl -q -o cat -u {unit}").stdout.splitlines().count("drained") == 1
    shown = host.sh(f"systemctl show -p Result,ExecMainStatus {unit}").stdout
    assert set(shown.splitlines()) == {"Result=success", "ExecMainStatus=0"}
