from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.ops.devices import devices
from firmware_sim.device.device import Device
from firmware_sim.device.sender_rules import State
from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway
from tests.helpers.processes import Process, start
from tests.helpers.scripted_server import SECRET, serving
from tests.helpers.xmpp import Client, log_message, trusted_ca_context

HOST = "::1"
PING = "<ping xmlns='urn:xmpp:ping'/>"


def has_ipv6() -> bool:
    try:
        with socket.create_server((HOST, 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


pytestmark = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    gateway = Gateway(
        tmp_path_factory.mktemp("gw") / "gateway", "pump1", "pump3", authenticate_delay=0.0,
        listen="[::1]:0", listen_tls="[::1]:0", authenticate_failures=3, authenticate_again=3600.0,
    )  # fmt: skip
    devices.add(gateway.folder, "pump2", None, trusted=True, certificate=True)
    return gateway


@pytest.fixture(scope="module")
def process(gateway: Gateway) -> Iterator[Process]:
    with gateway.run() as process:
        yield process
        assert process.terminate() == 0
        assert process.stderr == ""


async def connect(gateway: Gateway, process: Process, direct: bool, name: str = "") -> Client:
    """Connect under TLS that is verified, with a device's certificate if one is named."""
    certificate = gateway.folder / "devices" / name if name else None
    if direct:
        host, port = process.host_port("xmpps")
        context = trusted_ca_context(gateway.ca, certificate, ("xmpp-client",))
        return await Client.connect_tls(port, context, host=host)
    host, port = process.host_port("xmpp")
    client = await Client.connect(port, host=host)
    await client.start_tls(gateway.ca, certificate=certificate)
    return client


@pytest.mark.parametrize(
    ("direct", "mechanism"), [(False, "SCRAM-SHA-256"), (False, "EXTERNAL"), (True, "PLAIN")]
)
async def test_devices_log_in_over_ipv6(
    gateway: Gateway, process: Process, direct: bool, mechanism: str
) -> None:
    external = mechanism == "EXTERNAL"
    user, password, device = ("", "", "pump2") if external else ("pump1", PASSWORD, "")
    async with await connect(gateway, process, direct, device) as client:
        assert client.writer.get_extra_info("peername")[0] == HOST
        await client.element()
        assert await client.authenticate(mechanism, user, password) == "success"
        await client.bind("fw")
        assert await client.assured(f"m{mechanism}{direct}", log_message(1)) == "received"
        assert await client.deliver(f"m{mechanism}{direct}") == "delivered"


async def test_firmware_sends_over_ipv6(gateway: Gateway, process: Process, tmp_path: Path) -> None:
    (host, port), outbox = process.host_port("xmpp"), tmp_path / "outbox"
    async with Device(
        f"pump1@{DOMAIN}/fw", PASSWORD, outbox_path=outbox, ca_file=gateway.ca, host=host, port=port
    ) as device:
        await device.send_log("Six", "over IPv6")
        await device.flush(30)
        assert device.counts()[State.DONE] == 1


async def test_the_gateway_listens_on_both_address_families(tmp_path: Path) -> None:
    gateway = Gateway(
        tmp_path / "gateway", "cam1", require_tls=False, listen=["127.0.0.1:0", "[::1]:0"]
    )
    with gateway.run() as process:
        (ipv4, port), (ipv6, ipv6_port) = process.hosts("xmpp")
        assert (ipv4, ipv6) == ("127.0.0.1", HOST)
        assert process.addresses["xmpps"].startswith("127.0.0.1:")
        for host, number in ((ipv4, port), (ipv6, ipv6_port)):
            async with await Client.connect(number, host=host) as client:
                await client.element()
                assert await client.authenticate("SCRAM-SHA-256", "cam1", PASSWORD) == "success"


async def test_a_component_connects_and_reconnects(tmp_path: Path) -> None:
    gateway = Gateway(
        tmp_path / "gateway", listen="", listen_tls="", component="[::1]:1",
        component_secret="component.secret",
    )  # fmt: skip
    secret = gateway.folder / "component.secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    ping = f"<iq type='get' id='p' from='pump1@users.example/fw' to='{DOMAIN}'>{PING}</iq>"
    async with serving(HOST) as server:
        gateway.configure(component=f"[::1]:{server.port}")
        with start("fieldpost", "run", "--dir", gateway.folder, ready=False) as process:
            for _ in range(2):
                link = await server.link()
                await link.accept_handshake()
                assert (await link.ask(ping)).get("type") == "result"
                link.close_connection()
            await asyncio.to_thread(process.wait_ready)
            assert process.host_port("component") == (HOST, server.port)
            assert process.terminate() == 0


async def test_refusals_name_the_prefix_of_an_ipv6_address(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway", listen="[::1]:0", listen_tls="", require_tls=False)
    with gateway.run() as process:
        host, port = process.host_port("xmpp")
        async with await Client.connect(port, host=host) as client:
            await client.element()
            assert await client.authenticate("SCRAM-SHA-256", "cam1", "wrong") == "not-authorized"
        process.wait_for_stderr(
            "unknown account (source=::/64, value=1,"
            " account=cam1, address=::1, mechanism=SCRAM-SHA-256)"
        )
        async with await Client.connect(port, host=host) as client:
            client.send("<!DOCTYPE x>")
            assert await client.closed() == "restricted-xml"
        assert process.terminate() == 0
    refusals = {(e["source"], e["name"]) for e in gateway.events("system") if e["kind"] == "limit"}
    assert refusals == {("::/64", "authentication"), ("::/64", "restricted-xml")}
