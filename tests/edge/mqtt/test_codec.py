from __future__ import annotations

import sys
from types import FrameType

import pytest

from edge.mqtt.codec import PacketParser, encode, encode_within
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
from edge.mqtt.reasons import Reason
from tests.helpers.mqtt_packets import (
    PACKETS,
    Sent,
    encode_all,
    feed_all,
    in_bytes,
    in_two,
    new_parser,
)

FROM_SERVER = (ConnAck, SubAck, UnsubAck, PingResp)
GOLDEN: list[tuple[str, Packet, int]] = [
    # MQTT 3.1.1, section 3.1.2.10 and its neighbours: the flags 0xCE and a keep alive of 10 s.
    (
        "10 1a 0004 4d515454 04 ce 000a 0001 63 0001 74 0001 6d 0001 75 0002 7077",
        Connect("c", V311, True, 10, "u", b"pw", Will("t", b"m", 1)),
        V311,
    ),
    # MQTT 5.0, section 3.1.2.11.9: a session expiry of 10 s.
    (
        "10 13 0004 4d515454 05 00 000a 05 11 0000000a 0001 63",
        Connect("c", V5, False, 10, properties={Property.SESSION_EXPIRY: 10}),
        V5,
    ),
    ("20 02 01 00", ConnAck(True), V311),
    ("20 02 00 05", ConnAck(False, Reason.NOT_AUTHORIZED), V311),
    ("20 03 00 86 00", ConnAck(False, Reason.BAD_USER_NAME_OR_PASSWORD), V5),
    ("20 06 00 00 03 21 000a", ConnAck(False, properties={Property.RECEIVE_MAXIMUM: 10}), V5),
    # Sections 3.3.2.1 to 3.3.2.3 of both: topic a/b, packet identifier 10.
    ("32 07 0003 612f62 000a", Publish("a/b", b"", 1, id=10), V311),
    ("32 08 0003 612f62 000a 00", Publish("a/b", b"", 1, id=10), V5),
    ("3d 09 0003 612f62 000a 6869", Publish("a/b", b"hi", 2, True, True, 10), V311),
    (
        "30 0e 0003 612f62 07 0101 23 0005 0b01 31",
        Publish(
            "a/b",
            b"1",
            properties={
                Property.PAYLOAD_FORMAT: 1,
                Property.TOPIC_ALIAS: 5,
                Property.SUBSCRIPTION_ID: (1,),
            },
        ),
        V5,
    ),
    ("40 02 000a", PubAck(10), V311),
    ("40 02 000a", PubAck(10), V5),
    ("40 03 000a 10", PubAck(10, Reason.NO_MATCHING_SUBSCRIBERS), V5),
    ("50 02 000a", PubRec(10), V5),
    ("50 08 000a 97 04 1f 0001 78", PubRec(10, 0x97, {Property.REASON_STRING: "x"}), V5),
    ("62 02 000a", PubRel(10), V5),
    ("62 03 000a 92", PubRel(10, Reason.PACKET_IDENTIFIER_NOT_FOUND), V5),
    ("70 02 000a", PubComp(10), V5),
    # Section 3.8.3: a/b at QoS 1 and c/d at QoS 2.
    (
        "82 0e 000a 0003 612f62 01 0003 632f64 02",
        Subscribe(10, (Subscription("a/b", 1), Subscription("c/d", 2))),
        V311,
    ),
    (
        "82 0f 000a 00 0003 612f62 01 0003 632f64 02",
        Subscribe(10, (Subscription("a/b", 1), Subscription("c/d", 2))),
        V5,
    ),
    (
        "82 0c 000a 03 0b 8002 0003 612f62 2e",
        Subscribe(
            10,
            (Subscription("a/b", 2, True, True, 2),),
            {Property.SUBSCRIPTION_ID: (256,)},
        ),
        V5,
    ),
    ("90 05 000a 00 02 80", SubAck(10, (0, 2, 0x80)), V311),
    ("90 05 000a 00 01 8f", SubAck(10, (1, 0x8F)), V5),
    ("a2 0c 000a 0003 612f62 0003 632f64", Unsubscribe(10, ("a/b", "c/d")), V311),
    ("a2 0d 000a 00 0003 612f62 0003 632f64", Unsubscribe(10, ("a/b", "c/d")), V5),
    ("b0 02 000a", UnsubAck(10, ()), V311),
    ("b0 05 000a 00 00 11", UnsubAck(10, (0, 0x11)), V5),
    ("c0 00", PingReq(), V311),
    ("d0 00", PingResp(), V5),
    ("e0 00", Disconnect(), V311),
    ("e0 00", Disconnect(), V5),
    ("e0 01 8e", Disconnect(Reason.SESSION_TAKEN_OVER), V5),
    (
        "e0 07 04 05 11 00000000",
        Disconnect(Reason.DISCONNECT_WITH_WILL, {Property.SESSION_EXPIRY: 0}),
        V5,
    ),
    ("f0 06 18 04 15 0001 53", Auth(0x18, {Property.AUTHENTICATION_METHOD: "S"}), V5),
]


