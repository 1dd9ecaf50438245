"""The properties of MQTT 5.0: their types, their ranges and the packets that may have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from edge.mqtt import fields
from edge.mqtt.fields import MAX_TEXT, MAX_VARINT, ProtocolFault, Reader, malformed, protocol_error
from edge.mqtt.packets import (
    NO_PROPERTIES,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Properties,
    Property,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    Will,
)
from edge.mqtt.reasons import Reason

_MAX_FOUR_BYTES: Final = 2**32 - 1


class _Type(NamedTuple):
    """The functions that read and write a value, and the range of a number."""

    read: Callable[[Reader], Any]
    encode: Callable[[Any], bytes]
    low: int = 0
    high: int = -1  # not a number


_FLAG: Final = _Type(Reader.byte, fields.encode_byte, 0, 1)
_TWO_BYTES: Final = _Type(Reader.two_bytes, fields.encode_two_bytes, 0, MAX_TEXT)
_FOUR_BYTES: Final = _Type(Reader.four_bytes, fields.encode_four_bytes, 0, _MAX_FOUR_BYTES)
_TEXT: Final = _Type(Reader.text, fields.encode_text)
_BINARY: Final = _Type(Reader.binary, fields.encode_binary)

_TYPES: Final[dict[Property, _Type]] = {
    Property.PAYLOAD_FORMAT: _FLAG,
    Property.MESSAGE_EXPIRY: _FOUR_BYTES,
    Property.CONTENT_TYPE: _TEXT,
    Property.RESPONSE_TOPIC: _TEXT,
    Property.CORRELATION_DATA: _BINARY,
    Property.SUBSCRIPTION_ID: _Type(Reader.varint, fields.encode_varint, 1, MAX_VARINT),
    Property.SESSION_EXPIRY: _FOUR_BYTES,
    Property.ASSIGNED_CLIENT_ID: _TEXT,
    Property.SERVER_KEEP_ALIVE: _TWO_BYTES,
    Property.AUTHENTICATION_METHOD: _TEXT,
    Property.AUTHENTICATION_DATA: _BINARY,
    Property.REQUEST_PROBLEM_INFORMATION: _FLAG,
    Property.WILL_DELAY: _FOUR_BYTES,
    Property.REQUEST_RESPONSE_INFORMATION: _FLAG,
    Property.RESPONSE_INFORMATION: _TEXT,
    Property.SERVER_REFERENCE: _TEXT,
    Property.REASON_STRING: _TEXT,
    Property.RECEIVE_MAXIMUM: _TWO_BYTES._replace(low=1),
    Property.TOPIC_ALIAS_MAXIMUM: _TWO_BYTES,
    Property.TOPIC_ALIAS: _TWO_BYTES._replace(low=1),
    Property.MAXIMUM_QOS: _FLAG,
    Property.RETAIN_AVAILABLE: _FLAG,
    Property.USER: _Type(Reader.pair, fields.encode_pair),
    Property.MAXIMUM_PACKET_SIZE: _FOUR_BYTES._replace(low=1),
    Property.WILDCARD_SUBSCRIPTIONS: _FLAG,
    Property.SUBSCRIPTION_IDS: _FLAG,
    Property.SHARED_SUBSCRIPTIONS: _FLAG,
}

_ENCODERS: Final[dict[Property, tuple[bytes, Callable[[Any], bytes]]]] = {
    key: (fields.encode_byte(key), type_.encode) for key, type_ in _TYPES.items()
}

_LISTS: Final = (Property.USER, Property.SUBSCRIPTION_ID)
"""The properties whose values are tuples."""

_MESSAGE: Final = frozenset(
    {
        Property.PAYLOAD_FORMAT,
        Property.MESSAGE_EXPIRY,
        Property.CONTENT_TYPE,
        Property.RESPONSE_TOPIC,
        Property.CORRELATION_DATA,
        Property.USER,
    }
)
_ANSWER: Final = frozenset({Property.REASON_STRING, Property.USER})
_AUTHENTICATION: Final = frozenset({Property.AUTHENTICATION_METHOD, Property.AUTHENTICATION_DATA})
_SESSION: Final = frozenset(
    {
        Property.SESSION_EXPIRY,
        Property.RECEIVE_MAXIMUM,
        Property.MAXIMUM_PACKET_SIZE,
        Property.TOPIC_ALIAS_MAXIMUM,
        Property.USER,
    }
)

PERMITTED: Final[dict[type, frozenset[Property]]] = {
    Connect: _SESSION
    | _AUTHENTICATION
    | {Property.REQUEST_RESPONSE_INFORMATION, Property.REQUEST_PROBLEM_INFORMATION},
    Will: _MESSAGE | {Property.WILL_DELAY},
    ConnAck: _SESSION
    | _AUTHENTICATION
    | {
        Property.MAXIMUM_QOS,
        Property.RETAIN_AVAILABLE,
        Property.ASSIGNED_CLIENT_ID,
        Property.REASON_STRING,
        Property.WILDCARD_SUBSCRIPTIONS,
        Property.SUBSCRIPTION_IDS,
        Property.SHARED_SUBSCRIPTIONS,
        Property.SERVER_KEEP_ALIVE,
        Property.RESPONSE_INFORMATION,
        Property.SERVER_REFERENCE,
    },
    Publish: _MESSAGE | {Property.SUBSCRIPTION_ID, Property.TOPIC_ALIAS},
    PubAck: _ANSWER,
    PubRec: _ANSWER,
    PubRel: _ANSWER,
    PubComp: _ANSWER,
    Subscribe: frozenset({Property.SUBSCRIPTION_ID, Property.USER}),
    SubAck: _ANSWER,
    Unsubscribe: frozenset({Property.USER}),
    UnsubAck: _ANSWER,
    Disconnect: _ANSWER | {Property.SESSION_EXPIRY, Property.SERVER_REFERENCE},
    Auth: _ANSWER | _AUTHENTICATION,
}
"""The properties that each packet, and the will, may have (MQTT 5.0, section 2.2.2.2)."""

_PERMITTED_TYPES: Final[dict[type, dict[int, tuple[Property, _Type]]]] = {
    owner: {int(key): (key, _TYPES[key]) for key in permitted}
    for owner, permitted in PERMITTED.items()
}


def read_properties(reader: Reader, owner: type) -> Properties:
    """Read the properties of a packet, or of a will; raise `ProtocolFault`.

    Args:
        reader: is at the length of the properties.
        owner: the type of the packet, or `Will`.
    """
    length = reader.varint()
    if not length:
        return NO_PROPERTIES
    if length > reader.end - reader.at:
        raise malformed("the properties are longer than the packet")
    within = Reader(reader.data, reader.at, reader.at + length)
    reader.at += length
    permitted = _PERMITTED_TYPES[owner]
    found: dict[Property, Any] = {}
    while within.at < within.end:
        number = within.byte()
        entry = permitted.get(number)
        if entry is None:
            raise malformed(f"property {number:#04x} is not one that it may have")
        key, type_ = entry
        value = type_.read(within)
        if type_.high > 0 and not type_.low <= value <= type_.high:
            raise _out_of_range(key, value)
        if key in _LISTS:
            found.setdefault(key, []).append(value)
        elif key in found:
            raise _repeated(key)
        else:
            found[key] = value
    for key in _LISTS:
        if key in found:
            found[key] = tuple(found[key])
    _check_together(found, owner)
    return found


def _check_together(found: dict[Property, Any], owner: type) -> None:
    if owner is not Publish and len(found.get(Property.SUBSCRIPTION_ID, ())) > 1:
        raise _repeated(Property.SUBSCRIPTION_ID)
    if (
        Property.AUTHENTICATION_DATA in found and Property.AUTHENTICATION_METHOD not in found
    ):  # section 3.1.2.11.10
        raise protocol_error("it has authentication data without a method")
    topic = found.get(Property.RESPONSE_TOPIC, "")
    if "+" in topic or "#" in topic:  # section 3.3.2.3.5
        raise protocol_error("the response topic contains a wildcard")


def _out_of_range(key: Property, value: int) -> ProtocolFault:
    alias = key is Property.TOPIC_ALIAS
    reason = Reason.TOPIC_ALIAS_INVALID if alias else Reason.PROTOCOL_ERROR
    return ProtocolFault(reason, f"{_name(key)} must not be {value}")


def _repeated(key: Property) -> ProtocolFault:
    return protocol_error(f"{_name(key)} is there more than once")


def _name(key: Property) -> str:
    return f"the property {key.name.lower().replace('_', ' ')}"


def encode_properties(properties: Properties) -> bytes:
    """Encode properties with their length; raise OverflowError for a value that is too long."""
    parts: list[bytes] = []
    for key, value in properties.items():
        number, encode = _ENCODERS[key]
        for each in value if key in _LISTS else (value,):
            parts += (number, encode(each))
    encoded = b"".join(parts)
    return fields.encode_varint(len(encoded)) + encoded
