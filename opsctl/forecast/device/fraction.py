"""mem-fraction-static: as set, else as the engine chooses."""

from __future__ import annotations

from opsctl.forecast.device.backend import attention
from opsctl.forecast.device.settings import Settings, settings
from opsctl.forecast.values import Case, NoForecast


def default_fraction(case: Case) -> float:
    """What the engine takes if mem-fraction-static is not set. Raises NoForecast."""
    set_ = settings(case)
    return _default(case, set_, attention(case, set_))


def effective_fraction(case: Case, set_: Settings, backends: tuple[str, str] | None) -> float:
    """What the sizes are reckoned with. Raises NoForecast."""
    given = set_.flags.get("mem-fraction-static")
    if given is not None:
        return float(given)
    return _default(case, set_, backends)


def _default(case: Case, set_: Settings, backends: tuple[str, str] | None) -> float:
    raise NoForecast("mem-fraction-static is not set: the engine chooses it by itself")
