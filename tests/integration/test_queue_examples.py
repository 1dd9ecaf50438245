"""The examples of XEP-0254, sent verbatim over raw sockets, get the answers of the specification.

Differences: addresses; errors have the type `error` where an example shows `get`; an item locked by
another is a `conflict`, as in the text, where an example shows `forbidden`; the notification of an
unlocked item has the namespace of the specification; a notification is addressed to the session
that has the item.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.etree.ElementTree import Element

import pytest

from tests.helpers.expected_xml import difference, read, to_text
from tests.helpers.in_process import in_process
from tests.helpers.xmpp import Client

if TYPE_CHECKING:
    Bound = Callable[[str, str], Awaitable[Client]]

NAMES: Final = ("engine", "workerbee237", "workerbee238", "unrelated")
SERVICE: Final = "pubsub.gw.example"
WORKER: Final = "workerbee237@gw.example"
NODE: Final = "a290fjsl29j19kjb"
ITEM: Final = "ae890ac52d0df67ed7cfdf51b644e901"
PUBSUB: Final = "http://jabber.org/protocol/pubsub"

CREATE: Final = f"""
<iq type='set' id='create1' to='{SERVICE}'>
  <pubsub xmlns='{PUBSUB}'>
    <create node='{NODE}'/>
    <configure>
      <x xmlns='jabber:x:data' type='submit'>
        <field var='FORM_TYPE' type='hidden'><value>{PUBSUB}#node_config</value></field>
        <field var='pubsub#queueing'><value>true</value></field>
        {{more}}
      </x>
    </configure>
  </pubsub>
</iq>
"""

SUBSCRIBE: Final = f"""
<iq from='{WORKER}/foo' id='sub1' to='{SERVICE}' type='set'>
  <pubsub xmlns='http://jabber.org/protocol/pubsub'>
    <subscribe jid='{WORKER}' node='{NODE}'/>
  </pubsub>
</iq>
"""

CONFIGURATION_REQUIRED: Final = f"""
<iq from='{SERVICE}' id='sub1' to='{WORKER}/foo' type='error'>
  <pubsub xmlns='http://jabber.org/protocol/pubsub'>
    <subscribe jid='{WORKER}' node='{NODE}'/>
    <options jid='{WORKER}' node='{NODE}'>
      <x xmlns='jabber:x:data' type='form'>
        <field var='FORM_TYPE' type='hidden'>
          <value>http://jabber.org/protocol/pubsub#subscribe_options</value>
        </field>
        <field type='text-single' var='pubsub#queue_requests'>
          <required/>
        </field>
      </x>
    </options>
  </pubsub>
  <error type='modify'>
    <not-acceptable xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>
    <configuration-required xmlns='http://jabber.org/protocol/pubsub#errors'/>
  </error>
</iq>
"""

SUBSCRIBE_WITH_OPTIONS: Final = """
<iq from='{full}' id='sub2' to='pubsub.gw.example' type='set'>
  <pubsub xmlns='http://jabber.org/protocol/pubsub'>
    <subscribe jid='{jid}' node='a290fjsl29j19kjb'/>
    <options jid='{jid}' node='a290fjsl29j19kjb'>
      <x xmlns='jabber:x:data' type='submit'>
        <field var='FORM_TYPE' type='hidden'>
          <value>http://jabber.org/protocol/pubsub#subscribe_options</value>
        </field>
        <field var='pubsub#queue_requests'>
          <value>5</value>
        </field>
      </x>
    </options>
  </pubsub>
</iq>
"""

SUBSCRIBED: Final = """
<iq from='pubsub.gw.example' id='sub2' to='{full}' type='result'>
  <pubsub xmlns='http://jabber.org/protocol/pubsub'>
    <subscription jid='{jid}' node='a290fjsl29j19kjb' subid='{{any}}' subscription='subscribed'/>
    <options>
      <x xmlns='jabber:x:data' type='result'>
        <field var='FORM_TYPE' type='hidden'>
          <value>http://jabber.org/protocol/pubsub#subscribe_options</value>
        </field>
        <field var='pubsub#queue_requests'>
          <value>5</value>
        </field>
      </x>
    </options>
  </pubsub>
