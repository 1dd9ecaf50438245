"""The link of a component to its server (XEP-0114).

slixmpp's `ComponentXMPP` opens the stream and does the handshake. Stanzas are parsed by
`StreamParser`, like those of devices, because slixmpp's parser has no limits and keeps every name
in memory. The link has no TLS; it is for loopback or a trusted network.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from typing import Any, Final

from slixmpp.componentxmpp import ComponentXMPP

from edge.config.limits import Limits
from edge.config.load import Address
from edge.server.tcp_options import set_keepalive
from edge.server.xmpp.component.dispatcher import Dispatcher
from edge.xmpp.errors import StreamError
from edge.xmpp.namespaces import CLIENT, COMPONENT, STREAM_ERRORS, STREAMS, clark
from edge.xmpp.parser import ParseError, StreamParser
from edge.xmpp.stanza import TAG, Item, Stanza, StreamClose, StreamOpen
from sync.common.text import printable

ATTACH_TIMEOUT: Final = 15.0
"""Maximum seconds for connecting and the handshake together."""

HEADER_BYTES: Final = 4096
"""Maximum bytes of the server's stream header with its XML declaration; Prosody's has 160."""

SERVER_STANZA_BYTES: Final = 1024 * 1024
"""Maximum bytes of a stanza: twice what Prosody accepts. A larger stanza ends the link, because the
server should have refused it; one above `limits.stanza_bytes` is answered with an error."""

UNSENT_BYTES: Final = 4 * 1024 * 1024
"""Maximum bytes that the server can leave unread; with more, the link is closed."""

REASON_CHARACTERS: Final = 200
"""Maximum characters of a server's error text that are reported to the operator."""

_UNREAD: Final = "the server does not read the stanzas that it is sent"

_STREAM: Final = clark(STREAMS, "stream")
_STREAM_ERROR: Final = clark(STREAMS, "error")
_TEXT: Final = clark(STREAM_ERRORS, "text")
_HANDSHAKE: Final = clark(CLIENT, "handshake")
_DECLARATION: Final = re.compile(rb"\s*(?:<\?[^>]*>\s*)?")
_FOREIGN: Final = f"{{{COMPONENT}}}"
_CLIENT_HEADER: Final = f"<stream:stream xmlns='{CLIENT}' xmlns:stream='{STREAMS}'>".encode()

_REFUSED: Final = {
    "not-authorized": "the server refused the secret",
    "host-unknown": "the server has no component of this name",
    "conflict": "another component of this name is connected to the server",
}
"""Explanations of a server's stream errors for the operator."""


class LinkLost(Exception):
    """The link could not be established or was lost; the text says why."""


