"""Ingest one batch of files: decode, check against the ledger, write, commit.

A reader sees nothing of a batch before it is committed to both tables, which is the last step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from deltalake.transaction import AddAction

from sync.common.errors import FleetError
from sync.ingest.batch_files import BatchFiles
from sync.ingest.ledger import CLAIM_COLUMNS, Claim, Fate, Verdict, judge, related_claims
from sync.tables import tables
from sync.tables.data_files import create_event_files, create_segments_file
from sync.tables.delta import Batch, Counts, FleetTables, Snapshot
from sync.tables.locations import LANDING
from sync.tables.part_files import PartFile
from sync.tables.storage import Storage


class BatchIngest:
    """Ingests the batches of one run, whose files are in `segments`, into the tables of `fleet`.

    `on_step` is called after each step.
    """

    def __init__(
        self,
        segments: Storage,
        fleet: FleetTables,
        on_step: Callable[[str], None],
    ) -> None:
        self._segments = segments
        self._fleet = fleet
        self._on_step = on_step

    def ingest(self, files: BatchFiles) -> Counts:
        """Ingest a batch. Raises LeaseError if another process has committed a batch meanwhile."""
        self._on_step("began")
        snapshot = self._fleet.snapshot()
        with files:
            judged = self._judge(files, snapshot)
            self._on_step("judged")
            events = self._write_events(files, judged)
        rows = ({**each.row, "batch": snapshot.batch + 1} for each in judged)
        segments = create_segments_file(self._fleet.storage, rows)
        self._on_step("written")
        counts = _counts(judged)
        batch = Batch(events, segments, counts)
        self._fleet.commit(snapshot, batch, lambda: self._on_step("events"))
        self._on_step("committed")
        return counts

    def _judge(self, files: BatchFiles, snapshot: Snapshot) -> list[_JudgedFile]:
        """Decide the result for each file, in the order of arrival."""
        rows = sorted(files.rows(), key=itemgetter("arrived", "path"))
        paths = {row["path"]: self._segments.relative(row["path"]) for row in rows}
        claims = {
            row["path"]: Claim(*(row[name] for name in CLAIM_COLUMNS))
            for row in rows
            if row["reason"] is None and PurePosixPath(paths[row["path"]]).parts[0] == LANDING
        }
        offered = list(claims.values())
        known = related_claims(snapshot, offered) if offered else ()
        verdicts = judge(offered, known)
        by_path = dict(zip(claims, verdicts, strict=True))
        return [_judged(row, paths[row["path"]], by_path.get(row["path"])) for row in rows]

    def _write_events(self, files: BatchFiles, judged: Sequence[_JudgedFile]) -> list[AddAction]:
        """Write the events of accepted files; return the actions that add them.

        The part files contain the events of all files that could be read. If the ledger refused one
        of these, the accepted files are decoded once more.
        """
        accepted = {each.uri: each.row["sha256"] for each in judged if each.fate == tables.ACCEPTED}
        if not accepted:
            return []
        refused = any(each.fate not in (tables.ACCEPTED, "bad") for each in judged)
        pieces = files.pieces(list(accepted) if refused else None)
        read: dict[str, str] = {}
        counts: list[int] = []
        actions = create_event_files(self._fleet.storage, self._part_files(pieces, read, counts))
        if not accepted.items() <= read.items() or sum(counts) != _counts(judged).events:
            raise FleetError("a segment changed while it was ingested; nothing was committed")
        return actions

    def _part_files(
        self, decoded: Iterable[Mapping[str, Any]], read: dict[str, str], counts: list[int]
    ) -> Iterator[PartFile]:
        """Yield the part files, with those of one task at a time in memory.

        Fills `read` with the SHA-256 of each file that was read, and `counts` with the numbers of
        events. All rows of a task come from one run of it, even if Spark has repeated the task.
        """
        pieces: list[bytes] = []
        for row in decoded:
            if row["path"] is not None:
                read[row["path"]] = row["sha256"]
                continue
            pieces.append(row["content"])
            if row["events"] is not None:
                counts.append(row["events"])
                yield PartFile(row["day"], row["events"], b"".join(pieces))
                pieces = []


class _JudgedFile(NamedTuple):
    """A file of a batch: Spark's name for it, its result, its events, its row of `SEGMENTS`."""

    uri: str
    fate: Fate
    events: int
    row: Mapping[str, Any]


def _judged(row: Mapping[str, Any], path: str, verdict: Verdict | None) -> _JudgedFile:
    """Combine a decoded row with the verdict; files that were set aside have none."""
    fate: Fate = "fork"
    reason, detail = "fork", "the receiver has a different file with this name"
    if row["reason"] is not None:
        fate, reason, detail = "bad", row["reason"], row["detail"]
    elif verdict is not None:
        fate, reason, detail = verdict.fate, verdict.fate, verdict.detail
    refused = fate in ("bad", "fork")
    events = row["last_seq"] - row["first_seq"] + 1 if fate == tables.ACCEPTED else 0
    why = {"reason": reason, "detail": detail} if refused else {"reason": None, "detail": None}
    return _JudgedFile(row["path"], fate, events, {**row, **why, "path": path, "fate": fate})


def _counts(judged: Sequence[_JudgedFile]) -> Counts:
    fates = [each.fate for each in judged]
    return Counts(
        segments=fates.count("accepted"),
        events=sum(each.events for each in judged),
        duplicates=fates.count("duplicate"),
        quarantined=fates.count("bad") + fates.count("fork"),
    )
