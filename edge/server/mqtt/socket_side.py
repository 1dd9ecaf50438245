"""The sockets of MQTT."""

from __future__ import annotations

from typing import Final

from edge.config.limits import Limits
from edge.mqtt.batches import encode_batch
from edge.server.mqtt.packet_input import PacketInput
from edge.server.socket_side import SocketSide
from edge.server.wire import SocketWire

ALPN: Final = "mqtt"
"""The ALPN protocol name of MQTT (IANA's registry)."""


def parser(_limits: Limits) -> PacketInput:
    """Return the parser of a new connection."""
    return PacketInput()


SIDE: Final = SocketSide(ALPN, SocketWire, parser, lambda: encode_batch)
