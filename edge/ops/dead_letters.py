"""Messages that could not be delivered, and what an operator does with them.

What may be put back, and how, is decided in `store.dead`, whose rows these are. A running gateway
sees within seconds what was put back. How anything is printed or asked is the commands'.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from edge.features.outbox.store import dead_letters
from edge.features.outbox.store.dead_letters import StoredDeadLetter
from edge.ops.transactions import changing, reading

PAGE: Final = 100
"""Messages read at once: a slow reader of the list keeps nothing from the gateway."""

DOUBT: Final = (
    "In doubt: the device may have acted on it. `requeue` repeats its release alone, where the"
    " device has that outstanding, and nothing happens twice; `requeue --may-repeat` sends it anew,"
    " and it may happen twice; `drop` forgets it, and it may never have happened."
)
"""What each choice means; told wherever such a message is shown."""


class Shown(NamedTuple):
    """A dead message with its body, the bytes as they came."""

    message: StoredDeadLetter
    body: bytes


def listed(folder: Path) -> Iterator[StoredDeadLetter]:
    """Yield all dead messages, the oldest first; no transaction is open while it yields."""
    after = 0
    while True:
        with reading(folder) as tx:
            page = dead_letters.list_page(tx, after, PAGE)
        if not page:
            return
        yield from page
        after = page[-1].row


def show(folder: Path, row: int) -> Shown:
    """Return one message; raises `SetupError` if there is none of that number."""
    with reading(folder) as tx:
        return Shown(dead_letters.find(tx, row), dead_letters.body(tx, row))


def find(folder: Path, rows: Sequence[int]) -> list[StoredDeadLetter]:
    """Return these messages; raises `SetupError` if there is none of one of the numbers."""
    with reading(folder) as tx:
        return [dead_letters.find(tx, row) for row in rows]


def requeue(folder: Path, rows: Sequence[int], *, may_repeat: bool = False) -> None:
    """Put messages back into the outboxes of their devices, all of them or none.

    Of one in doubt, the release alone is repeated, unless it `may_repeat`. Raises `SetupError` if
    one of them cannot be put back, and why.
    """
    with changing(folder) as tx:
        for row in rows:
            dead_letters.requeue(tx, row, may_repeat=may_repeat)


def drop(folder: Path, rows: Sequence[int]) -> None:
    """Forget messages, all of them or none; raises `SetupError` if there is none of a number."""
    with changing(folder) as tx:
        for row in rows:
            dead_letters.delete(tx, row)
