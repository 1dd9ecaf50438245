"""Begin, change, list and end subscriptions (XEP-0060, sections 5.6, 6.1 to 6.4 and 8.8).

A JID has at most one subscription to each node, filter or share. A subscription ends when its
subscriber or an owner of the node ends it, or when the subscriber loses access to the node. A
subscription that is bound to a session also ends with the session of its full JID, or with the last
session of its bare JID; after a restart of the gateway, it ends if no such session resumes or binds
again within `limits.resume_time`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from edge import topics
from edge.engine.dispatch.hooks import Context, Event, Hooks
from edge.engine.log import event_counters, refusals
from edge.engine.rules import quota
from edge.engine.rules.access import Sender
from edge.engine.sessions import sessions
from edge.engine.sessions.sessions import SessionRow
from edge.engine.store.database import Transaction
from edge.features.accounts import service as accounts
from edge.features.presence.service.presence import PUBSUB_AVAILABLE, PUBSUB_UNAVAILABLE
from edge.features.pubsub.rules import subscription as rules
from edge.features.pubsub.rules.node_config import QueuePolicy
from edge.features.pubsub.rules.reasons import Reason
from edge.features.pubsub.rules.subscription import (
    REQUESTS,
    DeliveryOptions,
    InvalidSubscriptionOption,
    SubscriptionEnd,
    SubscriptionKind,
    SubscriptionOptions,
)
from edge.features.pubsub.rules.topic_rights import Right
from edge.features.pubsub.service import (
    access,
    live_topics,
    notifications,
    queueing,
    retained,
    topic_rights,
)
from edge.features.pubsub.service.errors import PubsubError
from edge.features.pubsub.service.queueing import Queue
from edge.features.pubsub.store import nodes, subscriptions
from edge.features.pubsub.store.nodes import Node
from edge.features.pubsub.store.subscriptions import Subscription
from edge.jid import Jid
from edge.topics import Share

OptionValues: TypeAlias = Mapping[str, Sequence[str]]
"""Values of options, by registered name (`pubsub#...`)."""


_NOTIFIED: Final = (SubscriptionEnd.OWNER, SubscriptionEnd.UNAUTHORIZED)


class Target(NamedTuple):
    """Target of a subscription: a share (with its filter), a topic filter without a share, or, if
    both are `None`, the node with the name `text`."""

    text: str
    share: Share | None = None
    filter: str | None = None


class _Subject(NamedTuple):
    """Node and queue to which a new subscription refers, each `None` if there is none; the queue of
    a share is created with the share's first member."""

    kind: SubscriptionKind
    node: Node | None = None
    queue: Queue | None = None


# Targets


def parse_target(context: Context, text: str) -> Target:
    """Parse the name of a node, a topic filter, or a share.

    Raises:
        PubsubError: the text is empty, is not a valid filter or share, or is a share while shares
            are disabled.
    """
    if not text:
        raise PubsubError(Reason.NODE_REQUIRED)
    if topics.is_share(text) and not context.pubsub.shares:
        raise PubsubError(Reason.SHARES_DISABLED)
    try:
        share = topics.parse_share(text)
        if share is not None:
            _check_size(context, share.name)
            _check_size(context, share.filter)
            return Target(text, share, share.filter)
        if not topics.is_filter(text):
            return Target(text)
    except topics.InvalidFilter as error:
        raise PubsubError(Reason.INVALID_FILTER, str(error)) from None
    return filter_target(context, text)


def filter_target(context: Context, text: str) -> Target:
    """Return a topic filter as a target; without wildcards it matches one node, which need not
    exist. Raises `PubsubError` if the filter is invalid."""
    try:
        _check_size(context, text)
        topics.check_filter(text)
    except topics.InvalidFilter as error:
        raise PubsubError(Reason.INVALID_FILTER, str(error)) from None
    return Target(text, None, text)


def _check_size(context: Context, text: str) -> None:
    limit = context.limits.node_bytes
    if len(text.encode()) > limit:
        raise topics.InvalidFilter(f"filters and share names must have at most {limit} bytes")


def _target_name(tx: Transaction, subscription: Subscription) -> str:
    if subscription.node is not None:
        node = nodes.by_id(tx, subscription.node)
        return "" if node is None else node.name
    filter = subscription.filter or ""
    if subscription.share is None:
        return filter
    return Share(subscription.share, filter).text


