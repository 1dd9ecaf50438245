"""Senders, a link that breaks, the receiver and crashes of each: delivered exactly once, in order.
Acknowledged messages may be delivered several times.

The senders are the firmware's own: its rules, its send window and its outbox on disk, driven as its
sender loop does it. The receiver is the gateway's own router and store on a file, reached through
XML, the packets of MQTT (`tests.helpers.mqtt_model`), or the lines of `tests.toy`. A crash loses
what is in memory, and a cut link loses what is in transit; a crash of the gateway may come before
the commit of what it works on, or after it and before the answers.

Devices keep their resource, or have a new one in each session. Then a session whose link is lost
stays at the gateway, and receives what is in transit, until the gateway notices the loss. The
msgIds of the other protocols belong to the full address alone, and custody to a state that outlives
the session. What MQTT cannot refuse ends its session.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edge.config.limits import Limits
from edge.config.options import Pubsub, Readings
from edge.engine.store import database, meta
from edge.engine.store.database import Transaction
from edge.engine.store.events import LANES, StoredEvent
from edge.features.custody.rules import Reason
from edge.mqtt.reasons import Reason as MqttReason
from firmware_sim.device import messages
from firmware_sim.device.limits import SendPolicy
from firmware_sim.device.outbox import Outbox
from firmware_sim.device.qos_sender_plugin import Request, Step
from firmware_sim.device.send_window import SendWindow
from firmware_sim.device.sender_rules import LIVE, Action, Input, Level, Message, State
from tests.helpers import mqtt_model
from tests.helpers.custody_image import image_equals_rows
from tests.helpers.store import DOMAIN, Gateway, delete_unsealed, new_database, read_reply
from tests.toy.model import add_toy, bind, line, words

LONG: Final = os.environ.get("FIELDPOST_TEST_LONG") == "1"
DEVICES: Final = ("pump1", "valve1")
REFUSALS: Final = (("wait", "resource-constraint"), ("wait", "unexpected-request"))
POLICY: Final = SendPolicy(retry_base=1, retry_cap=4, jitter=0, max_attempts=1_000_000, window=3)
LIMITS: Final = Limits(held_messages_per_source=4, released_keys=8, unsealed_events=6)
FOREVER: Final = 1_000_000.0
LEVELS: Final = st.lists(
    st.sampled_from([Level.ASSURED, Level.ASSURED, Level.ACKNOWLEDGED]), min_size=1, max_size=3
)
HELD_COPIES: Final = "SELECT count(*) FROM custody WHERE released IS NULL AND exclusive = ?"


class Requested(NamedTuple):
    """A request: the number of its message, the id that its answer has, and its text."""

    number: int
    id: str
    text: str


class Answer(NamedTuple):
    """An answer: the id of its request, and what it says."""

    id: str
    meaning: Input


class RequestInTransit(NamedTuple):
    """A request in transit: the number of its message, and its unit of work at the gateway."""

    device: str
    number: int
    unit: Callable[[Transaction], bytes]


class Device:
    """A device: the memory of its process, and an outbox that survives a crash.

    Attributes:
        levels: the levels of its messages.
    """

    def __init__(self, name: str, folder: Path, protocol: str) -> None:
        self.name = name
        self.protocol = protocol
        self.levels: dict[int, Level] = {}
        self.full = self.address = f"{name}@{DOMAIN}/fw"
        self._path = folder / f"{name}.outbox"
        self.outbox = Outbox.open(self._path, self.address)
        self._load()

    def _load(self) -> None:
        self.window = SendWindow(POLICY, lambda: 0.0)
        self._stored = {message.number: message.state for message in self.outbox.in_flight()}
        self.window.restore(self.outbox.in_flight())
        self._admitted = max(self._stored, default=0)
        self.awaited: set[str] = set()

    def crash(self) -> None:
        self.outbox.close()
        self.outbox = Outbox.open(self._path, self.address)
        self._load()

    def offline(self) -> None:
        self.window.interrupt()
        self.awaited.clear()

    def add(self, level: Level) -> None:
        with self.outbox.transaction():
            number = sum(self.outbox.counts().values()) + 1
            body = messages.log("count", f"{self.name} {number}")
            assert self.outbox.add(DOMAIN, level, body).number == number
        self.levels[number] = level

    def bind(self, gateway: Gateway) -> None:
        gateway.bind(self.full)

    def work(self, now: float) -> list[Requested]:
        """Do one step of the sender loop; requests are saved before they are sent."""
        self.window.expire(now)
        with self.outbox.transaction():
            while self.window.can_admit() and self._admit():
                pass
            requests = [self._request(sent.message, sent.action) for sent in self.window.take(now)]
            for message in self.window.changes():
                self.outbox.save(self._stored[message.number], message)
                self._stored[message.number] = message.state
        self.awaited.update(request.id for request in requests)
        return requests

    def _admit(self) -> bool:
        found = self.outbox.queued(self._admitted, 1)
        if not found or not self.window.admit(found[0]):
            return False
        self._admitted = found[0].number
        self._stored[self._admitted] = State.QUEUED
        return True

    def _request(self, message: Message, action: Action) -> Requested:
        msg_id = f"{self.outbox.id}-{message.number}"
        if action is Action.DELIVER:
            request = Request(Step.DELIVER, f"{msg_id}-d", DOMAIN, msg_id)
        else:
            body = self.outbox.envelope(message.number).body
            step = Step[message.level.name]
            request = Request(step, f"{msg_id}-a", DOMAIN, msg_id, body)
        return Requested(message.number, request.id, request.text())

    def read(self, outcome: bytes) -> Answer | None:
        """Read an answer; there is none if the session of its request has ended."""
        reply = read_reply(outcome)
        if reply is None:
            return None
        if reply.error is not None:
            assert reply.error in REFUSALS, "no other error is expected here"
            return Answer(reply.attrs["id"], Input.WAIT)
        meaning = Input.DELIVERED if reply.payload is None else Input.RECEIVED
        return Answer(reply.attrs["id"], meaning)

    def answer(self, answer: Answer, number: int, now: float) -> None:
        """Apply an answer if its request still waits for one."""
        if answer.id in self.awaited:
            self.awaited.remove(answer.id)
            self.window.apply_input(number, answer.meaning, now)


class ToyDevice(Device):
    """A device that speaks the toy protocol; the numbers of its messages are their ids."""

    def to(self) -> str:
        """Return where its messages go."""
        return DOMAIN

    def bind(self, gateway: Gateway) -> None:
        bind(gateway, self.full, FOREVER)

    def _request(self, message: Message, action: Action) -> Requested:
        number = message.number
        if action is Action.DELIVER:
            return Requested(number, f"release {number}", line("release", number))
        reading = f'{{"{self.name}": {number}}}'
        text = line("publish", number, message.level, self.to(), "application/json", reading)
        return Requested(number, f"publish {number}", text)

    def read(self, outcome: bytes) -> Answer | None:
        if not outcome:
            return None
        name, *rest = words(outcome)
        if name == "refused":
            assert rest[-1] == Reason.NO_ROOM.name, "no other error is expected here"
            return Answer(" ".join(rest[:2]), Input.WAIT)
        if name == "end":
            assert rest == [MqttReason.QUOTA_EXCEEDED.name]
            return Answer("", Input.OFFLINE)
        request = "release" if name == "completed" else "publish"
        meaning = Input.RECEIVED if name == "received" else Input.DELIVERED
        return Answer(f"{request} {rest[0]}", meaning)


class MqttDevice(ToyDevice):
    """A device that speaks a version of MQTT. The gateway reads its messages by a rule."""

    def to(self) -> str:
        return f"{mqtt_model.SERVICE}/{self.name}"

    def bind(self, gateway: Gateway) -> None:
        mqtt_model.bind(gateway, self.full, FOREVER, self.protocol)


class Exchange(RuleBasedStateMachine):
    """Two devices and a gateway."""

    @initialize(kind=st.sampled_from(["fixed", "changing", "toy", *mqtt_model.VERSIONS]))
    def begin(self, kind: str) -> None:
        self.changing = kind == "changing"
        self.is_mqtt = kind in mqtt_model.VERSIONS
        self.sessions = 0
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name)
        self.gateway = Gateway(
            new_database(path),
            LIMITS,
            pubsub=Pubsub(auto_create=["#"]),
            readings=[Readings(filter="#")],
        )
        add_toy(self.gateway)
        mqtt_model.add_mqtt(self.gateway)
        device = MqttDevice if self.is_mqtt else ToyDevice if kind == "toy" else Device
        self.devices = {name: device(name, path, kind) for name in DEVICES}
        for name in DEVICES:
            self.gateway.add(name)
        self.up: deque[RequestInTransit] = deque()
        self.down: dict[str, deque[tuple[int, Answer]]] = {name: deque() for name in DEVICES}
        self.late: list[RequestInTransit] = []
        self.promised: set[tuple[str, int]] = set()
        self.refused = False
        self.sealed: list[StoredEvent] = []
        self.now = 0.0
        for name in DEVICES:
            self.connect(name)

    def work(self, name: str) -> None:
        device = self.devices[name]
        for request in device.work(self.now):
            unit = self.gateway.work(device.full, request.text)
            self.up.append(RequestInTransit(name, request.number, unit))

    def cut(self, name: str) -> None:
        """Lose what is in transit; the gateway may still process what it has read already."""
        mine = [sent for sent in self.up if sent.device == name]
        self.up = deque(sent for sent in self.up if sent.device != name)
        self.late += mine
        self.down[name].clear()
        self.devices[name].offline()

    # What devices do.

    @rule(name=st.sampled_from(DEVICES), levels=LEVELS)
    def queue(self, name: str, levels: list[Level]) -> None:
        for level in levels:
            self.devices[name].add(level)
        self.work(name)

    @rule(name=st.sampled_from(DEVICES))
    def connect(self, name: str) -> None:
        """Begin a session; it replaces an existing one."""
        device = self.devices[name]
        if device.window.online:
            self.cut(name)
        if self.changing:
            self.sessions += 1
            device.full = f"{device.address}/{self.sessions}"
        device.bind(self.gateway)
        device.window.resume()
        self.work(name)

    @rule(name=st.sampled_from(DEVICES), answers=st.integers(0, 2))
    def lose_the_link(self, name: str, answers: int) -> None:
        for _ in range(min(answers, len(self.down[name]))):
            self.receive_answer(name)
        self.cut(name)

    @rule(name=st.sampled_from(DEVICES))
    def crash_a_device(self, name: str) -> None:
        self.cut(name)
        self.devices[name].crash()

    @precondition(lambda self: any(self.down.values()))
    @rule(name=st.sampled_from(DEVICES))
    def receive_answer(self, name: str) -> None:
        if self.down[name]:
            number, answer = self.down[name].popleft()
            self.devices[name].answer(answer, number, self.now)
            self.work(name)

    @rule(seconds=st.floats(0.5, 5))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.gateway.clock.service += seconds
        for name in DEVICES:
            self.work(name)

    # What the gateway does.

    def lost_sessions(self, name: str) -> list[str]:
        """Return the sessions that a device has lost and the gateway still has."""
        device = self.devices[name]
        mine = [full for full in self.gateway.bound() if full.startswith(f"{name}@")]
        return [full for full in mine if full != device.full or not device.window.online]

    @precondition(lambda self: any(self.lost_sessions(name) for name in DEVICES))
    @rule(name=st.sampled_from(DEVICES), resumable=st.booleans())
    def notice_lost_links(self, name: str, resumable: bool) -> None:
        """End sessions, or let them wait to be resumed, which does not happen."""
        for full in self.lost_sessions(name):
            if resumable and not self.is_mqtt:
                self.gateway.detach(full)
            else:
                self.gateway.end(full)

    @precondition(lambda self: self.up)
    @rule(count=st.integers(1, 6))
    def commit(self, count: int) -> None:
        group = self.take(count)
        self.answer(group, self.gateway.commit(lambda tx: [sent.unit(tx) for sent in group]))

    @precondition(lambda self: self.up)
    @rule(rounds=st.integers(1, 6), lost=st.booleans())
    def exchange(self, rounds: int, lost: bool) -> None:
        """Exchange requests and answers; the last answers stay in transit, or are lost.

        In the last round, no device learns what the gateway has done.
        """
        for round_ in range(rounds):
            if self.up:
                self.commit(6)
            for name in DEVICES if round_ < rounds - 1 else ():
                while self.down[name]:
                    self.receive_answer(name)
        for name in DEVICES if lost else ():
            self.connect(name)

    def take(self, count: int) -> list[RequestInTransit]:
        return [self.up.popleft() for _ in range(min(count, len(self.up)))]

    def answer(self, group: list[RequestInTransit], outcomes: list[bytes]) -> None:
        for sent, outcome in zip(group, outcomes, strict=True):
            device = self.devices[sent.device]
            if not device.window.online:
                continue  # the gateway has ended its session by an earlier answer
            answer = device.read(outcome)
            assert answer is not None, "its session exists"
            self.down[sent.device].append((sent.number, answer))
            self.note(sent, answer)
            if answer.meaning is Input.OFFLINE:
                self.cut(sent.device)

    def note(self, sent: RequestInTransit, answer: Answer) -> None:
        self.refused = self.refused or answer.meaning in (Input.WAIT, Input.OFFLINE)
        if answer.meaning in (Input.RECEIVED, Input.DELIVERED):
            self.promised.add((sent.device, sent.number))

    @precondition(lambda self: self.late)
    @rule()
    def process_a_late_request(self) -> None:
        """Process a request whose session was replaced, or whose device has disconnected."""
        sent = self.late.pop(0)
        answer = self.devices[sent.device].read(self.gateway.commit(sent.unit))
        if answer is not None:
            self.note(sent, answer)

    @rule(count=st.integers(0, 6), committed=st.booleans())
    def crash_the_gateway(self, count: int, committed: bool) -> None:
        group = self.take(count)
        connection = self.gateway.connection
        connection.execute("BEGIN IMMEDIATE")
        tx = database.Transaction(connection, self.gateway.clock())
        for sent in group:
            sent.unit(tx)
        if committed:
            tx.run_before_commit()
            connection.execute("COMMIT")
        self.gateway.crash()
        self.gateway.clock.service = self.gateway.tx(meta.last_service_second)
        for name in DEVICES:
            self.cut(name)
        self.late.clear()

    @rule()
    def seal(self) -> None:
        """Free space in the event log."""
        self.sealed += self.gateway.events()
        for lane in LANES:
            self.gateway.tx(lambda tx, lane=lane: delete_unsealed(tx, lane))  # type: ignore[misc]

    # What must be true.

    def logged(self) -> list[StoredEvent]:
        return self.sealed + self.gateway.events()

    def delivered(self, name: str) -> list[int]:
        source = self.devices[name].address
        found = [event for event in self.logged() if (event.source or "").startswith(source)]
        texts = [event.text or "" for event in found if event.kind == "log"]
        texts += [f"{one.name} {one.value:.0f}" for one in found if one.kind == "reading"]
        assert all(text.startswith(f"{name} ") for text in texts)
        return [int(text.split(" ")[1]) for text in texts]

    def states(self, name: str) -> dict[int, State]:
        outbox = self.devices[name].outbox
        return {record.number: record.state for record in outbox.records(*State)}

    @invariant()
    def messages_are_delivered_once_in_order(self) -> None:
        for name, device in self.devices.items():
            delivered = self.delivered(name)
            assured = [n for n in delivered if device.levels[n] is Level.ASSURED]
            assert len(assured) == len(set(assured))
            if not self.refused:
                first = list(dict.fromkeys(delivered))
                assert first == sorted(first)

    @invariant()
    def messages_in_state_done_are_delivered_and_none_fails(self) -> None:
        for name in DEVICES:
            states = self.states(name)
            done = {number for number, state in states.items() if state is State.DONE}
            assert done <= set(self.delivered(name))
            assert all(state in LIVE or number in done for number, state in states.items())

    @invariant()
    def received_messages_are_held_or_delivered(self) -> None:
        rows = self.gateway.connection.execute("SELECT source, msg_id FROM held").fetchall()
        keys = [(source.partition("@")[0], re.split("[-\x1f]", key)[-1]) for source, key in rows]
        kept = {(name, int(number)) for name, number in keys}
        kept |= {(name, number) for name in DEVICES for number in self.delivered(name)}
        assert self.promised <= kept

    @invariant()
    def the_image_of_custody_equals_its_rows(self) -> None:
        gateway = self.gateway
        image_equals_rows(Transaction(gateway.connection, gateway.clock(), gateway.cache))

    @invariant()
    def only_expected_limits_were_exceeded(self) -> None:
        names = {event.name for event in self.logged() if event.kind == "limit"}
        assert names <= {"unsealed_events", "held_messages_per_source", "msgid_elsewhere"}

    def teardown(self) -> None:
        """With a stable link and free space in the log, every message arrives once."""
        if not hasattr(self, "gateway"):
            return
        try:
            self.finish()
        finally:
            for device in self.devices.values():
                device.outbox.close()
            self.gateway.close()
            self.folder.cleanup()

    def held_copies(self, *, exclusive: bool) -> int:
        copies: int = self.gateway.count(HELD_COPIES, exclusive)
        return copies

    def deliver_all(self) -> None:
        """Deliver what no limit prevents."""
        for _ in range(10 * sum(len(self.states(name)) for name in DEVICES) + 10):
            self.seal()
            for name, device in self.devices.items():
                if not device.window.online:
                    self.connect(name)
            while self.up or any(self.down.values()):
                if self.up:
                    self.commit(6)
                for name in DEVICES:
                    self.receive_answer(name)
            if not any(device.outbox.live for device in self.devices.values()):
                break
            self.wait(5.0)

    def finish(self) -> None:
        """Deliver everything, and check the results."""
        for name in DEVICES:
            self.connect(name)
            self.notice_lost_links(name, True)
        self.deliver_all()
        if self.held_copies(exclusive=True):  # of lost sessions: at a limit they are evicted, later
            self.wait(LIMITS.held_grace + 1)
            self.deliver_all()
        for name in DEVICES:
            states = self.states(name)
            assert set(self.delivered(name)) == set(states)
            assert set(states.values()) <= {State.DONE}
        assert self.held_copies(exclusive=False) == 0


TestExchange = Exchange.TestCase
TestExchange.settings = settings(
    max_examples=300 if LONG else 10,
    stateful_step_count=80 if LONG else 50,
    deadline=None,
    print_blob=True,
)
