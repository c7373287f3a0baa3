"""From which prefix length on loading back from the host tier is quicker than computing again.

Both grow with the prefix; loading has a fixed part before its first byte. So there is one length
where they meet, if loading a token is quicker at all: latency / (compute − load), a token each.
Attention over what stands before a token is left out: it makes recomputing slower still.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from opsctl.forecast.evaluate import Result
from opsctl.forecast.values import ESTIMATED, Case, Figure

# Bytes a second of one lane and direction, by PCIe generation, after its line code (128b/130b from
# 3.0 on, 8b/10b before; 6.0 is 242b/256b).
LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
# Of that, what load-back reaches. The reference deployment measured about 25 of 63 GB/s on PCIe
# 5.0 × 16 (0.40). The band is a judgement: a copy engine reaches 0.85 of a link, and many ranks on
# one switch share its link.
SHARE = (0.40, 0.15, 0.85)
# Without a link: from PCIe 4.0 × 8 to 5.0 × 16. A judgement.
UNKNOWN_LINK = (25e9, 5e9, 53e9)
# Seconds before the first layer can go on: matching, allocation, a kernel a layer. A judgement.
LATENCY = (2e-3, 0.5e-3, 20e-3)
# The engine loads back no fewer tokens than this (load_back_threshold, all versions).
THRESHOLD = 10


@dataclass(frozen=True, slots=True)
class Payoff:
    """`tokens` None: not known, or never; `lacking` says what to measure. `gain`: how many times
    quicker a long prefix is loaded than computed."""

    tokens: Figure | None
    bandwidth: Figure  # bytes a second and rank
    load: Figure  # tokens a second: what a rank loads
    prefill: Figure | None  # tokens a second: what a replica computes
    gain: float | None
    lacking: str = ""

    def rows(self) -> list[tuple[str, str, str]]:
        """(what, figure, source) for people."""
        found = [("load-back", f"{self.load.value:,} tokens/s", self.load.source)]
        if self.prefill is None:
            return [*found, ("recompute", "not known", self.lacking)]
        found.append(("recompute", f"{self.prefill.value:,} tokens/s", self.prefill.source))
        if self.tokens is None:
            return [*found, ("pays", "never", self.lacking)]
        span = f"{self.tokens.least:,} to {self.tokens.most:,}" if self.tokens.most else "or never"
        told = f"from a prefix of {self.tokens.value:,} tokens on ({span})"
        return [*found, ("pays", told, f"a long prefix {self.gain:.1f} times quicker")]

    def as_json(self) -> dict[str, Any]:
        tokens, prefill = self.tokens, self.prefill
        return {
            "tokens": None if tokens is None else tokens.value,
            "tokens_band": None if tokens is None else [tokens.least, tokens.most],
            "load_tokens_per_second": self.load.value,
            "load_tokens_per_second_band": [self.load.least, self.load.most],
            "bandwidth_gb_per_second": round(self.bandwidth.value / 1e9, 2),
            "prefill_tokens_per_second": None if prefill is None else prefill.value,
            "gain": None if self.gain is None else round(self.gain, 2),
            "lacking": self.lacking,
        }


def crossover(case: Case, result: Result) -> Payoff | None:
    """None without a host tier, or where its rows are not known."""
    pools = result.pools[0] if result.pools else None
    row = sum(
        pool.bytes_per_token for pool in pools or () if pool.name in ("kv", "indexer", "draft")
    )
    if not case.flags.get("enable-hierarchical-cache") or not row:
        return None
    return of(row, bandwidth(case.hardware.link), case.measured.prefill)


def bandwidth(link: tuple[int, int] | None) -> Figure:
    """What one rank loads back in a second, from the generation and lanes of its link."""
    if link is None or link[0] not in LANE:
        values, source = UNKNOWN_LINK, "a usual link: the PCIe link is not known"
    else:
        raw = LANE[link[0]] * link[1]
        values = tuple(share * raw for share in SHARE)  # type: ignore[assignment]
        source = (
            f"PCIe {link[0]}.0 × {link[1]}; the link can carry {raw / 1e9:.0f} GB/s, and "
            f"{SHARE[0]:.0%} of that, {values[0] / 1e9:.0f} GB/s, are assumed here: the share was "
            "measured on another deployment, over PCIe 5.0 × 16"
        )
    return Figure(int(values[0]), int(values[1]), int(values[2]), ESTIMATED, source)


def of(row: int, rate: Figure, prefill: Figure | None) -> Payoff:
    """`row`: bytes of a token on one rank; the ranks load at once, each over its own link."""
    load = Figure(
        rate.value // row, (rate.least or 0) // row, (rate.most or 0) // row, rate.basis,
        f"{row:,} B a token and rank over {rate.source}",
    )  # fmt: skip
    if prefill is None:
        lacking = (
            'measure it: a journal with "Prefill batch" lines under load, whose input throughput '
            "after large batches is the speed of computing"
        )
        return Payoff(None, rate, load, None, None, lacking)
    likely = _meet(LATENCY[0], load.value, prefill.value)
    least = _meet(LATENCY[1], load.most or 0, prefill.least or prefill.value)
    most = _meet(LATENCY[2], load.least or 0, prefill.most or prefill.value)
    gain = load.value / prefill.value
    if likely is None:
        return Payoff(
            None, rate, load, prefill, gain, "loading a token is slower than computing it"
        )
    tokens = Figure(likely, least, most, ESTIMATED, "where loading and computing take as long")
    return Payoff(tokens, rate, load, prefill, gain)


def _meet(latency: float, load: float, compute: float) -> int | None:
    """Tokens from which on loading is quicker; None if it never is."""
    if load <= compute or not compute:
        return None
    return max(THRESHOLD, int(latency / (1 / compute - 1 / load)) + 1)
