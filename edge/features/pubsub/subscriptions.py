"""What subscribers and owners ask and set of subscriptions that there are (XEP-0060, sections 5.6,
6.3, 6.4 and 8.8).

How subscriptions begin and end is `subscribing`'s.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.hooks import Context, Hooks, Work
from edge.features.accounts.store import accounts
from edge.features.pubsub import notifying, options, rights, subscribing, targets
from edge.features.pubsub.options import Of, Settings
from edge.features.pubsub.requests import answering
from edge.features.pubsub.store import subscriptions
from edge.features.pubsub.store.nodes import Node
from edge.features.pubsub.store.subscriptions import Subscription
from edge.features.pubsub.subscribing import Why
from edge.features.pubsub.targets import Target
from edge.features.queues.rules.assignment import Policy
from edge.features.queues.store import queues
from edge.xmpp import jid, pubsub, serialize
from edge.xmpp.jid import Jid
from edge.xmpp.namespaces import PUBSUB, PUBSUB_OWNER, clark
from edge.xmpp.stanza import Stanza

_SUBSCRIPTION: Final = clark(PUBSUB_OWNER, "subscription")
_NONE: Final = "none"
_SUBSCRIBED: Final = "subscribed"


def listed(context: Context, stanza: Stanza) -> Work:
    """Tell a subscriber of its subscriptions: all, or those to what it names (section 5.6); raises
    `StanzaError`."""
    element = stanza.children[0].children[0]
    asked = element.attrs.get("node") or None
    target = None if asked is None else targets.read(context, element)

    def act(tx: Transaction, sender: Sender) -> bytes:
        found = subscriptions.of_account(tx, sender.account)
        if target is not None:
            found = [one for one in found if _is_to(context, tx, target, one)]
        content = b"".join(targets.told(one, targets.named(tx, one)) for one in found)
        return pubsub.payload(serialize.tag("subscriptions", {"node": asked}, content))

    return answering(context, stanza, act)


def _is_to(context: Context, tx: Transaction, target: Target, subscription: Subscription) -> bool:
    if target.filter is None:
        return subscription.node == rights.node(context, tx, target.asked).id
    share = None if target.share is None else target.share.name
    return (subscription.filter, subscription.share) == (target.filter.text, share)


# Options: section 6.3


def options_shown(context: Context, stanza: Stanza) -> Work:
    """Tell the options of a subscription (section 6.3.2); raises `StanzaError`."""
    element = stanza.children[0].children[0]
    target = targets.read(context, element)

    def act(tx: Transaction, sender: Sender) -> bytes:
        found = targets.subscribed(context, tx, target, element, sender)
        form = options.form("form", options.of(found), _settings(tx, found))
        attrs = {"node": target.asked, "jid": found.jid, "subid": found.subid}
        return pubsub.payload(serialize.tag("options", attrs, form))

    return answering(context, stanza, act)


def options_set(context: Context, stanza: Stanza) -> Work:
    """Set the options of a subscription (section 6.3.5); raises `StanzaError`."""
    element = stanza.children[0].children[0]
    target, given = targets.read(context, element), options.values(element.tree())

    def act(tx: Transaction, sender: Sender) -> bytes:
        found = targets.subscribed(context, tx, target, element, sender)
        old = _settings(tx, found)
        new = options.changed(options.of(found), old, given, context.limits)
        if new.policy is not old.policy and old.policy is not None:
            raise subscribing.other_policy(old.policy)
        if new != old:
            subscribing.change(context, tx, found, new)
        return b""

    return answering(context, stanza, act)


def default(context: Context, stanza: Stanza) -> Work:
    """Tell the options of who sets none (section 6.4); raises `StanzaError`."""
    element = stanza.children[0].children[0]
    asked = element.attrs.get("node") or None
    target = None if asked is None else targets.read(context, element)

    def act(tx: Transaction, _sender: Sender) -> bytes:
        of = Of.PLAIN if target is None else _of(context, tx, target)
        form = options.form("result", of, options.defaults(of, context.limits))
        return pubsub.payload(serialize.tag("default", {"node": asked}, form))

    return answering(context, stanza, act)


def _of(context: Context, tx: Transaction, target: Target) -> Of:
    if target.share is not None:
        return Of.SHARE
    if target.filter is not None:
        return Of.PLAIN
    return Of.QUEUE if rights.node(context, tx, target.asked).config.queueing else Of.PLAIN


def _settings(tx: Transaction, subscription: Subscription) -> Settings:
    policy = None
    if subscription.queue is not None and subscription.share is not None:
        queue = queues.get(tx, subscription.queue)
        policy = None if queue is None else Policy(queue.policy)
    return options.settings(subscription, policy)


# What an owner does: section 8.8


class _Change(NamedTuple):
    """What an owner wants of the subscription of a JID to a node; `fresh` is the SubID of a new
    one."""

    jid: Jid
    state: str
    subid: str | None
    fresh: str


def owner_shown(context: Context, stanza: Stanza) -> Work:
    """Tell an owner who is subscribed to a node (section 8.8.1)."""
    element = stanza.children[0].children[0]

    def act(tx: Transaction, sender: Sender) -> bytes:
        node = rights.node(context, tx, element.attrs.get("node"))
        rights.check_owner(context, tx, node, sender)
        return _told(node, subscriptions.all_of_node(tx, node.id))

    return answering(context, stanza, act)


def _told(node: Node, found: Iterable[Subscription]) -> bytes:
    content = b"".join(targets.told(one, None) for one in found)
    return pubsub.payload(serialize.tag("subscriptions", {"node": node.name}, content), owner=True)


def owner_set(context: Context, stanza: Stanza) -> Work:
    """Have an owner end subscriptions to a node, and subscribe others (section 8.8.2); raises
    `StanzaError`. All is done, or nothing."""
    element = stanza.children[0].children[0]
    changes = [_change(child) for child in element.tree() if child.tag == _SUBSCRIPTION]
    if not changes:
        raise pubsub.refusal("bad-request", text="no subscription is named")

    def act(tx: Transaction, sender: Sender) -> bytes:
        node = rights.node(context, tx, element.attrs.get("node"))
        rights.check_owner(context, tx, node, sender)
        new = 0
        for change in changes:
            new += _check(context, tx, node, change, new)
        for change in changes:
            _apply(context, tx, node, change)
        return b""

    return answering(context, stanza, act)


def _change(element: Element) -> _Change:
    """Read what is wanted of one subscription; raises `StanzaError`."""
    address, state = jid.parse(element.get("jid", "")), element.get("subscription", "")
    if state not in (_NONE, _SUBSCRIBED):
        raise pubsub.refusal("not-acceptable", text=f"`{_NONE}` or `{_SUBSCRIBED}` it can be")
    fresh = secrets.token_hex(subscribing.SUBID_BYTES)
    return _Change(address, state, element.get("subid"), fresh)


def _check(context: Context, tx: Transaction, node: Node, change: _Change, new: int) -> bool:
    """Raise `StanzaError` if a change cannot be made; tell whether it makes a subscription, beside
    so many `new` ones."""
    found = subscriptions.find(tx, change.jid.full, node=node.id)
    if found is not None:
        if change.subid not in (None, found.subid):
            raise pubsub.refusal("not-acceptable", "invalid-subid")
        return False
    if change.state == _NONE:
        raise targets.not_subscribed()
    name, domain = change.jid.local, change.jid.domain
    if domain != context.domain or not accounts.is_active(tx, name):
        raise pubsub.refusal("not-acceptable", text=f"{change.jid} is nobody here")
    if node.config.queueing:
        raise pubsub.refusal("not-acceptable", text="the members of a queue subscribe themselves")
    if not rights.may_subscribe(context, tx, node, change.jid.bare):
        raise pubsub.refusal("not-acceptable", text=f"{change.jid} may not subscribe")
    subscribing.check_room(context, tx, change.jid.bare, name, beside=new)
    return True


def _apply(context: Context, tx: Transaction, node: Node, change: _Change) -> None:
    found = subscriptions.find(tx, change.jid.full, node=node.id)
    if change.state == _NONE:
        if found is not None:
            subscribing.end(context, tx, found, Why.OWNER)
    elif found is None:
        name = change.jid.local
        found = subscriptions.add(tx, name, change.jid.full, change.fresh, node=node.id)
        told = targets.told(found, node.name)
        notifying.to_one(context, tx, found, told, node=node.name)


NEEDS_ACCOUNTS: Final = True


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.pubsub_request("get", clark(PUBSUB, "subscriptions"), listed)
    hooks.pubsub_request("get", clark(PUBSUB, "options"), options_shown)
    hooks.pubsub_request("set", clark(PUBSUB, "options"), options_set)
    hooks.pubsub_request("get", clark(PUBSUB, "default"), default)
    hooks.pubsub_request("get", clark(PUBSUB_OWNER, "subscriptions"), owner_shown)
    hooks.pubsub_request("set", clark(PUBSUB_OWNER, "subscriptions"), owner_set)
    hooks.advertise_pubsub(
        *(
            f"{PUBSUB}#{name}"
            for name in (
                "retrieve-subscriptions",
                "subscription-options",
                "retrieve-default-sub",
                "manage-subscriptions",
            )
        )
    )
