"""The codec against paho-mqtt, a client of another origin, over a connection of the loopback."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from select import select
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from edge.mqtt.codec import PacketParser, encode
from edge.mqtt.fields import Reader
from edge.mqtt.packets import (
    V5,
    V311,
    ConnAck,
    Connect,
    Disconnect,
    Fault,
    Packet,
    PingResp,
    Properties,
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
from edge.mqtt.properties import PERMITTED, encode_properties, read_properties
from edge.mqtt.reasons import Reason
from tests.helpers.mqtt_values import VALUES

TIMEOUT_S = 10.0
TYPES = {owner: getattr(PacketTypes, owner.__name__.upper(), None) for owner in PERMITTED} | {
    Will: PacketTypes.WILLMESSAGE
}
NAMES = {
    Property(number): name.replace(" ", "")
    for name, number in PahoProperties(PacketTypes.CONNECT).names.items()
}


def to_paho(properties: Properties, owner: type) -> PahoProperties:
    """Return properties as paho has them."""
    found = PahoProperties(TYPES[owner])
    for key, value in properties.items():
        for each in value if isinstance(value, tuple) else (value,):
            setattr(found, NAMES[key], each)
    return found


def from_paho(found: PahoProperties | None) -> dict[Property, Any]:
    """Return paho's properties as the codec has them."""
    values = {key: getattr(found, name, None) for key, name in NAMES.items()}
    return {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in values.items()
        if value is not None
    }


class Server:
    """The server's end of a connection of paho's client, which is driven by hand."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.events: list[tuple[Any, ...]] = []
        self.client = Client(
            CallbackAPIVersion.VERSION2, "pump1", protocol=MQTTProtocolVersion(version)
        )
        self.client.on_message = self._note_message
        self.client.on_connect = lambda _c, _u, flags, reason, properties: self.events.append(
            ("connack", flags.session_present, reason.value, from_paho(properties))
        )
        self.client.on_publish = lambda _c, _u, number, reason, _p: self.events.append(
            ("published", number, reason.value)
        )
        self.client.on_subscribe = lambda _c, _u, number, reasons, properties: self.events.append(
            ("suback", number, [reason.value for reason in reasons], from_paho(properties))
        )
        self.client.on_unsubscribe = lambda _c, _u, number, reasons, _p: self.events.append(
            ("unsuback", number, [reason.value for reason in reasons])
        )
        self.client.on_disconnect = lambda _c, _u, flags, reason, _p: self.events.append(
            ("disconnect", flags.is_disconnect_packet_from_server, reason.value)
        )
        self._parser = PacketParser(10_000)
        self._items: list[Packet | Fault] = []
        self._socket: socket.socket | None = None

    def connect(self, **options: Any) -> Packet | Fault:
        """Let the client connect; return its CONNECT."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.client.connect("127.0.0.1", listener.getsockname()[1], 60, **options)
            self._socket, _ = listener.accept()
        self._socket.settimeout(TIMEOUT_S)
        return self.receive()

    def receive(self) -> Packet | Fault:
        """Return the next packet of the client."""
        assert self._socket is not None
        while not self._items:
            self.client.loop_write()
            data = self._socket.recv(4096)
            assert data, "the client has closed the connection"
            self._items += self._parser.feed(data)
        return self._items.pop(0)

    def send(self, packet: Packet) -> list[tuple[Any, ...]]:
        """Send a packet and let the client read it; return what it reports."""
        assert self._socket is not None
        self._socket.sendall(encode(packet, self.version))
        self.events.clear()
        assert select([cast(socket.socket, self.client.socket())], [], [], TIMEOUT_S)[0]
        self.client.loop_read()
        return [*self.events]

    def close(self) -> None:
        """Close both ends."""
        self.client.disconnect()
        self.client.loop_write()
        if self._socket is not None:
            self._socket.close()

    def _note_message(self, _client: Client, _data: None, message: MQTTMessage) -> None:
        self.events.append(
            (
                "message",
                message.topic,
                message.payload,
                message.qos,
                message.retain,
                message.dup,
                message.mid,
                from_paho(message.properties),
            )
        )


