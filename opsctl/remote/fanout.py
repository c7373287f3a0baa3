"""One function over many hosts at once, bounded in number and in time."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from opsctl.errors import OpsctlError, Unreachable

T = TypeVar("T")
WORKERS = 16


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """What one host gave: a value, or the error that stands for it."""

    name: str
    value: T | None = None
    error: OpsctlError | None = None

    @property
    def ok(self) -> bool:
        return self.error is None


def each(
    names: Sequence[str],
    work: Callable[[str], T],
    *,
    timeout: float,
    workers: int = WORKERS,
    done: Callable[[Outcome[T]], None] | None = None,
) -> list[Outcome[T]]:
    """`work(name)` for every name; outcomes in the order of `names`, one for each.

    An OpsctlError of one stops no other; what has no result after `timeout` seconds is Unreachable.
    Any other exception is a fault of ours and is raised. Threads are daemons: a host that hangs,
    or Ctrl-C, never keeps the command from ending. `done` is called here, as outcomes come.
    """
    todo: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    results: queue.SimpleQueue[tuple[str, Outcome[T] | BaseException]] = queue.SimpleQueue()
    over = threading.Event()
    for name in names:
        todo.put(name)
    count = max(1, min(workers, len(names)))
    for _ in range(count):
        todo.put(None)
        threading.Thread(
            target=_work, args=(todo, results, over, work), daemon=True, name="opsctl-host"
        ).start()
    found: dict[str, Outcome[T]] = {}
    deadline = time.monotonic() + timeout
    try:
        while len(found) < len(names):
            try:
                name, result = results.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            if isinstance(result, BaseException):
                raise result
            found[name] = result
            if done is not None:
                done(result)
    finally:
        over.set()
    return [found.get(name) or _late(name, timeout) for name in names]


def _work(
    todo: queue.SimpleQueue[str | None],
    results: queue.SimpleQueue[tuple[str, Outcome[T] | BaseException]],
    over: threading.Event,
    work: Callable[[str], T],
) -> None:
    while (name := todo.get()) is not None and not over.is_set():
        try:
            results.put((name, Outcome(name, work(name))))
        except OpsctlError as error:
            results.put((name, Outcome(name, error=error)))
        except BaseException as error:
            results.put((name, error))


def _late(name: str, timeout: float) -> Outcome[T]:
    return Outcome(
        name,
        error=Unreachable(
            f"gave no result within {timeout:g} s",
            host=name,
            step="wait",
            hint="raise --timeout, or leave the host out with --limit",
        ),
    )