def _find(tx: Transaction, target: Target, jid: str) -> Subscription | None:
    node, filter, share = _columns(tx, target)
    return subscriptions.find(tx, jid, node=node, filter=filter, share=share)


def _columns(tx: Transaction, target: Target) -> tuple[int | None, str | None, str | None]:
    """Return the `node`, `filter` and `share` that all subscriptions to a target have."""
    if target.filter is None:
        return access.get_node(tx, target.text).id, None, None
    return None, target.filter, None if target.share is None else target.share.name


def get_own(
    tx: Transaction, sender: Sender, target: Target, jid: str, subid: str | None
) -> Subscription:
    """Return the subscription of the sender's `jid` to a target; a `subid` of `None` matches any.

    Raises:
        PubsubError: the JID belongs to another account or is not subscribed, or the SubID is wrong.
    """
    if jid.partition("/")[0] != sender.bare:
        raise PubsubError(Reason.FORBIDDEN, "the JID belongs to another account")
    found = _find(tx, target, jid)
    if found is None:
        raise PubsubError(Reason.NOT_SUBSCRIBED)
    if subid not in (None, found.subid):
        raise PubsubError(Reason.INVALID_SUBID)
    return found


# Subscribe and unsubscribe


def subscribe(
    context: Context,
    tx: Transaction,
    sender: Sender,
    target: Target,
    jid: str,
    values: OptionValues,
    subid: str,
    delivery: DeliveryOptions | None = None,
) -> Subscription:
    """Subscribe a JID of the sender to a target, or change the options of its subscription, if it
    has one; raises `PubsubError`.

    Args:
        jid: the JID to subscribe: the sender's bare JID, or its own full JID.
        subid: the SubID to use if a subscription begins.
        delivery: further options; `None` leaves them as they are.
    """
    if jid not in (sender.bare, sender.full):
        raise PubsubError(Reason.INVALID_SUBSCRIBER)
    subject = _find_subject(context, tx, sender._replace(full=jid), target)
    kind, max_requests = subject.kind, context.limits.queue_requests
    if kind is SubscriptionKind.QUEUE and REQUESTS not in values:
        raise PubsubError(Reason.CONFIGURATION_REQUIRED)
    found = _find(tx, target, jid)
    old = rules.default_options(kind, max_requests) if found is None else found.options
    new = _apply_options(context, kind, old, values)
    if delivery is not None:
        new = new._replace(delivery=delivery)
    share = subject.queue if kind is SubscriptionKind.SHARE else None
    _check_policy(None if share is None else QueuePolicy(share.policy), new)
    if found is None:
        _check_room(context, tx, sender.bare, sender.account)
    on_pubsub_available(context, tx, sender)
    is_new = found is None
    if found is None:
        found = _add(context, tx, sender, jid, subid, target, subject, new)
        if found.queue is not None:
            queueing.of(context).join(context, tx, found)
    elif values or delivery is not None:
        found = _change(context, tx, found, new)
    if found.queue is None:
        _send_present_items(context, tx, found, is_new=is_new)
    return found


def _send_present_items(
    context: Context, tx: Transaction, subscription: Subscription, *, is_new: bool
) -> None:
    delivery = subscription.options.delivery
    is_wanted = delivery.retain_handling.sends_items(is_new=is_new)
    if is_wanted and delivery.only_items:
        retained.begin(context, tx, subscription)
    elif is_wanted:
        notifications.send_last_items(context, tx, subscription)
    live_topics.note_subscribed(context, tx, subscription, wants_values=is_wanted)


def _find_subject(
    context: Context, tx: Transaction, subscriber: Sender, target: Target
) -> _Subject:
    """Return what a subscription refers to, after a check of rights; `subscriber` is the sender,
    with the JID to subscribe as its full JID."""
    if target.filter is not None:
        topic_rights.require(context, tx, subscriber, Right.SUBSCRIBE, target.filter)
    if target.share is not None:
        queue = queueing.of(context).of_share(tx, *target.share)
        return _Subject(SubscriptionKind.SHARE, None, queue)
    if target.filter is not None:
        return _Subject(SubscriptionKind.PLAIN)
    node = access.get_readable_node(context, tx, subscriber, target.text)
    if not node.config.queueing:
        return _Subject(SubscriptionKind.PLAIN, node)
    return _Subject(SubscriptionKind.QUEUE, node, queueing.of(context).of_node(tx, node.id))


