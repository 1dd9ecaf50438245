"""The gateway's Prometheus metrics.

No device, node or queue is a label, so that the number of time series does not grow with a site.
"""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from edge.event_counts import EventCounts
from edge.ops.checks.health import DEGRADED, FAILING, HEALTHY, Health
from edge.ops.devices.device_status import DETACHED, OFFLINE, ONLINE
from edge.ops.gateway import uplink
from edge.web.status_snapshot import ProcessFigures, Snapshot
from sync.common.metrics import COUNTER, GAUGE, HISTOGRAM, Family, exposition, labels, single

PREFIX: Final = "fieldpost_"

_PROTOCOLS: Final = (
    ("xmpp", "xmpp", "tcp"), ("mqtt", "mqtt", "tcp"), ("mqtt websocket", "mqtt", "websocket"),
)  # fmt: skip
"""For each name of `Status.protocols`, the protocol and its transport."""


def format_metrics(snapshot: Snapshot, process: ProcessFigures, health: Health) -> str:
    """Return all metrics in the text format of Prometheus."""
    families = (
        _health_family(health),
        *_process_families(snapshot, process),
        *_waiting_families(snapshot, process),
        *_event_families(process.counts),
        *_limit_families(snapshot),
        *_database_families(snapshot, process),
    )
    return exposition(PREFIX, families)


def _lanes(snapshot: Snapshot, field: str) -> Iterator[tuple[str, float]]:
    return ((labels(lane=lane.lane), getattr(lane, field)) for lane in snapshot.uplink.lanes)


def _health_family(health: Health) -> Family:
    meaning = (
        "1 for the gateway's health, else 0: ok, degraded (such as by a limit that is reached), or"
        " failing (no device can connect, or no message is accepted)."
    )
    states = (HEALTHY, DEGRADED, FAILING)
    return Family(
        "health", GAUGE, meaning, [(labels(state=each), health.state == each) for each in states]
    )


def _process_families(snapshot: Snapshot, process: ProcessFigures) -> Iterator[Family]:
    state = process.status
    meaning = (
        "Version of the running gateway, whether it is compiled or pure, and Python's version, as"
        " labels; always 1."
    )
    build = {"version": state.version, "build": state.build, "python": platform.python_version()}
    yield Family("info", GAUGE, meaning, [(labels(**build), 1)])
    yield single("uptime_seconds", GAUGE, "Seconds since the start of the gateway.", state.uptime)
    meaning = "Service time: seconds of operation, plus time switched off if that is known."
    yield single("service_seconds_total", COUNTER, meaning, state.service)
    meaning = "The gateway's wall clock, in seconds since 1970 UTC."
    yield single("time_seconds", GAUGE, meaning, time.time())
    meaning = "1 if the wall clock is synchronised, else 0."
    yield single("clock_synchronised", GAUGE, meaning, state.synchronised)
    yield single("listener_up", GAUGE, "1 if devices can connect, else 0.", state.accepts_devices)
    yield from _usage_families(process)
    meaning = "Largest event-loop delay in the last minute, in seconds."
    yield single("event_loop_lag_seconds", GAUGE, meaning, process.loop_lag)
    meaning = "XMPP stanzas received from devices."
    yield single("stanzas_total", COUNTER, meaning, process.requests["xmpp"])
    meaning = "MQTT packets received from devices."
    yield single("mqtt_packets_total", COUNTER, meaning, process.requests["mqtt"])
    meaning = "Connections that are not read at the moment because they exceed a rate limit."
    yield single("rate_limited_connections", GAUGE, meaning, snapshot.status.paused)
    meaning = (
        "Connected sessions of devices by protocol and transport (tcp, with or without TLS, or"
        " websocket), including XMPP's that wait to be resumed."
    )
    sessions = snapshot.status.protocols
    counts = [
        (labels(protocol=protocol, transport=transport), sessions.get(name, 0))
        for name, protocol, transport in _PROTOCOLS
    ]
    yield Family("sessions", GAUGE, meaning, counts)
    meaning = "Provisioned devices: online, detached (all sessions wait to be resumed), or offline."
    states = Counter(device.state for device in snapshot.devices)
    devices = {state: states[state] for state in (ONLINE, DETACHED, OFFLINE)}
    yield Family("devices", GAUGE, meaning, _by_state(devices))


