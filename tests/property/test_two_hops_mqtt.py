"""Property tests of exactly-once delivery from device to node to subscribers, with crashes of each.

As `test_two_hops`, for publications: devices publish to a node by XMPP or by a version of MQTT, and
two devices that subscribe to it get each item, by XMPP or a version of MQTT. The models of devices
that speak MQTT are those of the toy protocol, behind the packets of MQTT
(`tests.helpers.mqtt_model`).
"""

from __future__ import annotations

import tempfile
from collections import deque
from pathlib import Path
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from edge.config.limits import Limits
from tests.helpers import mqtt_model
from tests.helpers.outbox_image import DryRunGateway
from tests.helpers.pubsub import create, subscribe
from tests.helpers.qos_devices import (
    empty_result,
    make_eligible,
    parse_request,
    received_result,
)
from tests.helpers.store import DOMAIN, new_database
from tests.property.test_two_hops import (
    LONG,
    SENDER_SESSIONS,
    SENDERS,
    STEPS,
    Receiver,
    Sender,
    ToyReceiver,
    ToySender,
    TwoHops,
)
from tests.toy.model import line
from tests.toy.requests import DECLARED

NODE: Final = "plant/temp"
ADDRESS: Final = f"{mqtt_model.SERVICE}/{NODE}"
SESSIONS: Final = (f"valve@{DOMAIN}/fw", f"lamp@{DOMAIN}/fw")
XMPP: Final = "xmpp"
PROTOCOLS: Final = st.sampled_from([XMPP, *mqtt_model.VERSIONS])
LIMITS: Final = Limits(
    outbox_messages_per_account=1000,  # what exceeds it is not kept
    outbox_window=3,
    outbox_ttl=1_000_000,
    retry_after=10,
    retry_most=40,
    retry_attempts=100,  # what a session never answers is given up
)
FOREVER: Final = 1_000_000.0


class Publisher(Sender):
    """A device that publishes by XMPP. Its messages at level 1 differ, because subscribers may get
    each at QoS 2.

    Attributes:
        tries: how often it has published a message.
    """

    to = ADDRESS
    tries = 0

    def next_text(self) -> str:
        level = self.levels[self.current]
        self.tries += level == 1
        return f"{self.name} {self.current};{self.tries if level == 1 else ''}"


class MqttPublisher(Publisher, ToySender):
    """A device that publishes by MQTT."""

    content_type = ""


class Subscriber(Receiver):
    """A device that gets items by XMPP."""

    def take(self, stanza: bytes) -> str:
        one = parse_request(stanza)
        if one.step == "deliver":
            assert one.msg_id is not None
            if one.msg_id in self.held:
                self.executed.append(self.held.pop(one.msg_id))
            return empty_result(one)
        assert one.message is not None
        text = "".join(one.message.itertext())
        if one.step == "acknowledged":
            self.executed.append(text)
            return empty_result(one)
        assert one.msg_id is not None
        self.held[one.msg_id] = text
        return received_result(one)


def executed(receiver: Receiver, sender: Sender) -> list[int]:
    """Return the numbers of a sender's messages in the order in which a subscriber used them."""
    texts = [text for text in receiver.executed if text.startswith(f"{sender.name} ")]
    return [int(text.split()[1].partition(";")[0]) for text in texts]


