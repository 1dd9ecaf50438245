"""Lines of the log that callers cause: so many of a kind, and then how many were left out.

Writes by `sync.common.json_log`, and decides by counts alone what is worth a line.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from sync.common.json_log import log_event as tell
from sync.receiver.rate_limit import RateLimiter

_KINDS: Final = 1_024
"""Kinds of which is remembered how many lines were left out; of more it is not."""


class LogThrottle:
    """Tells `lines_per_s` lines of a kind in the long run, and those of `window_s` at once."""

    def __init__(self, lines_per_s: float, window_s: float) -> None:
        self._rate = RateLimiter(lines_per_s, window_s)
        self._left_out: Counter[tuple[str, ...]] = Counter()

    def tell(self, level: int, kind: tuple[str, ...], event: str, **facts: object) -> None:
        """Write one line, as `logs.tell` does, unless there were too many of its `kind`.

        The next that is written of the kind says in `left_out` how many were not.
        """
        if self._rate.take("\n".join(kind), 1):
            if kind in self._left_out or len(self._left_out) < _KINDS:
                self._left_out[kind] += 1
            return
        left_out = self._left_out.pop(kind, 0)
        tell(level, event, **facts, **({"left_out": left_out} if left_out else {}))
