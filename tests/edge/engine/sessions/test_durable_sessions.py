"""Sessions whose state outlives their connections and the process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from edge.config.limits import Limits
from edge.engine.rules.quota import ExceededLimit
from edge.engine.sessions import durable_sessions
from edge.engine.sessions.session_lifecycle import Bound
from edge.engine.sessions.sessions import Declaration
from edge.engine.store.database import Transaction
from edge.features.accounts.store import accounts
from tests.helpers.store import Gateway, new_database

LIMITS: Final = Limits(
    durable_sessions=3, durable_sessions_per_account=2, durable_session_time=1000.0
)
FULL: Final = "pump1@gw.example/mqtt"
KEPT: Final = Declaration(durable=100.0)
UNKEPT: Final = Declaration(durable=0.0)
CLEAN: Final = Declaration(durable=100.0, clean=True)


class Recorder:
    """A gateway, and the addresses whose state has ended."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.ended: list[str] = []
        gateway.router.context.hooks.on_state_end.append(
            lambda _context, _tx, full: self.ended.append(full)
        )

    def bind(self, declared: Declaration, full: str = FULL) -> bool:
        self.gateway.bind(full, declared)
        return self.gateway.is_resumed

    def wait(self, seconds: float) -> list[str]:
        self.gateway.clock.service += seconds
        self.gateway.run_timers()
        return self.ended


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    gateway = Gateway(new_database(tmp_path), LIMITS)
    for name in ("pump1", "valve1"):
        gateway.add(name)
    with closing(gateway):
        yield Recorder(gateway)


def test_state_is_there_for_its_time_after_the_session(recorder: Recorder) -> None:
    gateway = recorder.gateway
    assert recorder.bind(KEPT) is False
    assert recorder.wait(500.0) == []  # while it is connected
    gateway.end(FULL)
    assert gateway.due == gateway.clock.service + 100.0
    assert recorder.wait(99.0) == []
    assert recorder.bind(KEPT) is True
    gateway.end(FULL)
    assert recorder.wait(100.0) == [FULL]
    assert recorder.bind(KEPT) is False


def test_clean_session_begins_anew(recorder: Recorder) -> None:
    recorder.bind(KEPT)
    recorder.gateway.end(FULL)
    assert recorder.bind(CLEAN) is False
    assert recorder.ended == [FULL]
    recorder.gateway.end(FULL)
    assert recorder.bind(KEPT) is True
    assert recorder.ended == [FULL]


def test_state_that_is_not_kept_ends_with_its_session(recorder: Recorder) -> None:
    recorder.bind(UNKEPT)
    assert recorder.ended == []
    recorder.gateway.end(FULL)
    assert recorder.ended == [FULL]
    recorder.bind(KEPT)
    assert recorder.bind(UNKEPT) is True  # it is kept until the session ends that asks for it
    recorder.gateway.end(FULL)
    assert recorder.ended == [FULL, FULL]


def test_session_that_replaces_another_keeps_its_state(recorder: Recorder) -> None:
    recorder.bind(KEPT)
    assert recorder.bind(KEPT) is True
    assert recorder.wait(500.0) == []


@pytest.mark.parametrize("declared", [KEPT, UNKEPT])
def test_time_begins_at_the_start_after_a_crash(recorder: Recorder, declared: Declaration) -> None:
    gateway = recorder.gateway
    recorder.bind(declared)
    recorder.wait(500.0)
    gateway.crash()
    ends_at_once = declared is UNKEPT
    assert recorder.wait(0.0) == ([FULL] if ends_at_once else [])
    assert recorder.wait(99.0) == ([FULL] if ends_at_once else [])
    gateway.crash()  # does not begin it again
    assert recorder.wait(1.0) == [FULL]


def test_session_of_a_protocol_without_state_keeps_that_of_its_address(recorder: Recorder) -> None:
    recorder.bind(KEPT)
    recorder.gateway.end(FULL)
    assert recorder.bind(Declaration()) is True
    assert recorder.wait(500.0) == []
    recorder.gateway.end(FULL)
    assert recorder.wait(100.0) == [FULL]
    recorder.bind(Declaration())
    recorder.gateway.end(FULL)
    assert recorder.gateway.count("SELECT count(*) FROM durable_sessions") == 0


