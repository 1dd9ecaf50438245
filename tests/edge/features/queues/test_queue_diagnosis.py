"""Reports on queues: why each item does not move, and which members are connected."""

from __future__ import annotations

import pytest

from edge.config.limits import Limits
from edge.engine.store.database import Transaction
from edge.features.queues.rules.assignment import slot_of
from edge.features.queues.rules.diagnosis import Reason
from edge.features.queues.service import diagnosis
from edge.features.queues.service.diagnosis import Moment
from edge.features.queues.store import overview, queue_items, queues
from edge.features.queues.store.overview import Attendance
from edge.features.queues.store.queue_items import Lock, NewQueuedItem
from edge.features.queues.store.queues import Queue
from tests.helpers import queue_rows
from tests.helpers.people import make_available
from tests.helpers.queue_rows import FIRST, PUBLISHER, WORKER
from tests.helpers.store import Gateway, MakeGateway

SECOND = "second@gw.example/b"


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    return make_gateway(accounts_of=("olga", "worker", "second", "third", "pump1"))


def diagnose(
    gateway: Gateway, item: str, attendance: list[Attendance] | None = None
) -> tuple[Reason, str]:
    """Return the reason why an item of the first queue does not move, and the explanation."""

    def unit(tx: Transaction) -> tuple[Reason, str]:
        (queue,) = overview.page(tx, 0, 1)
        moment = Moment(tx.now.service, None if attendance is None else tx.now.wall)
        (one,) = diagnosis.report(tx, Limits(), queue, attendance, moment, item=item).items
        return one.reason, one.explanation

    return gateway.tx(unit)


def node(gateway: Gateway, policy: str = "least-loaded") -> None:
    gateway.tx(lambda tx: queue_rows.fill(tx, queue_rows.node(tx, policy=policy)))


def join(gateway: Gateway, jid: str = WORKER, *, takes: int = 2) -> int:
    return gateway.tx(lambda tx: queue_rows.join(tx, get_queue(tx), jid, takes=takes))


def get_queue(tx: Transaction) -> Queue:
    found = queues.get(tx, 1)
    assert found is not None
    return found


def lock(gateway: Gateway, item: str, subscription: int, holder: str) -> None:
    def unit(tx: Transaction) -> None:
        found = queue_items.find(tx, 1, item)
        assert found is not None
        queue_items.lock(tx, get_queue(tx), found, Lock(subscription, holder, tx.now.service + 60))

    gateway.tx(unit)


def attend(
    subscription: int, session: str = FIRST, in_flight: int = 0, **flags: bool
) -> Attendance:
    all_flags = {"accepts_qos": True, "outbox_full": False, "too_many_bytes": False} | flags
    return Attendance(subscription, session, in_flight, **all_flags)


def test_a_locked_item_names_its_holder_and_times(gateway: Gateway) -> None:
    node(gateway)
    gateway.clock.service += 20.0
    assert diagnose(gateway, "held", []) == (
        Reason.LOCKED,
        f"delivered to {FIRST} 2025-10-09T09:10:00Z (20 s ago), the lock ends"
        " 2025-10-09T09:11:00Z (in 40 s); delivery 1 of 5",
    )
    without_gateway = f"delivered to {FIRST} 20 s ago, the lock ends in 40 s; delivery 1 of 5"
    assert diagnose(gateway, "held") == (Reason.LOCKED, without_gateway)


def test_delayed_dead_and_expired_items_name_the_time_or_the_reason(gateway: Gateway) -> None:
    node(gateway)
    reason, text = diagnose(gateway, "late", [])
    assert reason is Reason.DELAYED
    assert text.endswith("ready 2025-10-09T09:10:30Z (in 30 s)")
    assert diagnose(gateway, "bad", []) == (Reason.DEAD, "dead: given out 5 times")
    gateway.tx(lambda tx: tx.run("UPDATE queue_items SET expires = 999.0 WHERE item = 'one'"))
    assert diagnose(gateway, "one", [])[1].endswith("2025-10-09T09:09:59Z (1 s ago)")


