"""The image of the outbox in memory: its rows, their use of the limits, and some bodies.

The rows of an account are grouped as `rules.plan` needs them: those that were sent, and the queued
ones of each source in order. The limits of the outbox bound the image. A message in custody
for an account reserves room in its outbox, and is counted as if it were there.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from edge.engine.store.database import MessageBytes
from edge.engine.store.image import Bodies, Count, Image, Table
from edge.features.outbox.rules import BOUND, State

BODY_BYTES: Final = 1024 * 1024
"""Maximum bytes of message bodies in memory."""

STALE_ENTRIES: Final = 64
"""Minimum number of outdated entries at which `_Timers` removes them."""

# Looking up a member of an Enum runs Python code.
QUEUED: Final = State.QUEUED


class OutboxRow(NamedTuple):
    """A message in the outbox.

    Args:
        row: its number, which is its position.
        recipient: the name of the account.
        source: the key within which order is kept: the bare JID of the sender, or a subscription.
        sender: the full JID of the original sender.
        msg_id: the msgId that the sender chose.
        state: its progress, a value of `rules.State`.
        session: the full JID that it was last sent to.
        sends: the number of requests sent in this state since the last answer.
        attempts: the number of these requests that count as attempts.
        deferred: whether the device asked to wait with it.
        due: the service second at which it is sent again, unless it is answered before.
        bytes: the bytes that it counts towards limits.
        since: the service second at which it was added.
        only_session: the only full JID that may receive it, if it is for one session.
        queue_item: the item of a queue that it carries, if any.
        turn: the number of the request that was last sent, if that was to a session which gets
            messages again in the order in which they were sent, and which may know the message by
            an id; otherwise 0.
    """

    row: int
    recipient: str
    source: str
    sender: str
    msg_id: str | None
    qos: int
    state: str
    session: str | None
    sends: int
    attempts: int
    deferred: bool
    due: float | None
    bytes: int
    since: float
    only_session: str | None = None
    queue_item: int | None = None
    turn: int = 0

    @property
    def is_bound(self) -> bool:
        """Return whether it belongs to `session`, which has received it or may know it by an id."""
        return self.state in BOUND or self.turn > 0

    @property
    def progress(self) -> tuple[object, ...]:
        """The values that `with_progress` can replace, in the order of its arguments."""
        return self[6:12]

    def with_progress(
        self,
        state: str,
        session: str | None,
        sends: int,
        attempts: int,
        deferred: bool,
        due: float | None,
    ) -> OutboxRow:
        """Return the row with other values of the fields in `progress`, faster than `_replace`."""
        return OutboxRow._make(
            (*self[:6], state, session, sends, attempts, deferred, due, *self[12:])
        )


class _Timers:
    """The rows of an image, ordered by the time that the function `moment` returns for each.

    A row that is removed, or whose time changes, leaves an outdated entry, which is skipped.
    """

    __slots__ = ("_entries", "_moment", "_rows")

    def __init__(
        self, rows: dict[int, OutboxRow], moment: Callable[[OutboxRow], float | None]
    ) -> None:
        self._rows = rows
        self._moment = moment
        self._entries: list[tuple[float, int]] = []

    def add(self, moment: float, row: int) -> None:
        """Set the time of the row with the number `row` to `moment`."""
        heappush(self._entries, (moment, row))
        if len(self._entries) > 2 * len(self._rows) + STALE_ENTRIES:
            self._entries[:] = set(filter(self._is_current, self._entries))
            heapify(self._entries)

    def first(self) -> float | None:
        """Return the earliest time that `moment` gives for a row, or `None` if no row has one."""
        entries = self._entries
        while entries and not self._is_current(entries[0]):
            heappop(entries)
        return entries[0][0] if entries else None

    def until(self, moment: float, count: int) -> list[OutboxRow]:
        """Return up to `count` rows whose time is `moment` or earlier, the earliest first."""
        entries = self._entries
        found: list[tuple[float, int]] = []
        while len(found) < count and entries and entries[0][0] <= moment:
            entry = heappop(entries)
            if self._is_current(entry) and entry not in found:
                found.append(entry)
        for entry in found:
            heappush(entries, entry)
        return [self._rows[row] for _moment, row in found]

    def _is_current(self, entry: tuple[float, int]) -> bool:
        moment, number = entry
        row = self._rows.get(number)
        return row is not None and self._moment(row) == moment


class AccountOutbox(Count):
    """The messages of one account, counted with those in custody for it.

    Attributes:
        sent: the rows that are not queued, by number.
        queued: the numbers of the queued rows of each source, in order.
        sources: the number of messages by source, including those in custody.
    """

    __slots__ = ("queued", "sent", "sources")

    def __init__(self) -> None:
        super().__init__()
        self.sent: dict[int, OutboxRow] = {}
        self.queued: dict[str, deque[int]] = {}
        self.sources: dict[str, int] = {}

    def enqueue(self, row: OutboxRow) -> None:
        """Add a queued row."""
        queue = self.queued.get(row.source)
        if queue is None:
            self.queued[row.source] = deque((row.row,))
        else:
            insort(queue, row.row)

    def dequeue(self, row: OutboxRow) -> None:
        """Remove a row from the queue of its source."""
        queue = self.queued[row.source]
        if queue[0] == row.row:
            queue.popleft()
        else:
            queue.remove(row.row)
        if not queue:
            del self.queued[row.source]


class OutboxImage(Image[int, OutboxRow]):
    """The content of the outbox's rows, in memory.

    Attributes:
        orphans: the numbers of the rows whose account was removed, even if they are deleted.
        sources: the messages of each source, including those in custody.
        accounts: by name, the messages of each account that has had any since the rows were read.
        messages: the number of messages, including those in custody.
        bytes: the bytes that these messages count towards limits.
        bodies: the bodies of the latest messages.
        last_row: the last number that a row was given.
        last_turn: the last number that a request was given (`OutboxRow.turn`).
        due: the rows with a timer, ordered by its service second.
        since: the rows, ordered by the service second at which they were added.
    """

    def __init__(self, table: Table[int, OutboxRow], last_row: int) -> None:
        super().__init__(table)
        self.orphans: set[int] = set()
        self.accounts: dict[str, AccountOutbox] = {}
        self.messages = 0
        self.bytes = 0
        self.sources: dict[str, Count] = {}
        self.bodies: Bodies[MessageBytes] = Bodies(BODY_BYTES)
        self.last_row = last_row
        self.last_turn = 0
        self.due = _Timers(self.rows, lambda row: row.due)
        self.since = _Timers(self.rows, lambda row: row.since)

    def index(self, old: OutboxRow | None, new: OutboxRow | None) -> None:
        """Replace a row in the indexes: add it if there is no `old`, remove it if no `new`."""
        if old is None:
            if new is not None:
                self._add(new)
        elif new is None:
            self._remove(old)
        else:
            self._replace(old, new)

    def _add(self, row: OutboxRow) -> None:
        number = row.row
        self.since.add(row.since, number)
        if row.due is not None:
            self.due.add(row.due, number)
        account = None if number in self.orphans else row.recipient
        outbox = self.count(account, row.source, 1, row.bytes)
        if outbox is None:
            return
        if row.state == QUEUED:
            outbox.enqueue(row)
        else:
            outbox.sent[number] = row

    def _remove(self, row: OutboxRow) -> None:
        number = row.row
        self.bodies.drop(number)
        account = None if number in self.orphans else row.recipient
        outbox = self.count(account, row.source, -1, -row.bytes)
        if outbox is None:
            return
        if row.state == QUEUED:
            outbox.dequeue(row)
        else:
            del outbox.sent[number]

    def _replace(self, old: OutboxRow, new: OutboxRow) -> None:
        number = new.row
        if new.due is not None and new.due != old.due:
            self.due.add(new.due, number)
        if new.since != old.since:
            self.since.add(new.since, number)
        if number in self.orphans:
            return
        outbox = self.accounts[new.recipient]
        if old.state == QUEUED != new.state:
            outbox.dequeue(old)
        elif old.state != QUEUED == new.state:
            del outbox.sent[number]
            outbox.enqueue(new)
        if new.state != QUEUED:
            outbox.sent[number] = new

    def count(
        self, account: str | None, source: str, messages: int, size: int
    ) -> AccountOutbox | None:
        """Count messages of a source for an account, and return its outbox.

        Negative numbers subtract. `account` is `None` if it was removed: then they count for the
        source and in total only. `source` is the key of `OutboxRow.source`, `size` the bytes of all
        these messages.
        """
        self.messages += messages
        self.bytes += size
        used = self.sources.get(source)
        if used is None:
            used = self.sources[source] = Count()
        used.rows += messages
        used.bytes += size
        if not used.rows:
            del self.sources[source]
        if account is None:
            return None
        outbox = self.accounts.get(account)
        if outbox is None:
            outbox = self.accounts[account] = AccountOutbox()
        outbox.rows += messages
        outbox.bytes += size
        left = outbox.sources[source] = outbox.sources.get(source, 0) + messages
        if not left:
            del outbox.sources[source]
        return outbox
