"""Rows in flight: a session was sent their message, and has not acknowledged or answered it yet.

Some rows need an acknowledgement (XEP-0198), others an answer (`AWAITS_ANSWER`). The table is
temporary: after a restart no row is in flight, and what is unacknowledged is sent again. Each kind
of row belongs to one feature. The rows are also in memory, as an image of the table
(`Transaction.cache`); the limits on unacknowledged messages bound its size.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from edge.engine.store.database import Receipt, Transaction
from edge.engine.store.image import Changes, Image, Table, write_rows

_LOAD: Final = "SELECT kind, id, generation FROM temp.in_flight"
_INSERT: Final = "INSERT INTO temp.in_flight (kind, id, generation) VALUES (?, ?, ?)"
_DELETE: Final = "DELETE FROM temp.in_flight WHERE kind = ? AND id = ? AND generation = ?"

_IMAGE: Final = "in flight"

_Row: TypeAlias = tuple[str, int]
"""The kind and number of a row in flight, as in `Receipt`."""

_Entry: TypeAlias = tuple[str, int, int]
"""A row in flight and the generation of the session to which it is: a row of the table."""


class _InFlightImage(Image[_Entry, _Entry]):
    """The image of the table in memory.

    Attributes:
        generations: by row in flight, the generations of the sessions to which it is.
        sessions: by the generation of a session, the rows in flight to it.
    """

    def __init__(self) -> None:
        super().__init__(_TABLE)
        self.generations: dict[_Row, tuple[int, ...]] = {}
        self.sessions: dict[int, set[_Row]] = {}

    def index(self, old: _Entry | None, new: _Entry | None) -> None:
        """Add or remove an entry."""
        if new is not None:
            kind, number, generation = new
            row = kind, number
            self.generations[row] = (*self.generations.get(row, ()), generation)
            self.sessions.setdefault(generation, set()).add(row)
        elif old is not None:
            kind, number, generation = old
            row = kind, number
            found = self.generations.pop(row)
            if len(found) > 1:
                self.generations[row] = tuple(one for one in found if one != generation)
            of_session = self.sessions[generation]
            of_session.remove(row)
            if not of_session:
                del self.sessions[generation]


def begin(tx: Transaction, receipt: Receipt, generation: int) -> None:
    """Record that a row's message is sent to a session."""
    image: _InFlightImage = tx.cache.get(_IMAGE) or _load(tx)
    entry = (*receipt, generation)
    if entry not in image.rows:
        image.change(tx, entry, entry)


def end(tx: Transaction, receipt: Receipt, generation: int) -> bool:
    """Record that a session has received a row's message; return whether the row was in flight."""
    image: _InFlightImage = tx.cache.get(_IMAGE) or _load(tx)
    entry = (*receipt, generation)
    if entry not in image.rows:
        return False
    image.change(tx, entry, None)
    return True


def is_in_flight(tx: Transaction, row: _Row) -> bool:
    """Return whether a row is in flight to any session."""
    image: _InFlightImage = tx.cache.get(_IMAGE) or _load(tx)
    return row in image.generations


def generations(tx: Transaction, row: _Row) -> tuple[int, ...]:
    """Return the numbers (generations) of the sessions to which a row is in flight."""
    image: _InFlightImage = tx.cache.get(_IMAGE) or _load(tx)
    return image.generations.get(row, ())


def has_rows(tx: Transaction, kind: str, generation: int) -> bool:
    """Return whether a row of the kind `kind` is in flight to a session."""
    image: _InFlightImage = tx.cache.get(_IMAGE) or _load(tx)
    return any(row[0] == kind for row in image.sessions.get(generation, ()))


def clear(tx: Transaction, row: _Row) -> None:
    """Record that a row is no longer in flight to any session."""
    image: _InFlightImage = tx.cache.get(_IMAGE) or _load(tx)
    for generation in image.generations.get(row, ()):
        image.change(tx, (*row, generation), None)


def forget_kind(tx: Transaction, kind: str, generation: int) -> None:
    """Record that no row of the kind `kind` is in flight to a session any more."""
    image: _InFlightImage = tx.cache.get(_IMAGE) or _load(tx)
    for row in tuple(image.sessions.get(generation, ())):
        if row[0] == kind:
            image.change(tx, (*row, generation), None)


def take_unacknowledged(tx: Transaction, generation: int) -> list[tuple[str, int]]:
    """Remove and return (kind, number) of the rows in flight to a session."""
    image: _InFlightImage = tx.cache.get(_IMAGE) or _load(tx)
    found = sorted(image.sessions.get(generation, ()))
    for row in found:
        image.change(tx, (*row, generation), None)
    return found


def load(tx: Transaction) -> None:
    """Read the rows in flight into memory, unless they are there."""
    if _IMAGE not in tx.cache:
        _load(tx)


def _load(tx: Transaction) -> _InFlightImage:
    image = _InFlightImage()
    for entry in tx.rows(_LOAD):
        image.load(entry, entry)
    tx.cache[_IMAGE] = image
    return image


def _write(tx: Transaction, changes: Changes[_Entry]) -> None:
    write_rows(tx, _INSERT, [entry for entry, _ in changes.new])
    write_rows(tx, _DELETE, changes.removed)


_TABLE: Final[Table[_Entry, _Entry]] = Table(_IMAGE, _write)
