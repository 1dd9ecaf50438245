"""Columns of the tables, and their Arrow schemas, for processes without Spark's Python API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import pyarrow as pa

TIME: Final = pa.timestamp("us", tz="UTC")
"""The type of times: microseconds, the only unit that Spark accepts from Arrow."""

TAGS: Final = pa.map_(pa.string(), pa.string())
"""The tags of an event."""

_TEXT: Final = pa.string()
_LONG: Final = pa.int64()
_RANGE: Final = pa.struct([("first_seq", _LONG), ("last_seq", _LONG), ("reason", _TEXT)])


class Column(NamedTuple):
    """A column of a table. `null` says when it has no value; empty means never."""

    name: str
    kind: pa.DataType
    meaning: str
    unit: str = ""
    null: str = ""


_UNKNOWN: Final = "the gateway does not say"

EVENT_COLUMNS: Final = (
    Column("gateway", _TEXT, "XMPP domain of the gateway"),
    Column("epoch", _TEXT, "series of sequence numbers that `seq` belongs to (a ULID)"),
    Column("lane", _TEXT, "`readings`, `logs` or `system`"),
    Column("seq", _LONG, "sequence number, without gaps in each gateway, epoch and lane", "from 1"),
    Column("time", TIME, "when the event happened, by the gateway's clock", "UTC"),
    Column("clock", pa.bool_(), "whether the gateway's clock was synchronised"),
    Column("kind", _TEXT, "`reading`, `log`, or what the gateway's own event is about"),
    Column("source", _TEXT, "JID, or IP address, that the event is about", null=_UNKNOWN),
    Column("topic", _TEXT, "node, queue or recipient", null=_UNKNOWN),
    Column("name", _TEXT, "name of the reading or of the event", null=_UNKNOWN),
    Column("value", pa.float64(), "value of the reading or of the event", "`unit`", _UNKNOWN),
    Column("unit", _TEXT, "unit of `value`", null="the value has no unit"),
    Column("level", _TEXT, "severity, `Debug` to `Emergency`, as in XEP-0337", null="a reading"),
    Column("text", _TEXT, "text for people", null=_UNKNOWN),
    Column("qos", pa.int8(), "quality of service of the message", "0, 1 or 2", "no message"),
    Column(
        "latency_ms",
        _LONG,
        "time from the acceptance of the message to its delivery",
        "ms",
        _UNKNOWN,
    ),
    Column("tags", TAGS, "further values by name, such as `protocol` and `version` of a session"),
    Column("arrived", TIME, "when the segment arrived, by the centre's clock", "UTC"),
)

DAY: Final = Column(
    "day",
    pa.date32(),
    "day of `time`, or of `arrived` if `time` is more than 366 days before or one day after it; the"
    " table is partitioned by it",
    "UTC",
)

_HEADER_COLUMNS: Final = (
    Column("gateway", _TEXT, "XMPP domain of the gateway"),
    Column("epoch", _TEXT, "series of sequence numbers"),
    Column("lane", _TEXT, "`readings`, `logs` or `system`"),
    Column("first_seq", _LONG, "first sequence number in the segment", "from 1"),
    Column("last_seq", _LONG, "last sequence number in the segment", "from 1"),
    Column("digest", _TEXT, "digest of the segment, hexadecimal"),
    Column("previous", _TEXT, "digest of the segment before it in its lane"),
    Column("boot", _TEXT, "id of the gateway's boot"),
    Column("sealed_at", TIME, "when the segment was sealed, by the gateway's clock", "UTC"),
    Column("service_seconds", pa.float64(), "service time of the gateway at `sealed_at`", "s"),
    Column("clock", pa.bool_(), "whether the gateway's clock was synchronised"),
    Column("firmware", _TEXT, "operating system of the gateway"),
    Column("software", _TEXT, "version of Fieldpost"),
    Column("config_hash", _TEXT, "SHA-256 of the configuration, hexadecimal"),
    Column("disk_used", _LONG, "size of the gateway's folder", "bytes"),
    Column(
        "dropped",
        pa.list_(_RANGE),
        "ranges of events that were deleted before they were sent, and why",
    ),
)

FILE_COLUMNS: Final = (
    Column("path", _TEXT, "path below the fleet folder"),
    Column("arrived", TIME, "when the file arrived, by the centre's clock", "UTC"),
    Column("size", _LONG, "size of the file", "bytes"),
    Column("sha256", _TEXT, "SHA-256 of the file, hexadecimal"),
    Column("reason", _TEXT, "why the file was refused", null="it was not refused"),
    Column("detail", _TEXT, "details of the reason", null="it was not refused"),
    *(each._replace(null="the file is `bad`") for each in _HEADER_COLUMNS),
)

FATE: Final = Column(
    "fate", _TEXT, "`accepted`, `duplicate`, `fork` (contradicts an accepted segment) or `bad`"
)
BATCH: Final = Column("batch", _LONG, "number of the batch that examined the file", "from 1")
SEGMENT_COLUMNS: Final = (*FILE_COLUMNS[:4], FATE, *FILE_COLUMNS[4:], BATCH)


def _schema(columns: Iterable[Column]) -> pa.Schema:
    return pa.schema([(each.name, each.kind) for each in columns])


EVENTS: Final = _schema(EVENT_COLUMNS)
"""A row of the table `events`, without its day."""

FILES: Final = _schema(FILE_COLUMNS)
"""A row about one decoded file, with the columns of `SEGMENTS` except `fate` and `batch`."""

SEGMENTS: Final = _schema(SEGMENT_COLUMNS)
"""A row of the table `segments`."""

DECODED: Final = pa.schema([*FILES, ("misdated", _LONG), ("added", _TEXT)])
"""Rows that decoding returns. A row describes one file, and has in `misdated` the number of its
events with an implausible time; or it has in `added` the action of Delta Lake, as JSON, that adds a
new data file with the events of many segments of a day."""
