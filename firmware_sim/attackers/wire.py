"""A minimal XMPP client for attacks: it writes bytes and counts errors.

It does not parse XML, to use little processor time, and shares no code with the device library.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, Self

from firmware_sim.attackers.stanzas import STARTTLS, stream_header

STEP_S: Final = 15.0
"""Maximum seconds for one step of connecting or logging in; then TimeoutError is raised."""

BURST_INTERVAL_S: Final = 0.05
"""Seconds between two bursts of a flood."""

_SASL: Final = "urn:ietf:params:xml:ns:xmpp-sasl"
_BIND: Final = "<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'>"
_ERROR: Final = b"<error "  # of a stanza; a stream's error has a prefix
_READ: Final = 64 * 1024


class ConnectionClosed(Exception):
    """The gateway closed the connection, or refused the log-in or the bind."""


@dataclass(slots=True)
class Counts:
    """Counts of an attack's stanzas or attempts, and of the gateway's refusals."""

    sent: int = 0
    """Number of stanzas sent, or of attempts to connect or log in."""
    refused: int = 0
    """Number of error answers to stanzas, log-ins and binds."""
    closed: int = 0
    """Number of connections that the gateway closed."""


@dataclass(frozen=True, slots=True)
class Target:
    """The gateway's address, the accounts' password, and the maximum rate of an attack.

    `source` is the local address from which to connect, empty for any. `rate` is in stanzas per
    second.
    """

    host: str
    port: int
    domain: str
    context: ssl.SSLContext
    password: str
    rate: float
    source: str = ""


@dataclass(slots=True)
class Client:
    """One connection of an attack; `counts` is updated with the errors that it receives."""

    target: Target
    counts: Counts
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    _tail: bytes = field(default=b"")

    @classmethod
    async def connect(cls, target: Target, counts: Counts, buffer: int = 0) -> Self:
        """Connect without sending data. `buffer` is the receive buffer in bytes (0: default)."""
        tcp = socket.socket(socket.AF_INET6 if ":" in target.host else socket.AF_INET)
        try:
            tcp.setblocking(False)
            if buffer:
                tcp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            if target.source:
                tcp.bind((target.source, 0))
            async with asyncio.timeout(STEP_S):
                loop = asyncio.get_running_loop()
                await loop.sock_connect(tcp, (target.host, target.port))
                return cls(target, counts, *await asyncio.open_connection(sock=tcp))
        except BaseException:
            tcp.close()
            raise

    @classmethod
    async def bound(
        cls, target: Target, counts: Counts, name: str, resource: str, buffer: int = 0
    ) -> Self:
        """Connect, log in and bind a resource; `buffer` is as for `connect`.

        Raises ConnectionClosed if the log-in or the bind was refused, which is counted, or the
        connection closed.
        """
        client = await cls.connect(target, counts, buffer)
        try:
            await client.secure()
            if not await client.log_in(name, target.password):
                raise ConnectionClosed
            await client.bind(resource)
        except BaseException:
            client.close()
            raise
        return client

    def send(self, text: str) -> None:
        """Write text to the connection."""
        self.writer.write(text.encode())

    def open(self) -> None:
        """Send a stream header."""
        self.send(stream_header(self.target.domain))

    async def secure(self) -> None:
        """Open a stream, start TLS, open a new stream, and wait for its features."""
        self.open()
        await self.until("</stream:features>")
        self.send(STARTTLS)
        await self.until("<proceed")
        target = self.target
        async with asyncio.timeout(STEP_S):
            await self.writer.start_tls(target.context, server_hostname=target.domain)
        self.open()
        await self.until("</stream:features>")

    async def log_in(self, name: str, password: str) -> bool:
        """Log in by SASL PLAIN, and count a failure; return whether it succeeded."""
        text = base64.b64encode(f"\0{name}\0{password}".encode()).decode()
        self.send(f"<auth xmlns='{_SASL}' mechanism='PLAIN'>{text}</auth>")
        if "<failure" in await self.until("<success", "</failure>"):
            self.counts.refused += 1
            return False
        self.open()
        await self.until("</stream:features>")
        return True

    async def bind(self, resource: str) -> None:
        """Bind a resource; if the gateway refuses, count the refusal and raise ConnectionClosed."""
        self.send(f"{_BIND}<resource>{resource}</resource></bind></iq>")
        if "<error" in await self.until("</iq>"):
            self.counts.refused += 1
            raise ConnectionClosed

    async def until(self, *ends: str) -> str:
        """Read until one of the strings `ends` has arrived, and return all text read."""
        received = b""
        async with asyncio.timeout(STEP_S):
            while not any(end.encode() in received for end in ends):
                received += await self._more()
                if b"<stream:error" in received:
                    self.counts.closed += 1
                    raise ConnectionClosed
        return received.decode(errors="replace")

    async def listen(self) -> None:
        """Read and count errors until the connection ends, then raise ConnectionClosed."""
        while True:
            received = self._tail + await self._more()
            self.counts.refused += received.count(_ERROR)
            self._tail = received[-(len(_ERROR) - 1) :]

    async def flood(self, make: Callable[[int], str]) -> None:
        """Send stanzas until cancelled, at the target's rate or as fast as the socket accepts.

        `make` returns the stanza for a number, which counts from 0 over all connections of the
        attack.
        """
        burst = max(1, round(self.target.rate * BURST_INTERVAL_S))
        while True:
            began = self.counts.sent
            self.send("".join(make(number) for number in range(began, began + burst)))
            self.counts.sent += burst
            await self.writer.drain()
            await asyncio.sleep(BURST_INTERVAL_S)

    def stop_reading(self) -> None:
        """Stop reading from the connection."""
        transport = self.writer.transport
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - it reads and writes
        transport.pause_reading()

    def close(self) -> None:
        """Abort the connection without closing the stream."""
        self.writer.transport.abort()

    async def _more(self) -> bytes:
        data = b""
        with contextlib.suppress(OSError):
            data = await self.reader.read(_READ)
        if not data:
            self.counts.closed += 1
            raise ConnectionClosed
        return data


async def listen_during(client: Client, work: Coroutine[Any, Any, None]) -> None:
    """Read answers and count errors while `work` uses the connection; end both when either ends."""
    tasks = {asyncio.ensure_future(client.listen()), asyncio.ensure_future(work)}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        client.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