class Link(ComponentXMPP):
    """The connection of a component; it can be established again after a loss."""

    def __init__(self, domain: str, limits: Limits, dispatcher: Dispatcher) -> None:
        base: Any = super()  # slixmpp has no types for it
        base.__init__(domain, "")
        self._limits = limits
        self._dispatcher = dispatcher
        self._header = b""
        self._parser: StreamParser | None = None  # once the stream is open
        self._attached: asyncio.Future[None] = self.loop.create_future()
        self._lost: asyncio.Future[str] = self.loop.create_future()
        self._reason = ""
        self._stalled: asyncio.TimerHandle | None = None

    async def attach(self, address: Address, secret: str) -> None:
        """Connect and do the handshake; raises `LinkLost`."""
        self.secret = secret
        self._attached = self.loop.create_future()
        self._lost = self.loop.create_future()
        try:
            async with asyncio.timeout(ATTACH_TIMEOUT):
                await self.loop.create_connection(lambda: self, address.host, address.port)
                either: set[asyncio.Future[Any]] = {self._attached, self._lost}
                await asyncio.wait(either, return_when="FIRST_COMPLETED")
        except TimeoutError:
            await self._abort()
            raise LinkLost(
                f"{address} did not accept the component within {ATTACH_TIMEOUT:.0f} s"
            ) from None
        except UnicodeError:  # IDNA refuses it
            raise LinkLost(f"{address.host} is not a valid host name") from None
        except socket.gaierror as error:
            raise LinkLost(f"{address.host} cannot be resolved: {error.strerror}") from error
        except OSError as error:
            raise LinkLost(f"{address} cannot be reached: {_error_text(error)}") from error
        if self._lost.done():
            raise LinkLost(self._lost.result())

    async def wait_lost(self) -> str:
        """Wait until the link is lost; return the reason."""
        return await self._lost

    def write(self, data: bytes) -> None:
        """Send bytes, or drop them if there is no link; the sender of a request whose answer was
        dropped can repeat it.

        The link is closed if the server leaves more than `UNSENT_BYTES` unread.
        """
        if self.transport is None or self._lost.done():
            return
        self.transport.write(data)
        if self.transport.get_write_buffer_size() > UNSENT_BYTES:
            self.end(_UNREAD)

    def set_reading(self, wanted: bool) -> None:
        """Resume or pause reading."""
        if self.transport is not None and not self.transport.is_closing():
            if wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def end(self, reason: str) -> None:
        """Close the link at once; `wait_lost` returns the first reason that was recorded."""
        self._reason = self._reason or reason
        if self.transport is not None:
            self.transport.abort()

    async def close(self, patience: float) -> None:
        """End the stream; close when the output is sent, or after `patience` seconds."""
        if self.transport is None:
            return
        self.transport.write(self.stream_footer.encode())
        self.transport.close()
        await asyncio.wait({self._lost}, timeout=patience)
        await self._abort()

    async def _abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()
            await self._lost

    # Called by slixmpp and the event loop

    def connection_made(self, transport: Any, send_event: bool = True) -> None:
        """Open the stream."""
        self._header, self._parser, self._reason = b"", None, ""
        set_keepalive(transport)
        super().connection_made(transport, send_event)

    def send(self, data: Any, use_filters: bool = True) -> None:
        """Send slixmpp's only element, the handshake, at once instead of queueing it."""
        self.send_raw(str(data))

    def data_received(self, data: bytes | str) -> None:
        """Pass the stream header to slixmpp, and the rest to the parser."""
        data = data.encode() if isinstance(data, str) else data
        try:
            if self._parser is None:
                data = self._begin(data)
            if self._parser is not None and data:
                self._handle_items(self._parser.feed(data))
        except StreamError as error:
            if isinstance(error, ParseError):
                self._handle_items(error.items)
            self.end(f"the server sent invalid data: {error}")

    def pause_writing(self) -> None:
        """Inform the dispatcher that the server does not read; close the link if that lasts."""
        self._stalled = self.loop.call_later(self._limits.stalled_time, self.end, _UNREAD)
        self._dispatcher.set_writable(False)

    def resume_writing(self) -> None:
        """Inform the dispatcher that the server reads again."""
        self._cancel_stall()
        self._dispatcher.set_writable(True)

    def _cancel_stall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def eof_received(self) -> None:
        """Record that the server has closed the connection; asyncio then closes the transport."""
        self._reason = self._reason or "the server closed the connection"

    def connection_lost(self, exception: BaseException | None) -> None:
        """Record the reason of the loss."""
        super().connection_lost(exception)
        self._cancel_stall()
        if self._parser is not None:
            self._parser.close()
            self._parser = None
        reason = self._reason or (
            _error_text(exception) if exception else "the connection was closed"
        )
        if not self._lost.done():
            self._lost.set_result(reason)

    # Parsing

    def _begin(self, data: bytes) -> bytes:
        """Collect the stream header; return the bytes after it, none while it is incomplete."""
        self._header += data
        declaration = _DECLARATION.match(self._header)
        match = TAG.match(self._header, declaration.end() if declaration else 0)
        if match is None:
            if len(self._header) > HEADER_BYTES:
                raise StreamError("policy-violation", "the stream header is too long")
            return b""
        self._parser = self._new_parser(SERVER_STANZA_BYTES)
        # Stanzas are in the component namespace, and otherwise the same as those of clients.
        header, rest = self._header[: match.end()], self._header[match.end() :]
        opened = self._parser.feed(header.replace(COMPONENT.encode(), CLIENT.encode()))
        if not any(isinstance(item, StreamOpen) and item.name == _STREAM for item in opened):
            raise StreamError("invalid-namespace", "the first element is not a stream header")
        super().data_received(header)
        return rest

    def _handle_items(self, items: list[Item]) -> None:
        found: list[Item] = []
        for item in items:
            if isinstance(item, StreamClose):
                self.end("the server ended the stream")
            elif not isinstance(item, Stanza):
                continue
            elif item.name == _STREAM_ERROR:
                self._reason = self._reason or _explain(item)
            elif item.name == _HANDSHAKE:
                if not self._attached.done():
                    self._attached.set_result(None)
            else:
                found += (
                    self._to_client_namespace(item) if item.name.startswith(_FOREIGN) else (item,)
                )
        if found and self._attached.done():
            self._dispatcher.receive(found)

    def _to_client_namespace(self, stanza: Stanza) -> list[Item]:
        """Return a stanza that itself declares the component namespace, parsed again in the client
        namespace."""
        raw = stanza.raw
        first = TAG.match(raw)
        end = 0 if first is None else first.end()
        parser = self._new_parser(2 * SERVER_STANZA_BYTES)  # `raw` may have declarations added
        parser.feed(_CLIENT_HEADER)
        found = parser.feed(raw[:end].replace(COMPONENT.encode(), CLIENT.encode()) + raw[end:])
        parser.close()
        return found

    def _new_parser(self, max_bytes: int) -> StreamParser:
        limits = self._limits
        return StreamParser(
            max_bytes,
            limits.stanza_depth,
            limits.stanza_elements,
            limits.stanza_attributes,
            tolerant=True,
        )


def _explain(error: Stanza) -> str:
    conditions = [child.name.partition("}")[2] for child in error.children if child.name != _TEXT]
    condition = conditions[0] if conditions else "undefined-condition"
    text = printable(" ".join((error.tree().findtext(_TEXT) or "").split()))
    meaning = _REFUSED.get(condition, f"the server ended the stream: {condition}")
    return f"{meaning} ({text[:REASON_CHARACTERS]})" if text else meaning


def _error_text(error: BaseException) -> str:
    number = getattr(error, "errno", None)
    return os.strerror(number) if number else str(error) or type(error).__name__
