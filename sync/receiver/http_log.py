"""What the HTTP library has to tell of requests: callers' faults are no errors of ours."""

from __future__ import annotations

import logging
from typing import Any

from aiohttp.http import HttpProcessingError

from sync.receiver.log_throttle import LogThrottle
from sync.receiver.metrics import Metrics


class HttpErrorLog(logging.LoggerAdapter[logging.Logger]):
    """Passes on to the library's logger what is no caller's fault.

    What is no HTTP is a refusal as any other: it is counted and told in one line, and not with a
    trace for each, with which any stranger could fill a disk.
    """

    def __init__(self, seldom: LogThrottle, metrics: Metrics) -> None:
        super().__init__(logging.getLogger("aiohttp.server"), {})
        self._seldom = seldom
        self._metrics = metrics

    def exception(self, msg: object, *args: object, exc_info: Any = True, **more: Any) -> None:
        """Tell of an exception; of the library's calls the peer's address is the first argument."""
        if not isinstance(exc_info, HttpProcessingError):
            super().exception(msg, *args, exc_info=exc_info, **more)
            return
        self._metrics.answered("", exc_info.code, "http")
        peer = args[0] if args else None
        text = f"no valid HTTP: {type(exc_info).__name__}"
        self._seldom.tell(
            logging.INFO,
            ("http",),
            "refused",
            status=exc_info.code,
            reason="http",
            text=text,
            peer=peer,
        )
