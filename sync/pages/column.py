"""What a table looks like when it is shown: its columns, under which titles, written how.

The tables' own words are in `layout` and beside it; their schemas are the reports'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

from sync.pages import text as words

Kind = Literal["text", "long", "number", "alarm", "time", "state", "flag"]
"""How a column is set. `number`: at the right; `alarm`: a number that should be zero; `flag`: true
when something is wrong; `state`: a word of `LOOKS`; `long`: a text that may take several lines."""

LOOKS: Final = {
    **dict.fromkeys(("running", "closed", "ok"), "good"),
    **dict.fromkeys(("open", "stopped", "idle"), "calm"),
    **dict.fromkeys(("silent", "torn", "stuck", "flat", "anomalous", "full", "soon"), "wrong"),
    **dict.fromkeys(("stepping", "unsynchronised", "skewed", "drifting"), "wrong"),
}
"""How a state is marked, beside its word: any other is marked as not known."""


class Column(NamedTuple):
    """A column: its name in the report, its title, how a value is written, and how it is set."""

    name: str
    title: str
    write: Callable[[Any], str] = words.plain
    kind: Kind = "text"

    @property
    def head(self) -> str:
        """Give the title as the table's head has it: a time says whose time it is."""
        return f"{self.title}, UTC" if self.kind == "time" else self.title


class Layout(NamedTuple):
    """A table: its name in `Findings`, its heading, what it tells, and its columns.

    `none` is said where there is no row.
    """

    name: str
    title: str
    about: str
    columns: tuple[Column, ...]
    none: str = "Nothing to show: no event has what this table tells of."


def text(name: str, title: str) -> Column:
    """Make a column of short words."""
    return Column(name, title)


def prose(name: str, title: str) -> Column:
    """Make a column of texts that may be long."""
    return Column(name, title, words.plain, "long")


def number(name: str, title: str, write: Callable[[Any], str] = words.count) -> Column:
    """Make a column of numbers; `write` says in which unit."""
    return Column(name, title, write, "number")


def alarm(name: str, title: str) -> Column:
    """Make a column of counts that should be zero."""
    return Column(name, title, words.count, "alarm")


def flag(name: str, title: str) -> Column:
    """Make a column that says yes where something is wrong."""
    return Column(name, title, words.yes_no, "flag")


def state(name: str, title: str) -> Column:
    """Make a column of states."""
    return Column(name, title, words.plain, "state")


def time(name: str, title: str) -> Column:
    """Make a column of moments, UTC."""
    return Column(name, title, words.moment, "time")


def length(name: str, title: str) -> Column:
    """Make a column of lengths of time, which are given in seconds."""
    return Column(name, title, words.duration, "number")


def look(value: object) -> str:
    """Give the class of the page's style that marks a state."""
    found = LOOKS.get(str(value))
    return f"state-{found}" if found else "state-unknown"
