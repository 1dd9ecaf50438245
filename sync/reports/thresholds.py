"""From when on something is not as it should be, for the reports and for the alerts alike.

Numbers and names only: whoever needs them starts no Spark.
"""

from __future__ import annotations

from typing import Final

HEARTBEAT_S: Final = 60.0
"""Seconds between two heartbeats, where a gateway does not say otherwise in its own."""

SEAL_S: Final = 300.0
"""Seconds after which a gateway seals what it has: heartbeats make it ship so often at least."""

PATIENCE: Final = 2.5
"""How many heartbeats, or sealings, may fail to come before the gap counts: one may be late, and a
second lost to a clock that steps; a third is no accident."""

SILENCE_S: Final = SEAL_S * PATIENCE
"""Seconds without an arrival, beyond which the gateway was not reachable, at least: for one that
seals more seldom it is `PATIENCE` times what lies between two of its segments, by the median."""

SEALINGS: Final = 5
"""Times between two segments of the system lane that have to be known, before their median counts
for how often a gateway seals."""

SIGNS: Final = ("start", "heartbeat", "stop")
"""The system events that tell of a gateway's life."""

STEP: Final = "clock_stepped"
"""The system event that tells that its clock was set: it is a sign of life too."""

STUCK_S: Final = 1_800.0
"""Seconds for which items wait and none is delivered until the queue counts as stuck. Workers that
restart, are updated or work on a long item take minutes; half an hour is what a person would ask
about."""

TOLD_S: Final = 300.0
"""Seconds between two events of a queue in which items are (`queue/depth`)."""

TOGETHER_S: Final = TOLD_S * PATIENCE
"""Seconds between two events beyond which nothing is known of the time between: the gateway was
off, or they are missing."""

SURGE: Final = 5.0
"""How many times the usual count makes a surge: days with twice or three times as many are common
with anything that people or weather drive."""

SURGE_LEAST: Final = 20
"""Refusals a day below which there is no surge: a device that was set up wrongly for a minute."""

TIMES: Final = 5.0
"""How many of its median intervals a sensor may be silent: radios lose two or three in a row."""

FLOOR_S: Final = 900.0
"""Seconds that any sensor may be silent: a device that is restarted, or updated, is away for
minutes, and readings are up to `SEAL_S` behind the rest."""

INTERVALS: Final = 5
"""Intervals that have to be known before their median says what is usual."""

BATCH_S: Final = 1.0
"""Seconds between two readings below which they came together, and are no interval."""

LATE_S: Final = SEAL_S * PATIENCE
"""Seconds from sealing to arrival beyond which a segment was waiting in a backlog."""

RESETS: Final = ("start", "clock_stepped", "clock_synchronised")
"""System events before which a silence is not counted: the gateway was off, or its clock is set."""
