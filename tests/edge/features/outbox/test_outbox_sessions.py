"""Delivery to sessions that declare other traits than XMPP's: no resends, own windows, few ids."""

from __future__ import annotations

from typing import Final

import pytest

from edge.engine.sessions import sessions
from edge.engine.sessions.sessions import DEFAULT, Declaration
from edge.engine.store.database import MessageBytes, Transaction
from edge.features.outbox import rules, service
from edge.features.outbox.service import OutgoingMessage, QosRequest, RequestKind
from edge.features.outbox.store import dead_letters
from tests.helpers.people import PUMP, VALVE
from tests.helpers.qos_devices import (
    Build,
    empty_result,
    make_eligible,
    message_xml,
    parse_request,
    received_result,
    states,
)
from tests.helpers.store import DOMAIN, QOS, Gateway, Sent

OTHER: Final = f"valve@{DOMAIN}/other"
NUMBERED: Final = Declaration(
    QOS, adopts=False, resends=False, ordered=True, window=10, ids=1000, durable=500.0
)


def connect(
    gateway: Gateway,
    declared: Declaration = NUMBERED,
    full: str = VALVE,
    *,
    for_account: bool = True,
) -> bool:
    """Bind a session that accepts messages, to its account or only to itself; return whether its
    state was there."""
    gateway.bind(full, declared)
    make_eligible(gateway, full, priority=0 if for_account else -1)
    if not for_account:
        gateway.commit(lambda tx: become_ready(gateway, tx, full))
    return gateway.is_resumed


def become_ready(gateway: Gateway, tx: Transaction, full: str) -> None:
    sender = sessions.sender(tx, gateway.generation(full))
    assert sender is not None
    sessions.run_ready_hooks(gateway.router.context, tx, sender)


def enqueue(
    gateway: Gateway, *texts: str, only: str | None = None, qos: int = 2, source: str = ""
) -> None:
    """Enqueue messages to the valve, all of a source, or each of another."""

    def unit(tx: Transaction) -> None:
        for text in texts:
            body = MessageBytes(message_xml(text).encode())
            sender = source or f"{text}@elsewhere.example"
            message = OutgoingMessage(sender, PUMP, "m", qos, body, 100, only)
            service.enqueue(gateway.router.context, tx, "valve", message)

    gateway.commit(unit)


def take(gateway: Gateway, full: str = VALVE) -> list[Sent]:
    """Return the requests to a session since the last call."""
    return [send for send in gateway.sends(full) if isinstance(send.message, QosRequest)]


def offered(gateway: Gateway, full: str = VALVE) -> list[str | None]:
    """Return the texts offered to a session since the last call; None for a release."""
    return [parse_request(sent.stanza).text for sent in take(gateway, full)]


def rows(sends: list[Sent]) -> list[tuple[str, int]]:
    """Return step and row of requests."""
    found = [(parse_request(sent.stanza).step, sent.message) for sent in sends]
    return [(step, message.row) for step, message in found if isinstance(message, QosRequest)]


def answer(gateway: Gateway, sent: Sent) -> None:
    request = parse_request(sent.stanza)
    result = received_result if request.step == "assured" else empty_result
    gateway.send(VALVE, result(request))


@pytest.fixture
def gateway(build_with_devices: Build) -> Gateway:
    return build_with_devices(
        retry_after=10, retry_most=10, retry_attempts=2, outbox_window=2, outbox_ttl=2000
    )


@pytest.mark.parametrize("qos", [1, 2])
def test_unanswered_message_is_sent_again_only_after_a_reconnection(
    gateway: Gateway, qos: int
) -> None:
    connect(gateway)
    enqueue(gateway, "open", qos=qos)
    (first,) = take(gateway)
    gateway.clock.service += 400
    gateway.run_timers()
    assert take(gateway) == []
    assert gateway.count("SELECT due FROM outbox") is None
    gateway.crash()
    gateway.run_timers()
    assert connect(gateway) is True
    (second,) = take(gateway)
    assert isinstance(first.message, QosRequest)
    assert second.message == first.message._replace(is_repeated=True)
    answer(gateway, second)
    for release in take(gateway):
        answer(gateway, release)
    assert states(gateway) == []


@pytest.mark.parametrize("for_account", [True, False])
def test_window_counts_the_messages_of_each_session(gateway: Gateway, for_account: bool) -> None:
    connect(gateway, NUMBERED._replace(window=3), for_account=for_account)
    connect(gateway, NUMBERED._replace(window=1), OTHER, for_account=for_account)
    enqueue(gateway, "a", "b", "c", "d", only=VALVE)
    enqueue(gateway, "e", "f", only=OTHER)
    first = take(gateway)
    assert [row for _step, row in rows(first)] == [1, 2, 3]
    assert offered(gateway, OTHER) == ["e"]
    answer(gateway, first[1])
    (release,) = take(gateway)
    assert offered(gateway) == []  # it is not finished
    answer(gateway, release)
    assert offered(gateway) == ["d"]


