"""TLS client hellos on the port for STARTTLS; `test_sasl_external` tests log-ins there."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.server.tls_client_hello import HELLO_BYTES
from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway, port_of
from tests.helpers.hostile import read_until_closed, trickle
from tests.helpers.processes import Process
from tests.helpers.slix import peer
from tests.helpers.xmpp import Client, trusted_ca_context

AUTHENTICATE_S = 2.0
MARGIN_S = 15.0


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    folder = tmp_path_factory.mktemp("gw") / "gateway"
    return Gateway(folder, authenticate_time=AUTHENTICATE_S)


@pytest.fixture(scope="module")
def process(gateway: Gateway) -> Iterator[Process]:
    with gateway.run() as process:
        yield process
        assert process.terminate() == 0
        assert all(" Warning: limit " in line for line in process.stderr.splitlines())


async def test_slixmpp_with_default_settings_causes_no_warning(tmp_path: Path) -> None:
    """slixmpp tries direct TLS first."""
    gateway = Gateway(tmp_path / "gateway", "pump1")
    with gateway.run() as process:
        address = "127.0.0.1", port_of(process)
        jid, service = f"pump1@{DOMAIN}/fw", f"pubsub.{DOMAIN}"
        async with peer(jid, PASSWORD, gateway.ca, address, service) as session:
            assert session.client.enable_direct_tls
            assert session.client.transport.get_extra_info("ssl_object") is not None
            await session.assert_no_event()
        assert process.terminate() == 0  # refusals are logged before the end
    assert [event for event in gateway.events() if event["level"] in ("Warning", "Error")] == []


async def test_hello_may_come_in_pieces(gateway: Gateway, process: Process) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(process))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = trusted_ca_context(gateway.ca).wrap_bio(incoming, outgoing, server_hostname=DOMAIN)
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    for byte in outgoing.read():
        writer.write(bytes([byte]))
        await asyncio.sleep(0)
    async with asyncio.timeout(MARGIN_S):
        while tls.version() is None or tls.cipher() is None:
            incoming.write(await reader.read(65536))
            with contextlib.suppress(ssl.SSLWantReadError):
                tls.do_handshake()
            writer.write(outgoing.read())
    writer.close()


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x40\x00\x01\x00\xff\xff" + bytes(2 * HELLO_BYTES),
        b"\x16\x03\x01\x00\x00" * HELLO_BYTES,
        b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
    ],
    ids=["a hello too large", "empty records", "another message"],
)
async def test_invalid_hello_is_refused_at_once(process: Process, data: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(process))
    async with Client(reader, writer) as client:
        client.send(data)
        started = time.monotonic()
        assert b"<" not in await read_until_closed(client)
        assert time.monotonic() - started < AUTHENTICATE_S, "it timed out instead"


@pytest.mark.parametrize(
    ("port", "data"),
    [
        ("xmpp", b""),
        ("xmpp", b"\x16"),
        ("xmpp", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc" + bytes(90)),
        ("xmpps", b"\x16\x03\x01" + b"\x05\x00" * 50),
    ],
)
async def test_slow_hello_is_disconnected_in_time(process: Process, port: str, data: bytes) -> None:
    reader, writer = await asyncio.open_connection(*process.host_port(port))
    async with Client(reader, writer) as client:
        started = time.monotonic()
        received = await trickle(client, data, 0.05) + await read_until_closed(client)
        assert AUTHENTICATE_S / 2 < time.monotonic() - started < AUTHENTICATE_S + MARGIN_S
        assert (b"<connection-timeout " in received) is not data.startswith(b"\x16")
