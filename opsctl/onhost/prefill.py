"""How fast a running engine computes prompts, from its own lines "Prefill batch …".

The throughput in such a line is that of the batch before: its tokens by the time between the two
lines (last_input_throughput of scheduler_metrics_mixin.py in 0.5.9, metrics_reporter.py in 0.5.23).
So it counts idle time, and a small batch says little: only lines after a large batch are taken,
and of them the faster half, which had work waiting.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Dict, List, Optional, Tuple

from opsctl.onhost import systemd

_LINE = re.compile(
    r"\[(?P<stamp>[^\]]*)\] Prefill batch[ .,\[].*?#new-token: (?P<new>\d+)"
    r".*?input throughput \(token/s\): (?P<rate>[\d.]+)"
)
_PREFILL = re.compile(r"Prefill batch[ .,\[]")
LARGE = 1024  # tokens
LEAST = 3  # samples
LINES = 2000  # of the journal's end


@dataclass
class Samples:
    """Throughput after a batch of so many tokens, one rank's lines after the other's."""

    found: List[Tuple[int, float]] = field(default_factory=list)
    _before: Dict[str, int] = field(default_factory=dict)

    def take(self, line: str) -> bool:
        """Whether the line is one of a prefill."""
        match = _LINE.search(line[:600])
        if match is None:
            return _PREFILL.search(line[:200]) is not None
        rank = " ".join(match["stamp"].split()[2:])
        before, rate = self._before.get(rank, 0), float(match["rate"])
        if before >= LARGE and rate > 0:
            self.found.append((before, rate))
        self._before[rank] = int(match["new"])
        return True

    def told(self) -> Optional[Dict[str, Any]]:
        """Tokens a second of one replica: {"value", "least", "most", "samples"}; None with too few
        large batches to tell."""
        largest = max((tokens for tokens, _ in self.found), default=0)
        rates = sorted(rate for tokens, rate in self.found if 2 * tokens >= largest)
        if len(rates) < LEAST:
            return None
        fast = rates[len(rates) // 2 :]
        return {
            "value": round(median(fast)),
            "least": round(median(rates)),
            "most": round(fast[-1]),
            "samples": len(rates),
        }


def of(unit: str) -> Optional[Dict[str, Any]]:
    """From the last lines of a unit's journal; None if they do not tell."""
    argv = ["journalctl", "-o", "cat", "--no-pager", "--quiet", f"--lines={LINES}"]
    try:
        _, out, _ = systemd.call([*argv, f"--unit={unit}"], 5)
    except systemd.CallFailed:
        return None
    samples = Samples()
    for line in out.splitlines():
        samples.take(line)
    return samples.told()