def _check_policy(of_share: QueuePolicy | None, new: SubscriptionOptions) -> None:
    """Check that a member does not request another policy than that of its share, which the first
    member chose; raises `PubsubError`. `of_share` is `None` if the share is new."""
    if of_share is not None and new.policy not in (None, of_share):
        raise PubsubError(Reason.POLICY_CONFLICT, f"the policy of this share is {of_share.value}")


def _check_room(
    context: Context, tx: Transaction, bare: str, account: str, added_accounts: Sequence[str] = ()
) -> None:
    """Check that the limits allow a further subscription (section 6.1.3.9); raises `PubsubError`.

    Args:
        added_accounts: the accounts of other subscriptions that the same request adds.
    """
    limits = context.limits
    exceeded = quota.exceeded_number(
        quota.SUBSCRIPTION_LIMITS,
        subscriptions.count(tx, account) + added_accounts.count(account),
        subscriptions.count(tx) + len(added_accounts),
        limits.subscriptions_per_account,
        limits.subscriptions,
    )
    if exceeded is not None:
        refusals.log_source(context, tx, bare, *exceeded)
        raise PubsubError(Reason.TOO_MANY_SUBSCRIPTIONS, exceeded.text)


def _add(
    context: Context,
    tx: Transaction,
    sender: Sender,
    jid: str,
    subid: str,
    target: Target,
    subject: _Subject,
    new: SubscriptionOptions,
) -> Subscription:
    queue = subject.queue
    if target.share is not None and queue is None:
        policy = new.policy or QueuePolicy.LEAST_LOADED
        name, filter = target.share
        queue = queueing.of(context).add_for_share(tx, name, filter, policy, sender.bare)
        event_counters.count(tx, "share", "made", sender.bare, topic=filter, tags={"share": name})
    return subscriptions.add(
        tx,
        sender.account,
        jid,
        subid,
        node=None if subject.node is None else subject.node.id,
        filter=target.filter,
        queue=None if queue is None else queue.id,
        options=new,
    )


def unsubscribe(
    context: Context,
    tx: Transaction,
    sender: Sender,
    target: Target,
    jid: str,
    subid: str | None = None,
) -> None:
    """End a subscription of the sender (section 6.2); raises `PubsubError`."""
    end(context, tx, get_own(tx, sender, target, jid, subid), SubscriptionEnd.UNSUBSCRIBED)


def end(
    context: Context, tx: Transaction, subscription: Subscription, reason: SubscriptionEnd
) -> None:
    """End a subscription, take back items assigned to it, and remove its share if that is empty."""
    name = _target_name(tx, subscription)
    if subscription.queue is None:
        subscriptions.remove(tx, subscription)
        notifications.drop_waiting(context, tx, subscription)
    else:
        queueing.of(context).end_membership(context, tx, subscription, reason)
    if reason in _NOTIFIED:
        notifications.notify_changed(context, tx, subscription, name, subscribed=False)


def end_unauthorized(context: Context, tx: Transaction, node: Node) -> None:
    """Apply changed access rights of a node to subscriptions.

    A subscription to the node ends if its subscriber may no longer subscribe. Withheld items of
    shares are assigned if a member may now read the node. Subscriptions to filters need no change,
    because access is checked at each notification.
    """
    may_subscribe = access.access_check(context, tx, node)
    for subscription in subscriptions.all_of_node(tx, node.id):
        if not may_subscribe(subscription.jid):
            end(context, tx, subscription, SubscriptionEnd.UNAUTHORIZED)
    queueing.of(context).release_withheld(context, tx, node)


# Options


def _apply_options(
    context: Context, kind: SubscriptionKind, old: SubscriptionOptions, values: OptionValues
) -> SubscriptionOptions:
    try:
        return rules.apply_options(kind, old, values, context.limits.queue_requests)
    except InvalidSubscriptionOption as error:
        raise PubsubError(Reason.INVALID_OPTIONS, str(error)) from None


