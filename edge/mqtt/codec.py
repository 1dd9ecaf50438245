"""Packets from bytes, and bytes from packets, for both versions of MQTT and both directions."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec.structs import replace

from edge.mqtt.decode import (
    AUTH,
    CONNECT,
    KINDS,
    PUBLISH,
    RETURN_CODES,
    Answer,
    Kind,
    Source,
    decode_publish,
)
from edge.mqtt.fields import (
    ProtocolFault,
    Reader,
    encode_binary,
    encode_text,
    encode_varint,
    malformed,
    protocol_error,
    read_varint,
)
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
    UnsubAck,
    Unsubscribe,
)
from edge.mqtt.properties import encode_properties
from edge.mqtt.reasons import Reason

_ANSWERS: Final[dict[int, type[Answer]]] = {
    0x40: PubAck,
    0x50: PubRec,
    0x62: PubRel,
    0x70: PubComp,
}
"""The packets that answer PUBLISH, by the first byte of their fixed header."""

_FIRST_BYTES: Final[dict[type, int]] = {answer: first for first, answer in _ANSWERS.items()}

_WITH_REASON_STRING: Final = (
    ConnAck,
    PubAck,
    PubRec,
    PubRel,
    PubComp,
    SubAck,
    UnsubAck,
    Disconnect,
    Auth,
)

_RETURN_CODES: Final[dict[Reason, int]] = {
    **{reason: code for code, reason in enumerate(RETURN_CODES)},
    Reason.BANNED: 5,
    Reason.BAD_AUTHENTICATION_METHOD: 5,
}
"""The return codes of 3.1.1 for reasons; all others are `_UNAVAILABLE`."""

_UNAVAILABLE: Final = 3

_two_bytes: Final = struct.Struct(">H").pack
_header_and_number: Final = struct.Struct(">BBH").pack


class PacketParser:
    """A parser for the packets that one side of a connection sends.

    Args:
        max_bytes: maximum bytes of a packet with its fixed header; may be changed at any time.
        version: `V311` or `V5` if it is known. Otherwise the first packet must be `Connect`.
        from_client: whether a client sends the packets. What the other side alone may send is
            refused.
    """

    def __init__(self, max_bytes: int, version: int = 0, *, from_client: bool = True) -> None:
        self.max_bytes = max_bytes
        self._source = Source(version, from_client)
        self._buffer = bytearray()  # the start of a packet
        self._needed = 0  # bytes that the buffer must have before it is parsed again
        self._ended = False

    @property
    def version(self) -> int:
        """The version that `Connect` has chosen, 0 before; after a fault, that of the answer."""
        return self._source.version

    @property
    def pending(self) -> int:
        """Number of received bytes that do not belong to a complete packet yet."""
        return len(self._buffer)

    def feed(self, data: bytes | memoryview) -> list[Packet | Fault]:
        """Parse bytes; return the packets that they complete.

        A fault or a DISCONNECT is the last item that is ever returned; all that follows is ignored.
        """
        if self._ended:
            return []
        buffer = self._buffer
        if buffer:
            buffer += data
            if len(buffer) < self._needed:
                return []
            data = bytes(buffer)
            buffer.clear()
        elif not isinstance(data, bytes):
            data = bytes(data)
        items: list[Packet | Fault] = []
        try:
            parsed = self._parse(data, items)
        except ProtocolFault as fault:
            self._ended = True
            items.append(Fault(fault.reason, fault.text, self.version))
            return items
        if parsed < len(data):
            buffer += memoryview(data)[parsed:]
        return items

    def _parse(self, data: bytes, items: list[Packet | Fault]) -> int:
        """Append the complete packets of `data` to `items`; return the number of their bytes."""
        at, size, source = 0, len(data), self._source
        while size - at >= 2:
            first, length, body = data[at], data[at + 1], at + 2
            if length == 2 and size - at >= 4 and first in _ANSWERS and source.version:
                number = data[body] << 8 | data[body + 1]
                if number:
                    items.append(_ANSWERS[first](number))
                    at += 4
                    continue
            if length >= 0x80:
                length, body = read_varint(data, at + 1, size)
                if not body:
                    break
            end = body + length
            if end - at > self.max_bytes:
                text = f"a packet of {end - at} bytes is larger than {self.max_bytes} bytes"
                raise ProtocolFault(Reason.PACKET_TOO_LARGE, text)
            kind = None if first >> 4 == PUBLISH and source.version else _kind(first, source)
            if end > size:
                self._needed = end - at
                return at
            if kind is None:
                try:
                    items.append(decode_publish(data, body, end, first & 15, source))
                except ProtocolFault as fault:
                    raise fault.within("PUBLISH") from None
            else:
                items.append(self._packet(kind, Reader(data, body, end)))
                source = self._source
            at = size if self._ended else end
        self._needed = size - at + 1
        return at

    def _packet(self, kind: Kind, reader: Reader) -> Packet:
        try:
            if not self.version:
                self._read_version(reader)
            packet = kind.decode(reader, self._source)
            if reader.at < reader.end:
                raise malformed("there are bytes after its end")
        except ProtocolFault as fault:
            raise fault.within(kind.name) from None
        self._ended = isinstance(packet, Disconnect)
        return packet

    def _read_version(self, reader: Reader) -> None:
        """Read the protocol's name and level; raise `ProtocolFault` if they are not supported."""
        name, level = reader.text(), reader.byte()
        # Bridges set the highest bit; they expect that who does not know it refuses as 3.1.1 does.
        version = V5 if level & 0x7F >= V5 else V311
        self._source = self._source._replace(version=version)
        if name != "MQTT" or level != version:
            text = f"version {level} of the protocol {name[:20]!r} is not supported"
            raise ProtocolFault(Reason.UNSUPPORTED_PROTOCOL_VERSION, text)


