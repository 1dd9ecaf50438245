"""The outbox table: messages that wait for devices, and the progress of each.

A row stays until its message is finished. A message that was sent and is not answered yet
also has a row in `in_flight`; after a restart no message has one. Bodies are in a table of their
own because rows are rewritten several times.

The state is in memory, as an image of the rows (`Transaction.cache`): every function reads and
changes the image, and the rows follow in a few batches for each transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from types import MappingProxyType
from typing import Final, NamedTuple

from edge.engine.rules.quota import Usage, WaitingUsage
from edge.engine.sessions import sessions
from edge.engine.sessions.sessions import SessionRow
from edge.engine.store import in_flight
from edge.engine.store.database import MessageBytes, Receipt, Transaction
from edge.engine.store.image import Changes, Table, write_rows
from edge.features.accounts import service as accounts
from edge.features.outbox.rules import BOUND, State
from edge.features.outbox.store.image import QUEUED, OutboxImage, OutboxRow

QOS_RECEIPT: Final = "outbox"
"""`Receipt.kind` of a message sent with QoS: in flight until the device answers it."""

PLAIN_RECEIPT: Final = "outbox plain"
"""`Receipt.kind` of a message sent as a plain one: in flight until the session acknowledges it
(XEP-0198)."""

BATCH_SIZE: Final = 32
"""Maximum number of messages whose timers are handled, or that expire, in one unit of work."""

_NO_ROOMS: Final[Mapping[str | None, int]] = MappingProxyType({})

_NUMBER: Final = itemgetter(OutboxRow._fields.index("row"))


class OutgoingMessage(NamedTuple):
    """A message to append to an outbox.

    Args:
        source: the key within which order is kept: the bare JID of the sender, or a subscription.
        sender: the full JID of the original sender.
        msg_id: the msgId that the sender chose.
        size: the bytes that it counts towards limits.
        only_session: the only full JID that may receive it, if it is for one session.
        session: the full JID that is preferred to others.
        queue_item: the item of a queue that it carries, if any.
    """

    source: str
    sender: str
    msg_id: str | None
    qos: int
    content: MessageBytes
    size: int
    only_session: str | None = None
    session: str | None = None
    queue_item: int | None = None


_COLUMNS: Final = """
id, recipient, source, sender, msg_id, qos, state, session, sends, attempts, held, due, bytes,
since, only, queue_item, turn
"""
_LOAD: Final = f"SELECT account, {_COLUMNS} FROM main.outbox ORDER BY id"  # noqa: S608 - of constants
_LOAD_HELD: Final = """
SELECT recipient, source, count(*), sum(bytes) FROM main.held
WHERE recipient IS NOT NULL GROUP BY recipient, source
"""
_LAST_ROW: Final = "SELECT seq FROM main.sqlite_sequence WHERE name = 'outbox'"
_INSERT: Final = f"""
INSERT INTO main.outbox (account, {_COLUMNS})
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""  # noqa: S608 - of constants
_INSERT_BODY: Final = """
INSERT INTO main.outbox_bodies (id, body, kind, content_type) VALUES (?, ?, ?, ?)
"""
_BODY: Final = "SELECT body, kind, content_type FROM main.outbox_bodies WHERE id = ?"
_UPDATE: Final = """
UPDATE main.outbox
SET state = ?, session = ?, sends = ?, attempts = ?, held = ?, due = ?, turn = ? WHERE id = ?
"""
_SET_SINCE: Final = "UPDATE main.outbox SET since = ? WHERE id = ?"
_DELETE: Final = "DELETE FROM main.outbox WHERE id = ?"
_DISOWN: Final = "UPDATE main.outbox SET source = '' WHERE source = ?"
_ACCOUNTS_WITH_SESSIONS: Final = "SELECT DISTINCT account FROM temp.sessions"
_AGE: Final = "UPDATE main.outbox SET since = since - ? WHERE since <= ?"

_DEFERRED: Final = OutboxRow._fields.index("deferred") - 1  # without the number

_IMAGE: Final = "outbox"
_PLAIN: Final = State.PLAIN


