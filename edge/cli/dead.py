"""The `fieldpost dead` commands, for messages that could not be delivered (dead letters)."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from edge.cli import echo_lines, folder_option, json_option, yes_option
from edge.command_errors import to_terminal
from edge.features.outbox.store.dead_letters import IN_DOUBT, StoredDeadLetter
from edge.ops.data import dead_letters as ops
from sync.common.text import plural, utc_time

LIST_LIMIT: Final = 100
"""Maximum number of dead letters that `list` prints without --all: the latest ones."""

_ids = click.argument("ids", metavar="ID...", nargs=-1, required=True, type=click.IntRange(min=1))


@click.group()
def dead() -> None:
    """Inspect, requeue or delete undeliverable messages."""


@dead.command("list")
@folder_option
@json_option("Print one JSON object per line; times in ms since 1970 UTC.")
@click.option("--all", "all_", is_flag=True, help=f"Print all, not only the latest {LIST_LIMIT}.")
def list_(folder: Path, as_json: bool, all_: bool) -> None:
    """List undeliverable messages, the latest last."""
    found = ops.list_all(folder)
    in_doubt = False
    for message in found if all_ else _latest(found):
        in_doubt = in_doubt or message.state == IN_DOUBT
        click.echo(json.dumps(_object(message)) if as_json else to_terminal(_line(message)))
    if in_doubt and not as_json:
        click.echo(ops.IN_DOUBT_HELP, err=True)


@dead.command()
@click.argument("number", metavar="ID", type=click.IntRange(min=1))
@folder_option
@json_option("Print one JSON object; the time in ms since 1970 UTC.")
def show(number: int, folder: Path, as_json: bool) -> None:
    """Print undeliverable message ID and its body."""
    message, body = ops.show(folder, number)
    text = body.decode("utf-8", "backslashreplace")
    if as_json:
        click.echo(json.dumps({**_object(message), "body": text}))
        return
    for name, value in _object(message).items():
        click.echo(to_terminal(f"{name:<11}  {'-' if value is None else value}"))
    if message.state == IN_DOUBT:
        click.echo(ops.IN_DOUBT_HELP)
    click.echo()
    echo_lines(text.split("\n"))


@dead.command()
@_ids
@folder_option
@click.option(
    "--may-repeat",
    is_flag=True,
    help="Send messages in doubt again: devices may act on them twice.",
)
@yes_option
def requeue(ids: tuple[int, ...], folder: Path, may_repeat: bool, yes: bool) -> None:
    """Send messages again.

    Requeues all the named messages, or none. A message is in doubt if the device may have it
    already. For such a message only the release is repeated, so that the device acts on it once.
    With --may-repeat the message is sent again, and the device may act on it twice.
    """
    rows = _unique(ids)
    if may_repeat and not yes:
        _confirm(_in_doubt(folder, rows), "send it again, although the device may act on it twice?")
    ops.requeue(folder, rows, may_repeat=may_repeat)
    for row in rows:
        click.echo(f"{row} is requeued")


@dead.command()
@_ids
@folder_option
@yes_option
def drop(ids: tuple[int, ...], folder: Path, yes: bool) -> None:
    """Delete messages permanently.

    Deletes all the named messages, or none.
    """
    rows = _unique(ids)
    if not yes:
        _confirm(ops.find(folder, rows), "delete it permanently?")
    ops.drop(folder, rows)
    for row in rows:
        click.echo(f"{row} is deleted")


def _unique(ids: Sequence[int]) -> list[int]:
    return list(dict.fromkeys(ids))


def _in_doubt(folder: Path, rows: Sequence[int]) -> list[StoredDeadLetter]:
    return [message for message in ops.find(folder, rows) if message.state == IN_DOUBT]


def _confirm(messages: list[StoredDeadLetter], question: str) -> None:
    if any(message.state == IN_DOUBT for message in messages):
        click.echo(ops.IN_DOUBT_HELP, err=True)
    for message in messages:
        click.echo(to_terminal(_line(message)), err=True)
        click.confirm(f"{message.row}: {question}", abort=True, err=True)


def _latest(found: Iterator[StoredDeadLetter]) -> Iterator[StoredDeadLetter]:
    """Yield the latest dead letters, and print how many older ones are left out."""
    count = 0
    kept: deque[StoredDeadLetter] = deque(maxlen=LIST_LIMIT)
    for message in found:
        count += 1
        kept.append(message)
    if count > LIST_LIMIT:
        older = plural(count - LIST_LIMIT, "older message is", "older messages are")
        click.echo(f"{older} not shown; --all shows all", err=True)
    yield from kept


def _object(message: StoredDeadLetter) -> dict[str, object]:
    fields = message._asdict()
    return {"id": fields.pop("row"), **fields}


def _line(message: StoredDeadLetter) -> str:
    fields = (
        str(message.row),
        utc_time(message.time),
        message.state,
        f"level {message.qos}",
        f"{message.bytes} bytes",
        f"{message.sender} -> {message.destination}",
        *([] if message.msg_id is None else [f"msgId {message.msg_id}"]),
        message.reason,
    )
    return "  ".join(fields)