@pytest.mark.parametrize("for_account", [True, False])
@pytest.mark.parametrize("qos", [1, 2])
def test_messages_of_a_source_do_not_wait_for_answers_of_an_ordered_session(
    gateway: Gateway, qos: int, for_account: bool
) -> None:
    connect(gateway, NUMBERED._replace(window=3), for_account=for_account)
    connect(gateway, NUMBERED._replace(ordered=False), OTHER)
    enqueue(gateway, *"abcde", only=VALVE, qos=qos, source="s")
    enqueue(gateway, "f", "g", only=OTHER, qos=qos, source="t")
    first = take(gateway)
    assert [row for _step, row in rows(first)] == [1, 2, 3]
    assert offered(gateway, OTHER) == ["f"]
    answer(gateway, first[1])
    for release in take(gateway) if qos == 2 else ():
        answer(gateway, release)
    assert offered(gateway) == ["d"]
    gateway.crash()
    connect(gateway, NUMBERED._replace(window=3), for_account=for_account)
    assert offered(gateway) == ["a", "c", "d"]


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("is_crash", [True, False])
def test_a_new_message_does_not_overtake_those_that_are_sent_again(
    gateway: Gateway, qos: int, is_crash: bool
) -> None:
    """It may come between the beginning of a session and the unit that makes it ready."""
    connect(gateway, for_account=False)
    enqueue(gateway, "a", "b", only=VALVE, qos=qos, source="s")
    assert offered(gateway) == ["a", "b"]
    if is_crash:
        gateway.crash()
    else:
        gateway.end(VALVE)
    gateway.bind(VALVE, NUMBERED)
    enqueue(gateway, "c", only=VALVE, qos=qos, source="s")
    gateway.commit(lambda tx: become_ready(gateway, tx, VALVE))
    assert offered(gateway) == ["a", "b", "c"]


@pytest.mark.parametrize("for_account", [True, False])
def test_a_message_is_not_overtaken_by_one_of_its_source_while_it_waits_for_its_id(
    gateway: Gateway, for_account: bool
) -> None:
    connect(gateway, NUMBERED._replace(ids=2), for_account=for_account)
    enqueue(gateway, *"abcd", only=VALVE, qos=1, source="s")
    _first, second = take(gateway)
    answer(gateway, second)
    assert take(gateway) == [], "the third has the id of the first"
    enqueue(gateway, "e", "f", only=VALVE, qos=1, source="s")
    assert take(gateway) == []


def test_sessions_without_a_window_share_that_of_their_account(gateway: Gateway) -> None:
    connect(gateway, DEFAULT)
    connect(gateway, NUMBERED, OTHER)
    enqueue(gateway, "a", "b", "c", "d", only=OTHER)
    enqueue(gateway, "e", "f", "g", only=VALVE)
    assert offered(gateway, OTHER) == ["a", "b", "c", "d"]
    assert offered(gateway) == ["e", "f"]  # `outbox_window`


def test_full_window_of_a_session_does_not_hide_messages_to_others(gateway: Gateway) -> None:
    connect(gateway, NUMBERED._replace(window=1))
    enqueue(gateway, *(f"v{number}" for number in range(20)), only=VALVE)
    assert offered(gateway) == ["v0"]
    connect(gateway, NUMBERED._replace(window=1), OTHER)
    enqueue(gateway, "o", only=OTHER)
    assert offered(gateway, OTHER) == ["o"]


def test_message_waits_while_another_has_its_id(gateway: Gateway) -> None:
    connect(gateway, NUMBERED._replace(ids=2))
    enqueue(gateway, "a", "b", "c", "d")
    _first, second = take(gateway)  # rows 1 and 2
    answer(gateway, second)
    (release,) = take(gateway)
    answer(gateway, release)
    (fourth,) = take(gateway)  # the third has the id of the first
    assert rows([fourth]) == [("assured", 4)]
    gateway.crash()
    connect(gateway, NUMBERED._replace(ids=2))
    again = take(gateway)
    assert rows(again) == [("assured", 1), ("assured", 4)]

    def find(number: int) -> int | None:
        def unit(tx: Transaction) -> int | None:
            session = sessions.find(tx, VALVE)
            assert session is not None
            row = service.find_by_message_id(tx, session, number)
            return None if row is None else row.row

        return gateway.tx(unit)

    assert [find(number) for number in (0, 1, 2, 3)] == [None, 4, 1, None]
    answer(gateway, again[0])
    (release,) = take(gateway)
    answer(gateway, release)
    assert rows(take(gateway)) == [("assured", 3)]
    assert (find(1), find(2)) == (4, 3)


