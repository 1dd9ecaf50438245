"""A device's session over real sockets: TLS, log-in, binding, order, bounds, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.gateway import PASSWORD, UNPACED, Gateway, port_of
from tests.helpers.xmpp import BIND, Client, authenticated, condition, log_in, log_message

PING = "<ping xmlns='urn:xmpp:ping'/>"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    return Gateway(tmp_path_factory.mktemp("gw") / "gateway", "cam1", "cam2")


@pytest.fixture(scope="module")
def port(gateway: Gateway) -> Iterator[int]:
    with gateway.run() as process:
        yield port_of(process)
        assert process.terminate() == 0


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


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN"])
@pytest.mark.parametrize("known", [True, False])
async def test_a_wrong_password_and_an_unknown_name_are_answered_alike(
    gateway: Gateway, port: int, mechanism: str, known: bool
) -> None:
    # each from an address of its own, and no other unknown name: who fails again waits longer
    user = "cam1" if known else f"nobody.{mechanism.lower()}"
    async with await Client.connect(port, from_=f"127.0.{1 + known}.{len(mechanism)}") as client:
        await client.start_tls(gateway.ca)
        await client.element()
        assert await client.authenticate(mechanism, user, "wrong") == "not-authorized"


async def test_nothing_but_starttls_is_offered_in_the_clear(port: int) -> None:
    async with await Client.connect(port) as client:
        features = await client.element()
        assert [child.tag for child in features] == [
            "{urn:ietf:params:xml:ns:xmpp-tls}starttls",
            "{urn:xmpp:stream-limits:0}limits",
        ]
        assert await client.authenticate("PLAIN", "cam1", PASSWORD) == "encryption-required"


async def test_the_certificate_is_verified_by_name(gateway: Gateway, port: int) -> None:
    async with await Client.connect(port) as client:
        with pytest.raises(ssl.SSLCertVerificationError):
            await client.start_tls(gateway.ca, domain="other.example")


async def test_old_tls_is_refused(port: int) -> None:
    async with await Client.connect(port) as client:
        await client.element()
        client.send("<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>")
        await client.element()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await client.writer.start_tls(context)


async def test_what_is_sent_ahead_of_the_handshake_is_refused(port: int) -> None:
    async with await Client.connect(port) as client:
        await client.element()
        client.send("<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/><iq type='get' id='1'/>")
        assert await client.closed() == "policy-violation"


async def test_a_stanza_before_binding_ends_the_stream(gateway: Gateway, port: int) -> None:
    async with await Client.connect(port) as client:
        await client.start_tls(gateway.ca)
        await client.element()
        client.send(f"<iq type='get' id='1'>{PING}</iq>")
        assert await client.closed() == "not-authorized"


@pytest.mark.parametrize(
    ("bytes_", "expected"),
    [
        ("<!DOCTYPE x>", "restricted-xml"),
        ("<iq><!-- c --></iq>", "restricted-xml"),
        ("<iq>&bomb;</iq>", "restricted-xml"),
        ("<iq><a></b></iq>", "not-well-formed"),
        (f"<iq id='{'x' * 70_000}'/>", "policy-violation"),
        (f"<iq>{'<a>' * 100}", "policy-violation"),
    ],
)
async def test_hostile_xml_ends_a_bound_stream_with_its_error(
    gateway: Gateway, port: int, bytes_: str, expected: str
) -> None:
    async with await log_in(port, gateway.ca, "cam1", PASSWORD, "hostile") as client:
        client.send(bytes_)
        assert await client.closed() == expected


async def test_a_stranger_gets_small_stanzas_only(port: int) -> None:
    async with await Client.connect(port) as client:
        await client.element()
        client.send(f"<iq id='{'x' * 12_000}'/>")
        assert await client.closed() == "policy-violation"


async def test_a_stanza_in_single_bytes_is_one_stanza(gateway: Gateway, port: int) -> None:
    async with await log_in(port, gateway.ca, "cam1", PASSWORD, "bytewise") as client:
        stanza = f"<iq type='get' id='a>b' to='gw.example'>{PING}</iq>"
        for byte in stanza.encode():
            client.send(bytes([byte]))
            await client.writer.drain()
        assert (await client.element()).get("id") == "a>b"


async def test_a_new_session_replaces_the_old_of_its_address(gateway: Gateway, port: int) -> None:
    old = await log_in(port, gateway.ca, "cam1", PASSWORD)
    new = await log_in(port, gateway.ca, "cam1", PASSWORD)
    async with old, new:
        assert await old.closed() == "conflict"
        assert (await new.iq("get", PING)).get("type") == "result"


async def test_answers_come_in_the_order_of_the_stanzas(gateway: Gateway, port: int) -> None:
    async with await log_in(port, gateway.ca, "cam1", PASSWORD, "order") as client:
        wanted = []
        for number in range(300):
            kind = number % 3
            wanted.append(f"n{number}")
            if kind == 0:
                payload = f"<assured xmlns='urn:xmpp:qos' msgId='{number}'/>"
                client.send(f"<iq type='set' id='n{number}' to='gw.example'>{payload}</iq>")
            elif kind == 1:
                client.send(f"<iq type='get' id='n{number}' to='gw.example'>{PING}</iq>")
            else:
                client.send(f"<iq type='get' id='n{number}'><unknown xmlns='x'/></iq>")
        assert [(await client.element()).get("id") for _ in wanted] == wanted


async def test_an_assured_exchange_survives_the_cut_of_its_connection(
    gateway: Gateway, port: int
) -> None:
    client = await log_in(port, gateway.ca, "cam2", PASSWORD)
    assert await client.assured("cut-1", log_message(1, "Cut")) == "received"
    client.writer.transport.abort()
    async with await log_in(port, gateway.ca, "cam2", PASSWORD) as again:
        assert await again.deliver("cut-1") == "delivered"
        assert await again.deliver("cut-1") == "delivered"
    assert [event["name"] for event in gateway.events("logs")].count("Cut") == 1


async def test_errors_name_the_address_asked(gateway: Gateway, port: int) -> None:
    async with await log_in(port, gateway.ca, "cam1", PASSWORD, "errors") as client:
        cases = {
            "gw.example/nowhere": "service-unavailable",
            "cam2@gw.example": "service-unavailable",
            "elsewhere.example": "remote-server-not-found",
            "@": "jid-malformed",
        }
        for to, expected in cases.items():
            answer = await client.iq("get", PING, to=to)
            assert condition(answer) == expected
            assert answer.get("from") == to


async def flood_until_stuck(client: Client, data: bytes, most: int) -> int:
    """Send until nothing is taken any more for a while; returns the bytes that were."""
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < most:
            client.send(data)
            await asyncio.wait_for(client.writer.drain(), 2)
            sent += len(data)
    return sent


async def test_a_reader_that_never_reads_is_not_read_and_harms_nobody(
    gateway: Gateway, port: int
) -> None:
    async with await log_in(port, gateway.ca, "cam1", PASSWORD, "deaf") as deaf:
        deaf.reader._transport.pause_reading()  # type: ignore[attr-defined]
        flood = f"<iq type='get' id='{'i' * 4000}' to='gw.example'>{PING}</iq>".encode() * 16
        sent = await flood_until_stuck(deaf, flood, 256 * 1024 * 1024)
        assert sent < 64 * 1024 * 1024, "the gateway should have stopped to read"
        async with await log_in(port, gateway.ca, "cam2", PASSWORD, "other") as other:
            assert (await other.iq("get", PING)).get("type") == "result"
        deaf.writer.transport.abort()


async def test_connections_beyond_the_limit_are_told_so(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway", sessions=4, unauthenticated=2)
    with gateway.run() as process:
        port = port_of(process)
        async with await Client.connect(port) as first, await Client.connect(port) as second:
            await first.element()
            await second.element()
            async with await Client.connect(port) as third:
                assert await third.closed() == "resource-constraint"


async def test_strangers_take_no_place_of_a_session(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway", "cam1", sessions=1, unauthenticated=2)
    with gateway.run() as process:
        port = port_of(process)
        async with await Client.connect(port) as stranger:
            await stranger.element()
            async with await log_in(port, gateway.ca, "cam1", PASSWORD) as client:
                assert (await client.iq("get", PING)).get("type") == "result"
                async with await authenticated(port, gateway.ca, "cam1", PASSWORD) as late:
                    bind = f"<bind xmlns='{BIND}'><resource>late</resource></bind>"
                    answer = await late.iq("set", bind, to=None)
                    assert condition(answer) == "resource-constraint"
                    await late.bind("fw")  # a session of the same address is replaced
                    assert await client.closed() == "conflict"


async def test_who_does_not_log_in_in_time_is_closed(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway", authenticate_time=0.3)
    with gateway.run() as process:
        port = port_of(process)
        async with await Client.connect(port) as silent:
            assert await silent.closed() == "connection-timeout"
        with socket.create_connection(("127.0.0.1", port)) as mute:
            mute.settimeout(10)
            assert b"connection-timeout" in mute.recv(4096)


async def test_a_stop_tells_the_sessions_and_closes_the_log(tmp_path: Path) -> None:
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


async def test_without_tls_scram_is_offered_and_plain_never(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway", "cam1", require_tls=False)
    with gateway.run() as process:
        async with await Client.connect(port_of(process)) as client:
            offered = [element.text for element in (await client.element()).iter()]
            assert "SCRAM-SHA-256" in offered
            assert "PLAIN" not in offered
            assert await client.authenticate("SCRAM-SHA-256", "cam1", PASSWORD) == "success"
            assert await client.bind("fw") == "cam1@gw.example/fw"


async def test_a_stream_that_its_client_closes_gets_its_answers_first(
    gateway: Gateway, port: int
) -> None:
    async with await log_in(port, gateway.ca, "cam1", PASSWORD, "leaving") as client:
        pings = [f"<iq type='get' id='p{n}' to='gw.example'>{PING}</iq>" for n in range(20)]
        client.send("".join(pings) + "</stream:stream>")
        assert [(await client.element()).get("id") for _ in pings] == [f"p{n}" for n in range(20)]
        assert await client.closed() is None


def resident(pid: int) -> int:
    """KiB of memory that a process has resident."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    return int(status.partition("VmRSS:")[2].split()[0])