</iq>
"""

PUBLISH: Final = f"""
<iq from='engine@gw.example/fw' id='pub1' to='{SERVICE}' type='set'>
  <pubsub xmlns='http://jabber.org/protocol/pubsub'>
    <publish node='{NODE}'>
      <item id='{ITEM}'>
        <example xmlns='urn:xmpp:example'>payload</example>
      </item>
    </publish>
  </pubsub>
</iq>
"""

NOTIFIED: Final = f"""
<message from='{SERVICE}' id='{{any}}' to='{{any}}'>
  <event xmlns='http://jabber.org/protocol/pubsub#event'>
    <items node='{NODE}'>
      <item id='{ITEM}'>
        <example xmlns='urn:xmpp:example'>payload</example>
      </item>
    </items>
  </event>
</message>
"""

DELETE: Final = f"""
<iq id='delete1' to='{SERVICE}' type='{{type}}'>
  <pubsub xmlns='http://jabber.org/protocol/pubsub'>
    <retract node='{NODE}'>
      <item id='{ITEM}'/>
    </retract>
  </pubsub>
</iq>
"""

DELETED: Final = f"""
<message from='{SERVICE}' id='{{any}}' to='{{any}}'>
  <event xmlns='http://jabber.org/protocol/pubsub#event'>
    <items node='{NODE}'>
      <retract id='{ITEM}'/>
    </items>
  </event>
</message>
"""

UNLOCK: Final = f"""
<iq id='unlock1' to='{SERVICE}' type='{{type}}'>
  <pubsub xmlns='http://jabber.org/protocol/pubsub'>
    <unlock xmlns='{{ns}}' node='{NODE}'>
      <item id='{ITEM}'/>
    </unlock>
  </pubsub>
</iq>
"""

UNLOCKED: Final = f"""
<message from='{SERVICE}' id='{{any}}' to='{{any}}'>
  <event xmlns='http://jabber.org/protocol/pubsub#event'>
    <items node='{NODE}'>
      <unlock xmlns='urn:xmpp:pubsub:queueing:0' id='{ITEM}'/>
    </items>
  </event>
</message>
"""

DELETE_REFUSED: Final = f"""
<iq from='{SERVICE}' id='delete1' to='{{full}}' type='error'>
  <pubsub xmlns='http://jabber.org/protocol/pubsub'>
    <retract node='{NODE}'>
      <item id='{ITEM}'/>
    </retract>
  </pubsub>
  <error type='{{type}}'>
    <{{name}} xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>
  </error>
</iq>
"""

UNLOCK_REFUSED: Final = f"""
<iq from='{SERVICE}' id='unlock1' to='{{full}}' type='error'>
  <pubsub xmlns='http://jabber.org/protocol/pubsub'>
    <unlock xmlns='urn:xmpp:pubsub:queueing:0' node='{NODE}'>
      <item id='{ITEM}'/>
    </unlock>
  </pubsub>
  <error type='{{type}}'>
    <{{name}} xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>
  </error>
</iq>
"""

QUEUEING: Final = "urn:xmpp:pubsub:queueing:0"
DELETE_GET: Final = DELETE.format(type="get")
UNLOCK_GET: Final = UNLOCK.format(type="get", ns=QUEUEING)


class Party:
    """A client on a raw socket."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._aside: list[Element] = []

    @property
    def full(self) -> str:
        """Return its full JID."""
        return self.client.full

    def send(self, xml: str) -> None:
        """Send XML verbatim."""
        self.client.send(xml.strip())

    async def expect(self, shown: str) -> Element:
        """Wait for the next stanza of the kind of `shown`, and compare it with that.

        An answer and a notification may come in either order.
        """
        wanted = read(shown.strip())
        for found in self._aside:
            if found.tag == wanted.tag:
                self._aside.remove(found)
                break
        else:
            while (found := await self.client.stanza()).tag != wanted.tag:
                self._aside.append(found)
        assert not difference(wanted, found), f"{difference(wanted, found)}\n{to_text(found)}"
        return found

    async def expect_nothing(self) -> None:
        """Check that no stanzas except presence have arrived."""
        answer = await self.client.iq("get", "<ping xmlns='urn:xmpp:ping'/>")
        assert answer.get("type") == "result"
        assert not [to_text(found) for found in self._aside if not found.tag.endswith("presence")]

    async def subscribe(self) -> None:
        """Subscribe the bare JID, as in the examples."""
        bare = self.full.partition("/")[0]
        self.send(SUBSCRIBE_WITH_OPTIONS.format(full=self.full, jid=bare))
        await self.expect(SUBSCRIBED.format(full=self.full, jid=bare))


