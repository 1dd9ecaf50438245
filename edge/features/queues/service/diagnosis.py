"""Report on a queue: its counts, its members, the reason why each item is not delivered, and why it
accepts no more items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from edge.config.limits import Limits
from edge.engine.rules.quota import ExceededLimit
from edge.engine.store.database import Transaction
from edge.features.pubsub.rules.node_config import QueuePolicy
from edge.features.queues.rules import diagnosis
from edge.features.queues.rules.diagnosis import ItemState, Members, MemberState, Reason
from edge.features.queues.service.queue_registry import exceeded_of_queue
from edge.features.queues.store import overview, queue_items
from edge.features.queues.store.overview import Attendance, Overview, Subscriber
from edge.features.queues.store.queue_items import QueuedItem
from sync.common.text import listing, plural, utc_time

MAX_MEMBERS: Final = 1000
"""Maximum number of members, and of their sessions, in a report on a queue."""

MAX_ITEMS: Final = 20
"""Default maximum number of items in each state in a report."""

MAX_NAMES: Final = 4
"""Maximum number of members that an explanation names; it gives the number of the rest."""

STATES: Final = ("locked", "ready", "delayed", "dead")


class Moment(NamedTuple):
    """The time of a report, in service seconds and in ms since 1970 UTC.

    `wall` is `None` if the gateway does not run, because service seconds then have no known date.
    """

    service: float
    wall: int | None


class DiagnosedItem(NamedTuple):
    """An item, why it is not delivered, and how many ready items are delivered before it."""

    item: QueuedItem
    reason: Reason
    before: int
    explanation: str


class Report(NamedTuple):
    """Report on a queue.

    `attendance` is `None` if the connected members are not known. `full` is the limit of the queue
    that one more item of the average size would exceed, if any.
    """

    queue: Overview
    members: list[Subscriber]
    attendance: list[Attendance] | None
    items: list[DiagnosedItem]
    moment: Moment
    full: ExceededLimit | None

    @property
    def refusal(self) -> str:
        """Why the queue accepts no more items, for people; empty if it does."""
        return "" if self.full is None else f"no more items are accepted: {self.full.text}"

    def sessions(self, member: Subscriber) -> list[str] | None:
        """Return the full JIDs of a member's connected sessions, or `None` without `attendance`."""
        if self.attendance is None:
            return None
        found = self.attendance
        return [one.session for one in found if one.subscription == member.subscription]


def running_report(
    tx: Transaction,
    limits: Limits,
    queue: Overview,
    *,
    item: str | None = None,
    limit: int = MAX_ITEMS,
) -> Report:
    """Return a report on a queue; to be called in the running gateway only."""
    attendance = overview.attendance(tx, queue.id, MAX_MEMBERS)
    moment = Moment(tx.now.service, tx.now.wall)
    return report(tx, limits, queue, attendance, moment, item=item, limit=limit)


def first_items(
    tx: Transaction, limits: Limits, attendances: Mapping[int, list[Attendance] | None]
) -> Iterator[Report]:
    """Yield a report on each queue with the first item of each state.

    `attendances` has, by the number of each queue, the connected sessions of its members, or `None`
    if they are not known. Queues that do not exist any more are left out.
    """
    moment = Moment(tx.now.service, tx.now.wall)
    for number, attendance in attendances.items():
        queue = overview.numbered(tx, number)
        if queue is not None:
            yield report(tx, limits, queue, attendance, moment, limit=1)


def report(
    tx: Transaction,
    limits: Limits,
    queue: Overview,
    attendance: list[Attendance] | None,
    moment: Moment,
    *,
    item: str | None = None,
    limit: int = MAX_ITEMS,
) -> Report:
    """Return a report on a queue.

    Args:
        attendance: the connected sessions of the members; `None` if they are not known.
        item: an ItemID; if given, only items with this ItemID are reported.
        limit: the maximum number of items in each state.
    """
    members = _counted(overview.subscribers(tx, queue.id, MAX_MEMBERS), attendance or ())
    explainer = _Explainer(queue, members, _members(tx, queue, members, attendance), moment)
    items = []
    for found, known_before in _items(tx, queue, item, limit):
        before = overview.count_before(tx, found) if known_before is None else known_before
        items.append(explainer.diagnose(found, before))
    average = queue.bytes // max(queue.items, 1)
    full = exceeded_of_queue(limits, queue.items, queue.bytes, 1, average)
    return Report(queue, members, attendance, items, moment, full)


def _items(
    tx: Transaction, queue: Overview, item: str | None, limit: int
) -> Iterable[tuple[QueuedItem, int | None]]:
    """Yield the items to report, each with the number of ready items before it, or `None` if these
    have not been counted yet."""
    if item is not None:
        for found in overview.items_named(tx, queue.id, item, limit):
            yield found, None if found.state == "ready" else 0
        return
    for state in STATES:
        for place, found in enumerate(overview.items_in_state(tx, queue.id, state, limit)):
            yield found, place if state == "ready" else 0


def _counted(members: Iterable[Subscriber], attendance: Iterable[Attendance]) -> list[Subscriber]:
    """Return the members with the numbers of in-flight items from `attendance`, which include QoS 0
    items that have left the queue but have not been acknowledged."""
    in_flight = {one.subscription: one.in_flight for one in attendance}
    return [
        member._replace(in_flight=in_flight.get(member.subscription, member.in_flight))
        for member in members
    ]


