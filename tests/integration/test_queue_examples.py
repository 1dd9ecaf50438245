"""The examples of XEP-0254, sent verbatim over raw sockets, get the answers of the specification.

Differences: addresses; errors have the type `error` where an example shows `get`; an item locked by
another is a `conflict`, as in the text, where an example shows `forbidden`; the notification of an
unlocked item has the namespace of the specification; a notification is addressed to the session
that has the item.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element

import pytest

from tests.helpers.expected_xml import difference, read, to_text
from tests.helpers.in_process import in_process
from tests.helpers.xmpp import Client

NAMES: Final = ("engine", "workerbee237", "workerbee238", "unrelated")
SERVICE: Final = "pubsub.gw.example"
WORKER: Final = "workerbee237@gw.example"
NODE: Final = "a290fjsl29j19kjb"
ITEM: Final = "ae890ac52d0df67ed7cfdf51b644e901"
PUBSUB: Final = "http://jabber.org/protocol/pubsub"
QUEUEING: Final = "urn:xmpp:pubsub:queueing:0"


def request(id: str, content: str, type_: str = "set", sender: str = "") -> str:
    """Return a request, with the white space of the examples."""
    return f"""
<iq {f"from='{sender}' " if sender else ""}id='{id}' to='{SERVICE}' type='{type_}'>
  <pubsub xmlns='{PUBSUB}'>
    {content}
  </pubsub>
</iq>
"""


def refusal(id: str, content: str, full: str, type_: str, name: str, specific: str = "") -> str:
    condition = f"<{name} xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>{specific}"
    return (
        f"<iq from='{SERVICE}' id='{id}' to='{full}' type='error'>"
        f"<pubsub xmlns='{PUBSUB}'>{content}</pubsub><error type='{type_}'>{condition}</error></iq>"
    )


def notification(content: str) -> str:
    return (
        f"<message from='{SERVICE}' id='{{any}}' to='{{any}}'><event xmlns='{PUBSUB}#event'>"
        f"<items node='{NODE}'>{content}</items></event></message>"
    )


CREATE: Final = f"""<create node='{NODE}'/>
    <configure>
      <x xmlns='jabber:x:data' type='submit'>
        <field var='FORM_TYPE' type='hidden'><value>{PUBSUB}#node_config</value></field>
        <field var='pubsub#queueing'><value>true</value></field>
      </x>
    </configure>"""

SUBSCRIBE: Final = "<subscribe jid='{jid}' node='" + NODE + "'/>"
OPTIONS: Final = f"""
      <x xmlns='jabber:x:data' type='{{type}}'>
        <field var='FORM_TYPE' type='hidden'>
          <value>{PUBSUB}#subscribe_options</value>
        </field>
        <field var='pubsub#queue_requests'{{more}}>
          {{value}}
        </field>
      </x>
    </options>"""

ITEM_WITH_PAYLOAD: Final = f"""<item id='{ITEM}'>
        <example xmlns='urn:xmpp:example'>payload</example>
      </item>"""
NOTIFIED: Final = notification(ITEM_WITH_PAYLOAD)
RETRACT: Final = f"<retract node='{NODE}'>\n      <item id='{ITEM}'/>\n    </retract>"
DELETED: Final = notification(f"<retract id='{ITEM}'/>")
UNLOCK: Final = f"<unlock xmlns='{{}}' node='{NODE}'>\n      <item id='{ITEM}'/>\n    </unlock>"
UNLOCKED: Final = notification(f"<unlock xmlns='{QUEUEING}' id='{ITEM}'/>")


class RawClient:
    """A client on a raw socket."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.full = client.full
        self._skipped: list[Element] = []

    def send(self, xml: str) -> None:
        """Send XML verbatim."""
        self.client.send(xml.strip())

    async def expect(self, example: str) -> None:
        """Wait for the next stanza of the kind of `example`, and compare it with that.

        An answer and a notification may come in either order.
        """
        expected = read(example)
        for found in self._skipped:
            if found.tag == expected.tag:
                self._skipped.remove(found)
                break
        else:
            while (found := await self.client.stanza()).tag != expected.tag:
                self._skipped.append(found)
        assert not difference(expected, found), f"{difference(expected, found)}\n{to_text(found)}"

    async def expect_nothing(self) -> None:
        """Check that no stanzas except presence have arrived."""
        answer = await self.client.iq("get", "<ping xmlns='urn:xmpp:ping'/>")
        assert answer.get("type") == "result"
        assert not [to_text(found) for found in self._skipped if not found.tag.endswith("presence")]

    async def expect_result(self, id: str) -> None:
        """Wait for an empty result."""
        await self.expect(f"<iq id='{id}' type='result' from='{SERVICE}' to='{self.full}'/>")

    async def expect_refusals(self, type_: str, name: str) -> None:
        """Request to delete and to unlock the item, and expect both to be refused."""
        for id, content in (("delete1", RETRACT), ("unlock1", UNLOCK.format(QUEUEING))):
            self.send(request(id, content, "get"))
            await self.expect(refusal(id, content, self.full, type_, name))

    async def subscribe(self) -> None:
        """Subscribe the bare JID, as in the examples."""
        jid = self.full.partition("/")[0]
        form = OPTIONS.format(type="submit", value="<value>5</value>", more="")
        content = f"{SUBSCRIBE.format(jid=jid)}\n    <options jid='{jid}' node='{NODE}'>{form}"
        self.send(request("sub2", content, sender=self.full))
        form = OPTIONS.format(type="result", value="<value>5</value>", more="")
        await self.expect(
            f"<iq from='{SERVICE}' id='sub2' to='{self.full}' type='result'>"
            f"<pubsub xmlns='{PUBSUB}'><subscription jid='{jid}' node='{NODE}' subid='{{any}}'"
            f" subscription='subscribed'/><options>{form}</pubsub></iq>"
        )

    async def publish(self) -> None:
        """Publish the item."""
        content = f"<publish node='{NODE}'>\n      {ITEM_WITH_PAYLOAD}\n    </publish>"
        self.send(request("pub1", content, sender=self.full))
        await self.expect("<iq id='pub1' type='result'/>")


