"""MQTT over WebSocket (MQTT 5.0, section 6; RFC 6455), by aiohttp.

aiohttp reads the HTTP request and the frames; the packets in them go to a connection like any
other, which writes through a transport that makes frames. The origin of a web page is not checked
(RFC 6455, section 10.2), because a page gets nothing without a device's password: there are no
cookies. This module is imported only if it is needed, because aiohttp's server takes 13 MB.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from aiohttp import WSCloseCode, WSMsgType, web

from edge.mqtt.batches import encode_batch
from edge.mqtt.packets import Fault
from edge.mqtt.reasons import Reason
from edge.server.mqtt.packet_input import CONNECT_BYTES
from edge.server.mqtt.socket_side import parser
from edge.server.socket_side import SocketSide
from edge.server.tls import TlsServer
from edge.server.wire import READ_BYTES, Parser, SocketWire, WireContext

ALPN: Final = "http/1.1"
"""The ALPN protocol name of HTTP, by which a WebSocket begins (RFC 7301, section 6)."""

SUBPROTOCOL: Final = "mqtt"
"""The WebSocket subprotocol (section 6.0)."""

PATHS: Final = ("/", "/mqtt")
"""The paths that clients use."""

HEADERS: Final = 32
HEADER_BYTES: Final = 4096
"""Maximum headers of a request, and maximum bytes of each, with room for those of browsers."""

_BINARY: Final = 0x82
_CLOSE: Final = 0x88
"""First bytes of frames that are whole messages (RFC 6455, section 5.2)."""

_SILENT: Final = logging.Logger("websocket", logging.CRITICAL + 1)
"""A logger that writes nothing: peers that have not logged in must not fill the journal."""


class WebSocketWire(SocketWire):
    """The socket of a connection of MQTT over WebSocket. Until the handshake of the WebSocket, the
    connection is like one that sends no CONNECT: the same limits apply to it."""

    transport = "websocket"

    __slots__ = ("_frames", "_http", "_may_read")

    def __init__(
        self,
        context: WireContext,
        parser: Parser,
        tls_server: TlsServer,
    ) -> None:
        super().__init__(context, parser, tls_server)
        self._http: web.RequestHandler | None = None
        self._frames: FrameTransport | None = None
        self._may_read = asyncio.Event()

    # Called by the event loop

    def buffer_updated(self, nbytes: int) -> None:
        """Pass the received bytes to aiohttp."""
        self._pass_on(bytes(self._context.buffer[:nbytes]))
        self.handler.count_bytes(nbytes)  # of empty frames, too

    def _pass_on(self, data: bytes) -> None:
        if self.closed or self._transport is None:
            return
        if self._http is None:
            server = web.Server(
                self._serve, logger=_SILENT, access_log=None, tcp_keepalive=False,
                lingering_time=0, max_line_size=HEADER_BYTES, max_field_size=HEADER_BYTES,
                max_headers=HEADERS,
            )  # fmt: skip
            self._http = server()
            self._http.connection_made(self._transport)
        self._http.data_received(data)

    def pause_writing(self) -> None:
        """Let aiohttp wait, too."""
        super().pause_writing()
        if self._http is not None:
            self._http.pause_writing()

    def resume_writing(self) -> None:
        """Let aiohttp continue, too."""
        if self._http is not None:
            self._http.resume_writing()
        super().resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        """End the tasks of aiohttp, and remove the connection."""
        http, self._http = self._http, None
        if http is not None:
            if self._frames is None and not self.closed:
                self.handler.refuse("websocket")
            http.connection_lost(error)
        self._may_read.set()
        super().connection_lost(error)

    # WebSocket

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        offered = request.headers.get("Sec-WebSocket-Protocol", "")
        if request.path not in PATHS:
            return _refusal(404, f"MQTT is at {PATHS[-1]}\n")
        if SUBPROTOCOL not in (name.strip() for name in offered.split(",")):
            return _refusal(400, f"the WebSocket subprotocol must be {SUBPROTOCOL}\n")
        most = max(self._context.limits.stanza_bytes, CONNECT_BYTES)
        socket = web.WebSocketResponse(
            protocols=(SUBPROTOCOL,), compress=False, autoping=False, max_msg_size=most
        )
        await socket.prepare(request)
        plain = self._transport
        if plain is not None and not self.closed:
            self._frames = FrameTransport(plain, self._may_read)
            self._use_transport(self._frames)
            self._may_read.set()
            await self._receive(socket, self._frames)
        return socket

    async def _receive(self, socket: web.WebSocketResponse, frames: FrameTransport) -> None:
        """Handle messages until one side closes."""
        while True:
            await self._may_read.wait()
            message = await socket.receive()
            if self.closed:
                return
            if message.type is WSMsgType.BINARY:
                self._handle_bytes(message.data)
            elif message.type in (WSMsgType.PING, WSMsgType.PONG):
                if message.type is WSMsgType.PING:
                    await socket.pong(message.data)
                self.handler.count_request()
            elif message.type is WSMsgType.TEXT:
                self.handler.refuse("websocket")
                frames.close_code = WSCloseCode.UNSUPPORTED_DATA
                fault = Fault(Reason.PROTOCOL_ERROR, "only binary frames may be sent")
                self.handler.receive([fault], 0)
            else:
                return

    def _handle_bytes(self, data: bytes) -> None:
        """Handle bytes as if they were read from a socket."""
        for at in range(0, len(data), READ_BYTES):
            part = data[at : at + READ_BYTES]
            self._context.buffer[: len(part)] = part
            self.handler.count_bytes(-len(part))  # counted with its frame
            super().buffer_updated(len(part))


class FrameTransport(asyncio.Transport):
    """The transport of a WebSocket, which sends each piece that is written as a binary frame.

    Args:
        transport: the transport of TCP or TLS.
        may_read: is clear while reading is paused.

    Attributes:
        close_code: the status code of the Close frame (RFC 6455, section 7.4).
    """

    def __init__(self, transport: asyncio.Transport, may_read: asyncio.Event) -> None:
        super().__init__()
        self._transport = transport
        self._may_read = may_read
        self.close_code = WSCloseCode.OK

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send a binary frame."""
        self._transport.write(_frame(_BINARY, bytes(data)))

    def close(self) -> None:
        """Send a Close frame, and close."""
        if not self._transport.is_closing():
            self._transport.write(_frame(_CLOSE, self.close_code.to_bytes(2)))
        self._transport.close()

    def pause_reading(self) -> None:
        """Handle no more messages; aiohttp stops to read when some wait."""
        self._may_read.clear()

    def resume_reading(self) -> None:
        """Handle messages again."""
        self._may_read.set()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def is_closing(self) -> bool:
        """Return whether the transport is closing or closed."""
        return self._transport.is_closing()

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that wait to be sent."""
        return self._transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits above and below which writing is paused and resumed."""
        self._transport.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the transport below knows."""
        return self._transport.get_extra_info(name, default)


def _refusal(status: int, text: str) -> web.Response:
    response = web.Response(status=status, text=text)
    response.force_close()
    return response


def _frame(first: int, data: bytes) -> bytes:
    """Build a frame without a mask (RFC 6455, section 5.2)."""
    size = len(data)
    if size < 126:
        return bytes((first, size)) + data
    if size < 1 << 16:
        return bytes((first, 126)) + size.to_bytes(2) + data
    return bytes((first, 127)) + size.to_bytes(8) + data


SIDE: Final = SocketSide(ALPN, WebSocketWire, parser, lambda: encode_batch)
