"""Custody over real sockets, between two devices, with the gateway killed at every step."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from xml.etree.ElementTree import Element

import pytest

from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway, port_of
from tests.helpers.xmpp import CLIENT, Client, Closed

VALVE = f"valve@{DOMAIN}"
QOS = "{urn:xmpp:qos}"
INFO = "http://jabber.org/protocol/disco#info"
MESSAGE = "<message xmlns='jabber:client'><body>open</body></message>"
STEPS = {
    "assured": f"<assured xmlns='urn:xmpp:qos' msgId='m1'>{MESSAGE}</assured>",
    "deliver": "<deliver xmlns='urn:xmpp:qos' msgId='m1'/>",
}


class Valve:
    """A device that takes messages: what it holds and has done outlasts its connections."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.released: set[str] = set()
        self.done: list[str] = []

    async def serve(self, client: Client, stops_at: str) -> str:
        """Answer until the step `stops_at` has come, which is left unanswered, or all is done."""
        client.send("<presence/>")
        while True:
            stanza = await client.stanza()
            if stanza.tag != f"{CLIENT}iq" or stanza.get("type") != "set":
                self._tell(client, stanza)
                continue
            step = stanza[0].tag.removeprefix(QOS)
            if step == stops_at:
                return step
            client.send(self._answer(stanza, step))
            if step == "deliver":
                assert await until_ping(client) == []
                return "done"

    def _tell(self, client: Client, stanza: Element) -> None:
        if stanza.find(f"{{{INFO}}}query") is not None:
            feature = "<feature var='urn:xmpp:qos'/>"
            client.send(
                f"<iq type='result' id='{stanza.get('id')}' to='{stanza.get('from')}'>"
                f"<query xmlns='{INFO}'>{feature}</query></iq>"
            )

    def _answer(self, stanza: Element, step: str) -> str:
        msg_id, content = stanza[0].get("msgId", ""), ""
        if step == "assured":
            assert stanza[0][0].findtext(f"{CLIENT}body") == "open"
            self.held.add(msg_id)
            content = f"<received xmlns='urn:xmpp:qos' msgId='{msg_id}'/>"
        elif msg_id in self.held:
            self.held.remove(msg_id)
            self.released.add(msg_id)
            self.done.append(msg_id)
        assert step == "assured" or msg_id in self.released
        where = f"id='{stanza.get('id')}' to='{stanza.get('from')}'"
        return f"<iq type='result' {where}>{content}</iq>"


async def bound(port: int, user: str) -> Client:
    client = await Client.connect(port)
    await client.element()
    assert await client.authenticate("SCRAM-SHA-256", user, PASSWORD) == "success"
    await client.bind("fw")
    return client


async def until_ping(client: Client) -> list[Element]:
    """Return the iqs that come before the gateway has done all that it was sent."""
    client.send(f"<iq type='get' id='p' to='{DOMAIN}'><ping xmlns='urn:xmpp:ping'/></iq>")
    found = []
    while (stanza := await client.stanza()).get("id") != "p":
        if stanza.tag == f"{CLIENT}iq":
            found.append(stanza)
    return found


async def hand_over(port: int) -> None:
    """Send the message by both steps, again if the gateway has been killed in between."""
    async with await bound(port, "pump") as client:
        for payload in STEPS.values():
            answer = await client.iq("set", payload, to=VALVE)
            assert answer.get("type") == "result"


@pytest.mark.parametrize("killed_at", ["offer", "release", "answer"])
async def test_a_message_is_done_once_though_the_gateway_is_killed(
    tmp_path: Path, killed_at: str
) -> None:
    gateway = Gateway(tmp_path / "gateway", "pump", "valve", require_tls=False)
    valve = Valve()
    with gateway.run() as process:
        await hand_over(port_of(process))
        async with await bound(port_of(process), "valve") as client:
            stops_at = {"offer": "assured", "release": "deliver", "answer": "never"}[killed_at]
            await valve.serve(client, stops_at)
            process.kill9()
            with suppress(Closed):
                await client.element()
    with gateway.run() as process:
        async with await bound(port_of(process), "valve") as client:
            if killed_at == "answer":
                client.send("<presence/>")
                assert await until_ping(client) == [], "nothing is left to hand over"
            else:
                assert await valve.serve(client, "never") == "done"
        assert process.terminate() == 0
    assert len(valve.done) == 1
    assert valve.held == set()
    assert not [event for event in gateway.events("system") if event.get("level") == "Error"]


async def test_a_message_that_was_accepted_waits_through_a_kill_for_its_device(
    tmp_path: Path,
) -> None:
    gateway = Gateway(tmp_path / "gateway", "pump", "valve", require_tls=False)
    with gateway.run() as process:
        await hand_over(port_of(process))
        process.kill9()
    valve = Valve()
    with gateway.run() as process:
        async with await bound(port_of(process), "valve") as client:
            assert await valve.serve(client, "never") == "done"
        assert process.terminate() == 0
    assert len(valve.done) == 1