Connect = Callable[[str], Awaitable[RawClient]]


@pytest.fixture
async def connect(tmp_path: Path) -> AsyncIterator[Connect]:
    """A function that logs a device in to a gateway and makes it available."""
    async with in_process(tmp_path, *NAMES) as gateway, AsyncExitStack() as stack:

        async def connect(user: str) -> RawClient:
            client = await gateway.bind_session(user, "foo")
            raw_client = RawClient(await stack.enter_async_context(client))
            raw_client.send("<presence/>")
            await raw_client.expect(f"<presence from='{raw_client.full}'/>")
            return raw_client

        yield connect


@pytest.fixture
async def engine(connect: Connect) -> RawClient:
    """The owner of the node of the examples."""
    engine = await connect("engine")
    engine.send(request("create1", CREATE))
    await engine.expect_result("create1")
    return engine


@pytest.fixture
async def worker(connect: Connect, engine: RawClient) -> RawClient:
    """A worker that is subscribed to the node."""
    worker = await connect("workerbee237")
    await worker.subscribe()
    return worker


@pytest.fixture
async def holder(worker: RawClient, engine: RawClient) -> RawClient:
    """The worker, which has received the item."""
    await engine.publish()
    await worker.expect(NOTIFIED)
    return worker


@pytest.fixture
async def other(connect: Connect, holder: RawClient) -> RawClient:
    """A worker that subscribed later."""
    other = await connect("workerbee238")
    await other.subscribe()
    return other


async def test_an_item_goes_to_one_of_the_subscribers(
    connect: Connect, engine: RawClient, worker: RawClient
) -> None:
    other = await connect("workerbee238")
    await other.subscribe()
    await engine.publish()
    await worker.expect(NOTIFIED)
    await other.expect_nothing()
    await engine.expect_nothing()


@pytest.mark.parametrize("type_", ["get", "set"])
async def test_the_receiver_deletes_an_item_and_is_notified(
    engine: RawClient, holder: RawClient, other: RawClient, type_: str
) -> None:
    holder.send(request("delete1", RETRACT, type_))
    await holder.expect_result("delete1")
    await holder.expect(DELETED)
    await other.expect_nothing()
    await engine.expect_nothing()


@pytest.mark.parametrize(
    ("type_", "ns"), [("get", QUEUEING), ("set", QUEUEING), ("set", "urn:xmpp:queueing:0")]
)
async def test_the_receiver_unlocks_an_item_and_another_gets_it(
    engine: RawClient, holder: RawClient, other: RawClient, type_: str, ns: str
) -> None:
    holder.send(request("unlock1", UNLOCK.format(ns), type_))
    await holder.expect_result("unlock1")
    await holder.expect(UNLOCKED)
    await other.expect(NOTIFIED)
    await holder.expect_nothing()
    await engine.expect_nothing()


@pytest.mark.usefixtures("engine")
async def test_a_subscription_needs_options_and_is_answered_with_them(connect: Connect) -> None:
    worker = await connect("workerbee237")
    subscribe = SUBSCRIBE.format(jid=WORKER)
    worker.send(request("sub1", subscribe, sender=worker.full))
    form = OPTIONS.format(type="form", value="<required/>", more=" type='text-single'")
    content = f"{subscribe}<options jid='{WORKER}' node='{NODE}'>{form}"
    specific = f"<configuration-required xmlns='{PUBSUB}#errors'/>"
    await worker.expect(refusal("sub1", content, worker.full, "modify", "not-acceptable", specific))
    await worker.subscribe()


async def test_an_item_locked_by_another_is_a_conflict_to_a_subscriber(other: RawClient) -> None:
    await other.expect_refusals("cancel", "conflict")


async def test_a_request_after_the_lock_ended_is_unexpected(holder: RawClient) -> None:
    holder.send(request("unsub1", f"<unsubscribe node='{NODE}' jid='{WORKER}'/>"))
    await holder.expect("<iq id='unsub1' type='result'/>")
    await holder.expect(UNLOCKED)
    await holder.expect_refusals("wait", "unexpected-request")


async def test_a_missing_item_is_not_found(worker: RawClient) -> None:
    await worker.expect_refusals("cancel", "item-not-found")


async def test_an_unrelated_account_may_not_delete_or_unlock_an_item(
    connect: Connect, engine: RawClient
) -> None:
    await engine.publish()
    await (await connect("unrelated")).expect_refusals("auth", "forbidden")


async def test_presence_that_is_unavailable_to_the_service_unlocks_and_unsubscribes(
    holder: RawClient, other: RawClient
) -> None:
    holder.send(f"<presence type='unavailable' to='{SERVICE}'/>")
    await holder.expect(UNLOCKED)
    await other.expect(NOTIFIED)
    await holder.expect_nothing()
    listed = f"<pubsub xmlns='{PUBSUB}'><subscriptions/></pubsub>"
    assert len((await holder.client.iq("get", listed, to=SERVICE))[0][0]) == 0


async def test_the_service_and_the_node_advertise_queueing(worker: RawClient) -> None:
    for node in ("", f" node='{NODE}'"):
        query = f"<query xmlns='http://jabber.org/protocol/disco#info'{node}/>"
        info = await worker.client.iq("get", query, to=SERVICE)
        assert QUEUEING in {child.get("var") for child in info[0]}
