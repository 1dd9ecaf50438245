"""The verdict of a run: its numbers, and the requirements that it violated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

SHOWN: Final = 20
"""Maximum number of examples listed for each fault; all are counted."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a run.

    `numbers` are fields of a JSON object, `table` the same numbers as lines for people. `faults`
    has, for each violated requirement, descriptions of what violates it. `word` is the word for a
    run without faults. `judged` is false if there is no event log to compare with.
    """

    numbers: Mapping[str, Any]
    table: Sequence[str]
    faults: Mapping[str, Sequence[str]]
    word: str = "exact"
    judged: bool = True

    @property
    def passed(self) -> bool:
        """Return whether the run has no fault."""
        return not self.faults

    @property
    def exact(self) -> bool:
        """Return whether the run has no fault, and was compared with an event log."""
        return self.passed and self.judged

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as a JSON object."""
        return {
            **self.numbers,
            "faults": {name: len(rows) for name, rows in self.faults.items()},
            "examples": {name: list(rows)[:SHOWN] for name, rows in self.faults.items()},
            self.word: self.exact,
        }

    def lines(self) -> list[str]:
        """Format the verdict as a table for people."""
        lines = list(self.table)
        for name, rows in self.faults.items():
            lines += [f"{name}: {len(rows)}", *(f"  {row}" for row in list(rows)[:SHOWN])]
        word = self.word if self.passed else f"NOT {self.word}"
        return [*lines, row("verdict", word if self.judged else "none")]


def row(name: str, *values: object, note: str = "") -> str:
    """Format a line of a verdict's table: a name, values in columns, and a note."""
    return (f"{name:<12}" + "".join(f"{value!s:>10}" for value in values) + f"  {note}").rstrip()


def by_name(faults: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Group faults, given as (violated requirement, description), by requirement."""
    found: dict[str, list[str]] = {}
    for name, what in faults:
        found.setdefault(name, []).append(what)
    return found
