"""SSH transport, fan-out, and what a host says."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # pydantic would cost `opsctl --help` 50 ms
    from opsctl.remote.host import Host
    from opsctl.remote.target import Target


def connect(target: Target) -> Host:
    """The host behind this target. Nothing is opened before the first command."""
    if target.local:
        from opsctl.remote.local import LocalHost

        return LocalHost(target)
    from opsctl.remote.ssh import SshHost  # lazy: 0.2 s of imports

    return SshHost(target)
