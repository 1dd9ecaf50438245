"""The listening sockets for devices by MQTT."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edge.config.load import Address
from edge.mqtt.batches import decode_batch
from edge.server.listener import Listen, Listener
from edge.server.mqtt import socket_side
from edge.server.mqtt.connection import MqttConnection
from edge.server.mqtt.packet_input import Input
from edge.server.mqtt.session import MqttSession
from edge.server.mqtt.traffic import Traffic
from edge.server.server_context import ServerContext
from edge.server.wire import Wire


class MqttListener(Listener[MqttSession]):
    """The endpoint for devices by MQTT.

    Args:
        listen: the addresses for connections with or without TLS.
        listen_tls: the addresses for connections with TLS.
        traffic: counts the traffic of all connections.
    """

    sockets = socket_side.__name__
    alpn = socket_side.ALPN

    def __init__(
        self,
        context: ServerContext,
        listen: Sequence[Address],
        listen_tls: Sequence[Address],
        traffic: Traffic,
    ) -> None:
        super().__init__(context, self._ports(listen, listen_tls))
        self._traffic = traffic
        traffic.registries.append(self._registry)

    def _ports(self, listen: Sequence[Address], listen_tls: Sequence[Address]) -> Sequence[Listen]:
        return (
            Listen("mqtt", "mqtt", "listen", listen),
            Listen("mqtts", "mqtt", "listen_tls", listen_tls, only_tls=True),
        )

    def connect(self, wire: Wire) -> None:
        """Make the connection of a new wire."""
        MqttConnection(self._context, wire, self._registry, self._traffic)

    def decoder(self) -> Callable[[bytes], Sequence[Input]]:
        """Return a function that decodes the items of one connection of a front process."""
        return decode_batch


class WebSocketListener(MqttListener):
    """The endpoint for devices by MQTT over WebSocket, with or without TLS on each port."""

    sockets = "edge.server.mqtt.websocket"  # imported only where it is used: it takes 13 MB
    alpn = "http/1.1"
    transport = "websocket"

    def _ports(self, listen: Sequence[Address], _listen_tls: Sequence[Address]) -> Sequence[Listen]:
        return (Listen("mqttws", "mqtt", "listen_ws", listen),)
