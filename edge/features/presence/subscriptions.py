"""The four subscription stanzas on their way from one account to another of this gateway.

Each changes a row in the roster of each side, by the table of `rules.roster`, and both in the one
transaction: there is nobody between the two. Accounts elsewhere are not reached. Source: RFC 6121,
section 3 and appendix A.
"""

from __future__ import annotations

from typing import NamedTuple

from edge.engine import access, refusals, sessions
from edge.engine.access import Relation, Sender
from edge.engine.database import Transaction
from edge.engine.hooks import Context
from edge.features.accounts.store import relations
from edge.features.presence import contacts, presence_broadcast
from edge.features.presence.rules import roster as rules
from edge.features.presence.rules.roster import Direction, SubscriptionState, SubscriptionType
from edge.features.presence.store import roster
from edge.features.presence.store.roster import RosterItem
from edge.xmpp import serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.jid import Jid


class Party(NamedTuple):
    """An account of this gateway: the number of its row, and its bare JID."""

    account: int
    bare: str


def party(tx: Transaction, bare: str, name: str) -> Party | None:
    """Return an account, also a revoked one; `None` if there is none of that name."""
    number = roster.account_id(tx, name) if name else None
    return None if number is None else Party(number, bare)


def send(
    context: Context,
    tx: Transaction,
    sender: Sender,
    kind: SubscriptionType,
    contact: Jid,
    stanza: bytes,
) -> None:
    """Do what a subscription stanza of a session asks for.

    Args:
        context: of the gateway.
        tx: the transaction.
        sender: whose it is.
        kind: which of the four.
        contact: whom it is for; its resource is passed over (section 3.1.1).
        stanza: raw, stamped with both bare JIDs.

    Raises:
        StanzaError: nothing was changed: it is for the sender itself, or there is no room.
    """
    if contact.bare == sender.bare:
        raise StanzaError("not-allowed", "an account sees its own presence anyway")
    own = party(tx, sender.bare, sender.account)
    if own is None or not access.may_use_roster(sender, Relation.OWN):
        raise StanzaError("forbidden")
    peer = party(tx, contact.bare, contact.local)
    if kind is SubscriptionType.SUBSCRIBE and not _may_ask(context, tx, sender, contact):
        peer = None
    _check_room(context, tx, sender, kind, own, peer, contact.bare)
    carry(tx, own, peer, contact.bare, kind, stanza)


def carry(
    tx: Transaction,
    own: Party,
    peer: Party | None,
    jid: str,
    kind: SubscriptionType,
    stanza: bytes,
    *,
    push: bool = True,
) -> None:
    """Carry a stanza from one account to `peer`, whose bare JID is `jid`; `None` is nobody.

    With `push` false, the sessions of `own` are not told what has changed in its roster.
    """
    before = roster.find(tx, own.account, jid)
    decision = rules.decide(Direction.OUT, kind, before.state)
    if rules.shares_presence(before.state) and not rules.shares_presence(decision.state):
        presence_broadcast.hide(tx, own.bare, jid)
    after = before.with_state(decision.state, b"")
    roster.save(tx, own.account, after)
    if push:
        _tell(tx, own, before, after)
    if decision.passes and peer is not None:
        receive(tx, peer, own, kind, stanza)
    elif decision.passes and kind is SubscriptionType.SUBSCRIBE:
        refuse(tx, own, jid)
    if rules.shares_presence(decision.state) and not rules.shares_presence(before.state):
        presence_broadcast.show(tx, own.bare, jid)


def receive(
    tx: Transaction, own: Party, other: Party, kind: SubscriptionType, stanza: bytes
) -> None:
    """Take a stanza that another account has sent to this one (appendix A.3)."""
    decision = _take(tx, own, other.bare, kind, stanza)
    if decision.answer is not None:
        answer = serialize.presence(decision.answer.value, own.bare, other.bare)
        _take(tx, other, own.bare, decision.answer, answer)
        presence_broadcast.show(tx, own.bare, other.bare)


def refuse(tx: Transaction, own: Party, jid: str) -> None:
    """Tell an account that it does not see somebody: one who is not there, or is not to be asked
    (sections 3.1.3 and 4.3.2)."""
    stanza = serialize.presence(SubscriptionType.UNSUBSCRIBED.value, jid, own.bare)
    _take(tx, own, jid, SubscriptionType.UNSUBSCRIBED, stanza)


def _take(
    tx: Transaction, own: Party, jid: str, kind: SubscriptionType, stanza: bytes
) -> rules.Decision:
    before = roster.find(tx, own.account, jid)
    decision = rules.decide(Direction.IN, kind, before.state)
    after = before.with_state(decision.state, stanza)
    if after != before:
        roster.save(tx, own.account, after)
    if decision.passes:
        _deliver(tx, own.bare, kind, stanza)
    _tell(tx, own, before, after)
    if rules.shares_presence(before.state) and not rules.shares_presence(decision.state):
        presence_broadcast.hide(tx, own.bare, jid)
    return decision


def _deliver(tx: Transaction, bare: str, kind: SubscriptionType, stanza: bytes) -> None:
    """Give a request to all that are available, and the rest to those that know the roster."""
    for session in sessions.of_account(tx, bare):
        if session.available if kind is SubscriptionType.SUBSCRIBE else session.interested:
            tx.send(session.generation, stanza)


def _tell(tx: Transaction, own: Party, before: RosterItem, after: RosterItem) -> None:
    if after.visible_fields != before.visible_fields:
        contacts.push(tx, own.bare, after)


def _may_ask(context: Context, tx: Transaction, sender: Sender, contact: Jid) -> bool:
    """Tell whether a request reaches a contact; who may not ask is told what nobody's JID tells."""
    relation = relations.find_relation(tx, sender, contact.local)
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
    """Return if both rosters have room for what the stanza would add.

    As many may wait to be let into a roster as it may have.
    """
    limit = context.limits.roster_items
    mine = roster.find(tx, own.account, jid)
    adds = rules.is_listed(rules.decide(Direction.OUT, kind, mine.state).state) and not mine.listed
    full = adds and roster.count(tx, own.account, listed=True) >= limit
    if not full and peer is not None and kind is SubscriptionType.SUBSCRIBE:
        theirs = roster.find(tx, peer.account, own.bare)
        asks = not theirs.listed and theirs.state is SubscriptionState.NONE
        full = asks and roster.count(tx, peer.account, listed=False) >= limit
    if adds and len(contacts.item(mine)) > contacts.ITEM_BYTES:
        raise StanzaError("not-acceptable", f"a contact has at most {contacts.ITEM_BYTES} bytes")
    if full:
        refusals.log(context, tx, sender, "roster_items", limit)
        raise StanzaError("resource-constraint", "there is no room for more contacts")
