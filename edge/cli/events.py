"""The `fieldpost events` command."""

from __future__ import annotations

import json
import re
import select
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from edge.cli import folder_option, json_option
from edge.command_errors import to_terminal
from edge.ops import current_time
from edge.ops.data import events as ops
from edge.ops.data.events import LoggedEvent, Numbers, Selection
from sync.common.text import utc_time
from sync.segment import KINDS

POLL_MS: Final = 1000
"""Milliseconds between two readings of the log with --follow."""

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_AGO: Final = re.compile(r"(\d{1,9})([smhd])")


class _Since(click.ParamType[int]):
    """A time, or a time before now; converted to ms since 1970 UTC."""

    name = "TIME"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if found := _AGO.fullmatch(value):
            return current_time.now().wall - int(found[1]) * _UNITS[found[2]] * 1000
        try:
            moment = datetime.fromisoformat(value)
            return round(
                (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000
            )
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r} is neither a time such as 2026-07-01T12:00:00Z nor one before now,"
                " such as 30s, 15m, 2h or 7d",
                param,
                ctx,
            )


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Also print new events, until Ctrl-C.")
@click.option(
    "--since",
    metavar="TIME",
    type=_Since(),
    help="Print events from this time on (2026-07-01T12:00:00Z, in UTC unless it says otherwise),"
    " or from this time before now (30s, 15m, 2h, 7d). Default: all, or with --follow none.",
)
@click.option(
    "--device",
    metavar="NAME",
    default="",
    help="Print events whose source is this account: a name, or a JID without a resource.",
)
@click.option(
    "--kind",
    "kinds",
    type=click.Choice(KINDS, case_sensitive=False),
    multiple=True,
    help="Print events of this kind; may be repeated.",
)
@json_option("Print one JSON object per line.")
@folder_option
def events(
    folder: Path,
    follow: bool,
    since: int | None,
    device: str,
    kinds: tuple[str, ...],
    as_json: bool,
) -> None:
    """Print the event log.

    It holds the events that are not uploaded yet and the recently uploaded ones, the latest last. A
    `?` after a time means that the clock was not synchronised. The gateway may be running or not.
    """
    line = _json if as_json else _text
    selected = Selection(since or 0, device, kinds)
    after: Numbers = ops.end(folder) if follow and since is None else {}
    try:
        _print(folder, after, selected, line)
        while follow and _wait():
            # what is logged from now on is new, even if the clock is behind
            _print(folder, after, selected._replace(since=0), line)
    except KeyboardInterrupt:
        if not follow:
            raise


def _print(
    folder: Path, after: Numbers, selected: Selection, line: Callable[[LoggedEvent], str]
) -> None:
    for logged in ops.read(folder, after):
        if selected.has(logged.event):
            click.echo(line(logged))


def _wait() -> bool:
    """Wait until the log should be read again; return false if nobody reads the output any more."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)  # errors are always reported
    return not poll.poll(POLL_MS)


def _json(logged: LoggedEvent) -> str:
    event = logged.event._asdict()
    event["tags"] = dict(event["tags"])
    return json.dumps({"epoch": logged.epoch, "lane": logged.lane, **event})


def _text(logged: LoggedEvent) -> str:
    event = logged.event
    value = None if event.value is None else f"{event.value:g} {event.unit or ''}".strip()
    tags = " ".join(f"{key}={text}" for key, text in event.tags.items())
    fields = (event.source, event.topic, event.name, value, event.level, event.text, tags)
    rest = "  ".join(str(field) for field in fields if field)
    mark = "" if event.clock else "?"
    stamp = utc_time(event.time, "milliseconds")
    return to_terminal(f"{stamp}{mark}  {logged.lane}/{event.seq}  {event.kind}  {rest}")
