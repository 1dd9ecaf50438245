"""The device's own sender and receiver, a lossy link, and crashes of both: exactly once, in order.

The receiver is the real one: its rules, its file and its turn. A crash of it loses what was not
committed, and the answers on their way; the application may fail; the room for messages changes.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from firmware_sim.device.inbox import Inbox
from firmware_sim.device.limits import InboxLimits
from firmware_sim.device.qos_receiver_plugin import IncomingStanza
from firmware_sim.device.qos_sender_plugin import Step
from firmware_sim.device.receive_options import ReceivedMessage, ReceiveOptions
from firmware_sim.device.receiver_loop import ReceiverLoop
from firmware_sim.device.receiver_rules import Reply
from firmware_sim.device.sender_rules import Action, Input, State
from tests.property.test_sender_exchange import Exchange

SCHEMA = "CREATE TABLE done (place INTEGER PRIMARY KEY, number INTEGER NOT NULL) STRICT"
SOURCE = "pump1@gw.example/fw"
MEMORY = Path("/dev") / "shm"  # commits cost little there; what they survive is tested elsewhere
STEPS = {Action.OFFER: Step.ASSURED, Action.DELIVER: Step.DELIVER}
ANSWERS = {Reply.RECEIVED: Input.RECEIVED, Reply.RESULT: Input.DELIVERED}


class PowerCut(BaseException):
    """The power fails while the application works."""


class Ear:
    """Hears the answers, by their text."""

    unsent = 0

    def __init__(self) -> None:
        self.heard: list[str] = []

    def answer(self, text: str) -> None:
        self.heard.append(text)


class Both(Exchange):
    """The exchange with the real receiver."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.fails: type[BaseException] | None = None
        self.told: list[int] = []
        self.open()

    def open(self) -> None:
        limits = InboxLimits(source_messages=self.room, source_bytes=10**6)
        path = Path(self.folder.name) / "inbox"
        self.inbox = Inbox.open(path, "valve1@gw.example/fw", limits, SCHEMA)
        receiving = ReceiveOptions(path, self.act, afterwards=lambda m: self.told.append(int(m.id)))
        self.porter = ReceiverLoop(self.inbox, receiving, self.failed)

    def act(self, message: ReceivedMessage, db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO done (number) VALUES (?)", (int(message.id),))
        if self.fails is not None:
            raise self.fails

    def failed(self, error: Exception) -> None:
        raise AssertionError from error

    def delivered(self) -> list[int]:
        rows = self.inbox.database.execute("SELECT number FROM done ORDER BY place").fetchall()
        return [row[0] for row in rows]

    @precondition(lambda self: self.out)
    @rule()
    def receive(self) -> None:
        number, action = self.out.popleft()
        ear, incoming = Ear(), self.request(number, action)
        self.porter.serve([(ear, incoming)])
        (reply,) = [reply for reply in Reply if ear.heard == [incoming.answer(reply)]]
        given = ANSWERS.get(reply)
        if given is None:
            self.refused_ever = True
            assert reply in (Reply.NO_ROOM, Reply.FAULT)
        self.back.append((number, action, given or Input.WAIT))

    def request(self, number: int, action: Action) -> IncomingStanza:
        step = STEPS[action]
        text = f"<message xmlns='jabber:client' id='{number}'/>" if step is Step.ASSURED else ""
        where = (f"{number}-{step.value}", SOURCE, "urn:xmpp:qos", str(number))
        return IncomingStanza(step, *where, text)

    @rule()
    def crash_receiver(self) -> None:
        """Lose the receiver, and the answers that it had not sent yet."""
        self.back.clear()
        self.porter.stop()
        self.inbox.close()
        self.open()
        if self.line.online:
            self.cut(0)

    @precondition(lambda self: self.out)
    @rule()
    def cut_power_in_the_turn(self) -> None:
        """Lose the receiver after the application did its work, and before the commit."""
        number, action = self.out.popleft()
        if action is Action.DELIVER:
            self.fails = PowerCut
            with suppress(PowerCut):
                self.porter.serve([(Ear(), self.request(number, action))])
            self.fails = None
        self.crash_receiver()

    @precondition(lambda self: self.out)
    @rule()
    def fail_once(self) -> None:
        self.fails = RuntimeError
        self.receive()
        self.fails = None

    @rule(room=st.integers(0, 3))
    def resize(self, room: int) -> None:
        self.room = room
        self.crash_receiver()

    def teardown(self) -> None:
        try:
            self.room = 1
            self.crash_receiver()
            super().teardown()
            assert len(self.told) == len(set(self.told))
            assert set(self.told) <= set(self.delivered())
            assert all(m.state is State.DONE for m in self.stored.values())
        finally:
            self.inbox.close()
            self.folder.cleanup()


EXAMPLES = 1000 if os.environ.get("FIELDPOST_TEST_LONG") == "1" else 20

TestBoth = Both.TestCase
TestBoth.settings = settings(max_examples=EXAMPLES, stateful_step_count=50, deadline=None)
