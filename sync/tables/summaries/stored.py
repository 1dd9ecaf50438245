"""Store the summaries of each day as Parquet, and compute those whose events have changed.

Stored rows are identified by the content of the day's events (`sync.tables.summaries.index`) and by
`Summary.shape` (name, version and schema). If both are unchanged, the rows are read; otherwise they
are computed from that day's events, for all summaries together, and written to a new folder, which
is valid once its index is written. What an interrupted report leaves is ignored; two
concurrent reports do the same work twice and agree.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sync.common.progress import Progress, no_progress
from sync.storage.storage import Storage
from sync.tables.delta import Snapshot
from sync.tables.parquet_tasks import read_files, write_files
from sync.tables.partitions import conform, empty_frame, size_of, without_repartitioning
from sync.tables.summaries.index import (
    FOLDER,
    Index,
    Key,
    add_entries,
    content_of,
    read_index,
    remove_replaced,
    retired_contents,
)
from sync.tables.summaries.summary import Summary
from sync.tables.tables import DAY, read_event_files

AT_ONCE: Final = 4
"""Maximum number of summaries computed concurrently: most are small, and planning takes longest."""

DAYS_AT_ONCE: Final = 64
"""Number of days that are summarised together, or more until they have `EVENTS_AT_ONCE` events.
Their summaries are valid before the next ones are computed, so an interrupted report loses the work
of these days only."""

EVENTS_AT_ONCE: Final = 500_000
"""Events that are summarised together: Spark takes longer to plan the summaries than to compute
those of fewer events."""

PART: Final = 4 * 1024 * 1024
"""Bytes of event files for each partition of their events: some hundred thousand events."""

FILE_EVENTS: Final = 100_000
"""Maximum number of events whose days share a file of each summary. Each file takes Spark 10 ms of
processor time to write or read, so one gateway with few events on each of many days must not have
as many files."""

_OF: Final = "of"
"""The column by which files are partitioned: the first of the days that share a file."""


class DayCount(NamedTuple):
    """Counts of days whose summaries were reused, were computed, or are lost.

    A day is lost if retention removed its events before one of the summaries was computed in its
    present form.
    """

    reused: int
    recomputed: int
    lost: int


@dataclass(frozen=True, slots=True)
class StoredSummaries:
    """The summaries as of one moment. `days` counts days by how their summaries were obtained.

    `_files` has the sizes of the files of each summary and day, by path.
    """

    spark: SparkSession
    tables: Storage
    days: DayCount
    _files: Mapping[str, Mapping[str, Mapping[str, int]]]

    def rows(self, summary: Summary, since: date | None = None) -> DataFrame:
        """Return a summary's rows, with `day`, of all days or of those from `since` (UTC) on."""
        schema = StructType([*summary.schema.fields, DAY])
        days_of: dict[str, list[date]] = {}
        sizes: dict[str, int] = {}
        for text, found in self._files[summary.name].items():
            day = date.fromisoformat(text)
            if since is None or day >= since:
                sizes |= found
                for path in found:
                    days_of.setdefault(path, []).append(day)
        if not sizes:
            return empty_frame(self.spark, schema)

        def of_days(path: str, rows: pa.Table) -> pa.Table:
            """Leave out days whose rows in this file are replaced by those in another."""
            return rows.filter(pc.field(DAY.name).isin(days_of[path]))

        return read_files(self.spark, self.tables, sizes, schema, of_days)

    def until(self, last: date) -> StoredSummaries:
        """Return the summaries of the days up to `last` (UTC); the counts `days` are unchanged."""
        end = last.isoformat()
        found = {
            name: {day: paths for day, paths in by_day.items() if day <= end}
            for name, by_day in self._files.items()
        }
        return replace(self, _files=found)


def summarise(
    spark: SparkSession,
    snapshot: Snapshot,
    summaries: Sequence[Summary],
    *,
    past: bool = False,
    progress: Progress = no_progress,
) -> StoredSummaries:
    """Bring `summaries` up to date with the events of `snapshot`, and return them.

    The latest days are computed first, some at a time (`DAYS_AT_ONCE`). If the computation is
    interrupted, the next one continues with the days that are left. Writes to the tables' storage
    only if a summary is out of date. `past` says that the snapshot is not the latest: then no
    summary is removed. Raises OSError if a file cannot be written; summaries stored before stay
    valid.
    """
    storage = snapshot.storage
    index = read_index(storage)
    wanted = _wanted(summaries, snapshot, index)
    stale = {each.name: _stale(wanted[each.name], index) for each in summaries}
    touched = {key.day for keys in stale.values() for key in keys}
    if touched:
        done = 0
        for days in _batches(touched, snapshot):
            progress("summarising days", done, len(touched))
            _compute_days(spark, snapshot, summaries, stale, _groups(days, snapshot))
            done += len(days)
        index = read_index(storage)
        if not past:
            remove_replaced(storage, [key for keys in wanted.values() for key in keys])
    found = {name: _found(keys, index) for name, keys in wanted.items()}
    known = {day for by_day in found.values() for day in by_day}
    lost = {key.day for keys in wanted.values() for key in keys if key not in index}
    count = DayCount(len(known - touched), len(touched), len(lost))
    return StoredSummaries(spark, storage, count, found)


