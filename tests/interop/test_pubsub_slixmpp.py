"""slixmpp's plugin for XEP-0060 as owner, publisher, subscriber and worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, Final
from xml.etree import ElementTree

import pytest
from slixmpp.plugins.xep_0059.stanza import Set
from slixmpp.plugins.xep_0060.stanza import Pubsub
from slixmpp.xmlstream import register_stanza_plugin

from tests.helpers.gateway import DOMAIN, PASSWORD
from tests.helpers.slix import WAIT_S, Peer, peer, refused
from tests.interop.conftest import Site

SERVICE: Final = f"pubsub.{DOMAIN}"
QUEUEING: Final = "urn:xmpp:pubsub:queueing:0"


class People:
    """Logs in sessions of slixmpp by name."""

    def __init__(self, site: Site, stack: AsyncExitStack) -> None:
        self._site = site
        self._stack = stack

    async def __call__(self, name: str) -> Peer:
        login = self._site.login(name, "SCRAM-SHA-256")
        address = (login.host, login.port)
        session = peer(login.jid, PASSWORD, login.ca, address, SERVICE)
        return await self._stack.enter_async_context(session)


@pytest.fixture
async def people(site: Site) -> AsyncIterator[People]:
    async with AsyncExitStack() as stack:
        yield People(site, stack)


def payload(text: str) -> Any:
    element = ElementTree.Element("{urn:example}reading")
    element.text = text
    return element


def ids(items: Any) -> list[str]:
    return [item["id"] for item in items]


async def test_create_configure_and_delete_a_node(people: People) -> None:
    owner, other = await people("slix-owner"), await people("slix-other")
    pubsub, node = owner.pubsub, "slix/configured"
    config = owner.form(title="Boiler", max_items="3", notify_config="true")
    await pubsub.create_node(SERVICE, node, config)
    form = (await pubsub.get_node_config(SERVICE, node))["pubsub_owner"]["configure"]["form"]
    assert form.get_values()["pubsub#title"] == "Boiler"
    assert form.get_values()["pubsub#max_items"] == "3"
    await other.pubsub.subscribe(SERVICE, node)
    await pubsub.set_node_config(SERVICE, node, owner.form(title="Boiler 1"))
    form = (await pubsub.get_node_config(SERVICE, node))["pubsub_owner"]["configure"]["form"]
    assert form.get_values()["pubsub#title"] == "Boiler 1"
    assert (await other.next_event("pubsub_config"))["configuration"]["node"] == node
    assert await refused(other.pubsub.get_node_config(SERVICE, node)) == ("auth", "forbidden")
    assert await refused(other.pubsub.delete_node(SERVICE, node)) == ("auth", "forbidden")
    assert await refused(pubsub.create_node(SERVICE, node)) == ("cancel", "conflict")
    await pubsub.delete_node(SERVICE, node)
    assert (await other.next_event("pubsub_delete"))["delete"]["node"] == node
    assert await refused(pubsub.get_node_config(SERVICE, node)) == ("cancel", "item-not-found")


async def test_default_configuration_and_an_instant_node(people: People) -> None:
    owner = await people("slix-owner")
    default = (await owner.pubsub.get_node_config(SERVICE))["pubsub_owner"]["default"]["form"]
    assert default.get_values()["pubsub#access_model"] == "open"
    created = await owner.pubsub.create_node(SERVICE, None)
    name = created["pubsub"]["create"]["node"]
    assert name
    nodes = (await owner.pubsub.get_nodes(SERVICE, timeout=WAIT_S))["disco_items"]["items"]
    assert name in {node for _jid, node, _name in nodes}
    await owner.pubsub.delete_node(SERVICE, name)


async def test_publish_retrieve_retract_and_purge_items(people: People) -> None:
    owner, reader = await people("slix-owner"), await people("slix-reader")
    pubsub, node = owner.pubsub, "slix/items"
    await pubsub.create_node(SERVICE, node, owner.form(max_items="10", notify_retract="true"))
    await reader.pubsub.subscribe(SERVICE, node)
    for number in range(3):
        await pubsub.publish(SERVICE, node, f"i{number}", payload(f"{number} <&>"))
        item = (await reader.next_event("pubsub_publish"))["items"]["item"]
        assert (item["id"], item["payload"].text) == (f"i{number}", f"{number} <&>")
    answer = await pubsub.publish(SERVICE, node, payload=payload("named by the service"))
    assigned = answer["pubsub"]["publish"]["item"]["id"]
    assert (await reader.next_event("pubsub_publish"))["items"]["item"]["id"] == assigned

    received = (await reader.pubsub.get_items(SERVICE, node))["pubsub"]["items"]
    assert sorted(ids(received)) == sorted(["i0", "i1", "i2", assigned])
    one = (await reader.pubsub.get_item(SERVICE, node, "i1"))["pubsub"]["items"]
    assert [(item["id"], item["payload"].text) for item in one] == [("i1", "1 <&>")]
    some = (await reader.pubsub.get_items(SERVICE, node, max_items=1))["pubsub"]["items"]
    assert ids(some) == [assigned]
    named = (await reader.pubsub.get_item_ids(SERVICE, node))["disco_items"]["items"]
    assert sorted(name for _jid, _node, name in named) == sorted(["i0", "i1", "i2", assigned])

    theirs = reader.pubsub.publish(SERVICE, node, "x", payload("x"))
    assert await refused(theirs) == ("auth", "forbidden")
    assert (await refused(reader.pubsub.retract(SERVICE, node, "i0")))[1] == "forbidden"
    await pubsub.retract(SERVICE, node, "i0", notify="true")
    assert (await reader.next_event("pubsub_retract"))["items"]["retract"]["id"] == "i0"
    assert (await refused(pubsub.retract(SERVICE, node, "i0")))[1] == "item-not-found"
    await pubsub.purge(SERVICE, node)
    assert (await reader.next_event("pubsub_purge"))["purge"]["node"] == node
    assert ids((await reader.pubsub.get_items(SERVICE, node))["pubsub"]["items"]) == []
    await pubsub.delete_node(SERVICE, node)


async def test_retrieve_many_items_in_pages(people: People) -> None:
    owner = await people("slix-owner")
    node, count = "slix/pages", 25
    await owner.pubsub.create_node(SERVICE, node, owner.form(max_items="100"))
    for number in range(count):
        await owner.pubsub.publish(SERVICE, node, f"i{number:02}", payload(str(number)))
    register_stanza_plugin(Pubsub, Set)  # slixmpp does not register it
    pages = owner.pubsub.get_items(SERVICE, node, iterator=True)
    found = [ids(page["pubsub"]["items"]) async for page in pages]
    assert len(found) > 1
    assert sorted(one for page in found for one in page) == [f"i{n:02}" for n in range(count)]
    await owner.pubsub.delete_node(SERVICE, node)


async def test_set_and_list_affiliations(people: People) -> None:
    owner, other = await people("slix-owner"), await people("slix-other")
    pubsub, node = owner.pubsub, "slix/affiliations"
    await pubsub.create_node(SERVICE, node, owner.form(access_model="whitelist"))
    assert (await refused(other.pubsub.subscribe(SERVICE, node))) == ("cancel", "not-allowed")
    await pubsub.modify_affiliations(SERVICE, node, [(other.bare, "publisher")])
    await other.pubsub.subscribe(SERVICE, node)
    await other.pubsub.publish(SERVICE, node, "i", payload("by another"))
    assert (await other.next_event("pubsub_publish"))["items"]["item"]["id"] == "i"
    received = (await pubsub.get_node_affiliations(SERVICE, node))["pubsub_owner"]["affiliations"]
    assert {str(one["jid"]): one["affiliation"] for one in received} == {
        owner.bare: "owner",
        other.bare: "publisher",
    }
    mine = (await other.pubsub.get_affiliations(SERVICE))["pubsub"]["affiliations"]
    assert {(one["node"], one["affiliation"]) for one in mine} >= {(node, "publisher")}
    assert (await refused(pubsub.modify_affiliations(SERVICE, node, [(owner.bare, "none")])))[1]
    await pubsub.modify_affiliations(SERVICE, node, [(other.bare, "outcast")])
    ended = (await other.next_event("pubsub_subscription"))["subscription"]
    assert (ended["node"], ended["subscription"]) == (node, "none")
    assert (await refused(other.pubsub.subscribe(SERVICE, node)))[1] == "forbidden"
    await pubsub.delete_node(SERVICE, node)


async def test_subscription_options_lists_and_ends(people: People) -> None:
    owner, reader = await people("slix-owner"), await people("slix-reader")
    pubsub, node = owner.pubsub, "slix/subscriptions"
    await pubsub.create_node(SERVICE, node)
    answer = await reader.pubsub.subscribe(SERVICE, node, options=reader.form(deliver="false"))
    assert answer["pubsub"]["subscription"]["subscription"] == "subscribed"
    subid = answer["pubsub"]["subscription"]["subid"]
    assert subid
    request = reader.pubsub.get_subscription_options(SERVICE, node, reader.bare)
    form = (await request)["pubsub"]["options"]["options"]
    assert form.get_values()["pubsub#deliver"] is False
    await pubsub.publish(SERVICE, node, "i1", payload("not delivered"))
    await reader.assert_no_event()

    options = reader.form(deliver="true")
    # slixmpp sets options with an iq of type get, which servers refuse.
    iq = reader.client.make_iq_set(ito=SERVICE)
    sent = iq["pubsub"]["options"]
    sent["node"], sent["jid"] = node, reader.client.boundjid.bare
    sent.append(options)
    await iq.send(timeout=WAIT_S)
    await pubsub.publish(SERVICE, node, "i2", payload("delivered"))
    assert (await reader.next_event("pubsub_publish"))["items"]["item"]["id"] == "i2"

    mine = (await reader.pubsub.get_subscriptions(SERVICE, node))["pubsub"]["subscriptions"]
    (one,) = mine
    assert (one["node"], str(one["jid"]), one["subid"]) == (node, reader.bare, subid)
    theirs = (await pubsub.get_node_subscriptions(SERVICE, node))["pubsub_owner"]["subscriptions"]
    (one,) = theirs
    assert (str(one["jid"]), one["subscription"]) == (reader.bare, "subscribed")
    await reader.pubsub.unsubscribe(SERVICE, node, subid)
    assert (await refused(reader.pubsub.unsubscribe(SERVICE, node)))[1] == "unexpected-request"
    await pubsub.modify_subscriptions(SERVICE, node, [(reader.bare, "subscribed")])
    await pubsub.modify_subscriptions(SERVICE, node, [(reader.bare, "none")])
    await pubsub.delete_node(SERVICE, node)


async def test_a_worker_takes_and_deletes_items_of_a_queue(people: People) -> None:
    owner, worker = await people("slix-owner"), await people("slix-worker")
    node = "slix/queue"
    await owner.pubsub.create_node(SERVICE, node, owner.form(queueing="true"))
    assert await refused(worker.pubsub.subscribe(SERVICE, node)) == ("modify", "not-acceptable")
    options = worker.form(queue_requests="1")
    answer = await worker.pubsub.subscribe(SERVICE, node, options=options)
    assert answer["pubsub"]["subscription"]["subscription"] == "subscribed"
    for name in ("i1", "i2"):
        await owner.pubsub.publish(SERVICE, node, name, payload(name))
    for name in ("i1", "i2"):
        item = (await worker.next_event("pubsub_publish"))["items"]["item"]
        assert (item["id"], item["payload"].text) == (name, name)
        await worker.assert_no_event()
        await worker.pubsub.retract(SERVICE, node, name)
        assert (await worker.next_event("pubsub_retract"))["items"]["retract"]["id"] == name
    await owner.pubsub.publish(SERVICE, node, "i3", payload("i3"))
    await worker.next_event("pubsub_publish")
    await worker.pubsub.unsubscribe(SERVICE, node)
    await owner.pubsub.delete_node(SERVICE, node)


async def test_discover_the_service_and_a_node(people: People) -> None:
    owner = await people("slix-owner")
    disco = owner.client.plugin["xep_0030"]
    node = "slix/discovered"
    await owner.pubsub.create_node(SERVICE, node, owner.form(title="Found"))
    hosted = (await disco.get_items(jid=DOMAIN, timeout=WAIT_S))["disco_items"]["items"]
    assert SERVICE in {str(jid) for jid, _node, _name in hosted}
    info = (await disco.get_info(jid=SERVICE, timeout=WAIT_S))["disco_info"]
    assert ("pubsub", "service") in {one[:2] for one in info["identities"]}
    assert {QUEUEING, "http://jabber.org/protocol/pubsub#publish"} <= info["features"]
    leaf = (await disco.get_info(jid=SERVICE, node=node, timeout=WAIT_S))["disco_info"]
    assert ("pubsub", "leaf") in {one[:2] for one in leaf["identities"]}
    await owner.pubsub.delete_node(SERVICE, node)