def _usage_families(process: ProcessFigures) -> Iterator[Family]:
    meaning = (
        "Resident memory of each process in bytes: core, or front N. Pages that processes share"
        " are counted in each."
    )
    resident = [(labels(process=each.name), each.resident) for each in process.usage]
    yield Family("resident_memory_bytes", GAUGE, meaning, resident)
    meaning = "Processor time of each process in seconds since it began."
    times = [(labels(process=each.name), each.cpu) for each in process.usage]
    yield Family("cpu_seconds_total", COUNTER, meaning, times)
    fronts = [(labels(front=str(each.number)), each) for each in process.status.fronts]
    meaning = "1 if the front process runs, else 0; no sample without front processes."
    runs = [(label, front.pid is not None) for label, front in fronts]
    yield Family("front_up", GAUGE, meaning, runs)
    meaning = "Connections of the front process."
    connections = [(label, front.connections) for label, front in fronts]
    yield Family("front_connections", GAUGE, meaning, connections)
    meaning = "How often the front process was started again since the start of the gateway."
    restarts = [(label, front.restarts) for label, front in fronts]
    yield Family("front_restarts_total", COUNTER, meaning, restarts)


def _waiting_families(snapshot: Snapshot, process: ProcessFigures) -> Iterator[Family]:
    waiting = snapshot.status.waiting
    meaning = (
        "Messages that wait: held (in custody, before the sender's deliver), outbox (with quality"
        " of service, for a device), or offline (plain, for a device)."
    )
    stores = {"held": waiting.held, "outbox": waiting.outbox, "offline": waiting.offline}
    yield Family("waiting_messages", GAUGE, meaning, _by_state(stores))
    meaning = "Stored dead letters: undelivered, or in_doubt (perhaps delivered)."
    dead = {"undelivered": waiting.dead - waiting.in_doubt, "in_doubt": waiting.in_doubt}
    yield Family("dead_letters", GAUGE, meaning, _by_state(dead))
    meaning = "Items in queues: waiting (also locked and delayed), or dead."
    items = {"waiting": waiting.queued, "dead": waiting.queued_dead}
    yield Family("queue_items", GAUGE, meaning, _by_state(items))
    since = min((each.oldest for each in snapshot.queues if each.oldest is not None), default=None)
    meaning = (
        "Age in service seconds of the oldest item that is ready or locked, of all queues; 0 if"
        " there is none."
    )
    age = 0.0 if since is None else max(0.0, process.status.service - since)
    yield single("queue_oldest_item_age_seconds", GAUGE, meaning, age)
    meaning = "Events that are not in a segment yet."
    yield single("unsealed_events", GAUGE, meaning, waiting.events_unsealed)


def _limit_families(snapshot: Snapshot) -> Iterator[Family]:
    meaning = (
        "Used part of a limit from [limits], in the unit of the option; for a limit of"
        " each source, account, node or lane, the largest use."
    )
    limits = snapshot.status.limits
    used = [(labels(limit=each.name), each.used.value) for each in limits if each.used is not None]
    yield Family("limit_used", GAUGE, meaning, used)
    meaning = "Value of a limit from [limits], in the unit of the option."
    allowed = [(labels(limit=each.name), each.allowed) for each in limits]
    yield Family("limit_allowed", GAUGE, meaning, allowed)


def _by_state(values: Mapping[str, int]) -> list[tuple[str, float]]:
    return [(labels(state=state), value) for state, value in values.items()]


