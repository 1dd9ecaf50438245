"""Decoding of what follows the fixed header of a control packet (MQTT 5.0, section 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from edge.mqtt.fields import (
    ProtocolFault,
    Reader,
    check_topic,
    cut,
    decode_text,
    malformed,
    protocol_error,
)
from edge.mqtt.packets import (
    NO_PROPERTIES,
    V5,
    V311,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
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
from edge.mqtt.properties import read_properties
from edge.mqtt.reasons import Reason

Answer: TypeAlias = PubAck | PubRec | PubRel | PubComp
"""A packet that answers PUBLISH, or such an answer."""


def _codes(hexadecimal: str) -> frozenset[int]:
    return frozenset(bytes.fromhex(hexadecimal))


_RECEIVED: Final = _codes("00 10 80 83 87 90 91 97 99")
_RELEASED: Final = _codes("00 92")

REASONS: Final[dict[type, frozenset[int]]] = {
    ConnAck: _codes("00 80 81 82 83 84 85 86 87 88 89 8a 8c 90 95 97 99 9a 9b 9c 9d 9f"),
    PubAck: _RECEIVED,
    PubRec: _RECEIVED,
    PubRel: _RELEASED,
    PubComp: _RELEASED,
    SubAck: _codes("00 01 02 80 83 87 8f 91 97 9e a1 a2"),
    UnsubAck: _codes("00 11 80 83 87 8f 91"),
}
"""The reason codes that each packet may have."""

_BOTH_END: Final = _codes("00 80 81 82 83 90 93 94 95 96 97 98 99")

CLIENT_ENDS: Final = _BOTH_END | _codes("04")
"""The reason codes of `Disconnect` from a client (MQTT 5.0, section 3.14.2.1)."""

SERVER_ENDS: Final = _BOTH_END | _codes("87 89 8b 8c 8d 8e 8f 9a 9b 9c 9d 9e 9f a0 a1 a2")
"""The reason codes of `Disconnect` from a server."""

CLIENT_AUTH: Final = _codes("18 19")
"""The reason codes of `Auth` from a client (MQTT 5.0, section 3.15.2.1)."""

SERVER_AUTH: Final = _codes("00 18")
"""The reason codes of `Auth` from a server."""

_REASONS_311: Final = _codes("00 01 02 80")
"""The return codes of SUBACK (MQTT 3.1.1, section 3.9.3)."""

RETURN_CODES: Final = (
    Reason.SUCCESS,
    Reason.UNSUPPORTED_PROTOCOL_VERSION,
    Reason.CLIENT_IDENTIFIER_NOT_VALID,
    Reason.SERVER_UNAVAILABLE,
    Reason.BAD_USER_NAME_OR_PASSWORD,
    Reason.NOT_AUTHORIZED,
)
"""The reasons of the return codes of CONNACK (MQTT 3.1.1, section 3.2.2.3)."""


class Source(NamedTuple):
    """The version of a connection, 0 before CONNECT, and whether its packets are a client's."""

    version: int
    from_client: bool


def decode_publish(data: bytes, at: int, end: int, flags: int, source: Source) -> Publish:
    """Decode a PUBLISH of which `data` has the bytes after the fixed header from `at` to `end`."""
    qos = flags >> 1 & 3
    start = at + 2
    if qos == 3 or flags & 0b1110 == 0b1000:
        raise malformed("QoS 3" if qos == 3 else "DUP at QoS 0")
    if start > end:
        raise cut()
    at = start + (data[at] << 8 | data[at + 1])
    stop = at + 2 if qos else at
    if stop > end:
        raise cut()
    topic = decode_text(data[start:at])
    check_topic(topic)
    number = 0
    if qos:
        number = data[at] << 8 | data[at + 1]
        if not number:
            raise protocol_error("the packet identifier is 0")
    properties = NO_PROPERTIES
    if source.version == V5:
        if stop < end and not data[stop]:
            stop += 1
        else:
            reader = Reader(data, stop, end)
            properties = read_properties(reader, Publish)
            stop = reader.at
            if source.from_client and Property.SUBSCRIPTION_ID in properties:
                raise protocol_error("a client must not send a subscription identifier")
    if not topic and Property.TOPIC_ALIAS not in properties:
        raise protocol_error("it has neither a topic nor a topic alias")
    return Publish(topic, data[stop:end], qos, bool(flags & 1), bool(flags & 8), number, properties)


