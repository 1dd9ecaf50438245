"""Register publish-subscribe over XMPP (XEP-0060): its handlers, encoders and features.

A handler decodes a request, calls an operation of the service, and encodes the result.
"""

from __future__ import annotations

from typing import Final

from edge.engine.dispatch.addresses import AddressKind
from edge.engine.dispatch.hooks import Context, Hooks, OffloadedWork, Work
from edge.features.pubsub.service.errors import AffiliationsRefused, PubsubError
from edge.features.pubsub.service.notifications import Notification
from edge.features.pubsub.xmpp import (
    affiliations,
    discovery,
    errors,
    items,
    nodes,
    notifications,
    reader,
    subscriptions,
)
from edge.routing.xmpp import Handler, XmppHooks
from edge.xmpp import CONTENT_TYPE, PROTOCOL, containers, pubsub, rsm
from edge.xmpp.namespaces import DISCO_INFO, DISCO_ITEMS, PUBSUB, PUBSUB_OWNER, QOS_ALL, RSM, clark
from edge.xmpp.stanza import Child, Stanza

_FEATURES: Final = (
    "access-open",
    "config-node",
    "config-node-max",
    "create-and-configure",
    "create-nodes",
    "delete-items",
    "delete-nodes",
    "instant-nodes",
    "item-ids",
    "manage-subscriptions",
    "member-affiliation",
    "meta-data",
    "modify-affiliations",
    "multi-items",
    "outcast-affiliation",
    "persistent-items",
    "publish",
    "publish-only-affiliation",
    "publish-options",
    "publisher-affiliation",
    "purge-nodes",
    "retract-items",
    "retrieve-affiliations",
    "retrieve-default",
    "retrieve-default-sub",
    "retrieve-items",
    "retrieve-subscriptions",
    "subscribe",
    "subscription-notifications",
    "subscription-options",
)
"""Supported features of XEP-0060 (section 10), for service discovery."""


_FOLLOWING: Final = {
    clark(PUBSUB, "create"): clark(PUBSUB, "configure"),
    clark(PUBSUB, "subscribe"): clark(PUBSUB, "options"),
    clark(PUBSUB, "publish"): clark(PUBSUB, "publish-options"),
    clark(PUBSUB, "items"): rsm.SET,
}
"""The element that may follow each element of a request."""


def _dispatch(context: Context, stanza: Stanza) -> Work | OffloadedWork | bytes:
    request = stanza.children[0]
    elements = request.children
    if not elements:
        raise pubsub.refusal("bad-request", text="the <pubsub/> of the request is empty")
    name = elements[0].name
    handler = context.hooks.of(XmppHooks).pubsub_requests.get((stanza.attrs["type"], name))
    if handler is None:
        raise pubsub.refusal("feature-not-implemented", "unsupported")
    if elements[0].parsed is None:  # else it is the only content
        _check_following(request, name)
    return handler(context, stanza)


def _check_following(request: Child, name: str) -> None:
    """Refuse a request with content that its handler would ignore."""
    following = [child.name for child in request.children[1:]]
    if following and following != [_FOLLOWING.get(name)]:
        text = f"{following[-1]} cannot follow {name} in a request"
        raise pubsub.refusal("bad-request", text=text)
    if request.has_other_content():
        raise pubsub.refusal("bad-request", text="the request has text beside its elements")


def _empty(handler: Handler) -> Handler:
    """Return `handler` with a check that refuses a request whose element has content."""

    def handle(context: Context, stanza: Stanza) -> Work | OffloadedWork | bytes:
        element = stanza.children[0].children[0]
        if element.has_other_content():
            raise pubsub.refusal("bad-request", text=f"{element.name} must be empty")
        return handler(context, stanza)

    return handle


def register_for_accounts(hooks: Hooks) -> None:
    """Register the handlers, encoders and features of publish-subscribe with the engine."""
    hooks.add(hooks.exports, CONTENT_TYPE, containers.read)
    xmpp = hooks.of(XmppHooks)
    for type_ in ("get", "set"):
        for namespace in (PUBSUB, PUBSUB_OWNER):
            xmpp.add(xmpp.pubsub_iqs, (type_, clark(namespace, "pubsub")), _dispatch)
    xmpp.add(xmpp.pubsub_iqs, ("get", clark(DISCO_INFO, "query")), discovery.info)
    xmpp.add(xmpp.pubsub_iqs, ("get", clark(DISCO_ITEMS, "query")), discovery.list_)
    for type_, namespace, element, handler in (
        ("set", PUBSUB, "create", _empty(nodes.create)),
        ("get", PUBSUB_OWNER, "configure", _empty(nodes.get_configuration)),
        ("set", PUBSUB_OWNER, "configure", nodes.configure),
        ("get", PUBSUB_OWNER, "default", _empty(nodes.get_default)),
        ("set", PUBSUB_OWNER, "delete", nodes.delete),
        ("set", PUBSUB_OWNER, "purge", _empty(nodes.purge)),
        ("get", PUBSUB, "affiliations", _empty(affiliations.get_own)),
        ("get", PUBSUB_OWNER, "affiliations", _empty(affiliations.get_of_node)),
        ("set", PUBSUB_OWNER, "affiliations", affiliations.set_),
        ("set", PUBSUB, "subscribe", _empty(subscriptions.subscribe)),
        ("set", PUBSUB, "unsubscribe", _empty(subscriptions.unsubscribe)),
        ("get", PUBSUB, "subscriptions", _empty(subscriptions.list_own)),
        ("get", PUBSUB, "options", _empty(subscriptions.get_options)),
        ("set", PUBSUB, "options", subscriptions.set_options),
        ("get", PUBSUB, "default", _empty(subscriptions.get_default_options)),
        ("get", PUBSUB_OWNER, "subscriptions", _empty(subscriptions.list_of_node)),
        ("set", PUBSUB_OWNER, "subscriptions", subscriptions.set_of_node),
        ("set", PUBSUB, "publish", items.publish),
        ("get", PUBSUB, "items", items.retrieve),
        ("set", PUBSUB, "retract", items.retract),
        ("get", PUBSUB, "retract", items.retract),
    ):
        xmpp.add(xmpp.pubsub_requests, (type_, clark(namespace, element)), handler)
    hooks.add(hooks.readers, (CONTENT_TYPE, AddressKind.NODE), reader.read_message)
    hooks.encode(PROTOCOL, Notification, notifications.encode)
    hooks.error_mapping(PROTOCOL, PubsubError, errors.stanza_error)
    hooks.error_mapping(PROTOCOL, AffiliationsRefused, errors.affiliations_refused)
    xmpp.advertise_pubsub(PUBSUB, DISCO_INFO, DISCO_ITEMS, RSM, *QOS_ALL)
    xmpp.advertise_pubsub(*(f"{PUBSUB}#{feature}" for feature in _FEATURES))
