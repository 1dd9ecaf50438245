"""Batches in msgpack of what clients send, from the process that parses it to another.

The sender of a batch is not trusted. The types of packets have the ranges of their numbers. What
depends on several fields, and properties, whose types msgspec cannot express because a union with
`str` has no `bytes`, are read again by the parser; a publication needs less.
"""

from __future__ import annotations

from typing import Final, cast

from msgspec import DecodeError, ValidationError, msgpack

from edge.mqtt.codec import PacketParser, encode
from edge.mqtt.fields import MAX_TEXT, ProtocolFault, Reader, check_topic, protocol_error
from edge.mqtt.packets import (
    MAX_PACKET,
    V5,
    Connect,
    Fault,
    Input,
    Packet,
    PingReq,
    Property,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
)
from edge.mqtt.properties import encode_properties, read_properties
from edge.mqtt.reasons import FAILURE

_MISTYPED: Final = (AttributeError, LookupError, OverflowError, TypeError, ValueError)
"""Errors of encoding properties whose values have other types."""

encode_batch: Final = msgpack.Encoder().encode
"""Encode a list of packets and faults."""

_decode: Final = msgpack.Decoder(list[Input]).decode


def decode_batch(data: bytes | memoryview) -> list[Input]:
    """Decode what `encode_batch` returned; the number of bytes must have a bound.

    Raises msgspec.DecodeError if it is no such list, and msgspec.ValidationError, a subclass, if no
    parser of a client's packets returns such an item.
    """
    try:
        items = _decode(data)
    except (UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(str(error)) from None
    try:
        for index, item in enumerate(items):
            if isinstance(item, Publish):
                _check_publication(item)
            elif isinstance(item, Fault):
                if item.reason < FAILURE:
                    raise protocol_error(f"{item.reason.name} is no fault")
            elif not _is_plain(item):
                items[index] = _parse_again(item)
    except (ProtocolFault, *_MISTYPED) as error:
        raise ValidationError(str(error)) from None
    return items


def _check_publication(packet: Publish) -> None:
    topic, properties = packet.topic, packet.properties
    if "\0" in topic or (len(topic) > MAX_TEXT // 4 and len(topic.encode()) > MAX_TEXT):
        raise protocol_error("a text contains U+0000, or is too long")
    check_topic(topic)
    if bool(packet.qos) != bool(packet.id) or packet.dup > packet.qos:
        raise protocol_error("the QoS, the identifier and DUP contradict each other")
    if properties:
        data = encode_properties(properties)
        found = read_properties(Reader(data, 0, len(data)), Publish)
        decoded = cast(dict[Property, object], properties)
        decoded.clear()
        decoded.update(found)
        if Property.SUBSCRIPTION_ID in found:
            raise protocol_error("a client must not send a subscription identifier")
    if not topic and Property.TOPIC_ALIAS not in properties:
        raise protocol_error("it has neither a topic nor a topic alias")


def _is_plain(item: Packet) -> bool:
    if isinstance(item, (PubAck, PubRec, PubRel, PubComp)):
        return not (item.reason or item.properties)
    return isinstance(item, PingReq)


def _parse_again(packet: Packet) -> Input:
    version, known = (packet.version, 0) if isinstance(packet, Connect) else (V5, V5)
    (found,) = PacketParser(MAX_PACKET, known).feed(encode(packet, version))
    if isinstance(found, Fault):
        raise ValueError(found.text)
    return cast(Input, found)
