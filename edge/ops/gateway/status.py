"""The status of a gateway: each limit with its use, and the numbers of waiting messages.

The database is read, so this works while the gateway is stopped. Values that only the running
process knows are read over its control socket.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from edge import __version__
from edge.build_kind import build_kind
from edge.config import load
from edge.config.limits import Limits
from edge.config.load import Config
from edge.config.options import descriptions
from edge.engine.limits import usage
from edge.engine.limits.usage import LimitUsage
from edge.engine.rules.space_rules import SpaceLimits, SpaceUsage
from edge.engine.store import meta, space
from edge.engine.store.database import Transaction
from edge.errors import SetupError
from edge.ops.gateway import control
from edge.ops.gateway.control import FrontStatus, ProcessStatus
from edge.ops.transactions import reading

RUNNING: Final = "running"
NOT_RUNNING: Final = "not running"
NO_ANSWER: Final = "no answer"

PROCESS_LIMITS: Final = frozenset(
    {
        "sessions",
        "sessions_per_account",
        "sessions_per_address",
        "unauthenticated",
        "unauthenticated_per_address",
        "handshakes",
        "send_buffer",
        "session_units",
        "session_bytes",
        "unacknowledged_stanzas",
        "unacknowledged_bytes",
        "waiting_units",
        "waiting_bytes",
        "unacknowledged_total_bytes",
    }
)
"""Limits whose use only the running process knows."""


class Limit(NamedTuple):
    """An option of `[limits]` and its use.

    `counted` is false if there is no use to count, as for times and the size of one stanza. Then
    `used` is `None`, as it is if the use is unknown because the gateway does not answer.
    """

    name: str
    unit: str
    allowed: int | float
    counted: bool
    used: LimitUsage | None


class WaitingCounts(NamedTuple):
    """Numbers of waiting messages, events, segments and items.

    Attributes:
        held: messages in custody, before their `deliver`.
        outbox: messages in outboxes.
        offline: plain messages for accounts without a session.
        dead: dead letters.
        in_doubt: dead letters that may have been delivered.
        events_unsealed: events that are not in a segment yet.
        segments: segments that the centre has not acknowledged.
        queued: items in queues.
        queued_dead: items in queues that are dead.
    """

    held: int
    outbox: int
    offline: int
    dead: int
    in_doubt: int
    events_unsealed: int
    segments: int
    queued: int
    queued_dead: int


class Status(NamedTuple):
    """The status of a gateway.

    Attributes:
        state: `RUNNING`, `NOT_RUNNING` or `NO_ANSWER`.
        trouble: why the running gateway does not answer, if that is so.
        accepts_devices: whether devices can connect, if the gateway is running.
        store_error: why the running gateway cannot use its database, if that is so.
        certificate_error: why the running gateway uses the previous certificate in place of the
            present files, if that is so.
        link_error: why the running gateway, a component, has no link to its server.
        version: the version of the running gateway, or of this command if none is running.
        build: whether it is "compiled" or "pure" (`build_kind`).
        boot: the kernel's id of the boot, if the gateway is running.
        uptime: seconds since the gateway started, if it is running.
        service: the service time in seconds, as last saved if the gateway is not running.
        synchronised: whether the wall clock is synchronised, if the gateway is running.
        changed: whether the running gateway uses other limits than the configuration.
        sessions: the number of connected sessions, if the gateway is running.
        protocols: the number of connected sessions by protocol.
        fronts: the front processes of the running gateway; none if it is one process.
        paused: the number of connections that are not read because they exceed a rate limit.
        free_bytes: bytes of the database file that are free for new rows.
        disk_bytes: free bytes of the file system.
    """

    gateway: str
    state: str
    trouble: str | None
    accepts_devices: bool | None
    store_error: str | None
    certificate_error: str | None
    link_error: str | None
    version: str
    build: str
    epoch: str
    boot: str | None
    uptime: float | None
    service: float
    synchronised: bool | None
    changed: bool
    sessions: int | None
    protocols: Mapping[str, int]
    fronts: list[FrontStatus]
    paused: int | None
    waiting: WaitingCounts
    database_bytes: int
    free_bytes: int
    wal_bytes: int
    disk_bytes: int
    limits: list[Limit]


class StoredStatus(NamedTuple):
    """The part of the status that is read from the database, in one transaction."""

    epoch: str
    service: float
    waiting: WaitingCounts
    used: dict[str, LimitUsage]
    space: SpaceUsage


def read(folder: Path) -> Status:
    """Return the status of the gateway in `folder`; raises `FieldpostError`."""
    settings = load.load(folder)
    running, trouble = _ask(folder)
    with reading(folder) as tx:
        stored = read_stored(tx)
    return combine(settings, stored, running, trouble)


def combine(
    settings: Config,
    stored: StoredStatus,
    running: ProcessStatus | None,
    trouble: str | None = None,
) -> Status:
    """Combine the status in the database with the status of the running process, if any."""
    live, free, wal, disk = stored.space
    used = stored.used | {"database_bytes": LimitUsage(live + wal), "wal_bytes": LimitUsage(wal)}
    configured = msgspec.to_builtins(settings.limits)
    if running is None:
        state = NOT_RUNNING if trouble is None else NO_ANSWER
    else:
        state = RUNNING
        used |= {name: LimitUsage(figure) for name, figure in running.used.items()}
    in_force = configured if running is None else running.limits
    return Status(
        gateway=settings.gateway.domain,
        state=state,
        trouble=trouble,
        accepts_devices=None if running is None else running.accepts_devices,
        store_error=None if running is None else running.store_error,
        certificate_error=None if running is None else running.certificate_error,
        link_error=None if running is None else running.link_error,
        version=__version__ if running is None else running.version,
        build=build_kind() if running is None else running.build,
        epoch=stored.epoch,
        boot=None if running is None else running.boot,
        uptime=None if running is None else running.uptime,
        service=stored.service if running is None else running.service,
        synchronised=None if running is None else running.synchronised,
        changed=in_force != configured,
        sessions=_figure(used, "sessions"),
        protocols={} if running is None else running.sessions,
        fronts=[] if running is None else running.fronts,
        paused=_figure(used, "paused"),
        waiting=stored.waiting,
        database_bytes=live + free,
        free_bytes=free,
        wal_bytes=wal,
        disk_bytes=disk,
        limits=_limits(in_force, used),
    )


def combine_space(settings: Config, usage: SpaceUsage, running: ProcessStatus) -> Status:
    """Return a status without waiting messages and stored rows, which takes no long queries."""
    stored = StoredStatus("", 0.0, WaitingCounts(*(0,) * len(WaitingCounts._fields)), {}, usage)
    return combine(settings, stored, running)


def space_of(status: Status) -> tuple[SpaceUsage, SpaceLimits]:
    """Return the space that the database takes, and the limits in force."""
    free = status.free_bytes
    usage = SpaceUsage(status.database_bytes - free, free, status.wal_bytes, status.disk_bytes)
    allowed = {limit.name: int(limit.allowed) for limit in status.limits}
    names = ("database_bytes", "database_reserve", "wal_bytes")
    return usage, SpaceLimits(*(allowed[name] for name in names))


def _ask(folder: Path) -> tuple[ProcessStatus | None, str | None]:
    try:
        return control.process_status(folder), None
    except SetupError as error:
        return None, str(error)


def read_stored(tx: Transaction) -> StoredStatus:
    """Read the part of the status that is in the database."""
    return StoredStatus(
        meta.epoch(tx),
        meta.last_service_second(tx),
        WaitingCounts(**usage.waiting(tx)),
        usage.limits(tx),
        space.measure(tx),
    )


def _figure(used: Mapping[str, LimitUsage], name: str) -> int | None:
    return used[name].value if name in used else None


def _limits(figures: Mapping[str, int | float], used: Mapping[str, LimitUsage]) -> list[Limit]:
    known = descriptions(Limits)
    return [
        Limit(
            name,
            known[name]["unit"],
            figure,
            name in used or name in PROCESS_LIMITS,
            used.get(name),
        )
        for name, figure in figures.items()
        if name in known  # a running gateway of another version may have other options
    ]
