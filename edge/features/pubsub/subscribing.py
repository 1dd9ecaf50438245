"""Subscriptions begin and end (XEP-0060, sections 6.1 and 6.2).

A JID has one subscription to a node, to a filter, or in a share: who subscribes again is told of
the one that there is, with the options that came with the request. A subscription ends when its
subscriber, an owner, or the loss of a right ends it; a member of a queue node's, and whoever asked
for that, also when its session goes, or the last one of a bare JID. A restart of the gateway ends
none by itself; but what ends with a session does if nobody comes back for it. What a
subscription is to is read by `targets`; what is in queues is `handlers.queues`'.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from edge.engine import event_counters, refusals, sessions
from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.hooks import Context, Hooks, Work
from edge.features.pubsub import matching, notifying, options, rights, sending, targets
from edge.features.pubsub.options import OPTIONS, Of, Settings
from edge.features.pubsub.requests import answering
from edge.features.pubsub.store import subscriptions
from edge.features.pubsub.store.nodes import Node
from edge.features.pubsub.store.subscriptions import Subscription
from edge.features.pubsub.targets import Target
from edge.features.queues.rules.assignment import Policy
from edge.features.queues.rules.transitions import Loss
from edge.features.queues.service import membership
from edge.features.queues.service.dispatch import dispatch
from edge.features.queues.store import queue_items, queues
from edge.features.queues.store.queues import Queue
from edge.xmpp import pubsub, serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import PUBSUB, clark
from edge.xmpp.stanza import Child, Stanza

SUBID_BYTES: Final = 12


class Why(Enum):
    """Why a subscription ends."""

    ASKED = "its subscriber ended it"
    OWNER = "an owner of the node ended it"
    RIGHTS = "its subscriber may not subscribe any more"
    AWAY = "its session is unavailable"
    GONE = "its session is over"
    NOT_BACK = "its session did not come back after a restart"


_LOSSES: Final = {
    Why.AWAY: Loss.UNAVAILABLE,
    Why.GONE: Loss.CONNECTION,
    Why.NOT_BACK: Loss.UNAVAILABLE,  # it may still believe to have items: it is told when it comes
}
_TOLD: Final = (Why.OWNER, Why.RIGHTS)
"""When its subscriber is told of the end."""


class _Request(NamedTuple):
    """A request to subscribe: `given` are the options that came with it, `None` if none did."""

    element: Child
    target: Target
    given: Mapping[str, list[str]] | None
    subid: str


class _Wanted(NamedTuple):
    """What a subscription is to, as rows have it: a node, or a filter; and its queue, which a share
    has from its first member on."""

    of: Of
    node: Node | None = None
    queue: Queue | None = None


def subscribe(context: Context, stanza: Stanza) -> Work:
    """Subscribe somebody (section 6.1), with options (section 6.3.7); raises `StanzaError`."""
    elements = stanza.children[0].children
    request = _Request(
        elements[0],
        targets.read(context, elements[0]),
        _given(elements),
        secrets.token_hex(SUBID_BYTES),
    )
    return answering(context, stanza, lambda tx, sender: _subscribe(context, tx, sender, request))


def _given(elements: list[Child]) -> Mapping[str, list[str]] | None:
    """Return the options that stand behind a request; raises `StanzaError`.

    XEP-0254 repeats in them what is subscribed to, which XEP-0060 forbids: the same is taken.
    """
    if len(elements) == 1:
        return None
    first, second = elements[:2]
    if len(elements) > 2 or second.name != OPTIONS:
        raise pubsub.refusal("bad-request", text="options follow a subscription, and nothing else")
    for name, value in second.attrs.items():
        if value != first.attrs.get(name):
            raise pubsub.refusal("bad-request", text=f"options of another {name}")
    return options.values(second.tree())


def _subscribe(context: Context, tx: Transaction, sender: Sender, request: _Request) -> bytes:
    jid = targets.new_subscriber(request.element, sender)
    wanted = _wanted(context, tx, sender, request.target)
    _check_configured(context, wanted, request)
    found = targets.find(context, tx, request.target, jid)
    old = options.defaults(wanted.of, context.limits) if found is None else options.settings(found)
    new = options.changed(wanted.of, old, request.given or {}, context.limits)
    policy = _policy(wanted, new)
    if found is None:
        check_room(context, tx, sender.bare, sender.account)
        found = _add(tx, sender, jid, request, wanted, new)
        if found.queue is not None:
            membership.join(context, tx, found)
        elif wanted.node is not None:
            notifying.last_item(context, tx, found, wanted.node)
    elif request.given:
        found = change(context, tx, found, new)
    content = targets.told(found, request.target.asked)
    if request.given is not None:
        established = new._replace(policy=policy)
        content += serialize.tag("options", content=options.form("result", wanted.of, established))
    return pubsub.payload(content)


def _wanted(context: Context, tx: Transaction, sender: Sender, target: Target) -> _Wanted:
    """Find what is to be subscribed to; raises `StanzaError` if it is not there for the sender."""
    if target.share is not None:
        share = target.share
        return _Wanted(Of.SHARE, None, queues.of_share(tx, share.name, share.filter.text))
    if target.filter is not None:
        return _Wanted(Of.PLAIN)
    node = rights.node(context, tx, target.asked)
    rights.check_subscribe(context, tx, node, sender)
    if not node.config.queueing:
        return _Wanted(Of.PLAIN, node)
    return _Wanted(Of.QUEUE, node, queues.of_node(tx, node.id))


def _check_configured(context: Context, wanted: _Wanted, request: _Request) -> None:
    """Raise `StanzaError`, with the form, where options are needed and not given (XEP-0254)."""
    if wanted.of is not Of.QUEUE or "pubsub#queue_requests" in (request.given or {}):
        return
    attrs = {name: request.element.attrs.get(name) for name in ("jid", "node")}
    form = options.form("form", Of.QUEUE, options.defaults(Of.QUEUE, context.limits))
    content = request.element.raw + serialize.tag("options", attrs, form)
    raise pubsub.refusal(
        "not-acceptable", "configuration-required", instead=pubsub.payload(content)
    )


def _policy(wanted: _Wanted, new: Settings) -> Policy | None:
    """Return the policy of a share: its first member's, for all; raises `StanzaError` for another.

    Who counts on a publisher's order being kept must not be taken in by a share that does not.
    """
    if wanted.of is not Of.SHARE:
        return None
    if wanted.queue is None:
        return new.policy or Policy.LEAST_LOADED
    policy = Policy(wanted.queue.policy)
    if new.policy not in (None, policy):
        raise other_policy(policy)
    return policy


def other_policy(policy: Policy) -> StanzaError:
    """Make the error for who wants another policy than a share has."""
    return pubsub.refusal("conflict", text=f"the policy of this share is {policy.value}")


def check_room(
    context: Context, tx: Transaction, bare: str, account: str, *, beside: int = 0
) -> None:
    """Raise `StanzaError`, `too-many-subscriptions`, where one more exceeds a limit (section
    6.1.3.9): of all, or of an account, by its bare JID and its name; `beside` so many others that
    are about to be made."""
    limits = context.limits
    for rule, figure, found in (
        ("subscriptions", limits.subscriptions, subscriptions.count(tx)),
        (
            "subscriptions_per_account",
            limits.subscriptions_per_account,
            subscriptions.count(tx, account),
        ),
    ):
        if found + beside >= figure:
            refusals.log_source(context, tx, bare, rule, figure)
            text = f"{figure} subscriptions at most"
            raise pubsub.refusal("policy-violation", "too-many-subscriptions", text, type="wait")


def _add(
    tx: Transaction,
    sender: Sender,
    jid: str,
    request: _Request,
    wanted: _Wanted,
    new: Settings,
) -> Subscription:
    target, queue = request.target, wanted.queue
    if target.share is not None and queue is None:
        policy = (new.policy or Policy.LEAST_LOADED).value
        name, filter = target.share.name, target.share.filter.text
        queue = queues.add_for_share(tx, name, filter, policy)
        event_counters.note(tx, "share", "made", sender.bare, topic=filter, tags={"share": name})
    return subscriptions.add(
        tx,
        sender.account,
        jid,
        request.subid,
        node=None if wanted.node is None else wanted.node.id,
        filter=None if target.filter is None else target.filter.text,
        queue=None if queue is None else queue.id,
        qos=new.qos,
        requests=new.requests,
        presence=new.presence,
        options=new.kept,
    )


def change(context: Context, tx: Transaction, old: Subscription, new: Settings) -> Subscription:
    """Set the options of a subscription, and return it."""
    found = old._replace(
        qos=new.qos, requests=new.requests, presence=new.presence, options=new.kept
    )
    subscriptions.save(tx, found)
    if found.queue is not None:
        membership.join(context, tx, found)
    return found


def unsubscribe(context: Context, stanza: Stanza) -> Work:
    """End a subscription for its subscriber (section 6.2); raises `StanzaError`."""
    element = stanza.children[0].children[0]
    target = targets.read(context, element)

    def act(tx: Transaction, sender: Sender) -> bytes:
        end(context, tx, targets.subscribed(context, tx, target, element, sender), Why.ASKED)
        return b""

    return answering(context, stanza, act)


def end(context: Context, tx: Transaction, subscription: Subscription, why: Why) -> None:
    """End a subscription: what it has of a queue is given back first, and a share without a member
    ends too."""
    queue, node = subscription.queue, targets.named(tx, subscription)
    if queue is not None:
        membership.leave(context, tx, subscription, _LOSSES.get(why, Loss.UNSUBSCRIBED))
    subscriptions.remove(tx, subscription)
    if queue is None:
        sending.ended(context, tx, subscription)
    elif subscription.share is not None and not subscriptions.has_members(tx, queue):
        membership.end_share(tx, queue)
    if why in _TOLD:
        told = targets.told(subscription, node, "none")
        notifying.to_one(context, tx, subscription, told, node=node)


def recheck(context: Context, tx: Transaction, node: Node) -> None:
    """See to subscriptions when the rights to a node have changed: end those to it of who may not
    subscribe to it any more, and let shares go on with what nobody who was there might have.

    Filters need nothing else: whether they reach a node is looked at each time.
    """
    matching.changed(tx, node)
    admitted = matching.admits(context, tx, node)
    for subscription in subscriptions.all_of_node(tx, node.id):
        if not admitted(subscription.bare):
            end(context, tx, subscription, Why.RIGHTS)
    for queue in subscriptions.shares_matching(tx, node.name):
        if queue_items.release_held(tx, queue):
            dispatch(context, tx, queue)


# Sessions that go


def away(context: Context, tx: Transaction, sender: Sender) -> None:
    """End what ends with a session that has said that it goes."""
    there = any(session.available for session in sessions.of(tx, sender.bare))
    _end_with(context, tx, sender, Why.AWAY, last=not there)


def gone(context: Context, tx: Transaction, sender: Sender) -> None:
    """End what ends with a session that is over, while the gateway goes on."""
    found = sessions.of(tx, sender.bare)
    others = [session for session in found if session.generation != sender.generation]
    shown = any(s.available for s in found if s.generation == sender.generation)
    there = any(session.available for session in others) if shown else bool(others)
    _end_with(context, tx, sender, Why.GONE, last=not there)


def _end_with(context: Context, tx: Transaction, sender: Sender, why: Why, *, last: bool) -> None:
    for jid in (sender.full, sender.bare) if last else (sender.full,):
        for subscription in subscriptions.bound_to_session(tx, jid):
            end(context, tx, subscription, why)


def due(context: Context, tx: Transaction) -> None:
    """End what was to end with a session of before the start that has not come back: it has as much
    time as if only its connection were lost."""
    until = subscriptions.return_deadline(tx, context.limits.resume_time)
    if until is None:
        return
    found = subscriptions.bound_without_session(tx)
    if found and tx.now.service < until:
        tx.wake_at(until)
        return
    for subscription in found:
        end(context, tx, subscription, Why.NOT_BACK)
    if len(found) == subscriptions.BATCH:
        tx.wake_at(tx.now.service)
    else:
        subscriptions.clear_return_deadline(tx)


def tend(context: Context, tx: Transaction) -> None:
    """End the shares whose members' accounts were removed by another process."""
    for queue in subscriptions.shares_without_members(tx):
        membership.end_share(tx, queue)
        subscriptions.invalidate_filters(tx)


NEEDS_ACCOUNTS: Final = True


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.pubsub_request("set", clark(PUBSUB, "subscribe"), subscribe)
    hooks.pubsub_request("set", clark(PUBSUB, "unsubscribe"), unsubscribe)
    hooks.advertise_pubsub(f"{PUBSUB}#subscribe", f"{PUBSUB}#subscription-notifications")
    hooks.on_unavailable(away)
    hooks.on_session_lost(gone)
    hooks.on_timer(due)
    hooks.on_external_change(tend)