def _kind(first: int, source: Source) -> Kind:
    """Return the kind of a packet other than PUBLISH by its first byte; raise `ProtocolFault`."""
    number, flags = first >> 4, first & 15
    if not source.version and number != CONNECT:
        raise protocol_error("the first packet is not CONNECT")
    kind = KINDS.get(number)
    if kind is None or (number == AUTH and source.version == V311):
        raise malformed(f"packet type {number} is reserved")
    if flags != kind.flags:
        raise malformed(f"{kind.name}: the flags of the header are {flags}, not {kind.flags}")
    if not (kind.from_client if source.from_client else kind.from_server):
        raise protocol_error(f"{kind.name}: this side of a connection must not send it")
    if number == CONNECT and source.version:
        raise protocol_error("CONNECT: it was sent before")
    return kind


def encode(packet: Packet, version: int) -> bytes:
    """Encode a packet; what MQTT 3.1.1 does not have is left out if `version` is `V311`.

    Raises ValueError if a value is outside of its range, or the version does not have the packet.
    """
    try:
        return _ENCODERS[type(packet)](packet, version)
    except (OverflowError, struct.error) as error:
        raise ValueError(f"{type(packet).__name__} cannot be encoded: {error}") from error


def encode_success(answer: type[Answer], number: int) -> bytes:
    """Encode a packet that answers PUBLISH without a failure; it is the same in both versions."""
    return _header_and_number(_FIRST_BYTES[answer], 2, number)


def encode_within(packet: Packet, version: int, max_bytes: int) -> bytes:
    """Encode a packet for a peer that takes at most `max_bytes`; return b"" if it is too large.

    Reason strings and the user properties beside them are dropped from a packet that is too large
    with them (MQTT 5.0, section 3.4.2.2). Raises ValueError as `encode` does.
    """
    data = encode(packet, version)
    if len(data) > max_bytes and isinstance(packet, _WITH_REASON_STRING):
        properties = dict(packet.properties)
        properties.pop(Property.REASON_STRING, None)
        properties.pop(Property.USER, None)
        data = encode(replace(packet, properties=properties), version)
    return data if len(data) <= max_bytes else b""


def _encode_publish(packet: Publish, version: int) -> bytes:
    name, payload, qos = packet.topic.encode(), packet.payload, packet.qos
    properties = packet.properties
    size = len(name)
    tail = _two_bytes(packet.id) if qos else b""
    if version == V5:
        tail += encode_properties(properties) if properties else b"\0"
    length = 2 + size + len(tail) + len(payload)
    first = 0x30 | packet.dup << 3 | qos << 1 | packet.retain
    if length < 0x80:
        return _header_and_number(first, length, size) + name + tail + payload
    return b"".join((bytes((first,)), encode_varint(length), _two_bytes(size), name, tail, payload))


