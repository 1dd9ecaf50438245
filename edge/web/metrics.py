"""The gateway's Prometheus metrics.

No device, node or queue is a label, so that every gateway has the same number of time series.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edge.web.status_snapshot import ProcessFigures, Snapshot
from sync.common.metrics import COUNTER, GAUGE, HISTOGRAM, Family, exposition, labels, single

PREFIX: Final = "fieldpost_"


def format_metrics(snapshot: Snapshot, process: ProcessFigures) -> str:
    """Return all metrics in the text format of Prometheus."""
    families = (*_process(process), *_status(snapshot), *_uplink(snapshot))
    return exposition(PREFIX, families)


def _process(process: ProcessFigures) -> Iterator[Family]:
    status = process.status
    version = labels(version=status.version)
    yield Family(
        "info", GAUGE, "Version of the running gateway, as a label; always 1.", [(version, 1)]
    )
    for name, kind, meaning, value in (
        ("uptime_seconds", GAUGE, "Seconds since the start of the gateway.", status.uptime),
        (
            "service_seconds_total",
            COUNTER,
            "Seconds that the gateway has been running in its life.",
            status.service,
        ),
        (
            "clock_synchronised",
            GAUGE,
            "1 if the wall clock is synchronised, else 0.",
            status.synchronised,
        ),
        (
            "listener_up",
            GAUGE,
            "1 if devices can connect, else 0.",
            process.accepts_devices,
        ),
        (
            "resident_memory_bytes",
            GAUGE,
            "Resident memory of the gateway's process in bytes.",
            process.resident,
        ),
        ("stanzas_total", COUNTER, "Stanzas received from devices.", process.stanzas),
        (
            "transactions_total",
            COUNTER,
            "Database transactions, including those without a change.",
            process.transactions,
        ),
        ("commits_total", COUNTER, "Database transactions that changed rows.", process.commits),
        (
            "commit_delay_seconds",
            GAUGE,
            "Delay in seconds by which commits are batched to spare the card.",
            process.commit_delay,
        ),
        (
            "written_bytes_total",
            COUNTER,
            "Bytes that the process wrote to disks, as counted by the kernel.",
            process.written.process,
        ),
        (
            "database_written_bytes_total",
            COUNTER,
            "Bytes that the database wrote to its files.",
            process.written.thread,
        ),
        (
            "written_bytes_per_second",
            GAUGE,
            "Average bytes per second that the process wrote in the last hour.",
            process.write_rate,
        ),
        (
            "event_loop_lag_seconds",
            GAUGE,
            "Largest event-loop delay in the last minute, in seconds.",
            process.loop_lag,
        ),
    ):
        yield single(name, kind, meaning, value)
    meaning = "Duration of a commit in seconds, including its fsync."
    yield Family("commit_duration_seconds", HISTOGRAM, meaning, process.commit_times.samples())


def _status(snapshot: Snapshot) -> Iterator[Family]:
    status = snapshot.status
    waiting = ((labels(state=state), count) for state, count in status.waiting._asdict().items())
    meaning = "Number of waiting messages, queue items, events and segments, by state."
    yield Family("waiting", GAUGE, meaning, waiting)
    known = [limit for limit in status.limits if limit.used is not None]
    used = ((labels(limit=each.name), each.used.value) for each in known if each.used)
    meaning = (
        "Used part of a limit from [limits], in the unit of the option; for a limit per source, of"
        " the source that uses most."
    )
    yield Family("limit_used", GAUGE, meaning, used)
    allowed = ((labels(limit=each.name), each.allowed) for each in known)
    meaning = "Value of a limit from [limits], in the unit of the option."
    yield Family("limit_allowed", GAUGE, meaning, allowed)
    for name, meaning, value in (
        (
            "rate_limited_connections",
            "Connections that are not read at the moment because they exceed a rate limit.",
            status.paused,
        ),
        (
            "database_bytes",
            "Size of the database in bytes, without its write-ahead log.",
            status.database_bytes,
        ),
        ("wal_bytes", "Size of the database's write-ahead log in bytes.", status.wal_bytes),
        ("disk_free_bytes", "Free bytes on the database's file system.", status.disk_bytes),
    ):
        yield single(name, GAUGE, meaning, value)


def _uplink(snapshot: Snapshot) -> Iterator[Family]:
    lanes = snapshot.lanes
    for name, kind, meaning, field in (
        ("events_total", COUNTER, "Events logged in a lane since its epoch began.", "last"),
        (
            "events_sealed_total",
            COUNTER,
            "Events of a lane that were sealed into segments since its epoch began.",
            "sealed",
        ),
        ("backlog_segments", GAUGE, "Segments of a lane waiting for the centre.", "segments"),
        ("backlog_bytes", GAUGE, "Bytes of a lane's segments waiting for the centre.", "bytes"),
    ):
        samples = [(labels(lane=lane.lane), getattr(lane, field)) for lane in lanes]
        yield Family(name, kind, meaning, samples)
    if snapshot.last_upload is not None:
        meaning = "Time of the last segment that the centre accepted, in seconds since 1970 UTC."
        seconds = snapshot.last_upload / 1000
        yield single("uplink_last_upload_timestamp_seconds", GAUGE, meaning, seconds)