@pytest.fixture(params=[V5, V311])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    server = Server(request.param)
    yield server
    server.close()


@pytest.fixture
def connected(server: Server) -> Server:
    server.connect()
    assert server.send(ConnAck(False)) == [("connack", False, 0, {})]
    return server


USER = {Property.USER: (("a", "1"), ("a", "2"))}
MESSAGE: Properties = {
    Property.PAYLOAD_FORMAT: 1,
    Property.MESSAGE_EXPIRY: 60,
    Property.CONTENT_TYPE: "application/json",
    Property.RESPONSE_TOPIC: "answers/1",
    Property.CORRELATION_DATA: b"\0\xff",
    **USER,
}


def of_version(properties: Properties, server: Server) -> Properties:
    """Return properties, or none in 3.1.1."""
    return properties if server.version == V5 else {}


def test_connect_and_connack(server: Server) -> None:
    own = of_version({Property.SESSION_EXPIRY: 10, Property.RECEIVE_MAXIMUM: 5, **USER}, server)
    of_will = of_version({Property.WILL_DELAY: 3, Property.CONTENT_TYPE: "x", **USER}, server)
    will = Will("pump1/lost", b"\0", 2, True, of_will)
    server.client.username_pw_set("pump1", "secret")
    v5 = server.version == V5
    if v5:
        server.client.will_set(
            will.topic, will.payload, will.qos, will.retain, to_paho(of_will, Will)
        )
    else:
        server.client.will_set(will.topic, will.payload, will.qos, will.retain)
    options = {"clean_start": True, "properties": to_paho(own, Connect)} if v5 else {}
    assert server.connect(**options) == Connect(
        "pump1", server.version, True, 60, "pump1", b"secret", will, own
    )
    answer = of_version({Property.TOPIC_ALIAS_MAXIMUM: 4, Property.MAXIMUM_QOS: 1, **USER}, server)
    assert server.send(ConnAck(True, Reason.SUCCESS, answer)) == [("connack", True, 0, answer)]


@pytest.mark.parametrize("reason", [Reason.NOT_AUTHORIZED, Reason.BAD_USER_NAME_OR_PASSWORD])
def test_a_refusal_has_its_reason(server: Server, reason: Reason) -> None:
    server.connect()
    events = server.send(ConnAck(False, reason))
    assert events[0] == ("connack", False, reason.value, {})


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("size", [0, 20, 200, 3000])
def test_the_client_publishes(connected: Server, qos: int, size: int) -> None:
    own = of_version(MESSAGE, connected)
    sent = connected.client.publish(
        "plant1/\u20ac",
        bytes(size),
        qos,
        True,
        to_paho(own, Publish) if own else None,
    )
    found = connected.receive()
    number = sent.mid if qos else 0
    assert found == Publish("plant1/\u20ac", bytes(size), qos, True, False, number, own)
    if qos == 1:
        assert connected.send(PubAck(number)) == [("published", number, 0)]
    if qos == 2:
        assert connected.send(PubRec(number)) == []
        assert connected.receive() == PubRel(number)
        assert connected.send(PubComp(number)) == [("published", number, 0)]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("size", [0, 20, 200, 3000])
def test_the_client_receives(connected: Server, qos: int, size: int) -> None:
    own = of_version({**MESSAGE, Property.SUBSCRIPTION_ID: (1, 268_435_455)}, connected)
    packet = Publish("plant1/\u20ac", bytes(size), qos, True, bool(qos), 9 if qos else 0, own)
    message = ("message", packet.topic, packet.payload, packet.qos, True, bool(qos), packet.id, own)
    events = connected.send(packet)
    if qos == 1:
        assert connected.receive() == PubAck(9)
    if qos == 2:
        assert connected.receive() == PubRec(9)
        events = connected.send(PubRel(9))
        assert connected.receive() == PubComp(9)
    assert events == [message]


