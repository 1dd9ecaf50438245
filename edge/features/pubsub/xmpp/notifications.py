"""Encode notifications as messages (XEP-0060, sections 7.1.2, 7.2 and 8.2 to 8.5)."""

from __future__ import annotations

from functools import lru_cache

from edge.engine.dispatch.addresses import pubsub_service
from edge.engine.dispatch.hooks import Context
from edge.features.pubsub.service.notifications import (
    ItemPublished,
    ItemRetracted,
    NodeConfigured,
    NodeDeleted,
    NodeEvent,
    NodePurged,
    Notification,
)
from edge.features.pubsub.xmpp.forms import node_config_form
from edge.xmpp import pubsub, serialize


def encode(context: Context, notification: Notification) -> bytes:
    """Encode a notification as a message; without `from` and `to` if it has no recipient."""
    event, to, type_, subid, published, _identifiers = notification
    domain = context.domain
    if to is None:
        return serialize.message(type_, None, None, _content(event, subid, published, domain))
    before, after = _around_address(event, type_, subid, published, domain)
    return before + _address(to) + after


@lru_cache(maxsize=1024)
def _address(to: str) -> bytes:
    return serialize.attribute("to", to)


@lru_cache(maxsize=2)
def _around_address(
    event: NodeEvent, type_: str | None, subid: str | None, published: int | None, domain: str
) -> tuple[bytes, bytes]:
    """Return the encoded notification before and after the attribute `to`. Both parts are cached,
    because one event usually notifies several subscribers."""
    before = b"<message" + serialize.attribute("type", type_)
    content = _content(event, subid, published, domain)
    whole = serialize.message(type_, pubsub_service(domain), None, content)
    return before, whole[len(before) :]


def _content(event: NodeEvent, subid: str | None, published: int | None, domain: str) -> bytes:
    content = _event_element(event)
    if subid is not None:
        content += pubsub.subid_header(subid)
    if published is not None:
        content += serialize.delay(domain, published)
    return content


@lru_cache(maxsize=1)
def _event_element(event: NodeEvent) -> bytes:
    if isinstance(event, ItemPublished) and event.item_id is not None:
        item = pubsub.item(event.item_id, event.payload, event.publisher, event.content_type)
        return pubsub.items_event(event.node, item)
    return pubsub.event(_event_content(event))


def _event_content(event: NodeEvent) -> bytes:
    if isinstance(event, ItemPublished):
        return serialize.tag("items", {"node": event.node})
    if isinstance(event, ItemRetracted):
        item = serialize.tag("retract", {"id": event.item_id})
        return serialize.tag("items", {"node": event.node}, item)
    if isinstance(event, NodePurged):
        return serialize.tag("purge", {"node": event.node})
    if isinstance(event, NodeDeleted):
        redirect = serialize.tag("redirect", {"uri": event.redirect}) if event.redirect else b""
        return serialize.tag("delete", {"node": event.node}, redirect)
    if isinstance(event, NodeConfigured):
        form = b"" if event.config is None else node_config_form(event.config, "result")
        return serialize.tag("configuration", {"node": event.node}, form)
    attrs = {
        "node": event.node,
        "jid": event.jid,
        "subid": event.subid,
        "subscription": "subscribed" if event.subscribed else "none",
    }
    return serialize.tag("subscription", attrs)
