"""Tests of attacks on direct TLS and with client certificates at a running gateway."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.ops import certificates, devices, pki
from edge.ops.pki import Authority
from tests.helpers.gateway import DOMAIN, Gateway
from tests.helpers.hostile import HEADER, HONEST, AttackedGateway, trickle, unharmed, until_closed
from tests.helpers.xmpp import Client, Closed

AUTHENTICATE_S = 2.0
MARGIN_S = 6.0
PUMP = f"pump1@{DOMAIN}"
DAY_MS = 24 * 3600 * 1000


class DirectTlsGateway(AttackedGateway):
    """A gateway attacked on its port for direct TLS."""

    @property
    def tls_port(self) -> int:
        return self.process.host_port("xmpps")[1]

    async def open_plain(self) -> Client:
        """Connect without TLS."""
        return Client(*await asyncio.open_connection("127.0.0.1", self.tls_port))

    async def open_tls(self, chain: Path | None = None, alpn: str = "xmpp-client") -> Client:
        """Connect with direct TLS and an optional certificate, and open a stream."""
        context = ssl.create_default_context(cafile=str(self.gateway.ca))
        context.set_alpn_protocols([alpn])
        if chain is not None:
            context.load_cert_chain(chain / certificates.CERTIFICATE, chain / certificates.KEY)
        streams = await asyncio.open_connection(
            "127.0.0.1", self.tls_port, ssl=context, server_hostname=DOMAIN
        )
        client = Client(*streams)
        client.open()
        return client


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DirectTlsGateway]:
    gateway = Gateway(
        tmp_path_factory.mktemp("hostile") / "gateway", HONEST, authenticate_time=AUTHENTICATE_S
    )
    for name in ("pump1", "pump2", "stolen"):
        devices.add(gateway.folder, name, None, trusted=True, certificate=True)
    with gateway.run() as process:
        yield DirectTlsGateway(gateway, process)
        assert process.terminate() == 0


def now() -> int:
    return time.time_ns() // 1_000_000


def load_authority(folder: Path) -> Authority:
    """Load a gateway's CA, as an attacker who stole it would."""
    return pki.load(folder)


def write_chain(folder: Path, issued: certificates.Issued) -> Path:
    """Write a certificate and its key to a new folder."""
    folder.mkdir()
    for name, content in issued.contents.items():
        (folder / name).write_bytes(content.data)
    return folder


async def log_in_external(client: Client, authzid: str = "") -> str:
    """Log in by EXTERNAL; return `success` or the condition of the failure."""
    text = base64.b64encode(authzid.encode()).decode() or "="
    client.send(
        "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='EXTERNAL'>" + text + "</auth>"
    )
    answer = await client.element()
    tag = answer.tag.partition("}")[2]
    return tag if tag == "success" else answer[0].tag.partition("}")[2]


async def offered_mechanisms(client: Client) -> list[str]:
    features = await client.element()
    return [e.text or "" for e in features.iter() if e.tag.endswith("}mechanism")]


async def try_certificate(attacked: DirectTlsGateway, chain: Path | None, authzid: str = "") -> str:
    """Log in with a certificate; return `success`, a condition, or `handshake` if TLS fails."""
    try:
        client = await attacked.open_tls(chain)
    except (ssl.SSLError, ConnectionError):
        return "handshake"
    async with client:
        with contextlib.suppress(Closed):  # with TLS 1.3, a client notices when it reads
            await offered_mechanisms(client)
            return await log_in_external(client, authzid)
    return "handshake"


@pytest.mark.parametrize("authzid", [f"pump2@{DOMAIN}", HONEST, DOMAIN, "", "pump1@no.example"])
async def test_a_certificate_is_valid_for_its_device_only(
    attacked: DirectTlsGateway, authzid: str
) -> None:
    async with unharmed(attacked):
        chain = certificates.device_folder(attacked.gateway.folder, "pump1")
        expected = "invalid-authzid" if authzid else "success"
        assert await try_certificate(attacked, chain, authzid) == expected


async def test_an_expired_or_future_certificate_is_refused(
    attacked: DirectTlsGateway, tmp_path: Path
) -> None:
    async with unharmed(attacked):
        ours = load_authority(attacked.gateway.folder)
        old = certificates.issue(ours, PUMP, 30, now() - 60 * DAY_MS)
        assert await try_certificate(attacked, write_chain(tmp_path / "old", old)) == "handshake"
        early = certificates.issue(ours, PUMP, 30, now() + 60 * DAY_MS)
        assert (
            await try_certificate(attacked, write_chain(tmp_path / "early", early)) == "handshake"
        )


async def test_an_unregistered_certificate_is_refused(
    attacked: DirectTlsGateway, tmp_path: Path
) -> None:
    """Issued by the gateway's CA for an existing device, and not registered."""
    async with unharmed(attacked):
        unlisted = certificates.issue(load_authority(attacked.gateway.folder), PUMP, 30, now())
        assert (
            await try_certificate(attacked, write_chain(tmp_path / "unlisted", unlisted))
            == "not-authorized"
        )


async def test_the_gateways_own_certificate_is_refused(
    attacked: DirectTlsGateway, tmp_path: Path
) -> None:
    async with unharmed(attacked):
        files = pki.files(attacked.gateway.folder)
        (tmp_path / certificates.CERTIFICATE).write_bytes(files.server.read_bytes())
        (tmp_path / certificates.KEY).write_bytes(files.server_key.read_bytes())
        assert await try_certificate(attacked, tmp_path) in ("handshake", "not-authorized")


@pytest.mark.parametrize(
    "garbage",
    [
        HEADER.encode(),
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(1000),
        b"\x80\x2e\x01\x00\x02" + bytes(100),
        b"\x16\x03\x01\xff\xff" + b"\x01" * 70_000,
        b"\x16\x03\x01\x00\x00" * 5000,
    ],
    ids=["a stream", "HTTP", "NUL", "SSL 2", "a record too large", "empty records"],
)
async def test_invalid_tls_is_refused(attacked: DirectTlsGateway, garbage: bytes) -> None:
    async with unharmed(attacked), await attacked.open_plain() as client:
        client.send(garbage)
        received = await until_closed(client)
        assert b"<" not in received
        assert not received or received[0] == 0x15, "anything but an alert"


async def test_a_slow_handshake_is_disconnected_in_time(attacked: DirectTlsGateway) -> None:
    async with unharmed(attacked), await attacked.open_plain() as client:
        started = time.monotonic()
        await trickle(client, b"\x16\x03\x01" + b"\x05\x00" * 500, 0.05)
        await until_closed(client)
        assert time.monotonic() - started < AUTHENTICATE_S + MARGIN_S