def has_messages(tx: Transaction, account: str) -> bool:
    """Return whether an account has messages in the outbox."""
    outbox = _image(tx).accounts.get(account)
    return outbox is not None and bool(outbox.sent or outbox.queued)


def is_idle(tx: Transaction, account: str, source: str) -> bool:
    """Return whether an account has no messages, and neither it nor `source` is revoked."""
    return not (
        has_messages(tx, account) or _is_revoked(tx, account) or _is_source_revoked(tx, source)
    )


def may_have_sendable(tx: Transaction, account: str) -> bool:
    """Return whether an account has a message that is queued, or was sent and is neither in flight
    nor deferred."""
    image: OutboxImage = tx.cache.get(_IMAGE) or _load(tx)
    outbox = image.accounts.get(account)
    if outbox is None or not outbox.sent:
        return outbox is not None and bool(outbox.queued)
    return bool(outbox.queued) or any(
        not (row.deferred or is_in_flight(tx, row)) for row in outbox.sent.values()
    )


def has_room_in_turn(tx: Transaction, row: OutboxRow, session: SessionRow, window: Usage) -> bool:
    """Return whether a new message, for an ordered session only, can be sent behind those that the
    session has not finished; false if one of the account waits or is deferred, if one must first be
    sent again, or if the account or the source is revoked."""
    outbox = _image(tx).accounts.get(row.recipient)
    sent = () if outbox is None else outbox.sent.values()
    if outbox is not None and outbox.queued:
        return False
    number, full, ids = row.row, session.full, session.ids or 0
    last: OutboxRow | None = None
    messages = size = 0
    for one in sent:
        if one.deferred:
            return False
        if one.session == full:
            if ids and (number - one.row) % ids == 0:
                return False
            last = one
            messages += 1
            size += one.bytes
    if last is not None and not is_in_flight(tx, last):
        return False  # nor are the others, until they are sent again
    if not window.has_room(Usage(messages, size), row.bytes):
        return False
    return not (_is_revoked(tx, row.recipient) or _is_source_revoked(tx, row.source))


def is_only_message(tx: Transaction, row: OutboxRow) -> bool:
    """Return whether a message is the only one in its account's outbox."""
    outbox = _image(tx).accounts.get(row.recipient)
    return outbox is not None and not outbox.queued and len(outbox.sent) == 1


def is_in_flight_to(tx: Transaction, row: OutboxRow, generation: int) -> bool:
    """Return whether a message is in flight to this session only; false if its account is
    revoked."""
    in_flight_to = in_flight.generations(tx, _receipt(row.state, row.row))
    return in_flight_to == (generation,) and not _is_revoked(tx, row.recipient)


def find_sendable(
    tx: Transaction, account: str, count: int, rooms: Mapping[str | None, int] = _NO_ROOMS
) -> list[OutboxRow]:
    """Return the messages of an account among which the planner chooses those to send.

    These are all sent messages and, if these are fewer than `count`, the oldest queued message of
    each source. The latter are limited to the oldest `2 * count`, so that at least `count` are from
    sources without a sent message. Queued messages of revoked sources are left out, and so are
    messages that only an unbound session may receive. For a revoked account, there are none.

    Args:
        rooms: by session, how many queued messages that only it may receive are returned at most;
            several can be of one source.
    """
    image: OutboxImage = tx.cache.get(_IMAGE) or _load(tx)
    outbox = image.accounts.get(account)
    if outbox is None or _is_revoked(tx, account):
        return []
    found = [
        row
        for row in outbox.sent.values()
        if (not (row.turn or row.state in BOUND) or is_session_bound(tx, row))
        and _is_reachable(tx, row)
    ]
    if len(found) >= count or not outbox.queued:
        return found
    queues = outbox.queued.items()
    first = [row for source, queue in queues for row in _first(tx, image, source, queue, rooms)]
    if rooms:
        first = _within_rooms(first, rooms)
    return found + sorted(first, key=_NUMBER)[: 2 * count]


