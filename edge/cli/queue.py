"""The `fieldpost queue` commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from edge.cli import echo_found, folder_option, json_option, yes_option
from edge.command_errors import to_terminal
from edge.features.queues.service import diagnosis
from edge.features.queues.service.diagnosis import DiagnosedItem, Report
from edge.features.queues.store.overview import Overview
from edge.ops.data import queue as queues
from sync.common.text import columns, plural, utc_time

_UNKNOWN: Final = "-"
"""Printed in place of a member's sessions if the connected members are not known."""

_queue = click.argument("name", metavar="NODE|SHARE")


@click.group()
def queue() -> None:
    """Inspect and repair queues.

    A queue belongs to a node or to a shared subscription ($share:NAME:FILTER).
    """


@queue.command("list")
@folder_option
@json_option("Print one JSON object per line.")
def list_(folder: Path, as_json: bool) -> None:
    """List all queues with the number of their items and members."""
    found = queues.all_queues(folder)
    echo_found((one._asdict() for one in found), _table(found), as_json=as_json)


@queue.command()
@_queue
@folder_option
@json_option("Print one JSON object; times are service seconds, but `wall` is ms since 1970 UTC.")
@click.option("--item", metavar="ID", help="Show only this item.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=0),
    default=diagnosis.MAX_ITEMS,
    show_default=True,
    help="Maximum number of items shown of each state.",
)
def show(name: str, folder: Path, as_json: bool, item: str | None, limit: int) -> None:
    """Show a queue, why its items do not move, and why it accepts no more.

    Which members are connected is only known while the gateway is running; otherwise a `-` is
    printed.
    """
    found = queues.show(folder, name, item=item, limit=max(limit, 1) if item else limit)
    if found.problem is not None and not as_json:
        click.echo(found.problem, err=True)
    lines = _lines(found.report, whole=item is None)
    echo_found([_json_report(found.report)], lines, as_json=as_json)


@queue.command()
@_queue
@click.argument("item", metavar="ITEM")
@folder_option
@yes_option
def unlock(name: str, item: str, folder: Path, yes: bool) -> None:
    """Unlock an item of a queue node.

    The item is taken from its worker as if its lock had timed out. If the worker has acted on the
    item already, it is acted on twice.
    """
    if not yes:
        found = queues.show(folder, name, item=item, limit=1).report.items[0]
        _confirm(f"{item}: {found.explanation}", "unlock it, although two workers may act on it?")
    queues.unlock(folder, name, item)
    click.echo(to_terminal(f"{item} is unlocked"))


@queue.command()
@_queue
@click.argument("items", metavar="ITEM...", nargs=-1)
@folder_option
@click.option("--all", "all_", is_flag=True, help="Requeue all dead items.")
@yes_option
def requeue(name: str, items: tuple[str, ...], folder: Path, all_: bool, yes: bool) -> None:
    """Make dead items ready again.

    Each item returns to its old place in the queue. If one of the named items is not dead, none is
    requeued. Workers may act twice on an item that was delivered before, also in a shared
    subscription at QoS 0 or 2.
    """
    if bool(items) == all_:
        raise click.UsageError("give either ITEM... or --all")
    found = queues.get(folder, name)
    if not yes and (all_ or found.node is None):
        _confirm(_counts(found), "requeue dead items, although workers may act on them twice?")
    once = list(dict.fromkeys(items))
    count = queues.requeue_all(folder, name) if all_ else queues.requeue(folder, name, once)
    click.echo(f"{count} requeued")


@queue.command()
@_queue
@folder_option
@yes_option
def purge(name: str, folder: Path, yes: bool) -> None:
    """Delete all items of a queue.

    Items delivered to members of a shared subscription stay.
    """
    if not yes:
        _confirm(_counts(queues.get(folder, name)), "delete them permanently?")
    click.echo(f"{queues.purge(folder, name)} deleted")


def _table(found: Iterator[Overview]) -> Iterator[str]:
    header = ("queue", "ready", "locked", "delayed", "dead", "bytes", "members")
    rows = [
        (q.name, *map(str, (q.ready, q.locked, q.delayed, q.dead, q.bytes, q.members)))
        for q in found
    ]
    yield from columns([header, *rows], right=range(1, len(header)))


def _confirm(facts: str, question: str) -> None:
    click.echo(to_terminal(facts), err=True)
    click.confirm(question, abort=True, err=True)


def _counts(found: Overview) -> str:
    return (
        f"{found.name}: {found.ready} ready, {found.locked} locked, {found.delayed} delayed,"
        f" {found.dead} dead"
    )


def _json_report(report: Report) -> dict[str, object]:
    members = [member._asdict() | {"there": report.sessions(member)} for member in report.members]
    return {
        **report.queue._asdict(),
        "full": report.full and report.full.name,
        "service": report.moment.service,
        "members": members,
        "items_shown": [_json_item(found) for found in report.items],
    }


def _json_item(found: DiagnosedItem) -> dict[str, object]:
    reason = {"why": found.reason.value, "before": found.before, "sentence": found.explanation}
    return found.item._asdict() | reason


def _lines(report: Report, *, whole: bool) -> Iterator[str]:
    if whole:
        yield from _summary(report.queue)
        if report.refusal:
            yield report.refusal
        yield ""
        yield from _members(report)
        yield ""
    for found in report.items:
        yield _item_line(found)
    left = sum((report.queue.ready, report.queue.locked, report.queue.delayed, report.queue.dead))
    left -= len(report.items)
    if whole and left > 0:
        yield f"and {left} more: --limit shows more of each state"


def _summary(found: Overview) -> Iterator[str]:
    kind = "shared subscription" if found.node is None else "queue node"
    yield f"{found.name}: {kind}, {found.policy}"
    if found.node is not None:
        yield (
            f"an item is locked for at most {found.lock_timeout:g} s, and dead after"
            f" {plural(found.max_deliveries, 'delivery', 'deliveries')}"
        )
    yield f"{found.bytes} bytes in {_counts(found).partition(': ')[2]}"


def _members(report: Report) -> Iterator[str]:
    if not report.members:
        yield "no subscribers"
        return
    rows: list[tuple[str, ...]] = [("member", "QoS", "accepts", "has", "connected")]
    for member in report.members:
        sessions = report.sessions(member)
        connected = _UNKNOWN if sessions is None else ", ".join(sessions) or "no"
        figures = (member.qos, member.requests, member.in_flight)
        rows.append((member.jid, *map(str, figures), connected))
    yield from columns(rows, right=(1, 2, 3))


def _item_line(found: DiagnosedItem) -> str:
    item = found.item
    fields = (
        item.state,
        item.item,
        utc_time(item.wall),
        f"{item.publisher} -> {item.node}",
        f"{item.bytes} bytes",
        *([f"priority {item.priority}"] if item.priority else []),
        found.explanation,
    )
    return "  ".join(fields)
