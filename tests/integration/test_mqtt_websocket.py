"""MQTT over WebSocket (MQTT 5.0, section 6)."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import aiohttp
import paho.mqtt.client as paho
import pytest
from msgspec.structs import replace
from paho.mqtt.enums import CallbackAPIVersion

from edge.mqtt.codec import PacketParser, encode
from edge.mqtt.packets import (
    V5,
    V311,
    ConnAck,
    Connect,
    Disconnect,
    PingReq,
    PingResp,
    Publish,
    Will,
)
from edge.mqtt.reasons import Reason
from tests.helpers.gateway import PASSWORD, Gateway
from tests.helpers.mqtt import WAIT_S, MqttClient
from tests.helpers.mqtt_websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    TEXT,
    WebSocketClient,
    frame,
)
from tests.helpers.processes import Process

CONNECT = Connect("fw", user_name="pump1", password=PASSWORD.encode())
OPTIONS: dict[str, Any] = {"auto_create": ["#"], "authenticate_delay": 0.0, "require_tls": False}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    gateway = Gateway(tmp_path_factory.mktemp("gateway"), "pump1", "meter1", **OPTIONS)
    listen = {"listen": "127.0.0.1:0", "listen_ws": "127.0.0.1:0"}
    gateway.configure_section("mqtt", require_tls=False, **listen)
    return gateway


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, Process]]:
    gateway = Gateway(tmp_path_factory.mktemp("secure"), "pump1", auto_create=["#"])
    gateway.configure_section("mqtt", listen_ws="127.0.0.1:0")
    with gateway.run() as process:
        yield gateway, process


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("path", ["/", "/mqtt"])
async def test_messages_pass_between_websocket_and_tcp(
    process: Process, version: int, path: str
) -> None:
    fields: dict[str, Any] = {"version": version}
    async with (
        await WebSocketClient.open(process, version, path=path) as pump,
        await MqttClient.connect(process, "meter1", version=version) as meter,
    ):
        assert pump.frames.headers["sec-websocket-protocol"] == "mqtt"
        assert "sec-websocket-extensions" not in pump.frames.headers
        assert isinstance(await pump.ask(replace(CONNECT, **fields)), ConnAck)
        for size in (0, 100, 1000, 60_000):
            topic = f"ws/{version}/{size}"
            await meter.subscribe(topic, qos=1)
            await pump.subscribe(topic, qos=2)
            pump.send(Publish(topic, bytes(size)))
            assert (await meter.take()).payload == bytes(size)
            assert (await pump.take()).payload == bytes(size)
        pump.send(Disconnect())
        assert await pump.receive() is None
        assert pump.frames.close_code == 1000


@pytest.mark.parametrize(
    ("path", "protocol", "status"),
    [("/other", "mqtt", 404), ("/mqtt", "mqttv3.1", 400), ("/mqtt", "", 400)],
)
async def test_other_requests_are_refused(
    process: Process, path: str, protocol: str, status: int
) -> None:
    async with await WebSocketClient.open(process, path=path, protocol=protocol) as client:
        assert client.frames.status == status


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_request_for_no_websocket_is_refused(process: Process, method: str) -> None:
    host, port = process.host_port("mqttws")
    headers = {"Sec-WebSocket-Protocol": "mqtt"}
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"http://{host}:{port}/mqtt", headers=headers) as answer,
    ):
        assert answer.status == 400


@pytest.mark.parametrize(
    "data",
    [b"\x10\x20\0\4MQTT", b"\0" * 100, b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 50, b"G" * 9999],
)
async def test_what_is_no_http_is_refused(process: Process, data: bytes) -> None:
    reader, writer = await asyncio.open_connection(*process.host_port("mqttws"))
    writer.write(data)
    answer = await asyncio.wait_for(reader.read(), WAIT_S)
    assert answer.startswith((b"HTTP/1.0 400", b"HTTP/1.1 400"))
    writer.close()


async def test_frames_need_not_be_packets(process: Process) -> None:
    """Packets may span frames and fragments, and a frame may have several (section 6)."""
    data = encode(CONNECT, V5) + encode(PingReq(), V5) * 2
    async with await WebSocketClient.open(process) as client:
        for at in range(0, len(data), 7):
            first, second = frame(BINARY, data[at : at + 3], is_last=False), data[at + 3 : at + 7]
            client.frames.raw.write(first + frame(CONTINUATION, second))
        assert isinstance(await client.receive(), ConnAck)
        assert [await client.receive() for _ in range(2)] == [PingResp(), PingResp()]


async def test_a_text_frame_ends_the_connection(process: Process) -> None:
    will = Will("ws/text", b"lost")
    async with (
        await MqttClient.connect(process, "meter1") as meter,
        await WebSocketClient.open(process) as client,
    ):
        await meter.subscribe("ws/text")
        assert isinstance(await client.ask(replace(CONNECT, will=will)), ConnAck)
        client.frames.raw.write(frame(TEXT, b"text"))
        answer = await client.receive()
        assert isinstance(answer, Disconnect)
        assert answer.reason == Reason.PROTOCOL_ERROR
        assert await client.receive() is None
        assert client.frames.close_code == 1003
        assert (await meter.take()).payload == b"lost"


@pytest.mark.parametrize("is_logged_in", [True, False])
async def test_a_message_that_is_too_large_ends_the_connection(
    process: Process, is_logged_in: bool
) -> None:
    async with await WebSocketClient.open(process) as client:
        if is_logged_in:
            await client.ask(CONNECT)
        client.frames.raw.write(frame(BINARY, bytes(90_000))[:100])  # its length is enough
        assert await client.receive() is None
        assert client.frames.close_code == 1009


async def test_a_ping_is_answered(process: Process) -> None:
    async with await WebSocketClient.open(process) as client:
        client.frames.raw.write(frame(PING, b"a"))
        await client.ask(CONNECT)
        client.frames.raw.write(frame(PING, b"b"))
        await client.sync()
        assert client.frames.pongs == [b"a", b"b"]


async def test_a_client_that_closes_is_lost(process: Process) -> None:
    will = Will("ws/close", b"lost")
    async with (
        await MqttClient.connect(process, "meter1") as meter,
        await WebSocketClient.open(process) as client,
    ):
        await meter.subscribe("ws/close")
        await client.ask(replace(CONNECT, will=will))
        client.frames.raw.write(frame(CLOSE, b"\x03\xe8"))
        assert await client.receive() is None
        assert client.frames.close_code == 1000
        assert (await meter.take()).payload == b"lost"


async def test_a_session_is_taken_over_between_websocket_and_tcp(process: Process) -> None:
    async with await WebSocketClient.open(process) as old:
        await old.ask(CONNECT)
        async with await MqttClient.connect(process, "pump1", "fw"):
            assert await old.receive() == Disconnect(Reason.SESSION_TAKEN_OVER)
            assert await old.receive() is None


async def test_a_client_that_does_not_read_gets_all_messages_later(process: Process) -> None:
    payload, count = bytes(30_000), 30  # more than the buffers have room for
    async with (
        await WebSocketClient.open(process) as slow,
        await MqttClient.connect(process, "meter1", "fast") as fast,
    ):
        await slow.ask(replace(CONNECT, client_id="slow"))
        await slow.subscribe("ws/many", qos=1)
        for _ in range(count):
            await fast.publish("ws/many", payload, 1)
        for _ in range(count):
            assert (await slow.take()).payload == payload
        await slow.sync()


async def test_tls_uses_the_certificate_of_the_gateway(secure: tuple[Gateway, Process]) -> None:
    gateway, process = secure
    for alpn in ([], ["http/1.1"], ["h2", "http/1.1"]):
        context = ssl.create_default_context(cafile=gateway.ca)
        if alpn:
            context.set_alpn_protocols(alpn)
        async with await WebSocketClient.open(process, tls=context) as client:
            assert client.frames.status == 101
            answer = await client.ask(CONNECT)
            assert isinstance(answer, ConnAck)
            assert answer.reason is Reason.SUCCESS


async def test_a_log_in_needs_tls(secure: tuple[Gateway, Process]) -> None:
    async with await WebSocketClient.open(secure[1]) as client:
        answer = await client.ask(CONNECT)
        assert isinstance(answer, ConnAck)
        assert answer.reason is Reason.NOT_AUTHORIZED


async def test_operators_see_the_transport(secure: tuple[Gateway, Process]) -> None:
    gateway, process = secure
    context = ssl.create_default_context(cafile=gateway.ca)
    async with await WebSocketClient.open(process, tls=context) as client:
        refused = await client.ask(replace(CONNECT, password=b"wrong"))
        assert isinstance(refused, ConnAck)
        assert refused.reason is Reason.BAD_USER_NAME_OR_PASSWORD
    async with await WebSocketClient.open(process, V311, tls=context) as client:
        assert isinstance(await client.ask(replace(CONNECT, version=V311)), ConnAck)
        assert "mqtt 3.1.1 websocket" in gateway.command("device", "list")
        status = json.loads(gateway.command("status", "--json"))
        assert status["protocols"] == {"mqtt websocket": 1}
    (event,) = [each for each in gateway.events("system") if each["name"] == "authentication"]
    assert event["tags"] == {
        "account": "pump1", "mechanism": "PLAIN", "protocol": "mqtt", "version": "5.0",
        "transport": "websocket",
    }  # fmt: skip


async def test_aiohttp_connects(secure: tuple[Gateway, Process]) -> None:
    gateway, process = secure
    context = ssl.create_default_context(cafile=gateway.ca)
    context.check_hostname = False  # the address is not in the certificate
    host, port = process.host_port("mqttws")
    parser = PacketParser(1 << 16, V5, from_client=False)
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"wss://{host}:{port}", protocols=["mqtt"], ssl=context) as socket,
    ):
        await socket.send_bytes(encode(CONNECT, V5))
        (answer,) = parser.feed(await socket.receive_bytes())
        assert isinstance(answer, ConnAck)


def test_paho_connects(process: Process) -> None:
    got: list[bytes] = []
    client = paho.Client(CallbackAPIVersion.VERSION2, "paho", transport="websockets")
    client.username_pw_set("pump1", PASSWORD)
    client.on_connect = lambda client, *_: client.subscribe("paho/#", 1)
    client.on_subscribe = lambda client, *_: client.publish("paho/1", b"x", 2)

    def on_message(client: paho.Client, _data: object, message: paho.MQTTMessage) -> None:
        got.append(bytes(message.payload))
        client.disconnect()

    client.on_message = on_message
    client.connect(*process.host_port("mqttws"))
    client.loop_forever()
    assert got == [b"x"]


def test_a_refused_request_is_counted(tmp_path_factory: pytest.TempPathFactory) -> None:
    gateway = Gateway(tmp_path_factory.mktemp("counting"), "pump1", **OPTIONS)
    gateway.configure_section("mqtt", require_tls=False, listen_ws="127.0.0.1:0")

    async def ask(process: Process) -> None:
        async with await WebSocketClient.open(process, path="/other") as client:
            assert client.frames.status == 404
            await client.frames.wait_end()

    with gateway.run() as process:
        asyncio.run(ask(process))
        assert process.terminate() == 0
    found = [event for event in gateway.events("system") if event["name"] == "websocket"]
    assert found


async def test_clients_are_limited_as_on_other_ports(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A handshake or log-in that does not end is closed, and pings and empty frames count towards
    the rate."""
    limits = {"authenticate_time": 1.0, "stanzas_at_once": 16, "stanzas_per_second": 100}
    size = {"bytes_at_once": 65_536, "bytes_per_second": 1024}
    gateway = Gateway(tmp_path_factory.mktemp("limited"), "pump1", **OPTIONS, **limits, **size)
    gateway.configure_section("mqtt", require_tls=False, listen_ws="127.0.0.1:0")
    with gateway.run() as process:
        reader, writer = await asyncio.open_connection(*process.host_port("mqttws"))
        writer.write(b"GET /mqtt HTTP/1.1\r\nHost: gw")
        assert await asyncio.wait_for(reader.read(), WAIT_S) == b""
        writer.close()
        async with await WebSocketClient.open(process) as silent:
            assert await silent.receive() is None
            assert silent.frames.close_code == 1000
        async with await WebSocketClient.open(process) as client:
            await client.ask(CONNECT)
            client.frames.raw.write(frame(PING, b"") * 60)
            await client.sync()
            assert len(client.frames.pongs) == 60
        process.wait_for_stderr("limit rate (source=pump1@gw.example")
        async with await WebSocketClient.open(process) as client:
            client.frames.raw.write(frame(BINARY, b"") * 12_000)
            assert await client.receive() is None
        process.wait_for_stderr("limit rate (source=127.0.0.1")


def test_the_server_of_aiohttp_is_imported_only_if_it_is_needed() -> None:
    program = (
        "import sys; import edge.app, edge.server.mqtt.listener; print('aiohttp' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "False"
