"""Render the status page: one HTML document without scripts, readable on a telephone.

It shows names of devices and nodes, but no message content.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final

from edge.engine.store.events import NewEvent
from edge.features.queues.service.diagnosis import Report
from edge.ops.checks import uplink as uplink_checks
from edge.ops.checks.database import ALWAYS_FULL
from edge.ops.checks.finding import WRONG, Finding
from edge.ops.checks.health import DEGRADED, FAILING, HEALTHY, Health
from edge.ops.devices.device_status import AWAY, DETACHED, ONLINE, DeviceStatus
from edge.ops.gateway.status import Limit
from edge.web.status_snapshot import ProcessFigures, RecentEvent, Snapshot
from sync.common.text import duration, plural, size

USED: Final = 0.01
NEAR: Final = 0.5
"""Fractions of a limit from which the page shows its use, and highlights it."""

MAX_DEVICES: Final = 200
"""Maximum number of devices that are shown, the first by name; the others are counted."""

MAX_REASON: Final = 300
"""Maximum characters of the reason of a warning."""

QUOTING_KINDS: Final = frozenset({"message", "log", "reading"})
"""Kinds of events whose text may quote a message; the page does not show it."""

REFRESH: Final = 30
"""Seconds after which a browser reloads the page."""

_STYLE: Final = """
:root { color-scheme: light dark; --paper: #f8f9f8; --card: #fff; --ink: #1b2226; --soft: #55606a;
  --line: #d9dfe0; --good: #1f7a57; --notice: #855600; --wrong: #b3311f; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181a; --card: #1b2124; --ink: #e6eaeb;
  --soft: #a3aeb3; --line: #353f43; --good: #4fbf93; --notice: #e0aa46; --wrong: #f58a76; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.45 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.4rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 0; overflow-wrap: anywhere; }
p { margin: .25rem 0; }
.soft { color: var(--soft); font-size: .9rem; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: .6rem .9rem; overflow-x: auto; }
.verdict { border-left: .4rem solid var(--mark); font-weight: 650; margin: .75rem 0; }
.verdict ul { font-weight: 400; }
.good { --mark: var(--good); } .notice { --mark: var(--notice); } .wrong { --mark: var(--wrong); }
ul { margin: .3rem 0 0; padding-left: 1.1rem; } li { overflow-wrap: anywhere; }
.tiles, .queues { display: grid; gap: .5rem; list-style: none; margin: 0; padding: 0;
  grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); }
