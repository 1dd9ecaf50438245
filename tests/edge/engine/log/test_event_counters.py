from __future__ import annotations

import pytest

from edge.engine.log import event_counters
from edge.engine.log.event_counters import LOG_INTERVAL
from edge.engine.store.database import Transaction
from edge.engine.store.events import StoredEvent
from tests.helpers.store import Gateway

A, B = "a@gw.example", "b@gw.example"


def count_event(gateway: Gateway, source: str = A, name: str = "ended", **tags: str) -> None:
    gateway.tx(lambda tx: event_counters.count(tx, "session", name, source, tags=tags))


def log_counters(gateway: Gateway, *, everything: bool = False) -> list[StoredEvent]:
    """Log the counters that are due; return the new events."""
    before = len(gateway.events("system"))
    gateway.tx(lambda tx: event_counters.log_counts(tx, everything=everything))
    return gateway.events("system")[before:]


def summaries(
    rows: list[StoredEvent],
) -> list[tuple[str | None, str | None, float | None, dict[str, str]]]:
    return [(row.source, row.name, row.value, row.tags) for row in rows]


def counter_rows(gateway: Gateway) -> int:
    return int(gateway.count("SELECT count(*) FROM temp.folded"))


def test_counting_writes_nothing_to_the_disk(gateway: Gateway) -> None:
    before = gateway.count("SELECT total_changes()")
    assert log_counters(gateway) == []
    count_event(gateway, reason="lost")
    count_event(gateway, B, reason="lost")
    gateway.clock.service += 20.4
    count_event(gateway, reason="lost")
    count_event(gateway, reason="closed")
    assert gateway.events() == []
    assert gateway.count("SELECT total_changes()") - before == 4, "of the temporary table"
    gateway.clock.service += 10
    rows = log_counters(gateway)
    assert summaries(rows) == [
        (A, "ended", 2.0, {"reason": "lost", "ago_s": "10"}),
        (B, "ended", 1.0, {"reason": "lost", "ago_s": "30"}),
        (A, "ended", 1.0, {"reason": "closed", "ago_s": "10"}),
    ]
    assert {(row.kind, row.level, row.topic) for row in rows} == {
        ("session", "Informational", None)
    }


def test_a_counter_is_logged_at_intervals_and_loses_nothing(gateway: Gateway) -> None:
    count_event(gateway)
    assert len(log_counters(gateway)) == 1
    logged = 0.0
    for _ in range(60):  # each minute
        gateway.clock.service += 60
        count_event(gateway)
        rows = log_counters(gateway)
        logged += sum(row.value or 0 for row in rows)
        assert len(rows) <= 1
    assert logged == 60
    assert len(gateway.events("system")) == 1 + 3600 // LOG_INTERVAL


def test_an_idle_counter_is_removed_and_logged_at_once_when_it_returns(gateway: Gateway) -> None:
    count_event(gateway)
    log_counters(gateway)
    gateway.clock.service += LOG_INTERVAL - 0.001
    assert log_counters(gateway) == []
    assert counter_rows(gateway) == 1
    gateway.clock.service += 0.001
    assert log_counters(gateway) == []
    assert counter_rows(gateway) == 0
    count_event(gateway)
    assert len(log_counters(gateway)) == 1


def test_a_stop_logs_all_counters(gateway: Gateway) -> None:
    count_event(gateway)
    log_counters(gateway)
    count_event(gateway)
    count_event(gateway, B)
    assert [row.source for row in log_counters(gateway)] == [B]
    assert summaries(log_counters(gateway, everything=True)) == [(A, "ended", 1.0, {"ago_s": "0"})]


def test_further_sources_count_as_other(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_counters, "MAX_COUNTERS", 2)
    for number in range(5):
        count_event(gateway, f"d{number}@gw.example", reason="lost")
    count_event(gateway, "d0@gw.example", reason="lost")
    count_event(gateway, "d9@gw.example", "began", protocol="mqtt", transport="x", share="s")
    rows = log_counters(gateway)
    lost = {"reason": "lost", "ago_s": "0"}
    assert summaries(rows) == [
        ("d0@gw.example", "ended", 2.0, lost),
        ("d1@gw.example", "ended", 1.0, lost),
        ("other", "ended", 3.0, lost),
        ("other", "began", 1.0, {"protocol": "mqtt", "transport": "x", "ago_s": "0"}),
    ]
    assert counter_rows(gateway) == 4


def test_a_rollback_undoes_counting(gateway: Gateway) -> None:
    def unit(tx: Transaction) -> None:
        event_counters.count(tx, "session", "began", A)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        gateway.tx(unit)
    assert log_counters(gateway) == []


def test_a_topic_is_logged(gateway: Gateway) -> None:
    tags = {"share": "s"}
    gateway.tx(lambda tx: event_counters.count(tx, "share", "made", A, topic="t/#", tags=tags))
    (event,) = log_counters(gateway)
    assert (event.kind, event.topic, event.tags["share"]) == ("share", "t/#", "s")
