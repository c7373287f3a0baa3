"""One service on one host, and all that is known of both: what a forecast is asked of.

The same for a host that answered `facts` and for figures that an operator typed: those become an
answer of `facts` too, so that there is one way from facts to figures.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from opsctl.errors import Refused, SpecError
from opsctl.forecast import carried
from opsctl.forecast.calibration import Typed
from opsctl.forecast.case import case
from opsctl.forecast.owned import TOKENS, after_the_draft, alike, held, of_description, written
from opsctl.forecast.presumed import CARD, TYPED, presumed, usual, weighed
from opsctl.forecast.values import Case
from opsctl.onhost.expect import GiB, count
from opsctl.release.manifest import outline
from opsctl.spec.change import changed
from opsctl.spec.load import check
from opsctl.spec.models import Service

_AMD = re.compile(r"(?i)\b(AMD|Radeon|Instinct)\b|\bMI\d{3}")


@dataclass(frozen=True)
class Given:
    """What an operator says of a host that nobody asks. GiB as typed; None: not said."""

    gpus: int | None = None
    gpu_name: str = ""
    gpu_total: float | None = None
    gpu_free_before: float | None = None
    gpu_free_after: float | None = None
    gpu_tokens: int | None = None
    ram_total: float | None = None
    ram_available: float | None = None

    def calibration(self) -> dict[str, int]:
        """As memory.calibration of a description holds it; only what was said."""
        said = {
            "gpu_free_before": _bytes(self.gpu_free_before),
            "gpu_free_after": _bytes(self.gpu_free_after),
            "kv_tokens": self.gpu_tokens,
        }
        return {name: value for name, value in said.items() if value is not None}

    def notes(self) -> tuple[str, ...]:
        if self.ram_total is not None and self.ram_available is None:
            return (
                "--ram-available was not given: all of --ram-total was taken to be available with "
                "this service stopped",
            )
        return ()


@dataclass(frozen=True)
class Asked:
    """A description that was checked: its manifest, the figures that may calibrate it, and what
    must be told of them."""

    manifest: Mapping[str, Any]
    calibration: Mapping[str, int]
    notes: tuple[str, ...] = ()
    typed: frozenset[str] = frozenset()  # which of the figures were typed


@dataclass(frozen=True)
class Question:
    """`entry`: the service as it is written. `facts`: the host's answer, or what stands for it.
    `calibration`: figures that go over memory.calibration of the description; `sets`: KEY=VALUE
    over the description, and what the typed figures are about. `journal`: of an earlier start.
    `notes`: what was assumed. `base`: the entry before one host's own changes, if it has some.
    `headroom`, `gpu_headroom`: bytes of RAM and of a GPU that must be left; None: as described, and
    as every forecast is judged."""

    name: str
    entry: Mapping[str, Any]
    facts: Mapping[str, Any]
    calibration: Mapping[str, int] = field(default_factory=dict)
    sets: tuple[str, ...] = ()
    journal: str = ""
    notes: tuple[str, ...] = ()
    base: Mapping[str, Any] | None = None
    headroom: int | None = None
    gpu_headroom: int | None = None

    def asked(self, more: Sequence[str] = ()) -> Asked:
        """Of the description with `sets` and `more` over it. Raises SpecError with all that is
        wrong. A number of tokens counts only for the GPU settings that it was measured with, free
        memory for what is loaded as it was then (forecast/owned.py)."""
        service = described(self.name, self.entry, (*self.sets, *more))
        manifest = outline(self.name, service)
        typed = dict(self.calibration)
        if not (self.sets or more or self.base is not None):
            figures = ordered(written(service), typed)
            return Asked(manifest, figures, after_the_draft(figures, manifest), frozenset(typed))
        known, notes = self._known(service, manifest)
        typed, more_notes = self._held(typed, manifest)
        figures = ordered(known, typed)
        told = dict.fromkeys((*notes, *more_notes, *after_the_draft(figures, manifest)))
        return Asked(manifest, figures, tuple(told), frozenset(typed))

    def _known(
        self, service: Service, manifest: Mapping[str, Any]
    ) -> tuple[dict[str, int], tuple[str, ...]]:
        """What of the description's own figures holds in spite of what was set. Where it is none
        without that (templates), nobody knows what its number of tokens was measured with."""
        try:
            own = described(self.name, self.entry, ())
            first = own if self.base is None else described(self.name, self.base, ())
        except SpecError:
            first = described(self.name, self.entry, self.sets)
            known, notes = of_description(self.name, service, first, manifest)
            known.pop("kv_tokens", None)
            return known, notes
        if self.base is None or service == own:
            return of_description(self.name, service, first, manifest)
        return self._of_host(service, own, first, manifest)

    def _of_host(
        self, service: Service, own: Service, first: Service, manifest: Mapping[str, Any]
    ) -> tuple[dict[str, int], tuple[str, ...]]:
        """The same where one host changes what is shared (`first`) to its `own`: what is written
        for that host is of its own description, and of nothing that was set over it."""
        kept, told = of_description(self.name, own, first, outline(self.name, own))
        known, notes = of_description(self.name, service, own, manifest)
        old, new = written(own), written(service)
        lost = {name for name in old if name not in kept and new.get(name) == old[name]}
        return {n: size for n, size in known.items() if n not in lost}, (*told, *notes)

    def _held(
        self, figures: Mapping[str, int], manifest: Mapping[str, Any]
    ) -> tuple[dict[str, int], tuple[str, ...]]:
        """What of the figures that were typed, which are of the description as it is written, holds
        in spite of what was set: the same whether that was set at first or is tried now. Where the
        description alone is none, what was set at first stands for it."""
        if not figures:
            return {}, ()
        try:
            first = described(self.name, self.entry, ())
        except SpecError:
            first = described(self.name, self.entry, self.sets)
        base, found = outline(self.name, first), dict(figures)
        tokens = None if alike(base, manifest) else found.pop(TOKENS, None)
        kept, notes = held(found, base, manifest)
        if tokens is None:
            return kept, notes
        note = f"--gpu-tokens {count(tokens)} is of the settings as described: it was not used"
        return kept, (note, *notes)

    def case(self, sets: Sequence[str] = ()) -> Case:
        """Raises NoForecast for a model that is not forecast."""
        asked = self.asked(sets)
        facts, notes = presumed(asked.manifest, self.facts)
        size = self._size(sets)
        typed = Typed(asked.typed, size, *self._changed(sets, asked.manifest))
        whole = case(asked.manifest, facts, asked.calibration, self.journal, typed)
        whole, more = usual(whole) if self.facts.get(TYPED) else (whole, ())
        whole, sized = weighed(whole, size)
        whole, seen = _sized(whole), whole.measured
        told = (*seen.notes, *asked.notes, *notes, *more, *sized)
        least = whole.min_available if self.headroom is None else self.headroom
        return replace(
            whole,
            measured=replace(seen, notes=told),
            min_available=least,
            gpu_headroom=self.gpu_headroom,
        )

    def _changed(
        self, sets: Sequence[str], manifest: Mapping[str, Any]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Settings that were set over the description, and may change the weights; and those that
        may change the number of tokens."""
        if not self.journal or not (self.sets or sets):
            return (), ()
        now = manifest["flags"]
        try:
            old = described(self.name, self.entry, ()).flags
        except SpecError:
            old = described(self.name, self.entry, self.sets).flags
            none = ("the description, which is none without --set,",)
            return none, tuple(carried.token_changes(old, now))
        return (
            tuple(carried.changes(old, now, {}, {})),
            tuple(carried.token_changes(old, now)),
        )

    def _size(self, sets: Sequence[str]) -> int | None:
        """model.size of the description, bytes."""
        size = described(self.name, self.entry, (*self.sets, *sets)).model.size
        return None if size is None else int(size)


