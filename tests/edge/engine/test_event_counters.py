"""Tests of counting frequent events and logging the counters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.engine import event_counters
from edge.engine.database import Transaction
from edge.engine.event_counters import LOG_INTERVAL
from edge.engine.events import StoredEvent
from tests.helpers.store import Gateway, new_database

A, B = "a@gw.example", "b@gw.example"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """One without devices."""
    made = Gateway(new_database(tmp_path))
    yield made
    made.close()


def note(gateway: Gateway, source: str = A, name: str = "ended", **tags: str) -> None:
    gateway.tx(lambda tx: event_counters.count(tx, "session", name, source, tags=tags))


def tell(gateway: Gateway, *, everything: bool = False) -> list[StoredEvent]:
    """Tell what is due; returns the events that this has made."""
    before = len(gateway.events("system"))
    gateway.tx(lambda tx: event_counters.log_counts(tx, everything=everything))
    return gateway.events("system")[before:]


def brief(
    rows: list[StoredEvent],
) -> list[tuple[str | None, str | None, float | None, dict[str, str]]]:
    return [(row.source, row.name, row.value, row.tags) for row in rows]


def counted(gateway: Gateway) -> int:
    return int(gateway.count("SELECT count(*) FROM temp.folded"))


def test_counting_writes_nothing_to_the_disk(gateway: Gateway) -> None:
    before = gateway.count("SELECT total_changes()")
    assert tell(gateway) == []
    note(gateway, reason="lost")
    note(gateway, B, reason="lost")
    gateway.clock.service += 20.4
    note(gateway, reason="lost")
    note(gateway, reason="closed")
    assert gateway.events() == []
    assert gateway.count("SELECT total_changes()") - before == 4, "of the temporary table"
    gateway.clock.service += 10
    found = tell(gateway)
    assert brief(found) == [
        (A, "ended", 2.0, {"reason": "lost", "ago_s": "10"}),
        (B, "ended", 1.0, {"reason": "lost", "ago_s": "30"}),
        (A, "ended", 1.0, {"reason": "closed", "ago_s": "10"}),
    ]
    assert {(row.kind, row.level, row.topic) for row in found} == {
        ("session", "Informational", None)
    }


def test_a_counter_is_logged_at_intervals_and_loses_nothing(gateway: Gateway) -> None:
    note(gateway)
    assert len(tell(gateway)) == 1
    told = 0.0
    for _ in range(60):  # each minute
        gateway.clock.service += 60
        note(gateway)
        found = tell(gateway)
        told += sum(row.value or 0 for row in found)
        assert len(found) <= 1
    assert told == 60
    assert len(gateway.events("system")) == 1 + 3600 // LOG_INTERVAL


def test_an_idle_counter_is_removed_and_logged_at_once_when_it_returns(gateway: Gateway) -> None:
    note(gateway)
    tell(gateway)
    gateway.clock.service += LOG_INTERVAL - 0.001
    assert tell(gateway) == []
    assert counted(gateway) == 1
    gateway.clock.service += 0.001
    assert tell(gateway) == []
    assert counted(gateway) == 0
    note(gateway)
    assert len(tell(gateway)) == 1


def test_a_stop_logs_all_counters(gateway: Gateway) -> None:
    note(gateway)
    tell(gateway)
    note(gateway)
    note(gateway, B)
    assert [row.source for row in tell(gateway)] == [B]
    assert brief(tell(gateway, everything=True)) == [(A, "ended", 1.0, {"ago_s": "0"})]


def test_further_sources_count_as_other(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_counters, "MAX_COUNTERS", 2)
    for number in range(5):
        note(gateway, f"d{number}@gw.example", reason="lost")
    note(gateway, "d0@gw.example", reason="lost")
    note(gateway, "d9@gw.example", "began")
    found = tell(gateway)
    assert [(row.source, row.name, row.value) for row in found] == [
        ("d0@gw.example", "ended", 2.0),
        ("d1@gw.example", "ended", 1.0),
        ("other", "ended", 3.0),
        ("other", "began", 1.0),
    ]
    assert counted(gateway) == 4


def test_a_rollback_undoes_counting(gateway: Gateway) -> None:
    def unit(tx: Transaction) -> None:
        event_counters.count(tx, "session", "began", A)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        gateway.tx(unit)
    assert tell(gateway) == []


def test_a_topic_is_logged(gateway: Gateway) -> None:
    gateway.tx(
        lambda tx: event_counters.count(tx, "share", "made", A, topic="t/#", tags={"share": "s"})
    )
    (event,) = tell(gateway)
    assert (event.kind, event.topic, event.tags["share"]) == ("share", "t/#", "s")