def test_the_client_subscribes(connected: Server) -> None:
    own = of_version({Property.SUBSCRIPTION_ID: (7,), **USER}, connected)
    expected: tuple[Subscription, ...]
    if connected.version == V5:
        options = SubscribeOptions(2, True, True, 2)
        _, number = connected.client.subscribe(
            "a/#", options=options, properties=to_paho(own, Subscribe)
        )
        expected = (Subscription("a/#", 2, True, True, 2),)
    else:
        _, number = connected.client.subscribe([("a/#", 2), ("b", 1)])
        expected = (Subscription("a/#", 2), Subscription("b", 1))
    assert connected.receive() == Subscribe(cast(int, number), expected, own)
    reasons = (2, 0x80)[: len(expected)]
    answer = of_version({Property.REASON_STRING: "because", **USER}, connected)
    assert connected.send(SubAck(cast(int, number), reasons, answer)) == [
        ("suback", number, [*reasons], answer)
    ]


def test_the_client_unsubscribes(connected: Server) -> None:
    own = of_version(USER, connected)
    _, number = connected.client.unsubscribe(
        ["a/#", "b"], to_paho(own, Unsubscribe) if own else None
    )
    assert connected.receive() == Unsubscribe(cast(int, number), ("a/#", "b"), own)
    reasons = [0, 0x11] if connected.version == V5 else []
    assert connected.send(UnsubAck(cast(int, number), (0, 0x11))) == [("unsuback", number, reasons)]


def test_the_client_disconnects(connected: Server) -> None:
    own = of_version({Property.SESSION_EXPIRY: 0, Property.REASON_STRING: "x", **USER}, connected)
    if own:
        reason = ReasonCode(PacketTypes.DISCONNECT, identifier=Reason.DISCONNECT_WITH_WILL)
        connected.client.disconnect(reason, to_paho(own, Disconnect))
        assert connected.receive() == Disconnect(Reason.DISCONNECT_WITH_WILL, own)
    else:
        connected.client.disconnect()
        assert connected.receive() == Disconnect()


@pytest.mark.parametrize("server", [V5], indirect=True)
def test_the_server_disconnects(connected: Server) -> None:
    packet = Disconnect(Reason.SESSION_TAKEN_OVER, {Property.REASON_STRING: "x", **USER})
    assert connected.send(packet) == [("disconnect", True, Reason.SESSION_TAKEN_OVER)]


def test_pings(connected: Server) -> None:
    assert connected.send(PingResp()) == []
    connected.client.publish("after", "")
    assert connected.receive() == Publish("after", b"")


@st.composite
def owned_properties(draw: Any) -> tuple[type, dict[Property, Any]]:
    """Draw a type of packet, or the will, and properties that it may have."""
    owner = draw(st.sampled_from([*PERMITTED]))
    optional = {key: VALUES[key] for key in sorted(PERMITTED[owner])}
    if Property.MAXIMUM_PACKET_SIZE in optional:  # paho takes no more
        optional[Property.MAXIMUM_PACKET_SIZE] = st.integers(1, 268_435_455)
    found = draw(st.fixed_dictionaries({}, optional=optional))
    if Property.AUTHENTICATION_DATA in found:
        found.setdefault(Property.AUTHENTICATION_METHOD, "")
    return owner, found


@given(owned_properties())
def test_properties_are_the_same_for_both(drawn: tuple[type, dict[Property, Any]]) -> None:
    owner, properties = drawn
    data = to_paho(properties, owner).pack()
    reader = Reader(data, 0, len(data))
    assert read_properties(reader, owner) == properties
    assert reader.at == len(data)
    encoded = encode_properties(properties)
    found, size = PahoProperties(TYPES[owner]).unpack(encoded)
    assert from_paho(found) == properties
    assert size == len(encoded) == len(data)


def test_both_permit_the_same_properties() -> None:
    known = PahoProperties(PacketTypes.CONNECT).properties
    for owner, permitted in PERMITTED.items():
        theirs = {key for key, (_, packets) in known.items() if TYPES[owner] in packets}
        assert theirs == permitted, owner
