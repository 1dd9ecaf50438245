"""Sender, lossy link, receiver and crashes: delivered exactly once, and in order without refusals.

The receiver is a model of the specification's table, small enough to be read; the sender is the
real rules. The link loses all that is on its way when it is cut, and a crash loses all but what
was handed out to be stored.
"""

from __future__ import annotations

import os
from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from firmware_sim.device.limits import SendPolicy
from firmware_sim.device.send_window import SendWindow
from firmware_sim.device.sender_rules import ENDED, IN_FLIGHT, Action, Input, Level, Message, State

POLICY = SendPolicy(
    retry_base=1, retry_cap=4, jitter=0, max_attempts=1_000_000, window=3, window_bytes=100
)


class Exchange(RuleBasedStateMachine):
    """One sender and one receiver that holds at most `room` messages and answers `wait` beyond."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: dict[int, Message] = {}
        self.line = SendWindow(POLICY, lambda: 0.0)
        self.admitted = 0
        self.now = 0.0
        self.out: deque[tuple[int, Action]] = deque()
        self.back: deque[tuple[int, Action, Input]] = deque()
        self.held: set[int] = set()
        self.released: set[int] = set()
        self.record: list[int] = []
        self.room = 3
        self.refused_ever = False

    def delivered(self) -> list[int]:
        """The numbers that were delivered, in their order."""
        return self.record

    def work(self) -> None:
        self.line.expire(self.now)
        while self.line.can_admit() and self.admitted < len(self.stored):
            if not self.line.admit(self.stored[self.admitted + 1]):
                break
            self.admitted += 1
        sent = self.line.take(self.now)
        for message in self.line.changes():
            self.stored[message.number] = message
        self.out.extend((one.message.number, one.action) for one in sent)

    @rule()
    def queue(self) -> None:
        number = len(self.stored) + 1
        self.stored[number] = Message(number, Level.ASSURED, 1)
        self.work()

    @precondition(lambda self: not self.line.online)
    @rule()
    def connect(self) -> None:
        self.line.resume()
        self.work()

    @precondition(lambda self: self.line.online)
    @rule(requests=st.integers(0, 3))
    def cut(self, requests: int) -> None:
        """Lose the session; some requests still reach the receiver, no answer comes back."""
        for _ in range(min(requests, len(self.out))):
            self.receive()
        self.out.clear()
        self.back.clear()
        self.line.interrupt()

    @rule()
    def crash(self) -> None:
        self.out.clear()
        self.back.clear()
        self.line = SendWindow(POLICY, lambda: 0.0)
        flying = [m for _, m in sorted(self.stored.items()) if m.state in IN_FLIGHT]
        self.line.restore(flying)
        live = [n for n, m in self.stored.items() if m.state is State.QUEUED]
        self.admitted = min(live, default=len(self.stored) + 1) - 1

    @precondition(lambda self: self.out)
    @rule()
    def receive(self) -> None:
        number, action = self.out.popleft()
        if action is Action.OFFER:
            self.back.append((number, action, self.custody(number)))
        elif number in self.held:
            self.held.remove(number)
            self.released.add(number)
            self.record.append(number)
            self.back.append((number, action, Input.DELIVERED))
        else:
            known = number in self.released
            self.back.append((number, action, Input.DELIVERED if known else Input.REFUSED))

    def custody(self, number: int) -> Input:
        if number not in self.held and len(self.held) >= self.room:
            self.refused_ever = True
            return Input.WAIT
        self.held.add(number)
        return Input.RECEIVED

    @precondition(lambda self: self.back)
    @rule()
    def answer(self) -> None:
        number, action, given = self.back.popleft()
        asked = {Action.OFFER: State.OFFERED, Action.DELIVER: State.RELEASED}[action]
        if self.line_state(number) is asked:  # the plugin knows the step by the request's id
            self.line.apply_input(number, given, self.now)
        self.work()

    def line_state(self, number: int) -> State:
        return self.stored[number].state

    @rule(seconds=st.floats(0.1, 5))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.work()

    @rule(room=st.integers(0, 3))
    def resize(self, room: int) -> None:
        self.room = room

    @invariant()
    def nothing_is_delivered_twice(self) -> None:
        assert len(self.delivered()) == len(set(self.delivered()))

    @invariant()
    def what_is_believed_delivered_is(self) -> None:
        done = {n for n, m in self.stored.items() if m.state is State.DONE}
        assert done <= set(self.delivered())
        assert all(m.state is State.DONE for m in self.stored.values() if m.state in ENDED)

    @invariant()
    def deliveries_are_in_order(self) -> None:
        if not self.refused_ever:
            assert self.delivered() == sorted(self.delivered())

    def teardown(self) -> None:
        """With the link well again, and room for one message, everything gets through, soon."""
        self.room = 1
        if not self.line.online:
            self.connect()
        for _ in range(40 * (len(self.stored) + 1)):
            while self.out or self.back:
                if self.out:
                    self.receive()
                if self.back:
                    self.answer()
            due = self.line.next_due()
            if due is not None:
                self.now = max(self.now, due)
            self.work()
        assert sorted(self.delivered()) == sorted(self.stored)
        assert all(m.state is State.DONE for m in self.stored.values())


EXAMPLES = 3000 if os.environ.get("FIELDPOST_TEST_LONG") == "1" else 50

TestExchange = Exchange.TestCase
TestExchange.settings = settings(max_examples=EXAMPLES, stateful_step_count=60, deadline=None)
