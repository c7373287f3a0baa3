"""Several hosts' streams read as one, each in a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opsctl.errors import OpsctlError

Source = Callable[[], Iterator[Any]]
# A host that floods must wait for us, not fill this machine's memory.
WAITING = 1000


@contextmanager
def merged(
    sources: Mapping[str, Source], *, stop: Callable[[], None]
) -> Iterator[Iterator[tuple[str, Any]]]:
    """(name, item) as they come until all sources have ended; an OpsctlError is the item of its
    source. `stop` ends sources that wait for their next item when the block is left early."""
    arrived: queue.Queue[tuple[str, Any]] = queue.Queue(WAITING)
    leave = threading.Event()
    threads = [
        threading.Thread(target=_pump, args=(name, source, arrived, leave), daemon=True)
        for name, source in sources.items()
    ]
    try:
        for thread in threads:
            thread.start()
        yield _until_ended(arrived, len(threads))
    finally:
        leave.set()
        if any(thread.is_alive() for thread in threads):
            stop()
        for thread in threads:
            if thread.ident is not None:
                thread.join(timeout=CLOSING)


# Seconds that a source may take to end its remote process when we leave.
CLOSING = 5.0
_END = object()


def _until_ended(arrived: queue.Queue[tuple[str, Any]], running: int) -> Iterator[tuple[str, Any]]:
    while running:
        try:
            name, item = arrived.get(timeout=0.5)  # a wait without end hides Ctrl-C on some systems
        except queue.Empty:
            continue
        if item is _END:
            running -= 1
        else:
            yield name, item


def _pump(
    name: str, source: Source, arrived: queue.Queue[tuple[str, Any]], leave: threading.Event
) -> None:
    def hand(item: Any) -> None:
        while not leave.is_set():
            try:
                arrived.put((name, item), timeout=0.5)
            except queue.Full:
                continue
            return

    try:
        items = source()
        try:
            for item in items:
                hand(item)
                if leave.is_set():
                    break
        finally:
            items.close()  # type: ignore[attr-defined]
    except OpsctlError as error:
        error.host = error.host or name
        hand(error)
    except Exception as error:
        hand(OpsctlError(f"{type(error).__name__}: {error}", host=name))
    finally:
        hand(_END)
