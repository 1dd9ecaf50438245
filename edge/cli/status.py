"""`fieldpost status`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from edge.cli import folder_option, report_errors
from edge.cli import to_terminal as shown
from edge.ops import status as admin
from edge.ops.status import Limit, Status
from sync.common.text import columns, duration, plural

_NOTHING: Final = "-"
"""In place of a figure that is not known, or that is none."""


@click.command()
@folder_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@report_errors
def status(folder: Path, as_json: bool) -> None:
    """Print how the gateway stands: every limit as used and allowed, and what waits.

    Without a running gateway, what it alone knows is a `-`. Of a limit that holds for each source
    or account, the fullest one is shown.
    """
    found = admin.read(folder)
    click.echo(json.dumps(_object(found)) if as_json else "\n".join(map(shown, _lines(found))))


def _object(found: Status) -> dict[str, object]:
    whole = found._asdict()
    whole["waiting"] = found.waiting._asdict()
    whole["limits"] = {limit.name: _limit(limit) for limit in found.limits}
    return whole


def _limit(limit: Limit) -> dict[str, object]:
    shown: dict[str, object] = {"allowed": limit.allowed, "unit": limit.unit}
    if limit.counted:
        shown["used"] = None if limit.used is None else limit.used.figure
    if limit.used is not None and limit.used.of is not None:
        shown["of"] = limit.used.of
    return shown


def _lines(found: Status) -> Iterator[str]:
    yield f"{found.gateway}: {found.state}, fieldpost {found.version}"
    if found.trouble is not None:
        yield found.trouble
    if found.changed:
        yield "fieldpost.toml has other limits than the running gateway: a restart takes them"
    yield ""
    yield from columns(_facts(found))
    yield ""
    header = ("limit", "used", "allowed", "unit", "whose")
    yield from columns([header, *map(_row, found.limits)], right=(1, 2))


def _facts(found: Status) -> list[tuple[str, ...]]:
    waiting = found.waiting
    synchronised = {None: _NOTHING, True: "synchronised", False: "not synchronised"}
    dead = f"{waiting.queued_dead} of them dead"
    paused = _NOTHING if found.paused is None else plural(found.paused, "connection")
    return [
        ("uptime", _NOTHING if found.uptime is None else duration(found.uptime)),
        ("service", duration(found.service)),
        ("clock", synchronised[found.synchronised]),
        ("boot", found.boot or _NOTHING),
        ("epoch", found.epoch),
        ("sessions", f"{_figure(found.sessions)}, {paused} paused"),
        ("held", f"{plural(waiting.held, 'message')}, for their sender to ask for delivery"),
        ("outbox", f"{plural(waiting.outbox, 'message')}, for their devices"),
        ("offline", f"{plural(waiting.offline, 'plain message')}, for devices that are away"),
        ("dead", f"{plural(waiting.dead, 'message')}, {waiting.in_doubt} of them in doubt"),
        ("queued", f"{plural(waiting.queued, 'item')} in queues, {dead}"),
        ("events", f"{waiting.events_unsealed}, in no segment yet"),
        ("segments", f"{waiting.segments}, not acknowledged by the centre"),
        ("database", f"{found.database_bytes} bytes, {found.free_bytes} of them free"),
        ("WAL", f"{found.wal_bytes} bytes"),
        ("disk", f"{found.disk_bytes} bytes left"),
    ]


def _row(limit: Limit) -> tuple[str, ...]:
    used = limit.used.figure if limit.used else None
    whose = limit.used.of if limit.used else None
    allowed = f"{limit.allowed:g}" if isinstance(limit.allowed, float) else str(limit.allowed)
    return limit.name, _figure(used) if limit.counted else "", allowed, limit.unit, whose or ""


def _figure(figure: int | None) -> str:
    return _NOTHING if figure is None else str(figure)
