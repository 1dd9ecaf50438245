"""What a session is shown of others: at its first presence, and when it asks.

Contacts come in pages, the next one when the peer has the one before: however many they are, they
do not end the session. Who comes or changes meanwhile is shown by `presence`, which tells whom a
session shows itself to. Source: RFC 6121, sections 4.2.2 and 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from edge.engine import access, in_flight, sessions
from edge.engine.access import Relation, Sender
from edge.engine.database import Receipt, Transaction
from edge.engine.hooks import Context, Hooks
from edge.engine.sessions import Session
from edge.features.accounts.store import relations
from edge.features.presence import presence_broadcast, subscriptions
from edge.features.presence.store import presence, roster
from edge.features.presence.store.presence import ContactPresence
from edge.xmpp.jid import Jid
from edge.xmpp.stanza import stamped

EIGHTH: Final = 8
"""A page of contacts takes at most one part in so many of what a session may leave unacknowledged:
with requests and a page of stored messages, that is less than all."""

QUARTER: Final = 4
"""The same for requests to see an account: whoever asks cannot shut it out."""


def begin(context: Context, tx: Transaction, sender: Sender) -> None:
    """Show a session that was not there before all that it may see: the others of its account, its
    contacts, and who asks to see it."""
    for other in presence_broadcast.available(tx, sender.bare):
        if other.generation != sender.generation:
            tx.send(sender.generation, presence_broadcast.shown(other, sender.full))
    account = roster.account_id(tx, sender.account)
    if account is None:
        return
    in_flight.forget_kind(tx, presence.RECEIPT, sender.generation)  # since it was there before
    _show(context, tx, sender, account, 0)
    limits = context.limits
    requests = roster.pending_requests(tx, account, limits.unacknowledged_stanzas // QUARTER)
    for request in _fitting(requests, limits.unacknowledged_bytes // QUARTER):
        tx.send(sender.generation, request)


def _fitting(requests: Iterable[bytes], room: int) -> Iterator[bytes]:
    """Choose the first requests that fit: the rest comes when those are answered."""
    for request in requests:
        room -= len(request)
        if room < 0:
            return
        yield request


def _show(context: Context, tx: Transaction, sender: Sender, account: int, after: int) -> None:
    """Show a session one page of its contacts' sessions, those beyond a generation."""
    while page := _page(context, tx, sender, account, after):
        after = page[-1].generation
        seen = [contact for contact in page if _may_see(sender, contact)]
        if seen:
            more = bool(_page(context, tx, sender, account, after))
            _send(tx, sender, seen, Receipt(presence.RECEIPT, after) if more else None)
            return


def _send(
    tx: Transaction, sender: Sender, seen: Sequence[ContactPresence], receipt: Receipt | None
) -> None:
    """Send a page; `receipt` goes with the last of it."""
    if receipt is not None:
        in_flight.begin(tx, receipt, sender.generation)
    for contact in seen:
        shown = stamped(contact.presence, contact.full, sender.full)
        tx.send(sender.generation, shown, receipt if contact is seen[-1] else None)


def _page(
    context: Context, tx: Transaction, sender: Sender, account: int, after: int
) -> list[ContactPresence]:
    count = context.limits.unacknowledged_stanzas // EIGHTH
    max_bytes = context.limits.unacknowledged_bytes // EIGHTH
    return presence.contact_presences(tx, account, sender.bare, after, count, max_bytes)


def _may_see(sender: Sender, contact: ContactPresence) -> bool:
    relation = access.relation(
        own=False, exists=contact.usable, listed=True, subscription=contact.subscription
    )
    return access.may_see_presence(sender, relation)


def go_on(context: Context, tx: Transaction, sender: Sender | None, rows: Sequence[int]) -> None:
    """Show a session whose peer has a page the next one, if it is available still."""
    session = None if sender is None else sessions.find(tx, sender.full)
    account = None if sender is None else roster.account_id(tx, sender.account)
    if sender is None or session is None or account is None or not session.available:
        return
    _show(context, tx, sender, account, max(rows))


def probe(tx: Transaction, sender: Sender, target: Jid) -> None:
    """Answer a client's probe for the account that is asked about (section 4.3.2).

    Who may not see it and believes to does not from then on; nobody is told of an account that is
    not there.
    """
    relation = relations.find_relation(tx, sender, target.local)
    if relation is Relation.NOBODY:
        return
    if not access.may_see_presence(sender, relation):
        own = subscriptions.party(tx, sender.bare, sender.account)
        if own is not None:
            subscriptions.refuse(tx, own, target.bare)
        return
    there = [
        s
        for s in presence_broadcast.available(tx, target.bare)
        if target.resource in ("", _resource(s))
    ]
    for session in there:
        tx.send(sender.generation, presence_broadcast.shown(session, sender.full))
    if not there:
        tx.send(sender.generation, presence_broadcast.unavailable(target.full, sender.full))


def _resource(session: Session) -> str:
    return session.full.partition("/")[2]


def _over(
    _context: Context, _tx: Transaction, _sender: Sender | None, _rows: Sequence[int]
) -> None:
    """Let the rest go with the session: what others show is not stored."""


NEEDS_ACCOUNTS: Final = True


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.on_acknowledged(presence.RECEIPT, go_on)
    hooks.on_unacknowledged(presence.RECEIPT, _over)
