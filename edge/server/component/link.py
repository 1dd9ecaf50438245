"""The link of a component to its server (XEP-0114): one connection after the other.

slixmpp's `ComponentXMPP` opens the stream and does the handshake. What comes after goes to the
parser that devices' streams go to, and not through slixmpp: its trees have no bounds, and its
parser never forgets a name. The link is without TLS: for loopback, or a network that is trusted.

Who speaks and what they may is `traffic`'s; when to connect again is `front`'s.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from typing import TYPE_CHECKING, Any, Final, Protocol

from slixmpp.componentxmpp import ComponentXMPP

from edge.server.keepalive import keep_alive
from edge.xmpp.errors import StreamError
from edge.xmpp.namespaces import CLIENT, COMPONENT, STREAM_ERRORS, STREAMS, clark
from edge.xmpp.parser import ParseError, StreamParser
from edge.xmpp.stanza import TAG, Item, Stanza, StreamClose, StreamOpen
from sync.common.text import printable

if TYPE_CHECKING:
    from edge.config.limits import Limits
    from edge.config.load import Address

ATTACH: Final = 15.0
"""Seconds from dialling to the server's word that the secret is right."""

HEADER_BYTES: Final = 4096
"""The server's stream header with its XML declaration; Prosody's has 160."""

SERVER_STANZA_BYTES: Final = 1024 * 1024
"""The largest stanza that the link carries, of any user of any server: twice what Prosody lets
through. What is above `limits.stanza_bytes` is refused to who sent it; what is above this ends the
link, since it was the server's to refuse it."""

UNSENT_BYTES: Final = 4 * 1024 * 1024
"""Bytes that a server may leave unread; then the link is cut, and made again."""

REASON: Final = 200
"""Characters told of what a server says itself."""

_UNREAD: Final = "the server does not take what it is sent"

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
    "conflict": "the server has another component of this name connected",
}
"""What a server's stream errors mean here, for who has to mend it."""


class LinkLost(Exception):
    """There is no link, or no more; the text says why."""


class Owner(Protocol):
    """Who a link works for."""

    def received(self, items: list[Item]) -> None:
        """Take what came: whole stanzas, in order."""

    def writable(self, writable: bool) -> None:
        """Note that the server takes what it is sent, or does not just now."""


