"""Stateful test of MQTT sessions that send any packets, valid or not, in any order.

Packets pass the codec as bytes in both directions, and the handlers and encoders of the features on
a gateway without sockets. Nothing is raised, tables stay within limits, answers are legal in the
client's version, and sessions, subscriptions and unreleased messages are those of a small model.
"""

from __future__ import annotations

import math
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from edge import topics
from edge.config.limits import Limits
from edge.config.options import Pubsub
from edge.engine.dispatch.hooks import Context
from edge.engine.sessions import sessions
from edge.engine.sessions.sessions import guarded
from edge.engine.store.database import SentMessage, Transaction
from edge.mqtt.codec import PacketParser, encode
from edge.mqtt.packets import (
    NO_PROPERTIES,
    V5,
    V311,
    Connect,
    Fault,
    Packet,
    Property,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Will,
)
from edge.mqtt.reasons import FAILURE, Reason
from edge.routing.mqtt import MqttHooks, Peer
from edge.server.mqtt import terms
from edge.server.mqtt.aliases import ReceivedAliases, UnknownAlias
from tests.helpers.mqtt_values import BYTES, VALUES
from tests.helpers.store import DOMAIN, Gateway, new_database

MAX_BYTES: Final = 4096
KEPT_S: Final = 60
VERSIONS: Final = {"ant": V5, "bee": V5, "cat": V311}
PROTOCOLS: Final = {V5: "5.0", V311: "3.1.1"}
LIMITS: Final = Limits(
    held_messages_per_source=3,
    outbox_messages_per_account=8,
    outbox_window=2,
    nodes_per_account=3,
    subscriptions_per_account=4,
)

DISCONNECT: Final = 0xE0
"""The first byte of an answer that ends the connection (`answers.end`)."""

ANSWERS: Final[dict[type, tuple[type[Any], ...]]] = {
    Publish: (PubAck, PubRec),
    PubRec: (PubRel,),
    PubRel: (PubComp,),
    Subscribe: (SubAck,),
    Unsubscribe: (UnsubAck,),
}
"""The packets that may answer a packet, beside a DISCONNECT."""

NAMES: Final = st.sampled_from(sorted(VERSIONS))
IDS: Final = st.integers(1, 5)
QOS: Final = st.integers(0, 2)
TOPICS: Final = st.sampled_from(["a", "a/b", "/", "b//c", "$SYS/x", "€" * 100, "a/" * 40])
FILTERS: Final = st.sampled_from(
    ["a", "#", "+/b", "a/#", "/", "$share/s/a/#", "$share:s:b/#", "$share/s", "a/#/b", "a/" * 40]
)
PROPERTIES: Final = st.fixed_dictionaries(
    {},
    optional={
        **{key: VALUES[key] for key in (Property.CONTENT_TYPE, Property.USER)},
        Property.PAYLOAD_FORMAT: st.integers(0, 1),
        Property.MESSAGE_EXPIRY: st.sampled_from([0, 1, 100]),
        Property.TOPIC_ALIAS: st.sampled_from([1, 2, 16, 17]),
    },
)
PUBLICATIONS: Final = st.builds(
    Publish, st.just("") | TOPICS, BYTES, QOS, st.booleans(), st.booleans(), IDS, PROPERTIES
)
SUBSCRIPTIONS: Final = st.builds(
    Subscription, FILTERS, QOS, st.booleans(), st.booleans(), st.integers(0, 2)
)
PACKETS: Final = st.one_of(
    PUBLICATIONS,
    IDS.map(PubRel),
    st.builds(
        Subscribe,
        IDS,
        st.lists(SUBSCRIPTIONS, min_size=1, max_size=3).map(tuple),
        st.sampled_from([NO_PROPERTIES, {Property.SUBSCRIPTION_ID: (7,)}]),
    ),
    st.builds(
        Unsubscribe,
        IDS,
        st.lists(FILTERS, min_size=1, max_size=2).map(tuple),
        st.just(NO_PROPERTIES),
    ),
)


def legal(packet: Any, version: int) -> Any:
    """Return a packet of a client as it can be encoded in its version."""
    if version == V311:
        packet = replace(packet, properties=NO_PROPERTIES)
    if isinstance(packet, Publish):
        packet = packet if packet.qos else replace(packet, dup=False, id=0)
        if not packet.topic and Property.TOPIC_ALIAS not in packet.properties:
            packet = replace(packet, topic="a")
    if isinstance(packet, Subscribe) and version == V311:
        plain = tuple(Subscription(one.filter, one.qos) for one in packet.subscriptions)
        packet = replace(packet, subscriptions=plain)
    return packet