def is_from_client(packet: Packet) -> bool:
    properties: Properties = getattr(packet, "properties", {})
    ended_by_server = isinstance(packet, Disconnect) and packet.reason == Reason.SESSION_TAKEN_OVER
    return not (
        isinstance(packet, FROM_SERVER)
        or ended_by_server
        or (isinstance(packet, Publish) and Property.SUBSCRIPTION_ID in properties)
    )


@pytest.mark.parametrize(("encoded", "packet", "version"), GOLDEN)
def test_the_bytes_are_those_of_the_specification(
    encoded: str, packet: Packet, version: int
) -> None:
    data = bytes.fromhex(encoded)
    assert encode(packet, version) == data
    assert new_parser(Sent(packet, version, is_from_client(packet))).feed(data) == [packet]


@pytest.mark.parametrize("name", PACKETS)
def test_packets_pass_at_every_split(name: str) -> None:
    sent = PACKETS[name]
    data = encode(sent.packet, sent.version)
    for pieces in (*in_two(data), in_bytes(data)):
        assert feed_all(new_parser(sent), pieces) == [sent.packet]


@pytest.mark.parametrize("version", [V5, V311])
@pytest.mark.parametrize("from_client", [True, False])
def test_several_packets_pass_at_every_split(version: int, from_client: bool) -> None:
    sent = [s for s in PACKETS.values() if s.version == version and s.from_client is from_client]
    if from_client:  # one CONNECT, with all fields
        sent = [s for s in sent if not isinstance(s.packet, Connect) or s.packet.will]
    last = [s for s in sent if isinstance(s.packet, Disconnect)][:1]
    sent = [s for s in sent if not isinstance(s.packet, Disconnect)] + last
    data, expected = encode_all(sent), [each.packet for each in sent]
    assert len(expected) > 3
    for pieces in (*in_two(data), in_bytes(data)):
        assert feed_all(new_parser(sent[0]), pieces) == expected


def test_what_follows_a_disconnect_is_ignored() -> None:
    parser = PacketParser(100, V5)
    late = encode(Publish("a", b""), V5)
    assert parser.feed(encode(Disconnect(), V5) + late + b"?") == [Disconnect()]
    assert parser.feed(late) == []


@pytest.mark.parametrize("version", [V5, V311])
def test_the_version_is_that_of_connect(version: int) -> None:
    parser = PacketParser(100)
    assert parser.version == 0
    parser.feed(encode(Connect("c", version), version))
    assert parser.version == version


def test_views_of_bytes_are_parsed() -> None:
    parser = PacketParser(100, V5)
    data = bytearray(encode(Publish("a", b"1"), V5) * 2)
    first = parser.feed(memoryview(data)[:9])
    data[0] = 0  # the parser keeps no view
    assert first + parser.feed(memoryview(data)[9:]) == [Publish("a", b"1")] * 2


def test_the_payload_is_a_copy_in_bytes() -> None:
    (packet,) = PacketParser(100, V5).feed(memoryview(encode(Publish("a", b"1"), V5)))
    assert isinstance(packet, Publish)
    assert type(packet.payload) is bytes


