"""The device's own sender and receiver, a lossy link, and crashes of both: exactly once, in order.

A cut loses what is on the link. A crash of the sender loses what it did not save; one of the
receiver loses what it did not commit, and its answers on the link.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections import deque
from contextlib import suppress
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from firmware_sim.device.inbox import Inbox
from firmware_sim.device.limits import InboxLimits, SendPolicy
from firmware_sim.device.qos_receiver_plugin import IncomingStanza
from firmware_sim.device.qos_sender_plugin import Step
from firmware_sim.device.receive_options import ReceivedMessage, ReceiveOptions
from firmware_sim.device.receiver_loop import ReceiverLoop
from firmware_sim.device.receiver_rules import Reply
from firmware_sim.device.send_window import SendWindow
from firmware_sim.device.sender_rules import ENDED, IN_FLIGHT, Action, Input, Level, Message, State

POLICY = SendPolicy(
    retry_base=1, retry_cap=4, jitter=0, max_attempts=1_000_000, window=3, window_bytes=100
)
SCHEMA = "CREATE TABLE done (place INTEGER PRIMARY KEY, number INTEGER NOT NULL) STRICT"
SOURCE = "pump1@gw.example/fw"
MEMORY = Path("/dev") / "shm"  # commits cost little there; what they survive is tested elsewhere
STEPS = {Action.OFFER: Step.ASSURED, Action.DELIVER: Step.DELIVER}
EXPECTED = {Action.OFFER: State.OFFERED, Action.DELIVER: State.RELEASED}
ANSWERS = {Reply.RECEIVED: Input.RECEIVED, Reply.RESULT: Input.DELIVERED}


class PowerCut(BaseException):
    """The power fails while the application works."""


class Answers(list[str]):
    """The link of a receiver: it records the answers."""

    unsent = 0

    def answer(self, text: str) -> None:
        self.append(text)


class Exchange(RuleBasedStateMachine):
    """A sender, and a receiver that holds at most `capacity` messages."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: dict[int, Message] = {}
        self.window = SendWindow(POLICY, lambda: 0.0)
        self.admitted = 0
        self.now = 0.0
        self.out: deque[tuple[int, Action]] = deque()
        self.back: deque[tuple[int, Action, Input]] = deque()
        self.capacity = 3
        self.refused_ever = False
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.fails: type[BaseException] | None = None
        self.finished: list[int] = []
        self.open()

    def open(self) -> None:
        limits = InboxLimits(source_messages=self.capacity, source_bytes=10**6)
        path = Path(self.folder.name) / "inbox"
        self.inbox = Inbox.open(path, "valve1@gw.example/fw", limits, SCHEMA)
        options = ReceiveOptions(
            path, self.act, afterwards=lambda message: self.finished.append(int(message.id))
        )
        self.receiver = ReceiverLoop(self.inbox, options, self.failed)

    def act(self, message: ReceivedMessage, db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO done (number) VALUES (?)", (int(message.id),))
        if self.fails is not None:
            raise self.fails

    def failed(self, error: Exception) -> None:
        raise AssertionError from error

    def delivered(self) -> list[int]:
        rows = self.inbox.database.execute("SELECT number FROM done ORDER BY place").fetchall()
        return [row[0] for row in rows]

    # The sender

    def work(self) -> None:
        self.window.expire(self.now)
        while self.window.can_admit() and self.admitted < len(self.stored):
            if not self.window.admit(self.stored[self.admitted + 1]):
                break
            self.admitted += 1
        sent = self.window.take(self.now)
        for message in self.window.changes():
            self.stored[message.number] = message
        self.out.extend((one.message.number, one.action) for one in sent)

    @rule()
    def queue(self) -> None:
        number = len(self.stored) + 1
        self.stored[number] = Message(number, Level.ASSURED, 1)
        self.work()

    @precondition(lambda self: not self.window.online)
    @rule()
    def connect(self) -> None:
        self.window.resume()
        self.work()

    @precondition(lambda self: self.window.online)
    @rule(requests=st.integers(0, 3))
    def cut(self, requests: int) -> None:
        """Lose the session after some requests have reached the receiver."""
        for _ in range(min(requests, len(self.out))):
            self.receive()
        self.out.clear()
        self.back.clear()
        self.window.interrupt()

    @rule()
    def crash_sender(self) -> None:
        self.out.clear()
        self.back.clear()
        self.window = SendWindow(POLICY, lambda: 0.0)
        self.window.restore([m for _, m in sorted(self.stored.items()) if m.state in IN_FLIGHT])
        live = [n for n, m in self.stored.items() if m.state is State.QUEUED]
        self.admitted = min(live, default=len(self.stored) + 1) - 1

    @precondition(lambda self: self.back)
    @rule()
    def answer(self) -> None:
        number, action, input_ = self.back.popleft()
        if self.stored[number].state is EXPECTED[action]:  # the plugin knows it by the request's id
            self.window.apply_input(number, input_, self.now)
        self.work()

    @rule(seconds=st.floats(0.1, 5))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.work()

    # The receiver

    @precondition(lambda self: self.out)
    @rule()
    def receive(self) -> None:
        number, action = self.out.popleft()
        link, request = Answers(), self.request(number, action)
        self.receiver.serve([(link, request)])
        (reply,) = [reply for reply in Reply if link == [request.answer(reply)]]
        input_ = ANSWERS.get(reply)
        if input_ is None:
            self.refused_ever = True
            assert reply in (Reply.NO_ROOM, Reply.FAULT)
        self.back.append((number, action, input_ or Input.WAIT))

    def request(self, number: int, action: Action) -> IncomingStanza:
        step = STEPS[action]
        text = f"<message xmlns='jabber:client' id='{number}'/>" if step is Step.ASSURED else ""
        fields = (f"{number}-{step.value}", SOURCE, "urn:xmpp:qos", str(number))
        return IncomingStanza(step, *fields, text)

    @rule()
    def crash_receiver(self) -> None:
        self.back.clear()
        self.receiver.stop()
        self.inbox.close()
        self.open()
        if self.window.online:
            self.cut(0)

    @precondition(lambda self: self.out)
    @rule()
    def cut_power_before_the_commit(self) -> None:
        """Lose the receiver after the application did its work."""
        number, action = self.out.popleft()
        if action is Action.DELIVER:
            self.fails = PowerCut
            with suppress(PowerCut):
                self.receiver.serve([(Answers(), self.request(number, action))])
            self.fails = None
        self.crash_receiver()

    @precondition(lambda self: self.out)
    @rule()
    def fail_once(self) -> None:
        self.fails = RuntimeError
        self.receive()
        self.fails = None

    @rule(capacity=st.integers(0, 3))
    def resize(self, capacity: int) -> None:
        self.capacity = capacity
        self.crash_receiver()

    @invariant()
    def nothing_is_delivered_twice(self) -> None:
        assert len(self.delivered()) == len(set(self.delivered()))

    @invariant()
    def each_message_recorded_as_done_is_delivered(self) -> None:
        done = {n for n, m in self.stored.items() if m.state is State.DONE}
        assert done <= set(self.delivered())
        assert all(m.state is State.DONE for m in self.stored.values() if m.state in ENDED)

    @invariant()
    def deliveries_are_in_order(self) -> None:
        if not self.refused_ever:
            assert self.delivered() == sorted(self.delivered())

    def teardown(self) -> None:
        try:
            self.finish()
        finally:
            self.inbox.close()
            self.folder.cleanup()

    def finish(self) -> None:
        """Deliver everything, with a stable link and capacity for one message."""
        self.capacity = 1
        self.crash_receiver()
        if not self.window.online:
            self.connect()
        for _ in range(40 * (len(self.stored) + 1)):
            while self.out or self.back:
                if self.out:
                    self.receive()
                if self.back:
                    self.answer()
            due = self.window.next_due()
            if due is not None:
                self.now = max(self.now, due)
            self.work()
        assert sorted(self.delivered()) == sorted(self.stored)
        assert all(m.state is State.DONE for m in self.stored.values())
        assert len(self.finished) == len(set(self.finished))
        assert set(self.finished) <= set(self.delivered())


EXAMPLES = 1000 if os.environ.get("FIELDPOST_TEST_LONG") == "1" else 12

TestExchange = Exchange.TestCase
TestExchange.settings = settings(max_examples=EXAMPLES, stateful_step_count=50, deadline=None)