def _change(
    context: Context, tx: Transaction, old: Subscription, new: SubscriptionOptions
) -> Subscription:
    found = old._replace(options=new)
    subscriptions.save(tx, found)
    if found.queue is not None:
        queueing.of(context).join(context, tx, found)
    return found


def set_options(
    context: Context,
    tx: Transaction,
    sender: Sender,
    target: Target,
    jid: str,
    subid: str | None,
    values: OptionValues,
) -> None:
    """Change options of a subscription of the sender (section 6.3.5); raises `PubsubError`."""
    found = get_own(tx, sender, target, jid, subid)
    new = _apply_options(context, found.kind, found.options, values)
    _check_policy(found.options.policy, new)
    if new != found.options:
        _change(context, tx, found, new)


def kind_of_target(tx: Transaction, target: Target) -> SubscriptionKind:
    """Return the kind of subscriptions to a target; raises `PubsubError` if the target is a
    nonexistent node."""
    if target.share is not None:
        return SubscriptionKind.SHARE
    if target.filter is not None:
        return SubscriptionKind.PLAIN
    queueing = access.get_node(tx, target.text).config.queueing
    return SubscriptionKind.QUEUE if queueing else SubscriptionKind.PLAIN


# Lists, and changes by owners


def list_own(
    tx: Transaction, sender: Sender, target: Target | None
) -> list[tuple[Subscription, str]]:
    """Return the subscriptions of the sender's account (only those to `target` if given), each with
    the name of its target (section 5.6); raises `PubsubError`."""
    found = subscriptions.of_account(tx, sender.account)
    if target is not None:
        found = [one for one in found if _is_to(tx, target, one)]
    return [(one, _target_name(tx, one)) for one in found]


def _is_to(tx: Transaction, target: Target, subscription: Subscription) -> bool:
    return (subscription.node, subscription.filter, subscription.share) == _columns(tx, target)


def list_of_node(
    tx: Transaction, sender: Sender, name: str | None
) -> tuple[Node, Sequence[Subscription]]:
    """Return a node and its subscriptions; raises `PubsubError` if the sender may not manage it
    (section 8.8.1)."""
    node = access.get_owned_node(tx, sender, name)
    return node, subscriptions.all_of_node(tx, node.id)


class SubscriptionChange(NamedTuple):
    """Request of a node's owner to begin or end the subscription of another JID to the node.

    Attributes:
        jid: the subscriber's bare or full JID.
        subscribed: whether to begin (true) or to end the subscription.
        subid: the SubID of an existing subscription, if the request names one.
        new_subid: the SubID to use if a subscription begins.
    """

    jid: Jid
    subscribed: bool
    subid: str | None
    new_subid: str


def set_subscriptions(
    context: Context,
    tx: Transaction,
    sender: Sender,
    name: str | None,
    changes: Sequence[SubscriptionChange],
) -> None:
    """Begin and end subscriptions to a node, at the request of its owner (section 8.8.2).

    Raises:
        PubsubError: at least one change is refused, so none is made.
    """
    node = access.get_owned_node(tx, sender, name)
    added: list[str] = []
    for change in changes:
        if _check_change(context, tx, node, change, added):
            added.append(change.jid.local)
    for change in changes:
        _apply_change(context, tx, node, change)


def _check_change(
    context: Context, tx: Transaction, node: Node, change: SubscriptionChange, added: Sequence[str]
) -> bool:
    """Check that a change is possible, and return whether it adds a subscription; `added` are the
    accounts of subscriptions that earlier changes of the same request add."""
    found = subscriptions.find(tx, change.jid.full, node=node.id)
    if found is not None:
        if change.subid not in (None, found.subid):
            raise PubsubError(Reason.INVALID_SUBID)
        return False
    if not change.subscribed:
        raise PubsubError(Reason.NOT_SUBSCRIBED)
    bare, account, problem = change.jid.bare, change.jid.local, ""
    if change.jid.domain != context.domain or not accounts.is_active(tx, account):
        problem = f"{change.jid.bare} is not an active account of this gateway"
    elif node.config.queueing:
        problem = "accounts must subscribe to a queue node themselves"
    elif not access.may_subscribe(context, tx, node, change.jid.full):
        problem = f"{change.jid.bare} may not subscribe to this node"
    if problem:
        raise PubsubError(Reason.SUBSCRIPTION_NOT_ACCEPTABLE, problem)
    _check_room(context, tx, bare, account, added)
    return True