.tiles b { display: block; font-size: 1.3rem; font-variant-numeric: tabular-nums; }
.queues { grid-template-columns: repeat(auto-fill, minmax(min(26rem, 100%), 1fr)); }
.bad { color: var(--wrong); font-weight: 700; } .bad::before { content: "\\26A0\\FE0E\\00A0"; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { border-top: 1px solid var(--line); padding: .35rem .8rem .35rem 0; text-align: left;
  vertical-align: top; max-width: 22rem; }
thead th { border: 0; color: var(--soft); font-weight: 400; }
tbody th { font-weight: 600; }
meter { width: 6rem; }
@media (max-width: 60rem) {
  thead { display: none; }
  tr { display: block; border-top: 1px solid var(--line); padding: .4rem 0; }
  tr:first-child { border: 0; }
  th, td { display: block; border: 0; padding: 0; max-width: none; }
  td { display: inline-block; max-width: 100%; margin-right: .9rem; }
  td::before { content: attr(data-name) ": "; color: var(--soft); }
  td:empty { display: none; }
}
"""


def render(
    snapshot: Snapshot, queues: Iterable[Report], process: ProcessFigures, health: Health, now: int
) -> str:
    """Return the status page as HTML.

    Args:
        queues: reports on the queues with the most items, each with the first item of each state.
        now: ms since 1970.
    """
    name, running = escape(snapshot.status.gateway), process.status
    clock = "clock synchronised" if running.synchronised else _bad("clock not synchronised")
    parts = (
        f"<h1>{name}</h1>",
        f'<p class="soft">fieldpost {escape(running.version)} ({running.build}), running for'
        f" {duration(running.uptime)}, {clock}</p>",
        *_verdict(health),
        *_tiles(snapshot, process),
        "<h2>Uplink and backlog</h2>",
        *_uplink(snapshot, now),
        "<h2>Queues</h2>",
        *_queues(snapshot, list(queues), running.service),
        "<h2>Devices</h2>",
        *_table(_DEVICE_HEADER, _devices(snapshot.devices[:MAX_DEVICES], now)),
        *_others(len(snapshot.devices) - MAX_DEVICES),
        f"<h2>Limits used by {USED:.0%} or more</h2>",
        *_table(_LIMIT_HEADER, _limits(snapshot.status.limits)),
        f"<h2>Warnings of the last {duration(snapshot.observed)}</h2>",
        *_table(_EVENT_HEADER, _events(snapshot.events)),
        f'<p class="soft">{escape(_when(now))}, reloaded every {REFRESH} s</p>',
    )
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="refresh" content="{REFRESH}">\n'
        f"<title>{name}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


_MARKS: Final = {HEALTHY: "good", DEGRADED: "notice", FAILING: "wrong"}
_VERDICTS: Final = {
    HEALTHY: "Devices can connect, and messages are accepted",
    DEGRADED: "Devices can connect, and messages are accepted, with problems",
    FAILING: "No device can connect, or no message is accepted",
}


def _verdict(health: Health) -> Iterator[str]:
    yield f'<div class="card verdict {_MARKS[health.state]}">{_VERDICTS[health.state]}'
    yield from _list(map(_finding, health.problems))
    yield "</div>"


def _finding(found: Finding) -> str:
    """Return a finding with its remedy as HTML."""
    text = escape(found.text)
    remedy = f'<br><span class="soft">{escape(found.remedy)}</span>' if found.remedy else ""
    return (_bad(text) if found.verdict == WRONG else text) + remedy


def _list(items: Iterable[str]) -> Iterator[str]:
    lines = [f"<li>{item}</li>" for item in items]
    if lines:
        yield f"<ul>{''.join(lines)}</ul>"


def _tiles(snapshot: Snapshot, process: ProcessFigures) -> Iterator[str]:
    status, waiting = snapshot.status, snapshot.status.waiting
    sessions = ", ".join(f"{count} {name}" for name, count in sorted(status.protocols.items()))
    tiles = (
        (status.sessions, "sessions" + (f": {sessions}" if sessions else "")),
        (waiting.held, "messages in custody"),
        (waiting.outbox + waiting.offline, "messages waiting for devices"),
        (_alert(waiting.dead), "undeliverable messages"),
        (waiting.queued, "items in queues"),
        (_alert(waiting.queued_dead), "dead items"),
        (size(status.database_bytes), "database"),
        (size(status.disk_bytes), "free on the disk"),
        (size(process.write_rate * 86_400), "written per day, from the last hour"),
    )
    yield '<ul class="tiles">'
    yield from (f'<li class="card"><b>{value}</b>{name}</li>' for value, name in tiles)
    yield "</ul>"


def _uplink(snapshot: Snapshot, now: int) -> Iterator[str]:
    """Yield what `fieldpost doctor` says about the uplink, and its last upload and failure."""
    found, route = snapshot.uplink, snapshot.route
    findings = (
        *uplink_checks.route(route, now),
        *uplink_checks.unsealed(found, snapshot.segment_age, snapshot.status, now),
        *uplink_checks.backlog(found, route.target, now),
    )
    lines = [_finding(finding) for finding in findings]
    if route.target:
        lines.insert(1, f"last upload: {_ago(found.last_upload, now)}")
    if found.failure is not None:
        name, text, moment = found.failure
        lines.insert(1, _bad(escape(f"{name}: {text}")) + f" ({_ago(moment, now)})")
    yield '<div class="card">'
    yield from _list(lines)
    yield "</div>"


def _queues(snapshot: Snapshot, reports: Sequence[Report], service: float) -> Iterator[str]:
    """Yield a card for each queue, with the reasons why it accepts no more items, and why the first
    item of each state waits."""
    if not reports:
        yield "<p>None.</p>"
        return
    oldest = {row.queue: row.oldest for row in snapshot.queues}
    yield '<ul class="queues">'
    for report in reports:
        queue, since = report.queue, oldest.get(report.queue.id)
        connected = sum(bool(report.sessions(member)) for member in report.members)
        figures = [
            f"{queue.ready} ready", f"{queue.locked} locked", f"{queue.delayed} delayed",
            _bad(f"{queue.dead} dead") if queue.dead else "0 dead",
            "subscribers unknown" if report.attendance is None
            else f"{connected} of {plural(queue.members, 'subscriber')} connected",
        ]  # fmt: skip
        if since is not None:
            figures.append(f"oldest {duration(max(0.0, service - since))}")
        yield f'<li class="card"><h3>{escape(queue.name)}</h3>'
        yield f'<p class="soft">{", ".join(figures)}</p>'
        refusal = [_bad(escape(report.refusal))] if report.refusal else []
        yield from _list([*refusal, *(escape(found.explanation) for found in report.items)])
        yield "</li>"
    yield "</ul>"
    if len(snapshot.queues) > len(reports):
        yield "<p>Other queues: <code>fieldpost queue list</code></p>"


_LIMIT_HEADER: Final = ("limit", "used", "allowed", "part", "most used by")


def _limits(limits: Iterable[Limit]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each limit that is in use, the fullest first."""
    parts = [
        (limit.used.value / limit.allowed, limit, limit.used)
        for limit in limits
        if limit.used is not None and limit.allowed and limit.name not in ALWAYS_FULL
    ]
    for part, limit, (used, of) in sorted(parts, key=lambda row: -row[0]):
        if part < USED:
            return
        is_size = limit.unit == "bytes"
        value = size(used) if is_size else str(used)
        allowed = size(limit.allowed) if is_size else f"{limit.allowed:g} {limit.unit}"
        meter = f'<meter value="{min(part, 1.0):.2f}" high="{NEAR}"></meter> {part:.0%}'
        yield limit.name, _bad(value) if part >= 1 else value, allowed, meter, escape(of or "")


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
                session.protocol_text,
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
        yield _when(wall), *map(escape, cells)


def _reason(event: NewEvent) -> str:
    """Return why an event was logged, without its text if that may quote a message."""
    tags = event.tags or {}
    if event.text and event.kind not in QUOTING_KINDS:
        return event.text if len(event.text) <= MAX_REASON else event.text[:MAX_REASON] + "..."
    if "limit" in tags:
        return f"the limit is {tags['limit']}"
    return tags.get("reason", "")


def _table(names: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    lines = [
        f'<tr><th scope="row">{row[0]}</th>'
        + "".join(
            f'<td data-name="{name}">{cell}</td>'
            for name, cell in zip(names[1:], row[1:], strict=True)
        )
        for row in rows
    ]
    if not lines:
        yield "<p>None.</p>"
        return
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    yield f'<div class="card"><table><thead><tr>{head}</tr></thead><tbody>'
    yield from (f"{line}</tr>" for line in lines)
    yield "</tbody></table></div>"


def _bad(text: str) -> str:
    return f'<span class="bad">{text}</span>'


def _alert(count: int) -> str:
    return _bad(str(count)) if count else "0"


def _when(wall: int) -> str:
    stamp = datetime.datetime.fromtimestamp(wall / 1000, datetime.UTC)
    return stamp.isoformat(" ", "seconds").replace("+00:00", " UTC")
