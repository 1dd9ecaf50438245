"""Images: copies of rows in memory, which units of work read and change without SQL.

Theory of operation

**What.** An image (`Image`) has all rows of a bounded table by key, as immutable objects, and
indexes that are made from these rows. It is in `Transaction.cache`, and its store alone writes the
table. A table that is too large for memory has a part of its rows in a cache; its store keeps
the changes that are not written yet in the same way (`Table`), without an image.

**Why.** A statement takes longer than all else that a unit of work does with a row, and a page
written for each row wears out the card. With an image, the usual unit needs no statement. It runs
on the event loop while an earlier group is committed. The rows of the group follow in one
`executemany` for each kind of change.

**Invariants.**

- Before each statement the table equals the image: `Transaction.run` calls `Table.write` first.
- An index depends on the rows alone: `Image.index` replaces one row by another in the indexes, and
  does the opposite if it is called with its arguments exchanged.
- `rows` is in the order of the keys if the rows were loaded in this order and new keys increase.
- For each changed key, the unwritten change has the row as it is in the table, and as it is in
  memory. So changes that cancel each other are not written, and a row that changed several times
  is written once.

**Undo.** A unit that runs in memory and needs a statement is undone (`Transaction.undo`), and so is
one that fails there. It has executed no statement, so all its changes are in memory: each `change`
has registered its opposite, and these run in reverse order. Counters that only increase, such as
the last row number, are not undone.

**Rollback, and another process's change.** A unit that fails after its first statement rolls back
the transaction. Then, and if another process has changed the database, `group_commit` empties
`Transaction.cache`, and the images are loaded again from the rows. Everything in an image
must therefore follow from the rows, or be something that may be lost, such as a body in `Bodies`.

**Speed.** Only changes pass through the functions of this module. What every request reads is a
look-up in a dictionary of the feature's image.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from edge.engine.store.database import Transaction

K = TypeVar("K")
R = TypeVar("R")
T = TypeVar("T")


class Changes(Generic[R]):
    """Changes to write to a table.

    Attributes:
        new: the new rows, each with the value `more` of `Table.change`.
        changed: the rows that differ from those in the table.
        removed: the rows to delete, as they are in the table.
    """

    __slots__ = ("changed", "new", "removed")

    def __init__(self) -> None:
        self.new: list[tuple[R, Any]] = []
        self.changed: list[R] = []
        self.removed: list[R] = []


class Table(Generic[K, R]):
    """The unwritten changes of a table, which are in `Transaction.memo`.

    `name` is unique among all tables, and `write` writes the changes.
    """

    __slots__ = ("_write", "name")

    def __init__(self, name: str, write: Callable[[Transaction, Changes[R]], None]) -> None:
        self.name = name
        self._write = write

    def change(
        self, tx: Transaction, key: K, old: R | None, new: R | None, more: object = None
    ) -> None:
        """Replace a row, later: add it if there is no `old`, remove it if there is no `new`.

        `more` has the values of a new row that `new` does not have, such as its body.
        """
        changes: dict[K, Any] = tx.memo.get(self.name) or self.unwritten(tx)
        before = changes.get(key)
        changes[key] = (old, new, more) if before is None else (before[0], new, before[2])
        tx.on_undo(_restore, changes, key, before)

    def unwritten(self, tx: Transaction) -> dict[K, Any]:
        """Return the unwritten changes: by key the row as it is in the table, the row as it is in
        memory, and the values `more` of a new row."""
        return tx.unwritten(self.name, dict, self.write)

    def is_changed(self, tx: Transaction, key: K) -> bool:
        """Return whether the row with this key has an unwritten change."""
        return key in tx.memo.get(self.name, ())

    def is_new(self, tx: Transaction, key: K) -> bool:
        """Return whether the row with this key has been added but not written."""
        changes: dict[K, Any] = tx.memo.get(self.name, {})
        return key in changes and changes[key][0] is None

    def write(self, tx: Transaction) -> None:
        """Write the changes to the table."""
        unwritten: dict[K, Any] = tx.memo.pop(self.name)
        changes: Changes[R] = Changes()
        for old, row, more in unwritten.values():
            if row is None:
                if old is not None:
                    changes.removed.append(old)
            elif old is None:
                changes.new.append((row, more))
            elif old != row:
                changes.changed.append(row)
        self._write(tx, changes)


def _restore(values: dict[K, T], key: K, value: T | None) -> None:
    if value is None:
        del values[key]
    else:
        values[key] = value


def write_rows(tx: Transaction, sql: str, values: Sequence[Sequence[object]]) -> None:
    """Execute a statement once for each sequence of values, if there are any."""
    if values:
        tx.run_many(sql, values)


class Image(ABC, Generic[K, R]):
    """The rows of a table in memory, by key. Subclasses add indexes, and update them in `index`."""

    def __init__(self, table: Table[K, R]) -> None:
        self.rows: dict[K, R] = {}
        self._table = table

    @abstractmethod
    def index(self, old: R | None, new: R | None) -> None:
        """Replace a row in the indexes: add it if there is no `old`, remove it if no `new`."""

    def load(self, key: K, row: R) -> None:
        """Add a row that was read from the table."""
        self.rows[key] = row
        self.index(None, row)

    def change(self, tx: Transaction, key: K, new: R | None, more: object = None) -> None:
        """Add or replace the row with this key, or remove it if `new` is `None`.

        The image changes at once, and the table later. `more` is as in `Table.change`.
        """
        # This is `Table.change` again, because a call takes longer than what it does.
        table, rows = self._table, self.rows
        changes: dict[K, Any] = tx.memo.get(table.name) or table.unwritten(tx)
        old, before = rows.get(key), changes.get(key)
        changes[key] = (old, new, more) if before is None else (before[0], new, before[2])
        if new is None:
            del rows[key]
        else:
            rows[key] = new
        self.index(old, new)
        tx.on_undo(self._undo, changes, key, before, new, old)

    def _undo(
        self, changes: dict[K, Any], key: K, before: Any, new: R | None, old: R | None
    ) -> None:
        _restore(changes, key, before)
        _restore(self.rows, key, old)
        if new is None:  # the row was removed, and belongs to its place in the order
            rows: Any = sorted(self.rows.items(), key=_first)
            self.rows.clear()
            self.rows.update(rows)
        self.index(new, old)


def _first(item: tuple[Any, Any]) -> Any:
    return item[0]


class Bodies(Generic[T]):
    """The bodies of the rows that were added last, up to a number of bytes.

    Most messages leave within a second. If one waits longer, its body may have to be read from the
    table.
    """

    def __init__(self, max_bytes: int) -> None:
        self.bytes = 0
        self.kept: dict[int, tuple[T, int]] = {}
        self._max_bytes = max_bytes

    def keep(self, row: int, body: T, size: int) -> None:
        """Keep a body, which takes `size` bytes; drop the oldest ones beyond the limit."""
        self.kept[row] = body, size
        self.bytes += size
        while self.bytes > self._max_bytes:
            self.drop(next(iter(self.kept)))

    def get(self, row: int) -> T | None:
        """Return the body of a row, or `None` if it is only in the table."""
        found = self.kept.get(row)
        return None if found is None else found[0]

    def drop(self, row: int) -> None:
        """Drop the body of a row, if there is one."""
        found = self.kept.pop(row, None)
        if found is not None:
            self.bytes -= found[1]


class Count:
    """A number of rows, and the bytes that are charged for them."""

    __slots__ = ("bytes", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0
