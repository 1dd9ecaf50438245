"""The retained items that a new subscription gets, as its session has room for them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Final

import pytest

from edge.engine.dispatch.encoding import unpack
from edge.engine.dispatch.item_attributes import ItemAttributes
from edge.engine.sessions import sessions
from edge.engine.sessions.sessions import Declaration
from edge.engine.store.database import Transaction
from edge.features.outbox import rules as outbox_rules
from edge.features.outbox import service as outbox
from edge.features.outbox.service import QosRequest, RequestKind
from edge.features.pubsub.rules.subscription import QOS, DeliveryOptions, RetainHandling
from edge.features.pubsub.service import retained, subscriptions
from edge.features.pubsub.service.notifications import ItemPublished, Notification
from edge.features.pubsub.service.subscriptions import Target
from edge.features.pubsub.store import retained as store
from tests.helpers.people import PUMP, VALVE
from tests.helpers.pubsub import create, publish_content
from tests.helpers.store import Gateway, MakeGateway

RETAINED: Final = ItemAttributes("a/b", retain=True)
PLAIN: Final = ItemAttributes("a/b", retain=False)
IDS: Final = 65_535
NUMBERED: Final = Declaration(
    "urn:x", adopts=False, resends=False, ordered=True, window=100, ids=IDS, durable=1000.0
)
"""The declaration of a session of MQTT."""

LEVELS = pytest.mark.parametrize("qos", [0, 1])


@pytest.fixture
def gateway(build: MakeGateway) -> Gateway:
    """A gateway that sends at most 4 retained items at a time."""
    gateway = build(last_items=4)
    connect(gateway)
    return gateway


def connect(gateway: Gateway, full: str = VALVE) -> None:
    gateway.bind(full, NUMBERED)

    def act(tx: Transaction) -> None:
        sender, context = sessions.sender(tx, gateway.generation(full)), gateway.router.context
        assert sender is not None
        sessions.set_available(context, tx, sender, accepts=False)
        sessions.run_ready_hooks(context, tx, sender)

    gateway.commit(act)


def retain(gateway: Gateway, names: Iterable[str], payload: bytes = b"kept") -> None:
    for name in names:
        publish_content(gateway, PUMP, f"auto/{name}", payload, RETAINED)


def subscribe(gateway: Gateway, filter: str = "auto/#", qos: int = 0, full: str = VALVE) -> None:
    delivery = DeliveryOptions(retain_handling=RetainHandling.ALWAYS, only_items=True)

    def act(tx: Transaction) -> None:
        sender, context = sessions.sender(tx, gateway.generation(full)), gateway.router.context
        assert sender is not None
        target, values = Target(filter, None, filter), {QOS: [str(qos)]}
        subscriptions.subscribe(
            context, tx, sender, target, full, values, f"{full} {filter}", delivery
        )

    gateway.commit(act)


def unsubscribe(gateway: Gateway, filter: str = "auto/#") -> None:
    def act(tx: Transaction) -> None:
        sender, context = sessions.sender(tx, gateway.generation(VALVE)), gateway.router.context
        assert sender is not None
        subscriptions.unsubscribe(context, tx, sender, Target(filter, None, filter), VALVE)

    gateway.commit(act)


def read(gateway: Gateway, *, answers: bool = True, full: str = VALVE) -> list[tuple[str, bytes]]:
    """Return the items that the session was sent since the last call, by name and payload, and
    acknowledge or answer them."""
    found, answered = [], []
    for send in gateway.sends(full):
        message = send.message
        if isinstance(message, QosRequest):
            answered.append(message.row)
            assert message.content is not None
            message = unpack(gateway.router.context, message.content)
        elif answers and send.receipt is not None:
            gateway.acknowledge(full, send.receipt)
        assert isinstance(message, Notification)
        assert isinstance(message.event, ItemPublished)
        assert message.event.retain == (message.event.payload == b"kept")
        found.append((message.event.node.removeprefix("auto/"), message.event.payload))
    for row in answered if answers else ():
        answer(gateway, row)
    return found


def answer(gateway: Gateway, row: int) -> None:
    def act(tx: Transaction) -> None:
        sender, context = sessions.sender(tx, gateway.generation(VALVE)), gateway.router.context
        assert sender is not None
        id = outbox_rules.message_id(row, IDS)
        assert outbox.handle_answer_by_id(context, tx, sender, RequestKind.ACKNOWLEDGED, id)

    gateway.commit(act)


def read_all(gateway: Gateway) -> list[str]:
    found = []
    while part := read(gateway):
        assert len(part) <= 4
        found += [name for name, _payload in part]
    return found


def is_finished(gateway: Gateway) -> bool:
    return bool(gateway.count("SELECT count(*) FROM retained_progress") == 0)


@LEVELS
def test_the_next_part_follows_when_the_session_has_read_the_last(
    gateway: Gateway, qos: int
) -> None:
    names = [f"{number:02d}" for number in range(11)]
    retain(gateway, reversed(names))
    subscribe(gateway, qos=qos)
    assert [name for name, _ in read(gateway, answers=False)] == names[:4]
    gateway.run_timers()
    assert read(gateway) == []
    assert gateway.count("SELECT count(*) FROM outbox") == 4 * qos
    assert not is_finished(gateway)


@LEVELS
def test_all_are_sent_once(gateway: Gateway, qos: int) -> None:
    names = [f"{number:02d}" for number in range(11)]
    retain(gateway, reversed(names))
    subscribe(gateway, qos=qos)
    assert read_all(gateway) == names
    assert is_finished(gateway)
    gateway.run_timers()
    assert read(gateway) == []


@pytest.mark.parametrize(
    ("filter", "matched"),
    [
        ("auto/#", ["", "a", "a/b", "a/b/c", "ab"]),
        ("auto/a/#", ["a", "a/b", "a/b/c"]),
        ("auto/a", ["a"]),
        ("auto/+", ["", "a", "ab"]),
        ("auto/+/b", ["a/b"]),
        ("+/a/+/c", ["a/b/c"]),
        ("auto/none", []),
        ("auto/zz/#", []),
    ],
)
def test_those_that_the_filter_matches_are_sent(
    gateway: Gateway, filter: str, matched: list[str]
) -> None:
    retain(gateway, ["a/b/c", "ab", "a", "", "a/b"])
    publish_content(gateway, PUMP, "plant/energy", b"kept", RETAINED)
    subscribe(gateway, filter)
    assert read_all(gateway) == matched


def test_many_nodes_are_read_in_several_units_of_work(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retained, "SCANNED", 3)
    retain(gateway, [f"{number:02d}" for number in range(9)])
    retain(gateway, ["99/x"])
    subscribe(gateway, "auto/+/x")
    for _ in range(3):
        assert read(gateway) == []
        gateway.run_timers()
    assert read_all(gateway) == ["99/x"]
    assert is_finished(gateway)


def test_many_filters_of_a_session_do_not_each_read_nodes(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retained, "SCANNED", 3)
    retain(gateway, [f"{number:02d}/x" for number in range(9)])
    subscribe(gateway, "auto/+/y")
    statements: list[str] = []
    gateway.connection.set_trace_callback(statements.append)
    subscribe(gateway, "auto/+/x")
    gateway.connection.set_trace_callback(None)
    assert not [text for text in statements if "items > 0 ORDER BY name" in text]


def test_sessions_share_the_nodes_that_a_unit_of_work_reads(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many sessions subscribe to however many filters, others wait for a few nodes."""
    monkeypatch.setattr(retained, "SCANNED", 3)
    names = [f"{number:02d}/x" for number in range(12)]
    retain(gateway, names)
    full = [VALVE, *(f"meter{number}@gw.example/fw" for number in range(3))]
    for each in full[1:]:
        gateway.add(each.partition("@")[0])
    full.append("meter0@gw.example/second")
    for each in full[1:]:
        connect(gateway, each)
    filters = ("auto/+/y", "auto/+/x")
    for each in full:
        for filter in filters:
            subscribe(gateway, filter, full=each)
    found: dict[str, list[str]] = {each: [] for each in full}
    began: dict[str, int] = {}
    for round in range(100):
        statements: list[str] = []
        gateway.connection.set_trace_callback(statements.append)
        gateway.run_timers()
        gateway.connection.set_trace_callback(None)
        assert len(statements) < 60
        for each in full:
            if items := read(gateway, full=each):
                began.setdefault(each, round)
                found[each] += [name for name, _ in items]
    assert is_finished(gateway)
    late = max(began.values()) - min(began.values())
    assert late < 2 * len(full)  # the accounts take turns
    assert list(found.values()) == [names] * len(full)


