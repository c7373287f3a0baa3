"""What a rule sees of a service: flags as they stand after the rules before it, and facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opsctl.engine.advisories.facts import Facts
from opsctl.engine.advisories.versions import key
from opsctl.engine.catalogue import Catalogue, catalogue
from opsctl.engine.rules import shared

if TYPE_CHECKING:
    from opsctl.engine.rules.rule import Rule

_YES = ("1", "true", "yes", "y", "on")


class View(Mapping[str, Any]):
    """`view["page-size"]`: as an earlier rule made it, else as written, else the parser's default;
    None if this release has no such flag. Raises SpecError: no catalogue of this version."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.catalogue: Catalogue = catalogue(facts.version)
        self.changed: dict[str, Any] = {}
        self.by: dict[str, Rule] = {}  # which rule changed it last

    def __getitem__(self, name: str) -> Any:
        if name in self.changed:
            return self.changed[name]
        return self.catalogue.get(self.facts.flags, name)

    def __iter__(self) -> Any:
        return iter(self.catalogue.flags)

    def __len__(self) -> int:
        return len(self.catalogue.flags)

    def written(self, *names: str) -> bool:
        """Whether the owner wrote one of them."""
        return any(name in self.facts.flags for name in names)

    def number(self, name: str, unset: int = 1) -> int:
        """A size; `unset` for None."""
        value = self[name]
        return unset if value is None else int(value)

    @property
    def key(self) -> shared.Key:
        return key(self.facts.version)

    def since(self, version: str) -> bool:
        return self.key >= key(version)

    def env(self, name: str) -> bool:
        """Whether a variable is set to yes, as the engine reads it."""
        return self.facts.env.get(name, "").strip().lower() in _YES

    # Facts that may be missing

    @property
    def sm(self) -> int | None:
        """First number of the card's compute capability; None: not known, or no NVIDIA card."""
        found = self.facts.hardware.get("capability")
        return int(found) if found is not None and self.vendor != "amd" else None

    @property
    def vendor(self) -> str | None:
        found = self.facts.hardware.get("vendor")
        return None if found is None else str(found)

    @property
    def architecture(self) -> str | None:
        return self.facts.model.get("architecture")

    @property
    def latent(self) -> bool | None:
        """Whether the model keeps a compressed latent (MLA) in place of keys and values."""
        kind = self.facts.model.get("kind")
        return None if kind is None else "mla" in kind or "dsa" in kind

    # What several flags say together

    @property
    def groups(self) -> int:
        """Groups of DP attention; 1 without it."""
        return shared.groups(self)

    @property
    def algorithm(self) -> str:
        """Of speculation, in capitals; "" for none."""
        return str(self["speculative-algorithm"] or "").upper()

    @property
    def mode(self) -> str:
        """null, prefill or decode."""
        return str(self["disaggregation-mode"] or "null")

    @property
    def tier(self) -> bool:
        return bool(self["enable-hierarchical-cache"])

    @property
    def waterfill(self) -> bool:
        """enable-waterfill, or its name up to 0.5.15.post1."""
        return bool(self["enable-waterfill"] or self["enable-deepep-waterfill"])

    def runs_on(self, *backends: str, phases: str = "base decode") -> bool:
        """Whether one of the flags names one of them. "base" is attention-backend itself."""
        flags = ("attention-backend" if p == "base" else f"{p}-attention-backend"
                 for p in phases.split())  # fmt: skip
        return any(self[name] in backends for name in flags)
