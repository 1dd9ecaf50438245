"""The gateway as a component of a real Prosody."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.ops.devices import device_status, devices
from edge.ops.gateway import control
from tests.helpers.gateway import DOMAIN, Gateway
from tests.helpers.processes import Process, start
from tests.helpers.prosody import HOST, PROGRAM, Prosody, component_gateway
from tests.helpers.xmpp import condition, log_message

USERS = ("pump1", "pump2", "other")
INFO = "<query xmlns='http://jabber.org/protocol/disco#info'/>"
ITEMS = "<query xmlns='http://jabber.org/protocol/disco#items'/>"
PING = "<ping xmlns='urn:xmpp:ping'/>"

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no prosody (make interop-packages)")

BEAT_S = 30.0
"""Seconds until the first heartbeat, which is due after one."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prosody]:
    with Prosody(tmp_path_factory.mktemp("prosody") / "p", DOMAIN, *USERS) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(server: Prosody, tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    return component_gateway(tmp_path_factory.mktemp("gateway") / "gw", server, "pump1", "pump2")


@pytest.fixture(scope="module")
def running(gateway: Gateway) -> Iterator[Process]:
    with gateway.run() as process:
        yield process
        assert process.terminate() == 0
        assert all(" Warning: limit " in line for line in process.stderr.splitlines())


def events_of(gateway: Gateway, user: str) -> list[tuple[str, int]]:
    """Return the texts and levels of a user's log events."""
    source = f"{user}@{HOST}/fw"
    found = [event for event in gateway.events("logs") if event["source"] == source]
    return [(event["text"], event["qos"]) for event in found]


async def test_users_of_the_server_discover_and_ping(server: Prosody, running: Process) -> None:
    assert list(running.addresses) == ["component"]
    async with await server.log_in("pump1", "disco") as client:
        host = await client.iq("get", ITEMS, to=HOST)
        assert host.get("type") == "result"
        info = await client.iq("get", INFO)
        features = {child.get("var") for child in info[0]}
        (identity,) = [child for child in info[0] if child.tag.endswith("identity")]
        assert (identity.get("category"), identity.get("type")) == ("component", "generic")
        assert {"urn:xmpp:qos", "urn:xmpp:ping", "urn:xmpp:eventlog"} <= features
        assert features.isdisjoint({"jabber:iq:roster", "jabber:iq:register", "msgoffline"})
        assert (await client.iq("get", PING)).get("type") == "result"


@pytest.mark.parametrize(
    ("to", "payload"),
    [
        *((to, PING) for to in (f"pump1@{DOMAIN}", f"pump1@{DOMAIN}/fw", f"{DOMAIN}/nobody")),
        (DOMAIN, "<query xmlns='jabber:iq:register'/>"),
        (DOMAIN, "<query xmlns='jabber:iq:roster'/>"),
    ],
)
async def test_features_of_the_server_are_not_offered(
    server: Prosody, running: Process, to: str, payload: str
) -> None:
    async with await server.log_in("pump1", "asks") as client:
        assert condition(await client.iq("get", payload, to=to)) == "service-unavailable"


async def test_presence_is_shown_to_trusted_users(server: Prosody, running: Process) -> None:
    async with await server.log_in("pump2", "sees") as client:
        await client.iq("get", "<query xmlns='jabber:iq:roster'/>", to=None)
        client.send("<presence/>")
        assert (await client.element()).get("from") == client.full
        client.send(f"<presence to='{DOMAIN}' type='subscribe'/>")
        kinds: list[str | None] = []
        while None not in kinds:
            found = await client.element()
            if found.tag.endswith("presence") and found.get("from") == DOMAIN:
                kinds.append(found.get("type"))
        assert set(kinds) == {"subscribed", "subscribe", None}


async def test_oversized_stanza_affects_only_its_sender(
    server: Prosody, gateway: Gateway, running: Process
) -> None:
    async with await server.log_in("pump1", "big") as big, await server.log_in("pump2") as other:
        for content in ("x" * 70_000, "<a/>" * 2_000, "<a>" * 40 + "</a>" * 40):
            big.send(f"<message to='{DOMAIN}' id='big'><b xmlns='urn:b'>{content}</b></message>")
            assert condition(await big.element()) == "policy-violation"
        assert (await other.iq("get", PING)).get("type") == "result"
        assert (await big.iq("get", PING)).get("type") == "result"


async def test_a_flood_does_not_block_other_users(server: Prosody, running: Process) -> None:
    async with (
        await server.log_in("other", "flood") as flood,
        await server.log_in("pump2", "calm") as calm,
    ):
        flood.send(f"<message to='{DOMAIN}'>{log_message(1)}</message>" * 1000)
        for _ in range(5):
            assert (await calm.iq("get", PING)).get("type") == "result"
        for _ in range(1000):
            assert condition(await flood.element()) == "not-allowed"


def server_and_gateway(folder: Path) -> tuple[Prosody, Gateway]:
    """Create a server and a gateway for one test."""
    server = Prosody(folder / "prosody", DOMAIN, "pump1")
    return server, component_gateway(folder / "gateway", server, "pump1")


def test_wrong_secret_is_reported_and_can_be_corrected(tmp_path: Path) -> None:
    server, gateway = server_and_gateway(tmp_path)
    secret = gateway.folder / "component.secret"
    right = secret.read_text()
    secret.write_text("another")
    secret.chmod(0o644)
    with server, start("fieldpost", "run", "--dir", gateway.folder, ready=False) as process:
        process.wait_for_stderr("can be read by others")
        process.wait_for_stderr("the server refused the secret")
        secret.write_text(right)
        process.wait_ready()
        assert process.terminate() == 0
    events = {event["name"]: event for event in gateway.events("system")}
    assert list(events) == ["start", "component_lost", "component_attached", "component", "stop"]
    assert "refused the secret" in events["component_lost"]["text"]


def test_failed_attachment_is_reported_and_can_be_stopped(tmp_path: Path) -> None:
    server, gateway = server_and_gateway(tmp_path)
    gateway.configure(domain="other.example")
    error = "the server has no component of this name"
    with server, start("fieldpost", "run", "--dir", gateway.folder, ready=False) as process:
        process.wait_for_stderr(error)
        assert process.terminate() == 0
        assert process.stdout == ""
        assert process.stderr.count(error) == 1
    assert any(error in (event["text"] or "") for event in gateway.events("system"))


def test_waiting_for_the_server_is_reported_to_systemd(tmp_path: Path) -> None:
    server, gateway = server_and_gateway(tmp_path)
    gateway.configure(heartbeat=1)
    with start("fieldpost", "run", "--dir", gateway.folder, ready=False) as process:
        process.wait_for_stderr(
            f"127.0.0.1:{server.component} cannot be reached: Connection refused"
        )
        deadline = time.monotonic() + BEAT_S
        while not any(event["name"] == "heartbeat" for event in gateway.events("system")):
            assert time.monotonic() < deadline
        with server:
            process.wait_ready()
            assert process.terminate() == 0


async def test_users_of_a_trusted_domain_are_trusted_unless_revoked(tmp_path: Path) -> None:
    server, gateway = server_and_gateway(tmp_path)
    gateway.configure(trusted_domains=[HOST])
    pump = f"pump1@{HOST}"
    devices.remove(gateway.folder, pump)
    with server, gateway.run():
        async with await server.log_in("pump1") as client:
            assert await client.assured("m1", log_message(1)) == "received"
            assert await client.deliver("m1") == "delivered"
            assert await client.assured("m2", log_message(2)) == "received"
            devices.add(gateway.folder, pump, None, trusted=True)
            devices.revoke(gateway.folder, pump)
            assert await client.assured("m3", log_message(3)) == "not-allowed"
            assert await client.deliver("m2") == "not-allowed"


async def test_killed_server_is_reconnected(tmp_path: Path) -> None:
    server, gateway = server_and_gateway(tmp_path)
    with server, gateway.run() as process:
        async with await server.log_in("pump1") as client:
            assert await client.assured("m1", log_message(1)) == "received"
        for number in (signal.SIGKILL, signal.SIGTERM):
            server.stop(number)
            process.wait_for_stderr("; retrying")
            assert "it has no link to the XMPP server" in gateway.command("status")
            server.start()
            log_line = "External component successfully authenticated"
            await asyncio.to_thread(server.wait_for, log_line)
        async with await server.log_in("pump1") as client:
            assert await client.deliver("m1") == "delivered"
        assert process.terminate() == 0
    assert events_of(gateway, "pump1") == [("Entered.", 2)]


async def test_custody_follows_a_device_that_returns_with_another_resource(tmp_path: Path) -> None:
    """The gateway learns from the server that the first session has gone."""
    server, gateway = server_and_gateway(tmp_path)
    with server, gateway.run() as process:
        async with await server.log_in("pump1", "first") as client:
            assert await client.assured("m1", log_message(1)) == "received"
        async with await server.log_in("pump1", "second") as client:
            answers: list[str] = []
            while answers[-1:] not in (["delivered"], ["item-not-found"]):
                answers.append(await client.deliver("m1"))
            assert set(answers) <= {"unexpected-request", "delivered"}
            assert sessions_of(gateway) == ["second"]
        async with await server.log_in("pump1", "third") as client:
            assert (await client.iq("get", PING)).get("type") == "result"
            assert await client.deliver("m1") == "delivered"
        assert process.terminate() == 0
    texts = [event["text"] for event in gateway.events("logs")]
    assert texts == ["Entered."]


async def test_device_list_shows_nobody_who_is_not_connected(tmp_path: Path) -> None:
    """The server answers the gateway's probes for users that are not there."""
    server, gateway = server_and_gateway(tmp_path)
    for user in ("pump2", "nobody"):
        devices.add(gateway.folder, f"{user}@{HOST}", None, trusted=True)
    with server, gateway.run() as process:
        async with await server.log_in("pump1") as client:
            await client.iq("get", PING)  # answered after what the server sent before
            states = {
                one.device.name: one.state for one in device_status.read(gateway.folder).devices
            }
        assert process.terminate() == 0
    assert states == {
        f"pump1@{HOST}": "online",
        f"pump2@{HOST}": "offline",
        f"nobody@{HOST}": "offline",
    }


def sessions_of(gateway: Gateway) -> list[str]:
    found = control.device_connections(gateway.folder)
    return [] if found is None else [session.resource for session in found.sessions]
