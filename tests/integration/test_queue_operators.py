"""`fieldpost queue` with a running gateway shows connected members and unlocks stuck items."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from edge.xmpp.namespaces import COMMANDS, PUBSUB, PUBSUB_EVENT
from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway, port_of
from tests.helpers.xmpp import CLIENT, Client, log_in

SOON_S = 20.0
"""Timeout in seconds for what takes five on an idle machine."""

SERVICE = f"pubsub.{DOMAIN}"
QUEUEING = (
    "<configure><x xmlns='jabber:x:data' type='submit'><field var='pubsub#queueing'>"
    "<value>1</value></field></x></configure>"
)
ONE_AT_A_TIME = (
    "<options><x xmlns='jabber:x:data' type='submit'><field var='pubsub#queue_requests'>"
    "<value>1</value></field></x></options>"
)


async def show(gateway: Gateway, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await do(gateway, "show", "work", "--json", *words))
    return found


async def do(gateway: Gateway, *words: str) -> str:
    return await asyncio.to_thread(gateway.command, "queue", *words)


async def ask(client: Client, content: str) -> Element:
    """Send an iq to the service and return the answer; earlier stanzas are dropped."""
    client.send(f"<iq type='set' id='q' to='{SERVICE}'>{content}</iq>")
    async with asyncio.timeout(SOON_S):
        while True:
            found = await client.element()
            if found.tag == f"{CLIENT}iq" and found.get("id") == "q":
                assert found.get("type") == "result", list(found.iter())
                return found


async def pubsub(client: Client, content: str) -> None:
    await ask(client, f"<pubsub xmlns='{PUBSUB}'>{content}</pubsub>")


async def next_item_element(client: Client) -> Element:
    """Return the element about an item in the next message."""
    async with asyncio.timeout(SOON_S):
        while True:
            found = await client.element()
            items = found.find(f"{{{PUBSUB_EVENT}}}event/{{{PUBSUB_EVENT}}}items")
            if items is not None:
                return items[0]


def subscribe(name: str) -> str:
    return f"<subscribe node='work' jid='{name}@{DOMAIN}/fw'/>{ONE_AT_A_TIME}"


async def test_the_operator_sees_and_unlocks_a_stuck_item(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway", "pump1", "valve")
    with gateway.run() as process:
        port = port_of(process)
        async with (
            await log_in(port, gateway.ca, "pump1", PASSWORD) as pump,
            await log_in(port, gateway.ca, "valve", PASSWORD) as valve,
        ):
            await pubsub(pump, f"<create node='work'/>{QUEUEING}")
            await pubsub(valve, subscribe("valve"))
            for id in ("a", "b"):
                await pubsub(pump, f"<publish node='work'><item id='{id}'/></publish>")
            assert (await next_item_element(valve)).get("id") == "a"
            found = await show(gateway)
            (member,) = found["members"]
            assert (member["there"], member["in_flight"]) == ([f"valve@{DOMAIN}/fw"], 1)
            first, second = found["items_shown"]
            assert (first["item"], first["why"]) == ("a", "locked")
            assert (second["why"], second["sentence"]) == (
                "full",
                "each connected member has as many items as it accepts:"
                f" valve@{DOMAIN}/fw has 1 of 1",
            )
            asked = await ask(
                pump, f"<command xmlns='{COMMANDS}' node='urn:x-fieldpost:queue#show'/>"
            )
            assert asked[0].get("status") == "executing"
            assert await do(gateway, "unlock", "work", "a", "--yes") == "a is unlocked\n"
            notice = await next_item_element(valve)
            assert (notice.tag.rpartition("}")[2], notice.get("id")) == ("unlock", "a")
