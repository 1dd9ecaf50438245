from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import time
from collections.abc import Iterator

import pytest

from firmware_sim.attackers.stanzas import STARTTLS
from tests.helpers.gateway import Gateway
from tests.helpers.hostile import (
    HEADER,
    HONEST,
    AttackedGateway,
    assert_unharmed,
    read_until_closed,
    trickle,
)
from tests.helpers.xmpp import WAIT_S

AUTHENTICATE_S = 1.5
"""The configured time from connecting to binding."""
MARGIN_S = 4.0
"""Additional time for a busy machine and for closing TLS."""
PER_ADDRESS = 20
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedGateway]:
    gateway = Gateway(
        tmp_path_factory.mktemp("hostile") / "gateway",
        HONEST,
        authenticate_time=AUTHENTICATE_S,
        unauthenticated=40,
        unauthenticated_per_address=PER_ADDRESS,
    )
    with gateway.run() as process:
        yield AttackedGateway(gateway, process)
        assert process.terminate() == 0


def send_raw(port: int, data: bytes) -> bytes:
    """Send data in place of a stream; return the data received until the connection is closed.

    A plain socket still receives if not everything could be sent; asyncio drops that.
    """
    received = b""
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(data)
        with contextlib.suppress(ConnectionError):
            while data_read := connection.recv(65536):
                received += data_read
    return received


def random_bytes(count: int) -> bytes:
    return random.Random(20251121).randbytes(count)


INVALID_STREAMS = {
    "HTTP": (b"GET / HTTP/1.1\r\nHost: gw.example\r\n\r\n", "not-well-formed"),
    "NUL": (bytes(100), "unsupported-encoding"),
    "noise": (random_bytes(64 * 1024), None),
    "billion laughs": (
        b"<!DOCTYPE l [<!ENTITY a 'ha'>"
        + b"".join(b"<!ENTITY %c '%b'>" % (c, b"&%c;" % (c - 1) * 10) for c in range(98, 110))
        + b"]><l>&m;</l>",
        "restricted-xml",
    ),
    "nested elements": (HEADER.encode() + b"<a>" * MIB, "policy-violation"),
    "an overlong header": (HEADER.encode()[:-1] + b" a='" + b"a" * MIB, "policy-violation"),
    "an endless declaration": (b"<?xml version='1.0'" + b" " * MIB, "not-well-formed"),
}
"""Examples; the tests of the parser and of negotiation have all cases."""


@pytest.mark.parametrize("name", INVALID_STREAMS)
async def test_invalid_streams_are_refused_at_once(attacked: AttackedGateway, name: str) -> None:
    data, condition = INVALID_STREAMS[name]
    async with assert_unharmed(attacked):
        started = time.monotonic()
        received = await asyncio.to_thread(send_raw, attacked.port, data)
        assert time.monotonic() - started < AUTHENTICATE_S, "it timed out instead"
        assert b"<stream:error>" in received
        assert condition is None or f"<{condition} ".encode() in received


async def test_endless_white_space_is_ignored_until_the_timeout(attacked: AttackedGateway) -> None:
    async with assert_unharmed(attacked), await attacked.connect() as client:
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(AUTHENTICATE_S + MARGIN_S):
                while not client.reader.at_eof():
                    client.send(b" " * 65536)
                    await client.writer.drain()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.01):
                            await client.reader.read(65536)


@pytest.mark.parametrize(
    "data",
    [HEADER.encode(), b" " * 1000, b"\x16\x03\x01" + b"\x05\x00" * 500],
    ids=["a header", "blanks", "a handshake"],
)
async def test_slow_senders_are_disconnected_in_time(
    attacked: AttackedGateway, data: bytes
) -> None:
    async with assert_unharmed(attacked), await attacked.connect() as client:
        if data.startswith(b"\x16"):
            client.open()
            await client.element()
            client.send(STARTTLS)
            await client.element()
        started = time.monotonic()
        await trickle(client, data, 0.05)
        await read_until_closed(client)
        elapsed = time.monotonic() - started
        assert AUTHENTICATE_S / 2 < elapsed < AUTHENTICATE_S + MARGIN_S


async def test_slow_senders_under_tls_are_disconnected_in_time(attacked: AttackedGateway) -> None:
    async with assert_unharmed(attacked), await attacked.open_tls_stream() as client:
        started = time.monotonic()
        received = await trickle(client, b"<auth xmlns='" + b"x" * 1000, 0.05)
        assert b"connection-timeout" in received + await read_until_closed(client)
        assert time.monotonic() - started < AUTHENTICATE_S + MARGIN_S


async def test_aborted_connections_leave_nothing_in_any_state(attacked: AttackedGateway) -> None:
    async with assert_unharmed(attacked):
        for _ in range(5):
            clients = [
                await attacked.connect(),
                await attacked.open_stream(),
                await attacked.open_tls_stream(),
            ]
            handshaking = await attacked.open_stream()
            handshaking.send(STARTTLS)
            await handshaking.element()
            for client in (*clients, handshaking):
                client.send(b"<iq")
                client.writer.transport.abort()


async def test_a_thousand_aborted_connections_do_no_harm(attacked: AttackedGateway) -> None:
    async with assert_unharmed(attacked):
        for _ in range(1000):
            client = await attacked.connect()
            client.writer.transport.abort()
