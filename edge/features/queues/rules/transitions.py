"""Transitions of an item of a queue that its member does not complete.

An item waits until it is assigned to a member: a subscription, through one of its connected
sessions. It is then locked until the member completes it, gives it back or loses it. Each lock
counts as a delivery. An item that comes back after the last delivery that its queue allows is dead:
it is kept until it is requeued or deleted.

Queue nodes (XEP-0254) and shared subscriptions (MQTT-234) differ by `TRANSITIONS` alone. At QoS 0
an item leaves the queue when it is sent, so no other member gets it. At QoS 1 it goes to another
member. At QoS 2 it stays with its member, and is dead if the member's subscription ends. Sources:
XEP-0254; MQTT-234, as completed by the project's protocol decisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

MAX_DELIVERIES: Final = 5
"""Deliveries after which an item of a shared subscription is dead. A queue node configures its
own number."""


class Kind(Enum):
    """Kind of item: of a queue node, or of a shared subscription at the member's QoS."""

    NODE = "node"
    SHARE_0 = "share at QoS 0"
    SHARE_1 = "share at QoS 1"
    SHARE_2 = "share at QoS 2"


class Loss(Enum):
    """Reason why a member no longer has an item that it did not complete."""

    CONNECTION = "session ended"
    UNAVAILABLE = "session became unavailable"
    UNSUBSCRIBED = "member unsubscribed"
    TIMEOUT = "timed out"
    UNLOCKED = "unlocked by the member"
    REFUSED = "refused by the member"
    RESTART = "gateway restarted"


class Outcome(Enum):
    """What becomes of an item that its member has lost."""

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
"""The outcome of each loss of a locked item, before its deliveries are counted."""

NOTIFIED: Final = frozenset({Loss.UNAVAILABLE, Loss.UNSUBSCRIBED, Loss.TIMEOUT, Loss.UNLOCKED})
"""Losses of a queue node's item that its member is notified of. After the others, no session of
the member is left to notify."""

_COMES_BACK: Final = frozenset({Outcome.READY, Outcome.READY_FOR_ANOTHER})


def kind(qos: int | None) -> Kind:
    """Return the kind of items that members at a QoS get; `None` stands for queue nodes."""
    if qos is None:
        return Kind.NODE
    return (Kind.SHARE_0, Kind.SHARE_1, Kind.SHARE_2)[qos]


def outcome(kind: Kind, loss: Loss, deliveries: int, max_deliveries: int) -> Outcome:
    """Return what becomes of a locked item that its member has lost.

    Args:
        deliveries: how often the item was assigned to members, the lost assignment included.
        max_deliveries: the number of deliveries after which the item is dead.
    """
    found = TRANSITIONS[kind][loss]
    if found in _COMES_BACK and deliveries >= max_deliveries:
        return Outcome.DEAD
    return found


def diagram(kind: Kind) -> str:
    """Return the states of an item of a kind as a Mermaid state diagram."""
    names = {Outcome.READY_FOR_ANOTHER: "ready", Outcome.STAYS: "locked"}
    lines = ["stateDiagram-v2", "    [*] --> ready", "    ready --> locked: assigned"]
    if kind is Kind.SHARE_0:
        return "\n".join([*lines[:2], "    ready --> [*]: sent"])
    for loss, found in TRANSITIONS[kind].items():
        lines.append(f"    locked --> {names.get(found, found.value)}: {loss.value}")
    if not _COMES_BACK.isdisjoint(TRANSITIONS[kind].values()):
        lines.append("    locked --> dead: too many deliveries")
    lines.append("    locked --> [*]: completed")
    return "\n".join([*lines, "    dead --> ready: requeued"])
