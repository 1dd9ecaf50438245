"""Log lines that clients cause, at a limited rate, so that no client can fill the disk."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any, Final

from aiohttp.http import HttpProcessingError

from sync.common.json_log import log_event
from sync.receiver.metrics import Metrics
from sync.receiver.rate_limit import RateLimiter

_MAX_KINDS: Final = 1_024
"""Maximum number of kinds of line whose suppressed lines are counted; further kinds are not."""


class LogThrottle:
    """Writes at most `lines_per_s` lines of each kind, averaged over `window_s` seconds."""

    def __init__(self, lines_per_s: float, window_s: float) -> None:
        self._rate_limiter = RateLimiter(lines_per_s, window_s)
        self._suppressed: Counter[tuple[str, ...]] = Counter()

    def log(self, level: int, kind: tuple[str, ...], event: str, **facts: object) -> None:
        """Write a line as `log_event` does, unless there were too many of its `kind`.

        The next line of the kind has the number of suppressed lines in `left_out`.
        """
        if self._rate_limiter.take("\n".join(kind), 1):
            if kind in self._suppressed or len(self._suppressed) < _MAX_KINDS:
                self._suppressed[kind] += 1
            return
        suppressed = self._suppressed.pop(kind, 0)
        log_event(level, event, **facts, **({"left_out": suppressed} if suppressed else {}))


class HttpErrorLog(logging.LoggerAdapter[logging.Logger]):
    """The logger of aiohttp's server: counts malformed requests, and throttles lines about them.

    aiohttp logs a stack trace for each request that is not valid HTTP. This class logs one line
    instead, at a limited rate; other errors are logged unchanged.
    """

    def __init__(self, throttle: LogThrottle, metrics: Metrics) -> None:
        super().__init__(logging.getLogger("aiohttp.server"), {})
        self._throttle = throttle
        self._metrics = metrics

    def exception(self, msg: object, *args: object, exc_info: Any = True, **more: Any) -> None:
        """Log an exception as the class describes; `args[0]` is the peer's address, if given."""
        if not isinstance(exc_info, HttpProcessingError):
            super().exception(msg, *args, exc_info=exc_info, **more)
            return
        self._metrics.count_request("", exc_info.code, "http")
        self._throttle.log(
            logging.INFO,
            ("http",),
            "refused",
            status=exc_info.code,
            reason="http",
            text=f"not valid HTTP: {type(exc_info).__name__}",
            peer=args[0] if args else None,
        )
