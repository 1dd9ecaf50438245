"""State transitions of a queue item that its member does not complete.

An item waits until it is assigned to one connected session of a member (a subscription). The item
is then locked until the member completes it, gives it back or loses it, for example because the
session ends. Each lock counts as a delivery. If the last delivery that the queue allows fails too,
the item is dead: it is kept until it is requeued or deleted.

Queue nodes (XEP-0254) and shared subscriptions (MQTT-234) differ only in `TRANSITIONS`. At QoS 0 an
item leaves the queue when it is sent, so a lost item is not sent again. At QoS 1 a lost item goes
to another member. At QoS 2 an item stays with its member, and is dead if the member's subscription
ends (or later the state of its session, if that knows the item by an id). Sources: XEP-0254;
MQTT-234, as completed in docs/reference/protocol.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

MAX_DELIVERIES: Final = 5
"""Number of deliveries after which an uncompleted item of a shared subscription is dead. Queue
nodes have the option `pubsub#queue_max_deliveries` instead."""


class Kind(Enum):
    """Kind of a queue item: from a queue node, or from a shared subscription at a member's QoS."""

    NODE = "node"
    SHARE_0 = "share at QoS 0"
    SHARE_1 = "share at QoS 1"
    SHARE_2 = "share at QoS 2"


class Loss(Enum):
    """Reason why a member lost an item before it completed the item."""

    CONNECTION = "session ended"
    UNAVAILABLE = "session became unavailable"
    UNSUBSCRIBED = "member unsubscribed"
    TIMEOUT = "timed out"
    UNLOCKED = "unlocked by the member"
    REFUSED = "refused by the member"
    RESTART = "gateway restarted"


class Outcome(Enum):
    """Next state of a locked item after a `Loss`; `STAYS` means that the item remains locked."""

    READY = "ready"
    READY_FOR_ANOTHER = "ready for another"
    DEAD = "dead"
    STAYS = "stays"


_REASSIGNED: Final = dict.fromkeys(Loss, Outcome.READY_FOR_ANOTHER) | {
    Loss.CONNECTION: Outcome.READY,
    Loss.UNAVAILABLE: Outcome.READY,
    Loss.UNSUBSCRIBED: Outcome.READY,
}
_BOUND_TO_MEMBER: Final = dict.fromkeys(Loss, Outcome.DEAD) | {
    Loss.CONNECTION: Outcome.STAYS,
    Loss.UNAVAILABLE: Outcome.STAYS,
    Loss.RESTART: Outcome.STAYS,
}

TRANSITIONS: Final[Mapping[Kind, Mapping[Loss, Outcome]]] = {
    Kind.NODE: _REASSIGNED | {Loss.RESTART: Outcome.STAYS},
    Kind.SHARE_0: dict.fromkeys(Loss, Outcome.STAYS),
    Kind.SHARE_1: _REASSIGNED | {Loss.RESTART: Outcome.READY},
    Kind.SHARE_2: _BOUND_TO_MEMBER,
}
"""Outcome for an item that its member has lost, by the item's kind and the reason of the loss, if
it has had fewer deliveries than the maximum."""

NOTIFIED: Final = frozenset({Loss.UNAVAILABLE, Loss.UNSUBSCRIBED, Loss.TIMEOUT, Loss.UNLOCKED})
"""Losses after which the member is notified that it no longer has the lock, for items of queue
nodes. After other losses the member's session no longer exists."""

COMES_BACK: Final = frozenset({Outcome.READY, Outcome.READY_FOR_ANOTHER})
"""Outcomes after which the item is delivered again."""


def kind(qos: int | None) -> Kind:
    """Return the kind of items: of a share at a member's `qos`, or (`None`) of a queue node."""
    if qos is None:
        return Kind.NODE
    return (Kind.SHARE_0, Kind.SHARE_1, Kind.SHARE_2)[qos]


def outcome(kind: Kind, loss: Loss, deliveries: int, max_deliveries: int) -> Outcome:
    """Return the outcome for a locked item that its member has lost.

    Args:
        deliveries: how often the item was assigned to members, including the lost assignment.
        max_deliveries: the number of deliveries after which the item is dead.
    """
    found = TRANSITIONS[kind][loss]
    if found in COMES_BACK and deliveries >= max_deliveries:
        return Outcome.DEAD
    return found
