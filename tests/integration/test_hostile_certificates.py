"""Direct TLS and client certificates, attacked: garbage, no TLS at all, and certificates that are
another's, out of date, revoked, or that nobody was ever given.

After each attack the gateway lives, serves an honest device, and has not grown.
"""

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
from tests.helpers.hostile import HEADER, HONEST, Door, trickle, unharmed, until_closed
from tests.helpers.xmpp import Client, Closed

AUTHENTICATE_S = 2.0
MARGIN_S = 6.0
PUMP = f"pump1@{DOMAIN}"
DAY_MS = 24 * 3600 * 1000


class DirectDoor(Door):
    """The door of those who speak TLS from the first byte."""

    @property
    def tls_port(self) -> int:
        return self.process.host_port("xmpps")[1]

    async def open_plain(self) -> Client:
        """Connect, and speak no TLS."""
        return Client(*await asyncio.open_connection("127.0.0.1", self.tls_port))

    async def open_tls(self, chain: Path | None = None, alpn: str = "xmpp-client") -> Client:
        """Connect by TLS, with a certificate if one is given, and open a stream."""
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
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DirectDoor]:
    gateway = Gateway(
        tmp_path_factory.mktemp("hostile") / "gateway", HONEST, authenticate_time=AUTHENTICATE_S
    )
    for name in ("pump1", "pump2", "stolen"):
        devices.add(gateway.folder, name, None, trusted=True, certificate=True)
    with gateway.run() as process:
        yield DirectDoor(gateway, process)
        assert process.terminate() == 0


def now() -> int:
    return time.time_ns() // 1_000_000


def authority(folder: Path) -> Authority:
    """Read a gateway's CA, as who stole it would."""
    return pki.load(folder)


def write(folder: Path, issued: certificates.Issued) -> Path:
    """Write a certificate and its key where a client loads them from."""
    folder.mkdir()
    for name, content in issued.contents.items():
        (folder / name).write_bytes(content.data)
    return folder


async def external(client: Client, authzid: str = "") -> str:
    """Ask to be let in by a certificate; returns `success` or the condition of the failure."""
    text = base64.b64encode(authzid.encode()).decode() or "="
    client.send(
        "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='EXTERNAL'>" + text + "</auth>"
    )
    answer = await client.element()
    tag = answer.tag.partition("}")[2]
    return tag if tag == "success" else answer[0].tag.partition("}")[2]


async def mechanisms(client: Client) -> list[str]:
    features = await client.element()
    return [e.text or "" for e in features.iter() if e.tag.endswith("}mechanism")]


async def let_in(door: DirectDoor, chain: Path | None, authzid: str = "") -> str:
    """Try a certificate; returns `success`, a condition, or `handshake` if TLS fails already."""
    try:
        client = await door.open_tls(chain)
    except (ssl.SSLError, ConnectionError):
        return "handshake"
    async with client:
        with contextlib.suppress(Closed):  # by TLS 1.3, a client learns of it when it reads
            await mechanisms(client)
            return await external(client, authzid)
    return "handshake"


async def test_a_device_is_let_in_by_its_own_certificate(door: DirectDoor) -> None:
    async with unharmed(door):
        chain = certificates.device_folder(door.gateway.folder, "pump1")
        for authzid in ("", PUMP):
            assert await let_in(door, chain, authzid) == "success"


@pytest.mark.parametrize("authzid", [f"pump2@{DOMAIN}", HONEST, DOMAIN, "", "pump1@no.example"])
async def test_a_certificate_is_good_for_its_device_alone(door: DirectDoor, authzid: str) -> None:
    async with unharmed(door):
        chain = certificates.device_folder(door.gateway.folder, "pump1")
        expected = "invalid-authzid" if authzid else "success"
        assert await let_in(door, chain, authzid) == expected


async def test_without_a_certificate_there_is_no_external(door: DirectDoor) -> None:
    async with unharmed(door), await door.open_tls() as client:
        assert "EXTERNAL" not in await mechanisms(client)
        assert await external(client, PUMP) == "invalid-mechanism"


async def test_a_certificate_of_another_authority_is_refused(
    door: DirectDoor, tmp_path: Path
) -> None:
    async with unharmed(door):
        (tmp_path / "another").mkdir()
        forged = pki.create(tmp_path / "another", DOMAIN, now())
        chain = write(tmp_path / "chain", certificates.issue(forged, PUMP, 30, now()))
        assert await let_in(door, chain) == "handshake"


async def test_a_certificate_that_is_out_of_date_is_refused(
    door: DirectDoor, tmp_path: Path
) -> None:
    async with unharmed(door):
        ours = authority(door.gateway.folder)
        old = certificates.issue(ours, PUMP, 30, now() - 60 * DAY_MS)
        assert await let_in(door, write(tmp_path / "old", old)) == "handshake"
        early = certificates.issue(ours, PUMP, 30, now() + 60 * DAY_MS)
        assert await let_in(door, write(tmp_path / "early", early)) == "handshake"


async def test_a_certificate_that_nobody_was_given_is_refused(
    door: DirectDoor, tmp_path: Path
) -> None:
    """Signed by the gateway's own authority, for a device that is there, and not on its list."""
    async with unharmed(door):
        unlisted = certificates.issue(authority(door.gateway.folder), PUMP, 30, now())
        assert await let_in(door, write(tmp_path / "unlisted", unlisted)) == "not-authorized"


async def test_a_certificate_that_was_revoked_is_refused_at_once(door: DirectDoor) -> None:
    async with unharmed(door):
        chain = certificates.device_folder(door.gateway.folder, "stolen")
        assert await let_in(door, chain) == "success"
        devices.revoke(door.gateway.folder, "stolen")
        assert await let_in(door, chain) in ("handshake", "not-authorized")


async def test_the_gateways_own_certificate_is_nobodys(door: DirectDoor, tmp_path: Path) -> None:
    async with unharmed(door):
        files = pki.files(door.gateway.folder)
        (tmp_path / certificates.CERTIFICATE).write_bytes(files.server.read_bytes())
        (tmp_path / certificates.KEY).write_bytes(files.server_key.read_bytes())
        assert await let_in(door, tmp_path) in ("handshake", "not-authorized")


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
async def test_what_is_no_tls_is_refused(door: DirectDoor, garbage: bytes) -> None:
    async with unharmed(door), await door.open_plain() as client:
        client.send(garbage)
        said = await until_closed(client)
        assert b"<" not in said
        assert not said or said[0] == 0x15, "no handshake was entered into"


async def test_a_handshake_byte_by_byte_is_cut_off_in_time(door: DirectDoor) -> None:
    async with unharmed(door), await door.open_plain() as client:
        begun = time.monotonic()
        await trickle(client, b"\x16\x03\x01" + b"\x05\x00" * 500, 0.05)
        await until_closed(client)
        assert time.monotonic() - begun < AUTHENTICATE_S + MARGIN_S


async def test_who_speaks_another_protocol_by_alpn_is_refused_or_not_heard(
    door: DirectDoor,
) -> None:
    """ALPN keeps a browser from being used against the gateway: its request is no stream."""
    async with unharmed(door):
        try:
            client = await door.open_tls(alpn="http/1.1")
        except ssl.SSLError:
            return
        async with client:
            client.send(b"GET / HTTP/1.1\r\n\r\n")
            assert await client.closed() in ("bad-format", "not-well-formed", None)
