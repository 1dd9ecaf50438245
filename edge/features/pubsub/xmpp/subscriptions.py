"""Handle requests about subscriptions (XEP-0060, sections 5.6, 6.1 to 6.4 and 8.8)."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final
from xml.etree.ElementTree import Element

from edge import jid
from edge.engine.dispatch.hooks import Context, Work
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction
from edge.features.pubsub.rules.reasons import Reason
from edge.features.pubsub.rules.subscription import (
    SubscriptionKind,
    SubscriptionOptions,
    default_options,
)
from edge.features.pubsub.service import subscriptions as service
from edge.features.pubsub.service.errors import PubsubError
from edge.features.pubsub.service.queries import Subscription
from edge.features.pubsub.service.subscriptions import SubscriptionChange
from edge.features.pubsub.xmpp import errors, forms
from edge.routing.xmpp import answers
from edge.xmpp import pubsub, serialize
from edge.xmpp.namespaces import PUBSUB_OWNER, clark
from edge.xmpp.stanza import Child, Stanza

_SUBID_BYTES: Final = 12
_SUBSCRIPTION: Final = clark(PUBSUB_OWNER, "subscription")


# Subscribe and unsubscribe


def subscribe(context: Context, stanza: Stanza) -> Work:
    """Subscribe a JID (section 6.1), with options if the request has them (section 6.3.7)."""
    element, *following = stanza.children[0].children
    target = service.parse_target(context, element.attrs.get("node", ""))
    values = _read_following_options(element, following)
    subid = _new_subid()

    def act(tx: Transaction, sender: Sender) -> bytes:
        subscriber = _read_new_subscriber(element)
        try:
            found = service.subscribe(context, tx, sender, target, subscriber, values or {}, subid)
        except PubsubError as error:
            if error.reason is Reason.CONFIGURATION_REQUIRED:
                form = _required_options(context, element)
                raise errors.stanza_error(error, instead=form) from None
            raise
        content = subscription_element(found, target.text)
        if values is not None:
            form = forms.subscription_form("result", found.kind, found.options)
            content += serialize.tag("options", content=form)
        return pubsub.payload(content)

    return answers.service_work(context, stanza, act)


def _read_following_options(
    element: Child, following: Sequence[Child]
) -> dict[str, list[str]] | None:
    """Return the options that follow a `<subscribe/>`, or `None` if there are none.

    The attributes `node` and `jid` of `<options/>`, which XEP-0254 requires and XEP-0060 forbids,
    are accepted if they are equal to those of `<subscribe/>`.

    Raises:
        StanzaError: an attribute differs, or the options are malformed.
    """
    if not following:
        return None
    (options,) = following
    for name, value in options.attrs.items():
        if value != element.attrs.get(name):
            text = f"the {name} in <options/> differs from that in <subscribe/>"
            raise pubsub.refusal("bad-request", text=text)
    return forms.read_subscription_options(options.tree())


def _read_new_subscriber(element: Child) -> str:
    try:
        return jid.parse(element.attrs.get("jid", "")).full
    except jid.JidError:
        return ""


def _required_options(context: Context, element: Child) -> bytes:
    """Return the contents of the error for a subscription without required options (XEP-0254): the
    request, completed by a form with the options that a queue node requires."""
    attrs = {name: element.attrs.get(name) for name in ("jid", "node")}
    kind = SubscriptionKind.QUEUE
    form = forms.subscription_form("form", kind, _default_options(context, kind))
    return pubsub.payload(element.raw + serialize.tag("options", attrs, form))


def _default_options(context: Context, kind: SubscriptionKind) -> SubscriptionOptions:
    return default_options(kind, context.limits.queue_requests)


def _new_subid() -> str:
    return secrets.token_hex(_SUBID_BYTES)


def unsubscribe(context: Context, stanza: Stanza) -> Work:
    """End a subscription for its subscriber (section 6.2)."""
    element = stanza.children[0].children[0]
    target = service.parse_target(context, element.attrs.get("node", ""))

    def act(tx: Transaction, sender: Sender) -> None:
        subscriber, subid = _read_subscriber(element), element.attrs.get("subid")
        service.unsubscribe(context, tx, sender, target, subscriber, subid)

    return answers.service_work(context, stanza, act)


def _read_subscriber(element: Child) -> str:
    text = element.attrs.get("jid", "")
    if not text:
        raise pubsub.refusal("bad-request", "jid-required", "the request must name a JID")
    return jid.parse(text).full


def subscription_element(subscription: Subscription, node: str | None) -> bytes:
    """Encode a subscription; `node` is the name of its target, `None` to leave it out."""
    attrs = {
        "node": node,
        "jid": subscription.jid,
        "subid": subscription.subid,
        "subscription": "subscribed",
    }
    return serialize.tag("subscription", attrs)


# Options


def get_options(context: Context, stanza: Stanza) -> Work:
    """Answer with the options of a subscription (section 6.3.2)."""
    element = stanza.children[0].children[0]
    target = service.parse_target(context, element.attrs.get("node", ""))

    def act(tx: Transaction, sender: Sender) -> bytes:
        subscriber, subid = _read_subscriber(element), element.attrs.get("subid")
        found = service.get_own(tx, sender, target, subscriber, subid)
        form = forms.subscription_form("form", found.kind, found.options)
        attrs = {"node": target.text, "jid": found.jid, "subid": found.subid}
        return pubsub.payload(serialize.tag("options", attrs, form))

    return answers.service_work(context, stanza, act)


def set_options(context: Context, stanza: Stanza) -> Work:
    """Change the options of a subscription (section 6.3.5)."""
    element = stanza.children[0].children[0]
    target = service.parse_target(context, element.attrs.get("node", ""))
    values = forms.read_subscription_options(element.tree())

    def act(tx: Transaction, sender: Sender) -> None:
        subscriber, subid = _read_subscriber(element), element.attrs.get("subid")
        service.set_options(context, tx, sender, target, subscriber, subid, values)

    return answers.service_work(context, stanza, act)


def get_default_options(context: Context, stanza: Stanza) -> Work:
    """Answer with the default options of subscriptions to the requested target (section 6.4). A
    request without a target gets those for a filter or for a node without a queue."""
    node = stanza.children[0].children[0].attrs.get("node") or None
    target = None if node is None else service.parse_target(context, node)

    def act(tx: Transaction, _sender: Sender) -> bytes:
        kind = SubscriptionKind.PLAIN if target is None else service.kind_of_target(tx, target)
        form = forms.subscription_form("result", kind, _default_options(context, kind))
        return pubsub.payload(serialize.tag("default", {"node": node}, form))

    return answers.service_work(context, stanza, act)


# Lists, and changes by owners


def list_own(context: Context, stanza: Stanza) -> Work:
    """Answer with the sender's subscriptions: all, or those to one target (section 5.6)."""
    node = stanza.children[0].children[0].attrs.get("node") or None
    target = None if node is None else service.parse_target(context, node)

    def act(tx: Transaction, sender: Sender) -> bytes:
        found = service.list_own(tx, sender, target)
        content = b"".join(subscription_element(one, name) for one, name in found)
        return pubsub.payload(serialize.tag("subscriptions", {"node": node}, content))

    return answers.service_work(context, stanza, act)