def test_sessions_that_wait_do_not_wake_the_timer(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retained, "SCANNED", 2)
    retain(gateway, [f"{number:02d}" for number in range(9)])
    full = [VALVE, *(f"meter{number}@gw.example/fw" for number in range(5))]
    for each in full[1:]:
        gateway.add(each.partition("@")[0])
        connect(gateway, each)
    for each in full:
        subscribe(gateway, full=each)
    for _ in full:  # each has its first items, and reads none
        gateway.run_timers()
    assert not is_finished(gateway)
    assert gateway.due is None or gateway.due > gateway.clock.service


def test_bytes_are_limited_too(build: MakeGateway) -> None:
    gateway = build(unacknowledged_bytes=65_536)
    connect(gateway)
    for name in "abc":
        publish_content(gateway, PUMP, f"auto/{name}", b"x" * 9000, RETAINED)
    subscribe(gateway)
    assert len(gateway.sends(VALVE)) == 2


@LEVELS
def test_an_older_retained_item_does_not_overtake_a_newer_item(gateway: Gateway, qos: int) -> None:
    retain(gateway, "abcdefgh")
    subscribe(gateway, qos=qos)
    first = read(gateway, answers=False)
    publish_content(gateway, PUMP, "auto/g", b"live", PLAIN)  # the retained one is sent first
    publish_content(gateway, PUMP, "auto/g", b"live", PLAIN)
    publish_content(gateway, PUMP, "auto/a", b"live", PLAIN)  # was sent
    publish_content(gateway, PUMP, "auto/f", b"new", RETAINED._replace(retain=None))
    publish_content(gateway, PUMP, "auto/h", b"", RETAINED)
    live = read(gateway, answers=False)
    assert [name for name, _ in first] == list("abcd")
    assert live[:4] == [("g", b"kept"), ("g", b"live"), ("g", b"live"), ("a", b"live")]
    assert [name for name, _ in live[4:]] == ["f", "h", "h"]


