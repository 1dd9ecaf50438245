"""List, show, requeue and delete dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from edge.config import load
from edge.engine.dispatch.encoding import encodings
from edge.engine.dispatch.hooks import new_context
from edge.features.outbox.store import dead_letters
from edge.features.outbox.store.dead_letters import StoredDeadLetter
from edge.ops.transactions import changing, read_pages, reading

IN_DOUBT_HELP: Final = (
    "In doubt: the device may have acted on the message already. `requeue` only repeats the release"
    " to a device that has the message, so it is acted on once. `requeue --may-repeat` sends it"
    " again, so it may be acted on twice. `drop` deletes it, so it may never be acted on."
)
"""The choices for a message in doubt, printed with each list that contains one."""


def list_all(folder: Path) -> Iterator[StoredDeadLetter]:
    """Yield all dead letters, oldest first, in several transactions (see `read_pages`)."""
    return read_pages(folder, 0, dead_letters.list_page, lambda message: message.row)


def show(folder: Path, row: int) -> tuple[StoredDeadLetter, bytes]:
    """Return the dead letter with this number, and its message as a device would get it; raises
    `SetupError` if none has the number."""
    with reading(folder) as tx:
        letter, content = dead_letters.find(tx, row), dead_letters.content(tx, row)
    if not content.kind:
        return letter, content.body
    settings = load.load(folder)
    context = new_context(settings.gateway.domain, settings.limits)
    return letter, next(encodings(context, content), b"")


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
