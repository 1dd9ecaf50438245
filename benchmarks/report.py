"""Pages of results in Markdown: tables, goals, and the environment of the measurement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple


class Goal(NamedTuple):
    """A goal as a sentence, and whether it is reached."""

    text: str
    reached: bool


RESULTS: Final = Path(__file__).with_name("results")


class Topic(NamedTuple):
    """A page: the name of its file, its title, paragraphs and tables, and its goals.

    `summary` is a text for the README.
    """

    name: str
    title: str
    blocks: Sequence[str]
    goals: Sequence[Goal] = ()
    summary: str = ""


class Settings(NamedTuple):
    """The folder to use, on the disk to be measured, and whether the run is a smoke test.

    `share` is the part of the full sizes that topics use whose sizes can be chosen.
    """

    folder: Path
    quick: bool
    share: float = 1.0

    def choose(self, full: float, quick: float) -> float:
        """Return the value for this kind of run."""
        return quick if self.quick else full


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Format a table; the first column is aligned left, all others right."""
    lines = [_line(head), _line(["---", *["---:"] * (len(head) - 1)])]
    lines += [_line([str(cell) for cell in row]) for row in rows]
    return "\n".join(lines)


def page(topic: Topic, machine: str) -> str:
    """Format a topic's page."""
    blocks = [f"# {topic.title}", machine, *topic.blocks]
    if topic.goals:
        blocks.append("\n".join(f"- {_verdict(goal)}: {goal.text}" for goal in topic.goals))
    return "\n\n".join(blocks) + "\n"


def number(value: float) -> str:
    """Format a number with three significant digits and commas."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def milliseconds(seconds: float) -> str:
    """Format seconds as milliseconds."""
    return number(seconds * 1000)


def _verdict(goal: Goal) -> str:
    return "Reached" if goal.reached else "**Missed**"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
