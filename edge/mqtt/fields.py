"""The data types of MQTT's fields, read within bounds and written (MQTT 5.0, section 1.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edge.mqtt.reasons import Reason

MAX_TEXT: Final = 65_535
"""Maximum bytes of a text or of binary data."""

MAX_VARINT: Final = 268_435_455
"""Maximum of a variable byte integer, which has four bytes."""


class ProtocolFault(Exception):
    """The peer violates the protocol; `reason` is the code that the specification has for it."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text

    def within(self, packet: str) -> ProtocolFault:
        """Return the fault with the name of the packet that has it."""
        return ProtocolFault(self.reason, f"{packet}: {self.text}")


def malformed(text: str) -> ProtocolFault:
    """Return the fault of bytes that are no packet (MQTT 5.0, section 4.13.1)."""
    return ProtocolFault(Reason.MALFORMED_PACKET, text)


def cut() -> ProtocolFault:
    """Return the fault of a packet that is shorter than its fields."""
    return malformed("it ends within a field")


def protocol_error(text: str) -> ProtocolFault:
    """Return the fault of a packet whose content is not permitted (MQTT 5.0, section 4.13.1)."""
    return ProtocolFault(Reason.PROTOCOL_ERROR, text)


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Read a variable byte integer; return it and the index after it, or 0, 0 if it is incomplete.

    Raises `ProtocolFault` if it has more than four bytes or is not in its shortest form.
    """
    if at + 1 < end and data[at] >= 0x80 and 0 < data[at + 1] < 0x80:  # most lengths
        return data[at] & 0x7F | data[at + 1] << 7, at + 2
    value = shift = 0
    for index in range(at, min(end, at + 4)):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if shift and not byte:
                raise malformed("a length is not encoded in its shortest form")
            return value, index + 1
        shift += 7
    if shift > 21:
        raise malformed("a length has more than four bytes")
    return 0, 0


class Reader:
    """A position in the bytes of a packet, up to `end`; all methods raise `ProtocolFault`."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data = data
        self.at = at
        self.end = end

    def take(self, count: int) -> bytes:
        """Read `count` bytes."""
        start = self.at
        stop = start + count
        if stop > self.end:
            raise cut()
        self.at = stop
        return self.data[start:stop]

    def byte(self) -> int:
        """Read one byte."""
        at = self.at
        if at >= self.end:
            raise cut()
        self.at = at + 1
        return self.data[at]

    def two_bytes(self) -> int:
        """Read a two byte integer."""
        return int.from_bytes(self.take(2), "big")

    def four_bytes(self) -> int:
        """Read a four byte integer."""
        return int.from_bytes(self.take(4), "big")

    def varint(self) -> int:
        """Read a variable byte integer."""
        value, at = read_varint(self.data, self.at, self.end)
        if not at:
            raise cut()
        self.at = at
        return value

    def binary(self) -> bytes:
        """Read binary data."""
        data, start = self.data, self.at + 2
        if start > self.end:
            raise cut()
        stop = start + (data[start - 2] << 8 | data[start - 1])
        if stop > self.end:
            raise cut()
        self.at = stop
        return data[start:stop]

    def text(self) -> str:
        """Read a text."""
        return decode_text(self.binary())

    def pair(self) -> tuple[str, str]:
        """Read a pair of texts."""
        return self.text(), self.text()

    def identifier(self) -> int:
        """Read a packet identifier, which must not be 0 (MQTT 5.0, section 2.2.1)."""
        number = self.two_bytes()
        if not number:
            raise protocol_error("the packet identifier is 0")
        return number


def decode_text(data: bytes) -> str:
    """Decode UTF-8 without U+0000 (MQTT 5.0, section 1.5.4); raise `ProtocolFault`."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise malformed("a text is not well-formed UTF-8") from None
    if "\0" in text:
        raise malformed("a text contains U+0000")
    return text


def check_topic(topic: str) -> None:
    """Raise `ProtocolFault` if a topic name contains a wildcard (MQTT 5.0, section 3.3.2.1)."""
    if "+" in topic or "#" in topic:
        raise ProtocolFault(Reason.TOPIC_NAME_INVALID, "the topic name contains a wildcard")


def encode_byte(value: int) -> bytes:
    """Encode one byte; raise OverflowError."""
    return value.to_bytes(1, "big")


def encode_two_bytes(value: int) -> bytes:
    """Encode a two byte integer; raise OverflowError."""
    return value.to_bytes(2, "big")


def encode_four_bytes(value: int) -> bytes:
    """Encode a four byte integer; raise OverflowError."""
    return value.to_bytes(4, "big")


def encode_varint(value: int) -> bytes:
    """Encode a variable byte integer; raise OverflowError."""
    if value < 0x80:
        return value.to_bytes(1, "big")
    if value > MAX_VARINT:
        raise OverflowError(f"{value} is more than MQTT's maximum length, {MAX_VARINT}")
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode_binary(value: bytes) -> bytes:
    """Encode binary data; raise OverflowError."""
    return len(value).to_bytes(2, "big") + value


def encode_text(value: str) -> bytes:
    """Encode a text; raise OverflowError, or UnicodeEncodeError for a surrogate."""
    return encode_binary(value.encode())


def encode_pair(value: Sequence[str]) -> bytes:
    """Encode a pair of texts; raise as `encode_text`."""
    name, text = value
    return encode_text(name) + encode_text(text)