def _sized(whole: Case) -> Case:
    """Where the files were not seen, what all ranks load stands for their size: the files have a
    little less, since some weights are loaded by every rank."""
    seen, rank = whole.measured, whole.weights
    if whole.beginning.model_bytes:
        return whole
    if seen.free_before is not None and seen.free_after is not None:
        size = (seen.free_before - seen.free_after) * len(whole.ranks)
    elif rank is not None:
        size = rank.value * len(whole.ranks)
    else:
        return whole
    return replace(whole, beginning=replace(whole.beginning, model_bytes=size))


def ordered(known: Mapping[str, int], typed: Mapping[str, int]) -> dict[str, int]:
    """What was typed over what is known. Raises Refused where one contradicts the other."""
    figures = {**known, **typed}
    before, after = figures.get("gpu_free_before"), figures.get("gpu_free_after")
    if before is None or after is None or after <= before:
        return figures
    more, less = (
        f"--{name.replace('_', '-')}" if name in typed else f"memory.calibration.{name}"
        for name in ("gpu_free_after", "gpu_free_before")
    )
    raise Refused(
        f"{more} ({after / GiB:g} GiB) is more than {less} ({before / GiB:g} GiB)",
        hint="give both of one start" if typed else "",
    )


def described(name: str, entry: Mapping[str, Any], sets: Sequence[str]) -> Service:
    services, found = check({name: changed(entry, sets)}, {})
    if found:
        raise SpecError(found)
    return services[name]


