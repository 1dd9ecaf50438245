"""Render the status page: one HTML document without scripts, readable on a telephone.

It shows names of devices and nodes, but no message content.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from html import escape
from typing import Final

from edge.engine.store.events import NewEvent
from edge.features.queues.store.depth_events import Depth
from edge.ops.checks.database import ALWAYS_FULL
from edge.ops.checks.health import FAILING, Health
from edge.ops.devices.device_status import AWAY, DETACHED, ONLINE, DeviceStatus
from edge.ops.gateway.status import Limit
from edge.web.status_snapshot import ProcessFigures, RecentEvent, Snapshot
from sync.common.text import duration, plural, size

NEAR: Final = 0.5
"""Fraction of a limit; if at least this part of a limit is used, the page shows the limit."""

MAX_QUEUES: Final = 20
"""Maximum number of queues that are shown: those with the most items."""

MAX_DEVICES: Final = 200
"""Maximum number of devices that are shown, the first by name; the others are counted."""

MAX_REASON: Final = 300
"""Maximum characters of the reason of a warning."""

QUOTING_KINDS: Final = frozenset({"message", "log", "reading"})
"""Kinds of events whose text may quote a message; the page does not show it."""

REFRESH: Final = 30
"""Seconds after which a browser reloads the page."""

_STYLE: Final = """
:root { color-scheme: light dark; font: 16px/1.4 system-ui, sans-serif; }
body { margin: 0 auto; max-width: 60rem; padding: 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
div { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid #8886; padding: .3rem .6rem .3rem 0; text-align: left;
  vertical-align: top; max-width: 24rem; overflow-wrap: break-word; }
th { font-weight: 600; }
table.facts td { overflow-wrap: anywhere; }
td p { margin: .3rem 0; }
.short { white-space: nowrap; }
.bad { font-weight: 700; } .bad::before { content: "\\26A0\\FE0E\\00A0"; }
small { opacity: .75; }
"""


def render(snapshot: Snapshot, process: ProcessFigures, health: Health, now: int) -> str:
    """Return the status page as HTML; `now` is in ms since 1970."""
    name = escape(snapshot.status.gateway)
    parts = (
        f"<h1>{name}</h1>",
        *_table(("", ""), _facts(snapshot, process, health, now), head=False),
        "<h2>Limits at half or more</h2>",
        *_table(("limit", "used", "allowed", "most used by"), _limits(snapshot.status.limits)),
        "<h2>Queues</h2>",
        *_table(("queue", "items", "ready", "locked", "delayed", "dead"), _queues(snapshot.queues)),
        "<h2>Devices</h2>",
        *_table(_DEVICE_HEADER, _devices(snapshot.devices[:MAX_DEVICES], now)),
        *_others(len(snapshot.devices) - MAX_DEVICES),
        f"<h2>Warnings of the last {duration(snapshot.observed)}</h2>",
        *_table(_EVENT_HEADER, _events(snapshot.events)),
        f"<p><small>{escape(_when(now))}, reloaded every {REFRESH} s, fieldpost"
        f" {escape(snapshot.status.version)}</small></p>",
    )
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="refresh" content="{REFRESH}">\n'
        f"<title>{name}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _facts(
    snapshot: Snapshot, process: ProcessFigures, health: Health, now: int
) -> Iterator[tuple[str, ...]]:
    status, running, waiting = snapshot.status, process.status, snapshot.status.waiting
    yield "state", _state(health)
    yield "running for", duration(running.uptime)
    yield "clock", "synchronised" if running.synchronised else _bad("not synchronised")
    by_protocol = ", ".join(f"{count} {name}" for name, count in sorted(status.protocols.items()))
    yield "sessions", f"{status.sessions}" + (f" ({by_protocol})" if by_protocol else "")
    yield "centre", _centre(snapshot, now)
    backlog = size(sum(lane.bytes for lane in snapshot.lanes))
    yield "backlog", f"{plural(waiting.segments, 'segment')}, {backlog}"
    yield (
        "messages",
        (
            f"{waiting.held} in custody, {waiting.outbox} waiting for devices,"
            f" {waiting.offline} plain for offline devices, {_alert(waiting.dead)} undeliverable"
        ),
    )
    yield "items", f"{waiting.queued} in queues, {_alert(waiting.queued_dead)} dead"
    yield "database", f"{size(status.database_bytes)}; {size(status.disk_bytes)} free on the disk"
    yield "written", f"{size(process.write_rate * 86_400)} per day, from the last hour"


def _state(health: Health) -> str:
    problems = "".join(
        f"<p>{_bad(escape(each.text))}<br>{escape(each.remedy)}</p>" for each in health.problems
    )
    if health.state == FAILING:
        return _bad(FAILING) + problems
    return f"devices can connect, messages are accepted{problems}"


def _centre(snapshot: Snapshot, now: int) -> str:
    if not snapshot.has_uplink:
        return "no uplink is configured: segments stay on the gateway"
    last_upload = snapshot.last_upload
    upload = "no upload yet" if last_upload is None else f"last upload {_ago(last_upload, now)}"
    notice = snapshot.last_notice
    last = "" if notice is None else f"; last notice {notice.name}, {_when(notice.time)}"
    return escape(upload + last)


def _limits(limits: Iterable[Limit]) -> Iterator[tuple[str, ...]]:
    for limit in limits:
        if limit.used is None or not limit.allowed or limit.name in ALWAYS_FULL:
            continue
        used, of = limit.used
        if used >= NEAR * limit.allowed:
            text = _bad(str(used)) if used >= limit.allowed else str(used)
            yield limit.name, text, f"{limit.allowed:g} {limit.unit}", escape(of or "")


def _queues(queues: Iterable[Depth]) -> Iterator[tuple[str, ...]]:
    for row in sorted(queues, key=lambda row: -row.depth)[:MAX_QUEUES]:
        ready = row.depth - row.locked - row.delayed
        figures = (row.depth, ready, row.locked, row.delayed)
        yield escape(row.topic), *map(str, figures), _alert(row.dead)


_DEVICE_HEADER: Final = (
    "device", "state", "protocol", "since", "address", "resource", "last seen", "held",
    "waiting", "unacknowledged",
)  # fmt: skip


def _devices(devices: Iterable[DeviceStatus], now: int) -> Iterator[tuple[str, ...]]:
    """Yield a row for each session of each device, connected or away; one row for a device without
    connected sessions."""
    for device, state, sessions, away in devices:
        waiting = str(device.held), str(device.outbox + device.offline)
        if not sessions:
            yield escape(device.name), state, "", "", "", "", _ago(device.seen, now), *waiting, ""
        for session in sessions:
            yield (
                escape(device.name),
                DETACHED if session.detached else ONLINE,
                f"{session.protocol} {session.version}".rstrip(),
                "" if session.since is None else _when(session.since),
                escape(session.address or ""),
                escape(session.resource),
                "" if session.seen is None else _ago(session.seen, now),
                *waiting,
                str(session.unacknowledged),
            )
        for durable in away:
            since = "" if durable.left is None else _when(durable.left)
            seen = "" if durable.left is None else _ago(durable.left, now)
            cells = AWAY, "", since, "", escape(durable.resource), seen
            numbers = str(durable.queued), str(durable.in_flight)
            yield escape(device.name), *cells, "", *numbers


def _others(count: int) -> Iterator[str]:
    if count > 0:
        yield f"<p>{plural(count, 'other device')}: <code>fieldpost device list</code></p>"


def _ago(moment: int | None, now: int) -> str:
    return "never" if moment is None else f"{duration(max(0, now - moment) / 1000)} ago"


_EVENT_HEADER: Final = ("time", "event", "source", "account", "reason", "value")


def _events(recent: Iterable[RecentEvent]) -> Iterator[tuple[str, ...]]:
    for wall, event in recent:
        what = f"{event.kind} {event.name or ''}"
        value = "" if event.value is None else f"{event.value:g} {event.unit or ''}".rstrip()
        account = (event.tags or {}).get("account", "")
        cells = (what, event.source or "", account, _reason(event), value)
        yield f'<span class="short">{_when(wall)}</span>', *map(escape, cells)


def _reason(event: NewEvent) -> str:
    """Return why an event was logged, without its text if that may quote a message."""
    tags = event.tags or {}
    if event.text and event.kind not in QUOTING_KINDS:
        return event.text if len(event.text) <= MAX_REASON else event.text[:MAX_REASON] + "..."
    if "limit" in tags:
        return f"the limit is {tags['limit']}"
    return tags.get("reason", "")


def _table(
    names: tuple[str, ...], rows: Iterable[tuple[str, ...]], *, head: bool = True
) -> Iterator[str]:
    lines = [
        f'<tr><th scope="row">{row[0]}</th>' + "".join(f"<td>{cell}</td>" for cell in row[1:])
        for row in rows
    ]
    if not lines:
        yield "<p>None.</p>"
        return
    yield "<div><table>" if head else '<div><table class="facts">'
    if head:
        yield "<tr>" + "".join(f'<th scope="col">{name}</th>' for name in names) + "</tr>"
    yield from (f"{line}</tr>" for line in lines)
    yield "</table></div>"


def _bad(text: str) -> str:
    return f'<span class="bad">{text}</span>'


def _alert(count: int) -> str:
    return _bad(str(count)) if count else "0"


def _when(wall: int) -> str:
    stamp = datetime.datetime.fromtimestamp(wall / 1000, datetime.UTC)
    return stamp.isoformat(" ", "seconds").replace("+00:00", " UTC")
