from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import DecodeError

from edge.mqtt.batches import decode_batch, encode_batch
from edge.mqtt.codec import PacketParser, encode, encode_within
from edge.mqtt.decode import CLIENT_AUTH, CLIENT_ENDS, REASONS, SERVER_AUTH, SERVER_ENDS
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
from edge.mqtt.properties import PERMITTED
from edge.mqtt.reasons import Reason
from tests.fuzz import fuzz_mqtt
from tests.helpers.mqtt_packets import PACKETS, Sent, encode_all, feed_all, new_parser
from tests.helpers.mqtt_values import BYTES, IDS, QOS, TEXTS, TOPICS, TWO_BYTES, VALUES
from tests.property.test_parser_streams import pieces

Draw = Callable[..., Any]


def properties(draw: Draw, owner: type, sent: Sent) -> dict[Property, Any]:
    """Draw the properties of a packet, or of a will."""
    if sent.version == V311:
        return {}
    optional = {key: VALUES[key] for key in sorted(PERMITTED[owner])}
    if owner is Publish and not sent.from_client:
        ids = st.lists(st.integers(1, 268_435_455), min_size=1, max_size=3).map(tuple)
        optional[Property.SUBSCRIPTION_ID] = ids
    elif owner is Publish:
        del optional[Property.SUBSCRIPTION_ID]
    elif owner is Disconnect:
        del optional[Property.SERVER_REFERENCE if sent.from_client else Property.SESSION_EXPIRY]
    found: dict[Property, Any] = draw(st.fixed_dictionaries({}, optional=optional))
    if owner is Auth or Property.AUTHENTICATION_DATA in found:
        found.setdefault(Property.AUTHENTICATION_METHOD, draw(TEXTS))
    return found


def codes(draw: Draw, permitted: frozenset[int], version: int) -> int:
    """Draw a reason code."""
    return draw(st.sampled_from(sorted(permitted))) if version == V5 else 0


def connect(draw: Draw, sent: Sent) -> Packet:
    user_name = draw(st.none() | TEXTS)
    password = draw(st.none() | BYTES) if sent.version == V5 or user_name is not None else None
    will = None
    if draw(st.booleans()):
        topic = draw(TOPICS) or "/"
        own = properties(draw, Will, sent)
        will = Will(topic, draw(BYTES), draw(QOS), draw(st.booleans()), own)
    return Connect(
        draw(TEXTS),
        sent.version,
        draw(st.booleans()),
        draw(TWO_BYTES),
        user_name,
        password,
        will,
        properties(draw, Connect, sent),
    )


def connack(draw: Draw, sent: Sent) -> Packet:
    reasons = REASONS[ConnAck] if sent.version == V5 else {0x00, 0x84, 0x85, 0x86, 0x87, 0x88}
    reason = Reason(draw(st.sampled_from(sorted(reasons))))
    present = not reason and draw(st.booleans())
    return ConnAck(present, reason, properties(draw, ConnAck, sent))


def publish(draw: Draw, sent: Sent) -> Packet:
    own = properties(draw, Publish, sent)
    topic = draw(TOPICS) or ("" if Property.TOPIC_ALIAS in own else "/")
    qos = draw(QOS)
    dup, number = (draw(st.booleans()), draw(IDS)) if qos else (False, 0)
    payload = draw(st.one_of(BYTES, st.integers(60, 300).map(bytes)))
    return Publish(topic, payload, qos, draw(st.booleans()), dup, number, own)


def answer(draw: Draw, sent: Sent) -> Packet:
    kind = draw(st.sampled_from([PubAck, PubRec, PubRel, PubComp]))
    reason = codes(draw, REASONS[kind], sent.version)
    packet: Packet = kind(draw(IDS), reason, properties(draw, kind, sent))
    return packet


def subscription(draw: Draw, version: int) -> Subscription:
    filter_ = draw(TEXTS)
    if version == V311:
        return Subscription(filter_, draw(QOS))
    local = not filter_.startswith("$share/") and draw(st.booleans())
    return Subscription(filter_, draw(QOS), local, draw(st.booleans()), draw(QOS))


def subscribe(draw: Draw, sent: Sent) -> Packet:
    subscriptions = tuple(subscription(draw, sent.version) for _ in range(draw(st.integers(1, 3))))
    return Subscribe(draw(IDS), subscriptions, properties(draw, Subscribe, sent))


def unsubscribe(draw: Draw, sent: Sent) -> Packet:
    filters = draw(st.lists(TEXTS, min_size=1, max_size=3).map(tuple))
    return Unsubscribe(draw(IDS), filters, properties(draw, Unsubscribe, sent))


def suback(draw: Draw, sent: Sent) -> Packet:
    permitted = REASONS[SubAck] if sent.version == V5 else {0, 1, 2, 0x80}
    reasons = st.lists(st.sampled_from(sorted(permitted)), min_size=1, max_size=3).map(tuple)
    return SubAck(draw(IDS), draw(reasons), properties(draw, SubAck, sent))


