"""Ingest one batch of files: decode, check against the ledger, write, commit.

Readers see nothing of a batch until the last step commits it to both `events` and `segments`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any

from deltalake.transaction import AddAction

from sync.common.errors import FleetError
from sync.ingest.batch_files import BatchFiles
from sync.ingest.ledger import Claim, Verdict, judge, related_claims
from sync.tables.data_files import create_event_files, create_segments_file
from sync.tables.delta import Batch, Counts, FleetTables, Snapshot
from sync.tables.locations import LANDING
from sync.tables.part_files import PartFile
from sync.tables.storage import Storage
from sync.tables.tables import ACCEPTED

Row = dict[str, Any]


def ingest_batch(files: BatchFiles, fleet: FleetTables, on_step: Callable[[str], None]) -> Counts:
    """Ingest a batch into the tables of `fleet`; call `on_step` after each step.

    Raises LeaseError if another process has committed a batch meanwhile.
    """
    on_step("began")
    snapshot = fleet.snapshot()
    rows = _judge(files.rows(), snapshot)
    on_step("judged")
    counts = _counts(rows)
    events = _write_events(files, rows, counts.events, fleet.storage)
    segments = create_segments_file(fleet.storage, rows)
    on_step("written")
    fleet.commit(snapshot, Batch(events, segments, counts), lambda: on_step("events"))
    on_step("committed")
    return counts


def _judge(rows: Iterable[Row], snapshot: Snapshot) -> list[Row]:
    """Decide the result for each file, in the order of arrival; return rows of `SEGMENTS`."""
    rows = sorted(rows, key=itemgetter("arrived", "path"))
    claims = {
        row["path"]: Claim(*(row[name] for name in Claim._fields))
        for row in rows
        if row["reason"] is None and row["path"].startswith(f"{LANDING}/")
    }
    known = related_claims(snapshot, list(claims.values())) if claims else ()
    verdicts = dict(zip(claims, judge(claims.values(), known), strict=True))
    return [
        row | _result(row, verdicts.get(row["path"])) | {"batch": snapshot.batch + 1}
        for row in rows
    ]


def _result(row: Row, verdict: Verdict | None) -> Row:
    """Return the columns with a file's result: a file without a verdict was set aside as a fork."""
    if row["reason"] is not None:
        return {"fate": "bad"}
    if verdict is None:
        verdict = Verdict("fork", "the receiver has a different file with this name")
    if verdict.fate == "fork":
        return {"fate": "fork", "reason": "fork", "detail": verdict.detail}
    return {"fate": verdict.fate}


def _write_events(
    files: BatchFiles, rows: Iterable[Row], events: int, storage: Storage
) -> list[AddAction]:
    """Write the events of accepted files, `events` in number; return the actions that add them.

    Decoding has made part files with the events of all files that could be read. If the ledger
    refused one of these files, the accepted ones are decoded once more.
    """
    accepted = {row["path"]: row["sha256"] for row in rows if row["fate"] == ACCEPTED}
    if not accepted:
        return []
    refused = any(row["fate"] not in (ACCEPTED, "bad") for row in rows)
    pieces = files.pieces(accepted if refused else None)
    return create_event_files(storage, _part_files(pieces, accepted, events))


def _part_files(
    decoded: Iterable[Mapping[str, Any]], accepted: Mapping[str, str], events: int
) -> Iterator[PartFile]:
    """Assemble the part files from `decoded` rows; hold those of one Spark task in memory.

    Raises FleetError unless all files in `accepted` were read with the SHA-256 given there, and the
    part files have `events` events. All rows of a task come from one run of it, even if Spark has
    repeated the task.
    """
    read: dict[str, str] = {}
    pieces: list[bytes] = []
    for row in decoded:
        if row["path"] is not None:
            read[row["path"]] = row["sha256"]
            continue
        pieces.append(row["content"])
        if row["events"] is not None:
            events -= row["events"]
            yield PartFile(row["day"], row["events"], b"".join(pieces))
            pieces = []
    if events or not accepted.items() <= read.items():
        msg = "a segment changed while it was ingested; nothing was committed; ingest again"
        raise FleetError(msg)


def _counts(rows: Iterable[Row]) -> Counts:
    outcomes = [row["fate"] for row in rows]
    accepted = [row for row in rows if row["fate"] == ACCEPTED]
    return Counts(
        segments=outcomes.count("accepted"),
        events=sum(row["last_seq"] - row["first_seq"] + 1 for row in accepted),
        duplicates=outcomes.count("duplicate"),
        quarantined=outcomes.count("bad") + outcomes.count("fork"),
        misdated=sum(row["misdated"] for row in accepted),
    )
