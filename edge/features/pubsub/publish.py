"""Publishing by iq (XEP-0060, section 7.1): what the request has, and its answer.

The rest is `publishing`'s. What a node takes is decided in `rules.publication`.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from edge.engine import refusals
from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.hooks import Context, Hooks, Work
from edge.features.pubsub import publishing, uplink_topics
from edge.features.pubsub.publishing import NewItem
from edge.features.pubsub.requests import answering
from edge.features.pubsub.rules import publication
from edge.features.pubsub.rules.publication import (
    MAX_ITEM_ID_BYTES,
    Fault,
    InvalidItemOption,
    ItemOptions,
    PublicationShape,
)
from edge.features.pubsub.rules.reasons import Reason
from edge.features.pubsub.uplink_topics import Report
from edge.xmpp import forms, pubsub, serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import PUBSUB, clark, namespace
from edge.xmpp.stanza import Child, Stanza, with_namespace
from edge.xmpp.subelements import parse_element

PUBLISH_OPTIONS: Final = f"{PUBSUB}#publish-options"
"""What the form of a publication's options is for."""

CHANCE_BYTES: Final = 8
"""Bytes of chance in an ItemID that nobody gave: two are never the same in a node."""

UNREADABLE: Final = "unreadable"
"""The rule that refuses an item which is to go to the centre and cannot be read."""

_ITEM: Final = clark(PUBSUB, "item")
_OPTIONS: Final = clark(PUBSUB, "publish-options")


class Asked(NamedTuple):
    """A publication as it was asked for: where to, what it has, and its options; `wanted` is what
    the node has to be like."""

    node: str
    shape: PublicationShape
    item: NewItem
    options: ItemOptions
    wanted: Mapping[str, Sequence[str]]


def publish(context: Context, stanza: Stanza) -> Work:
    """Publish an item, and tell its ItemID; raises `StanzaError`."""
    asked = _read(stanza.children[0])
    contents = uplink_topics.read(context, asked.node, asked.item.body)
    published = asked.item
    if contents.events:
        published = published._replace(report=Report(contents.events))

    def act(tx: Transaction, sender: Sender) -> bytes:
        node = publishing.target(context, tx, sender, asked.node, asked.wanted)
        fault = publication.find_fault(asked.shape, node.config)
        if fault is not None:
            raise refusal(fault)
        if contents.unreadable:
            refusals.log(context, tx, sender, UNREADABLE)
            raise pubsub.refusal("bad-request", text=contents.unreadable)
        publishing.publish(context, tx, sender, node, published, asked.options)
        item = serialize.tag("item", {"id": asked.item.id}) if asked.shape.items else b""
        return pubsub.payload(serialize.tag("publish", {"node": asked.node}, item))

    return answering(context, stanza, act)


_SPECIFIC = {
    Reason.TOO_MANY_ITEMS: "max-items-exceeded",
    Reason.ITEM_REQUIRED: "item-required",
    Reason.ITEM_FORBIDDEN: "item-forbidden",
    Reason.PAYLOAD_REQUIRED: "payload-required",
    Reason.INVALID_PAYLOAD: "invalid-payload",
}


def refusal(fault: Fault) -> StanzaError:
    """Return the error of what is wrong with a publication (section 7.1.3)."""
    specific, text = _SPECIFIC[fault.reason], fault.text
    condition = "not-acceptable" if fault.reason is Reason.TOO_MANY_ITEMS else "bad-request"
    return pubsub.refusal(condition, specific, text)


def read_id(item: Child) -> str:
    """Return the ItemID of an item, empty if it has none; raises `StanzaError` if it is too
    long."""
    id = item.attrs.get("id", "")
    if len(id.encode()) > MAX_ITEM_ID_BYTES:
        raise pubsub.refusal(
            "not-acceptable", text=f"an ItemID has at most {MAX_ITEM_ID_BYTES} bytes"
        )
    return id


def draw_id() -> str:
    """Draw an ItemID by chance."""
    return secrets.token_hex(CHANCE_BYTES)


def _read(request: Child) -> Asked:
    element = request.children[0]
    node = element.attrs.get("node")
    if not node:
        raise pubsub.refusal("bad-request", "nodeid-required")
    found = parse_element(element.raw).children
    if any(child.name != _ITEM for child in found):
        raise pubsub.refusal("bad-request", text="only items are published")
    item = found[0] if found else None
    payloads = item.children if item is not None else []
    of = namespace(payloads[0].name) if payloads else ""
    new = NewItem(
        (read_id(item) if item is not None else "") or draw_id(),
        with_namespace(payloads[0]) if payloads else b"",
    )
    options, wanted = _read_options(request)
    shape = PublicationShape(len(found), len(payloads), of)
    return Asked(node, shape, new, options, wanted)


def _read_options(request: Child) -> tuple[ItemOptions, dict[str, Sequence[str]]]:
    """Read the options of a publication, if it has any (section 7.1.5)."""
    given = [child for child in request.children[1:] if child.name == _OPTIONS]
    if not given:
        return publication.DEFAULT_OPTIONS, {}
    tree = given[0].tree()
    if len(tree) != 1:
        raise pubsub.refusal("bad-request", "invalid-options", "one form is needed")
    try:
        return publication.split_options(forms.read(tree[0], PUBLISH_OPTIONS))
    except InvalidItemOption as error:
        raise pubsub.refusal("bad-request", "invalid-options", str(error)) from None


NEEDS_ACCOUNTS: Final = True


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.pubsub_request("set", clark(PUBSUB, "publish"), publish)
    hooks.advertise_pubsub(f"{PUBSUB}#publish", f"{PUBSUB}#item-ids", PUBLISH_OPTIONS)
