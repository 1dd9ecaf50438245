"""The beginning and the end of subscriptions over real sockets."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Final

from edge.engine.store import database
from tests.helpers.in_process import in_process
from tests.helpers.pubsub import element, form, options, request_xml
from tests.helpers.xmpp import Client

BEE: Final = "bee@gw.example/fw"
QUEUE: Final = f"<configure>{form('node_config', {'queueing': '1'})}</configure>"
CREATE: Final = element("create", node="work") + QUEUE
ITEM: Final = element("publish", element("item", "<v xmlns='urn:v'/>", id="a"), node="work")


async def _ask(client: Client, content: str) -> None:
    """Send a request and await its result; earlier stanzas are dropped."""
    client.send(request_xml(content))
    while not (found := await client.element()).tag.endswith("}iq"):
        pass
    assert found.attrib["type"] == "result", found[-1][0].tag


async def test_a_subscriber_is_answered_before_it_gets_items(tmp_path: Path) -> None:
    async with in_process(tmp_path, "bee", "owner") as front:
        owner, bee = await front.bind_session("owner"), await front.bind_session("bee")
        await _ask(owner, element("create", node="news"))
        for content in (CREATE, ITEM, ITEM.replace("work", "news")):
            await _ask(owner, content)
        for node in ("work", "news"):
            extra = options(queue_requests="1") if node == "work" else ""
            bee.send(request_xml(element("subscribe", node=node, jid=BEE) + extra))
            assert (await bee.element()).get("type") == "result"
            assert (await bee.element()).find(f".//*[@node='{node}']/*[@id='a']") is not None
        await owner.close()
        await bee.close()


async def test_subscriptions_and_locks_survive_the_shutdown_of_the_gateway(tmp_path: Path) -> None:
    async with in_process(tmp_path, "bee", "owner") as front:
        owner, bee = await front.bind_session("owner"), await front.bind_session("bee")
        await _ask(owner, CREATE)
        await _ask(bee, element("subscribe", node="work", jid=BEE) + options(queue_requests="2"))
        await _ask(owner, ITEM)
        path = front.gateway.folder / database.FILE_NAME
    assert await bee.closed() == await owner.closed() == "system-shutdown"
    with closing(database.connect_reader(path)) as db:
        assert db.execute("SELECT jid FROM subscriptions").fetchall() == [(BEE,)]
        items = db.execute("SELECT state, holder FROM queue_items").fetchall()
    assert items == [("locked", BEE)]