def test_filters_that_are_not_read_do_not_delay_others(gateway: Gateway) -> None:
    """The cost of a publication does not grow with the subscriptions that wait for its topic."""
    retain(gateway, ["a/b/c/d/e"])
    counts = []
    for levels in product(*((level, "+") for level in "abcde")):
        subscribe(gateway, "/".join(("+", *levels)))
        retain(gateway, ["a/b/c/d/e"])
        statements: list[str] = []
        gateway.connection.set_trace_callback(statements.append)
        retain(gateway, ["a/b/c/d/e"])
        gateway.connection.set_trace_callback(None)
        counts.append(len(statements))
    assert counts[-1] == counts[1]


def test_the_rest_is_sent_once(gateway: Gateway) -> None:
    retain(gateway, "abcdefgh")
    subscribe(gateway)
    first = gateway.sends(VALVE)
    publish_content(gateway, PUMP, "auto/g", b"live", PLAIN)
    publish_content(gateway, PUMP, "auto/f", b"live", RETAINED)
    publish_content(gateway, PUMP, "auto/i", b"live", RETAINED)
    read(gateway)
    for send in first:
        assert send.receipt is not None
        gateway.acknowledge(VALVE, send.receipt)
    assert read_all(gateway) == ["e", "h"]


def test_an_item_that_expires_or_is_deleted_meanwhile_is_not_sent(gateway: Gateway) -> None:
    retain(gateway, "abcd")
    publish_content(gateway, PUMP, "auto/e", b"kept", RETAINED._replace(expiry=5))
    retain(gateway, "fg")
    subscribe(gateway)
    first = gateway.sends(VALVE)
    publish_content(gateway, PUMP, "auto/f", b"", RETAINED)
    assert read(gateway) == [("f", b"kept"), ("f", b"")]
    gateway.clock.service += 5
    for send in first:
        assert send.receipt is not None
        gateway.acknowledge(VALVE, send.receipt)
    assert read_all(gateway) == ["g"]


