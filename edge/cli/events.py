"""`fieldpost events`."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import click

from edge.cli import folder_option, report_errors, to_terminal
from edge.errors import StoreError
from edge.ops import events as admin
from edge.ops.events import Logged
from sync.segment import SegmentError, decode


@click.command()
@folder_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@report_errors
def events(folder: Path, as_json: bool) -> None:
    """Print the event log: what is not shipped yet, and what was shipped recently.

    The latest events come last. A `?` behind a time: the clock was not synchronised.
    """
    line = _json if as_json else _text
    for logged in admin.read(folder, _decode):
        click.echo(line(logged))


def _decode(data: bytes) -> tuple[Any, ...]:
    try:
        return decode(data).events
    except SegmentError as error:
        raise StoreError(f"a segment in the database is damaged: {error}") from error


def _json(logged: Logged) -> str:
    event = logged.event._asdict()
    event["tags"] = dict(event["tags"])
    return json.dumps({"epoch": logged.epoch, "lane": logged.lane, **event})


def _text(logged: Logged) -> str:
    event = logged.event
    moment = datetime.datetime.fromtimestamp(event.time / 1000, datetime.UTC)
    value = None if event.value is None else f"{event.value:g} {event.unit or ''}".strip()
    tags = " ".join(f"{key}={text}" for key, text in event.tags.items())
    fields = (event.source, event.topic, event.name, value, event.level, event.text, tags)
    rest = "  ".join(str(field) for field in fields if field)
    stamp = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    mark = "" if event.clock else "?"
    return to_terminal(f"{stamp}{mark}  {logged.lane}/{event.seq}  {event.kind}  {rest}")
