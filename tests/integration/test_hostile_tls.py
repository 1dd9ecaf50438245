"""Tests of attacks on TLS at a running gateway: downgrades, injection, stripping and garbage.

openssl's own client is used for attacks that Python's TLS cannot do.
"""

from __future__ import annotations

import asyncio
import base64
import shutil
import ssl
import struct
import warnings
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import pytest

from firmware_sim.attackers.stanzas import PING, STARTTLS
from tests.helpers.gateway import PASSWORD, Gateway
from tests.helpers.hostile import (
    HEADER,
    HONEST,
    AttackedGateway,
    assert_unharmed,
    read_until_closed,
)
from tests.helpers.xmpp import WAIT_S, Client

ALERT, HANDSHAKE = 0x15, 0x16
PLAIN = base64.b64encode(f"\0{HONEST}\0{PASSWORD}".encode()).decode()
AUTH = f"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>{PLAIN}</auth>"
BIND = "<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>"
HELLO_2 = b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + b"\x01\x00\x80" * 7 + bytes(16)
HELLO_3 = (
    b"\x16\x03\x00\x00\x2f\x01\x00\x00\x2b\x03\x00" + bytes(32) + b"\0\0\x04\0\x2f\0\x0a\x01\0"
)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedGateway]:
    gateway = Gateway(tmp_path_factory.mktemp("hostile") / "gateway", HONEST, authenticate_time=3.0)
    with gateway.run() as process:
        yield AttackedGateway(gateway, process)
        assert process.terminate() == 0


async def request_tls(attacked: AttackedGateway) -> Client:
    """Request TLS and receive `<proceed/>`."""
    client = await attacked.open_stream()
    client.send(STARTTLS)
    assert (await client.element()).tag.endswith("}proceed")
    return client