def _members(
    tx: Transaction,
    queue: Overview,
    members: Sequence[Subscriber],
    attendance: list[Attendance] | None,
) -> Members:
    connected: dict[int, list[Attendance]] = {}
    for one in attendance or ():
        connected.setdefault(one.subscription, []).append(one)
    states = [_state(member, connected.get(member.subscription, [])) for member in members]
    policy = QueuePolicy(queue.policy)
    owners = queue_items.slot_owners(tx, queue.id) if policy is QueuePolicy.HASH else {}
    return Members(states, attendance is not None, policy, queue.favourite, owners)


def _state(member: Subscriber, connected: Sequence[Attendance]) -> MemberState:
    able = [one.session for one in connected if one.accepts_qos]
    return MemberState(
        member.subscription,
        member.jid,
        member.requests,
        member.in_flight,
        tuple(able or [one.session for one in connected]),
        accepts_qos=bool(able),
        outbox_full=any(one.outbox_full for one in connected),
        too_many_bytes=any(one.too_many_bytes for one in connected),
    )


class _Explainer:
    """Words for each reason why an item of a queue is not delivered."""

    def __init__(
        self, queue: Overview, subscribers: Sequence[Subscriber], members: Members, moment: Moment
    ) -> None:
        self._queue = queue
        self._members = members
        self._moment = moment
        qos = {member.subscription: member.qos for member in subscribers}
        jids = _names([member.jid for member in members.states])
        connected = [member for member in members.states if member.sessions]
        levels = _names([f"{m.sessions[0]} (QoS {qos[m.subscription]})" for m in connected])
        loads = _names([_load(member) for member in connected if member.accepts_qos])
        stalled = _names([member.sessions[0] for member in connected if member.outbox_full])
        laden = _names([member.sessions[0] for member in connected if member.too_many_bytes])
        self._explanations: dict[Reason, Callable[[QueuedItem], str]] = {
            Reason.LOCKED: self._locked,
            Reason.DELAYED: lambda item: f"delayed: ready {self._at(item.due)}",
            Reason.WITHHELD: lambda item: f"no connected member may subscribe to {item.node}",
            Reason.DEAD: lambda item: f"dead: {item.reason}",
            Reason.EXPIRED: lambda item: f"the time to live ended {self._at(item.expires)}",
            Reason.NO_MEMBER: lambda _item: "the queue has no subscribers",
            Reason.UNKNOWN: lambda _item: (
                f"it is not known which of the subscribers are connected: {jids}"
            ),
            Reason.NOT_CONNECTED: lambda _item: f"no subscriber is connected: {jids}",
            Reason.QOS_UNSUPPORTED: lambda _item: (
                f"no connected member has announced support for its subscription's QoS: {levels}"
            ),
            Reason.NO_ROOM: lambda _item: (
                f"each connected member has as many items as it accepts: {loads}"
            ),
            Reason.OUTBOX_FULL: lambda _item: (
                f"the outboxes of the members with room are full: {stalled}"
            ),
            Reason.TOO_MANY_BYTES: lambda _item: (
                f"the items of these members have reached the limit unacknowledged_bytes: {laden}"
            ),
            Reason.GIVEN_BACK: self._given_back,
            Reason.CHOSEN_MEMBER_BUSY: self._chosen_member_busy,
            Reason.BEHIND_OTHERS: lambda _item: "members have room, but other items go first",
            Reason.NEXT: lambda _item: "nothing blocks the item: it is delivered next",
        }

    def diagnose(self, item: QueuedItem, before: int) -> DiagnosedItem:
        state = ItemState(
            item.row, item.state, item.publisher, before, item.holder, item.due, item.expires
        )
        reason = diagnosis.diagnose(state, self._members, self._moment.service)
        explanation = self._explanations[reason](item)
        if before:
            explanation += f"; {plural(before, 'ready item')} before it in the queue"
        return DiagnosedItem(item, reason, before, explanation)

    def _locked(self, item: QueuedItem) -> str:
        text = f"delivered to {item.holder} {self._at(item.locked)}"
        if item.until is not None:
            text += f", the lock ends {self._at(item.until)}"
        elif self._queue.node is None:
            text += ", not acknowledged yet"
        return f"{text}; delivery {item.deliveries} of {self._queue.max_deliveries + item.spared}"

    def _given_back(self, item: QueuedItem) -> str:
        others = [
            _load(member)
            for member in self._members.states
            if member.accepts_qos and item.holder not in member.sessions
        ]
        return f"{item.holder} gave the item back; another member must have room: {_names(others)}"

    def _chosen_member_busy(self, item: QueuedItem) -> str:
        if self._members.policy is QueuePolicy.STICKY:
            favourite = self._members.favourite
            jids = [m.jid for m in self._members.states if m.subscription == favourite]
            return f"all items go to {_names(jids)}, which has as many items as it accepts"
        publisher = item.publisher.partition("/")[0]
        return (
            f"the item must go to the member that has the other items of {publisher}, but that"
            " member has as many items as it accepts, or is not connected"
        )

    def _at(self, service: float | None) -> str:
        """Format a service second relative to now (`in 5 s`), with its date if that is known."""
        if service is None:
            return "-"
        seconds = service - self._moment.service
        distance = f"in {seconds:.0f} s" if seconds > 0 else f"{abs(seconds):.0f} s ago"
        if self._moment.wall is None:
            return distance
        return f"{utc_time(self._moment.wall + round(seconds * 1000))} ({distance})"


def _load(member: MemberState) -> str:
    return f"{member.sessions[0]} has {member.in_flight} of {member.capacity} items"


def _names(names: Sequence[str]) -> str:
    return listing(names, MAX_NAMES)
