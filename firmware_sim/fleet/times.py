"""Format times and decimals, and compute percentiles, for `truth.json`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

DAY_MS: Final = 86_400_000

_PERCENTILES: Final = (50, 95, 99)


def iso(milliseconds: int) -> str:
    """Format a time in milliseconds since 1970 UTC as ISO 8601."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds")


def iso_or_none(milliseconds: int | None) -> str | None:
    """Format a time as `iso` does; return None for None."""
    return None if milliseconds is None else iso(milliseconds)


def percentiles(values: list[int]) -> dict[str, int]:
    """Return the percentiles p50, p95 and p99 by nearest rank, and the maximum."""
    ordered = sorted(values)
    ranks = {f"p{share}_ms": -(-share * len(ordered) // 100) for share in _PERCENTILES}
    return {**{name: ordered[rank - 1] for name, rank in ranks.items()}, "max_ms": ordered[-1]}


def decimal(millionths: int) -> str:
    """Format a number of millionths as an exact decimal."""
    sign, digits = "-" if millionths < 0 else "", abs(millionths)
    return f"{sign}{digits // 1_000_000}.{digits % 1_000_000:06d}"