def test_a_session_without_the_right_gets_nothing(gateway: Gateway) -> None:
    create(gateway, PUMP, "auto/closed", access_model="whitelist")
    retain(gateway, ["closed", "open"])
    subscribe(gateway)
    assert read_all(gateway) == ["open"]


@LEVELS
def test_a_durable_session_gets_the_rest_when_it_returns(gateway: Gateway, qos: int) -> None:
    names = [f"{number:02d}" for number in range(11)]
    retain(gateway, names)
    subscribe(gateway, qos=qos)
    assert len(read(gateway)) == 4
    read(gateway, answers=False)
    gateway.crash()  # what is not read is sent again at QoS 1, and lost at QoS 0
    connect(gateway)
    assert read_all(gateway) == names[4 if qos else 8 :]


def test_nothing_overtakes_while_a_durable_session_is_away(gateway: Gateway) -> None:
    retain(gateway, "abcdefgh")
    subscribe(gateway, qos=1)
    read(gateway, answers=False)
    gateway.end(VALVE)
    publish_content(gateway, PUMP, "auto/g", b"live", PLAIN)
    connect(gateway)
    found = []
    while part := read(gateway):
        found += part
    assert [payload for name, payload in found if name == "g"] == [b"kept", b"live"]
    assert sorted(name for name, payload in found if payload == b"kept") == list("abcdefgh")


def test_a_new_request_begins_again_and_the_end_of_the_subscription_ends_it(
    gateway: Gateway,
) -> None:
    names = [f"{number:02d}" for number in range(6)]
    retain(gateway, names)
    subscribe(gateway)
    read(gateway)
    subscribe(gateway)
    read_all(gateway)
    subscribe(gateway)
    assert len(read(gateway, answers=False)) == 4
    unsubscribe(gateway)
    assert is_finished(gateway)
    gateway.run_timers()
    assert read(gateway) == []


def test_subscriptions_of_a_session_share_its_room(gateway: Gateway) -> None:
    retain(gateway, [f"{number}/a" for number in range(6)])
    subscribe(gateway, "auto/+/a")
    subscribe(gateway, "auto/#")
    assert len(read(gateway, answers=False)) == 4


def test_subscribing_does_not_read_the_subscriptions_of_others(gateway: Gateway) -> None:
    plan = gateway.connection.execute(f"EXPLAIN QUERY PLAN {store._PENDING}").fetchall()
    assert [step.partition(" USING ")[0] for *_, step in plan] == ["SCAN r", "SEARCH s"]


def test_a_full_outbox_delays_the_rest(build: MakeGateway) -> None:
    gateway = build(outbox_messages_per_account=8, last_items=100)
    connect(gateway)
    names = [f"{number:02d}" for number in range(12)]
    retain(gateway, names)
    subscribe(gateway, qos=1)
    found = read(gateway)
    assert 0 < len(found) < 12
    assert [name for name, _ in found] + read_all_after(gateway) == names
    assert gateway.events("system", "outbox_messages_per_account") == []


def read_all_after(gateway: Gateway) -> list[str]:
    gateway.clock.service += retained.RETRY
    gateway.run_timers()
    return [name for name, _ in read(gateway)] + [name for name, _ in read(gateway)]


def test_the_progress_in_memory_is_that_of_the_rows(gateway: Gateway) -> None:
    def in_memory(tx: Transaction) -> list[tuple[str, int]]:
        found = store.of_account(tx, account)
        assert store.accounts(tx) == ([account] if found else [])
        assert all(store.is_pending(tx, number) for _jid, number in found)
        return [*found]

    account = VALVE.partition("@")[0]
    retain(gateway, (f"{number}" for number in range(9)))
    filters = ("auto/+", "auto/#", "+/#", "auto/8", "none/#")
    lengths = []
    for number, filter in enumerate((*filters, *reversed(filters), *filters[1:], filters[0])):
        if number < 2 * len(filters):
            subscribe(gateway, filter)
        else:
            unsubscribe(gateway, filter)
        read(gateway)
        found = gateway.commit(in_memory)
        gateway.commit(lambda tx: tx.cache.clear())
        assert found == gateway.commit(in_memory)
        lengths.append(len(found))
    assert max(lengths) > 1
    assert lengths[-1] == 0
