"""Publish the will of a session that is lost (MQTT 5.0, section 3.1.2.5).

A will is a row, so it is published also if gateway and device fail together. It is published
when the session is lost, or a time afterwards unless a new session has the address by then. After a
restart of the gateway, the sessions of before count as lost.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from edge.engine.dispatch import destinations, item_attributes
from edge.engine.dispatch.addresses import AddressKind, pubsub_service
from edge.engine.dispatch.hooks import Context, Hooks, Message
from edge.engine.log import refusals
from edge.engine.rules import quota
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction
from edge.errors import ServiceError
from edge.features.wills import store
from edge.features.wills.store import StoredWill
from edge.features.wills.store import Will as Will
from edge.jid import Jid

BATCH: Final = 32
"""Maximum number of wills that are published in one unit of work."""


class Reason(Enum):
    """Reasons to refuse a will."""

    LIMIT_EXCEEDED = "a limit is exceeded"
    UNFIT = "no node accepts its content type and properties"


class WillError(ServiceError[Reason]):
    """A will is refused; nothing has changed."""


def begin(
    context: Context, tx: Transaction, sender: Sender, will: Will | None, *, clean: bool
) -> None:
    """Set the will of a session that begins; `None` for none.

    The will of an earlier session of the address is published if it is due, or if the new session
    is `clean`, because that ends the earlier one; otherwise it is removed. A will needs no room in
    the database beside `limits.will_bytes`: a full gateway must let devices get their messages.

    Raises:
        WillError: a limit would be exceeded, or the will could never be published; the earlier
            will is handled nevertheless.
    """
    earlier = store.find(tx, sender.full)
    if earlier is not None:
        if clean or earlier.due is None or earlier.due <= tx.now.service:
            _publish(context, tx, earlier)
        else:
            store.remove(tx, sender.full)
    if will is None:
        return
    if fault := item_attributes.find_fault(will.attributes):
        refusals.log(context, tx, sender, destinations.UNFIT, text=fault)
        raise WillError(Reason.UNFIT, fault)
    limits, size = context.limits, store.size(sender.full, will)
    used = store.bytes_of_others(tx, sender.account, sender.full)
    most = limits.will_bytes_per_account, limits.will_bytes
    exceeded = quota.exceeded_number(quota.WILL_LIMITS, *used, *most, more=size)
    if exceeded is not None:
        refusals.log(context, tx, sender, *exceeded)
        raise WillError(Reason.LIMIT_EXCEEDED, exceeded.text)
    store.put(tx, sender.account, sender.full, will)


def discard(tx: Transaction, sender: Sender) -> None:
    """Remove the will of a session, because its device leaves in order."""
    store.remove(tx, sender.full)


def on_session_lost(_context: Context, tx: Transaction, sender: Sender) -> None:
    """Let the will of a session be published, at once or after its delay."""
    due = store.lose(tx, sender.full)
    if due is not None:
        tx.wake_at(due)


def publish_due(context: Context, tx: Transaction) -> None:
    """Publish the wills that are due; set the timer for the next."""
    store.lose_absent(tx)
    for found in store.due(tx, BATCH):
        _publish(context, tx, found)
    if (due := store.first_due(tx)) is not None:
        tx.wake_at(due)


def _publish(context: Context, tx: Transaction, found: StoredWill) -> None:
    """Publish a will as a message of its device, and remove it; log it if it is refused."""
    sender, (topic, payload, attributes, _delay), _due = found
    store.remove(tx, sender.full)
    destination = context.hooks.destinations[AddressKind.NODE]
    to = Jid("", pubsub_service(context.domain), topic)
    message = Message(sender, to, payload, len(payload), attributes.qos, attributes=attributes)
    refused = destinations.hand_over(context, tx, destination, message)
    if refused is not None:
        refusals.log(context, tx, sender, refused.rule, refused.figure)


def register_for_accounts(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    hooks.on_session_lost.append(on_session_lost)
    hooks.on_timer.append(publish_due)
