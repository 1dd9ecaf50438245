"""Deliver plain messages to accounts, or store them until a session is available.

Stored messages are sent to one session of an account at a time, in the order in which they came,
and only so many that the session has a limited number unacknowledged. A row is deleted when the
session has acknowledged its message. After a crash, or if the session ends before, the message is
sent again. New messages wait behind stored ones (RFC 6120, section 10.1).

A message whose sender is told that it was handled (`AccountMessage.acknowledged`) is stored before
it is sent to a session, because a crash must not lose it. Other messages to a session are only in
memory until it has them. Source: RFC 6121, section 8.5; XEP-0160; XEP-0198, section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from edge.engine.dispatch.destinations import NO_DESTINATION, UNTRUSTED
from edge.engine.dispatch.encoding import pack
from edge.engine.dispatch.hooks import Context, Hooks
from edge.engine.rules import access, quota, send_share
from edge.engine.rules.access import Relation, Sender
from edge.engine.rules.quota import NO_USAGE, ExceededLimit, Usage
from edge.engine.sessions import sessions
from edge.engine.sessions.sessions import SessionRow
from edge.engine.store import events, in_flight, space
from edge.engine.store.database import Receipt, SentMessage, Transaction
from edge.engine.store.events import NewEvent
from edge.features.accounts import service as accounts
from edge.features.messages import rules
from edge.features.messages import store as offline
from edge.features.messages.rules import MessageType, Outcome, Route
from edge.features.messages.store import StoredMessage as StoredMessage
from edge.jid import Jid

NOBODY_THERE: Final = "nobody_there"
"""The event that is logged when a message is refused or dropped for lack of a session."""

WINDOW: Final = 32
"""Maximum stored messages of an account that a session has unacknowledged.

This keeps a slow radio link busy for one round trip.
"""

WINDOW_DIVISOR: Final = 2
"""Divisor of a session's limits of unacknowledged messages and bytes. The quotients limit the
stored ones among them, so that others have room."""

NO_ROOM: Final = "crowded"
"""The event that is logged when a message is refused because a session has no room for it."""

STORED_TYPES: Final = (MessageType.NORMAL, MessageType.CHAT)
"""Types of messages that are stored (XEP-0160, section 3)."""

RETURNED_QUOTA_FACTOR: Final = 2
"""Factor on an account's quota for messages that are stored because a session ended without
acknowledging them: their senders may be offline, and then would not learn of a refusal.
"""


class AccountMessage(NamedTuple):
    """A plain message to an account or to one of its sessions.

    Args:
        content: what the recipient is sent: a message of a type that has an encoder.
        sender: the full JID of the sender.
        to: the address of the account or of the session.
        storable: whether the message is worth storing (XEP-0160, section 3).
        delayed: whether the message already carries the time at which it was stored.
        returned: whether the message was sent to a session that ended without acknowledging it.
        acknowledged: whether the sender is told that the message was handled. Then a crash must
            not lose it.
    """

    content: SentMessage
    sender: str
    to: str
    kind: MessageType
    storable: bool
    delayed: bool = False
    returned: bool = False
    acknowledged: bool = False

    @property
    def account(self) -> str:
        """Return the name of the recipient's account."""
        return self.to.partition("@")[0]


class RefusalReason(Enum):
    """Reasons to refuse a message."""

    NOBODY_AVAILABLE = auto()
    OFFLINE_STORE_FULL = auto()
    DISK_FULL = auto()
    SESSION_FULL = auto()


class Refusal(NamedTuple):
    """The refusal of a message.

    `rule` is the name of the event to log. If this is the name of a limit, `figure` is its value.
    If `reason` is `None`, the refusal is logged but the sender is not informed.
    """

    rule: str
    reason: RefusalReason | None
    figure: int | None = None


