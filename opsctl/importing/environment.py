"""Variables: which stay, which become gpus or secrets, and which come from the old way to start."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from opsctl.importing.marks import theirs, unknown_parts, whole
from opsctl.importing.model import Launch, Report
from opsctl.importing.secretnames import by_name
from opsctl.importing.secrets import Vault, by_form, tells
from opsctl.release.quoting import Unquotable
from opsctl.release.quoting import environment as quoted

# Set by systemd, a login, a shell or a container's engine for the process that was; opsctl's unit
# gets its own. They count only where the text itself sets them.
_OF_THE_START = re.compile(
    r"INVOCATION_ID|JOURNAL_STREAM|SYSTEMD_EXEC_PID|MANAGERPID|MAINPID|NOTIFY_SOCKET|LISTEN_.*"
    r"|WATCHDOG_.*|MEMORY_PRESSURE_.*|(CREDENTIALS|RUNTIME|STATE|CACHE|LOGS|CONFIGURATION)_DIRECTORY"
    r"|LOGNAME|USER|USERNAME|SHELL|PWD|OLDPWD|SHLVL|_|TERM|TERM_PROGRAM.*|COLORTERM|MAIL|LS_COLORS"
    r"|MOTD_SHOWN|SUPERVISOR_.*"
    r"|LESS.*|SSH_.*|SUDO_.*|XDG_.*|DBUS_.*|DISPLAY|HOSTNAME|container|PS1|STY|WINDOW|TMUX.*|LANG"
    r"|LC_.*|PATH|HOME|VIRTUAL_ENV.*|CONDA_.*|HISTSIZE|EDITOR|FLOCKER|TRIGGER_.*|REMOTE_.*|MONITOR_.*"
)
_OF_THE_IMAGE = re.compile(
    r"NV_.*|NVARCH|NVIDIA_.*|CUDA_VERSION|CUDA_HOME|DEBIAN_FRONTEND|LD_LIBRARY_PATH|LIBRARY_PATH"
    r"|BUILD_TYPE|GDRCOPY_HOME|PIP_.*|UV_.*|PYTHON(UNBUFFERED|DONTWRITEBYTECODE|IOENCODING)"
)
# What makes no sense without the shell, login or container that it belonged to.
_NEVER = re.compile(
    r"PWD|OLDPWD|SHLVL|_|VIRTUAL_ENV.*|CONDA_.*|NVIDIA_VISIBLE_DEVICES"
    r"|NVIDIA_DRIVER_CAPABILITIES|INVOCATION_ID|JOURNAL_STREAM|SYSTEMD_EXEC_PID"
    r"|CREDENTIALS_DIRECTORY|PYTHONSTARTUP"
)
# opsctl's unit sets these to folders that the service may write.
_CACHES = (
    "HOME",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "FLASHINFER_WORKSPACE_BASE",
    "SGLANG_DG_CACHE_DIR",
    "XDG_CACHE_HOME",
    "TVM_FFI_CACHE_DIR",
)
OURS = {
    *("PATH", "HOME", "PYTHONUNBUFFERED", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"),
    *("FLASHINFER_WORKSPACE_BASE", "SGLANG_DG_CACHE_DIR"),
}
OUR_PATH = "/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CLOSED = ("/home/", "/root", "/run/user/", "/tmp")
_SECRET = 8  # characters that any secret of a description has
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass
class Variables:
    """`plain` and `secret` (templates) go into the description. `dropped`: left out, as told."""

    plain: dict[str, str] = field(default_factory=dict)
    secret: dict[str, str] = field(default_factory=dict)
    gpus: list[int] | None = None
    dropped: set[str] = field(default_factory=set)


def variables(launch: Launch, vault: Vault, report: Report) -> Variables:
    found = Variables()
    quietly: list[str] = []
    for name, value in launch.env.items():
        said = launch.said is None or name in launch.said
        if not said and _by_itself(name, launch):
            quietly.append(name)
            found.dropped.add(name)
        elif why := _left_out(name, value):
            report.note("dropped", name, why)
            found.dropped.add(name)
        else:
            _take(name, value, found, vault, report)
    if quietly:
        report.note(
            "dropped",
            ", ".join(sorted(quietly)),
            "set by systemd, a login or an image for the process that was",
        )
    _gpus(found, launch, report)
    return found


def _by_itself(name: str, launch: Launch) -> bool:
    if _OF_THE_START.fullmatch(name):
        return True
    return launch.container is not None and _OF_THE_IMAGE.fullmatch(name) is not None


def _left_out(name: str, value: str) -> str:
    if _NEVER.fullmatch(name):
        return "it belongs to the shell, login or container that was"
    if name == "PATH" and not whole(value):
        return "opsctl's unit has the environment's own bin, CUDA's, and the system's"
    if name in OURS and (value.startswith("/var/cache/opsctl/") or name == "PYTHONUNBUFFERED"):
        return "opsctl's unit sets it itself"
    if name == "PATH" and value.endswith(OUR_PATH):
        return "opsctl's unit sets it itself"
    if name in _CACHES and value.startswith(_CLOSED):
        return (
            f"{theirs(value)} is closed to the unit, or is gone with it: caches of compiled "
            "kernels stand in /var/cache/opsctl/SERVICE, across releases"
        )
    return ""


def _take(name: str, value: str, found: Variables, vault: Vault, report: Report) -> None:
    key = f"env.{name}"
    if not _NAME.fullmatch(name):
        report.refuse("is not a name of a variable", key=key, allowed="letters, digits and _")
        return
    if not whole(value):
        for message, hint in unknown_parts(value):
            report.refuse(message, key=key, hint=hint)
        return
    try:
        quoted(name, value)
    except Unquotable as error:
        report.refuse(str(error), key=key)
        return
    carried = len(value) >= _SECRET and value in vault.hidden  # what --api-key ${X} came from
    if not (by_name(name) or by_form(value, name) or tells(value) or carried):
        found.plain[name] = value
    elif not value:
        found.dropped.add(name)
        report.note("dropped", name, "it is empty, as if it were not set")
    else:
        found.secret[name] = vault.keep(name, value)
        report.note(
            "moved",
            name,
            f"{found.secret[name]} in secrets.env: it was readable by every "
            "user of the host, or in a file; put its value into a vault",
        )


def _gpus(found: Variables, launch: Launch, report: Report) -> None:
    """CUDA_VISIBLE_DEVICES in the engine's own numbers becomes gpus; in a container it counts
    among the container's GPUs."""
    given = launch.container.gpus if launch.container else None
    value = found.plain.get("CUDA_VISIBLE_DEVICES")
    numbers = _numbers(value) if value is not None else None
    if numbers is None:
        if value is not None and given is not None:
            report.refuse(
                "names GPUs in another way than by number, and the container has only some of them",
                key="env.CUDA_VISIBLE_DEVICES",
            )
        elif given is not None:
            found.gpus = list(given)
            report.note(
                "changed",
                f"the container's GPUs → gpus: {list(given)}",
                "a place of their own in the description",
            )
        return
    if given is not None:
        if max(numbers) >= len(given):
            report.refuse(
                f"names GPU {max(numbers)}, and the container has {len(given)}",
                key="env.CUDA_VISIBLE_DEVICES",
            )
            return
        numbers = [given[n] for n in numbers]
    del found.plain["CUDA_VISIBLE_DEVICES"]
    found.dropped.add("CUDA_VISIBLE_DEVICES")
    found.gpus = numbers
    report.note(
        "changed",
        f"CUDA_VISIBLE_DEVICES={theirs(value or '')} → gpus: {numbers}",
        "a place of its own in the description",
    )


def _numbers(value: str) -> list[int] | None:
    parts = [part.strip() for part in value.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,4}", part) for part in parts):
        return None
    numbers = [int(part) for part in parts]
    return numbers if len(set(numbers)) == len(numbers) else None


def expected(found: Variables, vault: Vault) -> dict[str, str]:
    """The engine's variables as they must be again in what is rendered."""
    back: Any = vault.reveal(dict(found.secret))
    there = {**found.plain, **back}
    if found.gpus is not None:
        there["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, found.gpus))
    return there
