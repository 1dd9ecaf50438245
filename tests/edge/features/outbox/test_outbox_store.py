"""The outbox and dead letter tables: loading, usage, timers, expiry, and the operator's actions."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from edge.engine.rules import quota
from edge.engine.rules.quota import Usage
from edge.engine.store.database import MessageBytes
from edge.errors import SetupError
from edge.features.custody import store as custody
from edge.features.outbox.store import dead_letters, outbox
from edge.features.outbox.store.dead_letters import DeadLetter
from edge.features.outbox.store.image import OutboxRow
from edge.features.outbox.store.outbox import OutgoingMessage
from tests.helpers.people import PUMP, VALVE, VALVE_BARE
from tests.helpers.store import Gateway, MakeGateway, digest_of

PUMP_BARE, OTHER = "pump1@gw.example", "cam@gw.example/fw"
BODY = MessageBytes(b"<message><body>x</body></message>")
LIMIT = Usage(10, 10_000)


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    return make_gateway(accounts_of=("pump1", "valve"))


def add(gateway: Gateway, source: str = PUMP_BARE, to: str = "valve", size: int = 100) -> int:
    message = source, f"{source}/fw", "m1", 2, BODY, size
    row = gateway.tx(lambda tx: outbox.add(tx, to, OutgoingMessage(*message)))
    assert row is not None
    return row


def get(gateway: Gateway, row: int) -> OutboxRow:
    found = gateway.tx(lambda tx: outbox.find(tx, row))
    assert found is not None
    return found


def save(gateway: Gateway, *rows: OutboxRow) -> None:
    for row in rows:
        gateway.tx(partial(outbox.save, row=row))


def test_message_is_read_as_it_was_added(gateway: Gateway) -> None:
    row = add(gateway)
    found = get(gateway, row)
    assert found[:7] == (row, "valve", PUMP_BARE, PUMP, "m1", 2, "queued")
    assert (found.bytes, found.since, found.due) == (100, gateway.clock.service, None)
    assert not found.deferred
    assert not gateway.tx(lambda tx: outbox.is_in_flight(tx, found))
    assert not gateway.tx(lambda tx: outbox.is_session_bound(tx, found))
    assert gateway.tx(lambda tx: outbox.content(tx, row)) == BODY


def test_row_numbers_are_never_reused(gateway: Gateway) -> None:
    first = get(gateway, add(gateway))
    gateway.tx(lambda tx: outbox.remove(tx, first))
    assert add(gateway) > first.row
    assert gateway.count("SELECT count(*) FROM outbox_bodies") == 1


def test_sendable_messages_are_sent_ones_and_the_first_of_each_source(gateway: Gateway) -> None:
    rows = [add(gateway) for _ in range(3)] + [add(gateway, f"s{n}@gw.example") for n in range(9)]
    offered = get(gateway, rows[0])._replace(state="offered", session=VALVE)
    released = get(gateway, rows[1])._replace(state="released", session="valve@gw.example/ended")
    save(gateway, offered, released)
    window = gateway.tx(lambda tx: outbox.find_sendable(tx, "valve", 2))
    assert [row.row for row in window] == [rows[0], rows[2], *rows[3:6]]
    gateway.bind("valve@gw.example/ended")
    window = gateway.tx(lambda tx: outbox.find_sendable(tx, "valve", 2))
    assert [row.row for row in window][:2] == rows[:2]
    bound = [gateway.tx(partial(outbox.is_session_bound, row=row)) for row in window[:2]]
    assert bound == [False, True]


def test_queued_messages_are_not_read_when_the_window_is_full(gateway: Gateway) -> None:
    rows = [add(gateway, f"s{n}@gw.example") for n in range(4)]
    for row, state in zip(rows[:2], ("offered", "repeated"), strict=True):
        save(gateway, get(gateway, row)._replace(state=state, session=VALVE))
    for count, expected in ((3, rows), (2, rows[:2])):
        window = gateway.tx(partial(outbox.find_sendable, account="valve", count=count))
        assert [row.row for row in window] == expected


def test_messages_in_custody_count_as_usage(gateway: Gateway) -> None:
    add(gateway)
    add(gateway, to="pump1", size=7)
    add(gateway, "cam@gw.example", size=1000)

    def hold(recipient: str | None, key: str) -> None:
        content = BODY.body, digest_of(key), quota.charge(key, BODY.body), recipient
        gateway.tx(lambda tx: custody.hold(tx, PUMP_BARE, PUMP, key, VALVE_BARE, *content))

    hold("valve", "h1")
    hold(None, "h2")
    size = quota.charge("h1", BODY.body)
    count, waiting = gateway.tx(lambda tx: outbox.usage(tx, "valve", PUMP_BARE))
    assert count == 2
    assert waiting.account == Usage(3, 1100 + size)
    assert waiting.source == Usage(3, 107 + size)
    assert waiting.total == Usage(4, 1107 + size)
    held = gateway.tx(lambda tx: custody.find(tx, PUMP_BARE, PUMP, "h1"))
    assert held is not None
    gateway.tx(lambda tx: custody.release(tx, held, 256))
    assert gateway.tx(lambda tx: outbox.usage(tx, "valve", PUMP_BARE)[1].total) == Usage(3, 1107)


def test_due_messages_come_earliest_first(gateway: Gateway) -> None:
    rows = [get(gateway, add(gateway)) for _ in range(3)]
    due = [2000.0, 1500.0, 3000.0]
    later = [row._replace(due=time) for row, time in zip(rows, due, strict=True)]
    save(gateway, *later)
    assert gateway.tx(outbox.next_due_time) == 1500.0
    gateway.clock.service = 2000.0
    assert [row.row for row in gateway.tx(outbox.find_due)] == [rows[1].row, rows[0].row]


def test_expired_messages_are_found_by_age_despite_requeued_ones(gateway: Gateway) -> None:
    old = add(gateway)
    gateway.clock.service += 100
    message = old - 1, "valve", PUMP, "m0", VALVE, BODY, 100
    assert gateway.tx(lambda tx: outbox.restore(tx, *message)) == old - 1
    assert gateway.tx(outbox.oldest_since) == gateway.clock.service - 100
    assert [row.row for row in gateway.tx(lambda tx: outbox.find_expired(tx, 100))] == [old]
    assert gateway.tx(lambda tx: outbox.find_expired(tx, 101)) == []


def test_removed_account_leaves_orphans(gateway: Gateway) -> None:
    row = add(gateway)
    gateway.count("DELETE FROM accounts WHERE name = 'valve' RETURNING 1")
    gateway.add("valve")
    assert [found.row for found in gateway.tx(outbox.find_orphans)] == [row]
    assert gateway.tx(lambda tx: outbox.find_sendable(tx, "valve", 8)) == [], (
        "the name is of a new account"
    )


# Dead letters, and the operator's actions on them


def add_dead_letter(gateway: Gateway, limit: Usage = LIMIT, **fields: Any) -> None:
    defaults: dict[str, Any] = {"state": dead_letters.FAILED, "recipient": "valve", "outbox": 7}
    dead = DeadLetter(PUMP, "m1", VALVE_BARE, 2, BODY, "why")._replace(**(defaults | fields))
    gateway.tx(lambda tx: dead_letters.add(tx, dead, limit))


def sized(size: int) -> MessageBytes:
    return MessageBytes(bytes(size))


def dead_ids(gateway: Gateway) -> list[str]:
    return [row[0] for row in gateway.connection.execute("SELECT msg_id FROM dead ORDER BY id")]


def test_dead_letters_are_limited_in_number_and_evictions_are_logged(gateway: Gateway) -> None:
    for number in range(4):
        add_dead_letter(gateway, Usage(2, 10_000), msg_id=f"m{number}")
    assert dead_ids(gateway) == ["m2", "m3"]
    names = [event.name for event in gateway.events("system")]
    assert names == ["dead", "dead", "dead", "dead_evicted", "dead", "dead_evicted"]
    evicted = gateway.events("system", "dead_evicted")
    assert [event.tags for event in evicted] == [{"msgId": "m0"}, {"msgId": "m1"}]


def test_dead_letters_are_limited_in_bytes(gateway: Gateway) -> None:
    for number in range(3):
        add_dead_letter(gateway, Usage(100, 1000), msg_id=f"m{number}", content=sized(300))
    assert dead_ids(gateway) == ["m1", "m2"]
    add_dead_letter(gateway, Usage(100, 1000), msg_id="m9", content=sized(10_000))
    assert dead_ids(gateway) == ["m9"], "one that is too large is kept alone"
    (letter,) = gateway.tx(lambda tx: dead_letters.list_page(tx, 0, 9))
    assert letter.bytes == 10_000


def test_the_texts_of_dead_letters_count_towards_the_limit(gateway: Gateway) -> None:
    """A row has several addresses, each with a resource that a device has chosen."""
    full = f"pump1@gw.example/{'é' * 500}"
    content = MessageBytes(b"", "", "t" * 8000)
    fields = {"sender": full, "destination": full, "session": full, "content": content}
    for number in range(9):
        add_dead_letter(gateway, Usage(1000, 40_000), msg_id=f"m{number}", **fields)
    assert dead_ids(gateway) == ["m6", "m7", "m8"]


@pytest.mark.parametrize(
    ("others", "own", "limit", "expected"),
    [
        ([100], [100] * 8, Usage(4, 1 << 16), {OTHER: 1, PUMP: 3}),
        ([100] * 20, [28_000] * 4, Usage(1000, 1 << 16), {OTHER: 20, PUMP: 2}),
    ],
    ids=["many", "large"],
)
def test_source_cannot_evict_dead_letters_of_others(
    gateway: Gateway, others: list[int], own: list[int], limit: Usage, expected: dict[str, int]
) -> None:
    for sender, sizes in ((OTHER, others), (PUMP, own)):
        for size in sizes:
            add_dead_letter(gateway, limit, sender=sender, content=sized(size))
    found = gateway.connection.execute("SELECT sender, count(*) FROM dead GROUP BY sender")
    assert dict(found.fetchall()) == expected


def test_largest_source_of_dead_letters_is_found_by_an_index(gateway: Gateway) -> None:
    plan = gateway.connection.execute(f"EXPLAIN QUERY PLAN {dead_letters._OLDEST}", (1, 1))
    (scan,) = [step for *_, step in plan.fetchall() if step.startswith("SCAN")]
    assert "COVERING INDEX" in scan


def requeue(gateway: Gateway, row: int = 1, *, may_repeat: bool = False) -> int:
    return gateway.tx(lambda tx: dead_letters.requeue(tx, row, may_repeat=may_repeat))


def test_dead_letters_are_listed_in_pages(gateway: Gateway) -> None:
    for _ in range(5):
        add_dead_letter(gateway)
    first = gateway.tx(lambda tx: dead_letters.list_page(tx, 0, 3))
    assert [one.row for one in first] == [1, 2, 3]
    assert [one.row for one in gateway.tx(lambda tx: dead_letters.list_page(tx, 3, 3))] == [4, 5]
    one = gateway.tx(lambda tx: dead_letters.find(tx, 4))
    assert (one.sender, one.state, one.recipient, one.outbox) == (PUMP, "failed", "valve", 7)
    assert gateway.tx(lambda tx: dead_letters.content(tx, 4)) == BODY


def test_dead_letter_in_doubt_is_requeued_as_new_on_request(gateway: Gateway) -> None:
    add_dead_letter(gateway, state=dead_letters.IN_DOUBT, session=VALVE)
    assert get(gateway, requeue(gateway, may_repeat=True)).state == "queued"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"state": "refused", "recipient": None}, "dead letter 1 was not for a device"),
        ({"recipient": "gone"}, "device 'gone' of dead letter 1 does not exist"),
        ({"state": "in doubt", "qos": 1, "session": VALVE}, "add --may-repeat"),
        ({"state": "in doubt", "session": None}, "add --may-repeat"),
    ],
)
def test_impossible_requeue_changes_nothing(
    gateway: Gateway, fields: dict[str, Any], message: str
) -> None:
    add_dead_letter(gateway, **fields)
    with pytest.raises(SetupError, match=message):
        requeue(gateway)
    assert gateway.count("SELECT count(*) FROM dead") == 1
    for table in ("outbox", "outbox_bodies"):
        assert gateway.count(f"SELECT count(*) FROM {table}") == 0  # noqa: S608 - of constants


def test_deleted_dead_letter_is_logged(gateway: Gateway) -> None:
    add_dead_letter(gateway)
    gateway.tx(lambda tx: dead_letters.delete(tx, 1))
    assert gateway.count("SELECT count(*) FROM dead") == 0
    (event,) = gateway.events("system", "dropped")
    assert event.tags == {"msgId": "m1", "destination": VALVE_BARE, "state": "failed"}
    for act in (dead_letters.delete, dead_letters.find):
        with pytest.raises(SetupError, match="dead letter 1 does not exist"):
            gateway.tx(lambda tx, act=act: act(tx, 1))  # type: ignore[misc]
