"""The beginning and the end of subscriptions over real sockets, and removed accounts."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, Final
from xml.etree.ElementTree import Element

from edge.engine import database
from tests.helpers.in_process import in_process
from tests.helpers.pubsub import element, form, options, request_xml
from tests.helpers.xmpp import Client

PATIENCE: Final = 10.0
CREATE: Final = (
    element("create", node="work")
    + f"<configure>{form('node_config', {'queueing': '1'})}</configure>"
)
ITEM: Final = element("publish", element("item", "<v xmlns='urn:v'/>", id="a"), node="work")


async def _ask(client: Client, content: str) -> Element:
    """Send a request and return its answer; earlier stanzas are dropped."""
    client.send(request_xml(content))
    while True:
        found = await client.element()
        if found.tag.endswith("}iq"):
            assert found.attrib["type"] == "result", found[-1][0].tag
            return found


async def _join(client: Client, node: str, jid: str) -> None:
    following = options(queue_requests="2")
    await _ask(client, element("subscribe", node=node, jid=jid) + following)


def _rows(folder: Path, sql: str) -> list[Any]:
    with closing(database.connect_reader(folder / database.FILE_NAME)) as connection:
        return connection.execute(sql).fetchall()


async def test_a_subscriber_is_answered_before_it_gets_items(tmp_path: Path) -> None:
    async with in_process(tmp_path, "bee", "boss") as front:
        boss, bee = await front.bound("boss"), await front.bound("bee")
        await _ask(boss, element("create", node="news"))
        for content in (CREATE, ITEM, ITEM.replace("work", "news")):
            await _ask(boss, content)
        for node in ("work", "news"):
            subscribe = element("subscribe", node=node, jid="bee@gw.example/fw")
            more = options(queue_requests="1") if node == "work" else ""
            bee.send(request_xml(subscribe + more))
            assert (await bee.element()).get("type") == "result"
            assert (await bee.element()).find(f".//*[@node='{node}']/*[@id='a']") is not None
        await boss.close()
        await bee.close()


async def test_subscriptions_and_locks_survive_the_shutdown_of_the_gateway(tmp_path: Path) -> None:
    async with in_process(tmp_path, "bee", "boss") as front:
        boss, bee = await front.bound("boss"), await front.bound("bee")
        await _ask(boss, CREATE)
        await _join(bee, "work", "bee@gw.example/fw")
        await _ask(boss, ITEM)
        await front.front.stop(PATIENCE)
        assert await bee.closed() == await boss.closed() == "system-shutdown"
        folder = front.gateway.folder
    assert _rows(folder, "SELECT jid FROM subscriptions") == [("bee@gw.example/fw",)]
    assert _rows(folder, "SELECT state, holder FROM queue_items") == [
        ("locked", "bee@gw.example/fw")
    ]
