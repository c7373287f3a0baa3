"""In which order services are touched: the canary alone, then one at a time, as the inventory says;
hosts with a service that does not run come before those that serve (plan.py).

One at a time, since a start costs many minutes of a replica and a fault of the release shows on
the first: what failed there must not be tried on the next.
"""

from __future__ import annotations

from collections.abc import Sequence

from opsctl.errors import NothingSelected


def ordered(hosts: Sequence[str], canary: str | None = None) -> list[str]:
    """Hosts in the order in which they are touched. Raises NothingSelected for a canary that is
    not among them."""
    unique = list(dict.fromkeys(hosts))
    if canary is None:
        return unique
    if canary not in unique:
        raise NothingSelected(
            f"the canary {canary} is not among the selected hosts: {', '.join(unique) or 'none'}"
        )
    return [canary, *(host for host in unique if host != canary)]
