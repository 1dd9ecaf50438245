"""The tables `events` and `segments` as Delta Lake tables that change together, batch by batch.

A batch is committed to `events` first, then to `segments`. Both commits have the application
transaction (`ingest`, number of the batch). The new file of `segments` is durable before the first
commit, which contains the action that adds it: if a process dies between the two commits, the next
process completes its batch. Two processes that judged files by the same ledger use the same number
for their batches, so Delta Lake refuses the second one
(docs/explanation/decisions/0042-delta-lake.md).
"""

from __future__ import annotations

import contextlib
import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, astuple, dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction
from pyarrow import dataset, fs

from sync.common.errors import FleetError, LeaseError
from sync.storage.local import LocalStorage
from sync.storage.locations import ARCHIVE, LANDING
from sync.storage.storage import Storage
from sync.tables import arrow_schemas
from sync.tables.log_journal import journaled, repair

EVENTS: Final = "events"
SEGMENTS: Final = "segments"
"""`EVENTS` and `SEGMENTS`: the names of the tables, and of their folders below the tables'
folder."""

DAY: Final = arrow_schemas.DAY.name
"""The column by which `events` is partitioned: the event's day in UTC."""

INGEST: Final = "ingest"
"""The application transaction whose version, in both tables, is the number of the last batch."""

ARCHIVED: Final = "archived"
"""Name of an application transaction of `segments`. Its version is the number of the last batch of
which all files have left the landing."""

RETIRED: Final = "retired"
"""Prefix of the application transactions `retired/DAY` of `events`, whose version is the number of
the day's rows that retention has removed. They stay when old commits are removed from the log."""

KEPT_DAYS: Final = 7
"""Days for which a file that was removed from a table is kept, for readers that still use it."""

CONFIGURATION: Final = {
    "delta.deletedFileRetentionDuration": f"interval {KEPT_DAYS} days",
    "delta.logRetentionDuration": "interval 30 days",
    "delta.checkpointInterval": "10",
}
"""Properties of both tables. A checkpoint every 10 commits shortens reading the log: in an object
store, each commit after the last checkpoint takes two requests whenever a table is opened."""

HOOKS: Final = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)
"""Actions after a commit: create checkpoints, but remove no old commits. Maintenance removes those
when the checkpoint that replaces them is durable."""

GUIDE: Final = "see docs/how-to/maintain-the-tables.md"
"""The end of error messages: where the operator finds how to repair or rebuild the tables."""

SCHEMAS: Final = {
    name: pa.schema(
        pa.field(each.name, each.kind, metadata={"comment": each.meaning}) for each in columns
    )
    for name, columns in (
        (EVENTS, [*arrow_schemas.EVENT_COLUMNS, arrow_schemas.DAY]),
        (SEGMENTS, arrow_schemas.SEGMENT_COLUMNS),
    )
}
PARTITIONS: Final[dict[str, list[str]]] = {EVENTS: [DAY], SEGMENTS: []}

_COLOUR: Final = re.compile("\x1b\\[[0-9;]*m↳?")