def insecure_context() -> ssl.SSLContext:
    """Return a client's TLS context that accepts everything."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("ALL:eNULL:@SECLEVEL=0")
    return context


@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1"])
async def test_old_versions_are_refused(attacked: AttackedGateway, version: str) -> None:
    context = insecure_context()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the old versions are tested
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion[version]
    async with assert_unharmed(attacked), await request_tls(attacked) as client:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await client.writer.start_tls(context)


@pytest.mark.parametrize("ciphers", ["eNULL", "aNULL", "kRSA", "PSK", "SRP"])
async def test_weak_ciphers_are_refused(attacked: AttackedGateway, ciphers: str) -> None:
    context = insecure_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(f"{ciphers}:@SECLEVEL=0")
    async with assert_unharmed(attacked), await request_tls(attacked) as client:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await client.writer.start_tls(context)


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
async def test_negotiated_ciphers_are_strong_and_uncompressed(
    attacked: AttackedGateway, version: str
) -> None:
    context = insecure_context()
    context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    async with assert_unharmed(attacked), await request_tls(attacked) as client:
        await client.writer.start_tls(context)
        tls: ssl.SSLObject = client.writer.get_extra_info("ssl_object")
        name, _protocol, bits = tls.cipher() or ("", "", 0)
        assert bits >= 128
        assert version == "TLSv1_3" or "DHE" in name, "no forward secrecy"
        assert tls.compression() is None


@pytest.mark.parametrize(
    "garbage",
    [
        HELLO_2,
        HELLO_3,
        bytes(1000),
        b"\x16\x03\x01\xff\xff" + b"\x01" * 70_000,
        b"\x16\x03\x01\x00\x00" * 5000,
        b"\x15\x03\x03\x00\x02\x02\x28",
        b"\x17\x03\x03\x00\x10" + bytes(16),
        struct.pack(">BHHB3s", 0x16, 0x0301, 4, 1, b"\xff\xff\xff"),
    ],
    ids=[
        "SSL 2", "SSL 3", "NUL", "a record too large", "empty records", "an alert", "data",
        "a hello of 16 MiB",
    ],
)  # fmt: skip
async def test_an_invalid_handshake_ends_the_connection(
    attacked: AttackedGateway, garbage: bytes
) -> None:
    async with assert_unharmed(attacked), await request_tls(attacked) as client:
        client.send(garbage)
        received = await read_until_closed(client)
        assert b"<" not in received
        assert not received or received[0] == ALERT, "anything but an alert"


@pytest.mark.parametrize("clear", [HEADER, AUTH, HEADER + AUTH + BIND, "</stream:stream>"])
async def test_plain_text_after_proceed_is_not_answered(
    attacked: AttackedGateway, clear: str
) -> None:
    async with assert_unharmed(attacked), await request_tls(attacked) as client:
        client.send(clear)
        received = await read_until_closed(client)
        assert not received or received[0] == ALERT


@pytest.mark.parametrize(
    "ahead", [AUTH, BIND, HEADER, HEADER + AUTH, f"<iq type='get' id='1'>{PING}</iq>", "<iq", " <"]
)
async def test_data_injected_before_tls_is_refused(attacked: AttackedGateway, ahead: str) -> None:
    async with assert_unharmed(attacked), await attacked.open_stream() as client:
        client.send(STARTTLS + ahead)
        received = await read_until_closed(client)
        assert b"<proceed" not in received
        assert b"<policy-violation " in received


async def test_stripping_starttls_allows_no_login(attacked: AttackedGateway) -> None:
    """Without TLS, every mechanism is refused."""
    async with assert_unharmed(attacked):
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-1", "EXTERNAL", "ANONYMOUS"):
            async with await attacked.connect() as client:
                client.open()
                features = await client.element()
                assert [child.tag for child in features] == [
                    "{urn:ietf:params:xml:ns:xmpp-tls}starttls",
                    "{urn:xmpp:stream-limits:0}limits",
                ]
                output = await client._sasl("auth", b"n,,n=honest,r=c", mechanism)
                known = mechanism not in ("EXTERNAL", "ANONYMOUS")
                expected = "encryption-required" if known else "invalid-mechanism"
                assert output[0].tag.partition("}")[2] == expected
        for stanza in (BIND, f"<iq type='get' id='1'>{PING}</iq>", "<message/>", "<presence/>"):
            async with await attacked.open_stream() as client:
                client.send(stanza)
                assert await client.closed() == "not-authorized"


async def test_a_forged_record_ends_the_stream(attacked: AttackedGateway) -> None:
    async with assert_unharmed(attacked):
        client = await attacked.log_in(HONEST, "tampered")
        plain = client.writer.get_extra_info("socket")
        loop = asyncio.get_running_loop()
        forged = b"\x17\x03\x03\x00\x40" + bytes(64)
        copy = plain.dup()
        try:
            await loop.sock_sendall(copy, forged)
            assert await client.closed() is None
        finally:
            copy.close()
        with suppress(AttributeError):  # Python 3.11.2, if the connection is lost already
            client.writer.transport.abort()


@asynccontextmanager
async def openssl_client(
    attacked: AttackedGateway, version: str
) -> AsyncIterator[tuple[asyncio.StreamWriter, asyncio.StreamReader, Process]]:
    """Run openssl's client, whose handshake is over; yield its input, its output and itself."""
    process = await asyncio.create_subprocess_exec(
        "openssl", "s_client", "-starttls", "xmpp", "-xmpphost", "gw.example", version,
        "-connect", f"127.0.0.1:{attacked.port}", "-CAfile", str(attacked.gateway.ca),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    async with asyncio.timeout(WAIT_S):
        await process.stdout.readuntil(b"Verify return code: 0 (ok)")
        yield process.stdin, process.stdout, process


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl's command")
async def test_renegotiation_is_refused(attacked: AttackedGateway) -> None:
    """`R` makes openssl's client request renegotiation, which TLS 1.2 has."""
    async with (
        assert_unharmed(attacked),
        openssl_client(attacked, "-tls1_2") as (stdin, stdout, process),
    ):
        stdin.write(b"R\n")
        output = await stdout.read()
        assert await process.wait() != 0
        assert b"RENEGOTIATING" in output
        assert b"no renegotiation" in output
        assert b"Verify return code" not in output


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl's command")
async def test_key_updates_are_answered(attacked: AttackedGateway) -> None:
    """`K` makes openssl's client update its keys and request this of the gateway."""
    async with (
        assert_unharmed(attacked),
        openssl_client(attacked, "-tls1_3") as (stdin, stdout, process),
    ):
        for _ in range(3):
            stdin.write(b"K\n")
            await stdout.readuntil(b"KEYUPDATE")
        stdin.write(HEADER.encode())
        await stdout.readuntil(b"</stream:features>")
        stdin.write(b"</stream:stream>")
        await stdout.read()
        await process.wait()
