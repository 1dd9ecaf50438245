"""How a gateway stands: every bound as used and allowed, and what waits.

What the database knows is read from it, so that it can be asked with no gateway running too; what
the process alone knows comes over its control socket. How anything is printed is the command's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, get_type_hints

import msgspec

from edge import __version__
from edge.config import load
from edge.config.limits import Limits
from edge.config.load import Config
from edge.engine import meta, space, usage
from edge.engine.database import Transaction
from edge.engine.space_rules import SpaceUsage
from edge.engine.usage import Used, Waiting
from edge.errors import SetupError
from edge.ops import control
from edge.ops.control import Running
from edge.ops.transactions import reading

RUNNING: Final = "running"
NOT_RUNNING: Final = "not running"
NO_ANSWER: Final = "no answer"

OF_PROCESS: Final = frozenset(
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
"""Options whose use the running process alone knows."""


class Limit(NamedTuple):
    """An option of `[limits]`: what is allowed, and what is used.

    `used` is `None` where that is not known: no gateway answers, or `counted` is false, since the
    option is a time or the size of one thing.
    """

    name: str
    unit: str
    allowed: int | float
    counted: bool
    used: Used | None


class Status(NamedTuple):
    """A gateway as it stands.

    `state` is one of the three above, `trouble` why it does not answer. `version` is that of the
    running gateway, or of this command; `uptime` (seconds), `boot` and `synchronised` are known of
    a running one alone. `service` are the service seconds reached, or last saved. Of the
    database's bytes, `free_bytes` are used again; `disk_bytes` are what others have left on the
    disk. `changed`: its limits are not those of the configuration any more.
    """

    gateway: str
    state: str
    trouble: str | None
    version: str
    epoch: str
    boot: str | None
    uptime: float | None
    service: float
    synchronised: bool | None
    changed: bool
    sessions: int | None
    paused: int | None
    waiting: Waiting
    database_bytes: int
    free_bytes: int
    wal_bytes: int
    disk_bytes: int
    limits: list[Limit]


class Rows(NamedTuple):
    """What is read from the database, in one snapshot."""

    epoch: str
    service: float
    waiting: Waiting
    used: dict[str, Used]
    space: SpaceUsage


def read(folder: Path) -> Status:
    """Return how the gateway of `folder` stands; raises `FieldpostError`."""
    settings = load.load(folder)
    running, trouble = _ask(folder)
    with reading(folder) as tx:
        found = rows(tx)
    return described(settings, found, running, trouble)


def described(
    settings: Config, rows: Rows, running: Running | None, trouble: str | None = None
) -> Status:
    """Put together what the database tells, and what the process does, if it runs."""
    live, free, wal, disk = rows.space
    used = rows.used | {"database_bytes": Used(live + wal), "wal_bytes": Used(wal)}
    configured = allowed(settings.limits)
    if running is None:
        state = NOT_RUNNING if trouble is None else NO_ANSWER
    else:
        state = RUNNING
        used |= {name: Used(figure) for name, figure in running.used.items()}
    in_force = configured if running is None else running.limits
    return Status(
        gateway=settings.gateway.domain,
        state=state,
        trouble=trouble,
        version=__version__ if running is None else running.version,
        epoch=rows.epoch,
        boot=None if running is None else running.boot,
        uptime=None if running is None else running.uptime,
        service=rows.service if running is None else running.service,
        synchronised=None if running is None else running.synchronised,
        changed=in_force != configured,
        sessions=_figure(used, "sessions"),
        paused=_figure(used, "paused"),
        waiting=rows.waiting,
        database_bytes=live + free,
        free_bytes=free,
        wal_bytes=wal,
        disk_bytes=disk,
        limits=list(_limits(in_force, used)),
    )


def allowed(limits: Limits) -> dict[str, int | float]:
    """Return every option of `[limits]` by its name."""
    figures: dict[str, int | float] = msgspec.to_builtins(limits)
    return figures


def _ask(folder: Path) -> tuple[Running | None, str | None]:
    try:
        return control.ask(folder), None
    except SetupError as error:
        return None, str(error)


def rows(tx: Transaction) -> Rows:
    """Read what the database tells."""
    return Rows(
        meta.epoch(tx),
        meta.last_service_second(tx),
        usage.waiting(tx),
        usage.limits(tx),
        space.measure(tx),
    )


def _figure(used: Mapping[str, Used], name: str) -> int | None:
    return used[name].figure if name in used else None


def _limits(figures: Mapping[str, int | float], used: Mapping[str, Used]) -> list[Limit]:
    hints = get_type_hints(Limits, include_extras=True)
    return [
        Limit(
            name,
            hints[name].__metadata__[0].extra["unit"],
            figure,
            name in used or name in OF_PROCESS,
            used.get(name),
        )
        for name, figure in figures.items()
        if name in hints  # a running gateway of another version may have others
    ]
