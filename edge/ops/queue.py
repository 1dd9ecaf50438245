"""Queues, and what an operator does with their items.

What an item's state means is told by `queue_report`, and changed by `store.queue_care`. Who is
there only the running gateway knows: it is asked, and what it does not say is told as not known. It
sees within seconds what was changed. How anything is printed or asked is the commands'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from edge.engine import meta
from edge.engine.database import Transaction
from edge.errors import SetupError
from edge.features.pubsub.rules import topic
from edge.features.pubsub.rules.topic import InvalidFilter
from edge.features.queues.store import queue_admin, queue_view
from edge.features.queues.store.queue_view import Overview
from edge.ops import control, queue_report
from edge.ops.control import There
from edge.ops.queue_report import Moment, Report
from edge.ops.transactions import changing, reading

PAGE: Final = 100
"""Queues read at once."""

BATCH: Final = 10_000
"""Items that are requeued or deleted in one transaction: the gateway waits meanwhile, for some
tenths of a second."""


class Shown(NamedTuple):
    """A queue as it stands; `trouble` says why a gateway that runs did not tell who is there."""

    report: Report
    trouble: str | None


def find(tx: Transaction, name: str) -> Overview:
    """Return the queue of a node, or of a share in either way of writing it.

    Raises `SetupError` if there is none.
    """
    try:
        share = topic.parse_share(name)
    except InvalidFilter as error:
        raise SetupError(f"{name}: {error}") from None
    if share is not None:
        found = queue_view.of_share(tx, share.name, share.filter.text)
    else:
        found = queue_view.of_node(tx, name)
    if found is None:
        what = "a share that has members" if share is not None else "a node that is a queue"
        raise SetupError(f"{name} is not {what}: `fieldpost queue list` names all")
    return found


def listed(folder: Path) -> Iterator[Overview]:
    """Yield all queues, the oldest first; no transaction is open while it yields."""
    after = 0
    while True:
        with reading(folder) as tx:
            page = queue_view.page(tx, after, PAGE)
        if not page:
            return
        yield from page
        after = page[-1].id


def show(
    folder: Path, name: str, *, item: str | None = None, most: int = queue_report.ITEMS
) -> Shown:
    """Return how a queue stands.

    Args:
        folder: the gateway's.
        name: of a node, or a share.
        item: an ItemID: of it alone; else of the first `most` in each state.
        most: see there.

    Raises:
        SetupError: there is no such queue, or no such item in it.
    """
    with reading(folder) as tx:
        number = find(tx, name).id
    there, trouble = _ask(folder, number)
    with reading(folder) as tx:
        queue = find(tx, name)
        known = there is not None and queue.id == number
        attending = there.attending if there is not None and known else None
        when = _moment(tx, there)
        report = queue_report.made(tx, queue, attending, when, item=item, most=most)
    if item is not None and not report.items:
        raise SetupError(f"there is no item {item!r} in {queue.name}")
    return Shown(report, trouble)


def unlock(folder: Path, name: str, item: str) -> None:
    """End the lock of an item; raises `SetupError` where there is none."""
    with changing(folder) as tx:
        queue_admin.unlock(tx, find(tx, name), item)


def requeue(folder: Path, name: str, items: Sequence[str]) -> int:
    """Let dead items wait again, all of them or none; returns how many.

    Raises `SetupError` if one of them is not dead, or not there.
    """
    with changing(folder) as tx:
        return queue_admin.requeue(tx, find(tx, name), items)


def requeue_all(folder: Path, name: str) -> int:
    """Let all dead items of a queue wait again; returns how many."""
    return _in_batches(folder, name, queue_admin.requeue_all)


def purge(folder: Path, name: str) -> int:
    """Delete the items of a queue, for good; returns how many they were."""
    return _in_batches(folder, name, queue_admin.purge)


def _in_batches(folder: Path, name: str, do: Callable[[Transaction, Overview, int], int]) -> int:
    """Do something to so many items of a queue at a time; returns to how many in all."""
    count = 0
    while True:
        with changing(folder) as tx:
            done = do(tx, find(tx, name), BATCH)
        count += done
        if done < BATCH:
            return count


def overview(folder: Path, name: str) -> Overview:
    """Return how many items a queue has; raises `SetupError` if there is none of the name."""
    with reading(folder) as tx:
        return find(tx, name)


def _ask(folder: Path, queue: int) -> tuple[There | None, str | None]:
    try:
        return control.members(folder, queue), None
    except SetupError as error:
        return None, str(error)


def _moment(tx: Transaction, there: There | None) -> Moment:
    if there is None:
        return Moment(meta.service(tx), None)
    return Moment(there.service, tx.now.wall)