def test_releases_follow_the_order_of_the_answers_also_after_a_reconnection(
    gateway: Gateway,
) -> None:
    connect(gateway)
    enqueue(gateway, "a", "b", "c", "d")
    first = take(gateway)
    for number in (2, 0, 1):
        answer(gateway, first[number])
    expected = [("deliver", 3), ("deliver", 1), ("deliver", 2)]
    assert rows(take(gateway)) == expected
    gateway.crash()
    connect(gateway)
    assert rows(take(gateway)) == [("assured", 4), *expected]
    gateway.end(VALVE)
    connect(gateway)
    assert rows(take(gateway)) == [("assured", 4), *expected]


def test_messages_to_an_absent_session_wait_for_it_across_restarts(gateway: Gateway) -> None:
    connect(gateway)
    gateway.end(VALVE)
    enqueue(gateway, "a", "b", only=VALVE)
    gateway.crash()
    gateway.run_timers()
    connect(gateway, NUMBERED, OTHER)
    gateway.clock.service += 499
    gateway.run_timers()
    assert offered(gateway, OTHER) == []
    assert connect(gateway) is True
    assert offered(gateway) == ["a", "b"]


@pytest.mark.parametrize("is_clean", [True, False])
def test_messages_of_a_session_are_dropped_with_its_state(gateway: Gateway, is_clean: bool) -> None:
    connect(gateway)
    enqueue(gateway, "received", "offered", "queued", only=VALVE)
    enqueue(gateway, "to the account", "received too")
    received, *_, last = take(gateway)
    answer(gateway, received)
    answer(gateway, last)
    gateway.end(VALVE)
    gateway.crash()
    gateway.run_timers()
    if not is_clean:
        gateway.clock.service += 500
        gateway.run_timers()
    assert connect(gateway, NUMBERED._replace(clean=True)) is False
    assert offered(gateway) == ["to the account"]
    (event,) = gateway.events("system", "notifications_dropped")
    assert (event.source, event.value) == (VALVE, 3.0)
    (letter,) = gateway.tx(lambda tx: dead_letters.list_page(tx, 0, 10))
    assert (letter.state, letter.session) == ("in doubt", VALVE)


def test_messages_that_a_session_may_know_do_not_expire_before_it(gateway: Gateway) -> None:
    connect(gateway)
    enqueue(gateway, "a", "b")
    first, _second = take(gateway)
    answer(gateway, first)
    for _ in range(3):
        gateway.clock.service += 2000
        gateway.run_timers()
    assert states(gateway) == ["released", "offered"]
    enqueue(gateway, "c", only=OTHER)
    gateway.clock.service += 2000
    gateway.run_timers()
    assert states(gateway) == ["released", "offered"]


def test_state_ends_if_its_session_ends_often_without_an_answer(gateway: Gateway) -> None:
    enqueue(gateway, "crashes it", "waits", only=VALVE)
    number = 0
    while not gateway.events("system", "notifications_dropped"):
        connect(gateway)
        gateway.end(VALVE)
        number += 1
    assert number == 2 * service.LOSSES_PER_ATTEMPT
    assert connect(gateway) is False
    assert states(gateway) == []


def test_account_of_a_session_without_declarations_is_served_as_before(gateway: Gateway) -> None:
    connect(gateway, DEFAULT)
    enqueue(gateway, "a")
    assert offered(gateway) == ["a"]
    gateway.clock.service += 10
    gateway.run_timers()
    (again,) = take(gateway)
    assert isinstance(again.message, QosRequest)
    assert again.message.is_repeated


def test_answers_by_an_id_that_fits_no_request_change_nothing(gateway: Gateway) -> None:
    connect(gateway)
    enqueue(gateway, "a", only=VALVE)
    (sent,) = take(gateway)
    assert isinstance(sent.message, QosRequest)
    id = rules.message_id(sent.message.row, 1000)

    def answer(request: RequestKind, number: int) -> bool:
        def unit(tx: Transaction) -> bool:
            sender = sessions.sender(tx, gateway.generation(VALVE))
            assert sender is not None
            context = gateway.router.context
            return service.handle_answer_by_id(context, tx, sender, request, number)

        return gateway.commit(unit)

    for request, number in (
        (RequestKind.DELIVER, id),
        (RequestKind.ACKNOWLEDGED, id),
        (RequestKind.ASSURED, id + 1),
    ):
        assert not answer(request, number)
        assert states(gateway) == ["offered"]
    assert answer(RequestKind.ASSURED, id)
    assert not answer(RequestKind.ASSURED, id)
    assert states(gateway) == ["released"]
    assert answer(RequestKind.DELIVER, id)
    assert states(gateway) == []