# GiB: well above what there is (288 GB of a B300 or MI355X; 6 TiB of a host).
_LARGEST = {
    "gpu_total": 400,
    "gpu_free_before": 400,
    "gpu_free_after": 400,
    "ram_total": 1 << 15,
    "ram_available": 1 << 15,
}
_OF = {"gpu": "GPU", "ram": "host"}


def checked(given: Given) -> Given:
    """The same. Raises Refused for figures that cannot be: the option, its value, why."""
    for name, value in vars(given).items():
        if isinstance(value, int | float) and not 0 < value < math.inf:
            raise Refused(f"{_option(name)} {value:g} is not a number above zero")
    for name, most in _LARGEST.items():
        value = getattr(given, name)
        if value is not None and value > most:
            raise Refused(
                f"{_option(name)} {value:g} is in GiB, and more than any {_OF[name[:3]]} has",
                hint=f"{_option(name)} {value / 1024:.2f}, if {value:g} are MiB",
            )
    _within(given, "gpu_free_before", "gpu_total")
    _within(given, "gpu_free_after", "gpu_free_before")
    _within(given, "gpu_free_after", "gpu_total")
    _within(given, "ram_available", "ram_total")
    return given


def _within(given: Given, part: str, whole: str) -> None:
    less, more = getattr(given, part), getattr(given, whole)
    if less is not None and more is not None and less > more:
        raise Refused(f"{_option(part)} {less:g} is more than {_option(whole)} {more:g}")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _bytes(gib: float | None) -> int | None:
    return None if gib is None else round(gib * GiB)


def offline(
    given: Given, model: Mapping[str, Any], draft: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What was typed, in the form of the host's answer to `facts`. `model` and `draft`: folders
    as `onhost` reads them."""
    total, available = _bytes(given.ram_total), _bytes(given.ram_available)
    card = {
        "name": given.gpu_name,
        "vendor": "amd" if _AMD.search(given.gpu_name) else "nvidia",
        "memory_total": _bytes(given.gpu_total),
        "memory_used": 0,
    }
    memory = None
    if total is not None or available is not None:
        memory = {
            "total": total or available,
            "available": available or total,
            "swap_total": 0,
            "swap_used": 0,
            "hugetlb": 0,
        }
    return {
        "model": model,
        "draft": draft,
        "memory": memory,
        "gpus": [{"index": n, **card, "state": "ok"} for n in range(given.gpus or 0)],
        TYPED: True,
        **({CARD: card} if given.gpus is None and (given.gpu_name or given.gpu_total) else {}),
        "starts": [],
        "running": None,
        "service_memory": {"bytes": 0, "basis": "not running"},
    }
