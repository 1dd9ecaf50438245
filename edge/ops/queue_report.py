"""A queue told: how many of what, who is a member, and why each item does not move, in a sentence.

The same is told to an operator and, by an ad-hoc command, to a node's owner. The reasons are
`rules.explaining`'s; here they become words. How those are printed, or written as XML, is not known
here.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from edge.engine.database import Transaction
from edge.features.queues.rules import diagnosis
from edge.features.queues.rules.assignment import Choice
from edge.features.queues.rules.diagnosis import Members, Seat, Standing, Why
from edge.features.queues.store import queue_slots, queue_view
from edge.features.queues.store.queue_view import Attendance, Member, Overview
from edge.features.queues.store.queues import Item

MEMBERS: Final = 1000
"""Members of a queue that are looked at, and sessions of them; as many as there may be sessions."""

ITEMS: Final = 20
"""Items of each state that are told, unless another number is asked for."""

NAMED: Final = 4
"""Members that a sentence names: the rest is a number."""

STATES: Final = ("locked", "ready", "delayed", "dead")


class Moment(NamedTuple):
    """When it is: in service seconds, and in ms since 1970 UTC, `None` where the two do not go
    together, since no gateway runs."""

    service: float
    wall: int | None


class Told(NamedTuple):
    """An item, why it does not move, how many go before it in line, and the sentence."""

    item: Item
    why: Why
    before: int
    sentence: str


class Report(NamedTuple):
    """A queue as it stands at a moment; `attending` is `None` where it is not known who is
    there."""

    queue: Overview
    members: list[Member]
    attending: list[Attendance] | None
    items: list[Told]
    moment: Moment

    def sessions(self, member: Member) -> list[str] | None:
        """Return the sessions by which a member is there, `None` if that is not known."""
        if self.attending is None:
            return None
        found = self.attending
        return [one.session for one in found if one.subscription == member.subscription]


def made(
    tx: Transaction,
    queue: Overview,
    attending: list[Attendance] | None,
    moment: Moment,
    *,
    item: str | None = None,
    most: int = ITEMS,
) -> Report:
    """Tell a queue.

    Args:
        tx: a transaction; it reads.
        queue: which.
        attending: the sessions by which its members are there, `None` if that is not known.
        moment: when it is.
        item: tell the items of this ItemID alone.
        most: how many items of each state are told.
    """
    members = _counted(queue_view.members(tx, queue.id, MEMBERS), attending or ())
    teller = _Teller(queue, members, _seated(tx, queue, members, attending), moment)
    told = []
    for found, ahead in _items(tx, queue, item, most):
        before = queue_view.before(tx, found) if ahead is None else ahead
        told.append(teller.tell(found, before))
    return Report(queue, members, attending, told, moment)


def _items(
    tx: Transaction, queue: Overview, item: str | None, most: int
) -> Iterable[tuple[Item, int | None]]:
    """Yield what is to be told, with its place in line where that is known."""
    if item is not None:
        for found in queue_view.named(tx, queue.id, item, most):
            yield found, None if found.state == "ready" else 0
        return
    for state in STATES:
        for place, found in enumerate(queue_view.in_state(tx, queue.id, state, most)):
            yield found, place if state == "ready" else 0


def _counted(members: Iterable[Member], attending: Iterable[Attendance]) -> list[Member]:
    """Count what those have who are there as the gateway does: also what has left the queue, and
    is on its way."""
    found = {one.subscription: one.in_flight for one in attending}
    return [
        member._replace(in_flight=found.get(member.subscription, member.in_flight))
        for member in members
    ]


def _seated(
    tx: Transaction,
    queue: Overview,
    members: Sequence[Member],
    attending: list[Attendance] | None,
) -> Members:
    there: dict[int, list[Attendance]] = {}
    for one in attending or ():
        there.setdefault(one.subscription, []).append(one)
    seats = [_seat(member, there.get(member.subscription, [])) for member in members]
    choice = Choice(queue.policy)
    bound = queue_slots.bound(tx, queue.id) if choice is Choice.HASH else {}
    return Members(seats, attending is not None, choice, queue.favourite, bound)


def _seat(member: Member, there: Sequence[Attendance]) -> Seat:
    able = [one.session for one in there if one.able]
    sessions = tuple(able or [one.session for one in there])
    seat = Seat(member.subscription, member.jid, member.requests, member.in_flight, sessions)
    stalled, laden = (
        any(flags) for flags in ([o.stalled for o in there], [o.laden for o in there])
    )
    return seat._replace(able=bool(able), stalled=stalled, laden=laden)


class _Teller:
    """Makes the sentences of one queue."""

    def __init__(
        self, queue: Overview, members: Sequence[Member], seated: Members, moment: Moment
    ) -> None:
        self._queue = queue
        self._levels = {member.subscription: member.qos for member in members}
        self._seated = seated
        self._moment = moment
        self._sentences: dict[Why, Callable[[Item], str]] = {
            Why.LOCKED: self._locked,
            Why.DELAYED: self._delayed,
            Why.ASIDE: lambda item: f"no member that is there may have what {item.node} publishes",
            Why.DEAD: lambda item: f"it is dead: {item.reason}",
            Why.EXPIRED: lambda item: f"its time to live ended {self._at(item.expires)}",
            Why.NO_MEMBER: lambda _item: "nobody is subscribed",
            Why.NOT_KNOWN: self._not_known,
            Why.NOBODY_THERE: self._nobody_there,
            Why.UNABLE: self._unable,
            Why.FULL: self._full,
            Why.STALLED: self._stalled,
            Why.LADEN: self._laden,
            Why.GIVEN_BACK: self._given_back,
            Why.BOUND: self._bound,
            Why.BEHIND: lambda _item: "members have room, and others go first",
            Why.NEXT: lambda _item: "nothing holds it up: it goes out next",
        }

    def tell(self, item: Item, before: int) -> Told:
        standing = Standing(
            item.row, item.state, item.publisher, before, item.holder, item.due, item.expires
        )
        why = diagnosis.why(standing, self._seated, self._moment.service)
        sentence = self._sentences[why](item)
        if before:
            sentence += f"; {before} before it in line"
        return Told(item, why, before, sentence)

    def _locked(self, item: Item) -> str:
        text = f"it went to {item.holder} {self._at(item.locked)}"
        if item.until is not None:
            text += f", whose time for it ends {self._at(item.until)}"
        elif self._queue.node is None:
            text += ", which has not taken it yet"
        return f"{text}; delivery {item.deliveries} of {self._queue.max_deliveries + item.spared}"

    def _not_known(self, _item: Item) -> str:
        seats = self._seated.seats
        return f"no gateway gives it out now; subscribed: {_few([seat.jid for seat in seats])}"

    def _nobody_there(self, _item: Item) -> str:
        away = [seat.jid for seat in self._seated.seats]
        return f"no member is there; subscribed and away: {_few(away)}"

    def _unable(self, _item: Item) -> str:
        there = [
            f"{seat.sessions[0]} (level {self._levels[seat.subscription]})"
            for seat in self._seated.seats
            if seat.sessions
        ]
        return f"no member that is there takes messages at its level, or has said so: {_few(there)}"

    def _full(self, _item: Item) -> str:
        there = [
            f"{seat.sessions[0]} has {seat.in_flight} of {seat.capacity}"
            for seat in self._seated.seats
            if seat.sessions and seat.able
        ]
        return f"every member that is there has as many as it takes: {_few(there)}"

    def _stalled(self, _item: Item) -> str:
        there = [seat.sessions[0] for seat in self._seated.seats if seat.stalled]
        return f"too much waits already in the outbox of who has room: {_few(there)}"

    def _laden(self, _item: Item) -> str:
        there = [seat.sessions[0] for seat in self._seated.seats if seat.laden]
        return f"who has room for more items has too many bytes of them: {_few(there)}"

    def _given_back(self, item: Item) -> str:
        others = [
            f"{seat.sessions[0]} has {seat.in_flight} of {seat.capacity}"
            for seat in self._seated.seats
            if seat.able and item.holder not in seat.sessions
        ]
        return f"{item.holder} gave it back; it waits for another: {_few(others)}"

    def _bound(self, item: Item) -> str:
        if self._seated.choice is Choice.STICKY:
            mine = [s.jid for s in self._seated.seats if s.subscription == self._seated.favourite]
            return f"all goes to {_few(mine)}, which has as many as it takes"
        publisher = item.publisher.partition("/")[0]
        return (
            f"it goes to the member that has the others of {publisher}: that has as many as it"
            " takes, or is away with some"
        )

    def _delayed(self, item: Item) -> str:
        if item.due is None:
            return f"no member that is there may subscribe to {item.node}"
        return f"it was published for later: ready {self._at(item.due)}"

    def _at(self, service: float | None) -> str:
        """Tell a moment: by the wall clock where that is known, and how far away it is."""
        if service is None:
            return "-"
        seconds = service - self._moment.service
        distance = f"in {seconds:.0f} s" if seconds > 0 else f"{abs(seconds):.0f} s ago"
        if self._moment.wall is None:
            return distance
        return f"{stamp(self._moment.wall + round(seconds * 1000))} ({distance})"


def stamp(wall: int) -> str:
    """Write a moment, in ms since 1970 UTC, to the second."""
    moment = datetime.datetime.fromtimestamp(wall / 1000, datetime.UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _few(names: Sequence[str]) -> str:
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")
