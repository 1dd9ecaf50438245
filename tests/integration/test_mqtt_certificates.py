"""MQTT over TLS: the ports, ALPN, and log-in by a certificate of the gateway's CA."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from pathlib import Path

import pytest

from edge.mqtt.packets import ConnAck, Connect, Disconnect
from edge.mqtt.reasons import Reason
from edge.ops.certificates import certificates
from edge.ops.devices import devices
from tests.helpers.gateway import PASSWORD, Gateway
from tests.helpers.issued_certificates import issue
from tests.helpers.mqtt import WAIT_S, MqttClient
from tests.helpers.mqtt_websocket import WebSocketClient
from tests.helpers.processes import Process
from tests.helpers.xmpp import trusted_ca_context

PORTS = pytest.mark.parametrize("port", ["mqtt", "mqtts", "mqttws"])
REFUSED = ConnAck(False, Reason.BAD_USER_NAME_OR_PASSWORD)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    options = {"authenticate_delay": 0.0, "authenticate_failures": 1000, "refusal_window": 0.001}
    gateway = Gateway(tmp_path_factory.mktemp("gw") / "gateway", "cam1", **options)
    for name in ("pump1", "pump2", "lost", "removed", "old"):
        devices.add(gateway.folder, name, None, trusted=True, certificate=True)
    listen = dict.fromkeys(("listen", "listen_tls", "listen_ws"), "127.0.0.1:0")
    gateway.configure_section("mqtt", **listen)
    return gateway


def own(gateway: Gateway, name: str) -> Path:
    return certificates.device_folder(gateway.folder, name)


async def connect(
    gateway: Gateway, process: Process, port: str, certificate: Path | None, alpn: tuple[str, ...]
) -> MqttClient:
    kind = WebSocketClient if port == "mqttws" else MqttClient
    context = trusted_ca_context(gateway.ca, certificate, alpn)
    return await kind.open(process, tls=context, name=port)


def alpn_of(port: str) -> str:
    return "http/1.1" if port == "mqttws" else "mqtt"


async def is_refused_by_tls(gateway: Gateway, process: Process, certificate: Path) -> bool:
    """Return whether TLS refuses a certificate; with TLS 1.3, the client learns it later. Otherwise
    the log-in must refuse it."""
    try:
        async with await connect(gateway, process, "mqtts", certificate, ()) as client:
            answer = await client.ask(Connect("fw"))
            assert answer is None or (isinstance(answer, ConnAck) and answer.reason)
            return answer is None
    except (ssl.SSLError, ConnectionError):
        return True


@PORTS
@pytest.mark.parametrize("offers_alpn", [True, False])
@pytest.mark.parametrize("user_name", [None, "pump1", "pump1@gw.example"])
async def test_a_certificate_logs_its_device_in(
    gateway: Gateway, process: Process, port: str, offers_alpn: bool, user_name: str | None
) -> None:
    alpn = (alpn_of(port),) if offers_alpn else ()
    async with await connect(gateway, process, port, own(gateway, "pump1"), alpn) as client:
        answer = await client.ask(Connect("fw", user_name=user_name))
        assert isinstance(answer, ConnAck)
        assert answer.reason is Reason.SUCCESS
        await client.sync()


@PORTS
@pytest.mark.parametrize("user_name", ["pump2", "cam1", "nobody", "pump1@other.example"])
async def test_the_user_name_of_another_device_is_refused(
    gateway: Gateway, process: Process, port: str, user_name: str
) -> None:
    async with await connect(gateway, process, port, own(gateway, "pump1"), ()) as client:
        assert await client.ask(Connect("fw", user_name=user_name)) == REFUSED
    process.wait_for_stderr("limit authentication: the certificate belongs to another device")


@PORTS
async def test_a_password_logs_in_over_tls(gateway: Gateway, process: Process, port: str) -> None:
    for certificate in (None, own(gateway, "pump1")):
        async with await connect(gateway, process, port, certificate, ()) as client:
            packet = Connect("fw", user_name="cam1", password=PASSWORD.encode())
            answer = await client.ask(packet)
            assert isinstance(answer, ConnAck)
            assert answer.reason is Reason.SUCCESS


async def test_without_a_certificate_and_a_password_nobody_logs_in(
    gateway: Gateway, process: Process
) -> None:
    async with await connect(gateway, process, "mqtts", None, ()) as client:
        assert await client.ask(Connect("fw", user_name="pump1")) == REFUSED


@PORTS
async def test_another_alpn_protocol_is_refused(
    gateway: Gateway, process: Process, port: str
) -> None:
    with pytest.raises(ssl.SSLError, match="no application protocol"):
        await connect(gateway, process, port, None, ("xmpp-client",))


async def test_a_port_for_tls_alone_answers_nothing_else(process: Process) -> None:
    async with await MqttClient.open(process, name="mqtts") as client:
        assert await client.ask(Connect("fw")) is None


async def test_a_log_in_without_tls_is_refused(process: Process) -> None:
    async with await MqttClient.open(process) as client:
        answer = await client.ask(Connect("fw", user_name="cam1", password=PASSWORD.encode()))
        assert isinstance(answer, ConnAck)
        assert answer.reason is Reason.NOT_AUTHORIZED


async def test_the_certificate_of_another_ca_fails_the_handshake(
    gateway: Gateway, process: Process, tmp_path: Path
) -> None:
    other = Gateway(tmp_path / "other")
    devices.add(other.folder, "pump1", None, trusted=True, certificate=True)
    assert await is_refused_by_tls(gateway, process, own(other, "pump1"))
    process.wait_for_stderr("limit authentication: certificate of another CA")


async def test_a_revoked_certificate_ends_the_session_and_is_refused(
    gateway: Gateway, process: Process, tmp_path: Path
) -> None:
    lost = shutil.copytree(own(gateway, "lost"), tmp_path / "lost")
    async with await connect(gateway, process, "mqtts", lost, ()) as client:
        assert isinstance(await client.ask(Connect("fw")), ConnAck)
        await asyncio.to_thread(devices.revoke, gateway.folder, "lost")
        assert await client.receive() == Disconnect(Reason.NOT_AUTHORIZED)
    async with asyncio.timeout(WAIT_S):  # a front learns of the revocation within a second
        while not await is_refused_by_tls(gateway, process, lost):
            pass
    process.wait_for_stderr("limit authentication: certificate revoked")


@pytest.mark.parametrize(
    ("days_ago", "reason"), [(60, "certificate expired"), (-60, "certificate not valid yet")]
)
async def test_a_certificate_with_wrong_dates_is_refused(
    gateway: Gateway, process: Process, tmp_path: Path, days_ago: int, reason: str
) -> None:
    certificate = issue(gateway, tmp_path / "old", days_ago, "old")
    async with await connect(gateway, process, "mqtt", certificate, ()) as client:
        assert await client.ask(Connect("fw")) == REFUSED
    fields = "source=127.0.0.1, value=1, account=old, mechanism=EXTERNAL, protocol=mqtt, serial="
    process.wait_for_stderr(f"limit authentication: {reason} ({fields}")


async def test_an_unknown_certificate_is_refused(
    gateway: Gateway, process: Process, tmp_path: Path
) -> None:
    certificate = issue(gateway, tmp_path / "unknown", 0)
    async with await connect(gateway, process, "mqtt", certificate, ()) as client:
        assert await client.ask(Connect("fw")) == REFUSED
    process.wait_for_stderr("limit authentication: certificate unknown")
