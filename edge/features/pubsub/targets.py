"""What a request about a subscription names: a node, a filter or a share, and a JID.

Whether there is such a node or subscription, and what is done with it, is `subscribing`'s. Source:
XEP-0060, sections 6.1 to 6.3; PROTOCOL decisions on shared subscriptions
(docs/reference/protocol.md).
"""

from __future__ import annotations

from typing import NamedTuple

from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.hooks import Context
from edge.features.pubsub import rights
from edge.features.pubsub.rules import topic
from edge.features.pubsub.rules.topic import Filter, Share
from edge.features.pubsub.store import nodes, subscriptions
from edge.features.pubsub.store.subscriptions import Subscription
from edge.xmpp import jid, pubsub, serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.jid import Jid
from edge.xmpp.stanza import Child


class Target(NamedTuple):
    """What a subscription is to: a share, a filter, or the node of a name; `asked` is how that was
    written."""

    asked: str
    share: Share | None = None
    filter: Filter | None = None


def read(context: Context, element: Child) -> Target:
    """Return what the `node` of a request names.

    Raises:
        StanzaError: it names nothing (`nodeid-required`), a filter or share that is none
            (`bad-request`), or a share where there are none (`feature-not-implemented`).
    """
    asked = element.attrs.get("node", "")
    if not asked:
        raise pubsub.refusal("bad-request", "nodeid-required")
    if topic.is_share(asked) and not context.pubsub.shares:
        raise pubsub.refusal("feature-not-implemented", text="there are no shared subscriptions")
    try:
        share = topic.parse_share(asked)
        if share is not None:
            _check_size(context, share.name)
            _check_size(context, share.filter.text)
            return Target(asked, share, share.filter)
        if not topic.is_filter(asked):
            return Target(asked)
        _check_size(context, asked)
        return Target(asked, None, topic.parse_filter(asked))
    except topic.InvalidFilter as error:
        raise pubsub.refusal("bad-request", text=str(error)) from None


def _check_size(context: Context, text: str) -> None:
    most = context.limits.node_bytes
    if len(text.encode()) > most:
        raise topic.InvalidFilter(f"a filter, and the name of a share, has {most} bytes at most")


def subscriber(element: Child, sender: Sender) -> Jid:
    """Return the JID that a request is about, which is the sender's own, bare or full.

    Raises:
        StanzaError: none is given (`jid-required`), or it is somebody else's (`forbidden`).
    """
    given = element.attrs.get("jid", "")
    if not given:
        raise pubsub.refusal("bad-request", "jid-required")
    found = jid.parse(given)
    if found.bare != sender.bare:
        raise pubsub.refusal("forbidden")
    return found


def new_subscriber(element: Child, sender: Sender) -> str:
    """Return the JID that is to be subscribed: the sender's bare JID, or its own full one.

    Raises:
        StanzaError: it is another (`invalid-jid`), also another session's of the same account: that
            one may subscribe itself.
    """
    try:
        found = jid.parse(element.attrs.get("jid", "")).full
    except jid.JidError:
        found = ""
    if found not in (sender.bare, sender.full):
        raise pubsub.refusal("bad-request", "invalid-jid")
    return found


def find(context: Context, tx: Transaction, target: Target, jid: str) -> Subscription | None:
    """Return the subscription of a JID to a target, if there is one; raises `StanzaError` if there
    is no such node."""
    if target.filter is None:
        return subscriptions.find(tx, jid, node=rights.node(context, tx, target.asked).id)
    share = None if target.share is None else target.share.name
    return subscriptions.find(tx, jid, filter=target.filter.text, share=share)


def subscribed(
    context: Context, tx: Transaction, target: Target, element: Child, sender: Sender
) -> Subscription:
    """Return the subscription that a request is about.

    Raises:
        StanzaError: there is none (`not-subscribed`), it has another SubID (`invalid-subid`), or as
            `subscriber` and `find` do.
    """
    jid = subscriber(element, sender)
    found = find(context, tx, target, jid.full)
    if found is None:
        raise not_subscribed()
    check_subid(element, found)
    return found


def not_subscribed() -> StanzaError:
    """Make the error for who is not subscribed (XEP-0060, section 6.2.3.2)."""
    return pubsub.refusal("unexpected-request", "not-subscribed", type="cancel")


def check_subid(element: Child, subscription: Subscription) -> None:
    """Raise `StanzaError` if a request names another SubID than the subscription's.

    One that names none means the only one that there is.
    """
    if element.attrs.get("subid") not in (None, subscription.subid):
        raise pubsub.refusal("not-acceptable", "invalid-subid")


def named(tx: Transaction, subscription: Subscription) -> str:
    """Return what stands for the node of a subscription: its name, the filter, or the share."""
    if subscription.node is not None:
        node = nodes.by_id(tx, subscription.node)
        return "" if node is None else node.name
    filter = subscription.filter or ""
    if subscription.share is None:
        return filter
    return topic.Share(subscription.share, topic.parse_filter(filter)).text


def told(
    subscription: Subscription, node: str | None, state: str = "subscribed", content: bytes = b""
) -> bytes:
    """Write a subscription; `node` is what it is to, and is left out where that is known."""
    attrs = {
        "node": node,
        "jid": subscription.jid,
        "subid": subscription.subid,
        "subscription": state,
    }
    return serialize.tag("subscription", attrs, content)
