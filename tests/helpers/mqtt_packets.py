"""Packets of MQTT for the tests of its codec, with both versions and directions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from edge.mqtt.codec import PacketParser, encode
from edge.mqtt.packets import (
    V5,
    V311,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Fault,
    Packet,
    PingReq,
    PingResp,
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
from edge.mqtt.reasons import Reason

MAX_BYTES: Final = 1024


class Sent(NamedTuple):
    """A packet, its version and whether a client sends it."""

    packet: Packet
    version: int = V5
    from_client: bool = True


_USER: Final = (("a", "1"), ("a", "2"), ("", "\u20ac"))
_WILL: Final = Will(
    "pump1/lost",
    b"\0\xff",
    2,
    True,
    {
        Property.WILL_DELAY: 30,
        Property.PAYLOAD_FORMAT: 0,
        Property.MESSAGE_EXPIRY: 2**32 - 1,
        Property.CONTENT_TYPE: "text/plain",
        Property.RESPONSE_TOPIC: "pump1/answers",
        Property.CORRELATION_DATA: b"\0",
        Property.USER: _USER,
    },
)
_MESSAGE: Final = {
    Property.PAYLOAD_FORMAT: 1,
    Property.MESSAGE_EXPIRY: 0,
    Property.TOPIC_ALIAS: 7,
    Property.RESPONSE_TOPIC: "answers/1",
    Property.CORRELATION_DATA: b"\xff" * 8,
    Property.USER: _USER,
    Property.CONTENT_TYPE: "application/json",
}
_ANSWER: Final = {Property.REASON_STRING: "because", Property.USER: _USER}
_METHOD: Final = {Property.AUTHENTICATION_METHOD: "SCRAM-SHA-256"}
_AUTHENTICATION: Final = {**_METHOD, Property.AUTHENTICATION_DATA: b"n,,n=pump1,r=1"}

PACKETS: Final[dict[str, Sent]] = {
    "connect": Sent(Connect("", V5)),
    "connect with all": Sent(
        Connect(
            "pump1",
            V5,
            False,
            65535,
            "pump1@gw.example",
            b"\xffsecret",
            _WILL,
            {
                Property.SESSION_EXPIRY: 3600,
                Property.RECEIVE_MAXIMUM: 1,
                Property.MAXIMUM_PACKET_SIZE: 1,
                Property.TOPIC_ALIAS_MAXIMUM: 0,
                Property.REQUEST_RESPONSE_INFORMATION: 1,
                Property.REQUEST_PROBLEM_INFORMATION: 0,
                Property.USER: _USER,
                **_AUTHENTICATION,
            },
        )
    ),
    "connect with a password": Sent(Connect("c", V5, password=b"")),
    "connect 3.1.1": Sent(Connect("", V311), V311),
    "connect 3.1.1 with all": Sent(
        Connect("c", V311, False, 60, "pump1", b"secret", Will("a", b"", 1, True)), V311
    ),
    "connack": Sent(ConnAck(True), V5, False),
    "connack with all": Sent(
        ConnAck(
            False,
            Reason.QUOTA_EXCEEDED,
            {
                Property.SESSION_EXPIRY: 0,
                Property.RECEIVE_MAXIMUM: 65535,
                Property.MAXIMUM_QOS: 1,
                Property.RETAIN_AVAILABLE: 0,
                Property.MAXIMUM_PACKET_SIZE: 2**32 - 1,
                Property.ASSIGNED_CLIENT_ID: "auto-1",
                Property.TOPIC_ALIAS_MAXIMUM: 10,
                Property.WILDCARD_SUBSCRIPTIONS: 1,
                Property.SUBSCRIPTION_IDS: 1,
                Property.SHARED_SUBSCRIPTIONS: 0,
                Property.SERVER_KEEP_ALIVE: 120,
                Property.RESPONSE_INFORMATION: "answers/",
                Property.SERVER_REFERENCE: "gw2.example:8883",
                **_ANSWER,
                **_AUTHENTICATION,
            },
        ),
        V5,
        False,
    ),
    "connack 3.1.1": Sent(ConnAck(True), V311, False),
    "connack 3.1.1 refused": Sent(ConnAck(False, Reason.NOT_AUTHORIZED), V311, False),
    "publish": Sent(Publish("pump1/temp", b"21.5")),
    "publish without payload": Sent(Publish("/", b"", 1, True, True, 65535)),
    "publish with all": Sent(Publish("", b"\0" * 200, 2, False, True, 1, _MESSAGE)),
    "publish with subscriptions": Sent(
        Publish("a/b", b"1", 0, properties={Property.SUBSCRIPTION_ID: (1, 268_435_455, 128)}),
        V5,
        False,
    ),
    "publish 3.1.1": Sent(Publish("pump1/temp", b"21.5"), V311),
    "publish 3.1.1 with an id": Sent(Publish("\u20ac", b"x" * 300, 2, True, False, 9), V311),
    "puback": Sent(PubAck(1)),
    "puback with a reason": Sent(PubAck(256, Reason.NO_MATCHING_SUBSCRIBERS)),
    "puback with all": Sent(PubAck(65535, Reason.QUOTA_EXCEEDED, _ANSWER)),
    "pubrec with all": Sent(PubRec(2, Reason.PACKET_IDENTIFIER_IN_USE, _ANSWER)),
    "pubrel with all": Sent(PubRel(3, Reason.PACKET_IDENTIFIER_NOT_FOUND, _ANSWER)),
    "pubcomp with all": Sent(PubComp(4, 0, _ANSWER)),
    "puback 3.1.1": Sent(PubAck(1), V311),
    "pubrec 3.1.1": Sent(PubRec(2), V311),
    "pubrel 3.1.1": Sent(PubRel(3), V311),
    "pubcomp 3.1.1": Sent(PubComp(4), V311),
    "subscribe": Sent(Subscribe(5, (Subscription("#"),))),
    "subscribe with all": Sent(
        Subscribe(
            6,
            (Subscription("a/+", 2, True, True, 2), Subscription("$share/s/#", 1, False, True, 1)),
            {Property.SUBSCRIPTION_ID: (268_435_455,), Property.USER: _USER},
        )
    ),
    "subscribe 3.1.1": Sent(Subscribe(5, (Subscription("#", 1), Subscription("a", 2))), V311),
    "suback with all": Sent(SubAck(6, (0, 1, 2, 0x80, 0x8F), _ANSWER), V5, False),
    "suback 3.1.1": Sent(SubAck(6, (0, 1, 2, 0x80)), V311, False),
    "unsubscribe with all": Sent(Unsubscribe(7, ("#", "a"), {Property.USER: _USER})),
    "unsubscribe 3.1.1": Sent(Unsubscribe(7, ("a/#",)), V311),
    "unsuback with all": Sent(UnsubAck(7, (0, 0x11), _ANSWER), V5, False),
    "unsuback 3.1.1": Sent(UnsubAck(7, ()), V311, False),
    "pingreq": Sent(PingReq()),
    "pingreq 3.1.1": Sent(PingReq(), V311),
    "pingresp": Sent(PingResp(), V5, False),
    "disconnect": Sent(Disconnect()),
    "disconnect with the will": Sent(
        Disconnect(Reason.DISCONNECT_WITH_WILL, {Property.SESSION_EXPIRY: 0, **_ANSWER})
    ),
    "disconnect from the server": Sent(
        Disconnect(Reason.USE_ANOTHER_SERVER, {Property.SERVER_REFERENCE: "b", **_ANSWER}),
        V5,
        False,
    ),
    "disconnect 3.1.1": Sent(Disconnect(), V311),
    "auth": Sent(Auth(Reason.CONTINUE_AUTHENTICATION, _AUTHENTICATION)),
    "auth again": Sent(Auth(Reason.REAUTHENTICATE, _METHOD)),
    "auth from the server": Sent(
        Auth(Reason.CONTINUE_AUTHENTICATION, {**_AUTHENTICATION, **_ANSWER}), V5, False
    ),
    "auth from the server, short": Sent(Auth(), V5, False),
}
"""Each packet with the fewest and with all fields."""


def new_parser(sent: Sent, max_bytes: int = MAX_BYTES) -> PacketParser:
    """Return a parser that is ready for a packet."""
    version = 0 if isinstance(sent.packet, Connect) else sent.version
    return PacketParser(max_bytes, version, from_client=sent.from_client)


def feed_all(parser: PacketParser, pieces: Iterable[bytes]) -> list[Packet | Fault]:
    """Return what a parser returns for all pieces."""
    return [item for piece in pieces for item in parser.feed(piece)]


def in_two(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield all ways to split bytes into two pieces."""
    return ((data[:at], data[at:]) for at in range(len(data) + 1))


def in_bytes(data: bytes) -> list[bytes]:
    """Split bytes into single bytes."""
    return [bytes((byte,)) for byte in data]


def encode_all(sent: Iterable[Sent]) -> bytes:
    """Encode packets one after the other."""
    return b"".join(encode(each.packet, each.version) for each in sent)
