"""The tables as they are shown: which columns, under which titles, written how.

One place for all words of a table's head. The schemas themselves are the reports'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from sync.central.rendering import words


class Column(NamedTuple):
    """A column: its name in the report, its title, how a value is written, and how it is set.

    `kind` is `text`, `number` or `alarm`: a number that should be zero.
    """

    name: str
    title: str
    write: Callable[[Any], str] = words.plain
    kind: str = "text"


class Layout(NamedTuple):
    """A table: its name in `Findings`, its heading, what it tells, and its columns."""

    name: str
    title: str
    about: str
    columns: tuple[Column, ...]


def _number(name: str, title: str) -> Column:
    return Column(name, title, words.count, "number")


def _alarm(name: str, title: str) -> Column:
    return Column(name, title, words.count, "alarm")


def _time(name: str, title: str) -> Column:
    return Column(name, title, words.moment)


def _length(name: str, title: str) -> Column:
    return Column(name, title, words.duration, "number")


AVAILABILITY: Final = Layout(
    "availability",
    "Availability",
    "Running is told by heartbeats, once the backlog came in; reachable by what arrives here. "
    "More than 2.5 times its interval without a heartbeat is an outage, unless the gateway stopped "
    "cleanly or the events of that time are missing (then it is unknown); more than 750 s without "
    "an arrival is a silence. Nothing is said of the time after the last heartbeat.",
    (
        Column("gateway", "Gateway"),
        Column("state", "State"),
        Column("running_share", "Running", words.share, "number"),
        Column("reachable_share", "Reachable", words.share, "number"),
        _time("last_seen", "Last seen"),
        _alarm("outages", "Outages"),
        _length("running_s", "Ran for"),
        _length("outage_s", "Out for"),
        _length("stopped_s", "Stopped for"),
        _length("unknown_s", "Unknown for"),
        _length("longest_gap_s", "Longest gap"),
        _number("restarts", "Restarts"),
        _alarm("unclean_restarts", "Unclean"),
        _number("silences", "Silences"),
        _length("longest_silence_s", "Longest silence"),
        _time("last_arrival", "Last arrival"),
        _time("first_seen", "First seen"),
        _number("clock_steps", "Clock set"),
    ),
)

COMPLETENESS: Final = Layout(
    "completeness",
    "Completeness",
    "Every event has a number, from 1, without a gap. Missing = expected - received; what the "
    "gateway said it dropped is declared; the rest is unexplained, and must be zero. An epoch is "
    "closed by a clean stop, open while it may go on, torn when a later one began without that. "
    "Repeated counts segments that came again and were left out.",
    (
        Column("gateway", "Gateway"),
        Column("epoch", "Epoch"),
        Column("lane", "Lane"),
        Column("state", "State"),
        _number("expected", "Expected"),
        _number("received", "Received"),
        _number("missing", "Missing"),
        _number("declared", "Declared"),
        _alarm("unexplained", "Unexplained"),
        _alarm("duplicates", "Duplicates"),
        _alarm("forks", "Forks"),
        _alarm("chain_breaks", "Chain breaks"),
        _number("repeated_segments", "Repeated"),
        _number("first_seq", "First"),
        _number("last_seq", "Last"),
        _time("since", "Since"),
    ),
)

DELIVERY: Final = Layout(
    "delivery",
    "Delivery",
    "From taking a message into custody to its delivery, by level. Percentiles are exact (nearest "
    "rank: a latency that occurred). Plain and acknowledged messages are delivered as they come.",
    (
        Column("gateway", "Gateway"),
        Column("qos", "Level", words.level),
        _number("events", "Events"),
        *(
            Column(f"{name}_ms", name, words.milliseconds, "number")
            for name in ("p50", "p95", "p99", "max")
        ),
    ),
)

LAG: Final = Layout(
    "lag",
    "Upstream lag",
    "From the event to the arrival of its segment here: sealing, waiting and the link. It compares "
    "two clocks, so what was written while a gateway's clock was not synchronised stands apart.",
    (
        Column("gateway", "Gateway"),
        Column("clock", "Gateway's clock", words.synchronised),
        _number("events", "Events"),
        *(_length(f"{name}_s", name) for name in ("p50", "p95", "p99", "max")),
    ),
)

TOTALS: Final = Layout(
    "totals",
    "Events by lane and kind",
    "What the tables hold.",
    (Column("lane", "Lane"), Column("kind", "Kind"), _number("events", "Events")),
)

NOTICES: Final = Layout(
    "notices",
    "Messages lost and refusals",
    "What the gateways told of messages that went nowhere (dead, expired, evicted), and of what "
    "their limits refused, by the rule.",
    (
        Column("gateway", "Gateway"),
        Column("kind", "Kind"),
        Column("name", "Name"),
        _number("times", "Times"),
        _time("since", "First"),
        _time("until", "Last"),
    ),
)

QUARANTINE: Final = Layout(
    "quarantine",
    "Quarantine",
    "What was read and not taken, latest first, each file once. Paths are those it was read from.",
    (
        _time("arrived", "Arrived"),
        Column("path", "File"),
        Column("size", "Size", words.size, "number"),
        Column("reason", "Reason"),
        Column("detail", "Why"),
    ),
)

LAYOUTS: Final = (AVAILABILITY, COMPLETENESS, DELIVERY, LAG, NOTICES, TOTALS, QUARANTINE)
