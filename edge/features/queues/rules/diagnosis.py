"""Diagnosis of an item of a queue that does not move.

The checks follow the order of dispatch. An item that is locked, delayed or
dead is not ready. A ready item needs a member that is connected, that accepts its QoS, that has
room, and that the queue's policy chooses. Then the items before it go first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from edge.features.queues.rules import assignment
from edge.features.queues.rules.assignment import Policy, ReadyItem


class Reason(Enum):
    """Reason why an item does not move; the values appear in JSON and in ad-hoc commands."""

    LOCKED = "locked"  # a member has locked it
    DELAYED = "delayed"  # it was published with a delay
    HELD = "aside"  # no connected member may subscribe to the node that it was published to
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
    """A member of a queue: a subscription of a JID with the full JIDs of its connected sessions.

    `accepts_qos` says whether a session accepts messages at the subscription's QoS, `outbox_full`
    whether the outbox of its account has no room, and `too_many_bytes` whether its items have so
    many bytes that it gets no more.
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
    """The members of a queue and how the next one is chosen: see `assignment.assign`.

    `known` is false in a process that cannot see which members are connected.
    """

    states: Sequence[MemberState]
    known: bool
    policy: Policy = Policy.LEAST_LOADED
    favourite: int | None = None
    slot_owners: Mapping[int, int] = {}


class ItemState(NamedTuple):
    """State of an item: ready, delayed, locked or dead.

    `before` counts the ready items that go before it; `avoid` is the full JID that gave it back.
    `due` and `expires` are service seconds; a delayed item without `due` is held.
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
    """Return why an item does not move at `now`, in service seconds."""
    if item.state in _NOT_READY:
        return _NOT_READY[item.state]
    if item.state == "delayed":
        return Reason.HELD if item.due is None else Reason.DELAYED
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
    """Return whether the item would be assigned if it were the first."""
    candidates = [
        assignment.Member(member.subscription, session, member.capacity, member.in_flight, 0)
        for member in able
        for session in member.sessions
    ]
    first = ReadyItem(item.row, item.publisher, item.avoid)
    policy, favourite, owners = members.policy, members.favourite, members.slot_owners
    return bool(assignment.assign([first], candidates, policy, favourite, owners))
