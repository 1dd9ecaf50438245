"""The table of the gateway's Prometheus metrics.

No device, node or queue is a label, so that every gateway has the same number of time series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

from edge.web.status_snapshot import ProcessFigures, Snapshot
from sync.common.metrics import COUNTER, GAUGE, HISTOGRAM, Family, exposition, labels

PREFIX: Final = "fieldpost_"

Samples: TypeAlias = Iterable[tuple[str, float]]


class Metric(NamedTuple):
    """A metric: its name without the prefix, its kind, its help text, and its samples."""

    name: str
    kind: str
    help: str
    samples: Callable[[Snapshot, ProcessFigures], Samples]


def format_metrics(snapshot: Snapshot, process: ProcessFigures) -> str:
    """Return all metrics in the text format of Prometheus."""
    families = (
        Family(each.name, each.kind, each.help, each.samples(snapshot, process)) for each in METRICS
    )
    return exposition(PREFIX, families)


def _one(value: float | None) -> Samples:
    return [] if value is None else [("", value)]


def _limits(snapshot: Snapshot, *, allowed: bool) -> Samples:
    for limit in snapshot.status.limits:
        if limit.used is not None:
            yield labels(limit=limit.name), limit.allowed if allowed else limit.used.value


def _lanes(snapshot: Snapshot, field: str) -> Samples:
    return [(labels(lane=lane.lane), getattr(lane, field)) for lane in snapshot.lanes]


METRICS: Final = (
    Metric(
        "info",
        GAUGE,
        "Version of the running gateway, and whether it is compiled or pure, as labels; always 1.",
        lambda _, process: [
            (labels(version=process.status.version, build=process.status.build), 1)
        ],
    ),
    Metric(
        "uptime_seconds",
        GAUGE,
        "Seconds since the start of the gateway.",
        lambda _, process: _one(process.status.uptime),
    ),
    Metric(
        "service_seconds_total",
        COUNTER,
        "Seconds that the gateway has been running in its life.",
        lambda _, process: _one(process.status.service),
    ),
    Metric(
        "clock_synchronised",
        GAUGE,
        "1 if the wall clock is synchronised, else 0.",
        lambda _, process: _one(process.status.synchronised),
    ),
    Metric(
        "listener_up",
        GAUGE,
        "1 if devices can connect, else 0.",
        lambda _, process: _one(process.accepts_devices),
    ),
    Metric(
        "resident_memory_bytes",
        GAUGE,
        "Resident memory of the gateway's process in bytes.",
        lambda _, process: _one(process.resident),
    ),
    Metric(
        "event_loop_lag_seconds",
        GAUGE,
        "Largest event-loop delay in the last minute, in seconds.",
        lambda _, process: _one(process.loop_lag),
    ),
    Metric(
        "stanzas_total",
        COUNTER,
        "Stanzas received from devices.",
        lambda _, process: _one(process.stanzas),
    ),
    Metric(
        "rate_limited_connections",
        GAUGE,
        "Connections that are not read at the moment because they exceed a rate limit.",
        lambda snapshot, _: _one(snapshot.status.paused),
    ),
    Metric(
        "waiting",
        GAUGE,
        "Number of waiting messages, queue items, events and segments, by state.",
        lambda snapshot, _: [
            (labels(state=state), count)
            for state, count in snapshot.status.waiting._asdict().items()
        ],
    ),
    Metric(
        "limit_used",
        GAUGE,
        "Used part of a limit from [limits], in the unit of the option; for a limit per source, of"
        " the source that uses most.",
        lambda snapshot, _: _limits(snapshot, allowed=False),
    ),
    Metric(
        "limit_allowed",
        GAUGE,
        "Value of a limit from [limits], in the unit of the option.",
        lambda snapshot, _: _limits(snapshot, allowed=True),
    ),
    Metric(
        "transactions_total",
        COUNTER,
        "Database transactions, including those without a change.",
        lambda _, process: _one(process.transactions),
    ),
    Metric(
        "commits_total",
        COUNTER,
        "Database transactions that changed rows.",
        lambda _, process: _one(process.commits),
    ),
    Metric(
        "commit_duration_seconds",
        HISTOGRAM,
        "Duration of a commit in seconds, including its fsync.",
        lambda _, process: process.commit_times.samples(),
    ),
    Metric(
        "commit_delay_seconds",
        GAUGE,
        "Delay in seconds by which commits are batched to spare the card.",
        lambda _, process: _one(process.commit_delay),
    ),
    Metric(
        "written_bytes_total",
        COUNTER,
        "Bytes that the process wrote to disks, as counted by the kernel.",
        lambda _, process: _one(process.written.process),
    ),
    Metric(
        "database_written_bytes_total",
        COUNTER,
        "Bytes that the database wrote to its files.",
        lambda _, process: _one(process.written.thread),
    ),
    Metric(
        "written_bytes_per_second",
        GAUGE,
        "Average bytes per second that the process wrote in the last hour.",
        lambda _, process: _one(process.write_rate),
    ),
    Metric(
        "database_bytes",
        GAUGE,
        "Size of the database in bytes, without its write-ahead log.",
        lambda snapshot, _: _one(snapshot.status.database_bytes),
    ),
    Metric(
        "wal_bytes",
        GAUGE,
        "Size of the database's write-ahead log in bytes.",
        lambda snapshot, _: _one(snapshot.status.wal_bytes),
    ),
    Metric(
        "disk_free_bytes",
        GAUGE,
        "Free bytes on the database's file system.",
        lambda snapshot, _: _one(snapshot.status.disk_bytes),
    ),
    Metric(
        "events_total",
        COUNTER,
        "Events logged in a lane since its epoch began.",
        lambda snapshot, _: _lanes(snapshot, "last"),
    ),
    Metric(
        "events_sealed_total",
        COUNTER,
        "Events of a lane that were sealed into segments since its epoch began.",
        lambda snapshot, _: _lanes(snapshot, "sealed"),
    ),
    Metric(
        "backlog_segments",
        GAUGE,
        "Segments of a lane waiting for the centre.",
        lambda snapshot, _: _lanes(snapshot, "segments"),
    ),
    Metric(
        "backlog_bytes",
        GAUGE,
        "Bytes of a lane's segments waiting for the centre.",
        lambda snapshot, _: _lanes(snapshot, "bytes"),
    ),
    Metric(
        "uplink_last_upload_timestamp_seconds",
        GAUGE,
        "Time of the last segment that the centre accepted, in seconds since 1970 UTC.",
        lambda snapshot, _: _one(snapshot.last_upload and snapshot.last_upload / 1000),
    ),
)
