"""Log-in by certificate (RFC 4422, appendix A; XEP-0178), by STARTTLS and direct TLS.

The port for STARTTLS serves direct TLS, too: the first byte distinguishes it from a stream.
"""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import Coroutine
from pathlib import Path

import pytest

from edge.ops.certificates import pki
from edge.ops.devices import devices
from tests.helpers.gateway import PASSWORD, Gateway, port_of
from tests.helpers.processes import Process
from tests.helpers.xmpp import Client, Closed, trusted_ca_context

PING = "<ping xmlns='urn:xmpp:ping'/>"
PORTS = ("xmpp", "xmpps")
TRANSPORTS = ("starttls", *PORTS)
"""STARTTLS, and direct TLS on each port."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    gateway = Gateway(tmp_path_factory.mktemp("gw") / "gateway", "cam1", authenticate_delay=0.0)
    for name in ("pump1", "pump2", "pump3"):
        devices.add(gateway.folder, name, None, trusted=True, certificate=True)
    return gateway


def own(gateway: Gateway, name: str) -> Path:
    return gateway.folder / "devices" / name


async def connect(
    gateway: Gateway, process: Process, certificate: Path | None, transport: str = "xmpps"
) -> Client:
    """Connect under TLS; the features come as an element."""
    if transport == "starttls":
        client = await Client.connect(port_of(process))
        await client.start_tls(gateway.ca, certificate=certificate)
        return client
    context = trusted_ca_context(gateway.ca, certificate, ("xmpp-client",))
    return await Client.connect_tls(process.host_port(transport)[1], context)


async def refused(opening: Coroutine[None, None, Client]) -> bool:
    """Return whether TLS refuses a client; with TLS 1.3, the client learns it when it reads."""
    try:
        client = await opening
    except (ssl.SSLError, ConnectionError):
        return True
    async with client:
        try:
            await client.element()
        except Closed:
            return True
    return False


async def offers(client: Client) -> set[str]:
    """Return the names of the features, and of the mechanisms."""
    features = (await client.element()).iter()
    return {name for each in features for name in (each.tag.partition("}")[2], each.text or "")}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("authzid", ["", "pump1@gw.example"])
async def test_certificate_logs_the_device_in(
    gateway: Gateway, process: Process, transport: str, authzid: str
) -> None:
    async with await connect(gateway, process, own(gateway, "pump1"), transport) as client:
        assert "EXTERNAL" in await offers(client)
        assert await client.authenticate("EXTERNAL", authzid, "") == "success"
        assert await client.bind("fw") == "pump1@gw.example/fw"
        assert (await client.iq("get", PING)).get("type") == "result"


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_external_is_offered_only_with_a_certificate(
    gateway: Gateway, process: Process, transport: str
) -> None:
    async with await connect(gateway, process, None, transport) as client:
        assert not {"EXTERNAL", "starttls"} & await offers(client)
        assert await client.authenticate("EXTERNAL", "", "") == "invalid-mechanism"
        assert await client.authenticate("SCRAM-SHA-256", "cam1", PASSWORD) == "success"


async def test_certificate_of_another_ca_fails_the_handshake(
    gateway: Gateway, process: Process, tmp_path: Path
) -> None:
    other = Gateway(tmp_path / "other")
    devices.add(other.folder, "pump1", None, trusted=True, certificate=True)
    assert await refused(connect(gateway, process, own(other, "pump1")))


async def test_certificate_of_the_gateway_fails_the_handshake(
    gateway: Gateway, process: Process, tmp_path: Path
) -> None:
    files = pki.files(gateway.folder)
    shutil.copy(files.server, tmp_path / "cert.pem")
    shutil.copy(files.server_key, tmp_path / "key.pem")
    assert await refused(connect(gateway, process, tmp_path))


async def test_revoked_certificate_ends_the_session(
    gateway: Gateway, process: Process, tmp_path: Path
) -> None:
    copied_folder = shutil.copytree(own(gateway, "pump2"), tmp_path / "kept")
    async with await connect(gateway, process, copied_folder) as client:
        await client.element()
        assert await client.authenticate("EXTERNAL", "", "") == "success"
        await client.bind("fw")
        await asyncio.to_thread(devices.revoke, gateway.folder, "pump2")
        assert await client.closed() == "not-authorized"
    # a front process looks at the files at STARTTLS, and otherwise every second
    assert await refused(connect(gateway, process, copied_folder, "starttls"))


async def test_unknown_certificate_is_refused_like_a_wrong_password(
    gateway: Gateway, process: Process, tmp_path: Path
) -> None:
    """The gateway does not depend on the revocation list."""
    copied_folder = shutil.copytree(own(gateway, "pump3"), tmp_path / "kept")
    await asyncio.to_thread(devices.remove, gateway.folder, "pump3")
    (gateway.folder / "pki" / "crl.pem").unlink()
    async with await connect(gateway, process, copied_folder) as client:
        assert "EXTERNAL" in await offers(client)
        assert await client.authenticate("EXTERNAL", "", "") == "not-authorized"


@pytest.mark.parametrize("name", PORTS)
async def test_other_alpn_protocol_is_refused(
    gateway: Gateway, process: Process, name: str
) -> None:
    port = process.host_port(name)[1]
    for alpn, expected in (((), None), (("xmpp-client",), "xmpp-client")):
        async with await Client.connect_tls(
            port, trusted_ca_context(gateway.ca, alpn=alpn)
        ) as client:
            tls = client.writer.get_extra_info("ssl_object")
            assert tls.selected_alpn_protocol() == expected
            await client.element()
    other = trusted_ca_context(gateway.ca, alpn=("h2", "http/1.1"))
    assert await refused(Client.connect_tls(port, other))


async def test_renewed_server_certificate_is_used_for_new_handshakes(
    gateway: Gateway, process: Process
) -> None:
    """Files that cannot be used are ignored."""
    server = gateway.folder / "pki" / "server.pem"
    good = server.read_bytes()
    for data in (b"nothing of the kind", good):
        server.write_bytes(data)
        async with await connect(gateway, process, None) as client:
            found = client.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            assert found == ssl.PEM_cert_to_DER_cert(good.decode())


async def test_connection_without_tls_is_closed(process: Process) -> None:
    reader, writer = await asyncio.open_connection(*process.host_port("xmpps"))
    writer.write(b"<stream:stream xmlns='jabber:client'>")
    assert b"<" not in await asyncio.wait_for(reader.read(), 15)
    writer.close()


async def test_certificate_works_with_sasl2_and_resumption(
    gateway: Gateway, process: Process
) -> None:
    """XEP-0388 with XEP-0386: one request to log in, bind and turn on stream management."""
    request = (
        "<authenticate xmlns='urn:xmpp:sasl:2' mechanism='EXTERNAL'>"
        "<initial-response>=</initial-response>"
        "<user-agent id='d4565fa7-4d72-4749-b3d3-740edbf87770'/>{}</authenticate>"
    )
    bind = "<bind xmlns='urn:xmpp:bind:0'><tag>fw</tag><enable xmlns='urn:xmpp:sm:3' resume='1'/>"
    resources = []
    token, resume = "", ""
    for _ in range(2):
        client = await connect(gateway, process, own(gateway, "pump1"))
        await client.element()
        client.send(request.format(resume + bind + "</bind>"))
        success = await client.element()
        resources.append(success.findtext("{urn:xmpp:sasl:2}authorization-identifier"))
        enabled = success.find(".//{urn:xmpp:sm:3}enabled")
        found = success.find(".//{urn:xmpp:sm:3}resumed")
        assert (enabled is None) == bool(resume)
        assert (found is None) != bool(resume)
        if enabled is not None:
            token = enabled.attrib["id"]
            resume = f"<resume xmlns='urn:xmpp:sm:3' previd='{token}' h='0'/>"
            client.cut()
        else:
            async with client:
                client.send(f"<iq type='get' id='1' to='gw.example'>{PING}</iq>")
                while (await client.element()).get("id") != "1":
                    pass
    assert resources[0] == resources[1]
    assert str(resources[0]).startswith("pump1@gw.example/fw")
