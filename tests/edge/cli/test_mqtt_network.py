"""`send` and `listen` by MQTT as functions, against a gateway in the same process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from edge.cli import mqtt_network
from edge.cli.device_login import Login, LoginRefused, NetworkError
from edge.mqtt.codec import PacketParser, encode
from edge.mqtt.packets import (
    NO_PROPERTIES,
    V5,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    Property,
    PubAck,
    Publish,
)
from edge.mqtt.reasons import Reason
from tests.helpers.gateway import DOMAIN, PASSWORD
from tests.helpers.in_process import InProcessGateway, in_process

WAIT: Final = 10.0
JSON: Final = {Property.CONTENT_TYPE: "application/json"}


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[InProcessGateway]:
    async with in_process(tmp_path, "pump1", "meter1", auto_create=["levels/#"]) as found:
        yield found


def login(at: InProcessGateway, name: str, password: str = PASSWORD) -> Login:
    host, port = at.mqtt
    jid, ca = f"{name}@{DOMAIN}/cli", at.gateway.ca
    return Login(jid, password, ca, host, port, None, None, direct_tls=True)


async def send(at: Login, topic: str, *payloads: bytes, qos: int = 1, retain: bool = False) -> None:
    await mqtt_network.send(at, topic, payloads, qos, retain, JSON, WAIT)


async def listen(
    at: Login,
    filter: str,
    qos: int = 2,
    count: int = 1,
    begun: Callable[[], None] = lambda: None,
    idle: float | None = WAIT,
) -> list[Publish]:
    found: list[Publish] = []

    def show(packet: Publish) -> bool:
        found.append(packet)
        return len(found) < count

    await mqtt_network.listen(at, (filter,), qos, show, begun, WAIT, idle)
    return found


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_what_is_sent_is_received_at_its_level(running: InProcessGateway, qos: int) -> None:
    begun = asyncio.Event()
    meter = login(running, "meter1")
    listening = asyncio.create_task(listen(meter, "levels/#", count=2, begun=begun.set))
    await begun.wait()
    await send(login(running, "pump1"), f"levels/{qos}", b"1", b"2", qos=qos)
    found = await listening
    assert [(one.topic, one.payload, one.qos) for one in found] == [
        (f"levels/{qos}", payload, qos) for payload in (b"1", b"2")
    ]
    assert all(one.properties == JSON for one in found)


async def test_a_retained_message_is_received_later(running: InProcessGateway) -> None:
    await send(login(running, "pump1"), "levels/kept", b"on", retain=True)
    (found,) = await listen(login(running, "meter1"), "levels/+")
    assert (found.payload, found.retain) == (b"on", True)


async def test_listening_ends_when_nothing_arrives(running: InProcessGateway) -> None:
    assert await listen(login(running, "meter1"), "levels/none", idle=0.01) == []


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_refused_message_is_an_error(running: InProcessGateway, qos: int) -> None:
    with pytest.raises(NetworkError, match=r"other/1: refused: not authorized: the node does not"):
        await send(login(running, "pump1"), "other/1", b"1", qos=qos, retain=True)


async def test_a_refused_filter_is_an_error(running: InProcessGateway) -> None:
    with pytest.raises(NetworkError, match="a/#/b: refused: topic filter invalid: # must be"):
        await listen(login(running, "meter1"), "a/#/b")


async def test_a_wrong_password_is_an_error_of_its_own(running: InProcessGateway) -> None:
    with pytest.raises(LoginRefused, match="bad user name or password"):
        await send(login(running, "pump1", "wrong"), "levels/1", b"1")


async def test_a_topic_that_is_too_long_is_an_error(running: InProcessGateway) -> None:
    with pytest.raises(NetworkError, match=r"65,?535"):
        await send(login(running, "pump1"), "a" * 65_536, b"1")


async def test_a_gateway_that_is_not_there_is_an_error(
    running: InProcessGateway, unused_tcp_port: int
) -> None:
    with pytest.raises(NetworkError, match=str(unused_tcp_port)):
        await send(login(running, "pump1")._replace(port=unused_tcp_port), "levels/1", b"1")


@asynccontextmanager
async def scripted(at: InProcessGateway, *answers: Packet | bytes) -> AsyncIterator[Login]:
    """Serve one client by TLS that gets an answer for each of its packets, then silence until it
    closes; bytes are sent as they are."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left, parser = list(answers), PacketParser(1 << 20)
        while data := await reader.read(65_536):
            for packet in parser.feed(data):
                if left and not isinstance(packet, Disconnect):
                    answer = left.pop(0)
                    writer.write(answer if isinstance(answer, bytes) else encode(answer, V5))
        writer.close()

    tls = at.context.tls
    assert tls is not None
    context = tls.contexts.get("mqtt")
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield login(at, "pump1")._replace(port=server.sockets[0].getsockname()[1])


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Disconnect(Reason.SERVER_SHUTTING_DOWN), "closed the connection: server shutting down"),
        (encode(Connect("x"), V5), "the gateway violates the protocol"),
        (PubAck(1, 0x97, {Property.REASON_STRING: "full"}), "levels/1: refused: quota .*: full"),
    ],
)
async def test_a_gateway_that_fails_is_an_error(
    running: InProcessGateway, answer: Packet | bytes, text: str
) -> None:
    async with scripted(running, ConnAck(False), answer) as at:
        with pytest.raises(NetworkError, match=text):
            await send(at, "levels/1", b"1")


@pytest.mark.parametrize("answers", [(), (ConnAck(False),)])
async def test_an_answer_that_does_not_come_is_an_error(
    running: InProcessGateway, answers: tuple[Packet, ...]
) -> None:
    """On a slow machine, the time may be over before the log-in."""
    async with scripted(running, *answers) as at:
        with pytest.raises(NetworkError, match=r"not connected in|does not answer in|no answer in"):
            await mqtt_network.send(at, "levels/1", [b"1"], 1, False, NO_PROPERTIES, 0.2)


async def test_a_gateway_that_is_silent_is_asked_and_then_given_up(
    running: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt_network, "KEEP_ALIVE", 0.01)
    client = mqtt_network._Client(asyncio.StreamReader(), Writer())  # type: ignore[arg-type]
    with pytest.raises(NetworkError, match="has not answered"):
        await client.receive_or_ping()
    assert client.writer.data == 2 * encode(PingReq(), V5)  # type: ignore[attr-defined]


class Writer:
    """The end of a stream that nobody reads."""

    data = b""

    def write(self, data: bytes) -> None:
        self.data += data
