"""Shared subscriptions over real sockets: vanished and returning members, and a killed gateway."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from hashlib import sha1
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element

import pytest

from tests.helpers.gateway import Gateway, bound
from tests.helpers.in_process import in_process
from tests.helpers.processes import Process
from tests.helpers.pubsub import SERVICE, element, form, options
from tests.helpers.shared_subscriptions import NODE, SHARE, item_id
from tests.helpers.xmpp import Client

PUBSUB: Final = "http://jabber.org/protocol/pubsub"
QOS: Final = "urn:xmpp:qos"
DISCO: Final = "http://jabber.org/protocol/disco#info"
VER: Final = b64encode(sha1(f"{QOS}<".encode(), usedforsecurity=False).digest()).decode()
CAPS: Final = (
    "<c xmlns='http://jabber.org/protocol/caps' hash='sha-1' node='urn:example:worker'"
    f" ver='{VER}'/>"
)
"""Announces the one feature that a worker names when it is queried (XEP-0115)."""


NAMES: Final = ("engine", "ant", "bee")


class Worker:
    """A member that supports QoS, and answers deliveries on request."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def _stanza(self) -> Element:
        """Read the next stanza that is not a query for capabilities; these are answered."""
        query = f"{{{DISCO}}}query"
        while len(found := await self.client.stanza()) and found[0].tag == query:
            self.answer(found, f"<query xmlns='{DISCO}'><feature var='{QOS}'/></query>")
        return found

    async def ask(self, content: str) -> Element:
        """Send a request to the service and return the answer; earlier stanzas are dropped."""
        payload = f"<pubsub xmlns='{PUBSUB}'>{content}</pubsub>"
        self.client.send(f"<iq type='set' id='ask' to='{SERVICE}'>{payload}</iq>")
        while (found := await self._stanza()).get("id") != "ask":
            pass
        assert found.get("type") == "result", found
        return found

    async def appear(self, caps: str = "") -> None:
        """Become available, with these capabilities."""
        self.client.send(f"<presence>{caps}</presence>")
        while (await self._stanza()).get("from") != self.client.full:
            pass

    async def join(self, qos: int) -> None:
        """Join the shared subscription."""
        bare = self.client.full.partition("/")[0]
        await self.ask(element("subscribe", node=SHARE, jid=bare) + options(qos=str(qos)))

    async def next_delivery(self) -> Element:
        """Wait for the next message, or the next iq that delivers one."""
        while True:
            found = await self._stanza()
            if found.tag == "{jabber:client}message" or found.get("type") == "set":
                return found

    def answer(self, iq: Element, payload: str = "") -> None:
        """Send the result of an iq."""
        self.client.send(
            f"<iq type='result' id='{iq.get('id')}' to='{iq.get('from')}'>{payload}</iq>"
        )

    async def expect_nothing(self) -> None:
        """Check that nothing has arrived: the next stanza is the answer to a ping."""
        self.client.send(
            "<iq type='get' id='ping' to='gw.example'><ping xmlns='urn:xmpp:ping'/></iq>"
        )
        assert (await self._stanza()).get("id") == "ping"


@asynccontextmanager
async def present(at: int | Process, *users: str, caps: str = "") -> AsyncIterator[list[Worker]]:
    """Log users in and make them available, with these capabilities."""
    async with AsyncExitStack() as stack:
        found = []
        for user in users:
            client = await stack.enter_async_context(await bound(at, user))
            found.append(Worker(client))
            await found[-1].appear(caps)
        yield found


def received(iq: Element) -> str:
    return f"<received xmlns='{QOS}' msgId='{iq[0].get('msgId')}'/>"


def item_of(iq: Element) -> str | None:
    return item_id(iq[0][0])


async def take(worker: Worker) -> str | None:
    """Take the next item by all steps of its level, and return its ItemID."""
    first = await worker.next_delivery()
    if first.tag == "{jabber:client}message":
        return item_id(first)
    if first[0].tag != f"{{{QOS}}}assured":
        worker.answer(first)
    else:
        worker.answer(first, received(first))
        worker.answer(await worker.next_delivery())
    await worker.expect_nothing()
    return item_of(first)


async def publish(publisher: Worker, *items: str) -> None:
    for one in items:
        content = element("item", "<v xmlns='urn:v'/>", id=one)
        await publisher.ask(element("publish", content, node=NODE))


async def test_qos_1_item_of_a_vanished_member_goes_to_another(tmp_path: Path) -> None:
    async with (
        in_process(tmp_path, *NAMES) as gateway,
        present(gateway.port, *NAMES) as (engine, ant, bee),
    ):
        await engine.ask(element("create", node=NODE))
        await ant.join(1)
        await publish(engine, "i1")
        assert item_of(await ant.next_delivery()) == "i1"
        await bee.join(1)
        await bee.expect_nothing()
        ant.client.cut()
        again = await bee.next_delivery()
        assert item_of(again) == "i1"
        bee.answer(again)
        await publish(engine, "i2")
        assert item_of(await bee.next_delivery()) == "i2"


@pytest.mark.parametrize("qos", [1, 2])
async def test_durable_member_that_returns_gets_its_part(tmp_path: Path, qos: int) -> None:
    async with (
        in_process(tmp_path, *NAMES) as gateway,
        present(gateway.port, "engine") as (engine,),
        present(gateway.port, "ant", "bee", caps=CAPS) as (ant, bee),
    ):
        await engine.ask(element("create", node=NODE))
        await ant.join(qos)
        await bee.join(qos)
        ant.client.send("</stream:stream>")
        await ant.client.closed()
        for number in range(4):
            await publish(engine, f"away{number}")
            assert await take(bee) == f"away{number}"
        async with present(gateway.port, "ant", caps=CAPS) as (again,):
            taken = []
            for number, worker in enumerate([again, bee, again, bee]):
                await publish(engine, f"back{number}")
                taken.append(await take(worker))
            assert taken == [f"back{number}" for number in range(4)]


async def test_items_survive_a_killed_gateway(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway", *NAMES, require_tls=False)
    with gateway.run() as process:
        async with present(process, "engine", "ant") as (engine, ant):
            configure = form("node_config", {"publish_model": "open"})
            await engine.ask(element("create", node=NODE) + f"<configure>{configure}</configure>")
            await ant.join(2)
            await publish(engine, "i1", "i2")
            first = await ant.next_delivery()
            assert item_of(first) == "i1"
        process.kill9()
    with gateway.run() as process:
        async with present(process, "bee", "ant") as (bee, ant):
            await bee.join(2)
            again = await ant.next_delivery()
            assert (again.get("id"), item_of(again)) == (first.get("id"), "i1")
            ant.answer(again, received(again))
            steps = {(await ant.next_delivery())[0].tag.partition("}")[2] for _ in range(2)}
            assert steps == {"assured", "deliver"}
            await bee.expect_nothing()
