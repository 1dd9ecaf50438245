"""The `fieldpost status` command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from edge.cli import echo_found, folder_option, json_option
from edge.config import load
from edge.ops import current_time
from edge.ops.checks import health
from edge.ops.checks.health import Health
from edge.ops.gateway import status as ops
from edge.ops.gateway.control import FrontStatus
from edge.ops.gateway.status import Limit, Status
from sync.common.text import columns, duration, plural

_UNKNOWN: Final = "-"


@click.command()
@folder_option
@json_option("Print one JSON object.")
def status(folder: Path, as_json: bool) -> None:
    """Print the status of the gateway.

    This includes its health and what to do about problems, the waiting messages, items, events and
    segments, and the use of each limit. If the gateway is not running, values that only the process
    knows are shown as `-`. If a limit applies to each source, account, node or lane, the largest
    use is shown, and whose it is.
    """
    found = ops.read(folder)
    judged = health.judge(folder, load.load(folder), found, current_time.now().wall)
    echo_found([health.status_object(found, judged)], _lines(found, judged), as_json=as_json)


def _lines(found: Status, judged: Health) -> Iterator[str]:
    yield f"{found.gateway}: {found.state}, fieldpost {found.version} ({found.build})"
    yield f"health: {judged.state}"
    for problem in judged.problems:
        yield f"  {problem.name}: {problem.text}"
        yield f"    -> {problem.remedy}"
    if found.changed:
        yield "the limits in fieldpost.toml have changed; apply them with `fieldpost reload`"
    yield ""
    yield from columns(_facts(found))
    yield ""
    header = ("limit", "used", "allowed", "unit", "most used by")
    yield from columns([header, *map(_row, found.limits)], right=(1, 2))


def _facts(found: Status) -> list[tuple[str, ...]]:
    waiting = found.waiting
    synchronised = {None: _UNKNOWN, True: "synchronised", False: "not synchronised"}
    sessions, paused = _figure(found.sessions), ""
    if len(found.protocols) > 1:
        counts = (f"{count} {name}" for name, count in sorted(found.protocols.items()))
        sessions += f" ({', '.join(counts)})"
    if found.paused is not None:
        paused = f"; {plural(found.paused, 'connection')} slowed by a rate limit"
    return [
        ("uptime", _UNKNOWN if found.uptime is None else duration(found.uptime)),
        ("service", duration(found.service)),
        ("clock", synchronised[found.synchronised]),
        ("boot", found.boot or _UNKNOWN),
        ("epoch", found.epoch),
        ("sessions", f"{sessions}{paused}"),
        *((f"front {front.number}", _front(front)) for front in found.fronts),
        ("held", f"{plural(waiting.held, 'message')} awaiting the sender's `deliver`"),
        ("outbox", f"{plural(waiting.outbox, 'message')} waiting for devices"),
        ("offline", f"{plural(waiting.offline, 'plain message')} stored for offline devices"),
        ("dead", f"{plural(waiting.dead, 'dead letter')}, {waiting.in_doubt} in doubt"),
        ("queued", f"{plural(waiting.queued, 'item')} in queues, {waiting.queued_dead} dead"),
        ("events", f"{plural(waiting.events_unsealed, 'event')} not in a segment yet"),
        ("segments", f"{plural(waiting.segments, 'segment')} waiting for the centre"),
        ("database", f"{found.database_bytes} bytes, {found.free_bytes} of them free"),
        ("WAL", f"{found.wal_bytes} bytes"),
        ("disk", f"{found.disk_bytes} bytes free"),
    ]


def _front(front: FrontStatus) -> str:
    restarts = plural(front.restarts, "restart")
    if front.pid is None:
        return f"not running; {restarts}"
    text = f"{plural(front.connections, 'connection')}; {restarts}; pid {front.pid}"
    return text if front.confined else f"{text}; not confined"


def _row(limit: Limit) -> tuple[str, ...]:
    used = limit.used.value if limit.used else None
    most_used_by = limit.used.of if limit.used else None
    allowed = f"{limit.allowed:g}" if isinstance(limit.allowed, float) else str(limit.allowed)
    figure = _figure(used) if limit.counted else ""
    return limit.name, figure, allowed, limit.unit, most_used_by or ""


def _figure(figure: int | None) -> str:
    return _UNKNOWN if figure is None else str(figure)
