"""The page of the ingest benchmark: its results, tables and goals."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from benchmarks.report import Goal, number, table

FASTER: Final = 1.4
"""Required ratio of the ingest's speed to the JSON reader's."""


_STEPS: Final = ("judged", "written", "events", "committed", "filed")
"""The steps of an ingest that the page shows."""


class Run(NamedTuple):
    """Duration and output of an ingest of `files` segments with `events` events.

    `parquet` is the number of files of events, `size` their bytes, `ledger` the bytes of the files
    of segments.
    """

    files: int
    events: int
    seconds: float
    processor: float
    parquet: int
    steps: dict[str, float]
    size: int = 0
    ledger: int = 0

    @property
    def each(self) -> float:
        """Seconds per event."""
        return self.seconds / self.events


class Comparison(NamedTuple):
    """Seconds and processor seconds of both sides of a pair."""

    ingest: Run
    json: Run


def goal(events: int, pairs: Sequence[Comparison]) -> Goal:
    """Compare pairs with the goal."""
    ratio = statistics.median(_ratios(pairs))
    text = f"{ratio:.2f} times as fast as the JSON reader (goal: {FASTER})"
    return Goal(f"{events:,} events per segment: {text}", ratio >= FASTER)


def _ratios(pairs: Sequence[Comparison]) -> list[float]:
    return [pair.json.seconds / pair.ingest.seconds for pair in pairs]


def against_blocks(against: Mapping[int, Sequence[Comparison]]) -> tuple[str, ...]:
    """Describe the pairs, by the number of events in a segment."""
    rounds = min(map(len, against.values()))
    most = max(pairs[0].ingest.events for pairs in against.values())
    rows = [
        _side(name, f"{events:,} in {runs[0].files:,}", runs)
        for events, pairs in against.items()
        for name, runs in (("ingest", [p.ingest for p in pairs]), ("JSON", [p.json for p in pairs]))
    ]
    return (
        f"{most:,} events are written to Parquet, partitioned by day, in {rounds} alternating"
        " pairs, in one session with as many tasks as cores. The ingest checks each segment's"
        " checksum and columns, looks it up in the ledger, writes and syncs rows of events and"
        " of segments, commits to two Delta tables, and moves each file to the archive. The"
        " alternative is `spark.read.json` with a schema, of the same events in as many"
        " gzipped files,"
        " written to the same columns, without checks and ledger. Values are medians.",
        table(
            ("", "events, files", "seconds", "processor seconds", "us per event", "Parquet files"),
            rows,
        ),
        *(_ratios_line(*each) for each in against.items()),
    )


def _ratios_line(events: int, pairs: Sequence[Comparison]) -> str:
    used = statistics.median(pair.json.processor / pair.ingest.processor for pair in pairs)
    return (
        f"{events:,} events per file: the ratios of the seconds are"
        f" {', '.join(f'{each:.2f}' for each in sorted(_ratios(pairs)))}; the median ratio of the"
        f" processor seconds is {used:.2f}."
    )


def _side(name: str, files: str, runs: Sequence[Run]) -> tuple[object, ...]:
    return (
        name,
        files,
        number(statistics.median(run.seconds for run in runs)),
        number(statistics.median(run.processor for run in runs)),
        number(statistics.median(run.each for run in runs) * 1e6),
        number(statistics.median(run.parquet for run in runs)),
    )


def growth_blocks(runs: Sequence[Run], gateways: int) -> tuple[str, ...]:
    """Describe the growing runs; the last two are small segments, of `gateways` and of one each."""
    *grown, small, wide = runs
    folders = max(1, wide.files - min(gateways, small.files))  # none in a quick run
    middle, large = grown[-2], grown[-1]
    more = (large.seconds - middle.seconds) / (large.events - middle.events)
    return (
        "Growth: one run of each size, in one session, with the default of 2,000 segments per"
        " batch. In the last two rows the segments are small: from as many gateways as above, and"
        " from one gateway each. `judged` is the time to read and decode segments and look them"
        " up in the ledger, `written` the time to write the tables' files, `events` and `committed`"
        " the time to commit them to `events` and to `segments`, `filed` the time to move the files"
        " to the archive.",
        table(
            (
                "events",
                "files",
                "seconds",
                "us per event",
                "processor, us",
                *(f"{name}, s" for name in _STEPS),
                "Parquet files",
            ),
            [_grown_row(run) for run in runs],
        ),
        f"From {middle.events:,} to {large.events:,} events each further event costs"
        f" {more * 1e6:.1f} us, which is {more / middle.each:.2f} of the cost per event before; an"
        " event takes"
        f" {large.size / large.events:.1f} bytes in the table, a segment"
        f" {large.ledger / large.files:.0f} bytes in the ledger. A small segment costs"
        f" {small.seconds / small.files * 1e3:.2f} ms and"
        f" {small.processor / small.files * 1e3:.2f} ms of processor time; a further folder in the"
        f" landing costs {(wide.seconds - small.seconds) / folders * 1e3:.2f} ms and"
        f" {(wide.processor - small.processor) / folders * 1e3:.2f} ms of processor time.",
    )


def _grown_row(run: Run) -> tuple[object, ...]:
    steps = (number(run.steps[name]) for name in _STEPS)
    return (
        f"{run.events:,}",
        f"{run.files:,}",
        number(run.seconds),
        number(run.each * 1e6),
        number(run.processor / run.events * 1e6),
        *steps,
        run.parquet,
    )
