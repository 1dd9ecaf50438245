"""The text in which Prometheus reads how a gateway is.

Version 0.0.4 of its format, written here: what a library has beyond is a registry of the whole
process and 4 MB of memory. No device, node or queue is a label, so that a gateway of any size has
as many series. Source: https://prometheus.io/docs/instrumenting/exposition_formats/.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from edge.web.status_snapshot import Look, Process

if TYPE_CHECKING:
    from edge.engine.histogram import Histogram

PREFIX: Final = "fieldpost_"

COUNTER: Final = "counter"
GAUGE: Final = "gauge"


class Family(NamedTuple):
    """One metric: its name without the prefix, its kind and meaning, and its samples; of each, what
    follows the name (a suffix, labels), and the value."""

    name: str
    kind: str
    meaning: str
    samples: Iterable[tuple[str, float]]


def exposition(look: Look, process: Process) -> str:
    """Write all that there is."""
    lines: list[str] = []
    for family in (*_of_process(process), *_of_status(look), *_of_uplink(look)):
        name = f"{PREFIX}{family.name}"
        lines += [f"# HELP {name} {family.meaning}", f"# TYPE {name} {family.kind}"]
        lines += [f"{name}{suffix} {value:.17g}" for suffix, value in family.samples]
    return "\n".join(lines) + "\n"


def _of_process(process: Process) -> Iterator[Family]:
    running = process.running
    version = _labels(version=running.version)
    yield Family("info", GAUGE, "The version that runs; always 1.", [(version, 1)])
    yield _one("uptime_seconds", GAUGE, "Since the gateway's start.", running.uptime)
    yield _one("service_seconds_total", COUNTER, "That it has served in all.", running.service)
    meaning = "Whether the kernel holds the clock for synchronised."
    yield _one("clock_synchronised", GAUGE, meaning, running.synchronised)
    yield _one("front_up", GAUGE, "Whether devices can connect.", process.up)
    yield _one("resident_bytes", GAUGE, "Memory of the process.", process.resident)
    yield _one("stanzas_total", COUNTER, "Stanzas of devices.", process.stanzas)
    meaning = "Transactions, those that changed nothing too."
    yield _one("transactions_total", COUNTER, meaning, process.transactions)
    meaning = "Transactions that changed rows."
    yield _one("commits_total", COUNTER, meaning, process.commits)
    meaning = "Seconds of a commit, with its sync."
    yield Family("commit_seconds", "histogram", meaning, _buckets(process.commit_times))
    meaning = "Seconds that commits keep apart, to spare the card."
    yield _one("commit_window_seconds", GAUGE, meaning, process.window)
    meaning = "Bytes written to disks by the process, as the kernel counts."
    yield _one("written_bytes_total", COUNTER, meaning, process.counted.written)
    meaning = "Bytes that the database gave to write."
    yield _one("database_written_bytes_total", COUNTER, meaning, process.counted.given)
    meaning = "Bytes a second written, by the average of the last hour."
    yield _one("written_bytes_per_second", GAUGE, meaning, process.average)
    meaning = "By which the event loop was late, the most of the last minute."
    yield _one("loop_lag_seconds", GAUGE, meaning, process.lag)


def _of_status(look: Look) -> Iterator[Family]:
    status = look.status
    waiting = ((_labels(state=state), count) for state, count in status.waiting._asdict().items())
    yield Family("waiting", GAUGE, "What waits: messages, items, events, segments.", waiting)
    known = [limit for limit in status.limits if limit.used is not None]
    used = ((_labels(limit=each.name), each.used.figure) for each in known if each.used)
    meaning = "How much of a limit is used; where each source has its own, by the fullest."
    yield Family("limit_used", GAUGE, meaning, used)
    allowed = ((_labels(limit=each.name), each.allowed) for each in known)
    yield Family("limit_allowed", GAUGE, "How much of it is allowed.", allowed)
    yield _one("paused", GAUGE, "Connections that wait, since they sent too much.", status.paused)
    yield _one("database_bytes", GAUGE, "The database, without its WAL.", status.database_bytes)
    yield _one("wal_bytes", GAUGE, "The WAL.", status.wal_bytes)
    yield _one("disk_free_bytes", GAUGE, "That others have left.", status.disk_bytes)


def _of_uplink(look: Look) -> Iterator[Family]:
    lanes = look.lanes
    for name, kind, meaning, field in (
        ("events_total", COUNTER, "Events of a lane, in this epoch.", "last"),
        ("events_sealed_total", COUNTER, "Of those, in segments.", "sealed"),
        ("backlog_segments", GAUGE, "Segments that wait for the centre.", "segments"),
        ("backlog_bytes", GAUGE, "Bytes of those.", "bytes"),
    ):
        samples = [(_labels(lane=lane.lane), getattr(lane, field)) for lane in lanes]
        yield Family(name, kind, meaning, samples)
    if look.taken is not None:
        meaning = "When the centre took a segment last, in seconds since 1970 UTC."
        yield _one("uplink_taken_seconds", GAUGE, meaning, look.taken / 1000)


def _buckets(histogram: Histogram) -> Iterator[tuple[str, float]]:
    count = 0
    for bound, count in histogram.cumulative():
        yield f"_bucket{_labels(le='+Inf' if math.isinf(bound) else f'{bound:g}')}", count
    yield "_sum", histogram.total
    yield "_count", count


def _one(name: str, kind: str, meaning: str, value: float | None) -> Family:
    return Family(name, kind, meaning, [] if value is None else [("", value)])


def _labels(**values: str) -> str:
    """Write labels; all values are words of ours, which need no escapes."""
    return "{" + ",".join(f'{name}="{value}"' for name, value in values.items()) + "}"
