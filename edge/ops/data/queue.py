"""Operations of `fieldpost queue`: list, show, unlock, requeue and purge queues.

The database is read and changed directly; a running gateway notices changes within seconds. Only
the running gateway knows which members are connected, so it is asked over its control socket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from edge import topics
from edge.config import load
from edge.engine.store import meta
from edge.engine.store.database import Transaction
from edge.errors import SetupError
from edge.features.queues.service import admin, diagnosis
from edge.features.queues.service.diagnosis import Moment, Report
from edge.features.queues.service.errors import QueueError
from edge.features.queues.store import overview
from edge.features.queues.store.overview import Overview
from edge.ops.gateway import control
from edge.ops.gateway.control import QueueAttendance
from edge.ops.transactions import changing, read_pages, reading
from edge.topics import InvalidFilter

BATCH: Final = 10_000
"""Maximum items that one transaction requeues or deletes. It blocks the gateway for under 1 s."""


class QueueStatus(NamedTuple):
    """The state of a queue; `problem` is the reason if the connected members are unknown."""

    report: Report
    problem: str | None


def find(tx: Transaction, name: str) -> Overview:
    """Return the queue of a node, or of a shared subscription `$share:NAME:FILTER`.

    Raises `SetupError` if there is none.
    """
    try:
        share = topics.parse_share(name)
    except InvalidFilter as error:
        raise SetupError(f"{name}: {error}") from None
    if share is not None:
        found = overview.of_share(tx, share.name, share.filter)
    else:
        found = overview.of_node(tx, name)
    if found is None:
        kind = "shared subscription with members" if share is not None else "queue node"
        raise SetupError(f"there is no {kind} {name}; see `fieldpost queue list`")
    return found


def all_queues(folder: Path) -> Iterator[Overview]:
    """Yield all queues, oldest first, in several transactions (see `read_pages`)."""
    return read_pages(folder, 0, overview.page, lambda queue: queue.id)


def show(
    folder: Path, name: str, *, item: str | None = None, limit: int = diagnosis.MAX_ITEMS
) -> QueueStatus:
    """Report on a queue.

    Args:
        name: a node or a shared subscription.
        item: report only the items with this ItemID.
        limit: maximum items of each state.

    Raises:
        SetupError: there is no such queue, or no such item in it.
    """
    limits = load.load(folder).limits
    with reading(folder) as tx:
        number = find(tx, name).id
    answer, problem = _ask_gateway(folder, number)
    with reading(folder) as tx:
        queue = find(tx, name)
        known = answer is not None and queue.id == number
        attendance = answer.attending if answer is not None and known else None
        moment = _moment(tx, answer)
        report = diagnosis.report(tx, limits, queue, attendance, moment, item=item, limit=limit)
    if item is not None and not report.items:
        raise SetupError(f"there is no item {item!r} in {queue.name}")
    return QueueStatus(report, problem)


def unlock(folder: Path, name: str, item: str) -> None:
    """End the lock of an item; raises `SetupError` if the item is not locked."""
    with _changing(folder) as tx:
        admin.unlock(tx, find(tx, name), item)


def requeue(folder: Path, name: str, items: Sequence[str]) -> int:
    """Make the dead items with these ItemIDs ready, all or none; return their number.

    Raises `SetupError` if an item does not exist or is not dead.
    """
    with _changing(folder) as tx:
        return admin.requeue(tx, find(tx, name), items)


def requeue_all(folder: Path, name: str) -> int:
    """Make all dead items of a queue ready; return their number."""
    return _in_batches(folder, name, admin.requeue_all)


def purge(folder: Path, name: str) -> int:
    """Delete the items of a queue, but no locked items of a shared subscription.

    Returns the number of deleted items.
    """
    return _in_batches(folder, name, admin.purge)


def _in_batches(
    folder: Path, name: str, change: Callable[[Transaction, Overview, int], int]
) -> int:
    count = 0
    while True:
        with _changing(folder) as tx:
            changed = change(tx, find(tx, name), BATCH)
        count += changed
        if changed < BATCH:
            return count


def get(folder: Path, name: str) -> Overview:
    """Return the queue named `name`, as `find` does, in a transaction of its own."""
    with reading(folder) as tx:
        return find(tx, name)


@contextmanager
def _changing(folder: Path) -> Iterator[Transaction]:
    with changing(folder) as tx:
        try:
            yield tx
        except QueueError as error:
            raise SetupError(str(error)) from error


def _ask_gateway(folder: Path, queue: int) -> tuple[QueueAttendance | None, str | None]:
    try:
        return control.attendance(folder, queue), None
    except SetupError as error:
        return None, str(error)


def _moment(tx: Transaction, answer: QueueAttendance | None) -> Moment:
    if answer is None:
        return Moment(meta.last_service_second(tx), None)
    return Moment(answer.service, tx.now.wall)
