"""The listening sockets for devices by XMPP."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from edge.config.load import Address
from edge.routing.xmpp.router import Router
from edge.server.listener import Listen, Listener
from edge.server.server_context import ServerContext
from edge.server.tls import TlsServer
from edge.server.tls_client_hello import ClientHelloReader
from edge.server.wire import Wire
from edge.server.xmpp.connection import XmppConnection
from edge.server.xmpp.session import ResumableSessions, Streams, XmppSession
from edge.server.xmpp.stream_input import StreamInput
from edge.xmpp.envelopes import EnvelopeParser

ALPN: Final = "xmpp-client"
"""The ALPN protocol name for direct TLS (XEP-0368)."""


class XmppListener(Listener[XmppSession]):
    """The front for devices by XMPP, with STARTTLS and with direct TLS (XEP-0368).

    Args:
        listen: the addresses for connections that begin in plain text.
        listen_tls: the addresses for connections that begin with TLS.
    """

    def __init__(
        self,
        context: ServerContext,
        router: Router,
        listen: Sequence[Address],
        listen_tls: Sequence[Address],
    ) -> None:
        ports = (
            Listen("xmpp", "xmpp", "listen", listen),
            Listen("xmpps", "xmpp", "listen_tls", listen_tls, only_tls=True),
        )
        super().__init__(context, ALPN, ports)
        self._streams = Streams(router, ResumableSessions())
        self._envelopes = EnvelopeParser()

    def accept(self, tls_server: TlsServer, *, only_tls: bool) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection, which may begin with TLS on each port."""
        parser = StreamInput(self._context.settings.limits, self._envelopes)
        wire = Wire(self._context.wires, parser, tls_server)
        XmppConnection(self._context, self._streams, wire, self._registry)
        return ClientHelloReader(wire, ALPN, only_tls=only_tls)
