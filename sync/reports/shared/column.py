"""Columns of a table as people see them: title, format and alignment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from sync.reports.shared import formats

Kind = Literal["text", "long", "number", "alarm", "time", "state", "flag"]
"""The layout of a column. `number`: right-aligned; `alarm`: a count that should be zero;
`flag`: true if something is wrong; `state`: one of a few states, with a mark; `long`: text that
may wrap."""

Mark = Literal["good", "calm", "wrong"]
"""The mark of a state. A state without a mark is shown as unknown."""


class Column(NamedTuple):
    """A column: its name in the report's schema, its title, the format of its values, its kind.

    `marks` maps the states of a `state` column to their marks.
    """

    name: str
    title: str
    write: Callable[[Any], str] = formats.plain
    kind: Kind = "text"
    marks: Mapping[str, Mark] = {}

    @property
    def head(self) -> str:
        """The title in the table's head; of a time it names the time zone."""
        return f"{self.title}, UTC" if self.kind == "time" else self.title

    def mark(self, value: object) -> str:
        """Return the CSS class that marks a state."""
        return f"state-{self.marks.get(str(value), 'unknown')}"


def text(name: str, title: str, words: Mapping[str, str] | None = None) -> Column:
    """Return a column of short texts; `words` translates values that are codes."""
    return Column(name, title, _translated(words))


def prose(name: str, title: str) -> Column:
    """Return a column of texts that may be long."""
    return Column(name, title, kind="long")


def number(name: str, title: str, write: Callable[[Any], str] = formats.count) -> Column:
    """Return a column of numbers; `write` formats them with their unit."""
    return Column(name, title, write, "number")


def duration(name: str, title: str) -> Column:
    """Return a column of durations, given in seconds."""
    return Column(name, title, formats.duration, "number")


def alarm(name: str, title: str) -> Column:
    """Return a column of counts that should be zero."""
    return Column(name, title, formats.count, "alarm")


def flag(name: str, title: str) -> Column:
    """Return a column that is true if something is wrong."""
    return Column(name, title, formats.yes_no, "flag")


def time(name: str, title: str) -> Column:
    """Return a column of times in UTC."""
    return Column(name, title, formats.moment, "time")


def state(
    name: str, title: str, marks: Mapping[str, Mark], words: Mapping[str, str] | None = None
) -> Column:
    """Return a column of states with their marks; `words` translates states that are codes."""
    return Column(name, title, _translated(words), "state", marks)


def _translated(words: Mapping[str, str] | None) -> Callable[[Any], str]:
    if not words:
        return formats.plain
    return lambda value: words.get(value, formats.plain(value))