def _event_families(counts: EventCounts) -> Iterator[Family]:
    meaning = "Failed log-ins since the start, by reason; counted when they are logged."
    samples = [(labels(reason=name), count) for name, count in counts.failed_logins.items()]
    yield Family("failed_logins_total", COUNTER, meaning, samples)
    meaning = (
        "Refused requests and connections since the start, by rule (a limit or another reason, as"
        " in events of the kind limit); counted when they are logged."
    )
    samples = [(labels(rule=name), count) for name, count in counts.refusals.items()]
    yield Family("refusals_total", COUNTER, meaning, samples)
    meaning = (
        "Messages from devices since the start, by level and outcome: accepted (level 2: in"
        " custody, until the sender's deliver), delivered (stored or sent, and at level 0 perhaps"
        " lost later), or refused. Those that became dead letters are counted separately."
    )
    messages = [
        (labels(qos=str(level), outcome=outcome), count)
        for (level, outcome), count in sorted(counts.messages.items())
    ]
    yield Family("messages_total", COUNTER, meaning, messages)
    meaning = (
        "Messages that became dead letters since the start, by quality of service and state: dead,"
        " or in_doubt."
    )
    dead = [
        (labels(qos=qos, state=state), count)
        for (qos, state), count in sorted(counts.dead_letters.items())
    ]
    yield Family("messages_dead_lettered_total", COUNTER, meaning, dead)
    meaning = (
        "Events that were lost before the centre had them, since the start, by reason: evicted"
        " from a full backlog, or unwritten because too many waited to be sealed."
    )
    lost = [(labels(reason=name), count) for name, count in counts.lost_events.items()]
    yield Family("events_lost_total", COUNTER, meaning, lost)


def _database_families(snapshot: Snapshot, process: ProcessFigures) -> Iterator[Family]:
    status = snapshot.status
    meaning = "Database transactions, including those without a change."
    yield single("transactions_total", COUNTER, meaning, process.transactions)
    meaning = "Database transactions that changed rows."
    yield single("commits_total", COUNTER, meaning, process.commits)
    meaning = "Duration of a commit in seconds, including its fsync."
    yield Family("commit_duration_seconds", HISTOGRAM, meaning, process.commit_times.samples())
    meaning = "Delay in seconds by which commits are batched to spare the card."
    yield single("commit_delay_seconds", GAUGE, meaning, process.commit_delay)
    meaning = "Bytes that the process wrote to disks, as counted by the kernel."
    yield single("written_bytes_total", COUNTER, meaning, process.written.written)
    meaning = "Bytes that the process wrote to files, nearly all of them the database's."
    yield single("database_written_bytes_total", COUNTER, meaning, process.written.given)
    meaning = "Average bytes per second that the process wrote in the last hour."
    yield single("written_bytes_per_second", GAUGE, meaning, process.write_rate)
    meaning = "Size of the database in bytes, without its write-ahead log."
    yield single("database_bytes", GAUGE, meaning, status.database_bytes)
    meaning = "Size of the database's write-ahead log in bytes."
    yield single("wal_bytes", GAUGE, meaning, status.wal_bytes)
    meaning = "Free bytes on the database's file system."
    yield single("disk_free_bytes", GAUGE, meaning, status.disk_bytes)
    meaning = "Events logged in a lane since its epoch began."
    yield Family("events_total", COUNTER, meaning, _lanes(snapshot, "last"))
    meaning = "Events of a lane that were sealed into segments since its epoch began."
    yield Family("events_sealed_total", COUNTER, meaning, _lanes(snapshot, "sealed"))
    meaning = "Segments of a lane waiting for the centre."
    yield Family("backlog_segments", GAUGE, meaning, _lanes(snapshot, "segments"))
    meaning = "Bytes of a lane's segments waiting for the centre."
    yield Family("backlog_bytes", GAUGE, meaning, _lanes(snapshot, "bytes"))
    meaning = "1 if an uplink to a centre is configured, else 0."
    yield single("uplink_configured", GAUGE, meaning, bool(snapshot.route.target))
    last_upload = snapshot.uplink.last_upload
    yield single(
        "uplink_last_upload_timestamp_seconds",
        GAUGE,
        "Time at which the centre last accepted a segment, in seconds since 1970 UTC.",
        last_upload and last_upload / 1000,
    )
    meaning = "Age in seconds of the oldest event that waits for the centre; 0 if none waits."
    since = uplink.waiting_since(snapshot.uplink)
    lag = 0.0 if since is None else max(0.0, time.time() - since / 1000)
    yield single("uplink_lag_seconds", GAUGE, meaning, lag)
    meaning = (
        "Expiry of a certificate, in seconds since 1970 UTC: of the server, the CA, the uplink, or"
        " the device whose certificate expires first."
    )
    ends = [
        (labels(certificate=name), end / 1000) for name, end in snapshot.certificate_ends.items()
    ]
    yield Family("certificate_expiry_timestamp_seconds", GAUGE, meaning, ends)
