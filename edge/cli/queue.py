"""`fieldpost queue`: queues of nodes and of shares, and why their items do not move."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from edge.cli import folder as folder_option
from edge.cli import shown, telling
from edge.features.queues.store.queue_view import Overview
from edge.ops import queue as admin
from edge.ops import queue_report
from edge.ops.queue_report import Report, Told, stamp
from sync.common.text import columns, plural

_NOT_KNOWN: Final = "-"
"""In place of who is there, where that is not known."""

_queue = click.argument("name", metavar="NODE|SHARE")
_yes = click.option("--yes", is_flag=True, help="Do not ask.")


@click.group()
def queue() -> None:
    """See to queues: of nodes, and of shares ($share:NAME:FILTER)."""


@queue.command("list")
@folder_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@telling
def list_(folder: Path, as_json: bool) -> None:
    """Print all queues, and how many items and members each has."""
    found = admin.listed(folder)
    if as_json:
        for one in found:
            click.echo(json.dumps(one._asdict()))
        return
    header = ("queue", "ready", "locked", "delayed", "dead", "bytes", "members")
    rows = [(one.name, *map(str, _figures(one))) for one in found]
    for line in columns([header, *rows], right=range(1, len(header))):
        click.echo(shown(line))


@queue.command()
@_queue
@folder_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object; times in service seconds.")
@click.option("--item", metavar="ID", help="This item alone.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=0),
    default=queue_report.ITEMS,
    show_default=True,
    help="Items of each state that are printed.",
)
@telling
def show(name: str, folder: Path, as_json: bool, item: str | None, limit: int) -> None:
    """Print how a queue stands, who its members are, and why each item does not move.

    Who is there the running gateway says; without one it is a `-`.
    """
    found = admin.show(folder, name, item=item, most=max(limit, 1) if item else limit)
    if as_json:
        click.echo(json.dumps(_object(found.report)))
        return
    if found.trouble is not None:
        click.echo(found.trouble, err=True)
    for line in _lines(found.report, whole=item is None):
        click.echo(shown(line))


@queue.command()
@_queue
@click.argument("item", metavar="ITEM")
@folder_option
@_yes
@telling
def unlock(name: str, item: str, folder: Path, yes: bool) -> None:
    """Take an item of a node's queue from the worker that has it, as if its time were over.

    The worker may have acted on it, and another may act on it again.
    """
    if not yes:
        told = admin.show(folder, name, item=item, most=1).report.items[0]
        _ask(f"{item}: {told.sentence}", "take it away, though it may be acted on twice?")
    admin.unlock(folder, name, item)
    click.echo(shown(f"{item} is unlocked"))


@queue.command()
@_queue
@click.argument("items", metavar="ITEM...", nargs=-1)
@folder_option
@click.option("--all", "all_", is_flag=True, help="All that are dead.")
@_yes
@telling
def requeue(name: str, items: tuple[str, ...], folder: Path, all_: bool, yes: bool) -> None:
    """Let dead items wait again, each at its old place in line: all that are named, or none.

    One that was given to a member before may be acted on twice, also where that was to be at most
    once, in a share at level 0 or 2.
    """
    if bool(items) == all_:
        raise click.UsageError("name items, or --all")
    found = admin.overview(folder, name)
    if not yes and (all_ or found.node is None):
        _ask(_many(found), "let dead ones wait again, though they may be acted on twice?")
    count = admin.requeue_all(folder, name) if all_ else admin.requeue(folder, name, _once(items))
    click.echo(f"{count} requeued")


@queue.command()
@_queue
@folder_option
@_yes
@telling
def purge(name: str, folder: Path, yes: bool) -> None:
    """Delete the items of a queue for good; what members of a share have stays theirs."""
    if not yes:
        _ask(_many(admin.overview(folder, name)), "delete them for good?")
    click.echo(f"{admin.purge(folder, name)} deleted")


def _once(items: tuple[str, ...]) -> list[str]:
    return list(dict.fromkeys(items))


def _ask(facts: str, question: str) -> None:
    click.echo(shown(facts), err=True)
    click.confirm(question, abort=True, err=True)


def _many(found: Overview) -> str:
    return (
        f"{found.name}: {found.ready} ready, {found.locked} locked, {found.delayed} delayed,"
        f" {found.dead} dead"
    )


def _figures(one: Overview) -> tuple[int, ...]:
    return one.ready, one.locked, one.delayed, one.dead, one.bytes, one.members


def _object(report: Report) -> dict[str, object]:
    members = [member._asdict() | {"there": report.sessions(member)} for member in report.members]
    return {
        **report.queue._asdict(),
        "service": report.moment.service,
        "members": members,
        "items_shown": [_item(told) for told in report.items],
    }


def _item(told: Told) -> dict[str, object]:
    why = {"why": told.why.name.lower(), "before": told.before, "sentence": told.sentence}
    return told.item._asdict() | why


def _lines(report: Report, *, whole: bool) -> Iterator[str]:
    if whole:
        yield from _facts(report.queue)
        yield ""
        yield from _members(report)
        yield ""
    for told in report.items:
        yield _line(told)
    left = sum((report.queue.ready, report.queue.locked, report.queue.delayed, report.queue.dead))
    left -= len(report.items)
    if whole and left > 0:
        yield f"and {left} more: --limit prints more of each state"


def _facts(found: Overview) -> Iterator[str]:
    kind = "share" if found.node is None else "queue node"
    yield f"{found.name}: {kind}, {found.policy}"
    if found.node is not None:
        yield (
            f"an item is locked for {found.lock_timeout:g} s at most, and dead after"
            f" {plural(found.max_deliveries, 'delivery', 'deliveries')}"
        )
    yield f"{found.bytes} bytes in {_many(found).partition(': ')[2]}"


def _members(report: Report) -> Iterator[str]:
    if not report.members:
        yield "nobody is subscribed"
        return
    rows: list[tuple[str, ...]] = [("member", "level", "takes", "has", "there")]
    for member in report.members:
        sessions = report.sessions(member)
        there = _NOT_KNOWN if sessions is None else ", ".join(sessions) or "away"
        figures = (member.qos, member.requests, member.in_flight)
        rows.append((member.jid, *map(str, figures), there))
    yield from columns(rows, right=(1, 2, 3))


def _line(told: Told) -> str:
    item = told.item
    fields = (
        item.state,
        item.item,
        stamp(item.wall),
        f"{item.publisher} -> {item.node}",
        f"{item.bytes} bytes",
        *([f"priority {item.priority}"] if item.priority else []),
        told.sentence,
    )
    return "  ".join(fields)
