"""Hostile strangers at the front door of a running gateway, before anybody has logged in.

After each attack the gateway lives, serves an honest device, and has not grown.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
import time
from collections.abc import Iterator

import pytest

from tests.helpers.gateway import PASSWORD, Gateway
from tests.helpers.hostile import (
    ELSEWHERE,
    HEADER,
    HONEST,
    STARTTLS,
    Door,
    trickle,
    unharmed,
    until_closed,
)
from tests.helpers.xmpp import WAIT_S, Client

AUTHENTICATE_S = 1.5
"""From connecting to being bound, as configured here."""
MARGIN_S = 4.0
"""Beyond that, for a busy machine and for TLS to be closed."""
PER_ADDRESS = 20
MIB = 1024 * 1024
COMPRESS = "<compress xmlns='http://jabber.org/protocol/compress'><method>zlib</method></compress>"


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    gateway = Gateway(
        tmp_path_factory.mktemp("hostile") / "gateway",
        HONEST,
        authenticate_time=AUTHENTICATE_S,
        unauthenticated=40,
        unauthenticated_per_address=PER_ADDRESS,
    )
    with gateway.run() as process:
        yield Door(gateway, process)
        assert process.terminate() == 0


def refused(port: int, data: bytes) -> bytes:
    """Send something in place of a stream; returns what was said until the connection closed.

    What was said is read also where not all could be sent: by a socket, since asyncio forgets it.
    """
    said = b""
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(data)
        with contextlib.suppress(ConnectionError):
            while heard := connection.recv(65536):
                said += heard
    return said


def random_bytes(count: int) -> bytes:
    return random.Random(20251121).randbytes(count)


NO_STREAM = {
    "HTTP": (b"GET / HTTP/1.1\r\nHost: gw.example\r\n\r\n", "not-well-formed"),
    "SSH": (b"SSH-2.0-OpenSSH_9.2\r\n", "not-well-formed"),
    "SSL 2": (b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + b"\x01\x00\x80" * 7, None),
    "SSL 3": (b"\x16\x03\x00\x00\x2f\x01\x00\x00\x2b\x03\x00" + bytes(36), "not-well-formed"),
    "TLS where XML is due": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "not-well-formed"),
    "NUL": (bytes(100), "unsupported-encoding"),
    "noise": (random_bytes(64 * 1024), None),
    "UTF-16": (HEADER.encode("utf-16"), "unsupported-encoding"),
    "invalid UTF-8": (HEADER.encode() + b"<a>\xff</a>", "not-well-formed"),
    "overlong UTF-8": (HEADER.encode() + b"<a>\xc0\xbc</a>", "not-well-formed"),
    "document type": (b"<!DOCTYPE x SYSTEM 'http://192.0.2.1/'>", "restricted-xml"),
    "billion laughs": (
        b"<!DOCTYPE l [<!ENTITY a 'ha'>"
        + b"".join(b"<!ENTITY %c '%b'>" % (c, b"&%c;" % (c - 1) * 10) for c in range(98, 110))
        + b"]><l>&m;</l>",
        "restricted-xml",
    ),
    "nested elements": (HEADER.encode() + b"<a>" * MIB, "policy-violation"),
    "an overlong name": (HEADER.encode() + b"<" + b"a" * MIB, "policy-violation"),
    "an overlong header": (HEADER.encode()[:-1] + b" a='" + b"a" * MIB, "policy-violation"),
    "an endless declaration": (b"<?xml version='1.0'" + b" " * MIB, "not-well-formed"),
    "many attributes": (
        HEADER.encode() + b"<a" + b"".join(b" a%d=''" % n for n in range(500)) + b"/>",
        "policy-violation",
    ),
    "another's domain": (HEADER.replace("gw.", "no.").encode(), "host-unknown"),
    "a server's stream": (HEADER.replace(":client", ":server").encode(), "invalid-namespace"),
    "a component's": (
        HEADER.replace(":client", ":component:accept").encode(),
        "invalid-namespace",
    ),
}


@pytest.mark.parametrize("name", NO_STREAM)
async def test_what_is_no_stream_is_refused_at_once(door: Door, name: str) -> None:
    data, condition = NO_STREAM[name]
    async with unharmed(door):
        begun = time.monotonic()
        said = await asyncio.to_thread(refused, door.port, data)
        assert time.monotonic() - begun < AUTHENTICATE_S, "it was not refused, but timed out"
        assert b"<stream:error>" in said
        assert condition is None or f"<{condition} ".encode() in said


async def test_an_endless_blank_is_nothing_and_is_cut_off(door: Door) -> None:
    async with unharmed(door), await door.knock() as client:
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
async def test_who_sends_byte_by_byte_is_cut_off_in_time(door: Door, data: bytes) -> None:
    async with unharmed(door), await door.knock() as client:
        if data.startswith(b"\x16"):
            client.open()
            await client.element()
            client.send(STARTTLS)
            await client.element()
        begun = time.monotonic()
        await trickle(client, data, 0.05)
        await until_closed(client)
        took = time.monotonic() - begun
        assert AUTHENTICATE_S / 2 < took < AUTHENTICATE_S + MARGIN_S


async def test_who_trickles_under_tls_is_cut_off_in_time(door: Door) -> None:
    async with unharmed(door), await door.secured() as client:
        begun = time.monotonic()
        said = await trickle(client, b"<auth xmlns='" + b"x" * 1000, 0.05)
        assert b"connection-timeout" in said + await until_closed(client)
        assert time.monotonic() - begun < AUTHENTICATE_S + MARGIN_S


async def test_an_honest_device_is_served_while_many_trickle(door: Door) -> None:
    async with unharmed(door), contextlib.AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(await door.knock()) for _ in range(PER_ADDRESS)]
        trickling = [asyncio.create_task(trickle(c, HEADER.encode(), 0.02)) for c in slow]
        await door.serves()
        await asyncio.gather(*trickling)


async def test_who_vanishes_in_each_state_leaves_nothing(door: Door) -> None:
    async with unharmed(door):
        for _ in range(5):
            clients = [await door.knock(), await door.greet(), await door.secured()]
            handshaking = await door.greet()
            handshaking.send(STARTTLS)
            await handshaking.element()
            for client in (*clients, handshaking):
                client.send(b"<iq")
                client.writer.transport.abort()


async def test_silent_connections_of_one_address_keep_no_other_out(door: Door) -> None:
    async with unharmed(door), contextlib.AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(await door.knock()) for _ in range(PER_ADDRESS)]
        await door.serves(ELSEWHERE)
        async with await door.knock() as another:
            another.open()
            assert b"<resource-constraint " in await until_closed(another)
        for client in silent:
            await until_closed(client)


async def test_a_thousand_connections_come_and_go(door: Door) -> None:
    async with unharmed(door):
        for _ in range(1000):
            client = await door.knock()
            client.writer.transport.abort()


async def test_wrong_passwords_are_answered_late_and_keep_no_other_out(door: Door) -> None:
    async def guess(client: Client) -> None:
        for _ in range(2):
            assert await client.authenticate("PLAIN", "nobody", "wrong") in (
                "not-authorized",
                "temporary-auth-failure",
            )

    async with unharmed(door), contextlib.AsyncExitStack() as stack:
        guessers = [await stack.enter_async_context(await door.secured()) for _ in range(8)]
        guessing = [asyncio.create_task(guess(client)) for client in guessers]
        await door.serves(ELSEWHERE)
        await asyncio.gather(*guessing, return_exceptions=True)


async def test_features_that_nobody_offers_cannot_be_had(door: Door) -> None:
    async with unharmed(door):
        for opened in (door.greet(), door.secured(), door.log_in(HONEST, "zip")):
            async with await opened as client:
                client.send(COMPRESS)
                assert await client.closed() == "unsupported-stanza-type"


async def test_what_is_offered_holds_no_compression(door: Door) -> None:
    async with unharmed(door), await door.knock() as client:
        client.open()
        offered = [await client.element()]
        client.send(STARTTLS)
        await client.element()
        await client.writer.start_tls(
            ssl.create_default_context(cafile=str(door.gateway.ca)), server_hostname="gw.example"
        )
        client.open()
        offered.append(await client.element())
        assert await client._scram("SCRAM-SHA-256", HONEST, PASSWORD) is not None
        client.open()
        offered.append(await client.element())
        tags = [element.tag for features in offered for element in features.iter()]
        assert len(tags) > 10
        assert not [tag for tag in tags if "compress" in tag]
