"""A gateway that is attacked, and what must be true of it afterwards: it lives, it serves an honest
device, and it has not grown.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Final

import psutil

from tests.helpers.gateway import PASSWORD, Gateway, port_of
from tests.helpers.processes import Process
from tests.helpers.xmpp import WAIT_S, Client

PING: Final = "<ping xmlns='urn:xmpp:ping'/>"
HEADER: Final = (
    "<?xml version='1.0'?><stream:stream to='gw.example' version='1.0' xmlns='jabber:client'"
    " xmlns:stream='http://etherx.jabber.org/streams'>"
)
STARTTLS: Final = "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"
HONEST: Final = "honest"
HERE: Final = "127.0.0.1"
ELSEWHERE: Final = "127.0.0.2"
"""Two addresses of this machine: an honest device has another than whoever attacks."""

GROWTH_KIB: Final = 8 * 1024
"""Resident memory that an attack may cost for good: what the allocator keeps of some connections,
and far less than any attack here sends."""


class Door:
    """The front door of a running gateway."""

    def __init__(self, gateway: Gateway, process: Process) -> None:
        self.gateway = gateway
        self.process = process
        self.port = port_of(process)

    def resident(self) -> int:
        """KiB of memory that the gateway has resident."""
        return int(psutil.Process(self.process.pid).memory_info().rss) // 1024

    async def knock(self, address: str = HERE) -> Client:
        """Connect from an address; nothing is sent."""
        return Client(
            *await asyncio.open_connection("127.0.0.1", self.port, local_addr=(address, 0))
        )

    async def greet(self, address: str = HERE) -> Client:
        """Connect and open a stream, and read what it offers."""
        client = await self.knock(address)
        client.open()
        await client.element()
        return client

    async def secured(self, address: str = HERE) -> Client:
        """Connect, start TLS, open a stream, and read what it offers."""
        client = await self.knock(address)
        client.open()
        await client.start_tls(self.gateway.ca)
        await client.element()
        return client

    async def log_in(self, name: str, resource: str = "fw", address: str = HERE) -> Client:
        """Connect, log in and bind."""
        client = await self.secured(address)
        assert await client.authenticate("SCRAM-SHA-256", name, PASSWORD) == "success"
        await client.bind(resource)
        return client

    async def serves(self, address: str = ELSEWHERE) -> None:
        """Assert that an honest device can log in, and is answered."""
        async with await self.log_in(HONEST, address=address) as client:
            assert (await client.iq("get", PING)).get("type") == "result"


@contextlib.asynccontextmanager
async def unharmed(door: Door, growth: int = GROWTH_KIB) -> AsyncIterator[None]:
    """Run an attack, and assert that the gateway lives, serves, and has not grown."""
    await door.serves()
    before = door.resident()
    yield
    await door.serves()
    assert door.process.returncode is None
    assert door.resident() - before < growth, "the gateway has grown"
    assert "Traceback" not in door.process.stderr, door.process.stderr


async def until_closed(client: Client, seconds: float = WAIT_S) -> bytes:
    """Read until the gateway closes the connection; returns what it said."""
    said = b""
    async with asyncio.timeout(seconds):
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while data := await client.reader.read(65536):
                said += data
    return said


async def trickle(client: Client, data: bytes, pace: float) -> bytes:
    """Send byte by byte, one in each `pace` seconds, until all is sent or the gateway closes.

    Returns what the gateway said; the time between two bytes is spent listening to it.
    """
    said = b""
    for byte in data:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pace):
                try:
                    client.send(bytes([byte]))
                    heard = await client.reader.read(65536)
                except (ConnectionError, ssl.SSLError):
                    return said
                if not heard:
                    return said
                said += heard
    return said
