"""The current time for commands, which run outside the gateway's process."""

from __future__ import annotations

import time

from edge.engine.rules.service_time import Now


def now() -> Now:
    """Return the wall-clock time; the service time is 0, because only the gateway knows it."""
    return Now(service=0.0, wall=time.time_ns() // 1_000_000, synchronised=False)
