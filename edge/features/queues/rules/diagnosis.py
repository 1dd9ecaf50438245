"""Diagnosis of why an item of a queue is not delivered.

The checks follow the order of dispatch. An item that is locked, delayed or dead is not ready. A
ready item needs a member that is connected, accepts its QoS, has room, and is chosen by the queue's
policy. Ready items with an earlier place in the queue are delivered first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from edge.features.pubsub.rules.node_config import QueuePolicy
from edge.features.queues.rules import assignment
from edge.features.queues.rules.assignment import ReadyItem


class Reason(Enum):
    """Reason why an item is not delivered now; the values appear in JSON and ad-hoc commands."""

    LOCKED = "locked"  # a member has locked it
    DELAYED = "delayed"  # it was published with a delay, or the operator took it
    WITHHELD = "aside"  # no connected member may subscribe to the node that it was published to
    DEAD = "dead"
    EXPIRED = "expired"  # its time to live is over
    NO_MEMBER = "no_member"  # the queue has no subscribers
    UNKNOWN = "not_known"  # it is not known which members are connected
    NOT_CONNECTED = "nobody_there"  # no member is connected
    QOS_UNSUPPORTED = "unable"  # no connected member accepts messages at its QoS
    NO_ROOM = "full"  # each connected member has as many items as it accepts
    OUTBOX_FULL = "stalled"  # the outboxes of the members with room are full
    TOO_MANY_BYTES = "laden"  # the members with room have too many bytes of items
    GIVEN_BACK = "given_back"  # a member gave it back, and the others have no room
    CHOSEN_MEMBER_BUSY = "bound"  # the member that the policy chooses has no room
    BEHIND_OTHERS = "behind"  # other items go first
    NEXT = "next"  # nothing: it is delivered next


class MemberState(NamedTuple):
    """State of a member of a queue: the subscription of a JID, with its connected sessions.

    `sessions` are full JIDs. `accepts_qos` is whether at least one accepts messages at the
    subscription's QoS, `outbox_full` whether the outbox of the account has no room, and
    `too_many_bytes` whether the member's locked items have reached its limit of bytes.
    """

    subscription: int
    jid: str
    capacity: int
    in_flight: int
    sessions: tuple[str, ...] = ()
    accepts_qos: bool = True
    outbox_full: bool = False
    too_many_bytes: bool = False

    @property
    def has_room(self) -> bool:
        """Return whether the member accepts one more item."""
        return self.in_flight < self.capacity


class Members(NamedTuple):
    """Members of a queue, and the policy that chooses among them (see `assignment.assign`).

    `known` is whether the caller knows which members are connected; only the running gateway does.
    """

    states: Sequence[MemberState]
    known: bool
    policy: QueuePolicy = QueuePolicy.LEAST_LOADED
    favourite: int | None = None
    slot_owners: Mapping[int, int] = {}


class ItemState(NamedTuple):
    """State of an item: ready, delayed, locked or dead.

    `before` is the number of ready items that are delivered first; `avoid` is the full JID of the
    session that gave the item back. `due` (end of the delay) and `expires` (end of the time to
    live) are service seconds; a delayed item without `due` is withheld.
    """

    row: int
    state: str
    publisher: str
    before: int = 0
    avoid: str | None = None
    due: float | None = None
    expires: float | None = None


_NOT_READY = {"locked": Reason.LOCKED, "dead": Reason.DEAD}


def diagnose(item: ItemState, members: Members, now: float) -> Reason:
    """Return why an item is not delivered at `now` (in service seconds)."""
    if item.state in _NOT_READY:
        return _NOT_READY[item.state]
    if item.state == "delayed":
        return Reason.WITHHELD if item.due is None else Reason.DELAYED
    if item.expires is not None and item.expires <= now:
        return Reason.EXPIRED
    if not members.states:
        return Reason.NO_MEMBER
    if not members.known:
        return Reason.UNKNOWN
    return _diagnose_ready(item, members)


def _diagnose_ready(item: ItemState, members: Members) -> Reason:
    connected = [member for member in members.states if member.sessions]
    if not connected:
        return Reason.NOT_CONNECTED
    able = [member for member in connected if member.accepts_qos]
    if not able:
        return Reason.QOS_UNSUPPORTED
    free = [member for member in able if member.has_room]
    if not free:
        return Reason.NO_ROOM
    if all(member.outbox_full or member.too_many_bytes for member in free):
        full = any(member.outbox_full for member in free)
        return Reason.OUTBOX_FULL if full else Reason.TOO_MANY_BYTES
    if not _is_assignable(item, able, members):
        anyone = item._replace(avoid=None)
        given_back = _is_assignable(anyone, able, members)
        return Reason.GIVEN_BACK if given_back else Reason.CHOSEN_MEMBER_BUSY
    return Reason.BEHIND_OTHERS if item.before else Reason.NEXT


def _is_assignable(item: ItemState, able: Sequence[MemberState], members: Members) -> bool:
    """Return whether the item would be assigned if no other item were ready."""
    candidates = [
        assignment.Member(member.subscription, session, member.capacity, member.in_flight, 0)
        for member in able
        for session in member.sessions
    ]
    first = ReadyItem(item.row, item.publisher, item.avoid)
    policy, favourite, owners = members.policy, members.favourite, members.slot_owners
    return bool(assignment.assign([first], candidates, policy, favourite, owners))
