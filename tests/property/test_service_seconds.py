"""Property tests of service seconds across runs, crashes, boots and changes of the wall clock.

The machine knows the true time; the gateway sees only its clocks, and stores its state in a real
database. No row gets older than its true age, except for the error of trusted clocks. A row that
was stored while time was known has its true age whenever time is known again.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edge import timekeeping
from edge.engine.rules.service_time import start_run
from edge.engine.store import meta
from edge.engine.store.database import Transaction
from edge.engine.time import clock_store
from edge.engine.time.clock import Clock
from edge.features.custody import store as custody_store
from tests.helpers.machine import SimulatedMachine
from tests.helpers.store import digest_of, in_memory

ERROR = 0.2
"""Seconds by which a clock that is held for synchronised may be wrong, at most."""

EXAMPLES = 2000 if os.environ.get("FIELDPOST_TEST_LONG") == "1" else 15

HEARTBEAT = 60.0
DAY = 86_400.0

errors = st.floats(-ERROR, ERROR)
wrong = st.sampled_from([-5e7, -3600.0, -1.0, 1.0, 3600.0, 5e7])


class StoredMessage(NamedTuple):
    """A message: the true time when it was stored, and whether time was known then."""

    row: int
    at: float
    time_known: bool


class Time(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.db = self.stack.enter_context(in_memory())
        self.machine = SimulatedMachine()
        self.messages: list[StoredMessage] = []
        self.reached = 0.0
        self.clock = Clock(0.0, self.machine.clocks)
        self.began, self.run_time = 0.0, 0.0
        self.next_save, self.wait = timekeeping.FIRST_SAVE, timekeeping.FIRST_SAVE
        self.settled = 0

    def teardown(self) -> None:
        self.stack.close()

    @initialize(synchronised=st.booleans())
    def first(self, synchronised: bool) -> None:
        self.machine.synchronised = synchronised
        self.start()

    # What the gateway does.

    def start(self) -> None:
        at, tx = self.machine.clocks.read(), self.tx
        start = start_run(clock_store.load(tx), meta.last_service_second(tx), at)
        if self.run_time >= timekeeping.FIRST_SAVE:
            counted = start.saved.service - self.began
            assert counted >= self.run_time / 3 - 0.01, "at least a third counts"
        self.settled += 1
        self.clock = Clock(start.saved.service, self.machine.clocks)
        clock_store.save(self.tx, start.saved)
        self.keep()
        self.began, self.run_time = self.clock().service, 0.0
        self.machine.true_time += 0.001  # a start takes time
        self.next_save, self.wait = timekeeping.FIRST_SAVE, timekeeping.FIRST_SAVE

    @property
    def tx(self) -> Transaction:
        return Transaction(self.db, self.clock())

    def keep(self) -> None:
        clock_store.save_progress(self.tx, self.clock.run)

    @rule()
    def settle(self) -> None:
        tx = self.tx
        pending = clock_store.load(tx).before is not None
        settled = clock_store.settle_time_off(tx, self.clock.run, (custody_store.age,))
        tx.run_before_commit()
        self.settled += pending and settled

    @rule(seconds=st.one_of(st.floats(0, 10), st.floats(0, 400)))
    def run(self, seconds: float) -> None:
        """Continue to run, and save when a save is due."""
        end = self.run_time + seconds
        while self.next_save <= end:
            self.machine.true_time += self.next_save - self.run_time
            self.run_time = self.next_save
            self.keep()
            self.wait = min(self.wait * 2, HEARTBEAT)
            self.next_save += self.wait
        self.machine.true_time += end - self.run_time
        self.run_time = end

    @precondition(lambda self: len(self.messages) < 30)
    @rule()
    def store(self) -> None:
        tx, name = self.tx, str(len(self.messages))
        custody_store.hold(tx, "a", "a/r", name, "gw", b"x", digest_of(name), 10)
        (row,) = tx.row("SELECT max(id) FROM held")
        saved = clock_store.load(tx)
        time_known = saved.trusted is not None and saved.before is None
        self.messages.append(StoredMessage(row, self.machine.true_time, time_known))

    @rule(seconds=st.floats(0, 3600))
    def restart(self, seconds: float) -> None:
        """Crash, and start again in the same boot."""
        self.machine.true_time += seconds
        self.start()

    @rule(
        seconds=st.one_of(st.floats(5, 60), st.floats(5, 30 * DAY)),
        synchronised=st.booleans(),
        error=errors,
        off=wrong,
    )
    def power_cut(self, seconds: float, synchronised: bool, error: float, off: float) -> None:
        self.machine.true_time += seconds
        self.machine.reboot(synchronised=synchronised, error=error if synchronised else off)
        self.start()

    # What happens to the wall clock.

    @rule(error=wrong)
    def set_wrong(self, error: float) -> None:
        """Somebody sets it; the kernel does not trust that."""
        self.machine.error, self.machine.synchronised = error, False

    @rule(error=errors)
    def synchronise(self, error: float) -> None:
        self.machine.error, self.machine.synchronised = error, True

    @rule()
    def lose_synchronisation(self) -> None:
        self.machine.synchronised = False

    # What must be true.

    @invariant()
    def time_does_not_go_back_before_the_last_saved_second(self) -> None:
        assert self.clock().service >= self.reached
        self.reached = meta.last_service_second(self.tx)
        assert self.clock().service >= self.reached

    @invariant()
    def no_message_is_older_than_its_true_age(self) -> None:
        for message in self.messages:
            assert self.age(message) <= self.machine.true_time - message.at + self.tolerance

    @rule()
    def messages_stored_while_time_was_known_have_their_true_age(self) -> None:
        self.settle()
        if self.clock().synchronised:
            for message in self.messages:
                if message.time_known:
                    assert self.age(message) >= self.machine.true_time - message.at - self.tolerance

    @property
    def tolerance(self) -> float:
        return 2 * ERROR * self.settled + 0.01

    def age(self, message: StoredMessage) -> float:
        (since,) = self.tx.row("SELECT since FROM held WHERE id = ?", (message.row,))
        return self.clock().service - float(since)


TestTime = Time.TestCase
TestTime.settings = settings(max_examples=EXAMPLES, stateful_step_count=40)
