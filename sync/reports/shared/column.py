"""Columns of a table as people see them: title, format and alignment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, tzinfo
from typing import Any, Literal, NamedTuple

from pyspark.sql.types import DataType

from sync.reports.shared import formats
from sync.reports.shared.frames import FLAG, INTEGER, REAL, TEXT, TIME
from sync.reports.shared.plausible import LONGEST_S, plausible_times
from sync.reports.shared.window import AHEAD_S

Kind = Literal["text", "long", "number", "alarm", "time", "state", "flag"]
"""The layout of a column. `number`: right-aligned; `alarm`: a count that should be zero;
`flag`: true if something is wrong; `state`: one of a few states, with a mark; `long`: text that
may wrap."""

Mark = Literal["good", "calm", "wrong"]
"""The mark of a state; `calm`: neither good nor wrong. A state without one is shown as unknown."""


class Column(NamedTuple):
    """A column: its name and type in the report's schema, its title, the format of its values, its
    kind.

    `marks` maps the states of a `state` column to their marks. `limits` are the lowest and the
    highest plausible value; others are shown as unknown, and so are implausible times.
    """

    name: str
    type: DataType
    title: str
    write: Callable[[Any], str] = formats.plain
    kind: Kind = "text"
    marks: Mapping[str, Mark] = {}
    limits: tuple[float, float] | None = None

    def limits_at(self, as_of: datetime) -> tuple[Any, Any] | None:
        """Return the lowest and the highest plausible value in a report as of `as_of`, if any."""
        return plausible_times(as_of) if self.kind == "time" else self.limits

    def head(self, zone: tzinfo = UTC) -> str:
        """Return the title in the table's head, with `UTC` for a column of times in UTC."""
        return f"{self.title}, UTC" if self.kind == "time" and zone is UTC else self.title

    def show(self, value: Any, as_of: datetime, zone: tzinfo = UTC) -> str:
        """Format a value for a page: a time in `zone`, and an implausible value as unknown."""
        limits = self.limits_at(as_of)
        if value is not None and limits and not limits[0] <= value <= limits[1]:
            return formats.UNKNOWN
        return formats.moment(value, zone) if self.kind == "time" else self.write(value)

    def mark(self, value: object) -> str:
        """Return the CSS class that marks a state."""
        return f"state-{self.marks.get(str(value), 'unknown')}"


def text(name: str, title: str, words: Mapping[str, str] | None = None) -> Column:
    """Return a column of short texts; `words` translates values that are codes."""
    return Column(name, TEXT, title, _translated(words))


def prose(name: str, title: str) -> Column:
    """Return a column of texts that may be long."""
    return Column(name, TEXT, title, kind="long")


def number(name: str, title: str, write: Callable[[Any], str] = formats.count) -> Column:
    """Return a column of whole numbers; `write` formats them with their unit."""
    return Column(name, INTEGER, title, write, "number")


def real(name: str, title: str, write: Callable[[Any], str]) -> Column:
    """Return a column of numbers that need not be whole; `write` formats them with their unit."""
    return Column(name, REAL, title, write, "number")


def duration(name: str, title: str) -> Column:
    """Return a column of durations, given in seconds."""
    return real(name, title, formats.duration)


def age(name: str, title: str) -> Column:
    """Return a column of durations in seconds; more than a year is shown as unknown."""
    return duration(name, title)._replace(limits=(0.0, LONGEST_S))


def latency(name: str, title: str) -> Column:
    """Return a column of latencies in milliseconds; more than a year is shown as unknown."""
    return number(name, title, formats.milliseconds)._replace(limits=(0.0, LONGEST_S * 1_000))


def lag(name: str, title: str) -> Column:
    """Return a column of lags in seconds; negative if the gateway's clock is ahead."""
    return duration(name, title)._replace(limits=(-AHEAD_S, LONGEST_S))


def alarm(name: str, title: str) -> Column:
    """Return a column of counts that should be zero."""
    return Column(name, INTEGER, title, formats.count, "alarm")


def flag(name: str, title: str) -> Column:
    """Return a column of flags; a true flag means that something is wrong."""
    return Column(name, FLAG, title, formats.yes_no, "flag")


def time(name: str, title: str) -> Column:
    """Return a column of times."""
    return Column(name, TIME, title, formats.moment, "time")


def state(
    name: str, title: str, marks: Mapping[str, Mark], words: Mapping[str, str] | None = None
) -> Column:
    """Return a column of states with their marks; `words` translates states that are codes."""
    return Column(name, TEXT, title, _translated(words), "state", marks)


def _translated(words: Mapping[str, str] | None) -> Callable[[Any], str]:
    if not words:
        return formats.plain
    return lambda value: words.get(value, formats.plain(value))
