from __future__ import annotations

import asyncio
import contextlib
import gc
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from edge.server.mqtt.connection import MqttConnection
from edge.server.session import Session
from edge.server.wire import SocketWire
from edge.server.xmpp.connection import XmppConnection
from edge.server.xmpp.stream_input import StreamInput
from edge.xmpp import parser
from tests.helpers.garbage import no_garbage_collection
from tests.helpers.gateway import PASSWORD, Gateway, port_of
from tests.helpers.in_process import InProcessGateway, in_process
from tests.helpers.mqtt import MqttClient
from tests.helpers.xmpp import BIND, Client, condition, log_in

PING = "<ping xmlns='urn:xmpp:ping'/>"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    return Gateway(tmp_path_factory.mktemp("gw") / "gateway", "cam1", "cam2")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN"])
async def test_a_device_logs_in_by_each_mechanism(
    gateway: Gateway, port: int, mechanism: str
) -> None:
    async with await Client.connect(port) as client:
        await client.start_tls(gateway.ca)
        features = await client.element()
        assert mechanism in [element.text for element in features.iter()]
        assert await client.authenticate(mechanism, "cam1", PASSWORD) == "success"
        assert await client.bind("fw") == "cam1@gw.example/fw"
        assert (await client.iq("get", PING)).get("type") == "result"


async def test_the_server_certificate_is_for_the_domain(gateway: Gateway, port: int) -> None:
    async with await Client.connect(port) as client:
        with pytest.raises(ssl.SSLCertVerificationError):
            await client.start_tls(gateway.ca, domain="other.example")


async def test_answers_keep_the_order_of_the_stanzas(gateway: Gateway, port: int) -> None:
    async with await log_in(port, gateway.ca, "cam1", PASSWORD, "order") as client:
        ids = []
        for number in range(300):
            kind = number % 3
            ids.append(f"n{number}")
            if kind == 0:
                payload = f"<assured xmlns='urn:xmpp:qos' msgId='{number}'/>"
                client.send(f"<iq type='set' id='n{number}' to='gw.example'>{payload}</iq>")
            elif kind == 1:
                client.send(f"<iq type='get' id='n{number}' to='gw.example'>{PING}</iq>")
            else:
                client.send(f"<iq type='get' id='n{number}'><unknown xmlns='x'/></iq>")
        assert [(await client.element()).get("id") for _ in ids] == ids


async def test_unauthenticated_connections_do_not_count_as_sessions(tmp_path: Path) -> None:
    async with (
        in_process(tmp_path, "cam1", sessions=1, unauthenticated=2) as front,
        await Client.connect(front.port) as unauthenticated,
    ):
        await unauthenticated.element()
        async with await front.bind_session("cam1") as client:
            assert (await client.iq("get", PING)).get("type") == "result"
            async with await front.log_in("cam1") as second:
                bind = f"<bind xmlns='{BIND}'><resource>second</resource></bind>"
                answer = await second.iq("set", bind, to=None)
                assert condition(answer) == "resource-constraint"
                await second.bind("fw")  # a session of the same address is replaced
                assert await client.closed() == "conflict"


