"""The `fieldpost events` command."""

from __future__ import annotations

import json
from pathlib import Path

import click

from edge.cli import folder_option, json_option
from edge.command_errors import to_terminal
from edge.ops import events as ops
from edge.ops.events import LoggedEvent
from sync.common.text import utc_time


@click.command()
@folder_option
@json_option("Print one JSON object per line.")
def events(folder: Path, as_json: bool) -> None:
    """Print the event log.

    It holds the events that are not uploaded yet and the recently uploaded ones, the latest last. A
    `?` after a time means that the clock was not synchronised.
    """
    line = _json if as_json else _text
    for logged in ops.read(folder):
        click.echo(line(logged))


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
