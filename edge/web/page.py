"""The status page: one document without scripts, for a telephone in front of the gateway as well.

What devices and nodes are called is shown, and what messages are about is not.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from html import escape
from typing import Final

from edge.features.queues.store.depth_events import Depth
from edge.ops.checks.database import ALWAYS_FULL
from edge.ops.status import Limit
from edge.web.status_snapshot import Look, Noted, Process
from sync.common.text import duration, plural, size

NEAR: Final = 0.5
"""The part of a limit from which on it is shown."""

QUEUES: Final = 20
"""Queues that are shown, the deepest."""

REFRESH: Final = 30
"""Seconds after which a browser asks again."""

_STYLE: Final = """
:root { color-scheme: light dark; font: 16px/1.4 system-ui, sans-serif; }
body { margin: 0 auto; max-width: 60rem; padding: 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
div { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid #8886; padding: .3rem .6rem .3rem 0; text-align: left;
  vertical-align: top; overflow-wrap: anywhere; }
th { font-weight: 600; }
.bad { font-weight: 700; } .bad::before { content: "\\26A0\\FE0E\\00A0"; }
small { opacity: .75; }
"""


def page(look: Look, process: Process, now: int) -> str:
    """Write the page; `now` is in ms since 1970."""
    name = escape(look.status.gateway)
    parts = (
        f"<h1>{name}</h1>",
        *_table(("", ""), _facts(look, process, now), head=False),
        "<h2>Limits that are near</h2>",
        *_table(("limit", "used", "allowed", "whose"), _limits(look.status.limits)),
        "<h2>Queues</h2>",
        *_table(("queue", "items", "ready", "locked", "delayed", "dead"), _queues(look.queues)),
        "<h2>Warnings since the start</h2>",
        *_table(("when", "what", "who", "value"), _events(look.noted)),
        f"<p><small>{escape(_when(now))}, asked again every {REFRESH} s. fieldpost"
        f" {escape(look.status.version)}</small></p>",
    )
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="refresh" content="{REFRESH}">\n'
        f"<title>{name}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _facts(look: Look, process: Process, now: int) -> Iterator[tuple[str, ...]]:
    status, running, waiting = look.status, process.running, look.status.waiting
    yield "state", "devices can connect" if process.up else _bad("devices cannot connect")
    yield "running for", duration(running.uptime)
    yield "clock", "synchronised" if running.synchronised else _bad("not synchronised")
    yield "sessions", str(status.sessions)
    yield "centre", _centre(look, now)
    yield "waiting for the centre", f"{plural(waiting.segments, 'segment')}, {_backlog(look)}"
    yield (
        "messages",
        (
            f"{waiting.held} held, {waiting.outbox} for their devices, {waiting.offline} plain,"
            f" {_alert(waiting.dead)} dead"
        ),
    )
    yield "items", f"{waiting.queued} in queues, {_alert(waiting.queued_dead)} dead"
    yield "database", f"{size(status.database_bytes)}; {size(status.disk_bytes)} left on the disk"
    yield "written", f"{size(process.average * 86_400)} a day, by the last hour"


def _centre(look: Look, now: int) -> str:
    taken = "has taken nothing yet" if look.taken is None else _ago(look.taken, now)
    told = "" if look.told is None else f"; last word {look.told.name}, {_when(look.told.time)}"
    return escape(taken + told)


def _ago(moment: int, now: int) -> str:
    return f"took a segment {duration(max(0, now - moment) / 1000)} ago"


def _backlog(look: Look) -> str:
    return size(sum(lane.bytes for lane in look.lanes))


def _limits(limits: Iterable[Limit]) -> Iterator[tuple[str, ...]]:
    for limit in limits:
        if limit.used is None or not limit.allowed or limit.name in ALWAYS_FULL:
            continue
        used, of = limit.used
        if used >= NEAR * limit.allowed:
            shown = _bad(str(used)) if used >= limit.allowed else str(used)
            yield limit.name, shown, f"{limit.allowed:g} {limit.unit}", escape(of or "")


def _queues(queues: Iterable[Depth]) -> Iterator[tuple[str, ...]]:
    for row in sorted(queues, key=lambda row: -row.depth)[:QUEUES]:
        ready = row.depth - row.locked - row.delayed
        figures = (row.depth, ready, row.locked, row.delayed)
        yield escape(row.topic), *map(str, figures), _alert(row.dead)


def _events(noted: Iterable[Noted]) -> Iterator[tuple[str, ...]]:
    for wall, event in noted:
        what = f"{event.kind} {event.name or ''}"
        value = "" if event.value is None else f"{event.value:g}"
        yield _when(wall), escape(what), escape(event.source or ""), value


def _table(
    names: tuple[str, ...], rows: Iterable[tuple[str, ...]], *, head: bool = True
) -> Iterator[str]:
    """Write a table; its cells are HTML already. Without rows it says so."""
    lines = [
        f'<tr><th scope="row">{row[0]}</th>' + "".join(f"<td>{cell}</td>" for cell in row[1:])
        for row in rows
    ]
    if not lines:
        yield "<p>None.</p>"
        return
    yield "<div><table>"
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