class Site:
    """A gateway whose clients are the node owner `engine` and workers."""

    def __init__(self, bound: Bound, stack: AsyncExitStack) -> None:
        self._bound = bound
        self._stack = stack

    async def _log_in(self, user: str, resource: str = "fw") -> Party:
        client = await self._bound(user, resource)
        return Party(await self._stack.enter_async_context(client))

    async def connect(self, user: str, resource: str) -> Party:
        """Log in and become available."""
        party = await self._log_in(user, resource)
        party.send("<presence/>")
        await party.expect(f"<presence from='{party.full}'/>")
        return party

    async def two_workers(self) -> tuple[Party, Party]:
        """Connect two workers."""
        return await self.connect("workerbee237", "foo"), await self.connect("workerbee238", "foo")

    async def create_node(self, *more: tuple[str, str]) -> Party:
        """Create the node of the examples and return its owner."""
        engine = await self._log_in("engine")
        fields = "".join(
            f"<field var='{var}'><value>{value}</value></field>" for var, value in more
        )
        engine.send(CREATE.format(more=fields))
        await engine.expect("<iq id='create1' type='result'/>")
        return engine


@asynccontextmanager
async def site_in(folder: Path) -> AsyncIterator[Site]:
    async with in_process(folder, *NAMES) as gateway, AsyncExitStack() as stack:
        yield Site(gateway.bound, stack)


async def deliver(engine: Party, worker: Party) -> None:
    """Publish an item, and expect a worker to get it."""
    engine.send(PUBLISH)
    await engine.expect("<iq id='pub1' type='result'/>")
    await worker.expect(NOTIFIED)


