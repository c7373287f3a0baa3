"""What an operator who interrupts a task is told, though Ansible ends the task's process at once.

Ansible runs a task in a process of its own, without a terminal, and on Ctrl-C or SIGTERM has it
end itself before it could say a word. It imports this module before it makes that process, so that
the way to its stderr is kept from then.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_STDERR = os.dup(2)
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def telling(words: Callable[[], str]) -> Iterator[None]:
    """While the block runs, a signal that ends this process says `words` first."""

    def tell(number: int, frame: FrameType | None) -> None:
        for one in SIGNALS:
            signal.signal(one, signal.SIG_IGN)  # the second that Ansible sends must not cut it off
        os.write(_STDERR, f"\n{words()}\n".encode())
        old = before[signal.Signals(number)]
        if callable(old):
            old(number, frame)
        os._exit(1)

    before = {one: signal.signal(one, tell) for one in SIGNALS}
    try:
        yield
    finally:
        for one, old in before.items():
            signal.signal(one, old)