class MqttHops(TwoHops):
    """Two publishers, a gateway, and two subscribers of one node."""

    @initialize(publishers=PROTOCOLS, subscribers=st.tuples(PROTOCOLS, PROTOCOLS))
    def begin(self, publishers: str, subscribers: tuple[str, str]) -> None:
        self.protocols = dict.fromkeys(SENDER_SESSIONS, publishers)
        self.protocols |= zip(SESSIONS, subscribers, strict=True)
        self.toys = {full for full, name in self.protocols.items() if name != XMPP}
        self.to_toys = False
        self.was_sent = set()
        self.folder = tempfile.TemporaryDirectory()
        path = new_database(Path(self.folder.name))
        self.gateway = DryRunGateway(path, LIMITS)
        for name in (*SENDERS, "valve", "lamp"):
            self.gateway.add(name)
        create(self.gateway, SENDER_SESSIONS[0], NODE, publish_model="open")
        mqtt_model.add_mqtt(self.gateway)
        sender = Publisher if publishers == XMPP else MqttPublisher
        self.senders = {full: sender(full.partition("@")[0]) for full in SENDER_SESSIONS}
        self.receivers = {
            full: Subscriber(full) if self.protocols[full] == XMPP else ToyReceiver(full)
            for full in SESSIONS
        }
        self.up = deque()
        self.down = {full: deque() for full in self.protocols}
        self.detached = set()
        self.requeued = set()
        for full in self.protocols:
            self.connect(full)
        for full in SESSIONS:
            if full in self.toys:
                self.gateway.commit(self.gateway.work(full, line("subscribe", "plant/#", 2)))
            else:
                reply = subscribe(self.gateway, full, "plant/#", full.partition("/")[0], qos="2")
                assert reply.type == "result", reply

    @rule(full=st.sampled_from([*SESSIONS, *SENDER_SESSIONS]))
    def connect(self, full: str) -> None:
        self.cut(full)
        if full in self.toys:
            mqtt_model.bind(self.gateway, full, FOREVER, self.protocols[full])
        else:
            self.gateway.bind(full)
            make_eligible(self.gateway, full)
        device = self.senders.get(full) or self.receivers[full]
        device.begin(is_resumed=self.gateway.is_resumed)
        self.work()

    @rule(full=st.sampled_from(SESSIONS))
    def leave(self, full: str) -> None:
        super().leave(full)

    @rule(full=st.sampled_from(SESSIONS))
    def detach(self, full: str) -> None:
        if self.gateway.is_bound(full) and full not in self.toys:
            self.detached.add(full)
            self.gateway.detach(full)

    @rule(full=st.sampled_from(SESSIONS), count=st.integers(1, 4))
    def receive(self, full: str, count: int) -> None:
        super().receive(full, count)

    @rule(full=st.sampled_from(SESSIONS), step=st.sampled_from(STEPS), times=st.integers(1, 3))
    def refuse_requests(self, full: str, step: str, times: int) -> None:
        """Do nothing: an item that is refused is dropped."""

    @rule()
    def let_all_expire(self) -> None:
        """Do nothing: items that expire are dropped."""

    @invariant()
    def no_assured_message_is_executed_twice(self) -> None:
        for receiver in self.receivers.values():
            for sender in self.senders.values():
                once = [n for n in executed(receiver, sender) if sender.levels[n] == 2]
                assert len(set(once)) == len(once)

    @invariant()
    def no_accepted_message_is_lost(self) -> None:
        """Each is executed by each subscriber, or waits for it."""
        sql = "SELECT body FROM outbox_bodies JOIN outbox USING (id) WHERE recipient = ?"
        for full, receiver in self.receivers.items():
            rows = self.gateway.connection.execute(sql, (full.partition("@")[0],)).fetchall()
            waits = b" ".join(bytes(body) for (body,) in rows).decode(errors="replace")
            for sender in self.senders.values():
                missing = sender.done - set(executed(receiver, sender))
                assert all(f"{sender.name} {number};" in waits for number in missing)

    @invariant()
    def order_is_kept_for_each_sender_at_each_session(self) -> None:
        """By MQTT a subscriber gets those at QoS 1 before earlier ones at QoS 2 are released, and
        several may be repeated in their order (MQTT 5.0, section 4.6)."""
        for full, receiver in self.receivers.items():
            for sender in self.senders.values():
                numbers = executed(receiver, sender)
                if full not in self.toys:
                    assert numbers == sorted(numbers), receiver.executed
                for level in (1, 2):
                    found = dict.fromkeys(n for n in numbers if sender.levels[n] == level)
                    assert list(found) == sorted(found), receiver.executed

    @invariant()
    def messages_in_flight_are_limited(self) -> None:
        sql = "SELECT count(*) FROM outbox WHERE state <> 'queued' AND session = ?"
        for full in self.toys & set(SESSIONS):
            assert self.gateway.count(sql, full) <= (DECLARED.window or 0)


TestMqttHops = MqttHops.TestCase
TestMqttHops.settings = settings(
    max_examples=300 if LONG else 8,
    stateful_step_count=80 if LONG else 40,
    deadline=None,
    print_blob=True,
)