async def test_an_item_goes_to_one_of_the_subscribers(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        engine = await site.create_node()
        workers = await site.two_workers()
        for worker in workers:
            await worker.subscribe()
        engine.send(PUBLISH)
        await engine.expect("<iq id='pub1' type='result'/>")
        await workers[0].expect(NOTIFIED)
        await workers[1].expect_nothing()
        await engine.expect_nothing()


@pytest.mark.parametrize("type_", ["get", "set"])
async def test_the_receiver_deletes_an_item_and_is_notified(tmp_path: Path, type_: str) -> None:
    async with site_in(tmp_path) as site:
        engine = await site.create_node()
        worker, other = await site.two_workers()
        await worker.subscribe()
        await deliver(engine, worker)
        await other.subscribe()
        worker.send(DELETE.format(type=type_))
        await worker.expect(f"<iq id='delete1' type='result' from='{SERVICE}' to='{worker.full}'/>")
        await worker.expect(DELETED)
        await other.expect_nothing()
        await engine.expect_nothing()


async def unlock(worker: Party, type_: str = "get", ns: str = QUEUEING) -> None:
    """Unlock the item, and expect the notification."""
    worker.send(UNLOCK.format(type=type_, ns=ns))
    await worker.expect(f"<iq id='unlock1' type='result' from='{SERVICE}' to='{worker.full}'/>")
    await worker.expect(UNLOCKED)


async def unsubscribe(worker: Party) -> None:
    """End the subscription."""
    bare = worker.full.partition("/")[0]
    payload = f"<pubsub xmlns='{PUBSUB}'><unsubscribe node='{NODE}' jid='{bare}'/></pubsub>"
    worker.send(f"<iq type='set' id='unsub1' to='{SERVICE}'>{payload}</iq>")
    await worker.expect("<iq id='unsub1' type='result'/>")


async def test_a_subscription_needs_options_and_is_answered_with_them(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        await site.create_node()
        worker = await site.connect("workerbee237", "foo")
        worker.send(SUBSCRIBE)
        await worker.expect(CONFIGURATION_REQUIRED)
        await worker.subscribe()


async def expect_refusals(party: Party, type_: str, name: str) -> None:
    """Request to delete and to unlock the item, and expect both to be refused."""
    for request, refusal in ((DELETE_GET, DELETE_REFUSED), (UNLOCK_GET, UNLOCK_REFUSED)):
        party.send(request)
        await party.expect(refusal.format(full=party.full, type=type_, name=name))


async def test_an_item_locked_by_another_is_a_conflict_to_a_subscriber(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        engine = await site.create_node()
        worker, other = await site.two_workers()
        await worker.subscribe()
        await deliver(engine, worker)
        await other.subscribe()
        await expect_refusals(other, "cancel", "conflict")


async def test_a_request_after_the_lock_ended_is_unexpected(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        engine = await site.create_node()
        worker = await site.connect("workerbee237", "foo")
        await worker.subscribe()
        await deliver(engine, worker)
        await unsubscribe(worker)
        await worker.expect(UNLOCKED)
        await expect_refusals(worker, "wait", "unexpected-request")


async def test_a_missing_item_is_not_found(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        await site.create_node()
        worker = await site.connect("workerbee237", "foo")
        await worker.subscribe()
        await expect_refusals(worker, "cancel", "item-not-found")


async def test_an_unrelated_account_may_not_delete_or_unlock_an_item(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        engine = await site.create_node()
        engine.send(PUBLISH)
        await engine.expect("<iq id='pub1' type='result'/>")
        unrelated = await site.connect("unrelated", "foo")
        await expect_refusals(unrelated, "auth", "forbidden")


@pytest.mark.parametrize(
    ("type_", "ns"), [("get", QUEUEING), ("set", QUEUEING), ("set", "urn:xmpp:queueing:0")]
)
async def test_the_receiver_unlocks_an_item_and_another_gets_it(
    tmp_path: Path, type_: str, ns: str
) -> None:
    async with site_in(tmp_path) as site:
        engine = await site.create_node()
        worker, other = await site.two_workers()
        await worker.subscribe()
        await deliver(engine, worker)
        await other.subscribe()
        await unlock(worker, type_, ns)
        await other.expect(NOTIFIED)
        await worker.expect_nothing()
        await engine.expect_nothing()


async def test_presence_that_is_unavailable_to_the_service_unlocks_and_unsubscribes(
    tmp_path: Path,
) -> None:
    async with site_in(tmp_path) as site:
        engine = await site.create_node()
        worker, other = await site.two_workers()
        await worker.subscribe()
        await deliver(engine, worker)
        await other.subscribe()
        worker.send(f"<presence type='unavailable' to='{SERVICE}'/>")
        await worker.expect(UNLOCKED)
        await other.expect(NOTIFIED)
        await worker.expect_nothing()
        payload = f"<pubsub xmlns='{PUBSUB}'><subscriptions{{}}/></pubsub>"
        worker.send(f"<iq type='get' id='subs1' to='{SERVICE}'>{payload.format('')}</iq>")
        await worker.expect(f"<iq id='subs1' type='result'>{payload.format('')}</iq>")


async def test_the_service_and_the_node_advertise_queueing(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        await site.create_node()
        worker = await site.connect("workerbee237", "foo")
        for node in ("", f" node='{NODE}'"):
            query = f"<query xmlns='http://jabber.org/protocol/disco#info'{node}/>"
            info = await worker.client.iq("get", query, to=SERVICE)
            told = {child.get("var") for child in info[0]}
            assert QUEUEING in told
