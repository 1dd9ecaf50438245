"""The present moment, for commands that run beside or without the gateway."""

from __future__ import annotations

import time

from edge.engine.service_time import Now


def now() -> Now:
    """Return the wall clock's time; service seconds are not known outside the gateway."""
    return Now(service=0.0, wall=time.time_ns() // 1_000_000, synchronised=False)
