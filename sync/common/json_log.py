"""The centre's log: one JSON object per line on standard error.

JSON escapes control characters in values from clients, so that no request can forge a line.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import sys
from typing import Final

LOGGER: Final = logging.getLogger("fieldpost.fleet")


class _JsonFormatter(logging.Formatter):
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
    """Write a log line with the name of an event and its fields; the field `text` is for people."""
    LOGGER.log(level, event, extra={"facts": facts})


def log_to_stderr() -> None:
    """Send the centre's log from level INFO, and warnings of libraries, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    LOGGER.setLevel(logging.INFO)
