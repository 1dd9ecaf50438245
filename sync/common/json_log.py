"""The centre's log: one JSON object a line on standard error.

Values that a client chose are quoted by JSON, so that no request can forge a line.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import sys
from typing import Final

LOGGER: Final = logging.getLogger("fieldpost.fleet")


class _Line(logging.Formatter):
    """Writes a record and its `facts` as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        when = dt.datetime.fromtimestamp(record.created, dt.UTC)
        line: dict[str, object] = {
            "time": when.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line.update(getattr(record, "facts", {}))
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def log_event(level: int, event: str, **facts: object) -> None:
    """Write one line: what happened, and its facts by name."""
    LOGGER.log(level, event, extra={"facts": facts})


def log_to_stderr() -> None:
    """Send this log, and the warnings of the libraries, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Line())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    LOGGER.setLevel(logging.INFO)
