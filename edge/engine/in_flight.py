"""Rows in flight: a session was sent their stanza, and has not acknowledged or answered it yet.

Some rows need an acknowledgement (XEP-0198), others an answer (`AWAITS_ANSWER`). The table is
temporary: after a restart no row is in flight, and unacknowledged stanzas are sent again. Each kind
of row belongs to one feature. The rows are also in memory, as an image of the table
(`Transaction.cache`); the limits on unacknowledged stanzas bound its size.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from edge.engine.database import Receipt, Transaction

_LOAD: Final = "SELECT kind, id, generation FROM temp.under_way"
_INSERT: Final = "INSERT INTO temp.under_way (kind, id, generation) VALUES (?, ?, ?)"
_DELETE: Final = "DELETE FROM temp.under_way WHERE kind = ? AND id = ? AND generation = ?"

_IMAGE: Final = "in flight"

_Row: TypeAlias = tuple[str, int]
"""The kind and number of a row in flight, as in `Receipt`."""

_Unwritten: TypeAlias = dict[tuple[str, int, int], bool]
"""Rows (kind, number, session's generation) to insert into the table (true) or delete (false)."""


class _Image:
    """The image of the table in memory.

    Attributes:
        rows: by row, the generations of the sessions to which it is in flight.
        sessions: by the generation of a session, the rows in flight to it.
    """

    __slots__ = ("rows", "sessions")

    def __init__(self) -> None:
        self.rows: dict[_Row, tuple[int, ...]] = {}
        self.sessions: dict[int, set[_Row]] = {}

    def add(self, row: _Row, generation: int) -> None:
        self.rows[row] = (*self.rows.get(row, ()), generation)
        of_session = self.sessions.get(generation)
        if of_session is None:
            self.sessions[generation] = {row}
        else:
            of_session.add(row)

    def remove(self, row: _Row, generation: int) -> None:
        left = tuple(other for other in self.rows.pop(row) if other != generation)
        if left:
            self.rows[row] = left
        of_session = self.sessions[generation]
        of_session.remove(row)
        if not of_session:
            del self.sessions[generation]


def begin(tx: Transaction, receipt: Receipt, generation: int) -> None:
    """Record that a row's stanza is sent to a session."""
    image: _Image = tx.cache.get(_IMAGE) or _load(tx)
    if generation not in image.rows.get(receipt, ()):
        _change(tx, image, receipt, generation, add=True)


def end(tx: Transaction, receipt: Receipt, generation: int) -> bool:
    """Record that a session has received a row's stanza; return whether the row was in flight."""
    image: _Image = tx.cache.get(_IMAGE) or _load(tx)
    if generation not in image.rows.get(receipt, ()):
        return False
    _change(tx, image, receipt, generation, add=False)
    return True


def is_in_flight(tx: Transaction, row: _Row) -> bool:
    """Return whether a row is in flight to any session."""
    image: _Image = tx.cache.get(_IMAGE) or _load(tx)
    return row in image.rows


def generations(tx: Transaction, row: _Row) -> tuple[int, ...]:
    """Return the numbers (generations) of the sessions to which a row is in flight."""
    image: _Image = tx.cache.get(_IMAGE) or _load(tx)
    return image.rows.get(row, ())


def has_rows(tx: Transaction, kind: str, generation: int) -> bool:
    """Return whether a row of the kind `kind` is in flight to a session."""
    image: _Image = tx.cache.get(_IMAGE) or _load(tx)
    return any(row[0] == kind for row in image.sessions.get(generation, ()))


def clear(tx: Transaction, row: _Row) -> None:
    """Record that a row is no longer in flight to any session."""
    image: _Image = tx.cache.get(_IMAGE) or _load(tx)
    for generation in image.rows.get(row, ()):
        _change(tx, image, row, generation, add=False)


def forget_kind(tx: Transaction, kind: str, generation: int) -> None:
    """Record that no row of the kind `kind` is in flight to a session any more."""
    image: _Image = tx.cache.get(_IMAGE) or _load(tx)
    for row in tuple(image.sessions.get(generation, ())):
        if row[0] == kind:
            _change(tx, image, row, generation, add=False)


def take_unacknowledged(tx: Transaction, generation: int) -> list[tuple[str, int]]:
    """Remove and return (kind, number) of the rows in flight to a session."""
    image: _Image = tx.cache.get(_IMAGE) or _load(tx)
    found = sorted(image.sessions.get(generation, ()))
    for row in found:
        _change(tx, image, row, generation, add=False)
    return found


def load(tx: Transaction) -> None:
    """Read the rows in flight into memory, unless they are there."""
    if _IMAGE not in tx.cache:
        _load(tx)


def _load(tx: Transaction) -> _Image:
    image = _Image()
    for kind, number, generation in tx.rows(_LOAD):
        image.add((kind, number), generation)
    tx.cache[_IMAGE] = image
    return image


def _change(tx: Transaction, image: _Image, row: _Row, generation: int, *, add: bool) -> None:
    unwritten: _Unwritten = tx.unwritten(_IMAGE, dict, _write)
    _apply(image, unwritten, row, generation, add)
    tx.on_undo(_apply, image, unwritten, row, generation, not add)


def _apply(image: _Image, unwritten: _Unwritten, row: _Row, generation: int, add: bool) -> None:
    if add:
        image.add(row, generation)
    else:
        image.remove(row, generation)
    entry = (*row, generation)
    if unwritten.pop(entry, None) is None:
        unwritten[entry] = add


def _write(tx: Transaction) -> None:
    unwritten: _Unwritten = tx.memo.pop(_IMAGE)
    for sql, is_new in ((_INSERT, True), (_DELETE, False)):
        entries = [entry for entry, is_added in unwritten.items() if is_added is is_new]
        if entries:
            tx.run_many(sql, entries)
