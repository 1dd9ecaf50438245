"""Handle requests to publish, retrieve and delete items (XEP-0060, sections 6.5, 7.1 and 7.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edge.content_types import JSON
from edge.engine.dispatch.hooks import Contents, Context, OffloadedWork, Work, unreadable
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction
from edge.features.pubsub.rules.publication import (
    DEFAULT_OPTIONS,
    MAX_ITEM_ID_BYTES,
    InvalidItemOption,
    ItemOptions,
    PublicationShape,
    split_options,
)
from edge.features.pubsub.service import access, publishing, queueing
from edge.features.pubsub.service import items as service
from edge.features.pubsub.service.items import PageRequest
from edge.features.pubsub.service.publishing import ItemEvents, NewItem, Publication
from edge.features.pubsub.xmpp import forms
from edge.routing.xmpp import answers, event_payloads
from edge.xmpp import namespaces, pubsub, rsm, serialize
from edge.xmpp.errors import FragmentError, UnexpectedText
from edge.xmpp.namespaces import PUBSUB, clark, namespace
from edge.xmpp.stanza import Child, Stanza, parse_fragment, with_namespace
from edge.xmpp.subelements import subelements

BYTES_DIVISOR: Final = 2
"""Divisor of `limits.unacknowledged_bytes`: the quotient is the maximum size of all items in one
answer, in bytes."""

ITEM: Final = clark(PUBSUB, "item")
_JSON: Final = clark(namespaces.JSON, "json")
_PUBLISH_FORM: Final = f"{PUBSUB}#publish-options"
_NOTHING: Final = Contents([])
_BOOLEANS: Final = {"1": True, "true": True, "0": False, "false": False}


# Publish


def publish(context: Context, stanza: Stanza) -> Work:
    """Publish an item, and answer with its ItemID (section 7.1)."""
    request = _read_publication(context, stanza.children[0])

    def act(tx: Transaction, sender: Sender) -> bytes:
        publishing.publish(context, tx, sender, request)
        has_item = request.shape.items > 0
        item = serialize.tag("item", {"id": request.item.id}) if has_item else b""
        return pubsub.publish_result(request.node, item)

    return answers.service_work(context, stanza, act)


def _read_publication(context: Context, request: Child) -> Publication:
    element = request.children[0]
    node = _read_node(element)
    found = _read_items(element)
    item = found[0] if found else None
    payloads = item.children if item is not None else []
    xmlns = namespace(payloads[0].name) if payloads else ""
    id = (read_item_id(item) if item is not None else "") or publishing.new_item_id()
    payload = with_namespace(payloads[0]) if payloads else b""
    options, preconditions = _read_publish_options(request)
    shape = PublicationShape(len(found), len(payloads), xmlns)
    contents = read_payload(context, node, payload)
    new = NewItem(id, payload, ItemEvents(contents.events))
    return Publication(node, shape, new, options, preconditions, contents.unreadable)


def _read_node(element: Child) -> str:
    node = element.attrs.get("node")
    if not node:
        raise pubsub.refusal("bad-request", "nodeid-required", "the request must name a node")
    return node


def read_item_id(item: Child) -> str:
    """Return the ItemID of an item, empty if it has none; raises `StanzaError` if it is too
    long."""
    id = item.attrs.get("id", "")
    if len(id.encode()) > MAX_ITEM_ID_BYTES:
        text = f"an ItemID has at most {MAX_ITEM_ID_BYTES} bytes"
        raise pubsub.refusal("not-acceptable", text=text)
    return id


def _read_publish_options(request: Child) -> tuple[ItemOptions, dict[str, Sequence[str]]]:
    if len(request.children) == 1:
        return DEFAULT_OPTIONS, {}
    tree = request.children[1].tree()
    if len(tree) != 1:
        raise pubsub.refusal("bad-request", "invalid-options", "exactly one form is expected")
    try:
        return split_options(forms.read_node_options(tree[0], _PUBLISH_FORM))
    except InvalidItemOption as error:
        raise pubsub.refusal("bad-request", "invalid-options", str(error)) from None


def read_payload(context: Context, node: str, payload: bytes) -> Contents:
    """Return the events in a payload, or why it cannot be decoded; nothing if the node's items
    are not logged."""
    if not payload or not publishing.is_shipped(context, node):
        return _NOTHING
    try:
        element = parse_fragment(payload)
        if element.tag == _JSON and not len(element) and publishing.has_reading_rule(context, node):
            return publishing.read_events(context, node, (element.text or "").encode(), JSON)
        return event_payloads.decode(context, (element,))
    except FragmentError as error:
        return unreadable(error)


# Retrieve


def retrieve(context: Context, stanza: Stanza) -> OffloadedWork:
    """Answer with items of a node, by ItemID or as a page (section 6.5)."""
    element = stanza.children[0].children[0]
    ids, requested, has_set = _read_items_request(stanza.children[0])
    max_bytes = context.limits.unacknowledged_bytes // BYTES_DIVISOR

    def act(tx: Transaction, sender: Sender) -> bytes:
        name = element.attrs.get("node")
        found = service.retrieve(context, tx, sender, name, ids, requested, max_bytes)
        node, items, start, total = found
        content = b"".join(
            pubsub.item(one.id, one.payload, publisher, one.attributes.content_type)
            for one, publisher in items
        )
        page = rsm.Page([item.id for item, _publisher in items], start, total)
        page_element = rsm.write(page) if has_set or not page.whole else b""
        return pubsub.payload(serialize.tag("items", {"node": node.name}, content) + page_element)

    return OffloadedWork(lambda: answers.service_work(context, stanza, act))


def _read_items_request(request: Child) -> tuple[list[str], PageRequest, bool]:
    """Return the requested ItemIDs, the requested page, and whether the request has a `<set/>`
    (XEP-0059)."""
    element = request.children[0]
    ids = [read_item_id(item) for item in _read_items(element)]
    if len(ids) > rsm.PAGE or "" in ids:
        text = f"at most {rsm.PAGE} items, each with an id, are expected"
        raise pubsub.refusal("bad-request", text=text)
    max_items = element.attrs.get("max_items", str(rsm.PAGE))
    if not (max_items.isascii() and max_items.isdigit() and len(max_items) < 10):
        raise pubsub.refusal("bad-request", text="max_items must be a whole number below 10**9")
    page = rsm.read(request.tree()) if len(request.children) > 1 else None
    if page is None:
        newest = PageRequest(min(int(max_items), rsm.PAGE), before="")
        return ids, newest, False
    return ids, PageRequest(*page), True


def _read_items(element: Child) -> list[Child]:
    """Return the items in an element of a request; raises `StanzaError` for any other content."""
    try:
        found = subelements(element)
    except UnexpectedText as error:
        raise pubsub.refusal("bad-request", "invalid-payload", str(error)) from None
    if any(child.name != ITEM for child in found):
        text = f"only <item/> elements are expected in {element.name}"
        raise pubsub.refusal("bad-request", text=text)
    return found


# Retract


def retract(context: Context, stanza: Stanza) -> Work:
    """Delete an item (XEP-0060, section 7.2; for an item of a queue, XEP-0254)."""
    element = stanza.children[0].children[0]
    name, is_set = _read_node(element), stanza.attrs["type"] == "set"
    notify = _BOOLEANS.get(element.attrs.get("notify", ""))
    found = _read_items(element)
    if len(found) > 1:
        text = "a request can delete one item only"
        raise pubsub.refusal("not-acceptable", "max-items-exceeded", text)
    id = read_item_id(found[0]) if found else ""
    if not id:
        raise pubsub.refusal("bad-request", "item-required", "the request must name an item")

    def act(tx: Transaction, sender: Sender) -> None:
        node = access.get_node(tx, name)
        if node.config.queueing:
            queueing.of(context).delete_item(context, tx, sender, node, id)
            return
        if not is_set:
            raise pubsub.refusal("bad-request", text="deleting an item requires an iq of type set")
        service.retract(context, tx, sender, node, id, notify=notify)

    return answers.service_work(context, stanza, act)
