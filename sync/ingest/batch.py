"""Ingest one batch of files: decode, check against the ledger, write, commit.

Readers see nothing of a batch until the last step commits it to both `events` and `segments`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from deltalake.transaction import AddAction

from sync.common.errors import FleetError
from sync.ingest.ledger import Claim, Verdict, judge
from sync.storage.locations import LANDING
from sync.storage.storage import File
from sync.tables.data_files import create_segments_file
from sync.tables.delta import EVENTS, Batch, Counts, FleetTables, Snapshot
from sync.tables.tables import ACCEPTED

Row = dict[str, Any]

Decode = Callable[[Sequence[File]], list[Row]]
"""A function that decodes files, as `sync.ingest.decoding.decode_files` does."""


ReadLedger = Callable[[Snapshot, Sequence[Claim]], set[Claim]]
"""A function that reads the ledger, as `sync.ingest.ledger.related_claims` does."""


def ingest_batch(
    files: Sequence[File],
    decode: Decode,
    read_ledger: ReadLedger,
    fleet: FleetTables,
    on_step: Callable[[str], None],
) -> Counts:
    """Ingest a batch into the tables of `fleet`; call `on_step` after each step.

    Raises LeaseError if another process has committed a batch meanwhile.
    """
    on_step("began")
    snapshot = fleet.snapshot()
    decoded = decode(files)
    rows = _judge((row for row in decoded if row["added"] is None), snapshot, read_ledger)
    on_step("judged")
    counts = _counts(rows)
    added = _added(decoded)
    if any(row["fate"] not in (ACCEPTED, "bad") for row in rows):
        added = _decode_accepted(files, rows, decode)
        fleet.storage.remove(f"{EVENTS}/{action.path}" for action in _added(decoded))
    segments = create_segments_file(fleet.storage, rows)
    on_step("written")
    fleet.commit(snapshot, Batch(added, segments, counts), lambda: on_step("events"))
    on_step("committed")
    return counts


def _judge(rows: Iterable[Row], snapshot: Snapshot, read_ledger: ReadLedger) -> list[Row]:
    """Decide the result for each file, in the order of arrival; return rows of `SEGMENTS`."""
    rows = sorted(rows, key=itemgetter("arrived", "path"))
    claims = {
        row["path"]: Claim(*(row[name] for name in Claim._fields))
        for row in rows
        if row["reason"] is None and row["path"].startswith(f"{LANDING}/")
    }
    known = read_ledger(snapshot, list(claims.values())) if claims else ()
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


def _decode_accepted(files: Iterable[File], rows: Iterable[Row], decode: Decode) -> list[AddAction]:
    """Decode the accepted files once more, without those that the ledger refused.

    Raises FleetError unless they have the SHA-256 with which they were judged.
    """
    accepted = {row["path"]: row["sha256"] for row in rows if row["fate"] == ACCEPTED}
    chosen = [file for file in files if file.path in accepted]
    decoded = decode(chosen) if chosen else []
    if {row["path"]: row["sha256"] for row in decoded if row["added"] is None} != accepted:
        msg = "a segment changed while it was ingested; nothing was committed; ingest again"
        raise FleetError(msg)
    return _added(decoded)


def _added(decoded: Iterable[Row]) -> list[AddAction]:
    return [AddAction(**json.loads(row["added"])) for row in decoded if row["added"]]


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