def test_time_is_limited(recorder: Recorder) -> None:
    recorder.bind(Declaration(durable=float("inf")))
    recorder.gateway.end(FULL)
    assert recorder.wait(999.0) == []
    assert recorder.wait(1.0) == [FULL]


def test_time_off_counts_once_it_is_known(recorder: Recorder) -> None:
    gateway = recorder.gateway
    recorder.bind(KEPT)
    gateway.end(FULL)
    left = gateway.clock.service
    recorder.wait(10.0)
    other = "valve1@gw.example/mqtt"
    recorder.bind(KEPT, other)
    gateway.end(other)  # after the time off
    gateway.tx(lambda tx: durable_sessions.age(tx, left, 90.0))
    assert recorder.wait(0.0) == [FULL]


@pytest.mark.parametrize("is_revoked", [True, False])
def test_account_that_is_revoked_or_removed_loses_its_sessions(
    recorder: Recorder, is_revoked: bool
) -> None:
    gateway = recorder.gateway
    recorder.bind(KEPT)
    gateway.end(FULL)
    change = accounts.revoke if is_revoked else accounts.remove
    gateway.tx(lambda tx: change(tx, "pump1"))
    gateway.commit(gateway.router.context.run_external_change)
    assert gateway.due == gateway.clock.service
    gateway.run_timers()
    assert recorder.ended == ([FULL] if is_revoked else [])  # removed with all of the account
    assert gateway.count("SELECT count(*) FROM durable_sessions") == 0


def test_number_of_sessions_is_limited(recorder: Recorder) -> None:
    gateway = recorder.gateway
    for resource in ("mqtt", "two"):
        recorder.bind(KEPT, f"pump1@gw.example/{resource}")

    def bind(account: str, declared: Declaration, tx: Transaction) -> Bound | ExceededLimit:
        full = f"{account}@gw.example/more"
        names = account, full.partition("/")[0], full
        return gateway.lifecycle.bind(tx, 99, *names, declared=declared)

    bound = gateway.commit(partial(bind, "pump1", KEPT))
    assert bound == ("durable_sessions_per_account", 2)
    assert not gateway.count("SELECT count(*) FROM temp.sessions WHERE generation = 99")
    assert [event.name for event in gateway.events(name="durable_sessions_per_account")]
    assert isinstance(gateway.commit(partial(bind, "pump1", Declaration())), Bound)
    recorder.bind(KEPT, "valve1@gw.example/one")
    bound = gateway.commit(partial(bind, "valve1", KEPT))
    assert bound == ("durable_sessions", 3)
    assert recorder.bind(KEPT) is True  # it counts once


def test_sessions_that_are_not_kept_do_not_count(recorder: Recorder) -> None:
    gateway = recorder.gateway
    for number in range(4):
        recorder.bind(UNKEPT, f"pump1@gw.example/{number}")
    for number in range(2):  # now they are to be kept
        recorder.bind(KEPT, f"pump1@gw.example/{number}")
    names = "pump1", "pump1@gw.example", "pump1@gw.example/3"
    bound = gateway.commit(lambda tx: gateway.lifecycle.bind(tx, 99, *names, declared=KEPT))
    assert bound == ("durable_sessions_per_account", 2)


@pytest.mark.parametrize(("seconds", "kept_for"), [(0.0, 0), (10.0, 10), (5000.0, 1000)])
def test_a_session_changes_how_long_its_state_is_kept(
    recorder: Recorder, seconds: float, kept_for: int
) -> None:
    gateway = recorder.gateway
    recorder.bind(KEPT)
    context = gateway.router.context
    gateway.tx(lambda tx: durable_sessions.set_time(context, tx, FULL, seconds))
    gateway.end(FULL)
    if kept_for:
        assert recorder.wait(kept_for - 1) == []
        recorder.wait(1)
    assert recorder.ended == [FULL]
