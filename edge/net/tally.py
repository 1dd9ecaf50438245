"""What was refused where no unit of work ran: counted here, told with the next heartbeat.

Connections too many, streams ended for what they sent, failed log-ins, a database that had no room:
to write an event for each would let a stranger fill the log. The rules are few and named by the
gateway, so the table is bounded.
"""

from __future__ import annotations

from collections import Counter


class Tally:
    """How often each rule refused something, since it was last told."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, rule: str, times: int = 1) -> None:
        """Count `times` refusals by `rule`."""
        self._counts[rule] += times

    def take(self) -> Counter[str]:
        """Return what was counted, and begin anew."""
        counts, self._counts = self._counts, Counter()
        return counts

    def put_back(self, counts: Counter[str]) -> None:
        """Count what was taken and could not be told."""
        self._counts += counts
