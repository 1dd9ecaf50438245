"""Rosters: what a session asks of its account's, and what it changes there.

Subscriptions come about by presence alone (`subscriptions`); the one thing that an iq does to them
is to end them with the contact. Roster versions (section 2.6) are not offered: a roster here has
few contacts. Source: RFC 6121, section 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from edge.engine import access, answers, refusals, space
from edge.engine.access import Relation, Sender
from edge.engine.addresses import AddressKind
from edge.engine.database import Transaction
from edge.engine.hooks import Context, Handler, Hooks, OffloadedWork, Work
from edge.engine.quota import ExceededLimit
from edge.features.presence import contacts, subscriptions
from edge.features.presence.rules import roster as rules
from edge.features.presence.rules.roster import Direction, SubscriptionType
from edge.features.presence.store import presence, roster
from edge.features.presence.subscriptions import Party
from edge.xmpp import jid, replies, serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import ROSTER, clark
from edge.xmpp.stanza import Stanza

NAME_BYTES: Final = 128
"""Bytes of a contact's name."""
GROUP_BYTES: Final = 64
"""Bytes of a group's name."""
GROUPS: Final = 4
"""Groups of one contact."""

_QUERY: Final = clark(ROSTER, "query")
_ITEM: Final = clark(ROSTER, "item")
_GROUP: Final = clark(ROSTER, "group")


class Wanted(NamedTuple):
    """What a roster set asks for."""

    jid: str
    name: str | None
    groups: tuple[str, ...]
    remove: bool


def read(stanza: Stanza) -> Wanted:
    """Read what a roster set asks for (sections 2.1.5, 2.3.3 and 2.5.3).

    `subscription`, but for its removal, `ask` and `approved` are not the client's to set, and are
    passed over.

    Raises:
        StanzaError: `bad-request`, `not-acceptable` or `jid-malformed`.
    """
    items = stanza.children[0].children
    if len(items) != 1 or items[0].name != _ITEM:
        raise StanzaError("bad-request", "a roster set has one item")
    attrs = items[0].attrs
    if "jid" not in attrs:
        raise StanzaError("bad-request", "an item has a JID")
    contact = jid.parse(attrs["jid"])
    if contact.resource:
        raise StanzaError("not-acceptable", "a contact is a bare JID")
    if attrs.get("subscription") == "remove":
        return Wanted(contact.bare, None, (), True)
    name = attrs.get("name") or None
    if name is not None and len(name.encode()) > NAME_BYTES:
        raise StanzaError("not-acceptable", f"a name has at most {NAME_BYTES} bytes")
    groups = [group.text or "" for group in items[0].tree().findall(_GROUP)]
    return Wanted(contact.bare, name, _checked(groups), False)


def _checked(groups: list[str]) -> tuple[str, ...]:
    if len(set(groups)) < len(groups):
        raise StanzaError("bad-request", "a group is named twice")
    if len(groups) > GROUPS:
        raise StanzaError("not-acceptable", f"a contact is in at most {GROUPS} groups")
    if any(not 0 < len(group.encode()) <= GROUP_BYTES for group in groups):
        raise StanzaError("not-acceptable", f"a group's name has 1 to {GROUP_BYTES} bytes")
    return tuple(groups)


def get(context: Context, stanza: Stanza) -> OffloadedWork:
    """Answer with the roster; from now on the session is told of its changes (section 2.2)."""

    def do(tx: Transaction, sender: Sender, own: Party) -> bytes:
        presence.set_interested(tx, sender.generation)
        return contacts.query(contacts.item(c) for c in roster.list_items(tx, own.account))

    return OffloadedWork(lambda: _answered(context, stanza, do))


def change(context: Context, stanza: Stanza) -> Work:
    """Add, update or remove a contact (sections 2.3 to 2.5)."""
    wanted = read(stanza)

    def do(tx: Transaction, sender: Sender, own: Party) -> bytes:
        if wanted.jid == own.bare:
            raise StanzaError("not-allowed", "an account is not its own contact")
        if wanted.remove:
            _remove(context, tx, own, wanted.jid)
        else:
            _put(context, tx, sender, own, wanted)
        return b""

    return _answered(context, stanza, do)


def _answered(
    context: Context, stanza: Stanza, do: Callable[[Transaction, Sender, Party], bytes]
) -> Work:
    """Make work that answers with what `do` returns, or with what forbids it.

    `do` raises before it writes.
    """
    to = stanza.attrs.get("to")

    def work(tx: Transaction, sender: Sender) -> bytes:
        try:
            payload = do(tx, sender, _own(context, tx, sender, to))
        except StanzaError as error:
            return replies.iq_error(stanza, error, to=sender.full, from_=to)
        return serialize.iq_result(stanza.attrs["id"], sender.full, to, payload)

    return work


def _own(context: Context, tx: Transaction, sender: Sender, to: str | None) -> Party:
    """Return the sender's account, if the roster addressed is its own."""
    place = answers.address_kind(context, to, sender.bare)
    relation = Relation.OWN if place is AddressKind.OWN else Relation.OTHER
    own = subscriptions.party(tx, sender.bare, sender.account)
    if own is None or not access.may_use_roster(sender, relation):
        raise StanzaError("forbidden")
    return own


def _put(context: Context, tx: Transaction, sender: Sender, own: Party, wanted: Wanted) -> None:
    contact = roster.find(tx, own.account, wanted.jid)
    over = None if contact.listed else _room(context, tx, own)
    if over is not None:
        refusals.log(context, tx, sender, over.name, over.value)
        raise StanzaError("resource-constraint", f"{over.name} is {over.value}")
    contact = contact._replace(listed=True, name=wanted.name, groups=wanted.groups)
    if len(contacts.item(contact)) > contacts.ITEM_BYTES:
        raise StanzaError("not-acceptable", f"a contact has at most {contacts.ITEM_BYTES} bytes")
    roster.save(tx, own.account, contact)
    contacts.push(tx, own.bare, contact)


def _room(context: Context, tx: Transaction, own: Party) -> ExceededLimit | None:
    """Tell which limit one more contact would exceed."""
    limit = context.limits.roster_items
    if roster.count(tx, own.account, listed=True) >= limit:
        return ExceededLimit("roster_items", limit)
    return space.reserve(tx, contacts.ITEM_BYTES, context.limits)


def _remove(context: Context, tx: Transaction, own: Party, contact: str) -> None:
    """Take a contact out; what the two were to each other ends with it (section 2.5.2)."""
    if not roster.find(tx, own.account, contact).listed:
        raise StanzaError("item-not-found")
    contacts.push_removal(tx, own.bare, contact)
    address = jid.parse(contact)
    here = address.domain == context.domain
    peer = subscriptions.party(tx, contact, address.local) if here else None
    for kind in (SubscriptionType.UNSUBSCRIBE, SubscriptionType.UNSUBSCRIBED):
        state = roster.find(tx, own.account, contact).state
        if rules.decide(Direction.OUT, kind, state).state is not state:
            stanza = serialize.presence(kind.value, own.bare, contact)
            subscriptions.carry(tx, own, peer, contact, kind, stanza, push=False)
    roster.remove(tx, own.account, contact)


_HANDLERS: Final[dict[tuple[str, str], Handler]] = {
    ("get", _QUERY): get,
    ("set", _QUERY): change,
}

NEEDS_ACCOUNTS: Final = True


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    for (type_, payload), handler in _HANDLERS.items():
        hooks.own_account_iq(type_, payload, handler)
    for (type_, payload), handler in _HANDLERS.items():
        hooks.account_iq(type_, payload, handler)