LARGE = 256 * 1024


@pytest.mark.parametrize("size", [1, 4096])
def test_pieces_within_a_large_packet_are_only_appended(size: int) -> None:
    packet = Publish("a", bytes(LARGE), 1, id=1)
    data = encode(packet, V5)
    parser = PacketParser(LARGE + 100, V5)
    found: list[Packet | Fault] = []
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        for at in range(0, len(data), size):
            found += parser.feed(data[at : at + size])
    finally:
        sys.setprofile(None)
    assert found == [packet]
    pieces = -(-len(data) // size)
    assert calls <= pieces + 20, "one call of `feed` each, and some for the header and the packet"


def test_a_packet_of_the_maximum_size_passes_and_one_byte_more_does_not() -> None:
    data = encode(Publish("a", bytes(200)), V5)
    assert PacketParser(len(data), V5).feed(data) == [Publish("a", bytes(200))]
    assert reasons(PacketParser(len(data) - 1, V5).feed(data)) == [Reason.PACKET_TOO_LARGE]


def test_the_maximum_size_can_be_changed() -> None:
    parser = PacketParser(50)
    data = encode(Publish("a", bytes(200)), V5)
    parser.feed(encode(Connect("c"), V5))
    parser.max_bytes = len(data)
    assert parser.feed(data) == [Publish("a", bytes(200))]


@pytest.mark.parametrize("version", [0, V5, V311])
def test_a_packet_that_is_too_large_is_refused_by_its_header(version: int) -> None:
    parser = PacketParser(1000, version)
    assert parser.feed(b"\x10\xff\xff\xff") == []
    assert reasons(parser.feed(b"\x7f")) == [Reason.PACKET_TOO_LARGE]


def test_nothing_follows_a_fault() -> None:
    parser = PacketParser(1000, V5)
    found = parser.feed(b"\xc0\0" + b"\0\0" + b"\xc0\0")
    assert found[:1] == [PingReq()]
    assert reasons(found[1:]) == [Reason.MALFORMED_PACKET]
    assert parser.feed(b"\xc0\0") == []


def reasons(items: list[Packet | Fault]) -> list[Reason]:
    """Return the reasons of items that are all faults."""
    faults = [item for item in items if isinstance(item, Fault)]
    assert len(faults) == len(items)
    return [fault.reason for fault in faults]


@pytest.mark.parametrize(
    ("level", "version"), [(0, V311), (3, V311), (6, V5), (0x7F, V5), (0x84, V311), (0x85, V5)]
)
def test_other_versions_are_refused_in_the_nearest_version(level: int, version: int) -> None:
    data = bytearray(encode(Connect("c"), V5))
    data[8] = level
    parser = PacketParser(100)
    assert reasons(parser.feed(bytes(data))) == [Reason.UNSUPPORTED_PROTOCOL_VERSION]
    assert parser.version == version


@pytest.mark.parametrize("name", ["MQIsdp", "mqtt", "", "XMPP"])
def test_other_protocols_are_refused(name: str) -> None:
    body = len(name).to_bytes(2, "big") + name.encode() + bytes.fromhex("04 02 0000 0000")
    data = bytes((0x10, len(body))) + body
    assert reasons(PacketParser(100).feed(data)) == [Reason.UNSUPPORTED_PROTOCOL_VERSION]


def test_a_faulty_connect_tells_the_version_to_answer_in() -> None:
    parser = PacketParser(100)
    assert reasons(parser.feed(bytes.fromhex("10 0a 0004 4d515454 05 01 0000"))) == [
        Reason.MALFORMED_PACKET
    ]
    assert parser.version == V5


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (Reason.SUCCESS, 0),
        (Reason.UNSUPPORTED_PROTOCOL_VERSION, 1),
        (Reason.CLIENT_IDENTIFIER_NOT_VALID, 2),
        (Reason.SERVER_UNAVAILABLE, 3),
        (Reason.SERVER_BUSY, 3),
        (Reason.QUOTA_EXCEEDED, 3),
        (Reason.BAD_USER_NAME_OR_PASSWORD, 4),
        (Reason.NOT_AUTHORIZED, 5),
        (Reason.BANNED, 5),
        (Reason.BAD_AUTHENTICATION_METHOD, 5),
    ],
)
def test_reasons_of_connack_become_return_codes(reason: Reason, code: int) -> None:
    assert encode(ConnAck(False, reason), V311) == bytes((0x20, 2, 0, code))


