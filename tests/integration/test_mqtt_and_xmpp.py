"""Items between MQTT and XMPP; the examples are those of docs/reference/mqtt-and-xmpp.md."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape

import pytest

from edge.mqtt.packets import Property
from tests.helpers.gateway import DOMAIN, Gateway, bind_session
from tests.helpers.mqtt import MqttClient
from tests.helpers.processes import Process
from tests.helpers.xmpp import Client

PAGE: Final = (Path(__file__).parents[2] / "docs/reference/mqtt-and-xmpp.md").read_text("utf-8")
PUBSUB: Final = "http://jabber.org/protocol/pubsub"
SERVICE: Final = f"pubsub.{DOMAIN}"


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading, without the marks of code."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = re.findall(r"^\| (.*) \|$", section, re.MULTILINE)[2:]
    return [[cell.strip().strip("`") for cell in line.split("|")] for line in lines]


TO_XMPP: Final = rows("From MQTT to XMPP")
TO_MQTT: Final = rows("From XMPP to MQTT")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    gateway = Gateway(
        tmp_path_factory.mktemp("gateway"),
        *("pump1", "meter1", "pump2"),
        auto_create=["#"],
        require_tls=False,
    )
    gateway.configure_section("mqtt", listen="127.0.0.1:0", require_tls=False)
    return gateway


@pytest.fixture
async def worker(process: Process) -> AsyncIterator[Client]:
    client = await bind_session(process, "meter1")
    yield client
    await client.close()


@pytest.fixture
async def sensor(process: Process) -> AsyncIterator[MqttClient]:
    async with await MqttClient.connect(process, "pump1") as client:
        yield client


async def ask(client: Client, content: str) -> Element:
    found = await client.iq("set", f"<pubsub xmlns='{PUBSUB}'>{content}</pubsub>", to=SERVICE)
    assert found.get("type") == "result", ElementTree.tostring(found)
    return found


async def item(client: Client) -> Element:
    """Return the element of the next item."""
    message = await client.element()
    [found] = message.iter(f"{{{PUBSUB}#event}}item")
    return found[0]


def canonical(element: Element | str) -> str:
    text = element if isinstance(element, str) else ElementTree.tostring(element, "unicode")
    return ElementTree.canonicalize(text, rewrite_prefixes=True)


def test_the_page_has_examples() -> None:
    assert len(TO_XMPP) > 5
    assert len(TO_MQTT) > 3


@pytest.mark.parametrize(("payload", "content_type", "element"), TO_XMPP)
async def test_mqtt_to_xmpp(
    worker: Client, sensor: MqttClient, payload: str, content_type: str, element: str
) -> None:
    await ask(worker, f"<subscribe node='to-xmpp/#' jid='{worker.full}'/>")
    properties = {Property.CONTENT_TYPE: content_type} if content_type else None
    await sensor.publish("to-xmpp/1", payload.encode(), 1, properties=properties)
    assert canonical(await item(worker)) == canonical(element)


@pytest.mark.parametrize(("element", "payload", "content_type"), TO_MQTT)
async def test_xmpp_to_mqtt(
    worker: Client, sensor: MqttClient, element: str, payload: str, content_type: str
) -> None:
    topic = f"to-mqtt/{content_type}"
    await sensor.subscribe(topic, qos=1)
    await ask(worker, f"<publish node='{topic}'><item>{element}</item></publish>")
    found = await sensor.take()
    assert (found.topic, found.payload) == (topic, payload.encode())
    assert found.properties == {Property.CONTENT_TYPE: content_type}


@pytest.mark.parametrize("topic", ["/a//b/", "a b", "½/é", "a&b<c>'\""])
async def test_a_topic_is_the_name_of_a_node(
    worker: Client, sensor: MqttClient, topic: str
) -> None:
    await sensor.publish(topic, b"1", 1, retain=True)
    name = escape(topic, {"'": "&apos;", '"': "&quot;"})
    await ask(worker, f"<subscribe node='{name}' jid='{worker.full}'/>")
    await sensor.publish(topic, b"2", 1)
    for _payload in (b"1", b"2"):
        message = await worker.element()
        [items] = message.iter(f"{{{PUBSUB}#event}}items")
        assert items.get("node") == topic