def _encode_answer(packet: Answer, version: int) -> bytes:
    number, reason, properties = packet.id, packet.reason, packet.properties
    first = _FIRST_BYTES[type(packet)]
    if version == V311 or not (reason or properties):
        return _header_and_number(first, 2, number)
    return _packet(first, _two_bytes(number), _reason_and_properties(reason, properties))


def _encode_connect(packet: Connect, version: int) -> bytes:
    will, user_name, password = packet.will, packet.user_name, packet.password
    flags = packet.clean << 1 | (user_name is not None) << 7 | (password is not None) << 6
    parts = [_properties(packet.properties, version), encode_text(packet.client_id)]
    if will is not None:
        flags |= 0x04 | will.qos << 3 | will.retain << 5
        parts.append(_properties(will.properties, version))
        parts += (encode_text(will.topic), encode_binary(will.payload))
    if user_name is not None:
        parts.append(encode_text(user_name))
    if password is not None:
        parts.append(encode_binary(password))
    head = (b"\0\4MQTT", bytes((version, flags)), _two_bytes(packet.keep_alive))
    return _packet(0x10, *head, *parts)


def _encode_connack(packet: ConnAck, version: int) -> bytes:
    reason = packet.reason if version == V5 else _RETURN_CODES.get(packet.reason, _UNAVAILABLE)
    head = bytes((packet.session_present, reason))
    return _packet(0x20, head, _properties(packet.properties, version))


def _encode_subscribe(packet: Subscribe, version: int) -> bytes:
    parts = [_two_bytes(packet.id), _properties(packet.properties, version)]
    for wanted in packet.subscriptions:
        options = wanted.qos
        if version == V5:
            options |= wanted.no_local << 2 | wanted.retain_as_published << 3
            options |= wanted.retain_handling << 4
        parts += (encode_text(wanted.filter), bytes((options,)))
    return _packet(0x82, *parts)


def _encode_suback(packet: SubAck, version: int) -> bytes:
    reasons: Iterable[int] = packet.reasons
    if version == V311:
        reasons = (min(reason, Reason.UNSPECIFIED_ERROR) for reason in reasons)
    properties = _properties(packet.properties, version)
    return _packet(0x90, _two_bytes(packet.id), properties, bytes(reasons))


def _encode_unsubscribe(packet: Unsubscribe, version: int) -> bytes:
    properties = _properties(packet.properties, version)
    return _packet(0xA2, _two_bytes(packet.id), properties, *map(encode_text, packet.filters))


def _encode_unsuback(packet: UnsubAck, version: int) -> bytes:
    reasons = bytes(packet.reasons) if version == V5 else b""
    properties = _properties(packet.properties, version)
    return _packet(0xB0, _two_bytes(packet.id), properties, reasons)


def _encode_pingreq(_packet: PingReq, _version: int) -> bytes:
    return b"\xc0\0"


def _encode_pingresp(_packet: PingResp, _version: int) -> bytes:
    return b"\xd0\0"


def _encode_disconnect(packet: Disconnect, version: int) -> bytes:
    if version == V311 or not (packet.reason or packet.properties):
        return b"\xe0\0"
    return _packet(0xE0, _reason_and_properties(packet.reason, packet.properties))


def _encode_auth(packet: Auth, version: int) -> bytes:
    if version == V311:
        raise ValueError("MQTT 3.1.1 has no AUTH")
    if not (packet.reason or packet.properties):
        return b"\xf0\0"
    return _packet(0xF0, _reason_and_properties(packet.reason, packet.properties))


def _packet(first: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return bytes((first,)) + encode_varint(len(body)) + body


def _properties(properties: Properties, version: int) -> bytes:
    if version == V311:
        return b""
    return encode_properties(properties) if properties else b"\0"


def _reason_and_properties(reason: int, properties: Properties) -> bytes:
    return bytes((reason,)) + (encode_properties(properties) if properties else b"")


_ENCODERS: Final[dict[type, Callable[[Any, int], bytes]]] = {
    Connect: _encode_connect,
    ConnAck: _encode_connack,
    Publish: _encode_publish,
    PubAck: _encode_answer,
    PubRec: _encode_answer,
    PubRel: _encode_answer,
    PubComp: _encode_answer,
    Subscribe: _encode_subscribe,
    SubAck: _encode_suback,
    Unsubscribe: _encode_unsubscribe,
    UnsubAck: _encode_unsuback,
    PingReq: _encode_pingreq,
    PingResp: _encode_pingresp,
    Disconnect: _encode_disconnect,
    Auth: _encode_auth,
}