def events_to_summarise(snapshot: Snapshot, summaries: Sequence[Summary]) -> int:
    """Return the number of events that `summarise` would read."""
    index = read_index(snapshot.storage)
    wanted = _wanted(summaries, snapshot, index)
    days = {key.day for keys in wanted.values() for key in _stale(keys, index)}
    return sum(snapshot.days[day].rows for day in days)


def _wanted(
    summaries: Sequence[Summary], snapshot: Snapshot, index: Index
) -> dict[str, dict[Key, tuple[str, ...]]]:
    """Return all keys of each summary, with the files of their events; none for retired events."""
    stored: dict[tuple[str, str, str], list[str]] = {}
    for key in index:
        stored.setdefault((key.name, key.shape, key.day), []).append(key.content)
    wanted: dict[str, dict[Key, tuple[str, ...]]] = {each.name: {} for each in summaries}
    shapes = {each.name: each.shape for each in summaries}
    for day in {*snapshot.days, *(day for _, _, day in stored)}:
        live, retired = snapshot.days.get(day), snapshot.retired(day)
        for name, shape in shapes.items():
            of = (name, shape, day)
            for content in retired_contents(stored.get(of, ()), retired):
                wanted[name][Key(*of, content)] = ()
            if live is not None:
                content = content_of(retired, retired + live.rows)
                wanted[name][Key(*of, content)] = live.files
    return wanted


def _stale(wanted: Mapping[Key, tuple[str, ...]], index: Index) -> dict[Key, tuple[str, ...]]:
    """Select the keys whose rows are not stored and can be computed."""
    return {key: files for key, files in wanted.items() if files and key not in index}


def _found(wanted: Iterable[Key], index: Index) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for key in wanted:
        if key in index:
            found.setdefault(key.day, {}).update(index[key].files)
    return found


def _batches(days: Iterable[str], snapshot: Snapshot) -> Iterator[list[str]]:
    """Divide days, the latest first, into those that are summarised together."""
    batch: list[str] = []
    events = 0
    for day in sorted(days, reverse=True):
        if len(batch) >= DAYS_AT_ONCE and events >= EVENTS_AT_ONCE:
            yield batch
            batch, events = [], 0
        batch.append(day)
        events += snapshot.days[day].rows
    yield batch


def _groups(days: Iterable[str], snapshot: Snapshot) -> list[list[str]]:
    """Divide days into groups, in order, each of at most `FILE_EVENTS` events or one day."""
    groups: list[list[str]] = []
    events = 0
    for day in sorted(days):
        events += snapshot.days[day].rows
        if groups and events <= FILE_EVENTS:
            groups[-1].append(day)
        else:
            groups.append([day])
            events = snapshot.days[day].rows
    return groups


def _compute_days(
    spark: SparkSession,
    snapshot: Snapshot,
    summaries: Iterable[Summary],
    stale: Mapping[str, Mapping[Key, tuple[str, ...]]],
    groups: Sequence[Sequence[str]],
) -> None:
    """Compute the stale summaries of some days, and store each group of days in one file."""
    tables, attempt = snapshot.storage, secrets.token_hex(8)
    days = {day for group in groups for day in group}
    chosen = {
        name: {key: files for key, files in keys.items() if key.day in days}
        for name, keys in stale.items()
    }
    files = sorted({path for keys in chosen.values() for paths in keys.values() for path in paths})
    day_text = F.col(DAY.name).cast("string")
    file_of_day = F.coalesce(*(F.when(day_text <= each[-1], each[0]) for each in groups))

    def write(summary: Summary) -> dict[Key, dict[str, int]]:
        keys = {key.day: key for key in chosen[summary.name]}
        events = divided.where(day_text.isin(*keys)) if keys.keys() < days else divided
        rows = conform(summary.compute(events), StructType([*summary.schema.fields, DAY]))
        rows = rows.withColumn(_OF, file_of_day)
        if parts > 1:
            rows = rows.repartition(_OF)  # for one file of a group
        folder = f"{FOLDER}/{attempt}/{summary.name}"
        written: dict[str, dict[str, int]] = {group[0]: {} for group in groups}
        for path, size in write_files(rows, tables, folder, _OF).items():
            written[path.split("/")[-2].removeprefix(f"{_OF}=")][path] = size
        return {keys[day]: written[group[0]] for group in groups for day in group if day in keys}

    with without_repartitioning(spark):
        rows = read_event_files(spark, snapshot, files)
        parts = -(-size_of(rows) // PART)
        with _divided(rows, parts) as divided, ThreadPoolExecutor(AT_ONCE) as pool:
            added = pool.map(write, (each for each in summaries if chosen[each.name]))
            add_entries(tables, attempt, {key: it for each in added for key, it in each.items()})


@contextmanager
def _divided(events: DataFrame, parts: int) -> Iterator[DataFrame]:
    """Yield the events, read once for all summaries, sorted, in the number `parts` of partitions.

    All events of a day and a gateway are in one partition. The rows are on disk: in memory, they
    would leave the JVM too little heap.
    """
    divided = events.repartition(parts, DAY.name, "gateway") if parts > 1 else events.coalesce(1)
    divided = divided.sortWithinPartitions(DAY.name, "gateway", "epoch", "lane", "seq")
    divided.persist(StorageLevel.DISK_ONLY)
    try:
        divided.count()
        yield divided
    finally:
        divided.unpersist()