class Client:
    """A client, and the state that its session must have.

    Attributes:
        kept: whether the session is kept without a connection.
        filters: its subscriptions.
        unreleased: the identifiers of its messages in custody.
        taken: the messages that it was sent, by identifier, and the next packet that it sends.
        pending: the packets that it has not read.
    """

    def __init__(self, name: str) -> None:
        self.full = f"{name}@{DOMAIN}/fw"
        self.version = VERSIONS[name]
        self.kept = False
        self.lost_at = 0.0
        self.filters: set[str] = set()
        self.unreleased: set[int] = set()
        self.taken: dict[int, Packet] = {}
        self.pending: list[Publish | PubRel] = []
        self.begin()

    def begin(self) -> None:
        """Begin a connection."""
        self.parser = PacketParser(MAX_BYTES, self.version)
        self.aliases = ReceivedAliases(LIMITS.node_bytes)
        self.pending.clear()

    def forget(self) -> None:
        """Lose the state of the session."""
        self.kept = False
        self.filters.clear()
        self.unreleased.clear()
        self.taken.clear()


class Sessions(RuleBasedStateMachine):
    """Clients that share nodes."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        path, pubsub = new_database(Path(self._folder.name)), Pubsub(auto_create=["#"])
        self.gateway = Gateway(path, LIMITS, pubsub=pubsub)
        self.context = self.gateway.router.context
        self.hooks = self.context.hooks.of(MqttHooks)
        for version, protocol in PROTOCOLS.items():
            for message in self.hooks.packets:
                self.context.hooks.encode(protocol, message, partial(self.encode, version))
        self.clients = {name: Client(name) for name in VERSIONS}
        for name in VERSIONS:
            self.gateway.add(name)

    def teardown(self) -> None:
        self.gateway.close()
        self._folder.cleanup()

    def encode(self, version: int, context: Context, message: SentMessage) -> bytes:
        packet = self.hooks.packets[type(message)](context, message, self.now)
        return b"" if packet is None else encode(packet, version)

    def now(self) -> float:
        return self.gateway.clock.service

    # Rules

    @rule(name=NAMES, clean=st.booleans(), keeps=st.booleans(), will=st.none() | PUBLICATIONS)
    def connect(self, name: str, clean: bool, keeps: bool, will: Publish | None) -> None:
        """Begin a session, in place of one that is bound."""
        client = self.clients[name]
        self.lose(name)
        if client.version == V311:
            keeps = not clean
        expiry = {Property.SESSION_EXPIRY: KEPT_S} if keeps and client.version == V5 else {}
        wanted = None
        if will is not None:
            wanted = Will(will.topic or "a", will.payload, will.qos, will.retain)
        connect = Connect("fw", client.version, clean, will=wanted, properties=expiry)
        (packet,) = PacketParser(MAX_BYTES).feed(encode(connect, client.version))
        assert packet == connect
        is_present = client.kept and not clean
        if not is_present:
            client.forget()
        declared = terms.declaration(connect, LIMITS, "")
        self.gateway.bind(client.full, declared, PROTOCOLS[client.version])
        assert self.gateway.is_resumed == is_present
        client.kept = keeps
        client.begin()
        generation = self.gateway.generation(client.full)

        def begin(tx: Transaction) -> None:
            sender = sessions.sender(tx, generation)
            assert sender is not None
            for hook in self.hooks.on_connect:
                hook(self.context, tx, sender, connect)
            sessions.set_available(self.context, tx, sender, accepts=False)
            sessions.run_ready_hooks(self.context, tx, sender)

        self.gateway.commit(begin)
        self.distribute()

    @rule(name=NAMES)
    def lose(self, name: str) -> None:
        """Lose the connection of a client."""
        client = self.clients[name]
        if self.gateway.is_bound(client.full):
            self.gateway.end(client.full)
            self.after_end(client)
            self.distribute()

    def after_end(self, client: Client) -> None:
        client.lost_at = self.now()
        for packet in client.pending:
            if isinstance(packet, Publish):
                client.taken.pop(packet.id, None)
        client.pending.clear()
        if not client.kept:
            client.forget()

    @rule(name=NAMES, packets=st.lists(PACKETS, min_size=1, max_size=4))
    def send(self, name: str, packets: list[Packet]) -> None:
        """Send packets; begin or continue a session before if there is none."""
        client = self.clients[name]
        if not self.gateway.is_bound(client.full):
            self.connect(name, clean=False, keeps=True, will=None)
        version = client.version
        self.receive(client, b"".join(encode(legal(one, version), version) for one in packets))

    @rule(name=NAMES, packet=PACKETS, at=st.integers(0, 200), byte=st.integers(0, 255))
    def send_damaged(self, name: str, packet: Packet, at: int, byte: int) -> None:
        """Send a packet of which one byte is changed."""
        client = self.clients[name]
        if self.gateway.is_bound(client.full):
            data = bytearray(encode(legal(packet, client.version), client.version))
            data[at % len(data)] = byte
            self.receive(client, bytes(data))

    @rule(name=NAMES, is_failure=st.booleans())
    def answer(self, name: str, is_failure: bool) -> None:
        """Read a packet of the gateway and answer it."""
        client = self.clients[name]
        if not client.pending:
            return
        packet = client.pending.pop(0)
        fails = is_failure and client.version == V5
        reason = Reason.UNSPECIFIED_ERROR if fails else Reason.SUCCESS
        if isinstance(packet, PubRel):
            answer: Packet = PubComp(packet.id)
        elif packet.qos == 2:
            answer = PubRec(packet.id, reason)
        else:
            answer = PubAck(packet.id, reason)
        client.taken.pop(packet.id, None)
        if isinstance(answer, PubRec) and not fails:
            client.taken[packet.id] = packet
        self.receive(client, encode(answer, client.version))

    @rule(name=NAMES, kind=st.sampled_from([PubAck, PubRec, PubComp]), id=st.integers(1000, 1003))
    def answer_unknown(self, name: str, kind: type[PubAck], id: int) -> None:
        """Answer a packet that the gateway has not sent."""
        client = self.clients[name]
        if self.gateway.is_bound(client.full):
            self.receive(client, encode(kind(id), client.version))

    @rule(seconds=st.sampled_from([1, KEPT_S + 1]))
    def advance(self, seconds: float) -> None:
        self.gateway.clock.service += seconds
        self.gateway.run_timers()
        for client in self.clients.values():
            expires = client.lost_at + KEPT_S if client.version == V5 else math.inf
            if not self.gateway.is_bound(client.full) and self.now() >= expires:
                client.forget()
        self.distribute()

    @rule()
    def crash(self) -> None:
        bound = [one for one in self.clients.values() if self.gateway.is_bound(one.full)]
        self.gateway.crash()
        self.gateway.sent.clear()
        for client in bound:
            self.after_end(client)
        self.gateway.run_timers()
        self.distribute()

    # The gateway's side of a connection

    def receive(self, client: Client, data: bytes) -> None:
        """Handle bytes of a client as its connection does."""
        for packet in client.parser.feed(data):
            assert client.parser.pending <= MAX_BYTES
            if not self.gateway.is_bound(client.full):
                return
            handler = self.hooks.handlers.get(type(packet))
            if isinstance(packet, Publish) and packet.properties:
                try:
                    packet = client.aliases.resolve(packet)
                except UnknownAlias:
                    handler = None
            if isinstance(packet, Fault) or handler is None:
                self.end(client)
                return
            answer: Any = handler(self.context, packet, Peer(client.version))
            if not isinstance(answer, bytes):
                generation = self.gateway.generation(client.full)
                answer = self.gateway.commit(guarded(answer, generation))
            self.check_answer(client, packet, answer)
            self.distribute()
        if self.gateway.is_bound(client.full) and client.parser.pending:
            self.end(client)  # the next bytes would not begin a packet

    def end(self, client: Client) -> None:
        self.gateway.end(client.full)
        self.after_end(client)
        self.distribute()

    def check_answer(self, client: Client, packet: Any, data: bytes) -> None:
        """Check an answer, and let the model follow it."""
        if not data:
            assert not isinstance(packet, PubRel | Subscribe | Unsubscribe)
            assert not (isinstance(packet, Publish) and packet.qos)
            return
        if data[0] == DISCONNECT:  # in both versions; the session of 3.1.1 does not send it
            assert data[2] >= FAILURE
            self.end(client)
            return
        answer: Any = self.parse(client, data)
        assert isinstance(answer, ANSWERS[type(packet)])
        assert answer.id == packet.id
        self.follow(client, packet, answer)

    def follow(self, client: Client, packet: Any, answer: Any) -> None:
        if isinstance(answer, SubAck):
            assert len(answer.reasons) == len(packet.subscriptions)
            for wanted, reason in zip(packet.subscriptions, answer.reasons, strict=True):
                assert reason == wanted.qos or reason >= FAILURE
                if reason < FAILURE:
                    client.filters.add(name_of(wanted.filter))
        elif isinstance(answer, UnsubAck):
            for filter in packet.filters:
                client.filters.discard(name_of(filter))
        elif isinstance(answer, PubRec):
            self.follow_received(client, answer)
        elif isinstance(answer, PubComp):
            client.unreleased.discard(packet.id)

    def follow_received(self, client: Client, answer: PubRec) -> None:
        """Let the model follow the answer to a message, which 3.1.1 cannot refuse. A client that
        uses an identifier again before its release gives up the earlier message."""
        is_held = (client.full, answer.id) in self.held()
        if answer.reason >= FAILURE:
            assert not is_held or answer.id in client.unreleased
        else:
            assert is_held or client.version == V311
        (client.unreleased.add if is_held else client.unreleased.discard)(answer.id)

    def parse(self, client: Client, data: bytes) -> Packet:
        """Read a packet of the gateway as the client does."""
        parser = PacketParser(MAX_BYTES * 2, client.version, from_client=False)
        (packet,) = parser.feed(data)
        assert not isinstance(packet, Fault), packet
        return packet

    def distribute(self) -> None:
        """Let the clients get what the gateway has sent."""
        for client in self.clients.values():
            if not self.gateway.is_bound(client.full):
                continue
            sends = self.gateway.sends(client.full)
            for packet in [self.parse(client, one.stanza) for one in sends if one.stanza]:
                assert isinstance(packet, Publish | PubRel)
                if packet.id:
                    client.pending.append(packet)
                if isinstance(packet, Publish) and packet.id:
                    assert packet.dup or packet.id not in client.taken
                    client.taken[packet.id] = packet
            receipts = [one.receipt for one in sends if one.receipt and one.receipt.kind]
            if receipts:
                self.gateway.acknowledge(client.full, *receipts)

    def held(self) -> set[tuple[str, int]]:
        """Return the sessions and packet identifiers of the messages in custody."""
        rows = self.gateway.connection.execute("SELECT sender, msg_id FROM held").fetchall()
        return {(sender, int(msg_id.rpartition("\x1f")[2])) for sender, msg_id in rows}

    # Invariants

    @invariant()
    def check_the_state_is_that_of_the_model(self) -> None:
        clients = self.clients.values()
        assert self.held() == {(one.full, id) for one in clients for id in one.unreleased}
        rows = self.gateway.connection.execute("SELECT jid, count(*) FROM subscriptions GROUP BY 1")
        assert dict(rows.fetchall()) == {
            one.full: len(one.filters) for one in clients if one.filters
        }

    @invariant()
    def check_tables_are_bounded(self) -> None:
        count = self.gateway.count
        for table, most in {
            "held": LIMITS.held_messages_per_source * len(VERSIONS),
            "outbox": LIMITS.outbox_messages_per_account * len(VERSIONS),
            "subscriptions": LIMITS.subscriptions_per_account * len(VERSIONS),
            "nodes": LIMITS.nodes_per_account * len(VERSIONS),
            "wills": len(VERSIONS),
            "durable_sessions": len(VERSIONS),
        }.items():
            assert count(f"SELECT count(*) FROM {table}") <= most, table  # noqa: S608
        for client in self.clients.values():
            assert len(client.taken) <= LIMITS.outbox_window


def name_of(filter: str) -> str:
    """Return the same text for both spellings of a share."""
    return filter.replace("$share:s:", "$share/s/") if topics.is_share(filter) else filter


EXAMPLES: Final = 2000 if os.environ.get("FIELDPOST_TEST_LONG") == "1" else 10

TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=EXAMPLES, stateful_step_count=50, deadline=None)
