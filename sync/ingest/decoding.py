"""Decode segments, in Spark's workers or in the ingest's own process.

A file becomes a row with its header, or with the reason why it cannot be read. The events of all
readable files become data files of the table `events`, and a row for each of these. Duplicates are
found later, with the ledger.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sync.ingest.arrow_columns import arrow_columns
from sync.segment import SegmentError, SegmentHeader, digest_of
from sync.segment.limits import MAX_FILE, MAX_TIME, MIN_TIME
from sync.storage.storage import File, Storage
from sync.tables.arrow_schemas import DECODED, EVENTS, FILES
from sync.tables.data_files import EventFiles

MAX_DAYS: Final = 32
"""Maximum number of days (UTC) with events of one segment: each day becomes a file, and a segment
with more is refused. A usual one covers minutes; if the clock was set, two or three days."""

BEFORE_D: Final = 366
"""Days before its arrival from which an event's time is taken as its day: no backlog of more than a
year fits a card. A gateway can add to the partitions of so many days, and to no others."""

AHEAD_D: Final = 1
"""Days after its arrival up to which an event's time is taken as its day: a wrong time zone adds
some hours."""

_DAY_US: Final = 86_400_000_000

_COPIED: Final = [each.name for each in fields(SegmentHeader) if each.name in FILES.names]
"""Fields of the header that are columns of the table `segments`; some values are converted."""

_NO_VALUES: Final = dict.fromkeys(DECODED.names)

_OF_FILE: Final = ("gateway", "epoch", "lane", "arrived")
"""Columns of the table `events` that are equal for all events of a file."""


def decode_files(segments: Storage, tables: Storage, files: Iterable[File]) -> list[dict[str, Any]]:
    """Read each file once and whole, and create data files with the events of all readable ones.

    Returns rows of `DECODED`: for each file that exists, with the reason if it cannot be read, and
    for each data file. The data files are durable, and have the events of all readable files,
    whether or not the ledger accepts these.
    """
    created = EventFiles(tables)
    rows: list[dict[str, Any]] = []
    added = []
    for file, content in segments.read_each(files):
        arrived = min(max(round(file.modified * 1000), MIN_TIME), MAX_TIME) * 1000
        row, days = _decoded(content, arrived)
        digest = hashlib.sha256(content).hexdigest()
        known = {"path": file.path, "arrived": arrived, "size": len(content), "sha256": digest}
        rows.append(_NO_VALUES | row | known)
        for day, events in days.items():
            added += created.add(day, events)
    added += created.finish()
    return [*rows, *(_NO_VALUES | {"added": json.dumps(asdict(each))} for each in added)]


def _decoded(content: bytes, arrived: int) -> tuple[dict[str, Any], dict[str, pa.RecordBatch]]:
    """Decode a file; return the columns of its row, and its events by their day in UTC."""
    if len(content) > MAX_FILE:
        return {"reason": "size", "detail": f"more than {MAX_FILE} bytes"}, {}
    try:
        header, columns = arrow_columns(content)
    except SegmentError as error:
        return {"reason": error.reason, "detail": error.text}, {}
    days, misdated = _days(columns["time"], arrived)
    found = np.unique(days)
    if len(found) > MAX_DAYS:
        return {
            "reason": "days",
            "detail": f"events of {len(found)} days, more than {MAX_DAYS}",
        }, {}
    row = {
        **{name: getattr(header, name) for name in _COPIED},
        "sealed_at": header.sealed_at * 1000,
        "digest": digest_of(content).hex(),
        "previous": header.previous.hex(),
        "config_hash": header.config_hash.hex(),
        "dropped": [dropped._asdict() for dropped in header.dropped],
        "misdated": misdated,
    }
    events = _events({**row, "arrived": arrived}, columns)
    if len(found) == 1:
        return row, {str(found[0]): events}
    return row, {str(day): events.filter(pa.array(days == day)) for day in found}


def _days(times: pa.Array, arrived: int) -> tuple[np.ndarray[Any, np.dtype[np.datetime64]], int]:
    """Return the day (UTC) of each event, and the number of events with an implausible time.

    An event whose time is more than `BEFORE_D` days before it arrived (in microseconds since 1970),
    or more than `AHEAD_D` days after, has the day of its arrival. So the number of partitions does
    not depend on what a gateway's clock says.
    """
    at = times.cast(pa.int64()).to_numpy(zero_copy_only=False)
    wrong = (at < arrived - BEFORE_D * _DAY_US) | (at > arrived + AHEAD_D * _DAY_US)
    days = np.where(wrong, arrived, at).astype("M8[us]").astype("M8[D]")
    return days, int(np.count_nonzero(wrong))


def _events(row: Mapping[str, Any], columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    count = len(columns["seq"])
    arrays = [
        pa.repeat(pa.scalar(row[field.name], field.type), count)
        if field.name in _OF_FILE
        else columns[field.name]
        for field in EVENTS
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=EVENTS)
