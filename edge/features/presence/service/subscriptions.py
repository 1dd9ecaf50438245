"""Handle subscription stanzas between two accounts of this gateway, and remove contacts.

Each stanza changes a roster item of both accounts, by the table in `rules.subscriptions`, in one
transaction. Accounts of other domains cannot be reached. Source: RFC 6121, section 3 and appendix
A.
"""

from __future__ import annotations

from edge.engine.dispatch.hooks import Context
from edge.engine.log import refusals
from edge.engine.rules import access
from edge.engine.rules.access import Relation, Sender
from edge.engine.store.database import Transaction
from edge.features.accounts import service as accounts
from edge.features.presence.rules import subscriptions as rules
from edge.features.presence.rules.subscriptions import (
    Decision,
    Direction,
    SubscriptionState,
    SubscriptionType,
)
from edge.features.presence.service.broadcast import send_presence, send_unavailable
from edge.features.presence.service.errors import PresenceError, Reason
from edge.features.presence.service.messages import SubscriptionStanza
from edge.features.presence.service.roster import (
    Party,
    check_not_own,
    check_size,
    find_party,
    push,
)
from edge.features.presence.store import presence, roster
from edge.features.presence.store.roster import RosterItem
from edge.jid import Jid


def send(
    context: Context,
    tx: Transaction,
    sender: Sender,
    kind: SubscriptionType,
    contact: Jid,
    stanza: bytes,
) -> None:
    """Handle a subscription stanza that a session sends.

    Args:
        contact: the contact; its resource is ignored (section 3.1.1).
        stanza: the raw stanza, stamped with both bare JIDs.

    Raises:
        PresenceError: the contact is the account itself, the sender may not use a roster, the
            contact is too large, or a roster is full. Nothing was changed.
    """
    if contact.bare == sender.bare:
        raise PresenceError(Reason.OWN_SUBSCRIPTION)
    own = find_party(tx, sender.bare, sender.account)
    if own is None or not access.may_use_roster(sender, Relation.OWN):
        raise PresenceError(Reason.NOT_ALLOWED)
    peer = find_party(tx, contact.bare, contact.local)
    if kind is SubscriptionType.SUBSCRIBE and not _may_request(context, tx, sender, contact):
        peer = None
    _check_room(context, tx, sender, kind, own, peer, contact.bare)
    message = SubscriptionStanza(kind, sender.bare, contact.bare, stanza)
    _send(context, tx, own, peer, message)


def _send(
    context: Context,
    tx: Transaction,
    own: Party,
    peer: Party | None,
    message: SubscriptionStanza,
    *,
    with_push: bool = True,
) -> None:
    """Send a stanza from the account `own`; `peer` is the account of its recipient, if it exists.

    Without `with_push`, the sessions of `own` get no roster push.
    """
    kind, jid = message.type, message.to
    before = roster.find(tx, own.account, jid)
    decision = rules.decide(Direction.OUT, kind, before.state)
    shared_before = rules.shares_presence(before.state)
    shares_now = rules.shares_presence(decision.state)
    if shared_before and not shares_now:
        send_unavailable(tx, own.bare, jid)
    after = before.with_state(decision.state, b"")
    roster.save(tx, own.account, after)
    if with_push:
        _push_changes(tx, own, before, after)
    if decision.passes and peer is not None:
        _receive(context, tx, peer, own, message)
    elif decision.passes and kind is SubscriptionType.SUBSCRIBE:
        refuse(context, tx, own, jid)
    if shares_now and not shared_before:
        send_presence(tx, own.bare, jid)


def _receive(
    context: Context,
    tx: Transaction,
    own: Party,
    other: Party,
    message: SubscriptionStanza,
) -> None:
    """Handle a stanza that another account has sent to this one (appendix A.3)."""
    decision = _apply_inbound(context, tx, own, message)
    if decision.answer is not None:
        answer = SubscriptionStanza(decision.answer, own.bare, other.bare)
        _apply_inbound(context, tx, other, answer)
        send_presence(tx, own.bare, other.bare)