def _connect(reader: Reader, source: Source) -> Connect:
    """Decode a CONNECT from its flags on; `PacketParser` has read the name and the level."""
    version = source.version
    flags = reader.byte()
    has_user_name, has_password, has_will = flags & 0x80, flags & 0x40, flags & 0x04
    will_qos = flags >> 3 & 3
    if flags & 0x01:
        raise malformed("the reserved flag is set")
    if will_qos == 3 or (not has_will and flags & 0x38):
        raise malformed("the flags of the will contradict each other")
    if version == V311 and has_password and not has_user_name:
        raise malformed("it has a password without a user name")
    keep_alive = reader.two_bytes()
    properties = _properties(reader, Connect, version)
    client_id = reader.text()
    will = _will(reader, version, will_qos, bool(flags & 0x20)) if has_will else None
    return Connect(
        client_id,
        version,
        bool(flags & 0x02),
        keep_alive,
        reader.text() if has_user_name else None,
        reader.binary() if has_password else None,
        will,
        properties,
    )


def _will(reader: Reader, version: int, qos: int, retain: bool) -> Will:
    properties = _properties(reader, Will, version)
    topic = reader.text()
    if not topic:
        raise ProtocolFault(Reason.TOPIC_NAME_INVALID, "the topic of the will is empty")
    check_topic(topic)
    return Will(topic, reader.binary(), qos, retain, properties)


def _connack(reader: Reader, source: Source) -> ConnAck:
    flags = reader.byte()
    if flags > 1:
        raise malformed("reserved flags are set")
    code = reader.byte()
    if source.version == V5:
        reason = Reason(_permitted(code, REASONS[ConnAck]))
    elif code < len(RETURN_CODES):
        reason = RETURN_CODES[code]
    else:
        raise protocol_error(f"return code {code} is reserved")
    if flags and reason:
        raise protocol_error("it refuses the connection and has a session")
    return ConnAck(bool(flags), reason, _properties(reader, ConnAck, source.version))


def _answer(answer: type[Answer]) -> Callable[[Reader, Source], Answer]:
    def decode(reader: Reader, source: Source) -> Answer:
        number = reader.identifier()
        if source.version == V311 or reader.at == reader.end:
            return answer(number)
        return answer(number, *_reason_and_properties(reader, answer, REASONS[answer]))

    return decode


def _subscribe(reader: Reader, source: Source) -> Subscribe:
    number = reader.identifier()
    properties = _properties(reader, Subscribe, source.version)
    subscriptions = []
    while reader.at < reader.end:
        filter_ = reader.text()
        subscriptions.append(_subscription(filter_, reader.byte(), source.version))
    if not subscriptions:
        raise protocol_error("it has no topic filter")
    return Subscribe(number, tuple(subscriptions), properties)


def _subscription(filter_: str, options: int, version: int) -> Subscription:
    qos, retain_handling = options & 3, options >> 4 & 3
    if options & (0xC0 if version == V5 else 0xFC):
        raise malformed("reserved bits of the options are set")
    if qos == 3 or retain_handling == 3:
        raise protocol_error("the QoS or the retain handling is 3")
    if options & 4 and filter_.startswith("$share/"):  # section 3.8.3.1
        raise protocol_error("it has the option no local for a shared subscription")
    return Subscription(filter_, qos, bool(options & 4), bool(options & 8), retain_handling)


def _suback(reader: Reader, source: Source) -> SubAck:
    number = reader.identifier()
    properties = _properties(reader, SubAck, source.version)
    permitted = REASONS[SubAck] if source.version == V5 else _REASONS_311
    return SubAck(number, _reasons(reader, permitted), properties)


def _unsubscribe(reader: Reader, source: Source) -> Unsubscribe:
    number = reader.identifier()
    properties = _properties(reader, Unsubscribe, source.version)
    filters = []
    while reader.at < reader.end:
        filters.append(reader.text())
    if not filters:
        raise protocol_error("it has no topic filter")
    return Unsubscribe(number, tuple(filters), properties)


