"""The sockets of XMPP."""

from __future__ import annotations

from typing import Final

from edge.config.limits import Limits
from edge.server.socket_side import SocketSide
from edge.server.wire import SocketWire
from edge.server.xmpp.stream_input import StreamInput
from edge.xmpp.envelopes import EnvelopeParser
from edge.xmpp.transfer import StreamSender

ALPN: Final = "xmpp-client"
"""The ALPN protocol name for direct TLS (XEP-0368)."""

_envelopes: Final = EnvelopeParser()


def _parser(limits: Limits) -> StreamInput:
    return StreamInput(limits, _envelopes)


SIDE: Final = SocketSide(ALPN, SocketWire, _parser, lambda: StreamSender().encode)
