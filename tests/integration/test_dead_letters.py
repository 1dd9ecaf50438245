"""Dead letters are requeued beside a running gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path
from xml.etree.ElementTree import Element

from edge.ops.transactions import changing
from tests.helpers import waiting
from tests.helpers.gateway import PASSWORD, Gateway, port_of
from tests.helpers.xmpp import CLIENT, Client, log_in

SOON_S = 20.0
"""Seconds for an operation that takes five, on two busy cores."""

OWN = ("system", "session")
"""Kinds of events that no operator causes."""

PUMP = "pump1@gw.example"
BODY = b"<message xmlns='jabber:client'><body>open</body></message>"


async def run_command(gateway: Gateway, *words: str) -> str:
    return await asyncio.to_thread(gateway.command, *words)


async def next_stanza(client: Client, tag: str) -> Element:
    """Return the next stanza of a kind; answer requests of the gateway with an error."""
    async with asyncio.timeout(SOON_S):
        while True:
            found = await client.element()
            if found.tag == f"{CLIENT}{tag}":
                return found
            if found.tag == f"{CLIENT}iq" and found.get("type") == "get":
                client.send(
                    f"<iq type='error' id='{found.get('id')}' to='{found.get('from')}'>"
                    "<error type='cancel'><service-unavailable"
                    " xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
                )


async def test_requeued_message_reaches_an_online_device(tmp_path: Path) -> None:
    """The device does not support quality of service, so the message waits for a downgrade."""
    gateway = Gateway(tmp_path / "gateway", "pump1", "valve")
    with gateway.run() as process:
        async with await log_in(port_of(process), gateway.ca, "valve", PASSWORD) as valve:
            valve.send("<presence/>")
            with changing(gateway.folder) as tx:
                row = waiting.add_dead_letter(tx, recipient="valve", body=BODY, outbox=None)
            assert await run_command(gateway, "dead", "requeue", str(row)) == f"{row} is requeued\n"
            assert await run_command(gateway, "dead", "list") == ""
            await run_command(gateway, "device", "downgrade", "valve", "on")
            message = await next_stanza(valve, "message")
            assert message.findtext(f"{CLIENT}body") == "open"
            assert message.get("from") == f"{PUMP}/fw"
            assert message.get("to", "").partition("/")[0] == "valve@gw.example"
        assert process.terminate() == 0
    names = [event["name"] for event in gateway.events("system") if event["kind"] not in OWN]
    assert names[:2] == ["requeued", "downgrade_on"]
