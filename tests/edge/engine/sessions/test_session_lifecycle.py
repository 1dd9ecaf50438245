from __future__ import annotations

from pathlib import Path

import pytest

from edge.engine.log import event_counters
from edge.engine.sessions.session_lifecycle import UNKNOWN_REASON
from edge.engine.sessions.sessions import Declaration
from edge.engine.store import events
from tests.helpers.people import PUMP, VALVE, VALVE_BARE
from tests.helpers.pubsub import create
from tests.helpers.shared_subscriptions import SHARE, join, leave
from tests.helpers.store import Gateway, new_database

PUMP_BARE = PUMP.partition("/")[0]
LoggedEvent = tuple[str, str | None, str | None, float | None, str]


@pytest.fixture
def gateway(gateway: Gateway) -> Gateway:
    for name in ("pump1", "valve"):
        gateway.add(name)
    return gateway


def log_counters(gateway: Gateway) -> list[LoggedEvent]:
    """Log the counters; return kind, name, source, count and reason of each event."""
    before = len(gateway.events("system"))
    gateway.tx(lambda tx: event_counters.log_counts(tx, everything=True))
    return [
        (row.kind, row.name, row.source, row.value, row.tags.get("reason", ""))
        for row in gateway.events("system")[before:]
    ]


def test_begin_and_end_of_a_session_are_counted(gateway: Gateway) -> None:
    generation = gateway.bind(PUMP)
    gateway.tx(lambda tx: gateway.lifecycle.detach(tx, generation))
    gateway.tx(lambda tx: gateway.lifecycle.resume(tx, generation))
    gateway.tx(lambda tx: gateway.lifecycle.end(tx, generation, (), "lost"))
    gateway.tx(lambda tx: gateway.lifecycle.end(tx, generation, (), "closed"))  # it has ended
    assert log_counters(gateway) == [
        ("session", "began", PUMP_BARE, 1.0, ""),
        ("session", "ended", PUMP_BARE, 1.0, "lost"),
    ]


def test_the_protocol_of_a_session_is_logged(gateway: Gateway) -> None:
    before = len(gateway.events("system"))
    gateway.bind(PUMP)
    gateway.bind(VALVE, declared=Declaration(protocol="mqtt", version="5.0", transport="x"))
    for address in (PUMP, VALVE):
        gateway.end(address)
    gateway.tx(lambda tx: event_counters.log_counts(tx, everything=True))
    logged = [
        (row.source, row.name, *map(row.tags.get, events.PROTOCOL_TAGS))
        for row in gateway.events("system")[before:]
    ]
    assert logged == [
        (PUMP_BARE, "began", None, None, None),
        (VALVE_BARE, "began", "mqtt", "5.0", "x"),
        (PUMP_BARE, "ended", None, None, None),
        (VALVE_BARE, "ended", "mqtt", "5.0", "x"),
    ]


def test_an_end_without_a_reason_is_logged_as_unknown(gateway: Gateway) -> None:
    generation = gateway.bind(PUMP)
    gateway.tx(lambda tx: gateway.lifecycle.end_without_messages(tx, generation))
    assert log_counters(gateway)[1] == ("session", "ended", PUMP_BARE, 1.0, UNKNOWN_REASON)


def test_a_replaced_session_ends_and_another_begins(gateway: Gateway) -> None:
    gateway.bind(PUMP)
    gateway.bind(PUMP)
    assert log_counters(gateway) == [
        ("session", "began", PUMP_BARE, 2.0, ""),
        ("session", "ended", PUMP_BARE, 1.0, "replaced"),
    ]


def test_sessions_that_end_with_the_gateway_are_not_counted(gateway: Gateway) -> None:
    gateway.bind(PUMP)
    gateway.lifecycle.stop()
    gateway.end(PUMP)
    assert [event[1] for event in log_counters(gateway)] == ["began"]


def test_sessions_of_another_server_are_not_counted(tmp_path: Path) -> None:
    component = Gateway(new_database(tmp_path), accounts=False)
    component.bind("pump1@users.example/fw")
    component.end("pump1@users.example/fw")
    assert log_counters(component) == []
    component.close()


def test_counting_a_session_writes_no_row_to_the_disk(gateway: Gateway) -> None:
    """A log-in after the first costs no commit and needs no disk space."""
    wal = gateway.path.with_name(f"{gateway.path.name}-wal")

    def log_in_and_out() -> None:
        generation = gateway.bind(PUMP)
        gateway.tx(lambda tx: gateway.lifecycle.end(tx, generation, (), "lost"))

    log_in_and_out()
    log_counters(gateway)
    written = wal.stat().st_size
    log_in_and_out()
    assert wal.stat().st_size == written
    assert [event[1] for event in log_counters(gateway)] == ["began", "ended"]


def test_the_first_member_creates_a_share(gateway: Gateway) -> None:
    create(gateway, PUMP, "t", access_model="open")
    log_counters(gateway)
    for full in (PUMP, VALVE):
        join(gateway, full)
    for full in (PUMP, VALVE):
        leave(gateway, full)
    join(gateway, VALVE)
    share_events = [event for event in log_counters(gateway) if event[0] != "session"]
    assert [event[:4] for event in share_events] == [
        ("share", "made", PUMP_BARE, 1.0),
        ("share", "made", VALVE_BARE, 1.0),
    ]
    event = gateway.events("system", "made")[0]
    assert f"$share:{event.tags['share']}:{event.topic}" == SHARE
    assert len(gateway.events("system", "share_ended")) == 1
