"""The lower half of a connection: TLS, what is written, and what the transport still holds of it.

What is read and what is said is `connection`'s.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from edge.server import tls
from edge.server.keepalive import bound_unread
from edge.server.session import Session
from edge.server.shared import Shared


class Channel(asyncio.BufferedProtocol, ABC):
    """A socket; `direct` if TLS begins with the first byte.

    Attributes:
        over: nothing more is read or said.
        written: bytes that were given to the transport.
    """

    _session: Session | None = None

    def __init__(self, shared: Shared, *, direct: bool) -> None:
        self._shared = shared
        self._direct = direct
        self._source = ""  # its address, as `throttle.source` gives it
        self._transport: asyncio.Transport | None = None
        self._plain: asyncio.Transport | None = None  # beneath TLS
        self._out: list[bytes] = []
        self._reading = True
        self._securing = direct  # TLS is being made: nothing can be said
        self._handshake: asyncio.Task[None] | None = None
        self.over = False
        self.written = 0

    def who(self) -> str:
        """Tell whose it is, for the event log: the account, or the address until there is one."""
        return self._source if self._session is None else self._session.bare

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Read into the buffer that all sessions share: it is used up before the next read."""
        return self._shared.buffer

    def eof_received(self) -> bool:
        """Let the transport close: who stops sending is not heard any more."""
        return False

    def send(self, data: bytes) -> None:
        """Send in the next round of the event loop, together with what else there is by then."""
        if self.over or not data:
            return
        if not self._out:
            self._shared.will_flush(self)
        self._out.append(data)

    def flush(self) -> None:
        """Write what was to be sent."""
        transport, out = self._transport, self._out
        if transport is not None and out:
            session = self._session
            tracking = session is not None and session.tracking
            if session is not None and tracking:
                session.flushing(out)
            data = b"".join(out)
            out.clear()
            self.written += len(data)
            transport.write(data)
            if session is not None and tracking:
                session.flushed(self)
        out.clear()

    def backlog(self) -> int:
        """Return how many bytes are in the transport's buffers: after `connection_lost`, none."""
        transport, plain = self._transport, self._plain
        if transport is None or plain is None:
            return 0
        waiting = transport.get_write_buffer_size()
        return waiting if plain is transport else waiting + plain.get_write_buffer_size()

    def greeted(self, hello: bytes) -> None:
        """Begin direct TLS: the client's first message has come."""
        self._reading = False
        self._start_tls(hello)

    def _start_tls(self, hello: bytes | None = None) -> None:
        self._securing = True
        self._handshake = self._shared.loop.create_task(self._secure(hello))

    async def _secure(self, hello: bytes | None) -> None:
        plain = self._transport
        if plain is None:
            return
        transport = await tls.secure(self._shared, self, plain, hello)
        if transport is None or self._transport is None:
            plain.abort()
            self.connection_lost(None)  # asyncio does not call it during a handshake
            return
        self._securing = False
        self._adopt(transport)
        self._secured(tls.fingerprint(transport))

    def _adopt(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._reading = True
        most = self._shared.settings.limits.send_buffer
        transport.set_write_buffer_limits(high=most)
        bound_unread(transport, most)

    @abstractmethod
    def _secured(self, fingerprint: bytes | None) -> None:
        """Go on under TLS; `fingerprint` is that of the certificate which the peer has shown."""
