"""Endpoints side by side in one gateway: two listeners, and a listener beside another protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from edge.config.load import Address
from edge.server.endpoints import Endpoints
from edge.server.xmpp.listener import XmppListener
from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway, bind_session, log_in
from tests.helpers.in_process import InProcessGateway, in_process
from tests.helpers.processes import start
from tests.helpers.xmpp import CLIENT, Client, Closed, condition
from tests.toy.client import ToyClient
from tests.toy.listener import ToyListener

PING = "<ping xmlns='urn:xmpp:ping'/>"
BIND = "<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>{}</resource></bind>"
WAIT_S = 10.0


@asynccontextmanager
async def second_listener(gateway: InProcessGateway) -> AsyncIterator[tuple[XmppListener, int]]:
    """Run another listener, on a port of its own, beside the first one of a gateway."""
    listener = XmppListener(gateway.context, gateway.router, [Address("127.0.0.1", 0)], [])
    ((name, address),) = await listener.start()
    assert name == "xmpp"
    try:
        yield listener, address.port
    finally:
        listener.stop_accepting()
        await listener.close(WAIT_S)


def chat_message(to: str, text: str) -> str:
    return f"<message type='chat' to='{to}'><body>{text}</body></message>"


async def next_body(client: Client, tag: str = f"{CLIENT}body") -> str | None:
    while (element := await client.element()).tag != f"{CLIENT}message":
        pass
    return element.findtext(tag)


async def test_sessions_of_two_listeners_reach_each_other(tmp_path: Path) -> None:
    async with (
        in_process(tmp_path, "cam1", "cam2") as gateway,
        second_listener(gateway) as (_, port),
        await gateway.bind_session("cam1") as cam1,
        await bind_session(port, "cam2") as cam2,
    ):
        for sender, recipient in ((cam1, cam2), (cam2, cam1)):
            sender.send(chat_message(recipient.full, f"to {recipient.full}"))
            assert await next_body(recipient) == f"to {recipient.full}"


async def test_a_session_replaces_one_of_another_listener(tmp_path: Path) -> None:
    async with (
        in_process(tmp_path, "cam1") as gateway,
        second_listener(gateway) as (_, port),
        await gateway.bind_session("cam1") as client,
        await bind_session(port, "cam1") as successor,
    ):
        assert await client.closed() == "conflict"
        assert (await successor.iq("get", PING)).get("type") == "result"


async def test_a_listener_ends_without_the_other(tmp_path: Path) -> None:
    async with in_process(tmp_path, "cam1", "cam2") as gateway:
        cam1 = await gateway.bind_session("cam1")
        async with second_listener(gateway) as (listener, port):
            assert listener.up
            cam2 = await bind_session(port, "cam2")
            assert listener.used()["sessions_per_address"] == 2
            assert (await cam2.iq("get", PING)).get("type") == "result"
        assert await cam2.closed() == "system-shutdown"
        assert (await cam1.iq("get", PING)).get("type") == "result"
        with pytest.raises(ConnectionError):
            await Client.connect(port)
    assert await cam1.closed() == "system-shutdown"


async def test_limits_count_the_sessions_of_both_listeners(tmp_path: Path) -> None:
    async with (
        in_process(tmp_path, "cam1", "cam2", sessions=2, sessions_per_account=1) as gateway,
        second_listener(gateway) as (_, port),
        await bind_session(port, "cam1") as first,
    ):
        async with await gateway.log_in("cam1") as client:
            refused = await client.iq("set", BIND.format("other"), to=None)
            assert condition(refused) == "resource-constraint"
        await first.enable()
        first.cut()
        async with await gateway.log_in("cam1") as client:
            while (answer := await client.iq("set", BIND.format("other"), to=None)) is not None:
                if answer.get("type") == "result":
                    break  # the detached session of the second listener was ended for it
                assert condition(answer) == "resource-constraint"
            assert gateway.context.admission.session_count == 1


async def test_limits_count_the_connections_of_both_listeners(tmp_path: Path) -> None:
    limits = {"unauthenticated": 4, "unauthenticated_per_address": 4}
    async with (
        in_process(tmp_path, "cam1", **limits) as gateway,
        second_listener(gateway) as (_, port),
    ):
        idle = [await Client.connect(at) for at in (port, gateway.port, port, gateway.port)]
        for client in idle:
            await client.element()
        async with await Client.connect(port) as refused:
            assert await refused.closed() == "resource-constraint"
        async with await log_in(gateway.port, "cam1", from_="127.0.0.2"):
            assert await idle[0].closed() == "resource-constraint"
        for client in idle:
            client.cut()


async def test_another_protocol_shares_the_limits_of_log_ins(tmp_path: Path) -> None:
    options = {"authenticate_delay": 0.0, "authenticate_failures": 3}
    async with in_process(tmp_path, "cam1", **options) as gateway:
        toy = ToyListener(gateway.context)
        ((_, address),) = await toy.start()
        for password in (*["wrong"] * 3, PASSWORD):
            async with await ToyClient.connect(address) as client:
                refused = ["refused", "login", "password"]
                assert await client.log_in("cam1", password, "toy") == refused
        async with await Client.connect(gateway.port) as other:
            await other.element()
            assert await other.authenticate("SCRAM-SHA-256", "cam1", PASSWORD) != "success"
        toy.stop_accepting()
        await toy.close(WAIT_S)
    failed = [e for e in gateway.gateway.events("system") if e["name"] == "authentication"]
    assert [(e["text"], e["tags"]["account"]) for e in failed] == [("wrong password", "cam1")]


class FailingEndpoint(XmppListener):
    def stop_accepting(self) -> None:
        super().stop_accepting()
        raise OSError("cannot stop accepting")

    async def close(self, patience: float) -> None:
        await super().close(patience)
        raise OSError("cannot close")


async def test_a_front_that_fails_keeps_no_other_from_closing(tmp_path: Path) -> None:
    async with in_process(tmp_path, "cam1") as gateway:
        context = gateway.context
        toy = ToyListener(context)
        failing = [FailingEndpoint(context, gateway.router, [], []) for _ in range(2)]
        endpoints = Endpoints(context, [failing[0], toy, failing[1]])
        ((_, address),) = await endpoints.start()
        client = await ToyClient.begin(address, "cam1")
        with pytest.raises(OSError, match="cannot close"):
            await endpoints.stop(WAIT_S)
        assert await client.line() == ["end", "SHUTDOWN"]
        await client.close()
        assert not toy.up
        with pytest.raises(RuntimeError):
            context.hashing.submit(int)  # the context is closed, too


async def test_a_gateway_runs_another_protocol_beside_xmpp(tmp_path: Path) -> None:
    gateway = Gateway(
        tmp_path / "gateway", "cam1", "cam2", require_tls=False, sessions_per_account=1
    )
    with start("python", "-m", "tests.toy.gateway", gateway.folder) as process:
        toy = await ToyClient.begin(process, "cam2")
        async with await log_in(process, "cam2") as client:
            refused = await client.iq("set", BIND.format("fw"), to=None)
            assert condition(refused) == "resource-constraint", "the toy's session counts"
        async with await bind_session(process, "cam1") as cam1:
            cam1.send(chat_message(f"cam2@{DOMAIN}/toy", "hello, toy"))
            assert "<body>hello, toy</body>" in (await toy.take())[-1]
            toy.send("publish", 0, 0, cam1.full, "text/plain", "hello, cam1")
            assert await next_body(cam1, "{urn:x-fieldpost:content}text") == "hello, cam1"
            status = await asyncio.to_thread(gateway.command, "status", "--json")
            assert json.loads(status)["sessions"] == 2
            assert await asyncio.to_thread(connected, gateway) == {"cam1": "fw", "cam2": "toy"}
            assert await asyncio.to_thread(process.terminate) == 0
            assert await toy.line() == ["end", "SHUTDOWN"]
            with pytest.raises(Closed, match="system-shutdown"):
                await cam1.element()
        await toy.close()


def connected(gateway: Gateway) -> dict[str, Any]:
    """Return the resource of the session of each device that has one."""
    lines = gateway.command("device", "list", "--json").splitlines()
    devices = [json.loads(line) for line in lines]
    return {
        device["name"]: session["resource"]
        for device in devices
        for session in device["sessions"] or []
    }
