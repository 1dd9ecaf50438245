"""The examples of XEP-0254, sent as they stand there by raw sockets, get the answers shown there.

Adjusted: the addresses; errors are of type `error` where an example shows `get`; where one shows
`forbidden` for what is locked by another, it is `conflict`, as the text has it; the notification of
an unlocked item has the namespace of the specification, and a notification is addressed to the
session that has the item.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.etree.ElementTree import Element

import pytest

from tests.helpers.gateway import PASSWORD, Gateway, port_of
from tests.helpers.in_process import in_process
from tests.helpers.shown import lacking, read, tell
from tests.helpers.xmpp import Client, condition, log_in

if TYPE_CHECKING:
    Bound = Callable[[str, str], Awaitable[Client]]

NAMES: Final = ("engine", "workerbee237", "workerbee238", "stranger")
SERVICE: Final = "pubsub.gw.example"
WORKER: Final = "workerbee237@gw.example"
NODE: Final = "a290fjsl29j19kjb"
ITEM: Final = "ae890ac52d0df67ed7cfdf51b644e901"
PUBSUB: Final = "http://jabber.org/protocol/pubsub"
OWNER: Final = "http://jabber.org/protocol/pubsub#owner"
EVENT: Final = "{http://jabber.org/protocol/pubsub#event}"

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
    """Somebody at a raw socket."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._aside: list[Element] = []

    @property
    def full(self) -> str:
        """Its address."""
        return self.client.full

    def say(self, xml: str) -> None:
        """Send it as it stands."""
        self.client.send(xml.strip())

    async def hear(self, shown: str) -> Element:
        """Wait for the next stanza of the shown kind, which has to be as shown.

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
        assert not lacking(wanted, found), f"{lacking(wanted, found)}\n{tell(found)}"
        return found

    async def silent(self) -> None:
        """Nothing more has come, but what is presence."""
        answer = await self.client.iq("get", "<ping xmlns='urn:xmpp:ping'/>")
        assert answer.get("type") == "result"
        assert not [tell(found) for found in self._aside if not found.tag.endswith("presence")]

    async def subscribe(self) -> None:
        """Subscribe by the bare JID, as the examples do."""
        bare = self.full.partition("/")[0]
        self.say(SUBSCRIBE_WITH_OPTIONS.format(full=self.full, jid=bare))
        await self.hear(SUBSCRIBED.format(full=self.full, jid=bare))


class Site:
    """A gateway with the node of the examples, its owner `engine`, and workers who come."""

    def __init__(self, bound: Bound, stack: AsyncExitStack) -> None:
        self._bound = bound
        self._stack = stack

    async def _log_in(self, user: str, resource: str = "fw") -> Party:
        client = await self._bound(user, resource)
        return Party(await self._stack.enter_async_context(client))

    async def come(self, user: str, resource: str) -> Party:
        """Log in, and be there."""
        party = await self._log_in(user, resource)
        party.say("<presence/>")
        await party.hear(f"<presence from='{party.full}'/>")
        return party

    async def two(self) -> tuple[Party, Party]:
        """Have two workers come."""
        return await self.come("workerbee237", "foo"), await self.come("workerbee238", "foo")

    async def make(self, *more: tuple[str, str]) -> Party:
        """Have the owner make the node; returns the owner."""
        engine = await self._log_in("engine")
        fields = "".join(
            f"<field var='{var}'><value>{value}</value></field>" for var, value in more
        )
        engine.say(CREATE.format(more=fields))
        await engine.hear("<iq id='create1' type='result'/>")
        return engine


@asynccontextmanager
async def site_in(folder: Path) -> AsyncIterator[Site]:
    async with in_process(folder, *NAMES) as gateway, AsyncExitStack() as stack:
        yield Site(gateway.bound, stack)


@asynccontextmanager
async def running_in(folder: Path) -> AsyncIterator[Site]:
    """The same in a process of its own, where time passes."""
    gateway = Gateway(folder, *NAMES)
    with gateway.run() as process:
        port = port_of(process)

        def bound(user: str, resource: str) -> Awaitable[Client]:
            return log_in(port, gateway.ca, user, PASSWORD, resource)

        async with AsyncExitStack() as stack:
            yield Site(bound, stack)


async def give(engine: Party, worker: Party) -> None:
    """Have an item published, and given to a worker."""
    engine.say(PUBLISH)
    await engine.hear("<iq id='pub1' type='result'/>")
    await worker.hear(NOTIFIED)


async def test_a_subscription_without_options_is_answered_with_the_form(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        await site.make()
        worker = await site.come("workerbee237", "foo")
        worker.say(SUBSCRIBE)
        await worker.hear(CONFIGURATION_REQUIRED)


async def test_a_subscription_with_options_is_answered_with_them(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        await site.make()
        worker = await site.come("workerbee237", "foo")
        await worker.subscribe()


async def test_an_item_goes_to_one_of_the_subscribers(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        engine = await site.make()
        workers = await site.two()
        for worker in workers:
            await worker.subscribe()
        engine.say(PUBLISH)
        await engine.hear("<iq id='pub1' type='result'/>")
        await workers[0].hear(NOTIFIED)
        await workers[1].silent()
        await engine.silent()


@pytest.mark.parametrize("type_", ["get", "set"])
async def test_the_receiver_deletes_an_item_and_is_notified(tmp_path: Path, type_: str) -> None:
    async with site_in(tmp_path) as site:
        engine = await site.make()
        worker, other = await site.two()
        await worker.subscribe()
        await give(engine, worker)
        await other.subscribe()
        worker.say(DELETE.format(type=type_))
        await worker.hear(f"<iq id='delete1' type='result' from='{SERVICE}' to='{worker.full}'/>")
        await worker.hear(DELETED)
        await other.silent()
        await engine.silent()


async def test_deleting_an_item_locked_by_another_is_a_conflict(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        engine = await site.make()
        worker, other = await site.two()
        await worker.subscribe()
        await give(engine, worker)
        await other.subscribe()
        other.say(DELETE_GET)
        await other.hear(DELETE_REFUSED.format(full=other.full, type="cancel", name="conflict"))


async def unlock(worker: Party, type_: str = "get", ns: str = QUEUEING) -> None:
    """Give an item back, and be told so."""
    worker.say(UNLOCK.format(type=type_, ns=ns))
    await worker.hear(f"<iq id='unlock1' type='result' from='{SERVICE}' to='{worker.full}'/>")
    await worker.hear(UNLOCKED)


async def unsubscribe(worker: Party) -> None:
    """Take no more."""
    bare = worker.full.partition("/")[0]
    payload = f"<pubsub xmlns='{PUBSUB}'><unsubscribe node='{NODE}' jid='{bare}'/></pubsub>"
    worker.say(f"<iq type='set' id='unsub1' to='{SERVICE}'>{payload}</iq>")
    await worker.hear("<iq id='unsub1' type='result'/>")


async def test_deleting_an_item_after_the_lock_ended_is_unexpected(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        engine = await site.make()
        worker = await site.come("workerbee237", "foo")
        await worker.subscribe()
        await give(engine, worker)
        await unsubscribe(worker)
        await worker.hear(UNLOCKED)
        worker.say(DELETE_GET)
        await worker.hear(
            DELETE_REFUSED.format(full=worker.full, type="wait", name="unexpected-request")
        )


@pytest.mark.parametrize(
    ("type_", "ns"), [("get", QUEUEING), ("set", QUEUEING), ("set", "urn:xmpp:queueing:0")]
)
async def test_the_receiver_unlocks_an_item_and_another_gets_it(
    tmp_path: Path, type_: str, ns: str
) -> None:
    async with site_in(tmp_path) as site:
        engine = await site.make()
        worker, other = await site.two()
        await worker.subscribe()
        await give(engine, worker)
        await other.subscribe()
        await unlock(worker, type_, ns)
        await other.hear(NOTIFIED)
        await worker.silent()
        await engine.silent()


async def test_a_missing_item_is_not_found(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        await site.make()
        worker = await site.come("workerbee237", "foo")
        await worker.subscribe()
        missing = {"full": worker.full, "type": "cancel", "name": "item-not-found"}
        worker.say(UNLOCK_GET)
        await worker.hear(UNLOCK_REFUSED.format(**missing))
        worker.say(DELETE_GET)
        await worker.hear(DELETE_REFUSED.format(**missing))


async def test_an_unrelated_account_may_not_delete_or_unlock_an_item(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        engine = await site.make()
        engine.say(PUBLISH)
        await engine.hear("<iq id='pub1' type='result'/>")
        stranger = await site.come("stranger", "foo")
        refused = {"full": stranger.full, "type": "auth", "name": "forbidden"}
        stranger.say(UNLOCK_GET)
        await stranger.hear(UNLOCK_REFUSED.format(**refused))
        stranger.say(DELETE_GET)
        await stranger.hear(DELETE_REFUSED.format(**refused))


async def test_unlocking_an_item_locked_by_another_is_a_conflict(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        engine = await site.make()
        worker, other = await site.two()
        await worker.subscribe()
        await give(engine, worker)
        await other.subscribe()
        other.say(UNLOCK_GET)
        await other.hear(UNLOCK_REFUSED.format(full=other.full, type="cancel", name="conflict"))


async def test_unlocking_an_item_after_the_lock_ended_is_unexpected(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        engine = await site.make()
        worker = await site.come("workerbee237", "foo")
        await worker.subscribe()
        await give(engine, worker)
        await unsubscribe(worker)
        await worker.hear(UNLOCKED)
        worker.say(UNLOCK_GET)
        await worker.hear(
            UNLOCK_REFUSED.format(full=worker.full, type="wait", name="unexpected-request")
        )


async def test_the_service_and_the_node_advertise_queueing(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        await site.make()
        worker = await site.come("workerbee237", "foo")
        for node in ("", f" node='{NODE}'"):
            query = f"<query xmlns='http://jabber.org/protocol/disco#info'{node}/>"
            info = await worker.client.iq("get", query, to=SERVICE)
            told = {child.get("var") for child in info[0]}
            assert QUEUEING in told


async def test_unavailable_presence_unlocks_items_and_unsubscribes(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        engine = await site.make()
        worker, other = await site.two()
        await worker.subscribe()
        await give(engine, worker)
        await other.subscribe()
        worker.say("<presence type='unavailable'/>")
        await other.hear(NOTIFIED)
        owned = f"<pubsub xmlns='{OWNER}'><subscriptions node='{NODE}'/></pubsub>"
        engine.say(f"<iq type='get' id='subs' to='{SERVICE}'>{owned}</iq>")
        answer = await engine.hear("<iq id='subs' type='result'/>")
        assert [one.get("jid") for one in answer[0][0]] == ["workerbee238@gw.example"]


async def test_unsubscribing_unlocks_all_items(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        engine = await site.make()
        worker, other = await site.two()
        await worker.subscribe()
        await give(engine, worker)
        await other.subscribe()
        await unsubscribe(worker)
        await other.hear(NOTIFIED)
        worker.say(UNLOCK_GET)
        await worker.hear(UNLOCKED)
        found = await worker.hear("<iq id='unlock1' type='error'/>")
        assert condition(found) == "conflict", "it received the item before, and another has it"


async def test_a_lock_times_out_and_another_worker_gets_the_item(
    tmp_path: Path,
) -> None:
    async with running_in(tmp_path) as site:
        engine = await site.make(("pubsub#queue_lock_timeout", "1"))
        worker, other = await site.two()
        await worker.subscribe()
        await give(engine, worker)
        await other.subscribe()
        await worker.hear(UNLOCKED)
        await other.hear(NOTIFIED)
