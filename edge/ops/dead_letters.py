"""List, show, requeue and delete dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from edge.features.outbox.store import dead_letters
from edge.features.outbox.store.dead_letters import StoredDeadLetter
from edge.ops.transactions import changing, reading

PAGE: Final = 100
"""Dead letters read per transaction, so that a slow consumer does not block the gateway."""

IN_DOUBT_HELP: Final = (
    "In doubt: the device may have acted on the message already. `requeue` only repeats the release"
    " to a device that has the message, so it is acted on once. `requeue --may-repeat` sends it"
    " again, so it may be acted on twice. `drop` deletes it, so it may never be acted on."
)
"""The choices for a message in doubt, printed with each list that contains one."""


class DeadLetterWithBody(NamedTuple):
    """A dead letter and the bytes of its body, unchanged."""

    message: StoredDeadLetter
    body: bytes


def list_all(folder: Path) -> Iterator[StoredDeadLetter]:
    """Yield all dead letters, oldest first.

    No transaction is open while the caller handles a dead letter.
    """
    after = 0
    while True:
        with reading(folder) as tx:
            page = dead_letters.list_page(tx, after, PAGE)
        if not page:
            return
        yield from page
        after = page[-1].row


def show(folder: Path, row: int) -> DeadLetterWithBody:
    """Return the dead letter with this number, and its body; raises `SetupError` without one."""
    with reading(folder) as tx:
        return DeadLetterWithBody(dead_letters.find(tx, row), dead_letters.body(tx, row))


def find(folder: Path, rows: Sequence[int]) -> list[StoredDeadLetter]:
    """Return the dead letters with these numbers; raises `SetupError` if one does not exist."""
    with reading(folder) as tx:
        return [dead_letters.find(tx, row) for row in rows]


def requeue(folder: Path, rows: Sequence[int], *, may_repeat: bool = False) -> None:
    """Return dead letters to the outboxes of their devices: all of them or none.

    For a message in doubt only the release is repeated; with `may_repeat` the message is sent
    again. Raises `SetupError` with the reason if one cannot be requeued.
    """
    with changing(folder) as tx:
        for row in rows:
            dead_letters.requeue(tx, row, may_repeat=may_repeat)


def drop(folder: Path, rows: Sequence[int]) -> None:
    """Delete the dead letters with these numbers: all of them or none.

    Raises `SetupError` if one does not exist.
    """
    with changing(folder) as tx:
        for row in rows:
            dead_letters.delete(tx, row)