async def test_an_idle_tls_session_holds_no_large_buffer(tmp_path: Path) -> None:
    """asyncio's TLS would hold 288 KiB for each; see `listener`."""
    gateway = Gateway(tmp_path / "gateway", "cam1", sessions_per_account=60)
    with gateway.run() as process:
        async with contextlib.AsyncExitStack() as stack:

            async def connect(first: int, last: int) -> None:
                for number in range(first, last):
                    client = await log_in(
                        port_of(process), gateway.ca, "cam1", PASSWORD, f"s{number}"
                    )
                    await stack.enter_async_context(client)

            await connect(0, 10)
            before = resident(process.pid)
            await connect(10, 60)
            assert (resident(process.pid) - before) / 50 < 144


async def test_a_bound_stream_takes_stanzas_alone(gateway: Gateway, port: int) -> None:
    async with await log_in(port, gateway.ca, "cam1", PASSWORD, "odd") as client:
        client.send("<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'/>")
        assert await client.closed() == "policy-violation"


async def start_handshake(port: int) -> Client:
    """Ask for TLS, and then say nothing more."""
    client = await Client.connect(port)
    await client.element()
    client.send("<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>")
    await client.element()
    return client


async def test_stalled_handshakes_keep_nobody_out_and_give_their_places_back(
    tmp_path: Path,
) -> None:
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
        again = [await start_handshake(port) for _ in range(7)]
        async with await log_in(port, gateway.ca, "cam1", PASSWORD) as client:
            assert (await client.iq("get", PING)).get("type") == "result"
        for client in (*stalled, *again):
            client.writer.transport.abort()
        assert process.terminate() == 0


