"""Sending a notification to one subscription, at the level that it asked for.

At level 0 it is a plain message, routed as any; at levels 1 and 2 it waits in the outbox of the
subscriber's account, in a line of that subscription's own, and goes by `acknowledged` and
`assured`. What is told, and to which subscriptions, is not decided here, nor how items of shares
are dealt out. Source: XEP-0060, section 7.1.2; XEP QoS, "Use Cases".
"""

from __future__ import annotations

from edge.engine import events, quota, sessions
from edge.engine.addresses import pubsub_service
from edge.engine.database import Transaction
from edge.engine.events import NewEvent
from edge.engine.hooks import Context
from edge.engine.quota import ExceededLimit, Stored, Usage
from edge.engine.refusals import log_source
from edge.features.accounts.store import accounts
from edge.features.messages import rules
from edge.features.messages.service import NOBODY_THERE, AccountMessage, deliver
from edge.features.outbox import xmpp as handing
from edge.features.outbox.rules import BOUND, State
from edge.features.outbox.store import outbox
from edge.features.pubsub.store.subscriptions import Subscription
from edge.xmpp import serialize


def notify(
    context: Context,
    tx: Transaction,
    subscription: Subscription,
    content: bytes,
    *,
    node: str,
    kind: str | None = None,
) -> None:
    """Send a notification to a subscription that is no share's.

    What finds no room is logged as refused to its subscriber: who published is not held up by it.

    Args:
        context: what handlers know.
        tx: the transaction.
        subscription: whom to tell, and at which level.
        content: what stands in the message: the `<event/>`, and what goes beside it.
        node: the name of the node that it is of.
        kind: the type of the message; `None` is `normal`.
    """
    if subscription.qos == 0:
        _tell(context, tx, subscription, content, kind)
        return
    body = serialize.message(kind, None, None, content)
    account, size = subscription.account, quota.charge("", body)
    over = room(context, tx, account, size)
    if over is not None:
        log_source(context, tx, subscription.jid, over.rule, over.figure)
        return
    only = subscription.jid if "/" in subscription.jid else None
    line, sender = _line(context, subscription), f"{pubsub_service(context.domain)}/{node}"
    outbox.add(tx, account, line, sender, None, subscription.qos, body, size, only_session=only)
    tx.wake_at(tx.now.service + context.limits.outbox_ttl)
    handing.pump(context, tx, account)


def _tell(
    context: Context, tx: Transaction, subscription: Subscription, content: bytes, kind: str | None
) -> None:
    """Send a plain message: to the session of a full JID, or as any message for a bare one."""
    source, to = pubsub_service(context.domain), subscription.jid
    stanza = serialize.message(kind, source, to, content)
    if "/" in to:
        session = sessions.at(tx, to)
        if session is None:
            log_source(context, tx, to.partition("/")[0], NOBODY_THERE)
        else:
            tx.send(session.generation, stanza)
        return
    there, type_ = sessions.of(tx, to), rules.parse_type(kind)
    exists = bool(there) or accounts.is_active(tx, subscription.account)
    route = rules.route(type_, there, None, exists=exists)
    message = AccountMessage(stanza, source, subscription.account, type_, storable=True)
    refusal = deliver(context, tx, message, route)
    if refusal is not None:
        log_source(context, tx, to, refusal.rule, refusal.figure)


def room(context: Context, tx: Transaction, account: str, size: int) -> ExceededLimit | None:
    """Tell which limit one more message of `size` bytes in an account's outbox would exceed.

    The service is one source for all that is published, so the limits of one source do not bind it;
    but it leaves to others what is kept for those who send little.
    """
    limits = context.limits
    _mine, waiting = outbox.usage(tx, account, "")
    anyone = Usage(quota.FEW, 0)
    most = Stored(
        Usage(limits.outbox_messages_per_account, limits.outbox_bytes_per_account),
        Usage(limits.outbox_messages, limits.outbox_bytes),
        Usage(limits.outbox_messages, limits.outbox_bytes),
    )
    return quota.over_waiting(quota.OUTBOX, size, quota.FEW, waiting._replace(source=anyone), most)


def _line(context: Context, subscription: Subscription) -> str:
    """Name the line of a subscription: what waits in another holds nothing up in it."""
    return f"{pubsub_service(context.domain)}/{subscription.subid}"


def ended(context: Context, tx: Transaction, subscription: Subscription) -> None:
    """Drop what waits for a subscription that has ended, and log how many that were.

    What is on its way is seen to its end; but for a subscription that ended with its session, that
    is only what the session has received already.
    """
    dropped = 0
    for row in outbox.find_by_source(tx, _line(context, subscription)):
        bound = State(row.state) in BOUND
        if not bound and (subscription.presence or not row.in_flight):
            outbox.remove(tx, row)
            dropped += 1
    if dropped:
        text = "a subscription ended with notifications that waited for it"
        tags = {"subscription": subscription.subid}
        event = NewEvent(
            "message", subscription.jid, name="notifications_dropped", value=float(dropped),
            level="Notice", text=text, tags=tags,
        )  # fmt: skip
        events.append(tx, events.SYSTEM, event)
