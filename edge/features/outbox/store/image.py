"""The image of the outbox in memory: its rows, their use of the limits, and some bodies.

The rows of an account are kept in the form that the planner reads: those that were sent, and the
queued ones of each source in order. The limits of the outbox bound the image. A message in custody
for an account reserves room in its outbox, and is counted as if it were there.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import Any, Final, TypeAlias

from edge.engine.quota import Usage

BODY_BYTES: Final = 1024 * 1024
"""Memory for bodies. Most messages are received within a second; the bodies of those that wait are
read from their rows."""

QUEUED: Final = "queued"

StoredRow: TypeAlias = tuple[Any, ...]
"""The fields of `outbox.OutboxRow` up to `queue_item`, in this order."""

ACCOUNT, SOURCE, STATE, SESSION, DUE, BYTES, SINCE, ONLY = 1, 2, 6, 7, 11, 12, 13, 14
"""The positions of fields in a row."""

PROGRESS: Final = slice(STATE, DUE + 1)
"""The fields that change."""

NOTHING: Final = Usage()


class AccountOutbox:
    """The messages of one account.

    Attributes:
        sent: the rows that are not queued, by number.
        queued: the numbers of the queued rows of each source, in order.
        messages: the number of messages, including those in custody.
        bytes: the charge of these messages.
        sources: the number of these messages by source.
    """

    __slots__ = ("bytes", "messages", "queued", "sent", "sources")

    def __init__(self) -> None:
        self.sent: dict[int, StoredRow] = {}
        self.queued: dict[str, deque[int]] = {}
        self.messages = 0
        self.bytes = 0
        self.sources: dict[str, int] = {}


class OutboxImage:
    """The content of the outbox's rows, in memory.

    Attributes:
        rows: all rows by number.
        orphans: the numbers of the rows whose account was removed.
        accounts: the messages of each account by its name.
        messages: the number of messages, including those in custody.
        bytes: the charge of these messages.
        last_row: the last number that a row was given.
    """

    __slots__ = (
        "_bodies", "_body_bytes", "_sources", "accounts", "bytes", "last_row", "messages",
        "orphans", "rows",
    )  # fmt: skip

    def __init__(self, last_row: int) -> None:
        self.rows: dict[int, StoredRow] = {}
        self.orphans: set[int] = set()
        self.accounts: dict[str, AccountOutbox] = {}
        self.messages = 0
        self.bytes = 0
        self.last_row = last_row
        self._sources: dict[str, Usage] = {}
        self._bodies: dict[int, bytes] = {}
        self._body_bytes = 0

    def change(self, old: StoredRow | None, new: StoredRow | None) -> None:
        """Replace a row; add `new` if there is no `old`, remove `old` if there is no `new`."""
        if old is not None and new is not None and old[STATE] != QUEUED != new[STATE]:
            self._replace(new)
            return
        if old is None and new is not None:
            self.count(self._account(new), new[SOURCE], 1, new[BYTES])
        if old is not None:
            self._take(old)
        if new is not None:
            self._put(new)
        elif old is not None:
            self._drop_body(old[0])
            self.count(self._account(old), old[SOURCE], -1, -old[BYTES])
            self.orphans.discard(old[0])

    def _account(self, row: StoredRow) -> str | None:
        return None if row[0] in self.orphans else row[ACCOUNT]

    def load(self, row: StoredRow, *, is_orphan: bool) -> None:
        """Add a row as it was read."""
        if is_orphan:
            self.orphans.add(row[0])
        self.change(None, row)

    def _replace(self, row: StoredRow) -> None:
        """Replace a row that was sent."""
        number = row[0]
        self.rows[number] = row
        if number not in self.orphans:
            self.accounts[row[ACCOUNT]].sent[number] = row

    def _put(self, row: StoredRow) -> None:
        number = row[0]
        self.rows[number] = row
        if number in self.orphans:
            return
        outbox = self.accounts[row[ACCOUNT]]
        if row[STATE] != QUEUED:
            outbox.sent[number] = row
            return
        queue = outbox.queued.get(row[SOURCE])
        if queue is None:
            outbox.queued[row[SOURCE]] = deque((number,))
        else:
            insort(queue, number)

    def _take(self, row: StoredRow) -> None:
        number = row[0]
        del self.rows[number]
        if number in self.orphans:
            return
        outbox = self.accounts[row[ACCOUNT]]
        if row[STATE] != QUEUED:
            del outbox.sent[number]
            return
        queue = outbox.queued[row[SOURCE]]
        if queue[0] == number:
            queue.popleft()
        else:
            queue.remove(number)
        if not queue:
            del outbox.queued[row[SOURCE]]

    def count(self, account: str | None, source: str, messages: int, size: int) -> None:
        """Add messages of a source to the counts of an account; negative numbers subtract."""
        self.messages += messages
        self.bytes += size
        used = self._sources.get(source, NOTHING)
        left = Usage(used.messages + messages, used.bytes + size)
        if left.messages:
            self._sources[source] = left
        else:
            del self._sources[source]
        if account is not None:
            self._count_for(account, source, messages, size)

    def _count_for(self, account: str, source: str, messages: int, size: int) -> None:
        outbox = self.accounts.get(account)
        if outbox is None:
            outbox = self.accounts[account] = AccountOutbox()
        outbox.messages += messages
        outbox.bytes += size
        left = outbox.sources[source] = outbox.sources.get(source, 0) + messages
        if not left:
            del outbox.sources[source]
        if not outbox.messages:
            del self.accounts[account]

    def of_source(self, source: str) -> Usage:
        """Return the usage of a source, including its messages in custody for accounts."""
        return self._sources.get(source, NOTHING)

    def keep_body(self, row: int, body: bytes) -> None:
        """Keep the body of a row; drop the oldest ones beyond `BODY_BYTES`."""
        self._bodies[row] = body
        self._body_bytes += len(body)
        while self._body_bytes > BODY_BYTES:
            self._drop_body(next(iter(self._bodies)))

    def _drop_body(self, row: int) -> None:
        self._body_bytes -= len(self._bodies.pop(row, b""))

    def body(self, row: int) -> bytes | None:
        """Return the body of a row, or `None` if it is only in the table."""
        return self._bodies.get(row)
