"""Why an item of a queue does not move, as data: one reason, and what belongs to it.

The order of the tests is the order in which the engine is held up: an item that is locked, delayed
or dead is not in line; one in line needs a member, that is there, that takes its level, that has
room, and that its queue's choice names; and then those before it go first. What the engine does is
`rules.queue`'s, and asked there. The sentences are not made here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from edge.features.queues.rules import assignment as engine
from edge.features.queues.rules.assignment import Choice, Member, Waiting


class Why(Enum):
    """What holds an item up."""

    LOCKED = "a member works on it"
    DELAYED = "it was published for later"
    ASIDE = "no member that is there may have what was published to its node"
    DEAD = "it is dead"
    EXPIRED = "its time to live is over"
    NO_MEMBER = "nobody is subscribed"
    NOT_KNOWN = "who is there is not known"
    NOBODY_THERE = "no member is there"
    UNABLE = "no member that is there takes items at its level"
    FULL = "every member that is there has as many items as it takes"
    STALLED = "members that have room wait for it in the outboxes of their accounts"
    LADEN = "members that have room have too many bytes of items"
    GIVEN_BACK = "it was given back, and others have as many items as they take"
    BOUND = "the member that it is for has as many items as it takes, or is away with some"
    BEHIND = "others go first"
    NEXT = "nothing"


class Seat(NamedTuple):
    """A member as an explanation sees it: a subscription, with a session of it or with none.

    `jid` is what was subscribed, `sessions` the full JIDs by which it is there, `able` whether one
    of them takes items at the member's level, `stalled` whether the outbox of its account has no
    room for what it would get, `laden` whether it has so many bytes of items that it gets no more.
    """

    subscription: int
    jid: str
    capacity: int
    in_flight: int
    sessions: tuple[str, ...] = ()
    able: bool = True
    stalled: bool = False
    laden: bool = False

    @property
    def free(self) -> bool:
        """Whether it has room for one more."""
        return self.in_flight < self.capacity


class Members(NamedTuple):
    """The members of a queue, and how the next is chosen: see `rules.queue.assign`.

    `known` says whether it is known who is there: a process that is not the gateway's does not
    know by itself.
    """

    seats: Sequence[Seat]
    known: bool
    choice: Choice = Choice.LEAST_LOADED
    favourite: int | None = None
    bound: Mapping[int, int] = {}


class Standing(NamedTuple):
    """An item as it stands: `state` is ready, delayed, locked or dead; `before` are those that go
    before it in line, `avoid` is the full JID that gave it back. `due` and `expires` are in service
    seconds: what is delayed and never due stands aside."""

    row: int
    state: str
    publisher: str
    before: int = 0
    avoid: str | None = None
    due: float | None = None
    expires: float | None = None


_OUT_OF_LINE = {"locked": Why.LOCKED, "dead": Why.DEAD}


def why(item: Standing, members: Members, now: float) -> Why:
    """Return what holds an item up at `now`, in service seconds."""
    if item.state in _OUT_OF_LINE:
        return _OUT_OF_LINE[item.state]
    if item.state == "delayed":
        return Why.ASIDE if item.due is None else Why.DELAYED
    if item.expires is not None and item.expires <= now:
        return Why.EXPIRED
    if not members.seats:
        return Why.NO_MEMBER
    if not members.known:
        return Why.NOT_KNOWN
    return _in_line(item, members)


def _in_line(item: Standing, members: Members) -> Why:
    there = [seat for seat in members.seats if seat.sessions]
    if not there:
        return Why.NOBODY_THERE
    able = [seat for seat in there if seat.able]
    if not able:
        return Why.UNABLE
    free = [seat for seat in able if seat.free]
    if not free:
        return Why.FULL
    if all(seat.stalled or seat.laden for seat in free):
        return Why.STALLED if any(seat.stalled for seat in free) else Why.LADEN
    if not _would_go(item, able, members):
        return Why.GIVEN_BACK if _would_go(item._replace(avoid=None), able, members) else Why.BOUND
    return Why.BEHIND if item.before else Why.NEXT


def _would_go(item: Standing, able: Sequence[Seat], members: Members) -> bool:
    """Tell whether the engine had a member for the item, if it were the first in line."""
    there = [
        Member(seat.subscription, session, seat.capacity, seat.in_flight, 0)
        for seat in able
        for session in seat.sessions
    ]
    first = Waiting(item.row, item.publisher, item.avoid)
    return bool(engine.assign([first], there, members.choice, members.favourite, members.bound))
