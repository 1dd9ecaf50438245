"""The text in which Prometheus reads how a gateway is.

Version 0.0.4 of its format, written here: what a library has beyond is a registry of the whole
process and 4 MB of memory. No device, node or queue is a label, so that a gateway of any size has
as many series. Source: https://prometheus.io/docs/instrumenting/exposition_formats/.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edge.web.status_snapshot import Look, Process
from sync.common.metrics import COUNTER, GAUGE, HISTOGRAM, Family, exposition, labels, single

PREFIX: Final = "fieldpost_"


def gateway_metrics(look: Look, process: Process) -> str:
    """Write all that there is."""
    return exposition(PREFIX, (*_of_process(process), *_of_status(look), *_of_uplink(look)))


def _of_process(process: Process) -> Iterator[Family]:
    running = process.running
    version = labels(version=running.version)
    yield Family("info", GAUGE, "The version that runs; always 1.", [(version, 1)])
    yield single("uptime_seconds", GAUGE, "Since the gateway's start.", running.uptime)
    yield single("service_seconds_total", COUNTER, "That it has served in all.", running.service)
    meaning = "Whether the kernel holds the clock for synchronised."
    yield single("clock_synchronised", GAUGE, meaning, running.synchronised)
    yield single("front_up", GAUGE, "Whether devices can connect.", process.up)
    yield single("resident_bytes", GAUGE, "Memory of the process.", process.resident)
    yield single("stanzas_total", COUNTER, "Stanzas of devices.", process.stanzas)
    meaning = "Transactions, those that changed nothing too."
    yield single("transactions_total", COUNTER, meaning, process.transactions)
    meaning = "Transactions that changed rows."
    yield single("commits_total", COUNTER, meaning, process.commits)
    meaning = "Seconds of a commit, with its sync."
    yield Family("commit_seconds", HISTOGRAM, meaning, process.commit_times.samples())
    meaning = "Seconds that commits keep apart, to spare the card."
    yield single("commit_window_seconds", GAUGE, meaning, process.window)
    meaning = "Bytes written to disks by the process, as the kernel counts."
    yield single("written_bytes_total", COUNTER, meaning, process.counted.process)
    meaning = "Bytes that the database gave to write."
    yield single("database_written_bytes_total", COUNTER, meaning, process.counted.thread)
    meaning = "Bytes a second written, by the average of the last hour."
    yield single("written_bytes_per_second", GAUGE, meaning, process.average)
    meaning = "By which the event loop was late, the most of the last minute."
    yield single("loop_lag_seconds", GAUGE, meaning, process.lag)


def _of_status(look: Look) -> Iterator[Family]:
    status = look.status
    waiting = ((labels(state=state), count) for state, count in status.waiting._asdict().items())
    yield Family("waiting", GAUGE, "What waits: messages, items, events, segments.", waiting)
    known = [limit for limit in status.limits if limit.used is not None]
    used = ((labels(limit=each.name), each.used.value) for each in known if each.used)
    meaning = "How much of a limit is used; where each source has its own, by the fullest."
    yield Family("limit_used", GAUGE, meaning, used)
    allowed = ((labels(limit=each.name), each.allowed) for each in known)
    yield Family("limit_allowed", GAUGE, "How much of it is allowed.", allowed)
    yield single("paused", GAUGE, "Connections that wait, since they sent too much.", status.paused)
    yield single("database_bytes", GAUGE, "The database, without its WAL.", status.database_bytes)
    yield single("wal_bytes", GAUGE, "The WAL.", status.wal_bytes)
    yield single("disk_free_bytes", GAUGE, "That others have left.", status.disk_bytes)


def _of_uplink(look: Look) -> Iterator[Family]:
    lanes = look.lanes
    for name, kind, meaning, field in (
        ("events_total", COUNTER, "Events of a lane, in this epoch.", "last"),
        ("events_sealed_total", COUNTER, "Of those, in segments.", "sealed"),
        ("backlog_segments", GAUGE, "Segments that wait for the centre.", "segments"),
        ("backlog_bytes", GAUGE, "Bytes of those.", "bytes"),
    ):
        samples = [(labels(lane=lane.lane), getattr(lane, field)) for lane in lanes]
        yield Family(name, kind, meaning, samples)
    if look.taken is not None:
        meaning = "When the centre took a segment last, in seconds since 1970 UTC."
        yield single("uplink_taken_seconds", GAUGE, meaning, look.taken / 1000)
