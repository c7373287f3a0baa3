"""Python on a host that has none: the one thing that is done there without Python."""

from __future__ import annotations

from opsctl.errors import OpsctlError
from opsctl.remote.host import Host
from opsctl.remote.onhost import NoPython, python

# A repository that is down shall not hold the deployment up for minutes; a dpkg that is at work
# (unattended-upgrades at the first boot) is waited for.
_INSTALL = """\
if command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    few='-q -o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20'
    apt-get $few update
    exec apt-get $few -o DPkg::Lock::Timeout=300 -y --no-install-recommends install python3
elif command -v dnf >/dev/null; then
    exec dnf -y install python3
fi
echo 'neither apt-get nor dnf is on the host' >&2
exit 1
"""


def may_install(host: Host, missing: NoPython, *, allowed: bool, check: bool) -> None:
    """Raises `missing`, with what to do, where Python is not to be installed."""
    if missing.old or python(host) != ["python3"]:
        raise missing
    if check:
        missing.hint = "a run without --check installs python3; before that nothing can be checked"
        raise missing
    if not allowed:
        missing.hint = (
            "on the host: apt-get install python3 (or dnf); or host_install_python: true, and "
            "deploy.yml does it"
        )
        raise missing


def install(host: Host) -> None:
    """Raises OpsctlError with the package manager's own words."""
    answer = host.run(["sh", "-c", _INSTALL], timeout=900)
    if answer.rc == 0:
        return
    said = [line for line in (answer.out + answer.err).splitlines() if line.strip()]
    errors = [line for line in said if line.startswith(("E:", "Error", "neither"))]
    raise OpsctlError(
        f"python3 could not be installed: {(errors or said or ['no word'])[-1]}",
        host=host.name,
        step="python",
        log=said[-10:],
        hint="see to the host's package repositories, then: apt-get install python3 (or dnf)",
    )
