"""Decode segments in Spark's workers: Arrow batches of files in, rows of the tables out.

`decode_files` is the function for Spark's `mapInArrow`. A file becomes a row with its header, or
with the reason why it cannot be read. The events of all files become Parquet files, whose bytes are
returned in further rows, a piece in each. Duplicates are found later, with the ledger.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sync.ingest.arrow_columns import arrow_columns
from sync.segment import SegmentError, SegmentHeader, digest_of
from sync.segment.limits import MAX_FILE, MAX_TIME, MIN_TIME
from sync.tables.arrow_schemas import DECODED, EVENTS, FILES
from sync.tables.part_files import PartFile, PartFiles

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

PIECE_BYTES: Final = 1024 * 1024
"""Maximum bytes of a part file (Parquet, made by a worker) in one row. It is sent to the driver in
several rows, because Spark pickles each row and copies it five times."""

_COPIED: Final = [each.name for each in fields(SegmentHeader) if each.name in FILES.names]
"""Fields of the header that are columns of the table `segments`; some values are converted."""

_OF_FILE: Final = ("gateway", "epoch", "lane", "arrived")
"""Columns of the table `events` that are equal for all events of a file."""


def decode_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read each file once and whole; yield rows of `DECODED`.

    Each file has a row, with the reason if it cannot be read. Other rows are pieces of part files,
    which have the events of all readable files, whether or not the ledger accepts these.
    """
    parts = PartFiles()
    for batch in batches:
        rows = []
        times = batch["modificationTime"].cast(pa.int64()).to_numpy()
        arrivals = np.clip(times, MIN_TIME * 1000, MAX_TIME * 1000).tolist()
        paths, contents = batch["path"].to_pylist(), batch["content"].to_pylist()
        for path, arrived, content in zip(paths, arrivals, contents, strict=True):
            row, days = _decoded(content, arrived)
            digest = hashlib.sha256(content).hexdigest()
            rows.append(
                {**row, "path": path, "arrived": arrived, "size": len(content), "sha256": digest}
            )
            for day, events in days.items():
                yield from _pieces(parts.add(day, events))
        yield pa.RecordBatch.from_pylist(rows, schema=DECODED)
    yield from _pieces(parts.finish())


def _pieces(parts: Iterable[PartFile]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        for start in range(0, len(part.content), PIECE_BYTES):
            piece = part.content[start : start + PIECE_BYTES]
            last = start + PIECE_BYTES >= len(part.content)
            row = {"day": part.day, "events": part.events if last else None, "content": piece}
            yield pa.RecordBatch.from_pylist([row], schema=DECODED)


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