def send(
    context: Context, tx: Transaction, sender: Sender, to: Jid, message: AccountMessage
) -> Refusal | None:
    """Send a plain message to an account or a session; return the refusal if it is refused.

    An account that the sender may not reach is treated as if it did not exist.
    """
    relation = accounts.find_relation(tx, sender, to.local)
    if message.kind is MessageType.ERROR:
        exists = find_answerable_session(context, tx, sender, to.full) is not None
    else:
        exists = access.may_reach(sender, relation, context.trust)
    bound = sessions.of_account(tx, to.bare) if exists else []
    full = to.full if to.resource else None
    if full is not None:
        bound = [session for session in bound if session.relays]
    refusal = deliver(context, tx, message, rules.route(message.kind, bound, full, exists=exists))
    if refusal is None or exists:
        return refusal
    unknown = relation is Relation.NOBODY
    return refusal._replace(rule=NO_DESTINATION if unknown else UNTRUSTED)


def deliver(
    context: Context, tx: Transaction, message: AccountMessage, route: Route
) -> Refusal | None:
    """Send or store a message as its route requires; return the refusal if it is refused."""
    if route.outcome is Outcome.BEST and _is_stored_first(context, tx, message):
        return _store_and_send(context, tx, message, route.sessions[0].generation)
    if route.outcome is Outcome.DELIVER and _is_stored_for_session(context, tx, message):
        return _store_for_session(context, tx, message, route.sessions[0].generation)
    if route.outcome is Outcome.STORE:
        return _store_or_refuse(context, tx, message)
    if route.outcome is Outcome.REFUSE:
        return Refusal(NOBODY_THERE, RefusalReason.NOBODY_AVAILABLE)
    if route.outcome is Outcome.IGNORE:
        return None if message.kind is MessageType.ERROR else Refusal(NOBODY_THERE, None)
    for session in route.sessions:
        tx.send(session.generation, message)
    return None


def _survives_crash(message: AccountMessage) -> bool:
    """Return whether a message to a session must be stored until the session has it."""
    return message.acknowledged and message.storable and message.kind in STORED_TYPES


def _is_stored_first(context: Context, tx: Transaction, message: AccountMessage) -> bool:
    """Return whether a message to the account must be stored before it is sent to a session.

    If older messages are stored, these must be sent first (RFC 6120, section 10.1).
    """
    return _survives_crash(message) or (
        message.storable
        and context.hooks.stores_messages
        and offline.has_messages(tx, message.account)
    )


def _is_stored_for_session(context: Context, tx: Transaction, message: AccountMessage) -> bool:
    """Return whether a message to a session must be stored until the session has it.

    A message that follows stored ones of its sender must be, or it could overtake them when the
    session ends: what is not stored counts as older (`ReturnedMessages`).
    """
    return _survives_crash(message) or (
        message.storable
        and context.hooks.stores_messages
        and offline.has_from(tx, message.account, message.sender)
    )


def _store_or_refuse(context: Context, tx: Transaction, message: AccountMessage) -> Refusal | None:
    if not message.storable:
        return None
    if not context.hooks.stores_messages:
        return Refusal(NOBODY_THERE, RefusalReason.NOBODY_AVAILABLE)
    row = store(context, tx, message)
    return _storage_refusal(row) if isinstance(row, ExceededLimit) else None


def _store_and_send(
    context: Context, tx: Transaction, message: AccountMessage, generation: int
) -> Refusal | None:
    """Store a message; send it to a session of the account now, or after the older ones."""
    used = _usage_of_window(context, tx, message.account, generation)
    size = len(pack(context, message.content).body)
    has_room = used is not None and _window(context).has_room(used, size)
    is_next = has_room and not offline.has_waiting(tx, message.account)
    row = store(context, tx, message)
    if isinstance(row, ExceededLimit):
        return _storage_refusal(row)
    if is_next:
        _send_row(tx, offline.RECEIPT, row, message, generation)
    else:
        flush_to_best(context, tx, message.account)
    return None


def _store_for_session(
    context: Context, tx: Transaction, message: AccountMessage, generation: int
) -> Refusal | None:
    """Store a message and send it to the session of its full JID, if that has room for it."""
    limits = context.limits
    used = offline.usage_in_flight(tx, generation, offline.SESSION_RECEIPT, message.sender)
    buffer = Usage(limits.unacknowledged_stanzas, limits.unacknowledged_bytes)
    size = len(pack(context, message.content).body)
    if not send_share.has_room(buffer, *used, size):
        return Refusal(NO_ROOM, RefusalReason.SESSION_FULL, limits.unacknowledged_bytes)
    row = store(context, tx, message)
    if isinstance(row, ExceededLimit):
        return _storage_refusal(row)
    _send_row(tx, offline.SESSION_RECEIPT, row, message, generation)
    return None


