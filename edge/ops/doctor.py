"""What is wrong with a gateway, or soon will be: all of `checks`, whether it runs or not.

Nothing is changed, and a running gateway is asked for no more than `fieldpost status` asks. What
cannot be looked at is a finding too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from edge.config import load
from edge.config.load import Config
from edge.engine import flash_wear
from edge.engine.flash_wear import DailyWear
from edge.errors import ConfigError, FieldpostError
from edge.features.accounts.store import certificates
from edge.features.accounts.store.certificates import ExpiringDevice
from edge.features.queues.store import depth_events
from edge.features.queues.store.depth_events import Depth
from edge.ops import current_time, uplink
from edge.ops import status as standing
from edge.ops.checks import folder as in_folder
from edge.ops.checks import machine, shipping, stored
from edge.ops.checks.finding import NOTICE, OK, WRONG, Finding
from edge.ops.checks.shipping import Way
from edge.ops.folder_owner import owner_to_be
from edge.ops.status import NO_ANSWER, RUNNING, Status
from edge.ops.transactions import reading
from sync.common.text import os_error

DAYS: Final = 30
"""Days by which wear is told: as it is now, and not as it was when the gateway was set up."""


class Asked(NamedTuple):
    """What the caller knows and this file does not: the way to the centre, when a segment was
    sealed (ms since 1970 UTC), and whether each entry of the database is to be looked at."""

    way: Callable[[Config], Way]
    sealed_at: Callable[[bytes], int]
    deep: bool = False


class _Rows(NamedTuple):
    depths: list[Depth]
    days: list[DailyWear]
    expiring: list[ExpiringDevice]


def examine(folder: Path, asked: Asked) -> Iterator[Finding]:
    """Look at everything, and yield what was found: at least one finding for each part."""
    now = current_time.now().wall
    yield from _guarded(folder, "configuration", lambda: in_folder.configuration(folder))
    try:
        settings = load.load(folder)
    except ConfigError:
        return  # it is told above, and nothing else can be judged
    yield from _guarded(folder, "secrets", lambda: in_folder.secrets(folder, settings))
    yield from _guarded(folder, "clock", machine.clock)
    yield from _guarded(folder, "temperature", machine.warmth)
    yield from _guarded(folder, "service", machine.service)
    yield from _guarded(folder, "uplink", lambda: shipping.way(asked.way(settings), now))
    whole = list(
        _guarded(folder, "database", lambda: stored.database_is_whole(folder, deep=asked.deep))
    )
    yield from whole
    if all(finding.verdict != WRONG for finding in whole):
        yield from _guarded(folder, "database", lambda: _inside(folder, settings, asked, now))


def _inside(folder: Path, settings: Config, asked: Asked, now: int) -> Iterator[Finding]:
    status, rows = standing.read(folder), _rows(folder)
    yield from running(status)
    if settings.component is None:
        yield from in_folder.certificates(folder, now, rows.expiring)
    yield from machine.disk(folder, settings, status.database_bytes + status.wal_bytes)
    yield from stored.wal(status)
    yield from stored.limits(status)
    yield from stored.dead(status)
    yield from stored.queues(rows.depths, status)
    way, ships = asked.way(settings).to, uplink.read(folder, asked.sealed_at)
    yield from shipping.unsealed(ships, settings.uplink.segment_age, status, now)
    yield from shipping.backlog(ships, way, now)
    yield from machine.wear(folder, settings, rows.days)


def _rows(folder: Path) -> _Rows:
    with reading(folder) as tx:
        return _Rows(
            depth_events.depths(tx),
            flash_wear.recent_days(tx, DAYS),
            certificates.find_expiring(tx, tx.now.wall, in_folder.SOON),
        )


def running(status: Status) -> Iterator[Finding]:
    """Tell whether the gateway runs, and with which limits."""
    if status.state == RUNNING:
        yield Finding("gateway", OK, f"it is running, fieldpost {status.version}")
    elif status.state == NO_ANSWER:
        remedy = "wait if the machine is busy; else `systemctl restart fieldpost`"
        yield Finding("gateway", WRONG, status.trouble or "it does not answer", remedy)
    else:
        yield Finding("gateway", NOTICE, "it is not running", "`systemctl start fieldpost`")
    if status.changed:
        text = "fieldpost.toml has other limits than the running gateway"
        yield Finding("gateway", NOTICE, text, "`systemctl restart fieldpost`")


def _guarded(folder: Path, name: str, look: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Look, and tell what kept us from it."""
    try:
        yield from look()
    except (FieldpostError, OSError) as error:
        text = os_error(error) if isinstance(error, OSError) else str(error)
        owner = owner_to_be(folder)
        remedy = "see the text" if owner is None else f"run this as {owner}, whose folder it is"
        yield Finding(name, WRONG, f"it cannot be looked at: {text}", remedy)
