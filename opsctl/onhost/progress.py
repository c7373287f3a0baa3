"""Whether a start still moves. Pure: time and samples come from outside.

A journal alone does not show it: only rank 0 has a weight bar, bars stay in one record until a
newline comes, and ranks of one start finished loading between 228 s and 888 s. So progress is any
of: a journal event not seen before; change of read bytes, resident memory or CPU time of the
unit's processes, or of GPU memory.

Noise is not progress. A hung process still wakes its threads, a little memory comes and goes, and
its health poll is logged. So a change counts from a size on, against the figure at which it last
counted (slow real work adds up, jitter does not), and of the journal only events count, each once.

CPU time is the doubtful one: a rank that waits for lost peers in NCCL spins on a core for ever,
while a compiler, or a graph capture (1334 s in a public report), may show nothing but CPU time for
long. CPU time alone therefore carries a start to 3 × stall after the last other sign, no further.
A process that is hung and idle is caught after `stall`, one that is hung and spins after
3 × stall, and everything at `cap`.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Mapping, Optional, Set, Tuple

from .expect import span
from .model import Event

MiB = 1 << 20

READ_STEP = 4 * MiB  # of all processes together
RSS_STEP = 16 * MiB  # of one process, up or down: shards are mapped and let go
GPU_STEP = 2 * MiB  # nvidia-smi counts MiB
CPU_SHARE = 0.2  # of one core, over CPU_WINDOW seconds at most
CPU_WINDOW = 10.0
CPU_ALONE = 3  # times stall

# Events that a start makes by itself. "app_ready" and the like come once; an error is the crash
# detector's business and may repeat for ever.
_QUIET = {"error", "unit_restart", "unit_exit", "unit_failed", "unit_oom", "unit_limit"}

Sample = Tuple[int, int, int]


class Progress:
    """Watches one start. `now` is any clock that only goes forward, in seconds."""

    def __init__(
        self, now: float, *, stall: float, cap: float, ticks_per_second: int = 100
    ) -> None:
        self.started = now
        self.stall = stall
        self.cap = cap
        self.moved_at = now  # the last sign other than CPU time
        self.cpu_at = now
        self._ticks_per_second = ticks_per_second
        self._seen: Set[Tuple[str, str, str]] = set()
        self._read = 0
        self._rss: Dict[int, int] = {}
        self._ticks: Dict[int, int] = {}
        self._ticks_at = now
        self._gpu = 0
        self._first = True

    def observe(
        self,
        now: float,
        events: Iterable[Event] = (),
        samples: Optional[Mapping[int, Sample]] = None,
        gpu_used: int = 0,
    ) -> str:
        """What moved since the last look: "journal", "io", "rss", "gpu", "cpu", or "" for nothing.

        `samples` has (read_bytes, rss, CPU ticks) by PID; `gpu_used` is the sum over the GPUs.
        The first look only sets the marks.
        """
        moved = [
            name
            for name, changed in (
                ("journal", self._journal(events)),
                ("io", self._io(samples or {})),
                ("rss", self._memory(samples or {})),
                ("gpu", self._gpus(gpu_used)),
            )
            if changed
        ]
        cpu = self._cpu(now, samples or {})
        first, self._first = self._first, False
        if first and moved != ["journal"]:
            moved = [name for name in moved if name == "journal"]
        if moved:
            self.moved_at = self.cpu_at = now
            return moved[0]
        if cpu and not first:
            self.cpu_at = now
            return "cpu"
        return ""

    def idle(self, now: float) -> float:
        """Seconds since anything moved, CPU time included."""
        return now - max(self.moved_at, self.cpu_at)

    def verdict(self, now: float) -> str:
        """ "" while the start may go on, else the reason why it may not, for people."""
        if now - self.started >= self.cap:
            return f"not ready {span(self.cap)} after the start, which is the cap"
        if self.idle(now) >= self.stall:
            return f"no progress for {span(self.idle(now))}"
        alone = now - self.moved_at
        if alone >= CPU_ALONE * self.stall:
            return f"for {span(alone)} nothing moved but CPU time: it spins"
        return ""

    def left(self, now: float) -> float:
        """Seconds until the verdict falls if nothing moves from now on."""
        return min(
            self.started + self.cap - now,
            self.stall - self.idle(now),
            self.moved_at + CPU_ALONE * self.stall - now,
        )

    def _journal(self, events: Iterable[Event]) -> bool:
        fresh = False
        for event in events:
            if event.kind in _QUIET:
                continue
            shape = (event.kind, event.rank, _shape(event.data))
            fresh = fresh or shape not in self._seen
            self._seen.add(shape)
        return fresh

    def _io(self, samples: Mapping[int, Sample]) -> bool:
        total = sum(sample[0] for sample in samples.values())
        if total < self._read:  # a process that had read ended
            self._read = total
        if total - self._read < READ_STEP:
            return False
        self._read = total
        return True

    def _memory(self, samples: Mapping[int, Sample]) -> bool:
        """A process that came counts by its size; one that ended does not count."""
        changed = False
        for pid, (_, rss, _) in samples.items():
            if abs(rss - self._rss.get(pid, 0)) >= RSS_STEP:
                self._rss[pid] = rss
                changed = True
        for pid in set(self._rss) - set(samples):
            del self._rss[pid]
        return changed

    def _gpus(self, used: int) -> bool:
        if abs(used - self._gpu) < GPU_STEP:
            return False
        self._gpu = used
        return True

    def _cpu(self, now: float, samples: Mapping[int, Sample]) -> bool:
        """CPU_SHARE of a core: threads that only wake stay below it. The window slides, so that
        work that begins after a long wait counts at once."""
        ticks = sum(max(0, sample[2] - self._ticks.get(pid, 0)) for pid, sample in samples.items())
        span = now - self._ticks_at
        busy = ticks >= CPU_SHARE * self._ticks_per_second * max(span, 1.0)
        if busy or self._first or span >= CPU_WINDOW:
            self._ticks = {pid: sample[2] for pid, sample in samples.items()}
            self._ticks_at = now
        return busy


def _shape(data: Mapping[str, Any]) -> str:
    return repr(sorted(data.items(), key=lambda item: item[0]))