def _apply_change(
    context: Context, tx: Transaction, node: Node, change: SubscriptionChange
) -> None:
    found = subscriptions.find(tx, change.jid.full, node=node.id)
    if not change.subscribed:
        if found is not None:
            end(context, tx, found, SubscriptionEnd.OWNER)
    elif found is None:
        account, full, subid = change.jid.local, change.jid.full, change.new_subid
        found = subscriptions.add(tx, account, full, subid, node=node.id)
        notifications.notify_changed(context, tx, found, node.name, subscribed=True)


# Sessions and time

AVAILABLE_AGAIN: Final = Event[[Context, Transaction, Sender]]()
"""Event of a session that is available to the pubsub service again (`on_pubsub_available`)."""


def on_unavailable(context: Context, tx: Transaction, sender: Sender) -> None:
    """End the subscriptions that are bound to a session that became unavailable."""
    others = any(map(_is_available, sessions.of_account(tx, sender.bare)))
    _end_bound(context, tx, sender, SubscriptionEnd.UNAVAILABLE, is_last=not others)


def on_pubsub_unavailable(context: Context, tx: Transaction, sender: Sender) -> None:
    """Treat a session as unavailable after it sent unavailable presence to the pubsub service
    (XEP-0254).

    The session counts as available again when it sends available presence to the service,
    subscribes, or broadcasts initial presence.
    """
    sessions.set_gets_items(tx, sender.generation, False)
    on_unavailable(context, tx, sender)


def on_pubsub_available(context: Context, tx: Transaction, sender: Sender) -> None:
    """Make a session available to the pubsub service again, if it was unavailable to it."""
    session = sessions.find(tx, sender.full)
    if session is not None and not session.gets_items:
        sessions.set_gets_items(tx, sender.generation, True)
        context.hooks.trigger(AVAILABLE_AGAIN, context, tx, sender)


def _is_available(session: SessionRow) -> bool:
    return session.available and session.gets_items


def on_session_lost(context: Context, tx: Transaction, sender: Sender) -> None:
    """End the subscriptions that are bound to a session that has ended."""
    found = sessions.of_account(tx, sender.bare)
    others = [session for session in found if session.generation != sender.generation]
    was_available = any(s.available for s in found if s.generation == sender.generation)
    remain = any(map(_is_available, others)) if was_available else bool(others)
    _end_bound(context, tx, sender, SubscriptionEnd.SESSION_ENDED, is_last=not remain)


def _end_bound(
    context: Context, tx: Transaction, sender: Sender, reason: SubscriptionEnd, *, is_last: bool
) -> None:
    for jid in (sender.full, sender.bare) if is_last else (sender.full,):
        for subscription in subscriptions.bound_to_session(tx, jid):
            end(context, tx, subscription, reason)


def on_state_end(context: Context, tx: Transaction, full: str) -> None:
    """End the subscriptions of a session whose state ends."""
    for subscription in subscriptions.of_account(tx, full.partition("@")[0]):
        if subscription.jid == full:
            end(context, tx, subscription, SubscriptionEnd.SESSION_ENDED)


def on_timer(context: Context, tx: Transaction) -> None:
    """End subscriptions that were bound to a session before a restart of the gateway, and whose JID
    still has no session when `limits.resume_time` has passed."""
    deadline = subscriptions.return_deadline(tx, context.limits.resume_time)
    if deadline is None:
        return
    found = subscriptions.bound_without_session(tx)
    if found and tx.now.service < deadline:
        tx.wake_at(deadline)
        return
    for subscription in found:
        end(context, tx, subscription, SubscriptionEnd.NOT_RETURNED)
    if len(found) == subscriptions.BATCH:
        tx.wake_at(tx.now.service)
    else:
        subscriptions.clear_return_deadline(tx)


def register_for_accounts(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    hooks.on_unavailable.append(on_unavailable)
    hooks.on(PUBSUB_AVAILABLE, on_pubsub_available)
    hooks.on(PUBSUB_UNAVAILABLE, on_pubsub_unavailable)
    hooks.on_session_lost.append(on_session_lost)
    hooks.on_state_end.append(on_state_end)
    hooks.on_timer.append(on_timer)
