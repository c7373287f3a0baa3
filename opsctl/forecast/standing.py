"""Whether the expectation that stands on a host may stay there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.onhost.learned import RECORDED

# A change of `available_after` below this, beside its own band, is the host's noise, not news.
NOISE = 4 << 30
# Of a host pool: what follows from the tokens, which are compared by themselves.
_FIGURES = ("tokens", "bytes", "pinned", "least", "most")


def still_holds(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> bool:
    """Whether a staged expectation says nothing wrong in the light of a newer one.

    A second deployment of the same description must change nothing: a start that was recorded
    meanwhile makes the figures sharper, and what is free on the host moves by the minute. As long
    as the new tokens lie in the old band and the rules are the same, the old one stays; and where
    nothing newer can be told, nothing says that it is wrong.
    """
    if not old or not new:
        return not new
    then, now = old.get("kv") or {}, new.get("kv") or {}
    if then.get("bytes_per_token") != now.get("bytes_per_token"):
        return False
    if _rules(old) != _rules(new):
        return False
    if not _in_time(old.get("start"), new.get("start")):
        return False
    least, most, tokens = then.get("min"), then.get("max"), now.get("tokens")
    if (least is None or most is None) and now.get("source") == RECORDED:
        return True  # the host fills it in by itself, see onhost/learned.py
    if tokens is None or least is None or most is None:
        same_band = (least, most) == (now.get("min"), now.get("max"))
        if not same_band:
            return False
    elif not least <= tokens <= most:
        return False
    before, after = old.get("available_after"), new.get("available_after")
    if before is None or after is None:
        return bool(before == after)
    band = before - (old.get("available_least") or before)
    return bool(abs(before - after) < NOISE + band)


def _in_time(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> bool:
    """Whether the standing cap still gives a start the time that it may need. One that gives more
    does no harm: what is in the page cache moves by the hour. A start of which nothing can be told
    any more (`new` is None) is no news either."""
    if not new:
        return True
    then, now = (old or {}).get("cap"), (new or {}).get("cap")
    if then is None or now is None:
        return bool(then == now)
    return bool(now <= then)


def _rules(expect: Mapping[str, Any]) -> Any:
    found = expect.get("host_pools")
    if found is None:
        return None
    return [
        {key: value for key, value in pool.items() if key not in _figures(pool)} for pool in found
    ]


def _figures(pool: Mapping[str, Any]) -> tuple[str, ...]:
    """A share of hicache-size follows from the device's pools too."""
    return (*_FIGURES, "size") if pool.get("auto") else _FIGURES