def _send_row(tx: Transaction, kind: str, row: int, message: SentMessage, generation: int) -> None:
    receipt = Receipt(kind, row)
    in_flight.begin(tx, receipt, generation)
    tx.send(generation, message, receipt)


def _storage_refusal(exceeded: ExceededLimit) -> Refusal:
    is_quota = exceeded.name.startswith("offline")
    reason = RefusalReason.OFFLINE_STORE_FULL if is_quota else RefusalReason.DISK_FULL
    return Refusal(exceeded.name, reason, exceeded.value)


def store(context: Context, tx: Transaction, message: AccountMessage) -> int | ExceededLimit:
    """Store a message for an existing account; return its row, or the limit that it exceeds.

    A message that an ended session did not acknowledge may use the disk reserve, because it was
    admitted before.
    """
    account, sender = message.account, message.sender
    received = None if message.delayed else tx.now.wall
    stored = StoredMessage(pack(context, message.content), sender, received)
    size = offline.stored_size(stored)
    from_sender, usage = offline.usage(tx, account, sender)
    limits = _quota(context, message.returned)
    exceeded = quota.exceeded_waiting_limit(quota.OFFLINE_LIMITS, size, from_sender, usage, limits)
    if not message.returned:
        exceeded = exceeded or space.reserve(tx, size, context.limits)
    if exceeded is not None:
        return exceeded
    tx.wake_at(tx.now.service + context.limits.offline_ttl)
    return offline.add(tx, account, stored)


def _quota(context: Context, returned: bool) -> quota.WaitingUsage:
    limits = context.limits
    factor = RETURNED_QUOTA_FACTOR if returned else 1
    return quota.WaitingUsage(
        Usage(limits.offline_messages * factor, limits.offline_bytes * factor),
        Usage(limits.offline_messages_per_source, limits.offline_bytes_per_source),
        Usage(limits.offline_total_messages, limits.offline_total_bytes),
    )


def flush(context: Context, tx: Transaction, sender: Sender) -> None:
    """Send a session the next of its account's stored messages, as many as it has room for.

    Does nothing unless the session accepts its account's messages, and while another session has
    unacknowledged stored messages of the account.
    """
    if not offline.has_waiting(tx, sender.account):
        return
    session = sessions.find(tx, sender.full)
    if session is None or not session.accepts:
        return
    used = _usage_of_window(context, tx, sender.account, session.generation)
    if used is None:
        return
    for row, message in offline.read_page(tx, sender.account, _window(context), used):
        _send_row(tx, offline.RECEIPT, row, message, session.generation)


def _window(context: Context) -> Usage:
    """Return how many stored messages of its account a session may have unacknowledged."""
    limits = context.limits
    buffer = Usage(limits.unacknowledged_stanzas, limits.unacknowledged_bytes)
    part = buffer.divided_by(WINDOW_DIVISOR)
    return part._replace(messages=min(WINDOW, part.messages))


def _usage_of_window(
    context: Context, tx: Transaction, account: str, generation: int
) -> Usage | None:
    """Return the stored messages of an account that one of its sessions has unacknowledged.

    Return `None` if another session has any, so that this one must wait.
    """
    own = NO_USAGE
    for session in sessions.of_account(tx, f"{account}@{context.domain}"):
        used, _ = offline.usage_in_flight(tx, session.generation, offline.RECEIPT)
        if session.generation == generation:
            own = used
        elif used.messages:
            return None
    return own


def flush_own(context: Context, tx: Transaction, sender: Sender, kinds: Sequence[str]) -> None:
    """Send a session the stored messages of these kinds that are about messages of its account,
    even if it is not available.

    A device that only sends never becomes available. It repeats a request whose answer was lost.
    """
    session = sessions.find(tx, sender.full)
    if session is None or session.accepts:
        return  # `flush` sends them
    for row, message in offline.read_own(tx, sender.account, sender.bare, WINDOW):
        if message.content.kind in kinds:
            _send_row(tx, offline.SESSION_RECEIPT, row, message, session.generation)


