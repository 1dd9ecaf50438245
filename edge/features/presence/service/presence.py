"""Operations on the presence of sessions: broadcast, directed presence and probes.

A session is visible to others from its initial presence until it is unavailable or ends; a detached
session stays visible. The presence of contacts is sent to a session in pages, each when the session
has acknowledged the previous one, so that it never has too many unacknowledged stanzas. Source: RFC
6121, sections 4 and 8.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from edge import jid
from edge.engine.dispatch.hooks import Context, Event, Hooks
from edge.engine.log import refusals
from edge.engine.rules import access
from edge.engine.rules.access import Relation, Sender
from edge.engine.sessions import sessions
from edge.engine.store import in_flight
from edge.engine.store.database import Receipt, Transaction
from edge.features.accounts import service as accounts
from edge.features.discovery import service as discovery
from edge.features.discovery.service import Announced
from edge.features.messages import service as messages
from edge.features.presence.rules import presence as rules
from edge.features.presence.rules.subscriptions import SubscriptionType
from edge.features.presence.service import subscriptions
from edge.features.presence.service.broadcast import presence_of
from edge.features.presence.service.errors import PresenceError, Reason
from edge.features.presence.service.messages import (
    SessionPresence,
    SubscriptionStanza,
    UnavailablePresence,
)
from edge.features.presence.service.roster import find_party
from edge.features.presence.store import presence, roster
from edge.features.presence.store.presence import (
    ContactPresence,
    Recipient,
    available_sessions,
)
from edge.features.presence.store.presence import find_shown as find_shown
from edge.jid import Jid

PAGE_DIVISOR: Final = 8
"""A page of contacts' presence, which is sent at once, takes at most a session's limits of
unacknowledged stanzas and bytes, divided by this number.
"""

REQUESTS_DIVISOR: Final = 4
"""The pending subscription requests that a session gets with its initial presence fill at most its
limits of unacknowledged stanzas and bytes, divided by this number.
"""

PUBSUB_AVAILABLE: Final = Event[[Context, Transaction, Sender]]()
"""Hook event: a session has sent available presence to the publish-subscribe service."""

PUBSUB_UNAVAILABLE: Final = Event[[Context, Transaction, Sender]]()
"""Hook event: a session has sent unavailable presence to the publish-subscribe service."""


class AvailablePresence(NamedTuple):
    """The available presence that a session broadcasts.

    `stored` is the raw presence to keep, stamped with the session's full JID.
    """

    stored: bytes
    priority: int
    announced: Announced | None


# Broadcast: sections 4.2, 4.4 and 4.5


def set_available(
    context: Context, tx: Transaction, sender: Sender, shown: AvailablePresence
) -> None:
    """Broadcast a session's available presence.

    If it is the initial presence, also send the session the presence of its contacts.
    """
    is_initial = find_shown(tx, sender.generation) is None
    presence.set_shown(tx, sender.generation, shown.stored)
    recipients = [one for one in _recipients(tx, sender) if _may_see(tx, sender, one)]
    _send_all(tx, sender, shown.stored, ((one.generation, one.bare) for one in recipients))
    if is_initial:
        _send_initial(context, tx, sender)
    outdated = discovery.forget_outdated(tx, sender.generation, shown.announced)
    accepts, rank = rules.accepts_messages(shown.priority), shown.priority
    sessions.set_available(context, tx, sender, accepts=accepts, rank=rank, renewed=outdated)


def _recipients(tx: Transaction, sender: Sender) -> Iterator[Recipient]:
    """Yield the available sessions that receive the sender's broadcasts.

    These are sessions of its own account and of its subscribers. A removed account has no roster
    that lists its subscribers, so their rosters are searched.
    """
    for session in available_sessions(tx, sender.bare):
        yield Recipient(session.generation, sender.bare, "both")
    account = roster.account_id(tx, sender.account)
    if account is None:
        yield from presence.subscribers_of_removed(tx, sender.bare)
    else:
        yield from presence.broadcast_recipients(tx, account)


def _may_see(tx: Transaction, sender: Sender, recipient: Recipient) -> bool:
    subscriber = sessions.sender(tx, recipient.generation)
    relation = access.relation(
        own=recipient.bare == sender.bare,
        exists=sender.provisioned,
        listed=True,
        subscription=recipient.subscription,
    )
    return subscriber is not None and access.may_see_presence(subscriber, relation)


def _send_all(
    tx: Transaction, sender: Sender, raw: bytes, recipients: Iterable[tuple[int, str]]
) -> None:
    """Send a presence to sessions, given as pairs of a generation and the JID for the address."""
    for generation, to in recipients:
        tx.send(generation, SessionPresence(raw, sender.full, to))


def set_unavailable(context: Context, tx: Transaction, sender: Sender, raw: bytes) -> None:
    """Make a session unavailable; inform it and all sessions that got its presence.

    `raw` is its unavailable presence. Source: RFC 6121, section 4.5.
    """
    saw = dict(_who_saw(tx, sender))
    presence.clear_shown(tx, sender.generation)
    presence.clear_directed(tx, sender.generation)
    _send_all(tx, sender, raw, saw.items())
    sessions.set_unavailable(context, tx, sender)


def _who_saw(tx: Transaction, sender: Sender) -> Iterator[tuple[int, str]]:
    """Yield each session that saw the sender, and the JID to which presence was addressed.

    Sessions that got directed presence come first.
    """
    for target in presence.directed_targets(tx, sender.generation):
        for generation in _reached(tx, jid.split(target)):
            yield generation, target
    if find_shown(tx, sender.generation) is not None:
        for recipient in _recipients(tx, sender):
            yield recipient.generation, recipient.bare


def on_session_end(_context: Context, tx: Transaction, sender: Sender) -> None:
    """Send unavailable presence to all who saw a session that has ended (section 4.5.2)."""
    saw = dict(_who_saw(tx, sender))
    saw.pop(sender.generation, None)
    for generation, to in saw.items():
        tx.send(generation, UnavailablePresence(sender.full, to))


# Presence of others: section 4.2.2


def _send_initial(context: Context, tx: Transaction, sender: Sender) -> None:
    """Send a session the presence of its account's sessions and contacts, and pending requests."""
    for other in available_sessions(tx, sender.bare):
        if other.generation != sender.generation:
            tx.send(sender.generation, presence_of(other, sender.full))
    account = roster.account_id(tx, sender.account)
    if account is None:
        return
    in_flight.forget_kind(tx, presence.RECEIPT, sender.generation)  # of an earlier availability
    _send_contacts(context, tx, sender, account, 0)
    limits = context.limits
    count = limits.unacknowledged_stanzas // REQUESTS_DIVISOR
    requests = roster.pending_requests(tx, account, count)
    room = limits.unacknowledged_bytes // REQUESTS_DIVISOR
    for contact, request in requests:  # later initial presence gets the rest
        room -= len(request)
        if room < 0:
            return
        message = SubscriptionStanza(SubscriptionType.SUBSCRIBE, contact, sender.bare, request)
        tx.send(sender.generation, message)


