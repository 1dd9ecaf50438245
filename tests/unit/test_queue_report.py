"""The sentences that say why an item does not move, and who is there of a queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.engine.database import Transaction
from edge.features.queues.rules.assignment import slot
from edge.features.queues.rules.diagnosis import Why
from edge.features.queues.store import queue_holds, queue_slots, queue_view, queues
from edge.features.queues.store.queue_view import Attendance
from edge.features.queues.store.queues import Queue
from edge.ops import queue_report
from edge.ops.queue_report import Moment
from tests.helpers import queued
from tests.helpers.people import appear
from tests.helpers.queued import FIRST, PUBLISHER, WORKER
from tests.helpers.store import Gateway, new_database

SECOND = "second@gw.example/b"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    made = Gateway(new_database(tmp_path))
    for name in ("olga", "worker", "second", "third", "pump1"):
        made.add(name)
    yield made
    made.close()


def told(
    gateway: Gateway, item: str, attending: list[Attendance] | None = None, queue: int = 1
) -> tuple[str, str]:
    """Return the reason, and the sentence, of an item."""

    def unit(tx: Transaction) -> tuple[str, str]:
        (seen,) = queue_view.page(tx, queue - 1, 1)
        moment = Moment(tx.now.service, None if attending is None else tx.now.wall)
        report = queue_report.made(tx, seen, attending, moment, item=item)
        (one,) = report.items
        return one.why.name, one.sentence

    return gateway.tx(unit)


def node(gateway: Gateway, policy: str = "least-loaded") -> None:
    def unit(tx: Transaction) -> None:
        made = queued.node(tx, policy=policy)
        queued.fill(tx, made)

    gateway.tx(unit)


def join(gateway: Gateway, jid: str = WORKER, *, takes: int = 2) -> int:
    return gateway.tx(lambda tx: queued.join(tx, first(tx), jid, takes=takes))


def first(tx: Transaction) -> Queue:
    found = queues.get(tx, 1)
    assert found is not None
    return found


def give(gateway: Gateway, item: str, subscription: int, holder: str) -> None:
    """Let a member have an item."""

    def unit(tx: Transaction) -> None:
        found = queues.find(tx, 1, item)
        assert found is not None
        queues.lock(tx, found.row, subscription, holder, tx.now.service + 60)

    gateway.tx(unit)


def there(subscription: int, session: str = FIRST, has: int = 0, **what: bool) -> Attendance:
    flags = {"able": True, "stalled": False, "laden": False} | what
    return Attendance(subscription, session, has, **flags)


def test_a_locked_item_says_by_whom_since_when_and_until_when(gateway: Gateway) -> None:
    node(gateway)
    gateway.clock.service += 20.0
    assert told(gateway, "held", []) == (
        "LOCKED",
        f"it went to {FIRST} 2025-10-09T09:10:00Z (20 s ago), whose time for it ends"
        " 2025-10-09T09:11:00Z (in 40 s); delivery 1 of 5",
    )
    assert told(gateway, "held")[1] == (
        f"it went to {FIRST} 20 s ago, whose time for it ends in 40 s; delivery 1 of 5"
    )


def test_what_is_late_or_dead_says_until_when_and_why(gateway: Gateway) -> None:
    node(gateway)
    assert told(gateway, "late", []) == (
        "DELAYED",
        "it was published for later: ready 2025-10-09T09:10:30Z (in 30 s)",
    )
    assert told(gateway, "bad", []) == ("DEAD", "it is dead: given out 5 times")
    gateway.tx(lambda tx: tx.run("UPDATE queue_items SET expires = 999.0 WHERE item = 'one'"))
    assert told(gateway, "one", [])[1] == "its time to live ended 2025-10-09T09:09:59Z (1 s ago)"


def test_who_is_missing_is_named(gateway: Gateway) -> None:
    node(gateway)
    assert told(gateway, "one", []) == ("NO_MEMBER", "nobody is subscribed")
    join(gateway)
    assert told(gateway, "one", []) == (
        "NOBODY_THERE",
        f"no member is there; subscribed and away: {WORKER}",
    )
    assert told(gateway, "one") == (
        "NOT_KNOWN",
        f"no gateway gives it out now; subscribed: {WORKER}",
    )
    for number in range(4):
        join(gateway, f"second@gw.example/{number}")
    names = ", ".join([WORKER, *(f"second@gw.example/{number}" for number in range(3))])
    assert told(gateway, "one", [])[1].endswith(f"away: {names} and 1 more")


def test_who_has_how_many_is_told(gateway: Gateway) -> None:
    node(gateway)
    busy, able = join(gateway, takes=1), join(gateway, SECOND, takes=2)
    give(gateway, "one", busy, FIRST)
    there_now = [there(busy, has=1), there(able, SECOND)]
    assert told(gateway, "two", there_now) == (
        "NEXT",
        "nothing holds it up: it goes out next",
    )
    assert told(gateway, "two", there_now[:1]) == (
        "FULL",
        f"every member that is there has as many as it takes: {FIRST} has 1 of 1",
    )


def test_who_gave_it_back_is_told(gateway: Gateway) -> None:
    node(gateway)
    busy, free = join(gateway, takes=1), join(gateway, SECOND)
    give(gateway, "one", busy, FIRST)
    gateway.tx(lambda tx: tx.run("UPDATE queue_items SET holder = ? WHERE item = 'two'", (SECOND,)))
    assert told(gateway, "two", [there(busy, has=1), there(free, SECOND)]) == (
        "GIVEN_BACK",
        f"{SECOND} gave it back; it waits for another: {FIRST} has 1 of 1",
    )


def test_what_nobody_who_is_there_may_have_is_told(gateway: Gateway) -> None:
    gateway.tx(lambda tx: queued.fill(tx, queued.share(tx)))
    gateway.tx(lambda tx: queue_holds.set_aside(tx, 1, "work"))
    assert told(gateway, "one", []) == (
        "ASIDE",
        "no member that is there may have what work publishes",
    )


def test_how_many_go_first_is_told(gateway: Gateway) -> None:
    node(gateway)
    member = join(gateway)
    assert told(gateway, "two", [there(member)]) == (
        "BEHIND",
        "members have room, and others go first; 1 before it in line",
    )
    gateway.tx(lambda tx: queues.enqueue(tx, first(tx), "work", "x", PUBLISHER, b"", priority=1))
    assert told(gateway, "two", [])[1].endswith("; 2 before it in line")


def test_who_takes_nothing_at_its_level_is_told(gateway: Gateway) -> None:
    def share(tx: Transaction) -> int:
        made = queued.share(tx)
        queued.fill(tx, made)
        return queued.join(tx, made, qos=2)

    member = gateway.tx(share)
    assert told(gateway, "one", [there(member, able=False)]) == (
        "UNABLE",
        f"no member that is there takes messages at its level, or has said so: {FIRST} (level 2)",
    )
    assert told(gateway, "one", [there(member, stalled=True)]) == (
        "STALLED",
        f"too much waits already in the outbox of who has room: {FIRST}",
    )
    assert told(gateway, "one", [there(member, laden=True)]) == (
        "LADEN",
        f"who has room for more items has too many bytes of them: {FIRST}",
    )
    gateway.tx(lambda tx: tx.run("UPDATE queue_items SET until = NULL"))
    assert told(gateway, "held", [])[1].endswith(", which has not taken it yet; delivery 1 of 5")


def test_for_whom_an_item_waits_is_told(gateway: Gateway) -> None:
    node(gateway, "sticky")
    favourite, other = join(gateway, takes=1), join(gateway, SECOND)
    give(gateway, "one", favourite, FIRST)
    gateway.tx(lambda tx: queues.favour(tx, 1, favourite))
    attending = [there(favourite, has=1), there(other, SECOND)]
    assert told(gateway, "two", attending) == (
        "BOUND",
        f"all goes to {WORKER}, which has as many as it takes",
    )
    gateway.tx(lambda tx: tx.run("UPDATE queues SET policy = 'hash'"))
    gateway.tx(lambda tx: queue_slots.settle(tx, 1, by_hash=True))
    assert gateway.tx(lambda tx: queue_slots.bound(tx, 1))[slot(PUBLISHER)] in (0, favourite)
    gateway.tx(lambda tx: tx.run("DELETE FROM queue_items WHERE item = 'held'"))
    assert told(gateway, "two", attending) == (
        "BOUND",
        "it goes to the member that has the others of pump1@gw.example: that has as many as it"
        " takes, or is away with some",
    )


def test_so_many_items_of_each_state_are_told(gateway: Gateway) -> None:
    node(gateway)

    def unit(tx: Transaction) -> list[tuple[str, Why, int]]:
        report = queue_report.made(tx, queued.seen(tx, first(tx)), [], Moment(0.0, None), most=1)
        return [(one.item.item, one.why, one.before) for one in report.items]

    assert gateway.tx(unit) == [
        ("held", Why.LOCKED, 0),
        ("one", Why.NO_MEMBER, 0),
        ("late", Why.DELAYED, 0),
        ("bad", Why.DEAD, 0),
    ]


def test_who_is_there_is_bound_available_and_not_waiting_to_be_resumed(gateway: Gateway) -> None:
    node(gateway)
    bare, full = join(gateway), join(gateway, SECOND)

    def attending() -> list[Attendance]:
        return gateway.tx(lambda tx: queue_view.attending(tx, 1, 10))

    assert attending() == []
    gateway.bind(FIRST)
    gateway.bind(SECOND)
    gateway.bind("second@gw.example/c")
    assert attending() == [there(full, SECOND)]
    appear(gateway, f"{WORKER}/z", 1)
    appear(gateway, f"{WORKER}/hidden", -1)
    assert attending() == [there(bare, f"{WORKER}/z"), there(full, SECOND)]
    gateway.tx(lambda tx: tx.run("UPDATE temp.sessions SET detached = 1"))
    assert attending() == []


@pytest.mark.parametrize(
    ("level", "takes", "downgrade", "able"),
    [
        (0, "", 0, True),
        (1, "", 0, False),
        (1, "urn:xmpp:qos", 0, True),
        (2, "", 1, True),
        (2, None, 1, False),
    ],
)
def test_who_takes_its_level_is_known(
    gateway: Gateway, level: int, takes: str | None, downgrade: int, able: bool
) -> None:
    gateway.tx(lambda tx: queued.join(tx, queued.share(tx), FIRST, qos=level))
    gateway.tx(lambda tx: tx.run("UPDATE accounts SET downgrade = ?", (downgrade,)))
    gateway.bind(FIRST)
    gateway.tx(lambda tx: tx.run("UPDATE temp.sessions SET qos = ?", (takes,)))
    (one,) = gateway.tx(lambda tx: queue_view.attending(tx, 1, 10))
    assert (one.session, one.able) == (FIRST, able)
