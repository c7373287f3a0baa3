"""The values that the pieces of the forecast hand to each other. Pure data.

Bytes are whole numbers; GiB = 2^30, GB = 10^9. Everything is per rank unless said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

COMPUTED, MEASURED, ESTIMATED = "computed", "measured", "estimated"


class NoForecast(Exception):
    """A figure cannot be told, and the text says why and what is missing, for people."""


class NoStart(NoForecast):
    """The engine would end at once: no figures, and the verdict that it does not fit."""


class NoRoom(NoStart):
    """The weights leave nothing of a GPU for the pools. `room`: how much is missing, if known."""

    def __init__(self, text: str, room: Room | None = None) -> None:
        super().__init__(text)
        self.room = room


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with its band and where it comes from.

    `least` and `most` None: not known on that side. `basis`: COMPUTED (follows from exact figures),
    MEASURED (an earlier start logged it), ESTIMATED (the band must hold the truth).
    """

    value: int
    least: int | None
    most: int | None
    basis: str
    source: str


@dataclass(frozen=True, slots=True)
class Room:
    """GPU memory of a rank whose weights leave nothing. `rest`: below zero what lacks. `above`:
    the mem-fraction-static from which on something is left."""

    fraction: float
    above: float
    weights: Figure
    reserve: Figure
    rest: Figure


# -- the model ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Heads:
    """KV heads of one MHA/GQA layer, before any split over ranks."""

    count: int
    head_dim: int
    v_head_dim: int


@dataclass(frozen=True, slots=True)
class Latent:
    """The latent row of one MLA layer, in elements; the same on every rank."""

    rank: int  # kv_lora_rank
    rope: int  # qk_rope_head_dim


@dataclass(frozen=True, slots=True)
class Indexer:
    """DSA: the keys that choose what is attended to. `layers`: ids of layers that keep some."""

    head_dim: int
    layers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class State:
    """What one recurrent layer keeps of one request, before any split over ranks.

    `temporal`: (heads, rows, columns) elements, heads are split. `conv`: ((channels, taps), …)
    elements, channels are split. `kind`: "gdn", "kda", "mamba2", "lightning" or "conv" (no
    temporal part). shape.state_elements splits it over ranks.
    """

    kind: str
    temporal: tuple[int, int, int]
    conv: tuple[tuple[int, int], ...]
    groups: int = 1  # groups that the engine may have to repeat to split them; 0: none
    element: int = 4  # bytes of a temporal element unless mamba-ssm-dtype is set


@dataclass(frozen=True, slots=True)
class Geometry:
    """What config.json says of a model, as far as memory depends on it.

    Ids of layers are those of the whole model; a pipeline stage owns a run of them.
    """

    architecture: str
    layers: int
    attention: Heads | Latent
    full: tuple[int, ...]  # ids of layers with attention over everything
    # ids of layers with a sliding window or chunks; device.window says whether a release gives them
    # a pool of their own, else they are kept like `full`
    window: tuple[int, ...] = ()
    window_attention: Heads | None = None  # None: as `attention`
    window_tokens: int | None = None  # tokens that the window or chunk spans
    linear: tuple[int, ...] = ()  # ids of layers with recurrent state in place of KV
    state: State | None = None
    indexer: Indexer | None = None
    element: int = 2  # bytes of an element under dtype "auto"
    kv_fp8: bool | None = False  # the checkpoint asks for an FP8 KV cache; None: cannot be told
    context: int | None = None  # tokens that the model itself allows
    # a draft: layers that the release counts for it as it sizes the target's pool, which may not
    # be those that are built; None: not known
    counted: int | None = None
    nextn: int = 0  # MTP layers that the checkpoint carries (num_nextn_predict_layers)
    vision: tuple[int, int] | None = None  # (layers, hidden size) of a vision tower
    multimodal: bool = False
    # sizes that weights and tables follow from
    hidden: int = 0
    q_heads: int = 0
    vocabulary: int = 0


# -- the host -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hardware:
    """The GPUs of this service. `total`: least memory of a card as nvidia-smi shows it, bytes."""

    count: int = 0
    cards: tuple[str, ...] = ()  # names as nvidia-smi shows them
    total: int | None = None
    capability: tuple[int, int] | None = None  # CUDA compute capability, None: not known
    vendor: str = "nvidia"  # or "amd", "cpu"
    link: tuple[int, int] | None = None  # PCIe generation and lanes of the slowest card
    nodes: tuple[int, ...] = ()  # NUMA node of each card, in order; empty: not known
    doubt: int = 0  # bytes by which `total` may be off: it is that of most cards of the name


BEFORE, AFTER, ANY = "before", "after", "at any time"


class Other(NamedTuple):
    """Host memory that another service will still take (give back, if negative). `when`: BEFORE
    this one starts, AFTER that, or nobody knows; `why`, for people: how it is known."""

    service: str
    bytes: int
    when: str = ANY
    why: str = ""