def _send_contacts(
    context: Context, tx: Transaction, sender: Sender, account: int, after: int
) -> None:
    """Send a session the next page of contacts' presence, of generations above `after`."""
    while page := _page(context, tx, sender, account, after):
        after = page[-1].generation
        visible = [contact for contact in page if _may_see_contact(sender, contact)]
        if not visible:
            continue
        receipt = None  # of the last stanza, if there is another page
        if _page(context, tx, sender, account, after):
            receipt = Receipt(presence.RECEIPT, after)
            in_flight.begin(tx, receipt, sender.generation)
        for contact in visible:
            update = SessionPresence(contact.presence, contact.full, sender.full)
            tx.send(sender.generation, update, receipt if contact is visible[-1] else None)
        return


def _page(
    context: Context, tx: Transaction, sender: Sender, account: int, after: int
) -> list[ContactPresence]:
    count = context.limits.unacknowledged_stanzas // PAGE_DIVISOR
    max_bytes = context.limits.unacknowledged_bytes // PAGE_DIVISOR
    return presence.contact_presences(tx, account, sender.bare, after, count, max_bytes)


def _may_see_contact(sender: Sender, contact: ContactPresence) -> bool:
    relation = access.relation(
        own=False, exists=contact.usable, listed=True, subscription=contact.subscription
    )
    return access.may_see_presence(sender, relation)


