"""The listening sockets for devices by XMPP."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edge.config.load import Address
from edge.routing.xmpp.router import Router
from edge.server.listener import Listen, Listener
from edge.server.server_context import ServerContext
from edge.server.wire import Wire
from edge.server.xmpp import socket_side
from edge.server.xmpp.connection import XmppConnection
from edge.server.xmpp.session import ResumableSessions, Streams, XmppSession
from edge.server.xmpp.stream_input import Input
from edge.xmpp.transfer import StreamReceiver


class XmppListener(Listener[XmppSession]):
    """The endpoint for devices by XMPP, with STARTTLS and with direct TLS (XEP-0368).

    Args:
        listen: the addresses for connections that begin in plain text.
        listen_tls: the addresses for connections that begin with TLS.
    """

    sockets = socket_side.__name__
    alpn = socket_side.ALPN

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
        super().__init__(context, ports)
        self._streams = Streams(router, ResumableSessions())

    def connect(self, wire: Wire) -> None:
        """Make the connection of a new wire."""
        XmppConnection(self._context, self._streams, wire, self._registry)

    def decoder(self) -> Callable[[bytes], Sequence[Input]]:
        """Return a function that decodes the items of one connection of a front process."""
        return StreamReceiver().decode
