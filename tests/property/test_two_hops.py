"""Property tests of exactly-once delivery from device to gateway to device, with crashes of each.

Senders and receivers are scripted, with a memory that survives their crashes. Each side speaks
XMPP, or a protocol that does not resend on a connection, has a few ids for messages, and requires
an order of releases (`tests.toy`; MQTT 5, sections 4.4 and 4.6). The gateway is the real router and
store on a file, driven by XML and lines. Each unit of work is first undone in memory, and images
are compared with rows after each. A cut link loses the stanzas in transit; a resumed session loses
nothing. The gateway may crash before a commit, or after it and before its answers.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edge.config.limits import Limits
from edge.engine.rules.quota import Usage
from edge.engine.store import database, meta
from edge.engine.store.database import Transaction
from edge.features.custody.rules import Reason
from edge.features.outbox.service import QosRequest, RequestKind
from edge.features.outbox.store import dead_letters, outbox
from tests.helpers.outbox_image import DryRunGateway
from tests.helpers.qos_devices import (
    empty_result,
    error_result,
    make_eligible,
    message_xml,
    parse_request,
    received_result,
)
from tests.helpers.store import (
    DOMAIN,
    Sent,
    acknowledged,
    assured,
    deliver,
    new_database,
    read_element,
    read_reply,
)
from tests.toy.model import add_toy, bind, line, words
from tests.toy.requests import DECLARED, IDS

if TYPE_CHECKING:
    Unit = Callable[[Transaction], bytes]

LONG: Final = os.environ.get("FIELDPOST_TEST_LONG") == "1"
SENDERS: Final = ("pump", "cam")
RECEIVER: Final = f"valve@{DOMAIN}"
SENDER_SESSIONS: Final = tuple(f"{name}@{DOMAIN}/fw" for name in SENDERS)
SESSIONS: Final = (f"{RECEIVER}/fw", f"{RECEIVER}/spare")
STEPS: Final = ("assured", "deliver", "acknowledged")
LEVELS: Final = st.lists(st.sampled_from([1, 2, 2]), min_size=1, max_size=5)
LIMITS: Final = Limits(
    outbox_messages_per_account=8,
    outbox_window=3,
    outbox_ttl=5000,
    retry_after=10,
    retry_most=40,
    retry_attempts=4,
)


class Sender:
    """A device that sends messages one after the other; its state survives crashes."""

    to = RECEIVER

    def __init__(self, name: str) -> None:
        self.name = name
        self.full = f"{name}@{DOMAIN}/fw"
        self.levels: list[int] = []
        self.done: set[int] = set()
        self.refused: set[int] = set()
        self.step = "assured"
        self.waits = ""  # the id of the request that it has no answer to
        self.reported_dead: Counter[str | None] = Counter()  # dead letters reported to it, by msgId

    def begin(self, *, is_resumed: bool) -> None:
        """Begin a session."""

    @property
    def current(self) -> int:
        """The number of the current message, from 0."""
        return len(self.done) + len(self.refused)

    def request(self) -> str | None:
        """Return what it sends next, if anything."""
        if self.waits or self.current >= len(self.levels):
            return None
        message, msg_id = message_xml(self.next_text()), f"m{self.current}"
        if self.levels[self.current] == 1:
            self.waits = "k"
            return acknowledged(message, self.to)
        self.waits = f"{self.step[0]}-{msg_id}"
        if self.step == "assured":
            return assured(msg_id, message, self.to)
        return deliver(msg_id, self.to)

    def next_text(self) -> str:
        """Return the text of the current message, which is then sent."""
        return f"{self.name} {self.current}"

    def answer(self, stanza: bytes) -> None:
        """Process an answer, or a message that reports an undelivered one."""
        if stanza.startswith(b"<message"):
            self.reported_dead[reported(stanza)] += 1
            return
        reply = read_reply(stanza)
        if reply is None or reply.attrs.get("id") != self.waits:
            return
        self.waits = ""
        if reply.error is not None:
            if reply.error[0] == "wait":
                return
            self.refused.add(self.current)
        elif reply.payload is not None:
            self.step = "deliver"
            return
        else:
            self.done.add(self.current)
        self.step = "assured"


class ToySender(Sender):
    """A device that sends by the toy protocol; its state at the gateway never ends."""

    content_type = "text/plain"

    def begin(self, *, is_resumed: bool) -> None:
        assert is_resumed or not self.levels

    def request(self) -> str | None:
        if self.waits or self.current >= len(self.levels):
            return None
        id, level = 1 + self.current % IDS, self.levels[self.current]
        if self.step == "deliver":
            self.waits = f"completed {id}"
            return line("release", id)
        self.waits = f"received {id}" if level == 2 else f"acknowledged {id}"
        return line("publish", id, level, self.to, self.content_type, self.next_text())

    def answer(self, stanza: bytes) -> None:
        name, id, *rest = words(stanza)
        if name == "report":
            self.reported_dead[id or None] += 1
        elif name == "refused" and self.waits:
            self.waits = ""
            if rest[-1] != Reason.NO_ROOM.name:
                self.refused.add(self.current)
                self.step = "assured"
        elif f"{name} {id}" == self.waits:
            self.waits, self.step = "", "deliver" if name == "received" else "assured"
            if name != "received":
                self.done.add(self.current)


def reported(stanza: bytes) -> str | None:
    """Return the msgId of the undelivered message that this error reports."""
    message = read_element(stanza)
    assert (message.get("type"), message.get("from")) == ("error", RECEIVER)
    assert message.find("{jabber:client}error") is not None
    return message[0].get("msgId")


class Receiver:
    """A session of the receiving device; what it holds and has executed survives crashes."""

    def __init__(self, full: str) -> None:
        self.full = full
        self.held: dict[str, str] = {}
        self.released: set[str] = set()
        self.executed: list[str] = []
        self.refuses: Counter[str] = Counter()  # how many requests of each step it refuses

    def begin(self, *, is_resumed: bool) -> None:
        """Begin a session."""

    def take(self, stanza: bytes) -> str:
        """Process a request, and return the answer."""
        one = parse_request(stanza)
        if self.refuses[one.step]:
            self.refuses[one.step] -= 1
            return error_result(one, "wait", "resource-constraint")
        if one.step == "acknowledged":
            assert one.text is not None
            self.executed.append(one.text)
            return empty_result(one)
        assert one.msg_id is not None
        if one.step == "assured":
            assert one.text is not None
            assert one.msg_id not in self.released, "a received message is never offered again"
            self.held[one.msg_id] = one.text
            return received_result(one)
        if one.msg_id in self.held:
            self.executed.append(self.held.pop(one.msg_id))
            self.released.add(one.msg_id)
        if one.msg_id in self.released:
            return empty_result(one)
        return error_result(one, "cancel", "conflict")


class ToyReceiver(Receiver):
    """A session that knows messages by one of a few ids, by the toy protocol."""

    def __init__(self, full: str) -> None:
        super().__init__(full)
        self.texts: dict[str, str] = {}  # of the last message of each id
        self.received: list[str] = []  # texts in the order of its answers to offers
        self.releases: list[str] = []  # texts that the current session was asked to release

    def begin(self, *, is_resumed: bool) -> None:
        """Begin a session; without a state at the gateway, the device forgets its own."""
        self.releases.clear()
        if not is_resumed:
            self.texts.clear()
            self.held.clear()

    def take(self, stanza: bytes) -> str:
        name, id, *rest = words(stanza)
        if name == "release":
            return self.release(id)
        level, text = rest[0], text_of(rest[-1])
        if level == "1":
            self.executed.append(text)
            return line("acknowledged", id)
        assert self.held.get(id, text) == text, "another message has the id"
        assert text not in self.released, "a received message is never offered again"
        self.held[id] = self.texts[id] = text
        self.received = [known for known in self.received if known != text] + [text]
        return line("received", id)

    def release(self, id: str) -> str:
        if id in self.held:
            self.executed.append(self.held.pop(id))
            self.released.add(self.texts[id])
        if id in self.texts:
            self.releases.append(self.texts[id])
        order = [known for known in self.received if known in self.releases]
        assert self.releases == order, "releases do not follow the order of the answers"
        return line("completed", id)


def text_of(message: str) -> str:
    """Return the text of a message, which may be in the XML of XMPP."""
    return message.partition("<body")[2].partition(">")[2].partition("<")[0] or message


class TwoHops(RuleBasedStateMachine):
    """Two senders, a gateway, and a device with two sessions."""

    @initialize(from_toys=st.booleans(), to_toys=st.booleans())
    def begin(self, from_toys: bool, to_toys: bool) -> None:
        self.to_toys = to_toys
        self.toys = {*(SENDER_SESSIONS if from_toys else ()), *(SESSIONS if to_toys else ())}
        self.was_sent: set[tuple[int, RequestKind, int]] = set()
        self.folder = tempfile.TemporaryDirectory()
        self.gateway = DryRunGateway(new_database(Path(self.folder.name)), LIMITS)
        for name in (*SENDERS, "valve"):
            self.gateway.add(name)
        add_toy(self.gateway)
        sender, receiver = ToySender if from_toys else Sender, ToyReceiver if to_toys else Receiver
        self.senders = {full: sender(full.partition("@")[0]) for full in SENDER_SESSIONS}
        self.receivers = {full: receiver(full) for full in SESSIONS}
        self.up: deque[tuple[str, Unit]] = deque()
        self.down: dict[str, deque[Sent]] = {
            full: deque() for full in (*self.senders, *self.receivers)
        }
        self.detached: set[str] = set()
        self.requeued: set[str] = set()
        self.connected: set[str] = set()  # receivers that had a session
        for full in (*self.senders, SESSIONS[0]):
            self.connect(full)

    # The links.

    def work(self) -> None:
        """Let the senders send, and collect what the gateway has sent."""
        for full, sender in self.senders.items():
            if self.gateway.is_bound(full) and (xml := sender.request()) is not None:
                self.up.append((full, self.gateway.work(full, xml)))
        for full, queue in self.down.items():
            sends = self.gateway.sends(full) if self.gateway.is_bound(full) else []
            found = [one for one in sends if not one.stanza.startswith(b"<presence")]
            queue += found
            if full in self.toys:
                self.check_nothing_is_repeated(found)

    def check_nothing_is_repeated(self, sends: list[Sent]) -> None:
        for one in sends:
            if isinstance(one.message, QosRequest):
                key = one.generation, one.message.request, one.message.row
                assert key not in self.was_sent
                self.was_sent.add(key)

    def cut(self, full: str) -> None:
        """Lose what is in transit, and what its process had in memory."""
        self.up = deque(entry for entry in self.up if entry[0] != full)
        self.down[full].clear()
        self.detached.discard(full)
        if full in self.senders:
            self.senders[full].waits = ""

    @rule(full=st.sampled_from([*SESSIONS, *(f"{name}@{DOMAIN}/fw" for name in SENDERS)]))
    def connect(self, full: str) -> None:
        """Begin a session after a crash or a loss; it replaces an existing one."""
        self.cut(full)
        if full in self.toys:
            bind(self.gateway, full, 3000.0)
        else:
            self.gateway.bind(full)
        device = self.senders.get(full) or self.receivers[full]
        device.begin(is_resumed=self.gateway.is_resumed)
        if full in self.receivers:
            self.connected.add(full)
            make_eligible(self.gateway, full, priority=SESSIONS.index(full))
        else:
            make_eligible(self.gateway, full, qos="")
        self.work()

    @rule(full=st.sampled_from(SESSIONS))
    def leave(self, full: str) -> None:
        if self.gateway.is_bound(full):
            self.cut(full)
            self.gateway.end(full)
            self.work()

    @rule(full=st.sampled_from(SESSIONS))
    def detach(self, full: str) -> None:
        if self.gateway.is_bound(full) and not self.to_toys:
            self.detached.add(full)
            self.gateway.detach(full)

    @precondition(lambda self: self.detached)
    @rule()
    def resume(self) -> None:
        assert self.gateway.resume(self.detached.pop())
        self.work()

    # What devices do.

    @rule(name=st.sampled_from(SENDERS), levels=LEVELS)
    def queue(self, name: str, levels: list[int]) -> None:
        self.senders[f"{name}@{DOMAIN}/fw"].levels += levels
        self.work()

    @rule(full=st.sampled_from(SESSIONS), step=st.sampled_from(STEPS), times=st.integers(1, 3))
    def refuse_requests(self, full: str, step: str, times: int) -> None:
        self.receivers[full].refuses[step] = 0 if self.to_toys else times

    @rule(full=st.sampled_from(SESSIONS), count=st.integers(1, 4))
    def receive(self, full: str, count: int) -> None:
        """Let a receiver process some of its requests."""
        for _ in range(count):
            if self.down[full] and full not in self.detached:
                answer = self.receivers[full].take(self.down[full].popleft().stanza)
                self.up.append((full, self.gateway.work(full, answer)))

    # What the gateway does.

    def take(self, count: int) -> list[tuple[str, Unit]]:
        return [self.up.popleft() for _ in range(min(count, len(self.up)))]

    @rule(count=st.integers(1, 6))
    def commit(self, count: int) -> None:
        group = self.take(count)
        answers = self.gateway.commit(lambda tx: [unit(tx) for _full, unit in group])
        for (full, _unit), answer in zip(group, answers, strict=True):
            if answer:
                self.down[full].append(Sent(self.gateway.generation(full), (), None, answer))
        for full, sender in self.senders.items():
            while self.down[full]:
                sent = self.down[full].popleft()
                sender.answer(sent.stanza)
                self.confirm(sent)
        self.work()

    def confirm(self, sent: Sent) -> None:
        """Acknowledge the reports to a sender, as stream management does."""
        if sent.receipt is not None:
            number, receipts = sent.generation, [sent.receipt]
            self.gateway.commit(lambda tx: self.gateway.lifecycle.acknowledge(tx, number, receipts))

    def go_on(self, rounds: int) -> None:
        """Let all of them continue for a while."""
        for _ in range(rounds):
            for _ in range(3):  # senders are faster, so that something waits
                self.commit(6)
            for full in self.receivers:
                self.receive(full, 4)

    @rule(
        rounds=st.integers(1, 8),
        then=st.sampled_from(["goes on", "leaves", "leaves", "returns", "never returns"]),
    )
    def exchange(self, rounds: int, then: str) -> None:
        """Go on for a while; then the sessions go on, or end without their last answers."""
        self.go_on(rounds)
        for full in self.receivers if then != "goes on" else ():
            self.leave(full)
            if then == "returns":
                self.connect(full)
        if then == "never returns":
            self.let_all_expire()

    @rule(name=st.sampled_from(SENDERS), levels=LEVELS, step=st.sampled_from([None, *STEPS]))
    def reconnect_to_waiting_messages(self, name: str, levels: list[int], step: str | None) -> None:
        """Connect when several messages wait; the receiver refuses one of them at first."""
        for full in self.receivers:
            self.leave(full)
        self.queue(name, levels)
        for _ in range(2 * len(levels)):
            self.commit(6)
        first = next(iter(self.receivers))
        if step is not None:
            self.refuse_requests(first, step, 1)
        self.connect(first)
        self.go_on(4)

    @rule(seconds=st.sampled_from([5.0, 15.0, 45.0]))
    def wait(self, seconds: float) -> None:
        self.gateway.clock.service += seconds
        self.gateway.run_timers()
        self.work()

    @rule(count=st.integers(0, 6), committed=st.booleans())
    def crash_the_gateway(self, count: int, committed: bool) -> None:
        group = self.take(count)
        connection = self.gateway.connection
        connection.execute("BEGIN IMMEDIATE")
        tx = database.Transaction(connection, self.gateway.clock())
        for _full, unit in group:
            unit(tx)
        if committed:
            tx.run_before_commit()
            connection.execute("COMMIT")
        self.gateway.crash()
        self.gateway.sent.clear()
        self.gateway.clock.service = max(self.gateway.tx(meta.last_service_second), 1000.0)
        self.gateway.run_timers()
        for full in self.down:
            self.cut(full)
        for full in self.senders:
            self.connect(full)

    @rule()
    def let_all_expire(self) -> None:
        self.wait(LIMITS.outbox_ttl)

    @rule()
    def requeue_messages_in_doubt(self) -> None:
        """Requeue as an operator does; only the `deliver` is repeated.

        A session of the toy cannot tell that it has no such message.
        """
        if self.toys:
            return
        for dead_letter in self.stored_dead_letters():
            if dead_letter.state == dead_letters.IN_DOUBT and dead_letter.session is not None:
                sender = self.senders[dead_letter.sender]
                assert dead_letter.msg_id is not None
                self.requeued.add(f"{sender.name} {dead_letter.msg_id[1:]}")
                again = partial(dead_letters.requeue, row=dead_letter.row, may_repeat=False)
                self.gateway.tx(again)
        self.gateway.commit(self.gateway.router.context.run_external_change)
        self.work()

    # What must be true.

    def stored_dead_letters(self) -> list[dead_letters.StoredDeadLetter]:
        return self.gateway.tx(lambda tx: dead_letters.list_page(tx, 0, 1000))

    def texts(self, sql: str) -> list[str]:
        bodies = [bytes(found) for (found,) in self.gateway.connection.execute(sql).fetchall()]
        return [text_of(body.decode()) for body in bodies]

    @invariant()
    def no_assured_message_is_executed_twice(self) -> None:
        executed = [text for receiver in self.receivers.values() for text in receiver.executed]
        for sender in self.senders.values():
            for number, level in enumerate(sender.levels):
                assert level == 1 or executed.count(f"{sender.name} {number}") <= 1

    @invariant()
    def no_accepted_message_is_lost(self) -> None:
        """Each is executed, waits or is dead; an assured one that failed was not executed."""
        executed = {text for receiver in self.receivers.values() for text in receiver.executed}
        waits = set(self.texts("SELECT body FROM outbox_bodies"))
        failed = set(self.texts("SELECT body FROM dead WHERE state = 'failed'"))
        doubtful = set(self.texts("SELECT body FROM dead WHERE state = 'in doubt'"))
        for sender in self.senders.values():
            accepted = {f"{sender.name} {number}" for number in sender.done}
            assert accepted <= executed | waits | failed | doubtful
            once = {f"{sender.name} {n}" for n, level in enumerate(sender.levels) if level == 2}
            assert not failed & executed & once
            assert not waits & (failed | doubtful) & once

    @invariant()
    def order_is_kept_for_each_sender_at_each_session(self) -> None:
        """By the toy a receiver gets those at level 1 before earlier ones at level 2 are released,
        and several may be repeated in their order (MQTT 5.0, section 4.6); what another session was
        sent comes when the state of that session ends."""
        if self.to_toys and len(self.connected) > 1:
            return
        for receiver in self.receivers.values():
            for sender in self.senders.values():
                mine = [one for one in receiver.executed if one.startswith(f"{sender.name} ")]
                numbers = [int(text.split()[1]) for text in mine if text not in self.requeued]
                if not self.to_toys:
                    assert numbers == sorted(numbers), receiver.executed
                for level in (1, 2):
                    found = dict.fromkeys(n for n in numbers if sender.levels[n] == level)
                    assert list(found) == sorted(found), receiver.executed

    @invariant()
    def dead_letters_are_logged(self) -> None:
        for dead_letter in self.stored_dead_letters():
            name = "in_doubt" if dead_letter.state == dead_letters.IN_DOUBT else "dead"
            reported_dead = self.gateway.events("system", name)
            assert any(event.source == dead_letter.sender for event in reported_dead)
            if dead_letter.msg_id is not None:
                assert any(event.tags.get("msgId") == dead_letter.msg_id for event in reported_dead)

    @invariant()
    def senders_are_notified_of_dead_letters(self) -> None:
        """A sender knows the end of each message, or is informed at log-in, despite crashes."""
        dead_letters = Counter((one.sender, one.msg_id) for one in self.stored_dead_letters())
        notified = Counter(
            (full, msg_id)
            for full, sender in self.senders.items()
            for msg_id in sender.reported_dead.elements()
        )
        notified.update(
            (f"{name}@{DOMAIN}/fw", reported(stanza))
            for name, _sender, stanza in self.gateway.offline()
        )
        assert dead_letters <= notified, dead_letters - notified

    @invariant()
    def messages_in_flight_are_limited(self) -> None:
        sql = "SELECT count(*) FROM outbox WHERE state <> 'queued' AND session = ?"
        most = DECLARED.window if self.to_toys else LIMITS.outbox_window * len(SESSIONS)
        for full in SESSIONS if not self.requeued else ():
            assert self.gateway.count(sql, full) <= (most or 0)

    def teardown(self) -> None:
        """With stable links and capacity at the device, every message arrives or is dead."""
        if not hasattr(self, "gateway"):
            return
        try:
            self.finish()
        finally:
            self.gateway.close()
            self.folder.cleanup()

    def finish(self) -> None:
        """Deliver everything, and check the results."""
        for full in (*self.receivers, *self.senders):
            self.connect(full)
        left = 1
        for _ in range(200):
            self.go_on(4)
            left = self.gateway.count("SELECT count(*) FROM outbox")
            if not left and all(s.current == len(s.levels) for s in self.senders.values()):
                break
            self.wait(45.0)
        assert not left
        assert self.gateway.count("SELECT count(*) FROM temp.in_flight") == 0
        assert self.gateway.tx(lambda tx: outbox.usage(tx, "valve", "")[1].total) == Usage()
        self.no_accepted_message_is_lost()
        assert not any(sender.refused for sender in self.senders.values())
        assert self.gateway.count("SELECT count(*) FROM held") == 0


TestTwoHops = TwoHops.TestCase
TestTwoHops.settings = settings(
    max_examples=300 if LONG else 8,
    stateful_step_count=80 if LONG else 40,
    deadline=None,
    print_blob=True,
)