def _first(
    tx: Transaction,
    image: OutboxImage,
    source: str,
    queue: Iterable[int],
    rooms: Mapping[str | None, int],
) -> list[OutboxRow]:
    """Return a source's first messages that can be sent, all to the same session if there are
    several; none if the source is revoked."""
    found: list[OutboxRow] = []
    most = 1
    if _is_source_revoked(tx, source):
        return found
    for number in queue:
        row = image.rows[number]
        if found and row.only_session != found[0].only_session:
            break
        if not found:
            most = rooms.get(row.only_session, 1)
            if not most or not _is_reachable(tx, row):
                continue
        found.append(row)
        if len(found) == most:
            break
    return found


def _within_rooms(rows: Iterable[OutboxRow], rooms: Mapping[str | None, int]) -> list[OutboxRow]:
    """Return the oldest rows of each session in `rooms` for which it has room, and all others."""
    left, found = dict(rooms), []
    for row in sorted(rows, key=_NUMBER):
        room = left.get(row.only_session, 1)
        if room:
            found.append(row)
            if row.only_session in left:
                left[row.only_session] = room - 1
    return found


def _is_revoked(tx: Transaction, account: str) -> bool:
    """Return whether an account is revoked or does not exist."""
    status = accounts.status(tx, account)
    return status is None or status.is_revoked


def _is_source_revoked(tx: Transaction, source: str) -> bool:
    name, at, _domain = source.partition("@")
    status = accounts.status(tx, name) if at else None
    return status is not None and status.is_revoked


def _is_reachable(tx: Transaction, row: OutboxRow) -> bool:
    only = row.only_session
    return only is None or sessions.find(tx, only) is not None


def is_in_flight(tx: Transaction, row: OutboxRow) -> bool:
    """Return whether a message was sent, and an answer is expected."""
    return in_flight.is_in_flight(tx, _receipt(row.state, row.row))


def is_session_bound(tx: Transaction, row: OutboxRow) -> bool:
    """Return whether the session that a message was last sent to is bound."""
    return row.session is not None and sessions.find(tx, row.session) is not None


def find(tx: Transaction, row: int) -> OutboxRow | None:
    """Return a message, or `None` if it is no longer in the outbox."""
    image: OutboxImage = tx.cache.get(_IMAGE) or _load(tx)
    return image.rows.get(row)


def content(tx: Transaction, row: int) -> MessageBytes:
    """Return the content of an existing message."""
    image: OutboxImage = tx.cache.get(_IMAGE) or _load(tx)
    return image.bodies.get(row) or MessageBytes(*tx.row(_BODY, (row,)))


def add(tx: Transaction, account: str, message: OutgoingMessage) -> int | None:
    """Append a message to an account's outbox; return its number, `None` if there is no account."""
    row = new_row(tx, account, message)
    return row.row if insert(tx, row, message.content) else None


def new_row(tx: Transaction, account: str, message: OutgoingMessage) -> OutboxRow:
    """Return the row of a new message, for the caller to add with `insert`."""
    source, sender, msg_id, qos, _content, size, only_session, session, queue_item = message
    image: OutboxImage = tx.cache.get(_IMAGE) or _load(tx)
    number = image.last_row = image.last_row + 1
    return OutboxRow(
        number,
        account,
        source,
        sender,
        msg_id,
        qos,
        QUEUED,
        only_session or session,
        sends=0,
        attempts=0,
        deferred=False,
        due=None,
        bytes=size,
        since=tx.now.service,
        only_session=only_session,
        queue_item=queue_item,
    )


def insert(tx: Transaction, row: OutboxRow, content: MessageBytes) -> bool:
    """Add a row and return `True`; return `False` if its account does not exist."""
    image: OutboxImage = tx.cache.get(_IMAGE) or _load(tx)
    status = accounts.status(tx, row.recipient)
    if status is None:
        return False
    image.change(tx, row.row, row, (status.row, content))
    image.bodies.keep(row.row, content, len(content.body))
    return True


