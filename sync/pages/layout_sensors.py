"""The tables on sensors: those that fell silent, and those whose values are odd."""

from __future__ import annotations

from typing import Final

from sync.pages import text as words
from sync.pages.column import Layout, flag, length, number, prose, state, text, time

SENSORS: Final = Layout(
    "sensors",
    "Silent sensors",
    "A sensor is silent when nothing came of it for longer than its limit: some times its usual "
    "interval, and never less than a floor. Time is the gateway's, without the time before its "
    "last start. It is unknown while newer readings have not come in.",
    (
        text("gateway", "Gateway"),
        prose("source", "Device"),
        prose("sensor", "Sensor"),
        state("state", "State"),
        length("silence_s", "Silent for"),
        length("limit_s", "Limit"),
        length("interval_s", "Usual interval"),
        number("readings", "Readings"),
        time("last", "Last reading"),
        time("told_until", "Told until"),
    ),
    "No sensor sent a reading.",
)

ANOMALIES: Final = Layout(
    "anomalies",
    "Sensor anomalies",
    "Hours whose median is far from what is usual at that hour of the day (robust z, by median and "
    "MAD), against the sensor's own history or others of its type; and flat lines: the same value "
    "for too long, of a sensor that is not constant.",
    (
        text("gateway", "Gateway"),
        prose("source", "Device"),
        prose("sensor", "Sensor"),
        state("state", "State"),
        number("z", "Robust z", words.decimal),
        number("worst_value", "Value", words.decimal),
        number("usual", "Usual", words.decimal),
        text("unit", "Unit"),
        time("worst_at", "Hour"),
        text("basis", "Against"),
        number("anomalous_hours", "Odd hours"),
        number("hours", "Hours"),
        time("flat_since", "Flat since"),
        time("flat_until", "Flat until"),
        number("flat_readings", "Flat readings"),
        number("flat_value", "Flat value", words.decimal),
        flag("constant", "Constant"),
    ),
    "No sensor sent a number.",
)
