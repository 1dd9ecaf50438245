"""Items by iq: retrieving them (XEP-0060, section 6.5) and deleting one (section 7.2).

An answer has at most a page of items, by number and by bytes; what it leaves out is told as a part
of a result set (XEP-0059), and asked for so. Items of queues are worked on, not looked at: deleting
them is `handlers.queues`'.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.hooks import Context, Hooks, OffloadedWork, Work
from edge.features.pubsub import notifying, rights
from edge.features.pubsub.notifying import Kind
from edge.features.pubsub.publish import read_id
from edge.features.pubsub.requests import answering
from edge.features.pubsub.rules import affiliation
from edge.features.pubsub.store import items
from edge.features.pubsub.store.items import Item
from edge.features.pubsub.store.nodes import Node
from edge.features.queues.service import operations
from edge.xmpp import pubsub, rsm, serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import PUBSUB, RSM, clark
from edge.xmpp.rsm import Page, Request
from edge.xmpp.stanza import Child, Stanza
from edge.xmpp.subelements import parse_element

HALF: Final = 2
"""An answer takes at most one part in so many of what a session may leave unacknowledged."""

_ITEM: Final = clark(PUBSUB, "item")
_FLAGS: Final = {"1": True, "true": True, "0": False, "false": False}


class Asked(NamedTuple):
    """Which items somebody asks for: those of some ids, or a page, or the newest."""

    ids: Sequence[str]
    page: Request | None
    newest: int


def retrieve(context: Context, stanza: Stanza) -> OffloadedWork:
    """Tell items of a node (XEP-0060, section 6.5); raises `StanzaError`."""
    element = stanza.children[0].children[0]
    asked = _read(stanza.children[0])

    def act(tx: Transaction, sender: Sender) -> bytes:
        node = rights.node(context, tx, element.attrs.get("node"))
        rights.check_retrieve(context, tx, node, sender)
        if node.config.queueing:
            raise _unsupported("retrieve-items")
        if not node.config.persist_items:
            raise _unsupported("persistent-items")
        found, page = _found(context, tx, node, asked)
        content = b"".join(_written(item) for item in found)
        told = rsm.write(page) if asked.page is not None or not page.whole else b""
        return pubsub.payload(serialize.tag("items", {"node": node.name}, content) + told)

    return OffloadedWork(lambda: answering(context, stanza, act))


def _read(request: Child) -> Asked:
    element = request.children[0]
    ids = [read_id(item) for item in _items_in(element)]
    if len(ids) > rsm.PAGE or "" in ids:
        raise pubsub.refusal("bad-request", text=f"1 to {rsm.PAGE} ItemIDs are asked for")
    sets = any(child.name == clark(RSM, "set") for child in request.children)
    newest = element.attrs.get("max_items", str(rsm.PAGE))
    if not (newest.isascii() and newest.isdigit() and len(newest) < 10):
        raise pubsub.refusal("bad-request", text="max_items is a number")
    return Asked(ids, rsm.read(request.tree()) if sets else None, min(int(newest), rsm.PAGE))


def _items_in(element: Child) -> list[Child]:
    return [child for child in parse_element(element.raw).children if child.name == _ITEM]


def _unsupported(feature: str) -> StanzaError:
    attrs = {"feature": feature}
    return pubsub.refusal("feature-not-implemented", "unsupported", attrs=attrs)


def _found(context: Context, tx: Transaction, node: Node, asked: Asked) -> tuple[list[Item], Page]:
    """Return the items that are asked for, as many as an answer takes."""
    most = context.limits.unacknowledged_bytes // HALF
    if asked.ids:
        return _of_ids(tx, node, asked.ids, most)
    return _paged(tx, node, asked.page or rsm.Request(asked.newest, before=""), most)


def _of_ids(tx: Transaction, node: Node, ids: Sequence[str], most: int) -> tuple[list[Item], Page]:
    found: list[Item] = []
    asked = list(dict.fromkeys(ids))
    for id in asked:
        item = items.get(tx, node.id, id)
        if item is None:
            continue
        most -= item.size
        if found and most < 0:
            break
        found.append(item)
    if not found:
        raise _nothing()
    return found, rsm.Page([item.item for item in found], 0, len(found))


def _paged(tx: Transaction, node: Node, asked: Request, most: int) -> tuple[list[Item], Page]:
    found: list[Item]
    if asked.before is not None:
        before = _place(tx, node, asked.before) if asked.before else items.LAST_POSITION
        found = items.page(tx, node.id, asked.max, before=before, max_bytes=most)
    else:
        after = 0 if asked.after is None else _place(tx, node, asked.after)
        skip = asked.start or 0
        found = items.page(tx, node.id, asked.max, after=after, skip=skip, max_bytes=most)
    start = items.count_before(tx, node.id, found[0].row) if found else 0
    return found, rsm.Page([item.item for item in found], start, node.items)


def _place(tx: Transaction, node: Node, id: str) -> int:
    place = items.position(tx, node.id, id)
    if place is None:
        raise _nothing()
    return place


def _nothing() -> StanzaError:
    return pubsub.refusal("item-not-found", text="there is no such item")


def _written(item: Item) -> bytes:
    return serialize.tag("item", {"id": item.item}, item.body)


def retract(context: Context, stanza: Stanza) -> Work:
    """Delete an item, and tell who is subscribed (XEP-0060, section 7.2); raises `StanzaError`."""
    element = stanza.children[0].children[0]
    name, by_set = element.attrs.get("node"), stanza.attrs["type"] == "set"
    if not name:
        raise pubsub.refusal("bad-request", "nodeid-required")
    notify = _FLAGS.get(element.attrs.get("notify", ""))
    found = _items_in(element)
    if len(found) > 1:
        raise pubsub.refusal("not-acceptable", "max-items-exceeded", "one item is deleted")
    id = read_id(found[0]) if found else ""
    if not id:
        raise pubsub.refusal("bad-request", "item-required")

    def act(tx: Transaction, sender: Sender) -> bytes:
        node = rights.node(context, tx, name)
        if node.config.queueing:
            operations.delete_item(context, tx, sender, node, id)
            return b""
        if not by_set:
            raise pubsub.refusal("bad-request", text="items are deleted by an iq of type set")
        _retract(context, tx, sender, node, id, notify)
        return b""

    return answering(context, stanza, act)


def _retract(
    context: Context, tx: Transaction, sender: Sender, node: Node, id: str, notify: bool | None
) -> None:
    """Delete an item; `notify` tells whether to tell of it, `None` to do as the node does."""
    found = items.get(tx, node.id, id)
    own = found is None or found.publisher.partition("/")[0] == sender.bare
    role = rights.affiliation(tx, node, sender.bare)
    if not affiliation.may_delete_item(role, own=own):
        raise pubsub.refusal("forbidden")
    if not node.config.persist_items:
        raise _unsupported("persistent-items")
    if found is None:
        raise _nothing()
    items.remove(tx, node.id, id)
    if notify is not False:
        told = notifying.retracted(node.name, id)
        notifying.announce(context, tx, node, told, Kind.RETRACT, always=notify is True)


def expire(context: Context, tx: Transaction) -> None:
    """Forget items whose time is over (`pubsub#item_expire`)."""
    items.expire(tx)
    due = items.next_expiry(tx)
    if due is not None:
        tx.wake_at(due)


_RETRACT: Final = clark(PUBSUB, "retract")

NEEDS_ACCOUNTS: Final = True


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.pubsub_request("get", clark(PUBSUB, "items"), retrieve)
    hooks.pubsub_request("set", _RETRACT, retract)
    hooks.pubsub_request("get", _RETRACT, retract)
    hooks.advertise_pubsub(
        f"{PUBSUB}#retrieve-items",
        f"{PUBSUB}#persistent-items",
        f"{PUBSUB}#multi-items",
        f"{PUBSUB}#delete-items",
        f"{PUBSUB}#retract-items",
        RSM,
    )
    hooks.on_timer(expire)
