"""The parser of a wire of MQTT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from edge.mqtt.codec import PacketParser
from edge.mqtt.packets import Fault, Packet

Input: TypeAlias = Packet | Fault

CONNECT_BYTES: Final = 80 * 1024
"""Maximum bytes of a CONNECT, which has room for the longest client identifier. The number of
connections that have not logged in is limited, too."""


class PacketInput:
    """A parser of a client's packets (`edge.server.wire.Parser`)."""

    __slots__ = ("_parser",)

    def __init__(self) -> None:
        self._parser = PacketParser(CONNECT_BYTES)

    @property
    def pending(self) -> int:
        """Number of received bytes that do not belong to a complete packet yet."""
        return self._parser.pending

    def feed(self, data: bytes | memoryview) -> Sequence[Input]:
        """Return the packets that end in this part of the input, and a fault if there is one."""
        return self._parser.feed(data)

    def set_limit(self, max_bytes: int) -> None:
        """Set the maximum bytes of a packet."""
        self._parser.max_bytes = max_bytes

    def reset(self) -> None:
        """Begin anew, for a peer that begins TLS."""
        self._parser = PacketParser(CONNECT_BYTES)

    def release(self) -> None:
        """Free nothing: the parser keeps only the start of a packet."""

    def release_if_idle(self) -> None:
        """Free nothing."""

    def close(self) -> None:
        """Free the start of a packet."""
        self._parser = PacketParser(0)
