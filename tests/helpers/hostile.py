"""A gateway under attack, and the check that it runs, serves an honest device and has not grown."""

from __future__ import annotations

import asyncio
import contextlib
import math
import ssl
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

import psutil
import pytest

from firmware_sim.attackers.stanzas import PING, stream_header
from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway, port_of
from tests.helpers.processes import Process
from tests.helpers.xmpp import WAIT_S, Client

HEADER: Final = stream_header(DOMAIN)
HONEST: Final = "honest"
ATTACKER_IP: Final = "127.0.0.1"
DEVICE_IP: Final = "127.0.0.2"
"""Addresses of the attacker and of the honest device, both of this machine."""

GROWTH_KIB: Final = 8 * 1024
"""Resident memory that an attack may cost permanently: memory of some connections that the
allocator keeps, far less than any attack sends."""


class AttackedGateway:
    """A running gateway, with clients for attacks."""

    def __init__(self, gateway: Gateway, process: Process) -> None:
        self.gateway = gateway
        self.process = process
        self.port = port_of(process)

    def resident(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss) // 1024

    async def connect(self, address: str = ATTACKER_IP) -> Client:
        local = (address, 0)
        return Client(*await asyncio.open_connection("127.0.0.1", self.port, local_addr=local))

    async def open_stream(self, address: str = ATTACKER_IP) -> Client:
        """Connect, open a stream, and read its features."""
        client = await Client.connect(self.port, from_=address)
        await client.element()
        return client

    async def open_tls_stream(self, address: str = ATTACKER_IP) -> Client:
        """Connect, start TLS, open a stream, and read its features."""
        client = await Client.connect(self.port, from_=address)
        await client.start_tls(self.gateway.ca)
        await client.element()
        return client

    async def log_in(self, name: str, resource: str = "fw", address: str = ATTACKER_IP) -> Client:
        client = await self.open_tls_stream(address)
        assert await client.authenticate("SCRAM-SHA-256", name, PASSWORD) == "success"
        await client.bind(resource)
        return client

    async def assert_serves(self, address: str = DEVICE_IP) -> None:
        """Assert that an honest device can log in and is answered.

        It also uses an address that is not ASCII, so that its normalisation is imported before an
        attack.
        """
        async with await self.log_in(HONEST, "caf\u00e9", address) as client:
            assert (await client.iq("get", PING)).get("type") == "result"
            assert (await client.iq("get", PING, to="caf\u00e9@gw.example")).get("type") == "error"


@contextlib.asynccontextmanager
async def assert_unharmed(
    attacked: AttackedGateway, growth: int = GROWTH_KIB
) -> AsyncIterator[None]:
    """Run an attack, and assert that the gateway runs, serves and has not grown."""
    await attacked.assert_serves()
    before = attacked.resident()
    yield
    await attacked.assert_serves()
    assert attacked.process.returncode is None
    assert attacked.resident() - before < growth, "the gateway has grown"
    assert "Traceback" not in attacked.process.stderr, attacked.process.stderr


def smoke(names: Iterable[str], short: str) -> list[Any]:
    """Return a test's parameters: `make test-long` runs all of them, `make test` only `short`."""
    return [name if name == short else pytest.param(name, marks=pytest.mark.long) for name in names]


async def flood(client: Client, data: bytes, most: float = math.inf, patience: float = 60.0) -> int:
    """Send until `most` bytes are accepted, or none for `patience` seconds, or the gateway closes;
    return the number of accepted bytes."""
    sent = 0
    with contextlib.suppress(ConnectionError, TimeoutError):
        while sent < most:
            client.send(data)
            async with asyncio.timeout(patience):
                await client.writer.drain()
            sent += len(data)
            await asyncio.sleep(0)  # `drain` alone does not let other tasks run
    return sent


async def discard(client: Client) -> None:
    with contextlib.suppress(OSError):
        while await client.reader.read(65536):
            pass


async def read_until_closed(client: Client, seconds: float = WAIT_S) -> bytes:
    """Read until the gateway closes the connection; return what was read."""
    received = b""
    async with asyncio.timeout(seconds):
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while data := await client.reader.read(65536):
                received += data
    return received


async def trickle(client: Client, data: bytes, interval: float) -> bytes:
    """Send a byte every `interval` seconds until all are sent or the gateway closes; return the
    received bytes."""
    received = b""
    for byte in data:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(interval):
                try:
                    client.send(bytes([byte]))
                    data_read = await client.reader.read(65536)
                except (ConnectionError, ssl.SSLError):
                    return received
                if not data_read:
                    return received
                received += data_read
    return received