async def test_shutdown_ends_sessions_and_is_logged(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway", "cam1")
    with gateway.run() as process:
        port = port_of(process)
        async with await log_in(port, gateway.ca, "cam1", PASSWORD) as client:
            loop = asyncio.get_running_loop()
            stopped = loop.run_in_executor(None, process.terminate)
            assert await client.closed() == "system-shutdown"
            assert await stopped == 0
    names = [event["name"] for event in gateway.events("system")]
    assert names[0] == "start"
    assert names[-1] == "stop"


async def test_a_closing_client_gets_its_answers_first(gateway: Gateway, port: int) -> None:
    async with await log_in(port, gateway.ca, "cam1", PASSWORD, "leaving") as client:
        pings = [f"<iq type='get' id='p{n}' to='gw.example'>{PING}</iq>" for n in range(20)]
        client.send("".join(pings) + "</stream:stream>")
        assert [(await client.element()).get("id") for _ in pings] == [f"p{n}" for n in range(20)]
        assert await client.closed() is None


async def test_an_idle_tls_session_uses_little_memory(tmp_path: Path) -> None:
    """asyncio's TLS alone would use 288 KiB; see `TlsTransport` and `release`."""
    gateway = Gateway(tmp_path / "gateway", "cam1", sessions_per_account=160)
    with gateway.run() as process:
        async with contextlib.AsyncExitStack() as stack:

            async def connect(first: int, last: int) -> None:
                for number in range(first, last):
                    client = await log_in(
                        port_of(process), gateway.ca, "cam1", PASSWORD, f"s{number}"
                    )
                    await stack.enter_async_context(client)

            await connect(0, 10)
            before = psutil.Process(process.pid).memory_info().rss
            await connect(10, 160)
            growth = psutil.Process(process.pid).memory_info().rss - before
            assert growth / 150 < 46 * 1024


def parts_of_sessions(gateway: InProcessGateway) -> list[object]:
    """Return the sessions, connections and transports, with and without TLS, of a gateway."""
    ports = gateway.port, gateway.mqtt.port

    def is_part(one: object) -> bool:
        if isinstance(one, asyncio.Transport):
            return (one.get_extra_info("sockname") or ("", 0))[1] in ports
        return isinstance(one, SocketWire | XmppConnection | MqttConnection | Session)

    return [one for one in gc.get_objects() if is_part(one)]


async def open_xmpp(gateway: InProcessGateway) -> Client:
    return await log_in(gateway.port, gateway.gateway.ca, "cam1", PASSWORD)


async def open_mqtt(gateway: InProcessGateway) -> MqttClient:
    return await MqttClient.connect(gateway.mqtt, "cam1")


async def begin_handshake(gateway: InProcessGateway) -> Client:
    return await start_handshake(gateway.port)


@pytest.mark.parametrize("connect", [open_xmpp, open_mqtt, begin_handshake])
async def test_a_lost_connection_is_freed_without_garbage_collection(
    tmp_path: Path, connect: Callable[[InProcessGateway], Awaitable[Client | MqttClient]]
) -> None:
    """The collector counts objects, of which a TLS connection has few, and not their 70 KiB."""
    async with in_process(tmp_path, "cam1") as gateway:
        with no_garbage_collection():
            earlier = {id(part) for part in parts_of_sessions(gateway)}  # of other tests
            client = await connect(gateway)
            assert {id(part) for part in parts_of_sessions(gateway)} - earlier
            client.writer.transport.abort()
            async with asyncio.timeout(30):
                while {id(part) for part in parts_of_sessions(gateway)} - earlier:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await client.close()


async def start_handshake(port: int) -> Client:
    """Request TLS and send nothing more."""
    client = await Client.connect(port)
    await client.element()
    client.send("<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>")
    await client.element()
    return client


async def test_stalled_handshakes_do_not_block_others(tmp_path: Path) -> None:
    gateway = Gateway(
        tmp_path / "gateway", "cam1", unauthenticated=8, handshakes=2, authenticate_time=2.0
    )
    with gateway.run() as process:
        port = port_of(process)
        stalled = [await start_handshake(port) for _ in range(7)]
        async with await log_in(port, gateway.ca, "cam1", PASSWORD) as client:
            assert (await client.iq("get", PING)).get("type") == "result"
        for client in stalled:
            assert await client.closed() is None
        more = [await start_handshake(port) for _ in range(7)]
        async with await log_in(port, gateway.ca, "cam1", PASSWORD) as client:
            assert (await client.iq("get", PING)).get("type") == "result"
        for client in (*stalled, *more):
            client.writer.transport.abort()
        assert process.terminate() == 0


async def test_refusals_of_unauthenticated_peers_are_logged(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway", "cam1", unauthenticated=1)
    with gateway.run() as process:
        port = port_of(process)
        async with await Client.connect(port) as first:
            async with await Client.connect(port) as second:
                assert await second.closed() == "resource-constraint"
            await first.start_tls(gateway.ca)
            await first.element()
            assert await first.authenticate("SCRAM-SHA-1", "cam1", "wrong") == "not-authorized"
            first.send("<!DOCTYPE x>")
            assert await first.closed() == "restricted-xml"
        assert process.terminate() == 0
    limits = [e for e in gateway.events("system") if e["kind"] == "limit"]
    assert {e["source"] for e in limits} == {"127.0.0.1"}
    counts = {e["name"]: e["value"] for e in limits}
    assert counts == {"connections": 1.0, "authentication": 1.0, "restricted-xml": 1.0}


def has_expat(gateway: InProcessGateway) -> bool:
    (connection,) = gateway.listener._registry._connections
    assert isinstance(connection, XmppConnection)
    assert isinstance(connection._wire, SocketWire)
    stream_input = connection._wire._parser
    assert isinstance(stream_input, StreamInput)
    return stream_input._parser._expat is not parser._NO_EXPAT


async def test_an_idle_session_has_no_expat(tmp_path: Path) -> None:
    async with (
        in_process(tmp_path, "cam1") as gateway,
        await gateway.bind_session("cam1") as client,
    ):
        assert not has_expat(gateway)
        for _ in range(2):
            assert (await client.iq("get", PING)).get("type") == "result"
            assert has_expat(gateway)
            gateway.listener._registry.release_idle()
            assert has_expat(gateway)
            gateway.listener._registry.release_idle()
            assert not has_expat(gateway)