def test_members_that_are_not_connected_are_named(gateway: Gateway) -> None:
    node(gateway)
    assert diagnose(gateway, "one", [])[0] is Reason.NO_MEMBER
    join(gateway)
    reason, text = diagnose(gateway, "one", [])
    assert (reason, text.partition(": ")[2]) == (Reason.NOT_CONNECTED, WORKER)
    reason, text = diagnose(gateway, "one")
    assert (reason, text.partition(": ")[2]) == (Reason.UNKNOWN, WORKER)
    for number in range(4):
        join(gateway, f"second@gw.example/{number}")
    names = ", ".join([WORKER, *(f"second@gw.example/{number}" for number in range(3))])
    assert diagnose(gateway, "one", [])[1].endswith(f": {names} and 1 more")


def test_the_load_of_full_members_is_named(gateway: Gateway) -> None:
    node(gateway)
    busy, free = join(gateway, takes=1), join(gateway, SECOND, takes=2)
    lock(gateway, "one", busy, FIRST)
    attendance = [attend(busy, in_flight=1), attend(free, SECOND)]
    assert diagnose(gateway, "two", attendance)[0] is Reason.NEXT
    reason, text = diagnose(gateway, "two", attendance[:1])
    assert (reason, text.partition(": ")[2]) == (Reason.NO_ROOM, f"{FIRST} has 1 of 1 items")


def test_the_member_that_gave_an_item_back_is_named(gateway: Gateway) -> None:
    node(gateway)
    busy, free = join(gateway, takes=1), join(gateway, SECOND)
    lock(gateway, "one", busy, FIRST)
    gateway.tx(lambda tx: tx.run("UPDATE queue_items SET holder = ? WHERE item = 'two'", (SECOND,)))
    attendance = [attend(busy, in_flight=1), attend(free, SECOND)]
    assert diagnose(gateway, "two", attendance) == (
        Reason.GIVEN_BACK,
        f"{SECOND} gave the item back; another member must have room: {FIRST} has 1 of 1 items",
    )


def test_items_before_an_item_are_counted(gateway: Gateway) -> None:
    node(gateway)
    member = join(gateway)
    reason, text = diagnose(gateway, "two", [attend(member)])
    assert reason is Reason.BEHIND_OTHERS
    assert text.endswith("; 1 ready item before it in the queue")
    new = NewQueuedItem("work", "x", PUBLISHER, b"", priority=1)
    gateway.tx(lambda tx: queue_items.enqueue(tx, get_queue(tx), new))
    assert diagnose(gateway, "two", [])[1].endswith("; 2 ready items before it in the queue")


@pytest.mark.parametrize(
    ("flag", "reason", "name"),
    [
        ({"accepts_qos": False}, Reason.QOS_UNSUPPORTED, f"{FIRST} (QoS 2)"),
        ({"outbox_full": True}, Reason.OUTBOX_FULL, FIRST),
        ({"too_many_bytes": True}, Reason.TOO_MANY_BYTES, FIRST),
    ],
)
def test_members_of_a_share_that_get_nothing_are_named(
    gateway: Gateway, flag: dict[str, bool], reason: Reason, name: str
) -> None:
    gateway.tx(lambda tx: queue_rows.fill(tx, queue_rows.share(tx)))
    member = gateway.tx(lambda tx: queue_rows.join(tx, get_queue(tx), qos=2))
    found, text = diagnose(gateway, "one", [attend(member, FIRST, 0, **flag)])
    assert (found, text.partition(": ")[2]) == (reason, name)


def test_a_locked_item_of_a_share_is_not_acknowledged_yet(gateway: Gateway) -> None:
    gateway.tx(lambda tx: queue_rows.fill(tx, queue_rows.share(tx)))
    gateway.tx(lambda tx: tx.run("UPDATE queue_items SET until = NULL"))
    assert diagnose(gateway, "held", [])[1].endswith(", not acknowledged yet; delivery 1 of 5")