def flush_to_best(context: Context, tx: Transaction, account: str) -> None:
    """Send stored messages of an account to its most available session, if there is one."""
    best = rules.best_session(sessions.of_account(tx, f"{account}@{context.domain}"))
    if best is None:
        return
    sender = sessions.sender(tx, best.generation)
    if sender is not None:
        flush(context, tx, sender)


def acknowledge(
    context: Context, tx: Transaction, sender: Sender | None, rows: Sequence[int]
) -> None:
    """Delete the stored messages that a session has acknowledged, and send the next ones."""
    if sender is not None:
        offline.remove(tx, sender.account, rows)
        if offline.has_waiting(tx, sender.account):
            flush(context, tx, sender)
            flush_to_best(context, tx, sender.account)


def return_unacknowledged(
    context: Context, tx: Transaction, _sender: Sender | None, rows: Sequence[int]
) -> None:
    """Send stored messages that an ended session did not acknowledge to another one, if any."""
    tx.wake_at(tx.now.service)  # some may have expired while the session had them
    # All are of the session's account, unless that was removed and their numbers were used again.
    for account in dict.fromkeys(offline.find_account(tx, row) for row in rows):
        if account is not None:
            flush_to_best(context, tx, account)


def expire(context: Context, tx: Transaction) -> None:
    """Delete and log stored messages older than `limits.offline_ttl`."""
    for expired in offline.expire(tx, context.limits.offline_ttl):
        event = NewEvent(
            "message",
            expired.sender,
            name="expired",
            level="Warning",
            text="no session of the recipient became available in time",
            qos=0,
            tags={"account": expired.account},
        )
        events.append(tx, events.SYSTEM, event)
    since = offline.oldest_since(tx)
    if since is not None:
        tx.wake_at(since + context.limits.offline_ttl)


def find_answerable_session(
    context: Context, tx: Transaction, sender: Sender, full: str
) -> SessionRow | None:
    """Return the session of a full JID, if it is bound and the sender may answer it, or `None`.

    An answer is a result or an error. Whether the session has asked for one is not known.
    """
    session = sessions.find(tx, full)
    requester = None if session is None else sessions.sender(tx, session.generation)
    if requester is None:
        return None
    relation = accounts.find_relation(tx, requester, sender.account)
    allowed = access.may_answer(sender, requester, relation, context.trust)
    return session if allowed else None


class ReturnedMessages:
    """The messages that one ended session did not acknowledge, re-routed in order.

    Messages that are already stored for the same accounts are newer, so they are moved behind the
    re-routed ones, unless they have been sent to another session.
    """

    def __init__(self, context: Context, tx: Transaction) -> None:
        self._context = context
        self._tx = tx
        self._stored_before: dict[str, int] = {}

    def deliver(self, message: AccountMessage, route: Route) -> Refusal | None:
        """Deliver a message as its route requires; return the refusal if it is refused."""
        account = message.account
        if account not in self._stored_before:
            self._stored_before[account] = offline.last_row(self._tx, account)
        has_stored = self._stored_before[account] and message.storable
        if route.outcome is Outcome.BEST and has_stored and self._context.hooks.stores_messages:
            route = Route(Outcome.STORE)  # until all of them are in order
        return deliver(self._context, self._tx, message, route)

    def finish(self) -> None:
        """Move newer stored messages behind the re-routed ones; send both to available sessions."""
        for account, last in self._stored_before.items():
            if 0 < last < offline.last_row(self._tx, account):
                offline.move_to_end(self._tx, account, last)
            flush_to_best(self._context, self._tx, account)


def register(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    hooks.on_timer.append(expire)  # a component may have stored messages, too
    hooks.on_time_off.append(offline.age)


def register_for_accounts(hooks: Hooks) -> None:
    """Register the hooks of this module that need accounts."""
    for kind in (offline.RECEIPT, offline.SESSION_RECEIPT):
        hooks.add(hooks.on_acknowledged, kind, acknowledge)
        hooks.add(hooks.on_unacknowledged, kind, return_unacknowledged)
    hooks.on_accepting.append(flush)