@dataclass(frozen=True, slots=True)
class HostMemory:
    """`available`: MemAvailable as it were with this service stopped. All of the whole host."""

    total: int
    available: int
    cgroup_headroom: int | None = None  # limit less what is used, without page cache
    hugepages: int = 0  # reserved huge pages, bytes: never part of `available`
    swap_total: int = 0
    swap_used: int = 0
    nodes: tuple[int, ...] = ()  # memory that each NUMA node has free or reclaimable
    others: tuple[Other, ...] = ()  # what other services will still take


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a start will find: the files that it reads, and what is warm already.

    `loaded`: bytes that earlier starts here read from the disk in a second, all ranks together.
    """

    model_bytes: int | None = None
    draft_bytes: int | None = None
    cached: float | None = None  # share of the model's bytes in the page cache
    storage: str = ""  # nvme, ssd, rotational, virtual, network, memory; "": not known
    loaded: int | None = None
    kernels: bool | None = None  # compiled kernels of this engine version are there


@dataclass(frozen=True, slots=True)
class Earlier:
    """How long one earlier start took, and what that depends on; see Measured."""

    seconds: Mapping[str, float]
    cached: float | None = None
    kernels: bool | None = None
    pinned: int | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """What an earlier start of this model on this kind of host logged; None: not known.

    `tokens` only if that start had the same gpu_key. The rest holds for any start of the same
    model, version and parallelism. Least over the ranks for free memory, most for weights.
    """

    tokens: int | None = None
    free_before: int | None = None
    free_after: int | None = None
    weights: int | None = None
    draft_weights: int | None = None
    process: int | None = None  # resident memory of one rank beside its pools
    exact: bool = False  # figures are bytes, not log lines with two decimals
    sure: bool = True  # `tokens` are of a start with these settings, not only said to be
    seconds: Mapping[str, float] = field(default_factory=dict)  # by phase of the start
    source: str = ""
    cached: float | None = None  # share of the model that was in the page cache as `seconds` began
    kernels: bool | None = None  # whether compiled kernels were there as `seconds` began
    pinned: int | None = None  # bytes of the host pools of all ranks in that start
    # Every recorded start of this kind whose times are known, the newest first; may be empty where
    # `seconds` is not.
    earlier: tuple[Earlier, ...] = ()
    prefill: Figure | None = None  # tokens a second that prompts are computed with, one replica
    notes: tuple[str, ...] = ()  # what was not carried over, and why


# A note: nobody knows which settings a journal without it is of.
CUT = (
    "the journal's beginning (server_args=) is missing, so that its settings could not be compared "
    "with these; its ranks and weights are as they should be"
)


# -- what comes out -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DevicePool:
    """One pool in GPU memory. `name`: kv, swa, indexer, mamba, draft, …

    `rows` is what the engine logs as #tokens (slots for recurrent state); `bytes_per_row` is what
    is really allocated for one, which on some versions is more than what was charged for it.
    """

    name: str
    rows: Figure
    bytes_per_row: int
    bytes: Figure


@dataclass(frozen=True, slots=True)
class Device:
    """GPU memory of one rank of one pipeline stage.

    `charged`: bytes per token that the engine divides by; `cell`: bytes that a token of the main
    pool(s) really takes; they differ where the draft is counted in, or is not.
    """

    tokens: Figure | None  # max_total_num_tokens
    charged: int
    cell: int
    page: int
    fraction: float | None
    reserve: Figure | None  # (1 − fraction) × free before the weights, bytes
    rest: Figure | None  # what is left for pools, bytes
    pools: tuple[DevicePool, ...]
    max_running: int | None  # requests at once
    steps: tuple[str, ...] = ()  # the derivation, one thought a line; only if asked for
    stage: int = 0  # the pipeline stage that this is


@dataclass(frozen=True, slots=True)
class HostPool:
    """One pool in host memory, per rank. `tokens` None: not known before the first start.

    `bytes` is what the engine logs; `pinned` what it really takes (a power of two up to
    0.5.4.post1). `least` and `most` bound `pinned`. `of`: the device pool that `ratio` multiplies;
    `like`: the host pool whose tokens this one takes. `auto`: the engine chooses the ratio.
    """

    name: str
    bytes_per_token: int
    page: int
    ratio: float | None
    size: float | None  # GB
    tokens: int | None
    bytes: int | None
    pinned: int | None
    least: int | None = None
    most: int | None = None
    of: str = "kv"
    like: str = ""
    auto: bool = False
    refused: str = ""  # why the engine refuses this pool by itself; "" if it does not


@dataclass(frozen=True, slots=True)
class Case:
    """Everything that a forecast depends on. `flags` are typed values by canonical long name."""

    version: str
    flags: Mapping[str, Any]
    env: Mapping[str, str]
    ranks: tuple[str, ...]
    shape: Geometry
    draft: Geometry | None
    hardware: Hardware
    memory: HostMemory | None
    measured: Measured
    weights: Figure | None  # of the target, by tensor shapes and sharding
    draft_weights: Figure | None
    min_available: int
    beginning: Beginning = Beginning()
    gpu_headroom: int | None = None  # bytes of a GPU that must be left; None: slack.demanded