def unsuback(draw: Draw, sent: Sent) -> Packet:
    reasons: tuple[int, ...] = ()
    if sent.version == V5:
        permitted = st.sampled_from(sorted(REASONS[UnsubAck]))
        reasons = draw(st.lists(permitted, min_size=1, max_size=3).map(tuple))
    return UnsubAck(draw(IDS), reasons, properties(draw, UnsubAck, sent))


def disconnect(draw: Draw, sent: Sent) -> Packet:
    permitted = CLIENT_ENDS if sent.from_client else SERVER_ENDS
    reason = codes(draw, permitted, sent.version)
    return Disconnect(reason, properties(draw, Disconnect, sent))


def auth(draw: Draw, sent: Sent) -> Packet:
    permitted = CLIENT_AUTH if sent.from_client else SERVER_AUTH
    return Auth(codes(draw, permitted, V5), properties(draw, Auth, sent))


def ping(_draw: Draw, sent: Sent) -> Packet:
    return PingReq() if sent.from_client else PingResp()


Kind = Callable[[Draw, Sent], Packet]
FROM_CLIENT: tuple[Kind, ...] = (publish, answer, subscribe, unsubscribe, disconnect, ping, auth)
FROM_SERVER: tuple[Kind, ...] = (
    publish, answer, connack, suback, unsuback, ping, disconnect, auth,
)  # fmt: skip


@st.composite
def packets(draw: Draw, from_client: bool | None = None) -> list[Sent]:
    """Draw packets of one version and direction; those of a client begin with CONNECT,
    and a DISCONNECT is the last."""
    if from_client is None:
        from_client = draw(st.booleans())
    context = Sent(PingReq(), draw(st.sampled_from([V5, V311])), from_client)
    kinds = FROM_CLIENT if context.from_client else FROM_SERVER
    if context.version == V311:
        kinds = tuple(k for k in kinds if k is not auth and (k is not disconnect or context[2]))
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=4))
    if disconnect in chosen:
        del chosen[chosen.index(disconnect) + 1 :]
    if context.from_client:
        chosen = [connect, *chosen]
    return [context._replace(packet=kind(draw, context)) for kind in chosen]


@given(packets(), st.lists(st.integers(0, 2000), max_size=8))
def test_packets_come_back_however_they_are_split(sent: list[Sent], cuts: list[int]) -> None:
    parser = new_parser(sent[0], 100_000)
    found = feed_all(parser, pieces(encode_all(sent), cuts))
    assert found == [each.packet for each in sent]
    assert [*map(type, found)] == [type(each.packet) for each in sent]


@given(packets(), st.integers(2, 200))
def test_a_packet_for_a_small_peer_has_no_more_bytes(sent: list[Sent], max_bytes: int) -> None:
    for each in sent:
        data = encode_within(each.packet, each.version, max_bytes)
        assert len(data) <= max_bytes
        if data:
            (found,) = new_parser(each).feed(data)
            assert type(found) is type(each.packet)


def mutate(draw: Draw, whole: bytes) -> bytes:
    """Replace, add or remove a few bytes."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(data)


@st.composite
def mutated(draw: Draw) -> bytes:
    """Draw packets with a few changed bytes."""
    drawn = draw(st.one_of(packets(), st.lists(st.sampled_from([*PACKETS.values()]), min_size=1)))
    return mutate(draw, encode_all(drawn))


@given(mutated(), st.integers(0, 255), st.integers(0, 255))
def test_mutated_packets_are_parsed_or_refused(data: bytes, setup: int, cut: int) -> None:
    fuzz_mqtt.check(bytes((setup, cut)) + data)


@given(mutated(), st.lists(st.integers(0, 2000), max_size=8), st.sampled_from([0, V5, V311]))
def test_splits_make_no_difference_to_faults(data: bytes, cuts: list[int], version: int) -> None:
    whole, split = PacketParser(300, version), PacketParser(300, version)
    found = whole.feed(data)
    assert feed_all(split, pieces(data, cuts)) == found
    assert split.version == whole.version
    assert not any(isinstance(item, Fault) for item in found[:-1])


@st.composite
def batches(draw: Draw) -> bytes:
    """Draw a batch of what a client sends, which may have a few changed bytes."""
    data = encode_batch([each.packet for each in draw(packets(from_client=True))])
    return mutate(draw, data) if draw(st.booleans()) else data


@given(mutated(), packets(from_client=True), st.sampled_from([V5, V311]))
def test_what_is_parsed_comes_back_from_a_batch(
    data: bytes, sent: list[Sent], version: int
) -> None:
    found = PacketParser(1000, version).feed(data) + new_parser(sent[0]).feed(encode_all(sent))
    assert repr(decode_batch(encode_batch(found))) == repr(found)  # with the types of all values


@given(batches() | st.binary())
def test_a_batch_has_only_what_a_client_can_send(data: bytes) -> None:
    try:
        items = decode_batch(data)
    except DecodeError:
        return
    for item in items:
        if not isinstance(item, Fault):
            version = item.version if isinstance(item, Connect) else V5
            parser = PacketParser(100_000, 0 if isinstance(item, Connect) else version)
            assert repr(parser.feed(encode(item, version))) == repr([item])