async def send_for_ever(client: Client, data: bytes) -> None:
    """Send until the connection breaks."""
    while True:
        client.send(data)
        await client.writer.drain()


async def test_who_never_reads_its_answers_is_cut_off(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway", "cam1", stalled_time=0.5, **UNPACED)
    with gateway.run() as process:
        async with await log_in(port_of(process), gateway.ca, "cam1", PASSWORD) as deaf:
            deaf.reader._transport.pause_reading()  # type: ignore[attr-defined]
            ping = f"<iq type='get' id='{'i' * 4000}' to='gw.example'>{PING}</iq>".encode() * 16
            with pytest.raises(ConnectionError):
                await asyncio.wait_for(send_for_ever(deaf, ping), 30)


async def test_a_flood_leaves_others_their_turn(gateway: Gateway, port: int) -> None:
    async with await log_in(port, gateway.ca, "cam1", PASSWORD, "flood") as flood:
        for _ in range(20):
            flood.send("<iq/>" * 10_000)
        async with await log_in(port, gateway.ca, "cam2", PASSWORD, "honest") as honest:
            assert (await honest.iq("get", PING)).get("type") == "result"
        flood.writer.transport.abort()


async def test_what_strangers_were_refused_is_told(tmp_path: Path) -> None:
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
    told = {e["name"]: e["value"] for e in limits}
    assert told == {"connections": 1.0, "authentication": 1.0, "restricted-xml": 1.0}
