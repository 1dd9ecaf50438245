"""Tests of custody at a running gateway that is killed or loses its device between two steps.

The device is scripted: its memory lasts like flash storage, its connection does not. Each test
counts how often it executed each message: once.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest

from tests.helpers.gateway import PASSWORD, Gateway, port_of
from tests.helpers.processes import Process
from tests.helpers.xmpp import CLIENT, Client, log_in

PUMP = "pump1@gw.example/fw"
VALVE = "valve@gw.example"
QOS = "{urn:xmpp:qos}"
INFO = "{http://jabber.org/protocol/disco#info}"
STEP_S = 20.0
LARGEST = 64 * 1024
ENVELOPE = 4 * 1024


class Valve:
    """A scripted device: the messages that it holds, and the bodies that it executed."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        self.released: set[str] = set()
        self.did: list[str] = []
        self.seen: list[str] = []

    def take(self, iq: Element) -> str:
        """Execute an iq and return its answer."""
        request, to = iq[0], f"id='{iq.get('id')}' to='{iq.get('from')}'"
        if request.tag == f"{INFO}query":
            return (
                f"<iq type='result' {to}><query xmlns='{INFO[1:-1]}'>"
                f"<feature var='{QOS[1:-1]}'/></query></iq>"
            )
        step = request.tag.removeprefix(QOS)
        self.seen.append(step)
        msg_id = request.get("msgId", "")
        if step == "assured":
            assert msg_id not in self.released, "offered again after its release"
            self.held[msg_id] = request.findtext(f"{CLIENT}message/{CLIENT}body", "")
            return f"<iq type='result' {to}><received xmlns='{QOS[1:-1]}' msgId='{msg_id}'/></iq>"
        assert step == "deliver"
        assert msg_id in self.held or msg_id in self.released, "released and never offered"
        if msg_id in self.held:
            self.did.append(self.held.pop(msg_id))
            self.released.add(msg_id)
        return f"<iq type='result' {to}/>"

    async def until(self, client: Client, step: str) -> str:
        """Answer all iqs before one of a step; execute that one and return its answer unsent."""
        while True:
            iq = await self.next_request(client)
            answer = self.take(iq)
            if iq[0].tag == QOS + step:
                return answer
            client.send(answer)

    async def next_request(self, client: Client) -> Element:
        """Return the next offered message or `deliver` request."""
        async with asyncio.timeout(STEP_S):
            while True:
                one = await client.stanza()
                if one.tag == f"{CLIENT}iq" and one.get("type") == "set":
                    return one
                if one.tag == f"{CLIENT}iq" and one.get("type") == "get":
                    client.send(self.take(one))


def gateway_in(folder: Path, **options: object) -> Gateway:
    return Gateway(folder / "gateway", "pump1", "valve", retry_after=0.5, **options)


async def come(gateway: Gateway, process: Process, resource: str = "fw") -> Client:
    client = await log_in(port_of(process), gateway.ca, "valve", PASSWORD, resource)
    client.send("<presence/>")
    return client


async def send_assured(gateway: Gateway, process: Process, *texts: str) -> None:
    pump = await log_in(port_of(process), gateway.ca, "pump1", PASSWORD)
    async with pump:
        for text in texts:
            for step in (
                f"<assured xmlns='urn:xmpp:qos' msgId='{text}'><message xmlns='jabber:client'>"
                f"<body>{text}</body></message></assured>",
                f"<deliver xmlns='urn:xmpp:qos' msgId='{text}'/>",
            ):
                answer = await pump.iq("set", step, VALVE)
                assert answer.get("type") == "result"


async def assert_nothing_more(client: Client, valve: Valve) -> None:
    """Assert that nothing else is delivered before a ping is answered."""
    did = len(valve.did)
    client.send("<iq type='get' id='last' to='gw.example'><ping xmlns='urn:xmpp:ping'/></iq>")
    async with asyncio.timeout(STEP_S):
        while (one := await client.stanza()).get("id") != "last":
            if one.tag == f"{CLIENT}iq" and one.get("type") == "set":
                client.send(valve.take(one))
    assert len(valve.did) == did


@pytest.mark.parametrize(("step", "answered"), [("assured", True), ("deliver", False)])
async def test_exchange_continues_after_a_kill_at_any_step(
    tmp_path: Path, step: str, answered: bool
) -> None:
    gateway, valve = gateway_in(tmp_path), Valve()
    with gateway.run() as process:
        await send_assured(gateway, process, "one", "two")
        async with await come(gateway, process) as client:
            answer = await valve.until(client, step)
            if answered:
                client.send(answer)
                await client.writer.drain()
            process.kill9()
    with gateway.run() as process:
        async with await come(gateway, process) as client:
            while len(valve.did) < 2:
                client.send(await valve.until(client, "deliver"))
            await assert_nothing_more(client, valve)
        assert process.terminate() == 0
    assert valve.did == ["one", "two"]


async def test_largest_message_is_delivered_in_a_slightly_larger_stanza(tmp_path: Path) -> None:
    """The stanza contains both addresses twice, and they may be long."""
    gateway, valve = gateway_in(tmp_path), Valve()
    start = (
        f"<iq type='set' id='k' to='{VALVE}'><acknowledged xmlns='urn:xmpp:qos'>"
        "<message xmlns='jabber:client'><body>"
    )
    end = "</body></message></acknowledged></iq>"
    with gateway.run() as process:
        pump = await log_in(port_of(process), gateway.ca, "pump1", PASSWORD, "r" * 1000)
        async with pump, await come(gateway, process) as client:
            pump.send(start + "x" * (LARGEST - len(start) - len(end)) + end)
            assert (await pump.element()).get("type") == "result"
            iq = await valve.next_request(client)
            assert iq[0].tag == f"{QOS}acknowledged"
            assert LARGEST < len(ElementTree.tostring(iq)) < LARGEST + ENVELOPE