def restore(
    tx: Transaction,
    row: int,
    account: str,
    sender: str,
    msg_id: str | None,
    session: str,
    content: MessageBytes,
    size: int,
) -> int | None:
    """Insert a message in doubt under its old number, so that its release is sent again.

    `session` is the full JID of the session that received the message and never confirmed it; only
    this session is sent the release. Returns the number, or `None` if the account does not exist.
    """
    restored = OutboxRow(
        row,
        account,
        sender.partition("/")[0],
        sender,
        msg_id,
        2,
        State.RELEASED,
        session,
        sends=1,
        attempts=0,
        deferred=False,
        due=None,
        bytes=size,
        since=tx.now.service,
    )
    image: OutboxImage = tx.cache.get(_IMAGE) or _load(tx)
    image.last_row = max(image.last_row, row)
    image.orphans.discard(row)
    if _TABLE.is_changed(tx, row):  # removed in this transaction
        tx.write()
    return row if insert(tx, restored, content) else None


def save(tx: Transaction, row: OutboxRow) -> None:
    """Store the progress of a message."""
    image: OutboxImage = tx.cache.get(_IMAGE) or _load(tx)
    if row.row in image.rows:
        image.change(tx, row.row, row)


def set_since(tx: Transaction, row: OutboxRow) -> None:
    """Let a message expire as if it were added now."""
    tx.run(_SET_SINCE, (tx.now.service, row.row))
    save(tx, row._replace(since=tx.now.service))


def mark_sent(tx: Transaction, row: OutboxRow, generation: int) -> Receipt:
    """Record that a message is sent to a session; return the receipt."""
    receipt = _receipt(row.state, row.row)
    in_flight.begin(tx, receipt, generation)
    return receipt


def clear_in_flight(tx: Transaction, row: OutboxRow) -> None:
    """Record that no answer to a message is expected any more."""
    in_flight.clear(tx, _receipt(row.state, row.row))


def _receipt(state: str, row: int) -> Receipt:
    return Receipt(PLAIN_RECEIPT if state == _PLAIN else QOS_RECEIPT, row)


def remove(tx: Transaction, row: OutboxRow) -> None:
    """Delete a finished message."""
    clear_in_flight(tx, row)
    image: OutboxImage = tx.cache.get(_IMAGE) or _load(tx)
    if row.row not in image.rows:
        return
    if _TABLE.is_new(tx, row.row):
        tx.write()  # SQLite remembers only numbers of rows that were inserted
    image.change(tx, row.row, None)


def usage(tx: Transaction, account: str, source: str) -> tuple[int, WaitingUsage]:
    """Return the number of a source's messages waiting for an account, and the usage under quotas.

    The latter is the usage of the account, of the source, and of all outboxes. Messages in custody
    for an account are included, although they are not in its outbox yet.
    """
    image: OutboxImage = tx.cache.get(_IMAGE) or _load(tx)
    outbox, used = image.accounts.get(account), image.sources.get(source)
    of_source = Usage() if used is None else Usage(used.rows, used.bytes)
    total = Usage(image.messages, image.bytes)
    if outbox is None:
        return 0, WaitingUsage(Usage(), of_source, total)
    of_account = Usage(outbox.rows, outbox.bytes)
    return outbox.sources.get(source, 0), WaitingUsage(of_account, of_source, total)


def reserve(tx: Transaction, account: str, source: str, messages: int, size: int) -> None:
    """Reserve room in an account's outbox for messages in custody; negative numbers free it."""
    image: OutboxImage | None = tx.cache.get(_IMAGE)
    if image is not None:
        image.count(account, source, messages, size)
        tx.on_undo(image.count, account, source, -messages, -size)


def find_due(tx: Transaction) -> list[OutboxRow]:
    """Return up to `BATCH_SIZE` messages whose timer has fired, the earliest first."""
    return _image(tx).due.until(tx.now.service, BATCH_SIZE)


def find_expired(tx: Transaction, ttl: float) -> list[OutboxRow]:
    """Return up to `BATCH_SIZE` messages older than `ttl` service seconds."""
    return _image(tx).since.until(tx.now.service - ttl, BATCH_SIZE)


def find_orphans(tx: Transaction) -> list[OutboxRow]:
    """Return up to `BATCH_SIZE` messages whose account was removed."""
    image = _image(tx)
    return [image.rows[number] for number in sorted(image.orphans & image.rows.keys())[:BATCH_SIZE]]


