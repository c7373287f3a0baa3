"""What `opsctl forecast` answers: the question with its wishes → everything that is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from pydantic import TypeAdapter, ValidationError

from opsctl.engine.advisories import Advisory
from opsctl.errors import DoesNotFit, OpsctlError, Refused
from opsctl.forecast import advised
from opsctl.forecast.compare import Variant, compare
from opsctl.forecast.explain import explain
from opsctl.forecast.fit import NOT, UNKNOWN
from opsctl.forecast.outlook import Outlook, outlook
from opsctl.forecast.presumed import presumed
from opsctl.forecast.question import Question
from opsctl.forecast.remedies import remedies
from opsctl.forecast.slack import demanded
from opsctl.forecast.solve import (
    FRACTION,
    KNOBS,
    RATIO,
    SIZE,
    Solved,
    knob,
    probe,
    solve,
    turned,
)
from opsctl.forecast.standpoints import values
from opsctl.forecast.values import Case, NoForecast, NoRoom, NoStart, Room
from opsctl.onhost.expect import gib
from opsctl.spec.kinds import FEW, Size


@dataclass(frozen=True, slots=True)
class Wish:
    """`fit`: a key, or "". `headroom`, `gpu_headroom`: see Question. `variants` None: no
    comparison, else more of them than the usual ones."""

    fit: str = ""
    headroom: int | None = None
    gpu_headroom: int | None = None
    variants: tuple[str, ...] | None = None
    explain: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """`outlook` None: `refused` says why there are no figures; `unfit`: because the engine would
    not start; `cramped`: because the weights leave no room, and `room` tells how much lacks.
    `advisories`, `notes`: what is said all the same. `remedies`: options that help, looked for when
    asked, the gentlest first."""

    host: str
    service: str
    version: str
    ranks: tuple[str, ...]
    outlook: Outlook | None
    refused: str = ""
    solved: Solved | None = None
    unsolved: str = ""
    compared: tuple[Variant, ...] = ()
    steps: tuple[str, ...] = ()
    unfit: bool = False
    cramped: bool = False
    room: Room | None = None
    advisories: tuple[Advisory, ...] = ()
    notes: tuple[str, ...] = ()
    remedies: Callable[[], Sequence[str]] = tuple

    @property
    def verdict(self) -> str:
        if self.outlook is not None:
            return self.outlook.verdict
        return NOT if self.unfit else UNKNOWN

    @property
    def reasons(self) -> tuple[str, ...]:
        return self.outlook.result.fit.reasons if self.outlook is not None else (self.refused,)


def wish(
    fit: str | None,
    headroom: str | None,
    gpu_headroom: str | None,
    variants: Sequence[str] | None,
    explain: bool,
) -> Wish:
    """As it was typed. Raises Refused for a key that cannot be fitted, for what is no size or no
    KEY=VALUE."""
    key = knob(fit).flag if fit is not None else ""
    least = None if headroom is None else _size("--headroom", headroom)
    least_gpu = None if gpu_headroom is None else _size("--gpu-headroom", gpu_headroom)
    for part in (part for text in variants or () for part in text.split() or [text]):
        if "=" not in part:
            raise Refused(
                f"--compare: {part!r} is not KEY=VALUE",
                hint=f'--compare "{FRACTION}=0.9 kv-cache-dtype=fp8_e4m3" is one variant',
            )
    return Wish(
        key,
        least,
        least_gpu,
        None if variants is None else tuple(variants),
        explain,
    )


def _size(option: str, text: str) -> int:
    try:
        return int(TypeAdapter(Size).validate_python(text))
    except ValidationError as error:
        why = str(error.errors()[0].get("ctx", {}).get("error", ""))
        words = (
            why if FEW in why else "is no size; a size is text such as 32GiB (2^30) or 40GB (10^9)"
        )
        raise Refused(f"{option} {text}: {words}") from None


def tell(question: Question, wish: Wish, host: str = "") -> Told:
    """Raises SpecError for what is wrong in the description."""
    question = replace(question, headroom=wish.headroom, gpu_headroom=wish.gpu_headroom)

    def ask(sets: Sequence[str]) -> Outlook:
        return outlook(question, sets)

    def fit(sets: Sequence[str], key: str) -> Solved:
        found = solved_of(question, key, sets)
        if found.value is not None:
            ask((*sets, *found.sets))  # the engine may refuse it for another reason
        return found

    manifest = question.asked().manifest
    who = (host, question.name, str(manifest["engine"]["version"]), tuple(manifest["ranks"]))
    said, refused, unfit, cramped, room = None, "", False, False, None
    try:
        said = outlook(question, steps=wish.explain)
    except NoStart as reason:  # of other settings there may be something to say
        refused, unfit = str(reason), True
        if cramped := isinstance(reason, NoRoom):
            room = reason.room
    except NoForecast as reason:
        beside = _beside(question, manifest)
        return Told(*who, None, refused=str(reason), advisories=beside[0], notes=beside[1])
    advisories, notes = _beside(question, manifest) if said is None else ((), ())
    solved, unsolved = None, ""
    if wish.fit:
        try:
            solved = fit((), wish.fit)
        except NoForecast as reason:
            solved, unsolved = None, str(reason)
    compared: tuple[Variant, ...] = ()
    if wish.variants is not None:
        compared = compare(manifest["flags"], ask, fit, wish.variants)
    steps = explain(said) if wish.explain and said is not None else ()
    return Told(
        *who,
        outlook=said,
        refused=refused,
        solved=solved,
        unsolved=unsolved,
        compared=compared,
        steps=steps,
        unfit=unfit,
        cramped=cramped,
        room=room,
        advisories=advisories,
        notes=notes,
        remedies=lambda: tuple(islice(_helping(question, manifest["flags"], ask, wish.fit), _FEW)),
    )


_FEW = 2  # remedies that are told


def _helping(
    question: Question, flags: Mapping[str, Any], ask: Callable[[Sequence[str]], Outlook], key: str
) -> Iterator[str]:
    return remedies(flags, ask, lambda other: solved_of(question, other), key)


def solved_of(question: Question, key: str, sets: Sequence[str] = ()) -> Solved:
    """The largest value of a key, under `sets`."""
    case = question.case(sets)
    beside = (*sets, *turned(key, case.flags))
    known = values(question, key, sets)
    other = question.case((*beside, probe(key, known)))
    exact = () if key in (RATIO, SIZE) else tuple(_cases(question, key, beside, known))
    found = solve(case, key, case.min_available, case.gpu_headroom, other, exact)
    if found.value is None or not (options := _less(question, case, found)):
        return found
    note = f"a forecast without {options} demands more: --set takes the same"
    return replace(found, notes=(*found.notes, note))


def _less(question: Question, case: Case, found: Solved) -> str:
    """Headrooms that were typed and are less than is demanded without."""
    usual = int(question.asked().manifest["memory"]["min_available"])
    plain = replace(case, gpu_headroom=None, flags={**case.flags, found.key: found.value})
    asked = (
        ("--headroom", question.headroom, usual),
        ("--gpu-headroom", question.gpu_headroom, demanded(plain)),
    )
    return " and ".join(
        f"{option} {gib(size)}" for option, size, more in asked if size is not None and size < more
    )


def _cases(
    question: Question, key: str, sets: Sequence[str], known: Iterable[Any]
) -> Iterator[Case]:
    """With those values of a key that something may have been measured at, as `--set` asks them."""
    for value in known:
        if KNOBS[key].step(value) is not None:
            with suppress(NoForecast, OpsctlError):  # then nothing more is known of it
                yield question.case((*sets, f"{key}={value:.10g}"))


def _beside(
    question: Question, manifest: Mapping[str, Any]
) -> tuple[tuple[Advisory, ...], tuple[str, ...]]:
    """What is known to go wrong, and what was assumed, where there are no figures."""
    try:
        case = question.case()
        notes = (*question.notes, *case.measured.notes)
    except NoForecast:
        case, notes = None, question.notes
    facts, _ = presumed(manifest, question.facts)
    return tuple(advised.advice(manifest, facts, case)), notes


def end(told: Sequence[Told], *, shown: bool = False) -> OpsctlError | None:
    """How the command ends: None if all fits, tightly or not, or is not known. `shown`: the
    reasons were told already, to the same reader."""
    if unfit := [one for one in told if one.verdict == NOT]:
        lines = [_line(one, "does not fit", "; ".join(one.reasons), shown) for one in unfit]
        return DoesNotFit("\n".join(lines), hint=_advice(unfit))
    lost = [one for one in told if one.refused or one.unsolved]
    if lost:
        lines = [_line(one, "not forecast", one.refused or one.unsolved, shown) for one in lost]
        return OpsctlError("\n".join(lines))
    return None


def _line(one: Told, what: str, why: str, shown: bool) -> str:
    return f"{_who(one)}: {what}" if shown else f"{_who(one)}: {what}: {why}"


def _advice(unfit: Sequence[Told]) -> str:
    """What helps the first of them."""
    one = unfit[0]
    if one.solved is not None and one.solved.value is not None:
        return ""  # told already
    if found := one.remedies():
        return "; or ".join(found)
    if one.room is not None:
        return "each rank must hold less: more ranks, or a checkpoint of fewer bits"
    return ""


def _who(one: Told) -> str:
    return f"{one.host} {one.service}".strip()
