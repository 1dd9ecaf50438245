"""XMPP workers and subscribers over real sockets, which support QoS."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from hashlib import sha1
from typing import Final
from xml.etree.ElementTree import Element

from tests.helpers.gateway import bind_session
from tests.helpers.processes import Process
from tests.helpers.pubsub import SERVICE, element, options
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

    async def appear(self) -> None:
        """Become available and announce support of QoS."""
        self.client.send(f"<presence>{CAPS}</presence>")
        while (await self._stanza()).get("from") != self.client.full:
            pass

    async def join(self, qos: int, share: str = SHARE) -> None:
        """Join a shared subscription."""
        bare = self.client.full.partition("/")[0]
        await self.ask(element("subscribe", node=share, jid=bare) + options(qos=str(qos)))

    async def next_delivery(self) -> Element:
        """Wait for the next iq that delivers a message."""
        while (found := await self._stanza()).get("type") != "set":
            pass
        return found

    def answer(self, iq: Element, payload: str = "") -> None:
        """Send the result of an iq."""
        head = f"type='result' id='{iq.get('id')}' to='{iq.get('from')}'"
        self.client.send(f"<iq {head}>{payload}</iq>")

    async def expect_nothing(self) -> None:
        """Check that nothing has arrived: the next stanza is the answer to a ping."""
        self.client.send("<iq type='get' id='ping'><ping xmlns='urn:xmpp:ping'/></iq>")
        assert (await self._stanza()).get("id") == "ping"


@asynccontextmanager
async def present(at: int | Process, *users: str) -> AsyncIterator[list[Worker]]:
    """Log users in and make them available."""
    async with AsyncExitStack() as stack:
        found = []
        for user in users:
            client = await stack.enter_async_context(await bind_session(at, user))
            found.append(Worker(client))
            await found[-1].appear()
        yield found


async def take(worker: Worker) -> str | None:
    """Take the next item by all steps of its level, and return its ItemID."""
    return item_id(await take_message(worker))


async def take_message(worker: Worker) -> Element:
    """Take the next message by all steps of its level."""
    first = await worker.next_delivery()
    if first[0].tag == f"{{{QOS}}}assured":
        worker.answer(first, f"<received xmlns='{QOS}' msgId='{first[0].get('msgId')}'/>")
        worker.answer(await worker.next_delivery())
    else:
        worker.answer(first)
    await worker.expect_nothing()
    return first[0][0]


async def take_several(worker: Worker, count: int) -> list[Element]:
    """Take messages at level 2, whose steps may be mixed; return them in order."""
    held: dict[str | None, Element] = {}
    taken: list[Element] = []
    while len(taken) < count:
        iq = await worker.next_delivery()
        msg_id = iq[0].get("msgId")
        if iq[0].tag == f"{{{QOS}}}assured":
            held[msg_id] = iq[0][0]
            worker.answer(iq, f"<received xmlns='{QOS}' msgId='{msg_id}'/>")
        else:
            taken.append(held.pop(msg_id))
            worker.answer(iq)
    return taken


async def publish(publisher: Worker, *items: str) -> None:
    for one in items:
        content = element("item", "<v xmlns='urn:v'/>", id=one)
        await publisher.ask(element("publish", content, node=NODE))
