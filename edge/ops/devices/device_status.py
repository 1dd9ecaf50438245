"""The devices of a gateway: their login methods, connections and waiting messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from edge.config import load
from edge.engine.limits import usage
from edge.engine.rules.service_time import DAY_MS
from edge.engine.sessions import durable_sessions
from edge.engine.store import meta
from edge.engine.store.database import Transaction
from edge.errors import SetupError
from edge.features.accounts.store import accounts, certificates, last_seen
from edge.ops import current_time
from edge.ops.gateway import control
from edge.ops.gateway.control import ConnectedSession, DeviceConnections
from edge.ops.transactions import reading

ONLINE: Final = "online"
DETACHED: Final = "detached"
"""The state of a device that has lost its connection and can resume its session (XEP-0198)."""
AWAY: Final = "away"
"""The state of a durable session that has no connection."""
OFFLINE: Final = "offline"
UNKNOWN: Final = "unknown"
"""The state of a device if the running gateway does not answer."""


class DurableSession(NamedTuple):
    """A session whose state the gateway keeps while the device is away (MQTT 5.0, section 4.1).

    Attributes:
        seconds: for how long the state is kept without a connection; 0 if it ends at once.
        left: when its connection ended, in ms since 1970 UTC; `None` while the session is
            connected, or if the gateway has not started since then.
        until: when the state ends unless the device returns; `None` if `left` is.
        queued: the number of guaranteed messages that wait for this session alone.
        in_flight: the number of guaranteed messages that were sent to it and are not finished.
    """

    resource: str
    seconds: float
    left: int | None
    until: int | None
    queued: int
    in_flight: int


class Device(NamedTuple):
    """A device, as the database knows it; times are in ms since 1970 UTC.

    Attributes:
        downgrade: whether guaranteed messages are delivered as plain ones if the device does
            not support quality of service; otherwise they wait.
        password: whether the device can log in with a password.
        not_after: when the device's last certificate expires, if it has one.
        days: whole days until `not_after`; negative if that has passed.
        seen: when the device's last session ended, or the gateway's last heartbeat if the session
            has not ended; `None` if the device never had a session.
        held: the number of messages from it in custody, which await its `deliver`.
        outbox: the number of guaranteed messages that wait for it.
        offline: the number of plain messages that are stored for it.
        durable: its sessions whose state is kept.
    """

    name: str
    jid: str
    trusted: bool
    downgrade: bool
    created: int
    revoked: int | None
    password: bool
    not_after: int | None
    days: int | None
    seen: int | None
    held: int
    outbox: int
    offline: int
    durable: list[DurableSession]


class DeviceStatus(NamedTuple):
    """A device, its state (such as `ONLINE`), its sessions, the newest first, and those of its
    durable sessions that are `AWAY`.

    `device.seen` is when a session last sent something or, if unknown, the time in the database.
    """

    device: Device
    state: str
    sessions: list[ConnectedSession]
    away: list[DurableSession]


class DeviceStatuses(NamedTuple):
    """All devices by name. If the running gateway does not answer, `trouble` is the reason."""

    devices: list[DeviceStatus]
    trouble: str | None


def jid_of(domain: str, name: str) -> str:
    """Return the JID of a device.

    If the gateway is a component, the name is already a JID and is returned unchanged.
    """
    return name if "@" in name else f"{name}@{domain}"


def read(folder: Path) -> DeviceStatuses:
    """Return the status of all devices; raises `FieldpostError`."""
    connections: DeviceConnections | None = None
    trouble = None
    devices = list_all(folder)
    try:
        connections = control.device_connections(folder) or DeviceConnections(sessions=[])
    except SetupError as error:
        trouble = str(error)
    return DeviceStatuses(combine(devices, connections), trouble)


def read_one(folder: Path, name: str) -> DeviceStatus:
    """Return the status of a device; raises `SetupError` if it does not exist."""
    for found in read(folder).devices:
        if found.device.name == name:
            return found
    raise SetupError(f"device {name!r} does not exist; see `fieldpost device list`")


def combine(devices: Sequence[Device], connections: DeviceConnections | None) -> list[DeviceStatus]:
    """Combine the devices in the database with the sessions of the running gateway.

    If `connections` is `None`, the state of all devices is `UNKNOWN`.
    """
    if connections is None:
        return [_status(device, [], known=False) for device in devices]
    by_account: defaultdict[str, list[ConnectedSession]] = defaultdict(list)
    for session in connections.sessions:
        by_account[session.account].append(session)
    return [
        _status(
            device._replace(seen=connections.seen.get(device.name, device.seen)),
            by_account[device.name],
            known=True,
        )
        for device in devices
    ]


def _status(device: Device, sessions: list[ConnectedSession], *, known: bool) -> DeviceStatus:
    in_flight = {each.resource: each.in_flight for each in device.durable}
    newest_first = [
        replace(session, unacknowledged=in_flight.get(session.resource, 0))
        if session.unacknowledged is None
        else session
        for session in sorted(sessions, key=lambda session: -(session.since or 0))
    ]
    if not known:
        state = UNKNOWN
    elif not sessions:
        state = OFFLINE
    else:
        state = DETACHED if all(session.detached for session in sessions) else ONLINE
    times = [session.seen for session in sessions if session.seen is not None]
    seen = max(times) if times else device.seen
    connected = {session.resource for session in sessions}
    away = [
        each
        for each in device.durable
        if each.seconds and (each.resource not in connected if known else each.left is not None)
    ]
    return DeviceStatus(device._replace(seen=seen), state, newest_first, away)


def list_all(folder: Path) -> list[Device]:
    """Return all devices, ordered by name."""
    domain, now = load.load(folder).gateway.domain, current_time.now().wall
    with reading(folder) as tx:
        return read_devices(tx, domain, now)


def read_devices(tx: Transaction, domain: str, now: int) -> list[Device]:
    """Return all devices, ordered by name; `now` is in ms since 1970."""
    latest, heartbeat = certificates.latest_expiry(tx), last_seen.last_heartbeat(tx)
    waiting, durable = usage.waiting_by_account(tx), _durable_sessions(tx, now)
    found = []
    for account in accounts.list_all(tx):
        name, trusted, created, revoked, password, downgrade, seen = account
        jid, not_after = jid_of(domain, name), latest.get(name)
        found.append(
            Device(
                name=name,
                jid=jid,
                trusted=trusted,
                downgrade=downgrade,
                created=created,
                revoked=revoked,
                password=password,
                not_after=not_after,
                days=None if not_after is None else (not_after - now) // DAY_MS,
                seen=heartbeat if seen == last_seen.ONLINE else seen,
                held=waiting["held"].get(jid, 0),
                outbox=waiting["outbox"].get(name, 0),
                offline=waiting["offline"].get(name, 0),
                durable=durable[name],
            )
        )
    return found


def _durable_sessions(tx: Transaction, now: int) -> defaultdict[str, list[DurableSession]]:
    service, counts = meta.last_service_second(tx), usage.by_session(tx)
    found: defaultdict[str, list[DurableSession]] = defaultdict(list)
    for name, full, seconds, expires in durable_sessions.list_all(tx):
        until = None if expires is None else now + round((expires - service) * 1000)
        left = None if until is None else until - round(seconds * 1000)
        resource, numbers = full.partition("/")[2], counts.get(full, (0, 0))
        found[name].append(DurableSession(resource, seconds, left, until, *numbers))
    return found