def list_of_node(context: Context, stanza: Stanza) -> Work:
    """Answer with the subscriptions to a node, if the sender is an owner (section 8.8.1)."""
    element = stanza.children[0].children[0]

    def act(tx: Transaction, sender: Sender) -> bytes:
        node, found = service.list_of_node(tx, sender, element.attrs.get("node"))
        content = b"".join(subscription_element(one, None) for one in found)
        subscriptions = serialize.tag("subscriptions", {"node": node.name}, content)
        return pubsub.payload(subscriptions, owner=True)

    return answers.service_work(context, stanza, act)


def set_of_node(context: Context, stanza: Stanza) -> Work:
    """Begin and end others' subscriptions to a node, as its owner requests (section 8.8.2)."""
    element = stanza.children[0].children[0]
    changes = [_read_change(child) for child in element.tree()]
    if not changes:
        raise pubsub.refusal("bad-request", text="at least one <subscription/> is expected")

    def act(tx: Transaction, sender: Sender) -> None:
        service.set_subscriptions(context, tx, sender, element.attrs.get("node"), changes)

    return answers.service_work(context, stanza, act)


def _read_change(element: Element) -> SubscriptionChange:
    if element.tag != _SUBSCRIPTION:
        raise pubsub.refusal("bad-request", text="only <subscription/> elements are expected")
    address, state = jid.parse(element.get("jid", "")), element.get("subscription", "")
    if state not in ("none", "subscribed"):
        text = "the subscription must be `none` or `subscribed`"
        raise pubsub.refusal("not-acceptable", text=text)
    subscribed, subid = state == "subscribed", element.get("subid")
    return SubscriptionChange(address, subscribed, subid, _new_subid())
