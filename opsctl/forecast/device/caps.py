"""How many requests run at once, and the table that maps them to tokens.

Sources: managers/tp_worker.py (to 0.5.6), model_executor/model_runner.py (0.5.7 to 0.5.9),
`_resolve_max_num_reqs` (0.5.10 on); mem_cache/memory_pool.py `ReqToTokenPool`.
"""

from __future__ import annotations

from opsctl.forecast.device.settings import Settings

_LEAST, _MOST = 2048, 4096


def requests(tokens: int, profiled: int, context: int, set_: Settings, state: int | None) -> int:
    """Requests at once of one group. `profiled`: tokens before caps and pages; `state`: requests
    that recurrent state allows, None without it."""
    if set_.key < (0, 5, 10):
        return _early(tokens, profiled, context, set_, state)
    fits = max(min(int(tokens / context * 512), _MOST), _LEAST)
    if set_.running is None:
        found = min(fits, tokens // 2)
    else:
        each = set_.running // set_.groups
        if set_.key >= (0, 5, 23):
            each = max(1, each)
        found = min(each, fits if set_.key < (0, 5, 14) else tokens // 2)
    return found if state is None else min(found, state)


def _early(tokens: int, profiled: int, context: int, set_: Settings, state: int | None) -> int:
    slots = set_.running
    if slots is None:
        slots = min(max(int(profiled / context * 512), _LEAST), _MOST)
    if state is not None:
        slots = min(slots, state)
    return min(tokens // 2 if set_.running is None else set_.running // set_.groups, slots)


def table_bytes(rows: int, context: int, draft_tokens: int, set_: Settings) -> int:
    """The table from requests to tokens: in no budget, it takes from the slack."""
    extra = 1 if set_.key >= (0, 5, 17) else 0
    return (rows + extra) * (context + 4 + draft_tokens) * 4