def on_page_acknowledged(
    context: Context, tx: Transaction, sender: Sender | None, rows: Sequence[int]
) -> None:
    """Send the next page of contacts' presence to a session that has acknowledged a page.

    Does nothing if the session is no longer available.
    """
    account = None if sender is None else roster.account_id(tx, sender.account)
    if sender is None or account is None or find_shown(tx, sender.generation) is None:
        return
    _send_contacts(context, tx, sender, account, max(rows))


def on_page_lost(
    _context: Context, _tx: Transaction, _sender: Sender | None, _rows: Sequence[int]
) -> None:
    """Do nothing: if a session ends, the remaining pages of presence are not needed."""


def probe(context: Context, tx: Transaction, sender: Sender, target: Jid) -> None:
    """Answer a session's probe with the presence of the target's sessions (section 4.3.2).

    A sender that may not see the presence is informed that it has no subscription. A probe of an
    account that does not exist is not answered.
    """
    relation = accounts.find_relation(tx, sender, target.local)
    if relation is Relation.NOBODY:
        return
    if not access.may_see_presence(sender, relation):
        own = find_party(tx, sender.bare, sender.account)
        if own is not None:
            subscriptions.refuse(context, tx, own, target.bare)
        return
    found = [
        session
        for session in available_sessions(tx, target.bare)
        if target.resource in ("", session.full.partition("/")[2])
    ]
    for session in found:
        tx.send(sender.generation, presence_of(session, sender.full))
    if not found:
        tx.send(sender.generation, UnavailablePresence(target.full, sender.full))


# Directed presence: section 4.6


def _reached(tx: Transaction, target: Jid) -> list[int]:
    """Return the generations of the sessions that directed presence reaches (sections 8.5.2.1.2 and
    8.5.3.1)."""
    if target.resource:
        session = sessions.find(tx, target.full)
        return [] if session is None else [session.generation]
    return [session.generation for session in available_sessions(tx, target.bare)]


def direct_available(
    context: Context, tx: Transaction, sender: Sender, target: Jid, raw: bytes
) -> None:
    """Send available presence to an address, which also learns when the session ends.

    Raises:
        PresenceError: the session has directed presence to too many addresses.
    """
    relation = accounts.find_relation(tx, sender, target.local)
    if not access.may_reach(sender, relation, context.trust):
        rule = "no_destination" if relation is Relation.NOBODY else "untrusted"
        refusals.log(context, tx, sender, rule)
        return
    reached = _reached(tx, target)
    if not reached:
        return
    known = presence.directed_targets(tx, sender.generation)
    limit = context.limits.directed_presences
    if target.full not in known and len(known) >= limit:
        refusals.log(context, tx, sender, "directed_presences", limit)
        raise PresenceError(
            Reason.TOO_MANY_DIRECTED, f"at most {limit} addresses can get directed presence"
        )
    presence.add_directed(tx, sender.generation, target.full)
    _send_all(tx, sender, raw, ((generation, target.full) for generation in reached))


def direct_unavailable(tx: Transaction, sender: Sender, target: Jid, raw: bytes) -> None:
    """Send unavailable presence to the sessions at `target` to which the sender is available."""
    was_directed = target.full in presence.directed_targets(tx, sender.generation)
    recipients = {one.generation for one in _recipients(tx, sender)}
    presence.remove_directed(tx, sender.generation, target.full)
    for generation in _reached(tx, target):
        if was_directed or generation in recipients:
            tx.send(generation, SessionPresence(raw, sender.full, target.full))


def relay_error(context: Context, tx: Transaction, sender: Sender, target: Jid, raw: bytes) -> None:
    """Relay a presence error to the session at `target`, if the sender may reach that session."""
    session = messages.find_answerable_session(context, tx, sender, target.full)
    if session is not None:
        tx.send(session.generation, SessionPresence(raw, sender.full, target.full, is_error=True))


def register_for_accounts(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    hooks.on_session_end.append(on_session_end)
    hooks.add(hooks.on_acknowledged, presence.RECEIPT, on_page_acknowledged)
    hooks.add(hooks.on_unacknowledged, presence.RECEIPT, on_page_lost)