class Link(ComponentXMPP):
    """One component's connection; it can be made again when it is lost."""

    def __init__(self, domain: str, limits: Limits, owner: Owner) -> None:
        base: Any = super()  # what slixmpp does not say the types of
        base.__init__(domain, "")
        self._limits = limits
        self._owner = owner
        self._header = b""
        self._open: StreamParser | None = None
        self._attached: asyncio.Future[None] = self.loop.create_future()
        self._lost: asyncio.Future[str] = self.loop.create_future()
        self._reason = ""
        self._stalled: asyncio.TimerHandle | None = None

    async def attach(self, address: Address, secret: str) -> None:
        """Connect and be accepted; raises `LinkLost`."""
        self.secret = secret
        self._attached = self.loop.create_future()
        self._lost = self.loop.create_future()
        try:
            async with asyncio.timeout(ATTACH):
                await self.loop.create_connection(lambda: self, address.host, address.port)
                either: set[asyncio.Future[Any]] = {self._attached, self._lost}
                await asyncio.wait(either, return_when="FIRST_COMPLETED")
        except TimeoutError:
            await self._cut()
            raise LinkLost(
                f"{address} did not accept the component within {ATTACH:.0f} s"
            ) from None
        except UnicodeError:  # IDNA refuses it
            raise LinkLost(f"{address.host} is no host name") from None
        except socket.gaierror as error:
            raise LinkLost(f"{address.host} is not known: {error.strerror}") from error
        except OSError as error:
            raise LinkLost(f"{address} cannot be reached: {_words(error)}") from error
        if self._lost.done():
            raise LinkLost(self._lost.result())

    async def lost(self) -> str:
        """Wait until the link is lost; returns why."""
        return await self._lost

    def write(self, data: bytes) -> None:
        """Send bytes, if there is a link: what has nowhere to go is its sender's to ask for again.

        A server that leaves too much unread is cut off.
        """
        if self.transport is None or self._lost.done():
            return
        self.transport.write(data)
        if self.transport.get_write_buffer_size() > UNSENT_BYTES:
            self.end(_UNREAD)

    def read(self, wanted: bool) -> None:
        """Read on, or leave the server waiting."""
        if self.transport is not None and not self.transport.is_closing():
            if wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def end(self, reason: str) -> None:
        """Cut the link."""
        self._reason = self._reason or reason
        if self.transport is not None:
            self.transport.abort()

    async def close(self, patience: float) -> None:
        """End the stream; waits `patience` seconds for what is to be sent and the server's end."""
        if self.transport is None:
            return
        self.transport.write(self.stream_footer.encode())
        self.transport.close()
        await asyncio.wait({self._lost}, timeout=patience)
        await self._cut()

    async def _cut(self) -> None:
        if self.transport is not None:
            self.transport.abort()
            await self._lost

    # What slixmpp and the event loop call.

    def connection_made(self, transport: Any, send_event: bool = True) -> None:
        """Open the stream."""
        self._header, self._open, self._reason = b"", None, ""
        keep_alive(transport)
        super().connection_made(transport, send_event)

    def send(self, data: Any, use_filters: bool = True) -> None:
        """Send a stanza of slixmpp's own at once: there is one, the handshake."""
        self.send_raw(str(data))

    def data_received(self, data: bytes | str) -> None:
        """Give the stream's header to slixmpp, and what comes after to the parser."""
        data = data.encode() if isinstance(data, str) else data
        try:
            if self._open is None:
                data = self._begin(data)
            if self._open is not None and data:
                self._take(self._open.feed(data))
        except StreamError as error:
            if isinstance(error, ParseError):
                self._take(error.items)
            self.end(f"the server sent what is not accepted: {error}")

    def pause_writing(self) -> None:
        """Tell that the server does not take what it is sent; after a while, it is cut off."""
        self._stalled = self.loop.call_later(self._limits.stalled_time, self.end, _UNREAD)
        self._owner.writable(False)

    def resume_writing(self) -> None:
        """Tell that it does again."""
        self._go_on()
        self._owner.writable(True)

    def _go_on(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def eof_received(self) -> None:
        """Let the transport close."""
        self._reason = self._reason or "the server closed the connection"

    def connection_lost(self, exception: BaseException | None) -> None:
        """Tell that the link is lost, and why."""
        super().connection_lost(exception)
        self._go_on()
        if self._open is not None:
            self._open.close()
            self._open = None
        reason = self._reason or (_words(exception) if exception else "the connection was closed")
        if not self._lost.done():
            self._lost.set_result(reason)

    # How bytes become stanzas.

    def _begin(self, data: bytes) -> bytes:
        """Collect the stream's header; returns what came after it."""
        self._header += data
        declaration = _DECLARATION.match(self._header)
        match = TAG.match(self._header, declaration.end() if declaration else 0)
        if match is None:
            if len(self._header) > HEADER_BYTES:
                raise StreamError("policy-violation", "a stream header without end")
            return b""
        self._open = self._parser(SERVER_STANZA_BYTES)
        # Stanzas are in the namespace of components here, and are what those of clients are.
        header, rest = self._header[: match.end()], self._header[match.end() :]
        opened = self._open.feed(header.replace(COMPONENT.encode(), CLIENT.encode()))
        if not any(isinstance(item, StreamOpen) and item.name == _STREAM for item in opened):
            raise StreamError("invalid-namespace", "no stream")
        super().data_received(header)
        return rest

    def _take(self, items: list[Item]) -> None:
        found: list[Item] = []
        for item in items:
            if isinstance(item, StreamClose):
                self.end("the server ended the stream")
            elif not isinstance(item, Stanza):
                continue
            elif item.name == _STREAM_ERROR:
                self._reason = self._reason or _meaning(item)
            elif item.name == _HANDSHAKE:
                if not self._attached.done():
                    self._attached.set_result(None)
            else:
                found += self._of_clients(item) if item.name.startswith(_FOREIGN) else (item,)
        if found and self._attached.done():
            self._owner.received(found)

    def _of_clients(self, stanza: Stanza) -> list[Item]:
        """Read a stanza that names the namespace of components itself, as what it is."""
        raw = stanza.raw
        first = TAG.match(raw)
        end = 0 if first is None else first.end()
        parser = self._parser(2 * SERVER_STANZA_BYTES)  # `raw` may declare what stood around it
        parser.feed(_CLIENT_HEADER)
        found = parser.feed(raw[:end].replace(COMPONENT.encode(), CLIENT.encode()) + raw[end:])
        parser.close()
        return found

    def _parser(self, max_bytes: int) -> StreamParser:
        limits = self._limits
        return StreamParser(
            max_bytes,
            limits.stanza_depth,
            limits.stanza_elements,
            limits.stanza_attributes,
            tolerant=True,
        )


def _meaning(error: Stanza) -> str:
    """Say what a stream error means (RFC 6120, section 4.9)."""
    conditions = [child.name.partition("}")[2] for child in error.children if child.name != _TEXT]
    condition = conditions[0] if conditions else "undefined-condition"
    text = printable(" ".join((error.tree().findtext(_TEXT) or "").split()))
    meaning = _REFUSED.get(condition, f"the server ended the stream: {condition}")
    return f"{meaning} ({text[:REASON]})" if text else meaning


def _words(error: BaseException) -> str:
    number = getattr(error, "errno", None)
    return os.strerror(number) if number else str(error) or type(error).__name__
