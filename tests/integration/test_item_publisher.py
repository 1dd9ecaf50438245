"""Readers are told who published an item, over real sockets (XEP-0060, section 7.1.2.3)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element

import pytest

from tests.helpers.in_process import in_process
from tests.helpers.pubsub import PUBSUB, SERVICE, element, form, options, request_xml
from tests.helpers.xmpp import Client

NODE: Final = "plant/temp"
QUEUE: Final = "jobs"
QOS: Final = "urn:xmpp:qos"
DISCO: Final = "http://jabber.org/protocol/disco#info"

READERS: Final = {
    "filter at level 0": ("plant/+", {"qos": "0"}),
    "filter at level 1": ("plant/+", {"qos": "1"}),
    "filter at level 2": ("plant/+", {"qos": "2"}),
    "share at level 0": ("$share:a:plant/#", {"qos": "0"}),
    "share at level 1": ("$share:b:plant/#", {"qos": "1"}),
    "queue": (QUEUE, {"queue_requests": "5"}),
}
"""The subscriptions by which an item is delivered, with their options."""


async def _stanza(client: Client) -> Element:
    """Read the next stanza; queries for capabilities are answered with QoS support."""
    while len(found := await client.stanza()) and found[0].tag == f"{{{DISCO}}}query":
        answer = f"<query xmlns='{DISCO}'><feature var='{QOS}'/></query>"
        to, id = found.get("from"), found.get("id")
        client.send(f"<iq type='result' id='{id}' to='{to}'>{answer}</iq>")
    return found


async def _ask(client: Client, content: str, type_: str = "set") -> Element:
    """Send a request and return its answer; stanzas before it are dropped."""
    client.send(request_xml(content, type_))
    while (found := await _stanza(client)).get("id") != "r":
        pass
    assert found.get("type") == "result", found[-1][0].tag
    return found


async def _item(client: Client) -> Element:
    """Wait for the next item."""
    while True:
        for one in (await _stanza(client)).iter():
            if one.tag.endswith("}item"):
                return one


class Site:
    """A gateway with the node and the queue, its owner, two sensors and a reader."""

    def __init__(self, owner: Client, pump: Client, valve: Client, reader: Client) -> None:
        self.owner, self.pump, self.valve, self.reader = owner, pump, valve, reader

    async def create(self) -> None:
        """Create the node and the queue."""
        for node, more in ((NODE, {}), (QUEUE, {"queueing": "1"})):
            submitted = form("node_config", {"publish_model": "open", **more})
            await _ask(self.owner, element("create", node=node) + element("configure", submitted))

    async def publish(self, node: str) -> None:
        """Publish one item by an iq, and one by an assured message."""
        item = element("item", "<v xmlns='urn:v'/>", id="pumps", publisher="spoof@gw.example")
        await _ask(self.pump, element("publish", item, node=node))
        to, item = (
            f"{SERVICE}/{node}",
            f"<item xmlns='{PUBSUB}' id='valves'><v xmlns='urn:v'/></item>",
        )
        message = f"<message xmlns='jabber:client'>{item}</message>"
        for step in (f"<assured xmlns='{QOS}' msgId='m'>{message}</assured>",
                     f"<deliver xmlns='{QOS}' msgId='m'/>"):  # fmt: skip
            answer = await self.valve.iq("set", step, to)
            assert answer.get("type") == "result"


@asynccontextmanager
async def site_in(folder: Path) -> AsyncIterator[Site]:
    names = ("owner", "pump", "valve", "reader")
    async with in_process(folder, *names) as gateway, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(await gateway.bound(name)) for name in names]
        clients[-1].send("<presence/>")
        yield Site(*clients)


@pytest.mark.parametrize("reader", READERS)
async def test_a_delivered_item_names_its_publisher(tmp_path: Path, reader: str) -> None:
    target, values = READERS[reader]
    async with site_in(tmp_path) as site:
        await site.create()
        subscribe = element("subscribe", node=target, jid="reader@gw.example")
        await _ask(site.reader, subscribe + options(**values))
        await site.publish(QUEUE if reader == "queue" else NODE)
        found = await _item(site.reader)
        assert (found.get("id"), found.get("publisher")) == ("pumps", "pump@gw.example")


async def test_a_retrieved_item_names_its_publisher(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        await site.create()
        await site.publish(NODE)
        answer = await _ask(site.reader, element("items", node=NODE), "get")
        items = answer.iter(f"{{{PUBSUB}}}item")
        named = [item.get("publisher") for item in items]
        assert named == ["pump@gw.example", "valve@gw.example"]
        subscribe = element("subscribe", node=NODE, jid="reader@gw.example")
        site.reader.send(request_xml(subscribe))  # the last item is sent
        assert (await _item(site.reader)).get("publisher") == "valve@gw.example"
