"""`fieldpost dead`: messages that could not be delivered."""

from __future__ import annotations

import datetime
import json
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from edge.cli import folder_option, report_errors, to_terminal
from edge.features.outbox.store.dead_letters import IN_DOUBT, StoredDeadLetter
from edge.ops import dead_letters as admin
from sync.common.text import plural

SCREEN: Final = 100
"""Messages that `list` prints without --all: the latest."""

_ids = click.argument("ids", metavar="ID...", nargs=-1, required=True, type=click.IntRange(min=1))
_yes = click.option("--yes", is_flag=True, help="Do not ask.")


@click.group()
def dead() -> None:
    """See to messages that could not be delivered."""


@dead.command("list")
@folder_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line; times in ms.")
@click.option("--all", "all_", is_flag=True, help=f"More than the latest {SCREEN}.")
@report_errors
def list_(folder: Path, as_json: bool, all_: bool) -> None:
    """Print the messages that could not be delivered, the latest last."""
    found = admin.listed(folder)
    doubt = False
    for message in found if all_ else _latest(found):
        doubt = doubt or message.state == IN_DOUBT
        click.echo(json.dumps(_object(message)) if as_json else to_terminal(_line(message)))
    if doubt and not as_json:
        click.echo(admin.DOUBT, err=True)


@dead.command()
@click.argument("number", metavar="ID", type=click.IntRange(min=1))
@folder_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object; the time in ms.")
@report_errors
def show(number: int, folder: Path, as_json: bool) -> None:
    """Print message ID, and its body below."""
    message, body = admin.show(folder, number)
    text = body.decode("utf-8", "backslashreplace")
    if as_json:
        click.echo(json.dumps({**_object(message), "body": text}))
        return
    for name, value in _object(message).items():
        click.echo(to_terminal(f"{name:<11}  {'-' if value is None else value}"))
    if message.state == IN_DOUBT:
        click.echo(admin.DOUBT)
    click.echo()
    for line in text.split("\n"):
        click.echo(to_terminal(line))


@dead.command()
@_ids
@folder_option
@click.option(
    "--may-repeat", is_flag=True, help="Send those in doubt anew: they may be acted on twice."
)
@_yes
@report_errors
def requeue(ids: tuple[int, ...], folder: Path, may_repeat: bool, yes: bool) -> None:
    """Send messages again: all of these, or none.

    Of one in doubt, the release alone is repeated to the device that has it, which does nothing
    twice. With --may-repeat it is sent anew, and the device may act on it twice.
    """
    rows = _once(ids)
    if may_repeat and not yes:
        _ask(_doubtful(folder, rows), "send it anew, though it may be acted on twice?")
    admin.requeue(folder, rows, may_repeat=may_repeat)
    for row in rows:
        click.echo(f"{row} is requeued")


@dead.command()
@_ids
@folder_option
@_yes
@report_errors
def drop(ids: tuple[int, ...], folder: Path, yes: bool) -> None:
    """Forget messages for good: all of these, or none."""
    rows = _once(ids)
    if not yes:
        _ask(admin.find(folder, rows), "forget it for good?")
    admin.drop(folder, rows)
    for row in rows:
        click.echo(f"{row} is dropped")


def _once(ids: Sequence[int]) -> list[int]:
    return list(dict.fromkeys(ids))


def _doubtful(folder: Path, rows: Sequence[int]) -> list[StoredDeadLetter]:
    return [message for message in admin.find(folder, rows) if message.state == IN_DOUBT]


def _ask(messages: list[StoredDeadLetter], question: str) -> None:
    """Show messages and ask what is to be done with each of them; ends where one is refused."""
    if any(message.state == IN_DOUBT for message in messages):
        click.echo(admin.DOUBT, err=True)
    for message in messages:
        click.echo(to_terminal(_line(message)), err=True)
        click.confirm(f"{message.row}: {question}", abort=True, err=True)


def _latest(found: Iterator[StoredDeadLetter]) -> Iterator[StoredDeadLetter]:
    """Yield the latest, and say where there are others."""
    count = 0
    kept: deque[StoredDeadLetter] = deque(maxlen=SCREEN)
    for message in found:
        count += 1
        kept.append(message)
    if count > SCREEN:
        older = plural(count - SCREEN, "older one is", "older ones are")
        click.echo(f"{older} left out: --all prints them", err=True)
    yield from kept


def _object(message: StoredDeadLetter) -> dict[str, object]:
    fields = message._asdict()
    return {"id": fields.pop("row"), **fields}


def _line(message: StoredDeadLetter) -> str:
    moment = datetime.datetime.fromtimestamp(message.time / 1000, datetime.UTC)
    stamp = moment.isoformat(timespec="seconds").replace("+00:00", "Z")
    fields = (
        str(message.row),
        stamp,
        message.state,
        f"level {message.qos}",
        f"{message.bytes} bytes",
        f"{message.sender} -> {message.destination}",
        *([] if message.msg_id is None else [f"msgId {message.msg_id}"]),
        message.reason,
    )
    return "  ".join(fields)