def _unsuback(reader: Reader, source: Source) -> UnsubAck:
    number = reader.identifier()
    if source.version == V311:
        return UnsubAck(number, ())
    properties = _properties(reader, UnsubAck, source.version)
    return UnsubAck(number, _reasons(reader, REASONS[UnsubAck]), properties)


def _pingreq(_reader: Reader, _source: Source) -> PingReq:
    return PingReq()


def _pingresp(_reader: Reader, _source: Source) -> PingResp:
    return PingResp()


def _disconnect(reader: Reader, source: Source) -> Disconnect:
    if source.version == V311 and not source.from_client:
        raise protocol_error("a server of MQTT 3.1.1 must not send it")
    if source.version == V311 or reader.at == reader.end:
        return Disconnect()
    permitted = CLIENT_ENDS if source.from_client else SERVER_ENDS
    reason, properties = _reason_and_properties(reader, Disconnect, permitted)
    if (Property.SERVER_REFERENCE if source.from_client else Property.SESSION_EXPIRY) in properties:
        raise protocol_error("it has a property that the other side alone may send")
    return Disconnect(reason, properties)


def _auth(reader: Reader, source: Source) -> Auth:
    permitted = CLIENT_AUTH if source.from_client else SERVER_AUTH
    if reader.at == reader.end:
        return Auth(_permitted(Reason.SUCCESS, permitted))
    reason, properties = _reason_and_properties(reader, Auth, permitted)
    if Property.AUTHENTICATION_METHOD not in properties:  # section 3.15.2.2.2
        raise protocol_error("it has no authentication method")
    return Auth(reason, properties)


def _properties(reader: Reader, owner: type, version: int) -> Properties:
    return read_properties(reader, owner) if version == V5 else NO_PROPERTIES


def _reason_and_properties(
    reader: Reader, owner: type, permitted: frozenset[int]
) -> tuple[int, Properties]:
    """Read a reason and the properties, which may be omitted."""
    reason = _permitted(reader.byte(), permitted)
    return reason, read_properties(reader, owner) if reader.at < reader.end else NO_PROPERTIES


def _reasons(reader: Reader, permitted: frozenset[int]) -> tuple[int, ...]:
    reasons = tuple(reader.take(reader.end - reader.at))
    if not reasons:
        raise protocol_error("it has no reason codes")
    for reason in reasons:
        _permitted(reason, permitted)
    return reasons


def _permitted(reason: int, permitted: frozenset[int]) -> int:
    if reason not in permitted:
        raise protocol_error(f"reason code {reason:#04x} is not one that it may have")
    return reason


class Kind(NamedTuple):
    """A type of packet: the flags of its fixed header, who may send it, and how it is decoded."""

    name: str
    flags: int
    from_client: bool
    from_server: bool
    decode: Callable[[Reader, Source], Packet]


CONNECT: Final = 1
PUBLISH: Final = 3
AUTH: Final = 15

KINDS: Final[dict[int, Kind]] = {
    CONNECT: Kind("CONNECT", 0, True, False, _connect),
    2: Kind("CONNACK", 0, False, True, _connack),
    4: Kind("PUBACK", 0, True, True, _answer(PubAck)),
    5: Kind("PUBREC", 0, True, True, _answer(PubRec)),
    6: Kind("PUBREL", 2, True, True, _answer(PubRel)),
    7: Kind("PUBCOMP", 0, True, True, _answer(PubComp)),
    8: Kind("SUBSCRIBE", 2, True, False, _subscribe),
    9: Kind("SUBACK", 0, False, True, _suback),
    10: Kind("UNSUBSCRIBE", 2, True, False, _unsubscribe),
    11: Kind("UNSUBACK", 0, False, True, _unsuback),
    12: Kind("PINGREQ", 0, True, False, _pingreq),
    13: Kind("PINGRESP", 0, False, True, _pingresp),
    14: Kind("DISCONNECT", 0, True, True, _disconnect),
    AUTH: Kind("AUTH", 0, True, True, _auth),
}
"""The types of packets by number (MQTT 5.0, section 2.1.2), except PUBLISH, which has flags."""
