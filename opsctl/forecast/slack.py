"""What of a GPU is left beside weights and pools: for CUDA graphs, workspaces and activations.

The engine keeps (1 − mem-fraction-static) of what was free before the weights out of its pools,
and counts nothing of what it then takes from it. What is known of that is taken off here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opsctl.forecast.device.fraction import chunk_and_batch
from opsctl.forecast.device.settings import parsed, settings
from opsctl.forecast.values import Case, Device, Figure, NoForecast
from opsctl.onhost.expect import GiB

# From here on the draft's weights are loaded before the pools, and its KV is charged with them
# (0.5.14 managers/scheduler.py, init_model_worker).
DRAFT_CHARGED = (0, 5, 14)

# "5 to 8 GB is good" is what SGLang's own guide to tuning says of available_gpu_mem, the last
# figure of a start: docs/advanced_features/hyperparameter_tuning.md of its repository.
ACTIVATIONS = 5 * GiB
# Of a decode graph, for each request of its batch (server_args.py of 0.5.3, later
# arg_groups/memory_hook.py).
A_BATCH = 2 << 20


@dataclass(frozen=True, slots=True)
class Slack:
    """`left`: bytes of the GPU beside weights and pools, before graphs. `unknown`: what else comes
    out of it and could not be counted, for people."""

    left: Figure
    unknown: tuple[str, ...]


def slack(case: Case, device: Device) -> Slack | None:
    """None where the memory before the weights is not known."""
    reserve = device.reserve
    if reserve is None:
        return None
    taken, unknown = 0, []
    if (size := table(case, device)) is not None:
        taken += size
    if case.flags.get("speculative-algorithm") and parsed(case.version) < DRAFT_CHARGED:
        weights = case.draft_weights
        measured = case.measured.draft_weights
        if measured is not None:
            taken += measured
        elif weights is not None:
            taken += weights.most if weights.most is not None else weights.value
        else:
            unknown.append("the draft model's weights")
        pools = _drafts(device)
        taken += sum(pools)
        if not pools:
            unknown.append("the draft model's KV")
    return Slack(
        Figure(
            reserve.value - taken,
            None if reserve.least is None else reserve.least - taken,
            None if reserve.most is None else reserve.most - taken,
            reserve.basis,
            "what mem-fraction-static leaves, less what is known to be taken from it",
        ),
        tuple(unknown),
    )


def table(case: Case, device: Device) -> int | None:
    """Bytes of req_to_token, the table of requests: int32 a token of the context and request."""
    context = case.flags.get("context-length") or case.shape.context
    if device.max_running is None or not context:
        return None
    return device.max_running * (int(context) + 4) * 4


def graphs(case: Case) -> int | None:
    """Bytes that decode graphs take, as the engine allows for them when it chooses the fraction by
    itself; None where the card, and with it the largest batch, is not known."""
    if case.flags.get("disable-cuda-graph"):
        return 0
    try:
        return chunk_and_batch(case, settings(case))[1] * A_BATCH
    except NoForecast:
        return None


def beside(case: Case, device: Device) -> Figure | None:
    """Bytes of a GPU beside weights, pools, graphs and all else that is known, for activations;
    below zero: what lacks. None where the memory before the weights is not known."""
    found = slack(case, device)
    if found is None:
        return None
    taken = (graphs(case) or 0) + _over(device)
    left = found.left
    return Figure(
        left.value - taken,
        None if left.least is None else left.least - taken,
        None if left.most is None else left.most - taken,
        left.basis,
        left.source,
    )


def _over(device: Device) -> int:
    """Bytes by which pools go beyond what was left for them."""
    if device.rest is None:
        return 0
    pools = sum(pool.bytes.value for pool in device.pools if not pool.name.startswith("draft"))
    return max(0, pools - max(0, device.rest.value))


def demanded(case: Case) -> int:
    """Bytes of a GPU that must be left beside all that is known. Where the engine chooses the
    fraction by itself, it allows for activations as it knows them, and only a start that leaves
    next to nothing is doubted."""
    if case.gpu_headroom is not None:
        return case.gpu_headroom
    return ACTIVATIONS if case.flags.get("mem-fraction-static") is not None else GiB


def _drafts(device: Device) -> Sequence[int]:
    return [
        pool.bytes.value if pool.bytes.most is None else pool.bytes.most
        for pool in device.pools
        if pool.name.startswith("draft")
    ]
