"""Rows whose stanza was sent to a session that has not acknowledged it yet.

The table is temporary: after a restart no row is in flight, and unacknowledged stanzas are sent
again. Each kind of row belongs to one feature. The rows are also in memory, as an image of the
table (`Transaction.cache`); the limits on unacknowledged stanzas bound its size.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from edge.engine.database import Receipt, Transaction

_LOAD: Final = "SELECT kind, id, generation FROM temp.under_way"
_INSERT: Final = "INSERT INTO temp.under_way (kind, id, generation) VALUES (?, ?, ?)"
_DELETE: Final = "DELETE FROM temp.under_way WHERE kind = ? AND id = ? AND generation = ?"

_IMAGE: Final = "in flight"

_Entry: TypeAlias = tuple[str, int, int]
"""A row of the table: kind, number, and generation."""

_Unwritten: TypeAlias = dict[_Entry, bool]
"""The entries by which the image differs from the table: true if added, false if removed."""


class _Image:
    """The rows of the table, by kind and number, and by session."""

    __slots__ = ("rows", "sessions")

    def __init__(self, entries: Iterable[_Entry]) -> None:
        self.rows: dict[tuple[str, int], set[_Entry]] = {}
        self.sessions: dict[int, set[_Entry]] = {}
        for entry in entries:
            self.add(entry)

    def add(self, entry: _Entry) -> None:
        """Add an entry."""
        self.rows.setdefault(entry[:2], set()).add(entry)
        self.sessions.setdefault(entry[2], set()).add(entry)

    def remove(self, entry: _Entry) -> None:
        """Remove an entry."""
        of_row, of_session = self.rows[entry[:2]], self.sessions[entry[2]]
        of_row.remove(entry)
        of_session.remove(entry)
        if not of_row:
            del self.rows[entry[:2]]
        if not of_session:
            del self.sessions[entry[2]]


def begin(tx: Transaction, receipt: Receipt, generation: int) -> None:
    """Record that a row's stanza is sent to a session."""
    entry, image = (*receipt, generation), _image(tx)
    if entry not in image.rows.get(receipt, ()):
        _change(tx, image, entry, add=True)


def end(tx: Transaction, receipt: Receipt, generation: int) -> bool:
    """Record that a session has a row's stanza; return whether the row was in flight there."""
    entry, image = (*receipt, generation), _image(tx)
    if entry not in image.rows.get(receipt, ()):
        return False
    _change(tx, image, entry, add=False)
    return True


def is_in_flight(tx: Transaction, receipt: tuple[str, int]) -> bool:
    """Return whether a row's stanza was sent to a session that has not acknowledged it."""
    return receipt in _image(tx).rows


def clear(tx: Transaction, receipt: Receipt) -> None:
    """Stop tracking a row."""
    image = _image(tx)
    for entry in tuple(image.rows.get(receipt, ())):
        _change(tx, image, entry, add=False)


def forget_kind(tx: Transaction, kind: str, generation: int) -> None:
    """Stop tracking a session's rows of one kind."""
    image = _image(tx)
    for entry in tuple(image.sessions.get(generation, ())):
        if entry[0] == kind:
            _change(tx, image, entry, add=False)


def take_unacknowledged(tx: Transaction, generation: int) -> list[tuple[str, int]]:
    """Remove and return (kind, row) of everything that a session has not acknowledged."""
    image = _image(tx)
    found = sorted(image.sessions.get(generation, ()))
    for entry in found:
        _change(tx, image, entry, add=False)
    return [entry[:2] for entry in found]


def load(tx: Transaction) -> None:
    """Read the image, if it is not in memory."""
    _image(tx)


def _image(tx: Transaction) -> _Image:
    image: _Image | None = tx.cache.get(_IMAGE)
    if image is None:
        image = tx.cache[_IMAGE] = _Image(tx.rows(_LOAD))
    return image


def _change(tx: Transaction, image: _Image, entry: _Entry, *, add: bool) -> None:
    """Change the image at once, and the table later."""
    unwritten: _Unwritten = tx.unwritten(_IMAGE, dict, _write)
    _apply(image, unwritten, entry, add)
    tx.on_undo(_apply, image, unwritten, entry, not add)


def _apply(image: _Image, unwritten: _Unwritten, entry: _Entry, add: bool) -> None:
    if add:
        image.add(entry)
    else:
        image.remove(entry)
    if entry in unwritten:
        del unwritten[entry]
    else:
        unwritten[entry] = add


def _write(tx: Transaction) -> None:
    """Insert and delete the rows that differ from the image."""
    unwritten: _Unwritten = tx.memo.pop(_IMAGE)
    for sql, is_new in ((_INSERT, True), (_DELETE, False)):
        entries = [entry for entry, is_added in unwritten.items() if is_added is is_new]
        if entries:
            tx.run_many(sql, entries)