def test_what_3_1_1_does_not_have_is_left_out() -> None:
    answer: Properties = {Property.REASON_STRING: "x"}
    assert encode(PubAck(1, 0x97, answer), V311) == encode(PubAck(1), V311)
    assert encode(SubAck(1, (1, 0x8F), answer), V311) == encode(SubAck(1, (1, 0x80)), V311)
    assert encode(UnsubAck(1, (0,), answer), V311) == encode(UnsubAck(1, ()), V311)
    assert encode(Disconnect(0x8E, answer), V311) == encode(Disconnect(), V311)
    assert encode(Publish("a", b"", properties={Property.CONTENT_TYPE: "x"}), V311) == encode(
        Publish("a", b""), V311
    )
    options = Subscription("a", 1, True, True, 2)
    assert encode(Subscribe(1, (options,)), V311) == encode(
        Subscribe(1, (Subscription("a", 1),)), V311
    )
    assert encode(Connect("c", V311, properties={Property.SESSION_EXPIRY: 1}), V311) == encode(
        Connect("c", V311), V311
    )
    with pytest.raises(ValueError, match=r"3\.1\.1 has no AUTH"):
        encode(Auth(), V311)


@pytest.mark.parametrize(
    "packet",
    [
        Publish("a" * 65536, b""),
        Publish("a" * 65536, b"", 1, id=1),
        Publish("a", b"", 1, id=65536),
        Publish("\ud800", b""),
        Publish("a", b"", properties={Property.CONTENT_TYPE: "a" * 65536}),
        Publish("a", b"", properties={Property.SUBSCRIPTION_ID: (2**28,)}),
        Publish("a", b"", properties={Property.MESSAGE_EXPIRY: 2**32}),
        Publish("a", bytes(2**28)),
        PubAck(65536),
        PubAck(-1),
        PubAck(1, 256),
        Connect("a" * 65536),
        Connect("c", keep_alive=65536),
        Connect("c", password=bytes(65536)),
        SubAck(1, (256,)),
    ],
    ids=lambda packet: repr(packet)[:60],
)
def test_what_cannot_be_encoded_raises(packet: Packet) -> None:
    with pytest.raises(ValueError, match=r"."):
        encode(packet, V5)


LONG: Properties = {Property.REASON_STRING: "x" * 50, Property.USER: (("a", "b"),)}


@pytest.mark.parametrize(
    ("packet", "small"),
    [
        (PubAck(1, 0x97, LONG), PubAck(1, 0x97)),
        (PubAck(1, 0, LONG), PubAck(1)),
        (SubAck(1, (0,), LONG), SubAck(1, (0,))),
        (
            Disconnect(0x9C, {**LONG, Property.SERVER_REFERENCE: "b"}),
            Disconnect(0x9C, {Property.SERVER_REFERENCE: "b"}),
        ),
        (ConnAck(False, properties=LONG), ConnAck(False)),
    ],
)
def test_explanations_are_dropped_from_a_packet_that_is_too_large(
    packet: Packet, small: Packet
) -> None:
    full, cut = encode(packet, V5), encode(small, V5)
    assert encode_within(packet, V5, len(full)) == full
    assert encode_within(packet, V5, len(full) - 1) == cut
    assert encode_within(packet, V5, len(cut)) == cut
    assert encode_within(packet, V5, len(cut) - 1) == b""


def test_a_message_is_sent_whole_or_not_at_all() -> None:
    packet = Publish("a", b"", properties={Property.USER: (("a", "b"),)})
    data = encode(packet, V5)
    assert encode_within(packet, V5, len(data)) == data
    assert encode_within(packet, V5, len(data) - 1) == b""
