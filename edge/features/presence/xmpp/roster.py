"""Answer roster iqs and encode roster pushes (RFC 6121, section 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from edge import jid
from edge.engine.dispatch import addresses
from edge.engine.dispatch.addresses import AddressKind
from edge.engine.dispatch.hooks import Context, Hooks, OffloadedWork, Work
from edge.engine.rules.access import Relation, Sender
from edge.engine.store.database import Transaction
from edge.errors import ServiceError
from edge.features.presence.rules.subscriptions import FIELDS
from edge.features.presence.service import roster as service
from edge.features.presence.service import subscriptions
from edge.features.presence.service.messages import RosterPush
from edge.features.presence.service.roster import Contact, Party, RosterItem
from edge.jid import Jid
from edge.routing.xmpp import Handler, XmppHooks, answers
from edge.xmpp import PROTOCOL, serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import ROSTER, ROSTER_VERSIONING, clark
from edge.xmpp.stanza import Stanza

MAX_NAME_BYTES: Final = 128
MAX_GROUP_BYTES: Final = 64
MAX_GROUPS: Final = 4

_QUERY: Final = clark(ROSTER, "query")
_ITEM: Final = clark(ROSTER, "item")
_GROUP: Final = clark(ROSTER, "group")


def get(context: Context, stanza: Stanza) -> OffloadedWork:
    """Answer with the roster (section 2.2).

    The answer is empty if the client has the current version (section 2.6.2).
    """
    known = stanza.children[0].attrs.get("ver")

    def act(tx: Transaction, sender: Sender, own: Party) -> bytes:
        found = service.request(tx, sender, own, known)
        if found is None:
            return b""
        version, items = found
        return _query(version, (_encode_item(context, item) for item in items))

    return OffloadedWork(lambda: _work(context, stanza, act))


def change(context: Context, stanza: Stanza) -> Work:
    """Add, update or remove a contact (sections 2.3 to 2.5)."""
    address, contact = _read(stanza)

    def act(tx: Transaction, sender: Sender, own: Party) -> bytes:
        if contact is None:
            subscriptions.remove_contact(context, tx, own, address)
        else:
            service.put(context, tx, sender, own, contact)
        return b""

    return _work(context, stanza, act)


def _work(
    context: Context, stanza: Stanza, act: Callable[[Transaction, Sender, Party], bytes]
) -> Work:
    """Return work that answers with the payload of `act`, or with an error if `act` refuses."""

    def work(tx: Transaction, sender: Sender) -> bytes:
        try:
            kind = addresses.classify(context.domain, stanza.attrs.get("to"), sender.bare)
            relation = Relation.OWN if kind is AddressKind.OWN else Relation.OTHER
            payload = act(tx, sender, service.own_roster(tx, sender, relation))
        except (ServiceError, StanzaError) as error:
            return answers.error(context, stanza, sender, error)
        return answers.result(stanza, sender, payload)

    return work


def _read(stanza: Stanza) -> tuple[Jid, Contact | None]:
    """Return the address and the contact of a roster set (sections 2.1.5, 2.3.3 and 2.5.3).

    The contact is `None` if it is to be removed. The attributes `ask`, `approved` and, except for a
    removal, `subscription` are ignored because a client cannot set them.

    Raises:
        StanzaError: `bad-request`, `not-acceptable` or `jid-malformed`.
    """
    items = stanza.children[0].children
    if stanza.children[0].has_other_content():
        raise StanzaError("bad-request", "a roster set contains no text beside its item")
    if len(items) != 1 or items[0].name != _ITEM:
        raise StanzaError("bad-request", "a roster set must have exactly one item")
    attrs = items[0].attrs
    if "jid" not in attrs:
        raise StanzaError("bad-request", "the item has no JID")
    contact = jid.parse(attrs["jid"])
    if contact.resource:
        raise StanzaError("not-acceptable", "a contact must be a bare JID")
    if attrs.get("subscription") == "remove":
        return contact, None
    name = attrs.get("name") or None
    if name is not None and len(name.encode()) > MAX_NAME_BYTES:
        raise StanzaError("not-acceptable", f"a name must have at most {MAX_NAME_BYTES} bytes")
    tree = items[0].tree()
    texts = [tree.text, *(each.tail for each in tree)]
    if any(text and text.strip() for text in texts):
        raise StanzaError("bad-request", "a roster item contains no text beside its groups")
    groups = [group.text or "" for group in tree.findall(_GROUP)]
    _check_groups(groups)
    return contact, Contact(contact.bare, name, tuple(groups))


def _check_groups(groups: list[str]) -> None:
    if len(set(groups)) < len(groups):
        raise StanzaError("bad-request", "a group is given twice")
    if len(groups) > MAX_GROUPS:
        raise StanzaError("not-acceptable", f"a contact must be in at most {MAX_GROUPS} groups")
    if any(not 0 < len(group.encode()) <= MAX_GROUP_BYTES for group in groups):
        text = f"a group's name must have 1 to {MAX_GROUP_BYTES} bytes"
        raise StanzaError("not-acceptable", text)


def _query(version: str, items: Iterable[bytes]) -> bytes:
    return serialize.tag("query", {"ver": version}, b"".join(items), xmlns=ROSTER)


def _encode_item(_context: Context, item: RosterItem) -> bytes:
    """Return the element of a contact (section 2.1.2), or of its removal if it is not listed."""
    if not item.listed:
        return serialize.tag("item", {"jid": item.jid, "subscription": "remove"})
    fields = FIELDS[item.state]
    attrs = {
        "jid": item.jid,
        "name": item.name,
        "subscription": fields.subscription,
        "ask": "subscribe" if fields.ask else None,
        "approved": "true" if fields.approved else None,
    }
    groups = (serialize.tag("group", content=serialize.escape(name)) for name in item.groups)
    return serialize.tag("item", attrs, b"".join(groups))


def _encode_push(context: Context, push: RosterPush) -> bytes:
    query = _query(push.version, [_encode_item(context, push.item)])
    return serialize.iq_set(push.id, push.to, None, query)


def _versioning(_context: Context) -> bytes:
    """Return the stream feature of roster versions (section 2.6.1)."""
    return serialize.tag("ver", xmlns=ROSTER_VERSIONING)


_HANDLERS: Final[dict[str, Handler]] = {"get": get, "set": change}


def register_for_accounts(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    xmpp = hooks.of(XmppHooks)
    for type_, handler in _HANDLERS.items():
        xmpp.add(xmpp.own_account_iqs, (type_, _QUERY), handler)
        xmpp.add(xmpp.account_iqs, (type_, _QUERY), handler)
    xmpp.stream_features.append(_versioning)
    hooks.encode(PROTOCOL, RosterItem, _encode_item)
    hooks.encode(PROTOCOL, RosterPush, _encode_push)