def disown(tx: Transaction, source: str) -> None:
    """Let the messages of a removed account's bare JID have no source, so that a later account with
    this name gets no reports about them. They are delivered nevertheless."""
    tx.run(_DISOWN, (source,))
    tx.cache.clear()


def find_unfinished(tx: Transaction, account: str, session: str) -> list[OutboxRow]:
    """Return the messages that were sent to a session and are not finished."""
    outbox = _image(tx).accounts.get(account)
    sent = () if outbox is None else tuple(outbox.sent.values())
    return [row for row in sent if row.session == session]


def find_of_session(tx: Transaction, account: str, session: str) -> list[OutboxRow]:
    """Return the messages that only a session may receive, or that belong to it."""
    image = _image(tx)
    outbox = image.accounts.get(account)
    if outbox is None:
        return []
    queued = (image.rows[number] for queue in outbox.queued.values() for number in queue)
    return [
        row
        for row in (*outbox.sent.values(), *queued)
        if row.only_session == session or (row.is_bound and row.session == session)
    ]


def next_turn(tx: Transaction) -> int:
    """Return the number of the next request to a session (`OutboxRow.turn`)."""
    image = _image(tx)
    image.last_turn += 1
    return image.last_turn


def find_by_source(tx: Transaction, source: str) -> list[OutboxRow]:
    """Return all messages with this `OutboxRow.source`; the outbox quota limits their number."""
    return sorted(row for row in _image(tx).rows.values() if row.source == source)


def next_due_time(tx: Transaction) -> float | None:
    """Return the service second of the earliest timer, or `None`."""
    return _image(tx).due.first()


def oldest_since(tx: Transaction) -> float | None:
    """Return the service second at which the oldest message was added, or `None`."""
    return _image(tx).since.first()


def accounts_with_sessions(tx: Transaction) -> list[str]:
    """Return the names of accounts that have a bound session and messages in the outbox."""
    names = [str(account) for (account,) in tx.rows(_ACCOUNTS_WITH_SESSIONS)]
    return [name for name in names if has_messages(tx, name)]


def is_downgrade_allowed(tx: Transaction, account: str) -> bool:
    """Return whether an account accepts plain messages in sessions without QoS support."""
    status = accounts.status(tx, account)
    return status is not None and status.downgrade


def age(tx: Transaction, before: float, seconds: float) -> None:
    """Add `seconds` of time off to the age of messages stored by the service second `before`."""
    tx.run(_AGE, (seconds, before))
    tx.cache.pop(_IMAGE, None)


def load(tx: Transaction) -> None:
    """Load the image of the outbox's rows, if it is not in memory yet."""
    _image(tx)


def _image(tx: Transaction) -> OutboxImage:
    image: OutboxImage | None = tx.cache.get(_IMAGE)
    return _load(tx) if image is None else image


def _load(tx: Transaction) -> OutboxImage:
    last = tx.row(_LAST_ROW)
    image = OutboxImage(_TABLE, 0 if last is None else last[0])
    shared: dict[str, str] = {}  # equal names are one string
    for account, number, *fields in tx.rows(_LOAD):
        values = [shared.setdefault(one, one) if isinstance(one, str) else one for one in fields]
        values[_DEFERRED] = bool(values[_DEFERRED])
        if account is None:
            image.orphans.add(number)
        row = OutboxRow._make((number, *values))
        image.load(number, row)
        image.last_turn = max(image.last_turn, row.turn)
    for recipient, source, messages, size in tx.rows(_LOAD_HELD):
        image.count(recipient, source, messages, size)
    tx.cache[_IMAGE] = image
    return image


def _write(tx: Transaction, changes: Changes[OutboxRow]) -> None:
    write_rows(tx, _INSERT, [(account, *row) for row, (account, _content) in changes.new])
    write_rows(tx, _INSERT_BODY, [(row.row, *content) for row, (_, content) in changes.new])
    write_rows(tx, _UPDATE, [(*row.progress, row.turn, row.row) for row in changes.changed])
    write_rows(tx, _DELETE, [(row.row,) for row in changes.removed])


_TABLE: Final[Table[int, OutboxRow]] = Table(_IMAGE, _write)
