"""Lists of messages over a stream socket, each as four bytes of length and MessagePack.

The messages of one turn of the event loop, or of one commit, are one write, or several so that the
other side begins with the first. While it does not read, the owner is told to pause; a list is
never split.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from edge.server.link.messages import MAX_MESSAGES, encode

MAX_BATCH: Final = 8 * 1024 * 1024
"""Maximum bytes of a list: a stanza has at most 1 MiB, and a turn reads at most 32 KiB of each
connection."""

BUFFER_BYTES: Final = 256 * 1024
"""Bytes that are read at once, and above which unsent bytes pause the owner."""

PAUSE: Final = 0.0005
"""Seconds without messages after which a link is idle; a turn under load is shorter."""

_HEADER: Final = 4


class Batches(asyncio.BufferedProtocol):
    """One side of a link.

    Args:
        on_batch: called with the bytes of each list; what it raises ends the link.
        on_pause: called with whether the other side does not read.
        on_lost: called when the link has ended, with the reason if it is a fault.
        is_eager: whether the first message after `PAUSE` is written at once: a lone sender then
            does not wait for the next turn of the event loop.
    """

    def __init__(
        self,
        on_batch: Callable[[memoryview], None],
        on_pause: Callable[[bool], None],
        on_lost: Callable[[Exception | None], None],
        *,
        is_eager: bool = False,
    ) -> None:
        self._on_batch = on_batch
        self._on_pause = on_pause
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(BUFFER_BYTES)
        self._filled = 0
        self._fault: Exception | None = None
        self._messages: list[Any] = []
        self._is_scheduled = False
        self._is_eager = is_eager
        self._flushed_at = 0.0

    # Receiving

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101
        self._transport = transport
        transport.set_write_buffer_limits(high=BUFFER_BYTES)
        if self._messages:
            self.flush()

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return the free part of the buffer, which is as large as the list that it begins with."""
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on the complete lists."""
        self._filled += nbytes
        try:
            at = self._pass_on()
        except Exception as error:
            self._fault = error
            self.abort()
            return
        left = self._filled - at
        needed = 0
        if left >= _HEADER:
            needed = _HEADER + int.from_bytes(self._buffer[at : at + _HEADER])
        size = max(needed, BUFFER_BYTES)
        if size != len(self._buffer):
            self._buffer = self._buffer[at : self._filled].ljust(size, b"\0")
        elif at and left:
            self._buffer[:left] = self._buffer[at : self._filled]
        self._filled = left

    def _pass_on(self) -> int:
        at, filled = 0, self._filled
        with memoryview(self._buffer) as view:
            while filled - at >= _HEADER:
                begin = at + _HEADER
                size = int.from_bytes(view[at:begin])
                if size > MAX_BATCH:
                    raise ValueError(f"a list of {size} bytes is larger than {MAX_BATCH} bytes")
                if begin + size > filled:
                    break
                self._on_batch(view[begin : begin + size])
                at = begin + size
        return at

    def eof_received(self) -> bool:
        """Close, because the other side sends nothing more."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """Report the end."""
        self._transport = None
        self._messages.clear()
        self._on_lost(self._fault or error)

    # Sending

    def send(self, message: Any) -> None:
        """Send a message with the others of this turn, or with as many as a list has at most."""
        self._messages.append(message)
        if len(self._messages) >= MAX_MESSAGES:
            self.flush()
            return
        if self._is_scheduled:
            return
        if self._is_eager and self._loop.time() - self._flushed_at > PAUSE:
            self.flush()
        else:
            self._is_scheduled = True
            self._loop.call_soon(self._flush_scheduled)

    def _flush_scheduled(self) -> None:
        self._is_scheduled = False
        self.flush()

    def flush(self) -> None:
        """Write the messages now."""
        messages, transport = self._messages, self._transport
        if not messages or transport is None:
            return
        self._messages = []
        self._flushed_at = self._loop.time()
        count = len(messages)
        data = encode(messages) if count <= MAX_MESSAGES else b""
        if count > MAX_MESSAGES or (len(data) > MAX_BATCH and count > 1):
            half = count // 2
            for part in (messages[:half], messages[half:]):
                self._messages = part
                self.flush()
            return
        transport.write(len(data).to_bytes(_HEADER) + data)

    def pause_writing(self) -> None:
        """Report that the other side does not read."""
        self._on_pause(True)

    def resume_writing(self) -> None:
        """Report that the other side reads again."""
        self._on_pause(False)

    def set_reading(self, wanted: bool) -> None:
        """Read, or pause."""
        if self._transport is not None:
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    @property
    def unsent(self) -> int:
        """Return the bytes that wait here until the other side reads."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    # The end

    def close(self) -> None:
        """Close when all is written."""
        if self._transport is not None:
            self.flush()
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()
