"""A scenario file: what machine this is, and what an engine logs on it for a given command line.

The figures are text, printed as they stand: they were read from real logs, or are marked derived or
assumed in the file. A command line for which the file has no figures is refused, never guessed at.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PACKAGED = Path(__file__).resolve().parent / "scenarios"
INSTALLED = Path("/etc/opsctl-rehearsal/scenario.toml")
CLOCK = Path("/etc/opsctl-rehearsal/clock")

FAULTS = (
    "silent-rank",
    "odd-rank",
    "host-memory-refused",
    "crash-at-graphs",
    "hang-in-loading",
    "health-200-but-generation-hangs",
    "empty-reasoning",
    "too-little-ram-after-start",
)


class ScenarioError(Exception):
    """The scenario file is wrong, or has no figures for what was asked."""


@dataclass(frozen=True)
class Fault:
    """What goes wrong. `when`: flags that the command line must have for it to happen."""

    kind: str
    when: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def applies(self, flags: Mapping[str, Any]) -> bool:
        return matches(self.when, flags)


@dataclass(frozen=True)
class Scenario:
    """`clock`: wall seconds per second of the scenario. The tables are described in the files."""

    name: str
    engine: str
    clock: float
    machine: Mapping[str, Any]
    timing: Mapping[str, Any]
    model: Mapping[str, Any]
    serving: Mapping[str, Any]
    gpu: tuple[Mapping[str, Any], ...]
    host_pool: tuple[Mapping[str, Any], ...]
    draft: tuple[Mapping[str, Any], ...]
    fault: Fault | None = None

    def gpu_figures(self, flags: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._only("gpu", self.gpu, flags)

    def pool_figures(self, flags: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._only("host_pool", self.host_pool, flags)

    def draft_figures(self, flags: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._only("draft", self.draft, flags)

    def active_fault(self, flags: Mapping[str, Any]) -> Fault | None:
        return self.fault if self.fault and self.fault.applies(flags) else None

    def _only(
        self, table: str, entries: tuple[Mapping[str, Any], ...], flags: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """The one entry whose `when` fits. Raises ScenarioError: what was asked, what is known."""
        found = [e for e in entries if matches(e.get("when", {}), flags)]
        if len(found) == 1:
            return found[0]
        if found:
            raise ScenarioError(f"scenario {self.name}: several entries of [[{table}]] fit at once")
        raise ScenarioError(
            f"scenario {self.name} {_refusal(entries, flags)}; it has figures of real starts only"
        )


def _refusal(entries: Sequence[Mapping[str, Any]], flags: Mapping[str, Any]) -> str:
    """What cannot be played, and what can be set instead."""
    conditions = [entry.get("when", {}) for entry in entries]
    known: dict[str, list[Any]] = {}
    for name, value in (pair for when in conditions for pair in when.items()):
        known.setdefault(name, [])
        known[name] += [value] if value not in known[name] else []
    wrong = [name for name in known if flags.get(name, False) not in known[name]]
    if wrong:
        return ", ".join(
            f"plays {name} {' or '.join(map(_word, known[name]))}, not "
            f"{_word(flags.get(name, False))}"
            for name in wrong
        )
    asked = ", ".join(f"{name} {_word(flags.get(name, False))}" for name in known)
    told = "; ".join(", ".join(f"{n} {_word(v)}" for n, v in when.items()) for when in conditions)
    return f"does not play {asked} together, but: {told}"


def _word(value: Any) -> str:
    return {True: "on", False: "unset"}[value] if isinstance(value, bool) else str(value)


def matches(when: Mapping[str, Any], flags: Mapping[str, Any]) -> bool:
    """True if every flag named in `when` has that value; one that was not given is false."""
    return all(flags.get(name, False) == value for name, value in when.items())


def parse(tree: Mapping[str, Any], where: str) -> Scenario:
    """A scenario from a TOML tree whose `base` was already merged in."""
    try:
        fault = tree.get("fault")
        scenario = Scenario(
            name=tree["name"],
            engine=tree["engine"],
            clock=float(tree["clock"]),
            machine=tree["machine"],
            timing=tree["timing"],
            model=tree["model"],
            serving=tree["serving"],
            gpu=tuple(tree["gpu"]),
            host_pool=tuple(tree["host_pool"]),
            draft=tuple(tree.get("draft", ())),
            fault=None
            if fault is None
            else Fault(
                fault["kind"],
                fault.get("when", {}),
                {k: v for k, v in fault.items() if k not in ("kind", "when")},
            ),
        )
    except KeyError as error:
        raise ScenarioError(f"{where}: the key {error} is missing") from None
    if scenario.fault and scenario.fault.kind not in FAULTS:
        raise ScenarioError(
            f"{where}: unknown fault {scenario.fault.kind!r}; allowed: {', '.join(FAULTS)}"
        )
    if not 0 < scenario.clock <= 1:
        raise ScenarioError(f"{where}: clock must be above 0 and at most 1, not {scenario.clock}")
    return scenario


def read(path: Path) -> Scenario:
    """Read a file; with `base = "NAME"`, what it does not say is as scenarios/NAME.toml says."""
    return parse(_tree(path), str(path))


def _tree(path: Path) -> dict[str, Any]:
    try:
        tree = tomllib.loads(path.read_text())
    except OSError as error:
        raise ScenarioError(f"cannot read {error.filename}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{path}: {error}") from None
    base = tree.pop("base", None)
    return tree if base is None else {**_tree(PACKAGED / f"{base}.toml"), **tree}


def installed() -> Scenario:
    """The scenario of this host; its clock may be overruled by one number in a file beside it."""
    scenario = read(INSTALLED)
    if not CLOCK.exists():
        return scenario
    try:
        clock = float(CLOCK.read_text())
    except ValueError:
        raise ScenarioError(f"{CLOCK} does not hold a number") from None
    return Scenario(**{**scenario.__dict__, "clock": clock})


def packaged() -> dict[str, Path]:
    return {p.stem: p for p in sorted(PACKAGED.glob("*.toml"))}
