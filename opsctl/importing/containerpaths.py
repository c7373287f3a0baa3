"""Paths in a container → the same files on the host."""

from __future__ import annotations

from opsctl.importing.marks import placeholder, theirs, unknown_parts, whole
from opsctl.importing.model import Container, Mount, Report

# Flags that name files, by the ends of their names; and those whose names do not say it.
ENDINGS = ("-path", "-paths", "-dir", "-folder", "-file", "-keyfile", "-certfile", "-certs")
ALSO_PATHS = {
    *("chat-template", "completion-template", "speculative-token-map", "dllm-algorithm-config"),
    *("speculative-adaptive-config", "msprobe-dump-config", "watermark-config"),
}
_SHARED = ("/dev/", "/proc/", "/sys/", "/etc/hosts", "/tmp/")


def outside(
    name: str, text: str, container: Container | None, report: Report, *, path: bool = False
) -> str:
    """`path`: it is one for certain, and not text that looks like one."""
    if container is None or text == "/":
        return text
    key = "model.path" if name == "model-path" else f"flags.{name}"
    mount = _mount(text, container)
    if mount is None:
        if not (path or name.endswith(ENDINGS) or name in ALSO_PATHS):
            return text
        if not text.startswith(_SHARED):
            report.refuse(
                "is inside the container's image: no folder of the host is mounted there",
                key=key,
                value=text,
                hint="copy it to the host, and mount it, or give --mount HOST:CONTAINER",
            )
        return text
    container.used.add(mount.target)
    if mount.source is None:
        report.refuse(
            "is in a volume whose folder on the host the text does not tell",
            key=key,
            value=text,
            hint="give --mount HOST:CONTAINER",
        )
        return text
    if missing := [*unknown_parts(mount.source), *_to_replace(mount.source)]:
        for message, hint in missing:
            report.refuse(f"{theirs(text)}: {message}", key=key, hint=hint)
        return text
    moved = _source_of(text, mount.source, mount.target)
    if moved != text and name != "model-path":
        report.note(
            "changed",
            f"{name}: {theirs(text)} → {theirs(moved)}",
            f"the container had the host's folder {theirs(mount.source)} at {theirs(mount.target)}",
        )
    return moved


def _to_replace(path: str) -> list[tuple[str, str]]:
    return (
        [(f"{theirs(path)} is a placeholder", "write the real path")] if placeholder(path) else []
    )


def of_mount(inside: str, container: Container) -> str | None:
    """Where a path of a container is on the host, if that is known: its folder then has its use."""
    mount = _mount(inside, container)
    if mount is None or mount.source is None or not whole(mount.source):
        return None
    container.used.add(mount.target)
    return _source_of(inside, mount.source, mount.target)


def _mount(inside: str, container: Container) -> Mount | None:
    """The one that a path of the container is in: of several the deepest."""
    around = [m for m in container.mounts if f"{inside}/".startswith(f"{m.target.rstrip('/')}/")]
    return max(around, key=lambda m: len(m.target), default=None)


def _source_of(inside: str, source: str, target: str) -> str:
    return source.rstrip("/") + inside[len(target.rstrip("/")) :] or "/"
