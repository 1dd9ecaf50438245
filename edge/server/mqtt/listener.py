"""The listening sockets for devices by MQTT."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from edge.config.load import Address
from edge.server.listener import Listen, Listener
from edge.server.mqtt.connection import MqttConnection
from edge.server.mqtt.packet_input import PacketInput
from edge.server.mqtt.session import MqttSession
from edge.server.mqtt.traffic import Traffic
from edge.server.server_context import ServerContext
from edge.server.tls import TlsServer
from edge.server.tls_client_hello import ClientHelloReader
from edge.server.wire import Wire

ALPN: Final = "mqtt"
"""The ALPN protocol name of MQTT (IANA's registry)."""


class MqttListener(Listener[MqttSession]):
    """The front for devices by MQTT.

    Args:
        listen: the addresses for connections with or without TLS.
        listen_tls: the addresses for connections with TLS.
        traffic: counts the traffic of all connections.
    """

    def __init__(
        self,
        context: ServerContext,
        listen: Sequence[Address],
        listen_tls: Sequence[Address],
        traffic: Traffic,
    ) -> None:
        ports = (
            Listen("mqtt", "mqtt", "listen", listen),
            Listen("mqtts", "mqtt", "listen_tls", listen_tls, only_tls=True),
        )
        super().__init__(context, ALPN, ports)
        self._traffic = traffic
        traffic.registries.append(self._registry)

    def accept(self, tls_server: TlsServer, *, only_tls: bool) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection, which may begin with TLS on each port."""
        wire = Wire(self._context.wires, PacketInput(), tls_server)
        MqttConnection(self._context, wire, self._registry, self._traffic)
        return ClientHelloReader(wire, ALPN, only_tls=only_tls)
