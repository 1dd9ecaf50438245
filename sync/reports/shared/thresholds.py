"""The thresholds by which reports and alerts judge; this module needs no Spark."""

from __future__ import annotations

from typing import Final

HEARTBEAT_S: Final = 60.0
"""Seconds between two heartbeats, if a gateway's heartbeats do not say otherwise."""

SEAL_S: Final = 300.0
"""Seconds, by default, after which a gateway seals its events into a segment. As it records
heartbeats, it always has events to seal, so it sends at least this often."""

MISSED_INTERVALS: Final = 2.5
"""Number of intervals without a heartbeat (or a segment) that is an outage (or a silence). One
heartbeat may be late, and another lost when the clock is set: two intervals can pass in a sound
fleet, but hardly more."""

SILENCE_S: Final = SEAL_S * MISSED_INTERVALS
"""Seconds without an arrival after which a gateway was not reachable. A gateway that seals less
often has `MISSED_INTERVALS` times the median of its own intervals instead."""

MIN_SEALINGS: Final = 5
"""Minimum intervals between segments of the system lane, to use their median (see `SILENCE_S`)."""

LIFE_EVENTS: Final = ("start", "heartbeat", "stop")
"""The system events that show that a gateway runs or stops."""

CLOCK_STEPPED: Final = "clock_stepped"
"""The system event that a gateway's clock was set; it also shows that the gateway runs."""

RESET_EVENTS: Final = ("start", "clock_stepped", "clock_synchronised")
"""System events after which a sensor's silence is measured anew: the gateway was off, or its clock
was set."""

STUCK_S: Final = 1_800.0
"""Seconds for which items wait undelivered until a queue counts as stuck. Workers that restart, are
updated or work on a long item take minutes."""

DEPTH_EVENT_S: Final = 300.0
"""Seconds between two `queue/depth` events of a queue that holds items."""

DEPTH_GAP_S: Final = DEPTH_EVENT_S * MISSED_INTERVALS
"""Seconds between two `queue/depth` events of a queue beyond which the time between is unknown: the
gateway was off, or events are missing."""

FORECAST_D: Final = 400
"""Maximum number of days that a forecast shows: a trend of some weeks does not extend further."""

SURGE_FACTOR: Final = 5.0
"""A day with more than this many times the usual number of refusals is a surge. Two or three times
as many are common with anything that people or weather drive."""

SURGE_MIN: Final = 20
"""Refusals a day below which there is no surge: a device may be misconfigured for a minute."""

SILENT_INTERVALS: Final = 5.0
"""Number of median intervals without a reading after which a sensor is silent: radio links lose two
or three readings in a row."""

MIN_SILENCE_S: Final = 900.0
"""Seconds without a reading below which no sensor is silent, however short its usual interval: a
restart or an update takes minutes, and readings may arrive `SEAL_S` later than other events."""

MIN_INTERVALS: Final = 5
"""Minimum number of known intervals between readings to use their median."""

MIN_INTERVAL_S: Final = 1.0
"""Seconds between two readings below which the interval is not counted: they belong together."""

BACKLOG_S: Final = SEAL_S * MISSED_INTERVALS
"""Longest normal time in seconds from the sealing of a segment to its arrival at the centre."""
