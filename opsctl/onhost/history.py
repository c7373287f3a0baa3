"""The last lines of a service's audit, which outlives its runs. Changes nothing."""

from __future__ import annotations

from typing import Any, Dict

from opsctl.onhost import files
from opsctl.onhost.store import Store


def history(store: Store, lines: int) -> Dict[str, Any]:
    """{"service", "entries"}, the newest last; none of a service that was never here."""
    text = files.read(store.var / "history.jsonl") or b""
    return {"service": store.service, "entries": files.json_lines(text)[-lines:]}