def refuse(context: Context, tx: Transaction, own: Party, jid: str) -> None:
    """Inform an account that it has no subscription to a JID (sections 3.1.3 and 4.3.2).

    This is the answer if the JID does not exist or may not be subscribed to.
    """
    message = SubscriptionStanza(SubscriptionType.UNSUBSCRIBED, jid, own.bare)
    _apply_inbound(context, tx, own, message)


def remove_contact(context: Context, tx: Transaction, own: Party, contact: Jid) -> None:
    """Remove a contact and end the subscriptions between it and the account (section 2.5.2).

    Raises:
        PresenceError: the contact is the account itself, or is not in the roster.
    """
    jid = contact.bare
    check_not_own(own, jid)
    if not roster.find(tx, own.account, jid).listed:
        raise PresenceError(Reason.NOT_LISTED)
    is_local = contact.domain == context.domain
    peer = find_party(tx, jid, contact.local) if is_local else None
    for kind in (SubscriptionType.UNSUBSCRIBE, SubscriptionType.UNSUBSCRIBED):
        state = roster.find(tx, own.account, jid).state
        if rules.decide(Direction.OUT, kind, state).state is not state:
            message = SubscriptionStanza(kind, own.bare, jid)
            _send(context, tx, own, peer, message, with_push=False)
    roster.remove(tx, own.account, jid)
    push(tx, own, RosterItem(jid))


def _apply_inbound(
    context: Context,
    tx: Transaction,
    own: Party,
    message: SubscriptionStanza,
) -> Decision:
    kind, jid = message.type, message.sender
    before = roster.find(tx, own.account, jid)
    decision = rules.decide(Direction.IN, kind, before.state)
    after = before.with_state(decision.state, message.stanza)
    if after != before:
        roster.save(tx, own.account, after)
    if decision.passes:
        _forward(tx, own.bare, message)
    _push_changes(tx, own, before, after)
    if rules.shares_presence(before.state) and not rules.shares_presence(decision.state):
        send_unavailable(tx, own.bare, jid)
    return decision


def _forward(tx: Transaction, bare: str, message: SubscriptionStanza) -> None:
    """Send a request to available sessions, any other stanza to those that requested the roster."""
    is_request = message.type is SubscriptionType.SUBSCRIBE
    found = presence.available_sessions if is_request else presence.interested_sessions
    for generation, *_ in found(tx, bare):
        tx.send(generation, message)


def _push_changes(tx: Transaction, own: Party, before: RosterItem, after: RosterItem) -> None:
    if after.visible_fields != before.visible_fields:
        push(tx, own, after)


def _may_request(context: Context, tx: Transaction, sender: Sender, contact: Jid) -> bool:
    """Return whether a request reaches a contact; if not, the contact seems not to exist."""
    relation = accounts.find_relation(tx, sender, contact.local)
    allowed = access.may_subscribe(sender, relation)
    if not allowed and relation is not Relation.NOBODY:
        refusals.log(context, tx, sender, "untrusted")
    return allowed


def _check_room(
    context: Context,
    tx: Transaction,
    sender: Sender,
    kind: SubscriptionType,
    own: Party,
    peer: Party | None,
    jid: str,
) -> None:
    """Raise `PresenceError` if a roster has no room for the item that the stanza adds.

    The limit of contacts also applies, separately, to pending requests.
    """
    limit = context.limits.roster_items
    item = roster.find(tx, own.account, jid)
    state_after = rules.decide(Direction.OUT, kind, item.state).state
    adds_item = rules.is_listed(state_after) and not item.listed
    is_full = adds_item and roster.count(tx, own.account, listed=True) >= limit
    if not is_full and peer is not None and kind is SubscriptionType.SUBSCRIBE:
        theirs = roster.find(tx, peer.account, own.bare)
        adds_request = not theirs.listed and theirs.state is SubscriptionState.NONE
        is_full = adds_request and roster.count(tx, peer.account, listed=False) >= limit
    if adds_item:
        check_size(context, item._replace(listed=True))
    if is_full:
        refusals.log(context, tx, sender, "roster_items", limit)
        raise PresenceError(Reason.ROSTER_FULL)