_UNUSABLE: Final = re.compile("%[0-9A-Fa-f]{2}|[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of the files that a batch read, by result, and of the events that it wrote.

    `misdated` events have an implausible time, and therefore the day of their arrival.
    """

    segments: int = 0
    events: int = 0
    duplicates: int = 0
    quarantined: int = 0
    misdated: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*map(operator.add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of ingested files: the Delta actions that add its rows, and its `Counts`."""

    events: Sequence[AddAction]
    segments: AddAction
    counts: Counts = Counts()


@dataclass(frozen=True, slots=True)
class Day:
    """The events of a day: their files (below the tables' folder), and their number.

    `written` is when the newest file was written. `retired` is the number of rows of this day that
    retention has removed.
    """

    files: tuple[str, ...]
    rows: int
    written: datetime
    retired: int


@dataclass(frozen=True)
class Snapshot:
    """The tables `events` and `segments` after the same batch; None for one that does not exist."""

    storage: Storage
    events: DeltaTable | None
    segments: DeltaTable | None

    @property
    def batch(self) -> int:
        """The number of the last batch; 0 if there is none."""
        return _version_of(self.segments, INGEST)

    @cached_property
    def days(self) -> Mapping[str, Day]:
        """The days (UTC, `YYYY-MM-DD`) that have events, in order."""
        found: dict[str, list[dict[str, Any]]] = {}
        for row in _files(self.events, f"partition.{DAY}"):
            found.setdefault(row[f"partition.{DAY}"].isoformat(), []).append(row)
        return {
            day: Day(
                tuple(sorted(f"{EVENTS}/{row['path']}" for row in rows)),
                sum(row["num_records"] for row in rows),
                datetime.fromtimestamp(max(row["modification_time"] for row in rows) / 1000, UTC),
                self.retired(day),
            )
            for day, rows in sorted(found.items())
        }

    @property
    def rows(self) -> int:
        """The number of events in the table `events`."""
        return sum(day.rows for day in self.days.values())

    @property
    def event_files(self) -> tuple[str, ...]:
        """The paths of the files of the table `events`, relative to the tables' folder."""
        return tuple(path for day in self.days.values() for path in day.files)

    @property
    def segment_files(self) -> tuple[str, ...]:
        """The paths of the files of the table `segments`, relative to the tables' folder."""
        return tuple(sorted(path for path in self.sizes if path.startswith(f"{SEGMENTS}/")))

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """The sizes in bytes of the files of both tables, by path."""
        return {
            f"{name}/{row['path']}": row["size_bytes"]
            for name, table in ((EVENTS, self.events), (SEGMENTS, self.segments))
            for row in _files(table)
        }

    def retired(self, day: str) -> int:
        """Return how many rows of a day (`YYYY-MM-DD`) retention has removed."""
        return _version_of(self.events, f"{RETIRED}/{day}")

    def read_segments(self, columns: Sequence[str], filter: Any = None) -> list[dict[str, Any]]:
        """Read rows of `segments` without Spark; files that `filter` excludes are not opened."""
        batches = self.segment_batches(columns, filter)
        return [row for batch in batches for row in batch.to_pylist()]

    def segment_batches(
        self, columns: Sequence[str], filter: Any = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `read_segments`. Raises FleetError if a file cannot be read."""
        for file, schema in self._segment_fragments(filter):
            try:
                yield from file.to_batches(schema, columns=list(columns), filter=filter)
            except (pa.ArrowException, OSError) as error:
                path = self.storage.uri(f"{SEGMENTS}/{file.path}")
                msg = f"{path} is missing or damaged ({_line(error)}); {GUIDE}"
                raise FleetError(msg) from error

    def segment_files_with(self, filter: Any) -> dict[str, int]:
        """Return the files of `segments` that can have rows for `filter`: their sizes by path."""
        paths = [f"{SEGMENTS}/{file.path}" for file, _ in self._segment_fragments(filter)]
        return {path: self.sizes[path] for path in paths}

    def _segment_fragments(self, filter: Any) -> Iterator[tuple[dataset.Fragment, pa.Schema]]:
        if self.segments is None:
            return
        files = None
        if isinstance(self.storage, LocalStorage):  # a process may abort that ends amid delta-rs'
            files = fs.SubTreeFileSystem(self.storage.uri(SEGMENTS), fs.LocalFileSystem())
        with delta_errors(self.storage):
            rows = self.segments.to_pyarrow_dataset(filesystem=files)
        for file in rows.get_fragments(filter):
            yield file, rows.schema


class FleetTables:
    """The tables `events` and `segments` in one storage.

    Callers of methods that write should hold the lease, so that no work is done twice.
    """

    def __init__(self, storage: Storage, segments: Storage | None = None) -> None:
        """Open the tables in `storage`; `segments` has the archive, which shows if tables are lost.

        Raises FleetError for a path that delta-rs cannot read, or would decode as percent-encoded.
        """
        self.storage = storage
        self._archive = segments
        if isinstance(storage, LocalStorage) and _UNUSABLE.search(str(storage.root)):
            raise FleetError(
                f"{storage.root} cannot have tables, because its path has `%` before two "
                "hexadecimal digits, or is not UTF-8; rename or move the folder"
            )

    def lease(self, wait_s: float = 0.0) -> AbstractContextManager[None]:
        """Hold the lease within the block; see `Storage.lease`."""
        return self.storage.lease(wait_s)

    def snapshot(self, as_of: datetime | None = None) -> Snapshot:
        """Return the latest versions of both tables that have the same batches, up to `as_of`.

        Old files are kept for `KEPT_DAYS`: an `as_of` before that is ignored. Raises FleetError if
        the tables cannot be read, are lost in part, or do not belong together.
        """
        with delta_errors(self.storage):
            segments, events = self._open_both()
            if as_of is not None and as_of >= datetime.now(UTC) - timedelta(days=KEPT_DAYS):
                for table in (segments, events):
                    if table is not None:
                        table.load_as_version(as_of)
            batch = _version_of(segments, INGEST)
            while events is not None and _version_of(events, INGEST) > batch:
                events.load_as_version(events.version() - 1)
            return Snapshot(self.storage, events, segments)

    def recover(self) -> None:
        """Create missing tables, and complete the batch of an interrupted process.

        Raises FleetError if the tables are lost in part, or do not belong together.
        """
        if isinstance(self.storage, LocalStorage):
            repair(self.storage)
        with delta_errors(self.storage):
            for name, table in zip((SEGMENTS, EVENTS), self._open_both(), strict=True):
                if table is None:
                    with self.journaled(name):
                        self._create(name)
            events, segments = self.existing(EVENTS), self.existing(SEGMENTS)
            if _version_of(events, INGEST) > _version_of(segments, INGEST):
                self._complete(events, segments)

    def commit(
        self, snapshot: Snapshot, batch: Batch, on_events: Callable[[], None] = lambda: None
    ) -> None:
        """Add a batch that was checked against the ledger of `snapshot`. Its files must be durable.

        `on_events` runs between the commits to `events` and `segments`. Adds nothing and raises
        LeaseError if a batch was committed after `snapshot`, FileNotFoundError if a file is gone.
        """
        number = snapshot.batch + 1
        transactions = [Transaction(INGEST, number)]
        details = {"batch": number, **asdict(batch.counts)}
        self._require_files(batch)
        addition = {"segments_file": asdict(batch.segments)}
        with self.journaled(EVENTS, SEGMENTS) as make_durable:
            self.append(snapshot.events, EVENTS, batch.events, transactions, details | addition)
            make_durable(EVENTS)
            on_events()
            try:
                self.append(snapshot.segments, SEGMENTS, [batch.segments], transactions, details)
            except LeaseError:
                if self.snapshot().batch < number:  # no other driver has completed this batch
                    raise

    def unarchived(self) -> int:
        """Return the number of batches after the last one that `mark_archived` recorded."""
        with delta_errors(self.storage):
            segments = self.open(SEGMENTS)
            return _version_of(segments, INGEST) - _version_of(segments, ARCHIVED)

    def mark_archived(self, number: int) -> None:
        """Record that the files of all batches up to the batch `number` have left the landing."""
        with self.journaled(SEGMENTS):
            self.append(self.existing(SEGMENTS), SEGMENTS, [], [Transaction(ARCHIVED, number)], {})

    def clean_log(self, name: str) -> None:
        """Remove from a table's log the old commits whose content is in a durable checkpoint."""
        with delta_errors(self.storage):
            self.existing(name).cleanup_metadata()

    def open(self, name: str) -> DeltaTable | None:
        """Open a table; return None if it does not exist."""
        try:
            return DeltaTable(self.storage.uri(name))
        except TableNotFoundError:
            return None

    def existing(self, name: str) -> DeltaTable:
        """Open a table. Raises FleetError if it does not exist."""
        table = self.open(name)
        if table is None:
            raise FleetError(f"there is no table {self.storage.uri(name)}")
        return table

    def journaled(self, *names: str) -> AbstractContextManager[Callable[[str], None]]:
        """Make the block's commits to these tables durable; see `sync.tables.log_journal`."""
        if isinstance(self.storage, LocalStorage):
            return journaled(self.storage, names)
        return contextlib.nullcontext(lambda name: None)

    def added_files(self, name: str, after: int, until: int) -> Iterator[str]:
        """Yield the files with new rows that were added after version `after`, up to `until`.

        Raises FileNotFoundError if a commit is no longer in the log.
        """
        for version in range(after + 1, until + 1):
            for action in read_commit(self.storage, name, version):
                if action.get("add", {}).get("dataChange"):
                    yield f"{name}/{action['add']['path']}"

    def _open_both(self) -> tuple[DeltaTable | None, DeltaTable | None]:
        """Open `segments` and `events`. Raises FleetError unless they are whole and match.

        `events` is opened last, because it is committed first: so it is never behind `segments`. If
        it is more than one batch ahead, another process may have committed meanwhile: the batch of
        `segments` is read once more, and must then be at most one behind.
        """
        self._require_whole_logs()
        segments, events = self.open(SEGMENTS), self.open(EVENTS)
        first, last = _version_of(segments, INGEST), _version_of(events, INGEST)
        missing = last > 0 and (segments is None or events is None)
        ahead = last > first + 1 and last > self._batch_of_segments() + 1
        if first > last or missing or ahead:
            raise FleetError(
                f"the tables in {self.storage.uri()} do not belong together (batch {last} of events"
                f", {first} of segments): one of them is lost or was restored; {GUIDE}"
            )
        if not last and self._is_lost():
            raise FleetError(
                f"the tables in {self.storage.uri()} are lost: the archive has segments, and they "
                f"have none; {GUIDE}"
            )
        return segments, events

    def _batch_of_segments(self) -> int:
        return _version_of(self.open(SEGMENTS), INGEST)

    def _require_whole_logs(self) -> None:
        """Raise FleetError if a commit is empty: delta-rs skips it, and its rows with it."""
        for name in SCHEMAS:
            for file in self.storage.files(f"{name}/_delta_log", ".json"):
                if not file.size:
                    raise FleetError(f"the commit {self.storage.uri(file.path)} is empty; {GUIDE}")

    def _is_lost(self) -> bool:
        """Return whether the tables are empty, but the archive has segments the landing lacks."""
        if self._archive is None:
            return False
        archived, waiting = (
            {file.path.partition("/")[2] for file in self._archive.files(folder)}
            for folder in (ARCHIVE, LANDING)
        )
        return not archived <= waiting and not self._batch_of_segments()

    def _require_files(self, batch: Batch) -> None:
        """Raise FileNotFoundError if a file is gone, deleted while this process was suspended."""
        events = (f"{EVENTS}/{each.path}" for each in batch.events)
        for path in (f"{SEGMENTS}/{batch.segments.path}", *events):
            if not self.storage.exists(path):
                msg = f"{self.storage.uri(path)} is gone; nothing was committed; ingest again"
                raise FileNotFoundError(msg)

    def _create(self, name: str) -> None:
        try:
            DeltaTable.create(
                self.storage.uri(name),
                SCHEMAS[name],
                partition_by=PARTITIONS[name],
                configuration=CONFIGURATION,
            )
        except DeltaError:
            if self.open(name) is None:  # no other process was faster
                raise

    def _complete(self, events: DeltaTable, segments: DeltaTable) -> None:
        """Commit to `segments` the batch that is only in `events`, exactly as it was judged."""
        number = _version_of(segments, INGEST) + 1
        for version in range(events.version(), -1, -1):
            actions = read_commit(self.storage, EVENTS, version)
            info: dict[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
            if info.get("batch") == number and "segments_file" in info:
                break
        else:
            msg = f"no commit of {self.storage.uri(EVENTS)} has the batch {number}; {GUIDE}"
            raise FleetError(msg)
        file = AddAction(**info["segments_file"])
        path = f"{SEGMENTS}/{file.path}"
        if not self.storage.exists(path):
            raise FleetError(f"{self.storage.uri(path)} of an unfinished batch is gone; {GUIDE}")
        with self.journaled(SEGMENTS):
            details = {name: info.get(name, 0) for name in ("batch", *asdict(Counts()))}
            self.append(segments, SEGMENTS, [file], [Transaction(INGEST, number)], details)

    def append(
        self,
        table: DeltaTable | None,
        name: str,
        actions: Sequence[AddAction],
        transactions: Sequence[Transaction],
        details: Mapping[str, Any],
    ) -> None:
        """Commit `actions`, application `transactions`, and `details` as metadata, to `table`.

        Raises LeaseError if others have committed since its opening, FleetError if `table` is None.
        """
        if table is None:
            raise FleetError(f"there is no table {self.storage.uri(name)}")
        properties = CommitProperties(
            custom_metadata=dict(details), app_transactions=list(transactions)
        )
        with delta_errors(self.storage):
            table.create_write_transaction(
                [*actions],
                "append",
                table.schema(),
                PARTITIONS[name],
                commit_properties=properties,
                post_commithook_properties=HOOKS,
            )


def read_commit(storage: Storage, name: str, version: int) -> list[dict[str, Any]]:
    """Read the actions of a commit. Raises FileNotFoundError if the log no longer has it."""
    text = storage.read(f"{name}/_delta_log/{version:020}.json")
    return [json.loads(line) for line in text.splitlines()]


@contextlib.contextmanager
def delta_errors(storage: Storage) -> Iterator[None]:
    """Raise a conflict of commits as LeaseError, and delta-rs' other errors as FleetError."""
    try:
        yield
    except CommitFailedError as error:
        msg = f"another process has changed the tables meanwhile, so try again: {_line(error)}"
        raise LeaseError(msg) from error
    except (DeltaError, OSError) as error:
        if isinstance(error, OSError) and (error.errno or type(error) is not OSError):
            raise
        msg = f"the tables in {storage.uri()} cannot be used: {_line(error)}; {GUIDE}"
        raise FleetError(msg) from error


def local_tables(folder: Path) -> FleetTables:
    """Return the tables in a folder of a local disk; the archive, if any, is beside the folder."""
    return FleetTables(LocalStorage(folder.resolve()), LocalStorage(folder.parent.resolve()))


def _line(error: Exception) -> str:
    """Return the text of an error in one line, without delta-rs' colours and stack."""
    text = " ".join(_COLOUR.sub("", str(error)).split())
    return text.partition(" 0: ")[0][:300] or type(error).__name__


def _version_of(table: DeltaTable | None, app: str) -> int:
    return 0 if table is None else table.transaction_version(app) or 0


def _files(table: DeltaTable | None, *columns: str) -> list[dict[str, Any]]:
    if table is None:
        return []
    chosen = ["path", "size_bytes", "modification_time", "num_records", *columns]
    rows: list[dict[str, Any]] = (
        pa.table(table.get_add_actions(flatten=True)).select(chosen).to_pylist()
    )
    return rows