def test_the_member_that_the_policy_chooses_is_named(gateway: Gateway) -> None:
    node(gateway, "sticky")
    favourite, other = join(gateway, takes=1), join(gateway, SECOND)
    lock(gateway, "one", favourite, FIRST)
    gateway.tx(lambda tx: queues.set_favourite(tx, 1, favourite))
    attendance = [attend(favourite, in_flight=1), attend(other, SECOND)]
    assert diagnose(gateway, "two", attendance) == (
        Reason.CHOSEN_MEMBER_BUSY,
        f"all items go to {WORKER}, which has as many items as it accepts",
    )
    gateway.tx(lambda tx: tx.run("UPDATE queues SET policy = 'hash'"))
    gateway.tx(lambda tx: queue_items.assign_slots(tx, 1, by_hash=True))
    owners = gateway.tx(lambda tx: queue_items.slot_owners(tx, 1))
    assert owners[slot_of(PUBLISHER)] in (0, favourite)
    gateway.tx(lambda tx: tx.run("DELETE FROM queue_items WHERE item = 'held'"))
    reason, text = diagnose(gateway, "two", attendance)
    assert reason is Reason.CHOSEN_MEMBER_BUSY
    assert "the other items of pump1@gw.example," in text


def test_the_limit_counts_items_of_each_state(gateway: Gateway) -> None:
    node(gateway)

    def unit(tx: Transaction) -> list[tuple[str, Reason, int]]:
        queue = queue_rows.overview_of(tx, get_queue(tx))
        report = diagnosis.report(tx, Limits(), queue, [], Moment(0.0, None), limit=1)
        return [(one.item.item, one.reason, one.before) for one in report.items]

    assert gateway.tx(unit) == [
        ("held", Reason.LOCKED, 0),
        ("one", Reason.NO_MEMBER, 0),
        ("late", Reason.DELAYED, 0),
        ("bad", Reason.DEAD, 0),
    ]


def test_connected_sessions_are_bound_available_and_not_detached(gateway: Gateway) -> None:
    node(gateway)
    bare, full = join(gateway), join(gateway, SECOND)

    def attendance() -> list[Attendance]:
        return gateway.tx(lambda tx: overview.attendance(tx, 1, 10))

    assert attendance() == []
    gateway.bind(FIRST)
    gateway.bind(SECOND)
    gateway.bind("second@gw.example/c")
    assert attendance() == [attend(full, SECOND)]
    make_available(gateway, f"{WORKER}/z", 1)
    make_available(gateway, f"{WORKER}/hidden", -1)
    assert attendance() == [attend(bare, f"{WORKER}/z"), attend(full, SECOND)]
    gateway.tx(lambda tx: tx.run("UPDATE temp.sessions SET detached = 1"))
    assert attendance() == []


@pytest.mark.parametrize(
    ("qos", "announced", "downgrade", "accepts"),
    [
        (0, "", 0, True),
        (1, "", 0, False),
        (1, "urn:xmpp:qos", 0, True),
        (2, "", 1, True),
        (2, None, 1, False),
    ],
)
def test_a_session_accepts_the_qos_that_it_announces_or_that_is_downgraded(
    gateway: Gateway, qos: int, announced: str | None, downgrade: int, accepts: bool
) -> None:
    gateway.tx(lambda tx: queue_rows.join(tx, queue_rows.share(tx), FIRST, qos=qos))
    gateway.tx(lambda tx: tx.run("UPDATE accounts SET downgrade = ?", (downgrade,)))
    gateway.bind(FIRST)
    gateway.tx(lambda tx: tx.run("UPDATE temp.sessions SET qos = ?", (announced,)))
    (one,) = gateway.tx(lambda tx: overview.attendance(tx, 1, 10))
    assert (one.session, one.accepts_qos) == (FIRST, accepts)


def test_a_full_queue_is_reported_with_its_limit(gateway: Gateway) -> None:
    node(gateway)
    size = gateway.tx(lambda tx: get_queue(tx).bytes)

    def refusal(limits: Limits) -> str:
        def unit(tx: Transaction) -> str:
            queue = queue_rows.overview_of(tx, get_queue(tx))
            return diagnosis.report(tx, limits, queue, [], Moment(0.0, None)).refusal

        return gateway.tx(unit)

    room = {"items_per_queue": 6, "queue_bytes_per_queue": size * 6 // 5}
    assert refusal(Limits(**room)) == ""
    for name, value in room.items():
        text = f"no more items are accepted: the limit {name} = {value - 1} is reached"
        assert refusal(Limits(**{**room, name: value - 1})) == text
