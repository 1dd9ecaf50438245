"""Arrow schemas of the tables, for processes that run without Spark's Python API."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

TIME: Final = pa.timestamp("us", tz="UTC")
"""The only unit of time that Spark accepts from Arrow."""

TAGS: Final = pa.map_(pa.string(), pa.string())
"""The tags of an event."""

FILES: Final = pa.schema(
    [
        ("path", pa.string()),
        ("arrived", TIME),
        ("size", pa.int64()),
        ("sha256", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("gateway", pa.string()),
        ("epoch", pa.string()),
        ("lane", pa.string()),
        ("first_seq", pa.int64()),
        ("last_seq", pa.int64()),
        ("digest", pa.string()),
        ("previous", pa.string()),
        ("boot", pa.string()),
        ("sealed_at", TIME),
        ("service_seconds", pa.float64()),
        ("clock", pa.bool_()),
        ("firmware", pa.string()),
        ("software", pa.string()),
        ("config_hash", pa.string()),
        ("disk_used", pa.int64()),
        (
            "dropped",
            pa.list_(
                pa.struct(
                    [
                        ("first_seq", pa.int64()),
                        ("last_seq", pa.int64()),
                        ("reason", pa.string()),
                    ]
                )
            ),
        ),
    ]
)
"""A row for each decoded file: the table `segments` without the column `fate`."""

SEGMENTS: Final = FILES.insert(FILES.get_field_index("reason"), pa.field("fate", pa.string()))
"""A row of the table `segments`."""

EVENTS: Final = pa.schema(
    [
        ("gateway", pa.string()),
        ("epoch", pa.string()),
        ("lane", pa.string()),
        ("seq", pa.int64()),
        ("time", TIME),
        ("clock", pa.bool_()),
        ("kind", pa.string()),
        ("source", pa.string()),
        ("topic", pa.string()),
        ("name", pa.string()),
        ("value", pa.float64()),
        ("unit", pa.string()),
        ("level", pa.string()),
        ("text", pa.string()),
        ("qos", pa.int8()),
        ("latency_ms", pa.int64()),
        ("tags", TAGS),
        ("arrived", TIME),
    ]
)
"""A row of the table `events`."""

DECODED: Final = pa.schema(
    [*FILES, ("day", pa.string()), ("events", pa.int64()), ("content", pa.binary())]
)
"""A row for each file, in the columns of `FILES`, or for each piece of a part file, in the other
columns. The pieces of a part file follow each other, and the last one has the number of events."""
