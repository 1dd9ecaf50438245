from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.config.limits import Limits
from edge.engine.log import refusals
from edge.engine.store.database import Transaction
from edge.features.custody import store
from tests.helpers.store import Gateway, digest_of, new_database

A, B = "a@gw.example", "b@gw.example"
LIMITS = Limits(refusal_sources=3)
WINDOW = LIMITS.refusal_window


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    gateway = Gateway(new_database(tmp_path), LIMITS)
    yield gateway
    gateway.close()


def refuse(
    gateway: Gateway, source: str, rule: str = "rule", times: int = 1, limit: int | None = None
) -> None:
    for _ in range(times):
        gateway.tx(lambda tx: refusals.count(tx, LIMITS, source, rule, limit))


def logged(gateway: Gateway) -> list[tuple[str | None, str | None, float | None]]:
    return [(event.source, event.name, event.value) for event in gateway.events("system")]


def rows(gateway: Gateway) -> int:
    return int(gateway.count("SELECT count(*) FROM refusals"))


def test_the_first_refusal_is_logged_at_once_and_the_others_after_the_window(
    gateway: Gateway,
) -> None:
    refuse(gateway, A, limit=32)
    assert logged(gateway) == [(A, "rule", 1.0)]
    assert gateway.due == gateway.clock.service + WINDOW
    refuse(gateway, A, times=5, limit=16)
    assert logged(gateway) == [(A, "rule", 1.0)]
    gateway.clock.service += WINDOW - 0.001
    gateway.run_timers()
    assert len(logged(gateway)) == 1
    gateway.clock.service += 0.001
    gateway.run_timers()
    assert logged(gateway) == [(A, "rule", 1.0), (A, "rule", 5.0)]
    first, last = gateway.events("system")
    assert (first.kind, first.level, first.tags) == ("limit", "Warning", {"limit": "32"})
    assert last.tags == {"limit": "16"}
    assert gateway.due == gateway.clock.service + WINDOW, "the window begins anew"


def test_details_of_a_rule_are_in_its_events(gateway: Gateway) -> None:
    rule = refusals.with_details("authentication", 'wrong "password"', {"account": "a b"})
    refuse(gateway, A, rule, times=3, limit=5)
    gateway.tx(refusals.close_all_windows)
    first, last = gateway.events("system")
    assert (first.name, first.value, last.value) == ("authentication", 1.0, 2.0)
    for event in (first, last):
        assert event.text == 'wrong "password"'
        assert event.tags == {"account": "a b", "limit": "5"}


def test_a_window_without_refusals_is_closed(gateway: Gateway) -> None:
    refuse(gateway, A)
    gateway.clock.service += WINDOW
    gateway.run_timers()
    assert rows(gateway) == 0
    assert gateway.due is None
    refuse(gateway, A)
    assert logged(gateway) == [(A, "rule", 1.0)] * 2


def test_sources_and_rules_are_logged_separately(gateway: Gateway) -> None:
    for source, rule in ((A, "x"), (A, "y"), (B, "x")):
        refuse(gateway, source, rule, times=2)
    assert logged(gateway) == [(A, "x", 1.0), (A, "y", 1.0), (B, "x", 1.0)]
    assert gateway.events("system")[0].tags == {}


def test_further_sources_are_logged_as_other(gateway: Gateway) -> None:
    for number in range(10):
        tags = {"account": str(number), "protocol": "mqtt"}
        rule = refusals.with_details("rule", "wrong", tags)
        refuse(gateway, f"s{number}@gw.example", rule)
    assert rows(gateway) == LIMITS.refusal_sources + 1
    assert [source for source, *_ in logged(gateway)] == [
        *(f"s{number}@gw.example" for number in range(3)),
        refusals.OTHER_SOURCE,
    ]
    last = gateway.events("system")[-1]
    assert (last.text, last.tags) == (None, {"protocol": "mqtt"}), "without other details"
    gateway.clock.service += WINDOW
    gateway.run_timers()
    assert logged(gateway)[4:] == [(refusals.OTHER_SOURCE, "rule", 6.0)]


def test_no_refusal_is_lost_between_windows(gateway: Gateway) -> None:
    sent = 0
    for number in range(50):
        refuse(gateway, A, times=number % 4)
        sent += number % 4
        gateway.clock.service += 17.0
        gateway.run_timers()
    for _ in range(2):
        gateway.clock.service += WINDOW
        gateway.run_timers()
    assert sum(value or 0 for *_, value in logged(gateway)) == sent
    assert rows(gateway) == 0


# Expiry.


def hold(gateway: Gateway, msg_id: str) -> None:
    def unit(tx: Transaction) -> None:
        store.hold(tx, A, f"{A}/r", msg_id, "gw.example", b"x", digest_of(msg_id), 10)

    gateway.tx(unit)


def test_the_timer_is_set_for_the_earliest_expiry(gateway: Gateway) -> None:
    start = gateway.clock.service
    hold(gateway, "m1")
    gateway.clock.service += 10
    hold(gateway, "m2")
    gateway.run_timers()
    assert gateway.due == start + LIMITS.held_ttl
    refuse(gateway, A)
    gateway.run_timers()
    assert gateway.due == start + 10 + WINDOW


def test_due_rows_are_handled_in_batches(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "EXPIRY_BATCH", 2)
    monkeypatch.setattr(refusals, "BATCH", 2)
    for number in range(3):
        hold(gateway, f"m{number}")
        refuse(gateway, f"s{number}@gw.example", times=2)
    gateway.clock.service += LIMITS.held_ttl
    gateway.run_timers()
    assert gateway.count("SELECT count(*) FROM held") == 1
    assert gateway.due is not None
    assert gateway.due <= gateway.clock.service, "the rest is due at once"
    gateway.run_timers()
    assert gateway.count("SELECT count(*) FROM held") == 0
    assert len(gateway.events("system", "expired")) == 3
    assert len(gateway.events("system", "rule")) == 6
    assert gateway.due == gateway.clock.service + WINDOW


# Refusals counted elsewhere, and the stop.


def test_refusals_counted_elsewhere_are_added_to_the_window(gateway: Gateway) -> None:
    def refuse_some(times: int, source: str = A) -> None:
        gateway.tx(lambda tx: refusals.count(tx, LIMITS, source, "rule", times=times))

    refuse_some(4)
    refuse_some(2)
    refuse(gateway, A)
    assert logged(gateway) == [(A, "rule", 4.0)]
    gateway.clock.service += WINDOW
    gateway.run_timers()
    assert logged(gateway) == [(A, "rule", 4.0), (A, "rule", 3.0)]
    for name in ("b", "c", "d", "e"):
        refuse_some(5, name)
    assert logged(gateway)[2:] == [
        ("b", "rule", 5.0),
        ("c", "rule", 5.0),
        (refusals.OTHER_SOURCE, "rule", 5.0),
    ]
    gateway.clock.service += WINDOW
    gateway.run_timers()
    assert logged(gateway)[5:] == [(refusals.OTHER_SOURCE, "rule", 5.0)]


def test_a_stop_logs_all_counted_refusals(gateway: Gateway) -> None:
    refuse(gateway, A, times=5, limit=3)
    refuse(gateway, B)
    gateway.tx(refusals.close_all_windows)
    assert logged(gateway) == [(A, "rule", 1.0), (B, "rule", 1.0), (A, "rule", 4.0)]
    assert gateway.events("system")[-1].tags == {"limit": "3"}
    assert rows(gateway) == 0
    gateway.tx(refusals.close_all_windows)
    assert len(logged(gateway)) == 3
